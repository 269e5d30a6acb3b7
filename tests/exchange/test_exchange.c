/* Collectives as messages: run on numbers, they end in what they promise, in the tree's order and
 * with no more messages than stated. */
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
    PARTS = 2, /* of a share: front, back */
};

typedef struct letter {
    int                from;
    bool               aside, used;
    weft_exchange_part part;
    float              x[2][MAX_N][PARTS]; /* by share; [1]: aside */
} letter;

typedef struct position {
    int                step, n_sent, n_far;
    bool               sent;   /* in this step */
    bool               behind; /* a step is still open: */
    weft_exchange_step open;
    float              x[MAX_N][PARTS], aside[MAX_N][PARTS];
    float              got[MAX_N][PARTS]; /* direct: the own share, by position */
    /* one a sender is enough: who sends twice waits in between, here */
    letter box[MAX_N];
} position;

static position *p;
static float     in[MAX_N][MAX_N][PARTS], sum[MAX_N][PARTS]; /* [position][share] */

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
        for (int k = 0; k < x->n; k++)
            for (int h = 0; h < PARTS; h++) {
                in[i][k][h]  = noise(&seed);
                bool own     = x->kind != WEFT_ALL_GATHER || k == i;
                p[i].x[k][h] = own ? in[i][k][h] : -7;
            }
    }
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_F32, x->n, all, sum, x->n * PARTS),
                     WEFT_OK);
}

static bool carries(const weft_exchange_step *s, int h)
{
    return s->part == WEFT_EXCHANGE_WHOLE || (s->part == WEFT_EXCHANGE_BACK) == h;
}

/* Letters to one position from another are taken in the order sent: a full place makes the sender
 * wait. */
static bool send(const weft_exchange *x, int me, const weft_exchange_step *s)
{
    letter *l = &p[s->to].box[me];
    if (l->used) return false;
    *l = (letter){.from = me, .aside = s->send_aside, .used = true, .part = s->part};
    for (int i = 0; i < s->send.n; i++) {
        int k = s->send.first + i * s->send.stride;
        assert_true(k < x->n);
        for (int h = 0; h < PARTS; h++) {
            if (!carries(s, h)) continue;
            bool own      = x->kind == WEFT_ALL_TO_ALL;
            l->x[0][k][h] = own ? in[me][k][h] : p[me].x[k][h];
            l->x[1][k][h] = p[me].aside[k][h];
        }
    }
    p[me].n_sent++;
    p[me].n_far += x->near && me / x->near != s->to / x->near;
    return true;
}

/* One value of a letter to where it belongs. */
static void put(const weft_exchange *x, int me, const weft_exchange_step *s,
                const letter *l, int k, int h)
{
    position *q    = &p[me];
    bool      keep = x->algorithm == WEFT_EXCHANGE_DIRECT && s->use == WEFT_EXCHANGE_ADD;
    /* what is exchanged among all lies at the sender's place afterwards, and was sent as ours */
    float v = l->x[0][x->kind == WEFT_ALL_TO_ALL ? me : k][h];
    if (keep)
        q->got[s->from][h] = v;
    else if (s->use == WEFT_EXCHANGE_ADD)
        q->x[k][h] += v;
    else if (s->use == WEFT_EXCHANGE_ASIDE)
        q->aside[k][h] = v;
    else
        q->x[k][h] = v;
    if (s->recv_aside) q->aside[k][h] = l->x[1][k][h];
}

static bool receive(const weft_exchange *x, int me, const weft_exchange_step *s)
{
    letter *l = &p[me].box[s->from];
    if (!l->used) return false;
    assert_int_equal(l->aside, s->recv_aside);
    assert_int_equal(l->part, s->part);
    for (int i = 0; i < s->recv.n; i++)
        for (int h = 0; h < PARTS; h++)
            if (carries(s, h)) put(x, me, s, l, s->recv.first + i * s->recv.stride, h);
    l->used = false;
    return true;
}

/* After the last adding message of a direct sum. */
static void add_all(const weft_exchange *x, int me)
{
    const void *all[MAX_N];
    memcpy(p[me].got[me], in[me][me], sizeof in[me][me]);
    for (int i = 0; i < x->n; i++) all[i] = p[me].got[i];
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_F32, x->n, all, p[me].x[me], PARTS),
                     WEFT_OK);
}

/* What a step left behind awaits is taken as late as possible: when somebody needs it, or another
 * letter of the same sender. */
static bool end_behind(const weft_exchange *x, int me)
{
    position *q = &p[me];
    if (!q->behind || !receive(x, me, &q->open)) return false;
    q->behind = false;
    return true;
}

static void next(const weft_exchange *x, int me, const weft_exchange_step *s)
{
    position *q = &p[me];
    for (int k = 0; s->finish && k < x->n; k++)
        for (int h = 0; h < PARTS; h++) q->x[k][h] += q->aside[k][h];
    q->sent = false;
    q->step++;
    if (x->algorithm == WEFT_EXCHANGE_DIRECT && s->use == WEFT_EXCHANGE_ADD &&
        q->step == x->n - 1)
        add_all(x, me);
}

