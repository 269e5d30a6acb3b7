/* The planner: equals brute force, keeps constraints or says why not, beats what people do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/bench.h"
#include "support/test.h"

/* ---- brute force, with nothing of the search's own ---- */

typedef struct brute {
    const weft_search_problem *p;
    weft_cost_table            t;
    weft_cost_variant          v;
    weft_device_kind           device[8];
    weft_cost_fabric           fabric[8];
    weft_cost_row              row[8 * 8];
    int                        map[8];
    int                        n_layer;
    bool                       by_hand; /* even cuts alone, no cp, tp inside a node */
    double                     best_s;
    double            even_s; /* all devices, stages of equal numbers of layers */
    int64_t           n;
    int               all_used;
    weft_cost_variant best_v;
    weft_cost_point   best_p;
} brute;

/* Of devices of one kind: what the search takes for a lower bound is one. */
static void check_floor(const brute *b, const weft_cost_point *p,
                        const weft_cost_score *s)
{
    double all = 0;
    for (int i = 0; i < b->t.n_segment; i++) {
        const weft_cost_row *r = &b->row[b->t.segment[i].layer_class];
        all += b->t.segment[i].count * (r->fwd_s + r->bwd_s);
    }
    all += b->row[b->t.first].fwd_s + b->row[b->t.first].bwd_s;
    all += b->row[b->t.last].fwd_s + b->row[b->t.last].bwd_s;
    double low = weft_cost_floor(&b->t, p, all / p->pp, all);
    low += weft_cost_floor_param(&b->t, p);
    if (low > s->step_s * (1 + 1e-12))
        fail_msg("pp %d dp %d zero %d chunks %d schedule %d: %.9g s, but floor %.9g",
                 p->pp, p->dp, p->zero, p->chunks, (int)p->schedule, s->step_s, low);
}

static void on_point(brute *b, const weft_cost_point *p, bool even)
{
    weft_cost_score s;
    weft_cost_score_point(&b->t, p, &s);
    if (b->t.n_device == 1) check_floor(b, p, &s);
    b->n++;
    if (s.mem_bytes > s.mem_limit) return;
    if (s.step_s < b->best_s) {
        b->best_s = s.step_s;
        b->best_v = b->v;
        b->best_p = *p;
    }
    if (even && b->all_used && s.step_s < b->even_s) b->even_s = s.step_s;
}

/* All cuts into stages of one layer and more. */
static void all_cuts(brute *b, weft_cost_point *p, uint16_t *cut, int s, int left)
{
    if (s == p->pp - 1) {
        bool even = true;
        cut[s]    = (uint16_t)left;
        for (int i = 0; i < p->pp; i++)
            even = even && cut[i] == weft_cost_even_cut(b->n_layer, p->pp, i);
        p->cut = cut;
        on_point(b, p, even);
        return;
    }
    for (int n = 1; n <= left - (p->pp - 1 - s); n++) {
        cut[s] = (uint16_t)n;
        all_cuts(b, p, cut, s + 1, left - n);
    }
}

static void all_points(brute *b, weft_cost_point *p)
{
    uint16_t cut[64];
    int      L = b->n_layer;
    for (p->zero = 0; p->zero < (p->dp * b->v.cp > 1 ? 4 : 1); p->zero++)
        for (int k = 0; k < 3; k++) {
            if (k == WEFT_COST_GPIPE || (k && p->pp == 1)) continue;
            p->schedule = (weft_cost_schedule)k;
            p->chunks   = 1;
            if (b->by_hand) {
                p->cut = NULL;
                on_point(b, p, true);
            } else
                all_cuts(b, p, cut, 0, L);
            if (k || p->pp < 2 || p->n_micro % p->pp) continue;
            /* equal chunks, but the first and the last may be a layer short */
            int mine = (L + p->pp - 1) / p->pp, less = mine * p->pp - L;
            for (p->chunks = 2; p->chunks <= mine && less <= 2; p->chunks++)
                if (mine % p->chunks == 0 && (!less || mine > p->chunks)) {
                    p->cut = NULL;
                    on_point(b, p, false);
                }
        }
}

