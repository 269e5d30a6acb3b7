/* What other ranks say while ranks compare what they run: a rank alone, whose collectives bring
 * any bytes in the others' names.  It ends with one line or agrees; it never crashes.  And texts
 * of programs of calls: what is verified can be walked. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "program/talk.h"
#include "program/walk.h"
#include "session/agree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char stages[] = "program a rank 0 of 2 micro 2 lanes 2 { group [0,1]\n"
                             "stream compute compute device 0 threads 0\n"
                             "actor x on compute { collective s barrier group 0 tag 9 ; "
                             "send h to 1 tag 1 credits 2 ;"
                             " }\nlist compute { x 0; x 1; } }\n"
                             "program b rank 1 of 2 micro 2 lanes 2 { group [0,1]\n"
                             "stream compute compute device 0 threads 0\n"
                             "actor x on compute { collective s barrier group 0 tag 9 ; "
                             "recv h from 0 tag 1 credits 2 "
                             "; }\nlist compute { x 0; x 1; } }\n";

static const uint8_t *in;
static size_t         left;

static uint8_t take_byte(void)
{
    if (!left) return 0;
    left--;
    return *in++;
}

/* What rank r says where this one says `mine`: the same, any bytes, the same but for some, its
 * negative, its name changed. */
static void say_other(char *out, const char *mine, size_t n)
{
    uint8_t how = take_byte();
    memcpy(out, mine, n);
    if (how % 8 < 2) {
        for (size_t i = 0; i < n && left; i++) out[i] = (char)take_byte();
    } else if (how % 8 < 5) {
        for (int i = 0; i < how % 8 && n; i++) {
            size_t at = ((size_t)take_byte() << 8 | take_byte()) % n;
            out[at]   = (char)take_byte();
        }
    } else if (how % 8 == 5 && n == 8) {
        uint64_t x;
        memcpy(&x, mine, 8);
        x = 0 - x;
        memcpy(out, &x, 8);
    } else if (how % 8 == 6) {
        for (size_t i = 0; i + 6 < n; i++)
            if (!memcmp(out + i, "rank ", 5)) out[i + 5] ^= 1;
    }
}

static weft_status run(weft_comm *c, const weft_comm_call *call)
{
    weft_collective kind = call->kind;
    const void     *mine = call->tensor.in;
    void           *out  = call->tensor.out;
    size_t n = (size_t)call->tensor.count * (size_t)weft_dtype_bytes(call->dtype);
    if (kind == WEFT_BARRIER) return WEFT_OK;
    if (n > 1 << 14) return WEFT_FAIL(WEFT_ERR_PEER, "nobody sends as much");
    if (kind == WEFT_BROADCAST) {
        char *own = malloc(n + 1);
        memcpy(own, mine, n);
        if (c->rank) say_other(out, own, n);
        free(own);
        return WEFT_OK;
    }
    for (int r = 0; r < c->world; r++) {
        char *to = (char *)out + (size_t)r * n;
        if (r == c->rank)
            memcpy(to, mine, n);
        else
            say_other(to, mine, n);
    }
    return WEFT_OK;
}

static void give_up(weft_comm *c, const char *why)
{
    (void)c;
    if (strlen(why) > 1000) abort();
}

static void walk_calls(const char *text, size_t n)
{
    weft_program **p;
    int            n_program;
    weft_status    st = WEFT_OK;
    if (weft_program_parse_set("fuzz", text, n, &p, &n_program) != WEFT_OK) return;
    for (int k = 0; k < n_program && st == WEFT_OK; k++)
        st = weft_program_verify_calls(p[k]);
    if (st == WEFT_OK)
        (void)weft_program_walk((const weft_program *const *)p, n_program,
                                &(weft_walk_options){.n_step = 2});
    weft_program_destroy_set(p, n_program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const weft_comm_ops ops     = {.run = run, .abort = give_up};
    static const char *const   text[3] = {"a is 1", "b is 2,", "  c is 3"};
    weft_program             **p;
    int                        n_program;
    if (!n) return 0;
    if (data[0] & 0x80) {
        walk_calls((const char *)data + 1, n - 1);
        return 0;
    }
    if (weft_program_parse_set("stages", stages, sizeof stages - 1, &p, &n_program) !=
        WEFT_OK)
        abort();
    weft_comm            c     = {.op = &ops, .rank = data[0] & 1, .world = 2};
    weft_comm_group_head group = {0};
    weft_agree           a     = {.comm = &c, .group = (weft_comm_group *)(void *)&group};
    in                         = data + 1;
    left                       = n - 1;
    if (data[0] & 2)
        (void)weft_agree_texts(&a, "the plan", data[0] & 4 ? 2 : 3, text);
    else
        (void)weft_agree_programs(&a, p[c.rank]);
    weft_program_destroy_set(p, n_program);
    return 0;
}
