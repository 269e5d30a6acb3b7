/* Collectives as messages: run on numbers, they end in what they promise, in the tree's order and with no more
 * messages than stated. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "exchange/exchange.h"

enum {
    MAX_N = 130,
};

typedef struct letter {
    int   from;
    bool  aside, used;
    float x[2][MAX_N]; /* by share; [1]: aside */
} letter;

typedef struct position {
    int   step, n_sent;
    bool  sent; /* in this step */
    float x[MAX_N], aside[MAX_N];
    float got[MAX_N]; /* direct: the own share, by position */
    letter
        box[MAX_N]; /* one a sender is enough: who sends twice waits in between, here */
} position;

static position *p;
static float     in[MAX_N][MAX_N], sum[MAX_N]; /* [position][share] */

static float noise(unsigned *seed)
{
    return (float)rand_r(seed) / (float)RAND_MAX - 0.4f;
}

static void fill(const weft_exchange *x)
{
    unsigned    seed = (unsigned)x->n;
    const void *all[MAX_N];
    memset(p, 0, sizeof *p * (size_t)x->n);
    for (int i = 0; i < x->n; i++) {
        all[i] = in[i];
        for (int k = 0; k < x->n; k++) {
            in[i][k]  = noise(&seed);
            bool own  = x->kind != WEFT_EXCHANGE_ALL_GATHER || k == i;
            p[i].x[k] = own ? in[i][k] : -7;
        }
    }
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_F32, x->n, all, sum, x->n), WEFT_OK);
}

/* Letters to one position from another are taken in the order sent: a full place makes the sender wait. */
static bool send(const weft_exchange *x, int me, const weft_exchange_step *s)
{
    letter *l = &p[s->to].box[me];
    if (l->used) return false;
    *l = (letter){.from = me, .aside = s->send_aside, .used = true};
    for (int i = 0; i < s->send.n; i++) {
        int k = s->send.first + i * s->send.stride;
        assert_true(k < x->n);
        l->x[0][k] = x->kind == WEFT_EXCHANGE_ALL_TO_ALL ? in[me][k] : p[me].x[k];
        l->x[1][k] = p[me].aside[k];
    }
    p[me].n_sent++;
    return true;
}

static bool receive(const weft_exchange *x, int me, const weft_exchange_step *s)
{
    letter *l    = &p[me].box[s->from];
    bool    keep = x->algorithm == WEFT_EXCHANGE_DIRECT && s->use == WEFT_EXCHANGE_ADD;
    if (!l->used) return false;
    assert_int_equal(l->aside, s->recv_aside);
    for (int i = 0; i < s->recv.n; i++) {
        int k = s->recv.first + i * s->recv.stride;
        /* what is exchanged among all lies at the sender's place afterwards, and was sent as ours */
        float v = l->x[0][x->kind == WEFT_EXCHANGE_ALL_TO_ALL ? me : k];
        if (keep)
            p[me].got[s->from] = v;
        else if (s->use == WEFT_EXCHANGE_ADD)
            p[me].x[k] += v;
        else if (s->use == WEFT_EXCHANGE_ASIDE)
            p[me].aside[k] = v;
        else
            p[me].x[k] = v;
        if (s->recv_aside) p[me].aside[k] = l->x[1][k];
    }
    l->used = false;
    return true;
}

/* After the last adding message of a direct sum. */
static void add_all(const weft_exchange *x, int me)
{
    const void *all[MAX_N];
    p[me].got[me] = in[me][me];
    for (int i = 0; i < x->n; i++) all[i] = &p[me].got[i];
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_F32, x->n, all, &p[me].x[me], 1), WEFT_OK);
}

static bool advance(const weft_exchange *x, int me)
{
    position *q = &p[me];
    if (q->step == weft_exchange_count(x, me)) return false;
    weft_exchange_step s     = weft_exchange_at(x, me, q->step);
    bool               moved = false;
    if (s.to >= 0 && !q->sent) {
        if (!send(x, me, &s)) return false;
        q->sent = moved = true;
    }
    if (s.from >= 0 && !receive(x, me, &s)) return moved;
    for (int k = 0; s.finish && k < x->n; k++) q->x[k] += q->aside[k];
    q->sent = false;
    q->step++;
    if (x->algorithm == WEFT_EXCHANGE_DIRECT && s.use == WEFT_EXCHANGE_ADD &&
        q->step == x->n - 1)
        add_all(x, me);
    return true;
}