/* Which kinds each stage of S devices has, kinds in this order; gives how many stages there are. */
static int lay(const brute *b, const int *order, int n, bool whole, int tp, int S,
               uint8_t *kinds)
{
    int at = 0, have = 0;
    memset(kinds, 0, 64);
    for (int i = 0; i < n; i++) {
        int left = weft_search_usable(&b->p->machines->kind[b->map[order[i]]], tp);
        if (whole && have) have = 0, kinds[at] = 0;
        for (; left > 0 && at < 60; left -= tp) {
            kinds[at] = (uint8_t)(kinds[at] | 1 << order[i]);
            have += tp;
            if (have == S) have = 0, at++;
        }
    }
    return at;
}

static void on_variant(brute *b, const int *order, int n, bool whole)
{
    const weft_search_model *m = &b->p->model;
    uint8_t                  kinds[64];
    if (!m->allows(m->arg, &b->v, NULL, 0) || (b->v.sp && b->v.tp < 2)) return;
    for (int d = 0; d < b->t.n_device; d++)
        m->fill(m->arg, &b->t.engine, &b->v, &b->device[d], &b->fabric[d],
                b->row + d * b->t.n_class);
    for (int dp = 1; dp <= b->p->batch; dp++) {
        int S = b->v.tp * b->v.cp * dp, world = 0;
        if (b->p->batch % (dp * b->v.micro_batch) || S % b->v.ep) continue;
        if (b->p->model.limits.ep_of_dp && dp % b->v.ep) continue;
        int most = lay(b, order, n, whole, b->v.tp, S, kinds);
        for (int i = 0; i < b->p->machines->n; i++)
            world += weft_search_usable(&b->p->machines->kind[i], 1);
        for (int pp = 1; pp <= most && pp <= b->n_layer; pp++) {
            weft_cost_point p = {.dp      = dp,
                                 .pp      = pp,
                                 .n_micro = b->p->batch / dp / b->v.micro_batch,
                                 .kinds   = n > 1 ? kinds : NULL};
            b->all_used       = S * pp == world;
            all_points(b, &p);
        }
    }
}

static void on_order(brute *b, const int *order, int n, bool whole)
{
    const weft_search_model *m = &b->p->model;
    for (int tp = 1; tp <= m->max_tp; tp++)
        for (int cp = 1; cp <= m->max_cp; cp++)
            for (int ep = 1; ep <= m->max_ep; ep++)
                for (int sp = 0; sp < 2; sp++)
                    for (int mb = 1; mb <= b->p->batch; mb++)
                        for (int r = 0; r < 3; r++) {
                            if (b->p->batch % mb) continue;
                            if (b->by_hand && (tp > 8 || cp > 1 || mb > 16)) continue;
                            b->v = (weft_cost_variant){
                                tp, cp, ep, sp, mb, (weft_cost_recompute)r, 0};
                            on_variant(b, order, n, whole);
                        }
}

static void on_kinds(brute *b, int *order, int n, unsigned used)
{
    if (n == b->t.n_device) {
        on_order(b, order, n, false);
        if (n > 1) on_order(b, order, n, true);
        return;
    }
    for (int k = 0; k < b->t.n_device; k++)
        if (!(used >> k & 1)) {
            order[n] = k;
            on_kinds(b, order, n + 1, used | 1u << k);
        }
}

static void brute_force(const weft_search_problem *p, bool by_hand, brute *b)
{
    int order[8];
    memset(b, 0, sizeof *b);
    b->by_hand = by_hand;
    b->p       = p;
    b->best_s = b->even_s = INFINITY;
    for (unsigned set = 1; set < 1u << p->machines->n; set++) {
        if (by_hand && set + 1 < 1u << p->machines->n) continue;
        b->t           = p->model.shape;
        b->t.device    = b->device;
        b->t.fabric    = b->fabric;
        b->t.row       = b->row;
        b->t.variant   = &b->v;
        b->t.n_variant = 1;
        b->t.n_device  = 0;
        b->n_layer     = 0;
        for (int i = 0; i < b->t.n_segment; i++) b->n_layer += b->t.segment[i].count;
        for (int i = 0; i < p->machines->n; i++)
            if (set >> i & 1) {
                b->map[b->t.n_device]      = i;
                b->device[b->t.n_device]   = p->machines->kind[i].device;
                b->fabric[b->t.n_device++] = p->machines->kind[i].fabric;
            }
        on_kinds(b, order, 0, 0);
    }
}

