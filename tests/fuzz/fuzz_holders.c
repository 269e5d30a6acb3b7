/* What other ranks say that they hold of a state's tensors: a rank of three, whose collectives
 * bring any numbers in the others' names.  It ends with one line or with a table in which every
 * part is within its tensor; every rank's parts can then be moved to itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "state/move.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    WORLD    = 3,
    MOST_BOX = 256 /* of a tensor that moves are planned for: they go box by box */
};

static const uint8_t *in;
static size_t         left;
static uint8_t        how;

static uint8_t take_byte(void)
{
    if (!left) return 0;
    left--;
    return *in++;
}

/* Mostly small ones. */
static int32_t take_number(void)
{
    uint8_t  b = take_byte();
    uint32_t x = 0;
    if (b < 250) return (int32_t)b - 1;
    for (int i = 0; i < 4; i++) x = x << 8 | take_byte();
    return (int32_t)x;
}

/* Another rank says the same as this one, the same but for some numbers, or any numbers. */
static void say_other(int32_t *out, const int32_t *mine, int64_t n, unsigned rank)
{
    unsigned kind = how >> 2 * rank & 3;
    memcpy(out, mine, sizeof *out * (size_t)n);
    if (kind == 1 && n > 1) /* its size is as this one's */
        for (int i = 0; i < 3; i++) {
            int64_t at = take_byte() % n;
            out[at]    = take_number();
        }
    if (kind > 1)
        for (int64_t i = 0; i < n && left; i++) out[i] = take_number();
}

static weft_status run(weft_comm *c, const weft_comm_call *call)
{
    const int32_t *mine = call->tensor.in;
    int64_t        n    = call->tensor.count;
    if (call->kind != WEFT_ALL_GATHER || call->dtype != WEFT_DTYPE_I32) abort();
    if (n > 1 << 14) return WEFT_FAIL(WEFT_ERR_PEER, "nobody sends as much");
    for (int r = 0; r < c->world; r++) {
        int32_t *to = (int32_t *)call->tensor.out + (int64_t)r * n;
        if (r == c->rank)
            memcpy(to, mine, sizeof *to * (size_t)n);
        else
            say_other(to, mine, n, (unsigned)r);
    }
    return WEFT_OK;
}

static void give_up(weft_comm *c, const char *why)
{
    (void)c;
    if (strlen(why) > 1000) abort();
}

/* Three tensors: this rank holds rows of one, blocks of another and nothing of the last, which is
 * large. */
static weft_state *make_state(void)
{
    static const weft_interval rows[] = {{0, 2}}, columns[] = {{0, 2}, {4, 6}},
                               some[] = {{3, 8}};
    const weft_part a                 = {
                        .shape = {.n = 2, .d = {4, 6}}, .n = {1, 2}, .run = {rows, columns}};
    const weft_part         b   = {.shape = {.n = 1, .d = {9}}, .n = {1}, .run = {some}};
    const weft_state_tensor t[] = {
        {"a", WEFT_DTYPE_F32, a.shape, &a, 0, false},
        {"b", WEFT_DTYPE_BF16, b.shape, &b, 64, false},
        {"c", WEFT_DTYPE_F32, {.n = 3, .d = {1 << 20, 1 << 20, 1000}}, NULL, 0, false}};
    weft_state *s;
    if (weft_state_create(NULL, 128, &s) != WEFT_OK) abort();
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (weft_state_add(s, &t[i]) != WEFT_OK) abort();
    return s;
}

static void check_part(const weft_held_tensor *t, const weft_part *p)
{
    if (!weft_shape_equal(&p->shape, &t->shape) || weft_part_count(p) < 1) abort();
    for (int d = 0; d < p->shape.n; d++)
        for (int k = 0; k < p->n[d]; k++) {
            const weft_interval *x = &p->run[d][k];
            if (x->lo >= x->hi || x->lo < (k ? x[-1].hi : 0) || x->hi > t->shape.d[d])
                abort();
        }
}

/* Returns the boxes of all parts. */
static int64_t check_table(const weft_holders *h)
{
    int64_t n_box = 0;
    for (int i = 0; i < h->n_tensor; i++)
        for (int k = 0; k < h->tensor[i].n_holder; k++) {
            const weft_holder *x = &h->tensor[i].holder[k];
            check_part(&h->tensor[i], x->part);
            if (weft_part_boxes(x->part) < 1) abort();
            n_box += weft_part_boxes(x->part) * x->n_rank;
            for (int r = 0; r < x->n_rank; r++)
                if (x->rank[r] < (r ? x->rank[r - 1] + 1 : 0) || x->rank[r] >= WORLD)
                    abort();
        }
    return n_box;
}

static void check_moves(const weft_holders *h)
{
    weft_move_list l = {0};
    if (weft_move_plan(h, h, -1, &l) != WEFT_OK) abort();
    for (int i = 0; i < l.n; i++)
        if (l.move[i].from != l.move[i].to || weft_region_count(&l.move[i].region) < 1)
            abort();
    weft_move_list_fini(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const weft_comm_ops ops = {.run = run, .abort = give_up};
    if (!n) return 0;
    weft_comm            c     = {.op = &ops, .world = WORLD};
    weft_comm_group_head group = {0};
    weft_state          *s     = make_state();
    weft_holders        *h     = NULL;
    how                        = data[0];
    in                         = data + 1;
    left                       = n - 1;
    c.rank                     = how & 1;
    if (weft_holders_exchange(s, &c, (weft_comm_group *)(void *)&group, &h) == WEFT_OK &&
        check_table(h) <= MOST_BOX)
        check_moves(h);
    weft_holders_destroy(h);
    weft_state_destroy(s);
    return 0;
}
