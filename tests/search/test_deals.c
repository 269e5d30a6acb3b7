/* Shares of the batch by speed: what the search finds is the best of all ways to deal lanes to
 * replicas. */
#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "search/bench.h"

static uint32_t drawn;

static int pick(int n)
{
    uint32_t key[2] = {31, 4}, ctr[4] = {drawn++, 0, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return (int)(w[0] % (uint32_t)n);
}

/* ---- every deal of two kinds, one by one ---- */

typedef struct brute {
    const weft_search_problem *p;
    weft_cost_table            t;
    weft_cost_variant          v;
    weft_device_kind           device[2];
    weft_cost_fabric           fabric[2];
    weft_cost_row              row[2 * 16];
    double                     best;
    int64_t                    n;
} brute;

static void fill(brute *b)
{
    const weft_search_model *m = &b->p->model;
    b->t                       = m->shape;
    b->t.n_variant             = 1;
    b->t.variant               = &b->v;
    b->t.n_device              = 2;
    b->t.device                = b->device;
    b->t.fabric                = b->fabric;
    b->t.row                   = b->row;
    assert_true(b->t.n_class <= 16);
    for (int d = 0; d < 2; d++) {
        b->device[d] = b->p->machines->kind[d].device;
        b->fabric[d] = b->p->machines->kind[d].fabric;
    }
    for (int d = 0; d < 2; d++) {
        m->fill(m->arg, &b->t.engine, &b->v, &b->device[d], &b->fabric[d],
                b->row + d * b->t.n_class);
    }
}

static void every_deal(brute *b, int n_lane, int n_micro, const int *order)
{
    const weft_search_machines *m = b->p->machines;
    weft_cost_point             p = {.pp = 1, .chunks = 1};
    p.deal.n                      = 2;
    p.deal.per_lane               = n_micro / n_lane;
    for (int k = 0; k < 2; k++) {
        p.deal.kind[k]     = order[k];
        p.deal.replicas[k] = weft_search_usable(&m->kind[order[k]], b->v.tp) / b->v.tp;
        p.dp += p.deal.replicas[k];
    }
    if (p.deal.replicas[0] < 1 || p.deal.replicas[1] < 1) return;
    for (int first = p.deal.replicas[0]; first <= n_lane - p.deal.replicas[1]; first++)
        for (p.zero = 0; p.zero < 3; p.zero++) {
            weft_cost_score s;
            p.deal.lanes[0] = first;
            p.deal.lanes[1] = n_lane - first;
            weft_cost_deal_count(&p.deal);
            weft_cost_score_point(&b->t, &p, &s);
            b->n++;
            if (s.mem_bytes <= s.mem_limit) b->best = fmin(b->best, s.step_s);
        }
}

static void brute_force(brute *b)
{
    const weft_search_problem *p        = b->p;
    int                        order[2] = {0, 1};
    b->v = (weft_cost_variant){.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
    fill(b);
    double t[2] = {0};
    for (int d = 0; d < 2; d++)
        for (int c = 0; c < b->t.n_class; c++) t[d] += b->row[d * b->t.n_class + c].fwd_s;
    if (t[1] < t[0]) order[0] = 1, order[1] = 0;
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int mb = 1; mb <= p->batch && mb <= p->model.max_micro; mb *= 2)
            for (int again = 0; again < 3; again++)
                for (int sp = 0; sp < (tp > 1 ? 2 : 1); sp++) {
                    b->v = (weft_cost_variant){.tp          = tp,
                                               .cp          = 1,
                                               .ep          = 1,
                                               .sp          = sp,
                                               .micro_batch = mb,
                                               .recompute   = (weft_cost_recompute)again};
                    if (!p->model.allows(p->model.arg, &b->v, NULL, 0)) continue;
                    fill(b);
                    for (int n = 1; n <= p->batch / mb; n *= 2)
                        every_deal(b, n, p->batch / mb, order);
                }
}

static void equal_brute_force(void **state)
{
    static const char *const device[] = {"a100-80g", "v100-32g", "h100-80g", "t4"};
    int                      n_dealt = 0, n_fit = 0;
    int64_t                  n = 0;
    (void)state;
    for (int i = 0; i < 60; i++) {
        sizes               z = {.layers = 2 + pick(4),
                                 .hidden = 512 << pick(3),
                                 .heads  = 8,
                                 .seq    = 512 << pick(2),
                                 .vocab  = 32000,
                                 .batch  = 64 << pick(3)};
        int                 a = pick(4), c = (a + 1 + pick(3)) % 4, per = 1 << pick(3);
        char                line[128];
        bench               b;
        weft_search_result *r = NULL;
        snprintf(line, sizeof line, "1 x (%d x %s) + 1 x (%d x %s)", per, device[a], per,
                 device[c]);
        open_bench(&b, line, &z, "weft");
        weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 1);
        weft_search_fix(&b.p.constraints, WEFT_KEY_cp, 1);
        b.p.constraints.world = 2 * per;
        brute all             = {.p = &b.p, .best = INFINITY};
        brute_force(&all);
        weft_status st    = weft_search_run(&b.p, &r);
        double      us    = st == WEFT_OK ? r->choice[0].score.step_s : INFINITY;
        bool        dealt = st == WEFT_OK && r->choice[0].point.deal.n;
        if (us > all.best * (1 + 1e-9) || (dealt && us < all.best * (1 - 1e-9)))
            fail_msg("case %d, %s, %d x %d, batch %d: %.9g s, brute force %.9g", i, line,
                     z.layers, z.hidden, z.batch, us, all.best);
        n += all.n;
        n_fit += isfinite(us);
        n_dealt += dealt;
        weft_search_destroy(r);
        close_bench(&b);
    }
    print_message("%d of 60 fit, %d are dealt by speed; %lld deals by brute force\n",
                  n_fit, n_dealt, (long long)n);
    assert_true(n_fit >= 40 && n_dealt >= 10);
}

/* Without pipelines slow machines help by shares alone. */
static void slow_machines_help(void **state)
{
    static const char *const cluster[] = {"2 x (8 x a100-80g) + 2 x (8 x h100-80g)",
                                          "1 x (8 x v100-32g) + 3 x (8 x a100-80g)",
                                          "2 x (8 x v100-32g) + 2 x (8 x h100-80g)",
                                          ("1 x (8 x t4) + 1 x (8 x v100-32g) + 2 x "
                                           "(8 x h100-80g)")};
    sizes                    z         = {48, 1600, 25, 1024, 50304, 0, 2048};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(cluster); i++) {
        bench               b;
        weft_search_result *r, *x;
        weft_text           t = {0};
        open_bench(&b, cluster[i], &z, "weft");
        weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 1);
        assert_ok(weft_search_run(&b.p, &r));
        b.p.model.limits.shares = false;
        assert_ok(weft_search_run(&b.p, &x));
        weft_search_print_choice(&r->choice[0], &t);
        double with = r->choice[0].score.step_s, without = x->choice[0].score.step_s;
        print_message("%s: %.4g s, without shares %.4g s, %.3f times; %s\n", cluster[i],
                      with, without, without / with, t.s);
        assert_true(with <= without * (1 + 1e-12));
        if (!i) assert_true(without > 1.1 * with);
        weft_text_fini(&t);
        weft_search_destroy(r);
        weft_search_destroy(x);
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_brute_force),
        cmocka_unit_test(slow_machines_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