static unsigned seed = 12345;

static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 10) % n;
}

static void one_random(int i, int *n_fit, double *worst)
{
    static const char *const device[] = {"a100-80g", "v100-32g", "h100-80g", "t4"};
    static const int         batch[]  = {4, 6, 8, 12};
    char                     line[128];
    bool                     mixed = pick(2);
    sizes                    z     = {.layers  = 2 + pick(mixed ? 4 : 6),
                                      .hidden  = 1024 << pick(4),
                                      .heads   = 4 << pick(2),
                                      .seq     = 512 << pick(2),
                                      .vocab   = 50000,
                                      .experts = pick(5) ? 0 : 4,
                                      .batch   = batch[pick(4)]};
    int                      a = pick(4), d = (a + 1 + pick(3)) % 4;
    if (mixed)
        snprintf(line, sizeof line, "%d x (%d x %s) + %d x (%d x %s)", 1 + pick(2),
                 1 << pick(2), device[a], 1 + pick(2), 1 << pick(2), device[d]);
    else
        snprintf(line, sizeof line, "%d x (%d x %s)", 1 + pick(3), 1 << pick(3),
                 device[a]);
    bench               b;
    brute               all;
    weft_search_result *r = NULL;
    open_bench(&b, line, &z, "weft");
    brute_force(&b.p, false, &all);
    weft_status st = weft_search_run(&b.p, &r);
    if (st != WEFT_OK && st != WEFT_ERR_NOFIT)
        fail_msg("case %d: %s", i, weft_error_text());
    if (isfinite(all.best_s) != (st == WEFT_OK))
        fail_msg("case %d, %s, %d layers of %d: brute force %g, search: %s", i, line,
                 z.layers, z.hidden, all.best_s, st ? weft_error_text() : "found");
    if (st == WEFT_OK) {
        double step = r->choice[0].score.step_s;
        *worst      = fmax(*worst, step / all.best_s - 1);
        ++*n_fit;
        if (fabs(step / all.best_s - 1) > 1e-9) {
            weft_text t = {0};
            weft_search_print_choice(&r->choice[0], &t);
            weft_text_add(
                &t,
                "; there: tp %d cp %d ep %d sp %d micro %d again %d, dp %d pp %d "
                "chunks %d zero %d schedule %d",
                all.best_v.tp, all.best_v.cp, all.best_v.ep, all.best_v.sp,
                all.best_v.micro_batch, (int)all.best_v.recompute, all.best_p.dp,
                all.best_p.pp, all.best_p.chunks, all.best_p.zero,
                (int)all.best_p.schedule);
            fail_msg("case %d, %s, %d layers of %d, batch %d: %.9g, brute force %.9g; %s",
                     i, line, z.layers, z.hidden, z.batch, step, all.best_s, t.s);
        }
        assert_true(r->bound_s <= all.best_s * (1 + 1e-9));
        assert_true(r->choice[0].score.mem_bytes <= r->choice[0].score.mem_limit);
        assert_true(step <= all.even_s * (1 + 1e-9));
    }
    weft_search_destroy(r);
    close_bench(&b);
}

static void random_cases_equal_brute_force(void **state)
{
    int    n_fit = 0;
    double worst = 0;
    (void)state;
    for (int i = 0; i < 200; i += TEST_STRIDE(8)) one_random(i, &n_fit, &worst);
    assert_true(n_fit * TEST_STRIDE(8) >= 100 && n_fit < 200 / TEST_STRIDE(8));
    assert_true(WEFT_TEST_SANITIZED || n_fit >= 120);
}

/* ---- nothing is lost by leaving out ---- */