static bool advance(const weft_exchange *x, int me)
{
    position *q = &p[me];
    if (q->step == weft_exchange_count(x, me)) return end_behind(x, me);
    weft_exchange_step s     = weft_exchange_at(x, me, q->step);
    bool               moved = false;
    if (q->behind && (s.joins || s.behind || s.from == q->open.from)) {
        moved = end_behind(x, me);
        if (q->behind && (s.joins || s.behind)) return false;
    }
    if (s.to >= 0 && !q->sent) {
        if (!send(x, me, &s)) return moved;
        q->sent = moved = true;
    }
    if (s.behind) {
        q->behind = true;
        q->open   = s;
    } else if (s.from >= 0) {
        if (q->behind && s.from == q->open.from) return moved;
        if (!receive(x, me, &s)) return moved;
    }
    next(x, me, &s);
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
        if (p[i].step != weft_exchange_count(x, i) || p[i].behind)
            fail_msg("%s of %d: position %d is stuck in step %d",
                     weft_exchange_algorithm_name(x->algorithm), x->n, i, p[i].step);
        for (int k = 0; k < x->n; k++) assert_false(p[i].box[k].used);
    }
}

static const float *wanted(const weft_exchange *x, int me, int share)
{
    switch (x->kind) {
    case WEFT_ALL_GATHER: return in[share][share];
    case WEFT_ALL_TO_ALL: return in[share][me];
    default: return sum[share];
    }
}

static void look(const weft_exchange *x)
{
    bool exact = x->algorithm != WEFT_EXCHANGE_RING;
    for (int i = 0; i < x->n; i++)
        for (int at = 0; at < PARTS * x->n; at++) {
            int k = at / PARTS, h = at % PARTS;
            if (x->kind == WEFT_REDUCE_SCATTER && k != i) continue;
            float got = p[i].x[k][h], want = wanted(x, i, k)[h];
            if (exact ? got != want : fabsf(got - want) > 1e-4f)
                fail_msg("%s, kind %d of %d: position %d has %.9g for share %d, not %.9g",
                         weft_exchange_algorithm_name(x->algorithm), (int)x->kind, x->n,
                         i, (double)got, k, (double)want);
        }
}

/* log2 n + 2 for each half; in two parts, of those between hosts. */
static void count(const weft_exchange *x)
{
    if (x->algorithm != WEFT_EXCHANGE_HALVING && x->algorithm != WEFT_EXCHANGE_DOUBLING)
        return;
    bool   twice = x->kind == WEFT_ALL_REDUCE && x->algorithm == WEFT_EXCHANGE_HALVING;
    double most  = (twice ? 2 : 1) * log2(x->n) + 2;
    for (int i = 0; i < x->n; i++)
        assert_true((x->near ? p[i].n_far : p[i].n_sent) <= most);
}

static void every_algorithm(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_N; n = n < 37 ? n + 1 : n + 31)
        for (int kind = 0; kind <= WEFT_ALL_TO_ALL; kind++)
            for (int a = 0; a <= WEFT_EXCHANGE_DIRECT; a++) {
                weft_exchange x = {(weft_collective)kind, (weft_exchange_algorithm)a, n,
                                   0};
                if (!weft_exchange_can(&x)) continue;
                run(&x);
                look(&x);
                count(&x);
            }
}

static void in_two_parts(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_N; n = n < 37 ? n + 1 : n + 31)
        for (int kind = 0; kind <= WEFT_ALL_GATHER; kind++)
            for (int near = 1; near <= 32; near *= 2) {
                weft_exchange x = {(weft_collective)kind, WEFT_EXCHANGE_HALVING, n, near};
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
        weft_exchange x = {WEFT_ALL_REDUCE, WEFT_EXCHANGE_HALVING, n, 0};
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
    weft_exchange x = {WEFT_ALL_TO_ALL, WEFT_EXCHANGE_HALVING, 4, 0};
    assert_false(weft_exchange_can(&x));
    x = (weft_exchange){WEFT_ALL_GATHER, WEFT_EXCHANGE_DOUBLING, 4, 0};
    assert_false(weft_exchange_can(&x));
    x = (weft_exchange){WEFT_ALL_REDUCE, WEFT_EXCHANGE_RING, 0, 0};
    assert_false(weft_exchange_can(&x));
    x = (weft_exchange){WEFT_ALL_REDUCE, WEFT_EXCHANGE_HALVING, 8, 3};
    assert_false(weft_exchange_can(&x));
}

static void which_groups_go_by_levels(void **state)
{
    (void)state;
    static const struct {
        int     near, n;
        int32_t host[8];
    } want[] = {{2, 4, {0, 0, 1, 1}},       {2, 6, {5, 5, 1, 1, 3, 3}},
                {3, 6, {0, 0, 0, 1, 1, 1}}, {4, 8, {0, 0, 0, 0, 1, 1, 1, 1}},
                {0, 4, {0, 1, 2, 3}},       /* one on each */
                {0, 4, {0, 0, 0, 0}},       /* all on one */
                {0, 4, {0, 1, 0, 1}},       /* dealt in turn */
                {0, 3, {0, 0, 1}},          /* unequal */
                {0, 5, {0, 0, 1, 1, 1}},    /* unequal */
                {0, 6, {0, 0, 1, 1, 0, 0}}, /* one host twice */
                {0, 6, {0, 0, 1, 2, 2, 2}}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(weft_exchange_levels(want[i].n, want[i].host), want[i].near);
    assert_true(weft_exchange_levels_add(4, false));
    assert_false(weft_exchange_levels_add(3, false)); /* no subtree */
    assert_false(weft_exchange_levels_add(4, true));
    assert_false(weft_exchange_levels_add(0, false));
    assert_true(weft_exchange_levels_pay(2, 1 << 20));
    assert_false(weft_exchange_levels_pay(2, 4096));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm),
        cmocka_unit_test(in_two_parts),
        cmocka_unit_test(pieces),
        cmocka_unit_test(impossible),
        cmocka_unit_test(which_groups_go_by_levels),
    };
    p      = calloc(MAX_N, sizeof *p);
    int rc = !p || cmocka_run_group_tests(tests, NULL, NULL);
    free(p);
    return rc;
}