static void run(const weft_exchange *x)
{
    fill(x);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = x->n - 1; i >= 0; i--) moved |= advance(x, i);
    }
    for (int i = 0; i < x->n; i++) {
        if (p[i].step != weft_exchange_count(x, i))
            fail_msg("%s of %d: position %d is stuck in step %d",
                     weft_exchange_algorithm_name(x->algorithm), x->n, i, p[i].step);
        for (int k = 0; k < x->n; k++) assert_false(p[i].box[k].used);
    }
}

static float wanted(const weft_exchange *x, int me, int share)
{
    switch (x->kind) {
    case WEFT_EXCHANGE_ALL_GATHER: return in[share][share];
    case WEFT_EXCHANGE_ALL_TO_ALL: return in[share][me];
    default: return sum[share];
    }
}

static void look(const weft_exchange *x)
{
    bool exact = x->algorithm != WEFT_EXCHANGE_RING;
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->n; k++) {
            if (x->kind == WEFT_EXCHANGE_REDUCE_SCATTER && k != i) continue;
            float got = p[i].x[k], want = wanted(x, i, k);
            if (exact ? got != want : fabsf(got - want) > 1e-4f)
                fail_msg("%s, kind %d of %d: position %d has %.9g for share %d, not %.9g",
                         weft_exchange_algorithm_name(x->algorithm), (int)x->kind, x->n,
                         i, (double)got, k, (double)want);
        }
}

/* log2 n + 2 for each half. */
static void count(const weft_exchange *x)
{
    if (x->algorithm != WEFT_EXCHANGE_HALVING && x->algorithm != WEFT_EXCHANGE_DOUBLING)
        return;
    bool twice =
        x->kind == WEFT_EXCHANGE_ALL_REDUCE && x->algorithm == WEFT_EXCHANGE_HALVING;
    double most = (twice ? 2 : 1) * log2(x->n) + 2;
    for (int i = 0; i < x->n; i++) assert_true(p[i].n_sent <= most);
}

static void every_algorithm(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_N; n = n < 37 ? n + 1 : n + 31)
        for (int kind = 0; kind <= WEFT_EXCHANGE_ALL_TO_ALL; kind++)
            for (int a = 0; a <= WEFT_EXCHANGE_DIRECT; a++) {
                weft_exchange x = {(weft_exchange_kind)kind, (weft_exchange_algorithm)a,
                                   n};
                if (!weft_exchange_can(&x)) continue;
                run(&x);
                look(&x);
                count(&x);
            }
}

static void one_piece(const weft_exchange *x, const int *place, weft_exchange_shares s)
{
    int lo = x->n, hi = -1;
    for (int i = 0; i < s.n; i++) {
        int at = place[s.first + i * s.stride];
        lo     = at < lo ? at : lo;
        hi     = at > hi ? at : hi;
    }
    if (s.n) assert_int_equal(hi - lo + 1, s.n);
}

/* In an all_reduce by halving every message is one piece of the vector. */
static void pieces(void **state)
{
    (void)state;
    int place[MAX_N], n_at[MAX_N];
    for (int n = 1; n <= MAX_N; n++) {
        weft_exchange x = {WEFT_EXCHANGE_ALL_REDUCE, WEFT_EXCHANGE_HALVING, n};
        memset(n_at, 0, sizeof n_at);
        for (int k = 0; k < n; k++) {
            place[k] = weft_exchange_place(&x, k);
            assert_true(place[k] >= 0 && place[k] < n && !n_at[place[k]]++);
        }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < weft_exchange_count(&x, i); k++) {
                weft_exchange_step s = weft_exchange_at(&x, i, k);
                one_piece(&x, place, s.send);
                one_piece(&x, place, s.recv);
            }
    }
}

static void impossible(void **state)
{
    (void)state;
    weft_exchange x = {WEFT_EXCHANGE_ALL_TO_ALL, WEFT_EXCHANGE_HALVING, 4};
    assert_false(weft_exchange_can(&x));
    x = (weft_exchange){WEFT_EXCHANGE_ALL_GATHER, WEFT_EXCHANGE_DOUBLING, 4};
    assert_false(weft_exchange_can(&x));
    x = (weft_exchange){WEFT_EXCHANGE_ALL_REDUCE, WEFT_EXCHANGE_RING, 0};
    assert_false(weft_exchange_can(&x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm),
        cmocka_unit_test(pieces),
        cmocka_unit_test(impossible),
    };
    p      = calloc(MAX_N, sizeof *p);
    int rc = !p || cmocka_run_group_tests(tests, NULL, NULL);
    free(p);
    return rc;
}