static void bounds_lose_nothing(void **state)
{
    static const sizes z[] = {{24, 2048, 16, 2048, 50000, 0, 256},
                              {32, 4096, 32, 2048, 50000, 8, 128},
                              {48, 8192, 64, 2048, 50000, 0, 192}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(z); i++) {
        bench               b;
        weft_search_result *r, *all;
        open_bench(
            &b, i == 1 ? "2 x (8 x a100-80g) + 2 x (8 x h100-80g)" : "6 x (8 x a100-80g)",
            &z[i], "megatron");
        if (i == 1) weft_search_fix(&b.p.constraints, WEFT_KEY_tp, 2);
        if (i == 1) b.p.constraints.micro_batch = 1;
        assert_ok(weft_search_run(&b.p, &r));
        b.p.exhaustive = true;
        assert_ok(weft_search_run(&b.p, &all));
        assert_int_equal(r->n, all->n);
        for (int k = 0; k < r->n; k++)
            assert_true(r->choice[k].score.step_s == all->choice[k].score.step_s);
        assert_true(r->n_scored < all->n_scored);
        weft_search_destroy(r);
        weft_search_destroy(all);
        close_bench(&b);
    }
}

/* ---- against what people do ---- */

static double step_with(bench *b, int tp, int pp, int dp)
{
    weft_search_problem q = b->p;
    weft_search_result *r;
    weft_search_fix(&q.constraints, WEFT_KEY_tp, tp);
    weft_search_fix(&q.constraints, WEFT_KEY_pp, pp);
    weft_search_fix(&q.constraints, WEFT_KEY_dp, dp);
    weft_search_fix(&q.constraints, WEFT_KEY_cp, 1);
    q.n_best = 1;
    if (weft_search_run(&q, &r) != WEFT_OK) return INFINITY;
    double s = r->choice[0].score.step_s;
    weft_search_destroy(r);
    return s;
}

/* tp as wide as the node, as few stages as fit, the rest replicas. */
static double megatron_rule(bench *b, int world, int per_node)
{
    for (int pp = 1; pp <= world / per_node; pp++) {
        if (world % (pp * per_node)) continue;
        double s = step_with(b, per_node, pp, world / per_node / pp);
        if (isfinite(s)) return s;
    }
    return INFINITY;
}

static void never_worse_than_rules(void **state)
{
    static const struct {
        const char *cluster;
        int         world;
        sizes       z;
    } c[] = {{"1 x (8 x a100-80g)", 8, {24, 1024, 16, 1024, 50000, 0, 64}},
             {"4 x (8 x a100-80g)", 32, {32, 4096, 32, 2048, 50000, 0, 256}},
             {"16 x (8 x h100-80g)", 128, {80, 8192, 64, 4096, 128000, 0, 512}},
             {"8 x (8 x v100-32g)", 64, {48, 1600, 16, 1024, 50000, 0, 512}},
             {"64 x (8 x a100-80g)", 512, {96, 12288, 96, 2048, 51200, 0, 1536}}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(c); i++) {
        bench               b;
        weft_search_result *r;
        open_bench(&b, c[i].cluster, &c[i].z, "megatron");
        assert_ok(weft_search_run(&b.p, &r));
        double us = r->choice[0].score.step_s;
        assert_true(us <= step_with(&b, 1, 1, c[i].world));
        assert_true(us <= megatron_rule(&b, c[i].world, 8));
        for (int k = 1; k < r->n; k++) {
            assert_true(us <= r->choice[k].score.step_s);
            assert_non_null(strstr(r->choice[k].why, "% slower"));
        }
        weft_search_destroy(r);
        close_bench(&b);
    }
}

/* Every device, as many stages as divide the layers, all equal; the best of those. */
static double equal_cuts(bench *b, int world, int layers)
{
    double best = INFINITY;
    for (int pp = 2; pp <= layers && pp <= world; pp++) {
        uint16_t cut[64];
        if (layers % pp || world % pp) continue;
        for (int i = 0; i < pp; i++) cut[i] = (uint16_t)(layers / pp);
        b->p.constraints.cut = cut;
        for (int tp = 1; tp <= 8; tp *= 2)
            if (world / pp % tp == 0)
                best = fmin(best, step_with(b, tp, pp, world / pp / tp));
        b->p.constraints.cut = NULL;
    }
    return best;
}

/* Any model on any machines: what people do by hand is never faster, and fits only where
 * something is found. */
static void never_worse_than_people(void **state)
{
    static const char *const device[] = {"a100-80g", "v100-32g", "h100-80g", "t4",
                                         "h200-141g"};
    static const char *const engine[] = {"weft", "megatron", "paddle"};
    int                      n_fit = 0, n_better = 0;
    (void)state;
    for (int i = 0; i < 60; i++) {
        sizes z      = {.layers  = 4 * (2 + pick(12)),
                        .hidden  = 1024 << pick(4),
                        .heads   = 8 << pick(3),
                        .seq     = 1024 << pick(3),
                        .vocab   = 32000 << pick(3),
                        .experts = pick(4) ? 0 : 8,
                        .batch   = 64 << pick(4)};
        int   n_node = 1 << pick(5), world = 8 * n_node, a = pick(5), d = pick(5);
        char  line[128];
        bool  mixed = a != d && n_node > 1 && pick(2);
        bench b;
        weft_search_result *r = NULL;
        if (mixed)
            snprintf(line, sizeof line, "%d x (8 x %s) + %d x (8 x %s)", n_node / 2,
                     device[a], n_node / 2, device[d]);
        else
            snprintf(line, sizeof line, "%d x (8 x %s)", n_node, device[a]);
        open_bench(&b, line, &z, engine[pick(3)]);
        b.p.n_best     = 1;
        weft_status st = weft_search_run(&b.p, &r);
        double us = st == WEFT_OK ? r->choice[0].score.step_s : INFINITY, them = INFINITY;
        them = fmin(them, step_with(&b, 1, 1, world));
        them = fmin(them, megatron_rule(&b, world, 8));
        them = fmin(them, equal_cuts(&b, world, z.layers));
        if (us > them * (1 + 1e-12))
            fail_msg("case %d, %s, %d layers of %d: %.9g s, by hand %.9g", i, line,
                     z.layers, z.hidden, us, them);
        n_fit += isfinite(us);
        n_better += us < them;
        weft_search_destroy(r);
        close_bench(&b);
    }
    print_message("%d of 60 fit, %d better than by hand\n", n_fit, n_better);
    assert_true(n_fit >= 40 && n_better >= 20);
}

/* Beside the best of all ways that take every device and cut evenly: the slowest device sets the
 * pace. */
static void mixed_machines_gain(void **state)
{
    static const char *const cluster[] = {"2 x (8 x v100-32g) + 2 x (8 x h100-80g)",
                                          "2 x (8 x a100-80g) + 2 x (8 x h100-80g)",
                                          "2 x (8 x t4) + 2 x (8 x a100-80g)",
                                          "1 x (8 x v100-32g) + 3 x (8 x a100-80g)",
                                          ("1 x (8 x t4) + 1 x (8 x v100-32g) + 2 x "
                                           "(8 x h100-80g)")};
    sizes                    z         = {32, 4096, 32, 2048, 50000, 0, 512};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(cluster); i++) {
        bench               b;
        brute               all;
        weft_search_result *r;
        open_bench(&b, cluster[i], &z, "weft");
        brute_force(&b.p, true, &all);
        assert_ok(weft_search_run(&b.p, &r));
        double us    = r->choice[0].score.step_s;
        double alone = INFINITY; /* others idle */
        for (int k = 0; k < b.m.n; k++) {
            weft_search_machines m = b.m;
            weft_search_problem  q = b.p;
            weft_search_result  *x;
            m.n = 1, m.kind[0] = b.m.kind[k], m.kind[0].device.rate = m.kind[0].rate;
            q.machines = &m;
            if (weft_search_run(&q, &x) != WEFT_OK) continue;
            alone = fmin(alone, x->choice[0].score.step_s);
            weft_search_destroy(x);
        }
        print_message("%s: %.3g s, by hand %.3g s, %.2f times; one kind alone, as "
                      "searched: %.3g s\n",
                      cluster[i], us, all.even_s, all.even_s / us, alone);
        assert_true(us <= alone * (1 + 1e-9));
        assert_true(all.even_s >= 1.3 * us);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_equal_brute_force),
        cmocka_unit_test(bounds_lose_nothing),
        cmocka_unit_test(never_worse_than_rules),
        test_plain(never_worse_than_people),
        test_sanitized(mixed_machines_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
