/* The planner: equals brute force, keeps pins or says why not, beats what people do by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "search/search.h"
#include "support/test.h"

typedef struct bench {
    weft_arena          *a;
    weft_cluster        *k;
    weft_cost_constants *c;
    weft_hardware       *h;
    weft_config          config;
    weft_search_machines m;
    weft_search_problem  p;
} bench;

typedef struct sizes {
    int layers, hidden, heads, seq, vocab, experts, batch;
} sizes;

static void open_bench(bench *b, const char *cluster, const sizes *z, const char *engine)
{
    weft_search_limits l = weft_search_limits_of(engine);
    memset(b, 0, sizeof *b);
    assert_ok(weft_arena_create(&b->a));
    assert_ok(weft_cluster_load(cluster, NULL, &b->k));
    assert_ok(weft_cost_constants_create(&b->c));
    assert_ok(weft_search_machines_of(b->k, b->c, b->a, &b->m));
    weft_engine_open(&b->config);
    assert_ok(weft_engine_cluster(b->k, b->a, &b->config, &b->h));
    weft_config *c = &b->config;
    c->id          = "test";
    c->family      = z->experts ? "moe" : "gpt";
    c->attn        = "full";
    c->layers      = z->layers;
    c->hidden      = z->hidden;
    c->heads       = z->heads;
    c->ffn_hidden  = 4 * z->hidden;
    c->seq         = z->seq;
    c->vocab       = z->vocab;
    if (z->experts) {
        c->experts      = z->experts;
        c->experts_topk = 2;
    }
    c->global_batch = z->batch;
    c->precision    = "bf16";
    c->framework    = engine;
    c->tp = c->pp = c->cp = 1;
    assert_ok(weft_config_complete("test", c));
    b->p = (weft_search_problem){.machines = &b->m, .batch = z->batch, .n_best = 5};
    weft_search_open(&b->p.pins);
    assert_ok(weft_search_transformer(c, b->c, &l, b->a, &b->p.model));
}

static void close_bench(bench *b)
{
    weft_hardware_destroy(b->h);
    weft_cost_constants_destroy(b->c);
    weft_cluster_destroy(b->k);
    weft_arena_destroy(b->a);
}

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

static void on_point(brute *b, const weft_cost_point *p, bool even)
{
    weft_cost_score s;
    weft_cost_score_point(&b->t, p, &s);
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
                            b->v = (weft_cost_variant){tp, cp, ep,
                                                       sp, mb, (weft_cost_recompute)r};
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
        for (int i = 0; i < b->t.n_device; i++)
            for (int j = 0; j < b->t.n_device; j++)
                if (b->fabric[j].out.Bps < b->fabric[i].out.Bps)
                    b->fabric[i].out = b->fabric[j].out;
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
    for (int i = 0; i < 200; i++) one_random(i, &n_fit, &worst);
    assert_true(n_fit >= 120 && n_fit < 200);
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
        if (i == 1) b.p.pins.tp = 2, b.p.pins.micro_batch = 1;
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
    q.pins.tp = tp;
    q.pins.pp = pp;
    q.pins.dp = dp;
    q.pins.cp = 1;
    q.n_best  = 1;
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
        b->p.pins.cut = cut;
        for (int tp = 1; tp <= 8; tp *= 2)
            if (world / pp % tp == 0)
                best = fmin(best, step_with(b, tp, pp, world / pp / tp));
        b->p.pins.cut = NULL;
    }
    return best;
}

/* Any model on any machines: what people do by hand is never faster, and fits only where something is found. */
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

/* Beside the best of all ways that take every device and cut evenly: the slowest device sets the pace. */
static void mixed_machines_gain(void **state)
{
    static const char *const cluster[] = {"2 x (8 x v100-32g) + 2 x (8 x h100-80g)",
                                          "2 x (8 x a100-80g) + 2 x (8 x h100-80g)",
                                          "2 x (8 x t4) + 2 x (8 x a100-80g)",
                                          "1 x (8 x v100-32g) + 3 x (8 x a100-80g)",
                                          "1 x (8 x t4) + 1 x (8 x v100-32g) + 2 x (8 x "
                                          "h100-80g)"};
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

/* ---- pins ---- */

static void pins_are_kept_or_refused(void **state)
{
    static const struct {
        const char *pin, *why;
    } bad[] = {
        {"tp=3", "tp=3 does not divide the model's 16 attention heads"},
        {"dp=7", "dp=7 does not divide the batch of 64"},
        {"pp=25", "pp=25: the model has 24 layers"},
        {"micro_batch=5", "micro_batch=5 does not divide the batch of 64"},
        {"ep=2", "ep=2: the model has no experts"},
        {"cp=3", "cp=3: a sequence of 1024 tokens is not cut in 6 equal pieces"},
        {"tp=16", "tp=16: the cluster has 8 devices that may be used"},
        {"zero=4", "zero=4: expected a whole number from 0 to 3"},
        {"zeroo=1", "zeroo=1: no such pin, did you mean zero=...?"},
        {"tp", "tp: a pin is KEY=VALUE, as in tp=8"},
        {"recompute=some", "recompute=some: expected none, selective or full"},
        {"stages=12-11", "stages hold 23 layers, but the model has 24"},
        {"stages=12-x", "stages=12-x: expected the layers of each stage, as in 7-7-6"},
    };
    sizes z = {24, 1024, 16, 1024, 50000, 0, 64};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        bench               b;
        weft_search_result *r;
        open_bench(&b, "1 x (8 x a100-80g)", &z, "weft");
        weft_status st = weft_search_pin(&b.p.pins, bad[i].pin, b.a);
        if (st == WEFT_OK) st = weft_search_run(&b.p, &r);
        assert_int_equal(st, WEFT_ERR_ARG);
        assert_string_equal(weft_error_text(), bad[i].why);
        close_bench(&b);
    }
    static const char *const good[] = {"tp=4",          "pp=3",           "zero=3",
                                       "micro_batch=2", "recompute=full", "chunks=2",
                                       "stages=11-13"};
    for (size_t i = 0; i < WEFT_COUNT(good); i++) {
        bench               b;
        weft_search_result *r;
        weft_text           t = {0};
        open_bench(&b, "1 x (8 x a100-80g)", &z, "weft");
        assert_ok(weft_search_pin(&b.p.pins, good[i], b.a));
        assert_ok(weft_search_run(&b.p, &r));
        weft_search_print_choice(&r->choice[0], &t);
        if (!strstr(t.s, good[i])) fail_msg("%s: %s", good[i], t.s);
        weft_text_fini(&t);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

static void nothing_fits_says_what_would_help(void **state)
{
    sizes               z = {105, 20480, 128, 2048, 51200, 0, 64};
    bench               b;
    weft_search_result *r;
    (void)state;
    open_bench(&b, "2 x (8 x a100-80g)", &z, "weft");
    assert_int_equal(weft_search_run(&b.p, &r), WEFT_ERR_NOFIT);
    assert_non_null(strstr(weft_error_text(), "optimizer state"));
    assert_non_null(strstr(weft_error_text(), "times as many devices would do"));
    close_bench(&b);
    z = (sizes){24, 4096, 32, 2048, 51200, 0, 64};
    open_bench(&b, "1 x (8 x a100-80g)", &z, "weft");
    assert_ok(weft_search_pin(&b.p.pins, "zero=0", b.a));
    assert_ok(weft_search_pin(&b.p.pins, "tp=1", b.a));
    assert_ok(weft_search_pin(&b.p.pins, "pp=1", b.a));
    assert_int_equal(weft_search_run(&b.p, &r), WEFT_ERR_NOFIT);
    assert_non_null(strstr(weft_error_text(), "without the pin on zero"));
    close_bench(&b);
}

/* ---- other engines ---- */

static void emitted_plans_read_back(void **state)
{
    static const sizes       z[]       = {{32, 4096, 32, 2048, 51200, 0, 256},
                                          {96, 12288, 96, 2048, 51200, 0, 1536},
                                          {48, 8192, 64, 2048, 51200, 0, 384}};
    static const char *const cluster[] = {"4 x (8 x a100-80g)", "64 x (8 x a100-80g)",
                                          "16 x (8 x a100-80g)"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(z); i++) {
        bench               b;
        weft_search_result *r;
        weft_text           t = {0};
        weft_prediction     p;
        open_bench(&b, cluster[i], &z[i], "megatron");
        b.p.model.shape.engine = (weft_cost_engine){0};
        weft_cost_constants_engine(b.c, "Megatron-Core", &b.p.model.shape.engine);
        assert_ok(weft_search_run(&b.p, &r));
        assert_ok(weft_search_config(&r->choice[0], &b.m, b.a, &b.config));
        assert_ok(weft_engine_emit(WEFT_ENGINE_MEGATRON, &b.config, &t));
        weft_config c;
        weft_engine_open(&c);
        weft_hardware *h;
        assert_ok(weft_engine_cluster(b.k, b.a, &c, &h));
        assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", t.s, t.n,
                                   weft_cluster_count(b.k), b.a, &c, NULL));
        assert_ok(weft_config_complete("f", &c));
        assert_ok(weft_estimate_row(h, b.c, &c, &p));
        assert_true(p.fits);
        if (fabs(p.step_s / r->choice[0].score.step_s - 1) > 1e-9)
            fail_msg("%s\nplanned %.9g, read back %.9g", t.s, r->choice[0].score.step_s,
                     p.step_s);
        weft_hardware_destroy(h);
        weft_text_fini(&t);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

/* ---- health ---- */

static void lost_nodes_are_left_out(void **state)
{
    sizes               z = {32, 4096, 32, 2048, 50000, 0, 240};
    bench               b;
    weft_cluster       *k;
    weft_search_result *r, *again;
    (void)state;
    open_bench(&b, "4 x (8 x a100-80g)", &z, "weft");
    assert_ok(weft_search_run(&b.p, &r));
    assert_int_equal(r->n_device, 32);
    assert_ok(weft_cluster_change(b.k, "cordon node 2 device 3", &k));
    assert_ok(weft_search_machines_of(k, b.c, b.a, &b.m));
    assert_int_equal(weft_search_usable(&b.m.kind[0], 1), 31);
    assert_int_equal(weft_search_usable(&b.m.kind[0], 4), 28);
    assert_int_equal(weft_search_usable(&b.m.kind[0], 8), 24);
    assert_ok(weft_search_run(&b.p, &again));
    assert_true(again->choice[0].score.step_s > r->choice[0].score.step_s);
    weft_search_destroy(again);
    weft_cluster_destroy(k);
    assert_ok(weft_cluster_change(b.k, "degrade node 1 speed 0.5", &k));
    assert_ok(weft_search_machines_of(k, b.c, b.a, &b.m));
    assert_int_equal(b.m.n, 2);
    assert_ok(weft_search_run(&b.p, &again));
    assert_true(again->choice[0].score.step_s > r->choice[0].score.step_s);
    weft_search_destroy(again);
    weft_search_destroy(r);
    weft_cluster_destroy(k);
    close_bench(&b);
}

/* Links of a whole rack are one domain; what a switch does not carry is not there. */
static void switches_count(void **state)
{
    static const char *const text =
        "name: two\ndevice:\n  - {name: x, like: a100-80g}\nlink:\n  - {name: in, "
        "alpha_s: "
        "1e-06, Bps: 1e11}\n  - {name: out, scope: net, alpha_s: 1e-06, Bps: "
        "1e10}\nnode:\n"
        "  - {name: box, count: 8, device: x, n_device: 8, link: in, net: out, n_port: "
        "8}\n"
        "switch:\n  - {name: pod, span: %d, alpha_s: 0, taper: 1}\n"
        "  - {name: spine, span: 0, alpha_s: 0, taper: 0.5}\n";
    sizes                z = {24, 2048, 16, 2048, 50000, 0, 96};
    bench                b;
    weft_search_machines m[2];
    (void)state;
    open_bench(&b, "36 x (4 x gb200)", &z, "weft");
    assert_int_equal(b.m.kind[0].per_node, 4);
    assert_int_equal(b.m.kind[0].fabric.domain, 72);
    for (int i = 0; i < 2; i++) { /* all in one pod, in two */
        char          yaml[800];
        weft_cluster *k;
        int           n = snprintf(yaml, sizeof yaml, text, i ? 4 : 8);
        assert_ok(weft_cluster_parse("two", yaml, (size_t)n, &k));
        assert_ok(weft_search_machines_of(k, b.c, b.a, &m[i]));
        weft_cluster_destroy(k);
    }
    assert_true(m[1].kind[0].fabric.out.Bps == 0.5 * m[0].kind[0].fabric.out.Bps);
    close_bench(&b);
}

static void the_same_twice(void **state)
{
    sizes     z    = {24, 2048, 16, 2048, 50000, 0, 96};
    weft_text t[2] = {{0}, {0}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        bench               b;
        weft_search_result *r;
        open_bench(&b, "2 x (4 x v100-32g) + 2 x (4 x a100-80g)", &z, "weft");
        assert_ok(weft_search_run(&b.p, &r));
        assert_ok(weft_search_print(&b.p, r, true, &t[i]));
        assert_ok(weft_search_print_json(&b.p, r, &t[i]));
        weft_search_destroy(r);
        close_bench(&b);
    }
    assert_string_equal(t[0].s, t[1].s);
    weft_text_fini(&t[0]);
    weft_text_fini(&t[1]);
}

/* ---- some layers run again, not all ---- */

/* Of one pinned point every number of layers is tried: the search takes the least that fits. */
static void as_few_layers_as_fit_run_again(void **state)
{
    sizes               z = {48, 6144, 48, 2048, 50000, 0, 64};
    bench               b;
    weft_search_result *r, *one;
    double              best  = INFINITY;
    int                 least = 0;
    (void)state;
    open_bench(&b, "2 x (8 x a100-80g)", &z, "megatron");
    weft_search_open(&b.p.pins);
    b.p.pins.tp = b.p.pins.cp = b.p.pins.ep = b.p.pins.zero = b.p.pins.chunks = 1;
    b.p.pins.pp = b.p.pins.dp = 4;
    b.p.pins.sp               = 0;
    b.p.pins.micro_batch      = 2;
    b.p.pins.tp               = 1;
    assert_ok(weft_search_run(&b.p, &r));
    const weft_search_choice *x = &r->choice[0];
    assert_true(x->point.n_again > 0);
    assert_int_equal(x->variant.recompute, WEFT_RECOMPUTE_FULL);
    for (int k = 1; k < 12; k++) {
        b.p.pins.recompute_layers = k;
        weft_status st            = weft_search_run(&b.p, &one);
        if (st == WEFT_ERR_NOFIT) continue;
        assert_ok(st);
        assert_int_equal(one->choice[0].point.n_again, k);
        if (one->choice[0].score.step_s < best) {
            best  = one->choice[0].score.step_s;
            least = k;
        }
        weft_search_destroy(one);
    }
    assert_int_equal(least, x->point.n_again);
    assert_true(best == x->score.step_s);
    weft_search_destroy(r);
    close_bench(&b);
}

/* The first and the last stage hold a layer less; written for Megatron and read back. */
static void chunks_with_short_ends(void **state)
{
    sizes               z = {30, 8192, 64, 2048, 50000, 0, 128};
    bench               b;
    weft_search_result *r;
    weft_text           t = {0};
    weft_config         c;
    (void)state;
    open_bench(&b, "8 x (8 x a100-80g)", &z, "megatron");
    b.p.pins.pp     = 8;
    b.p.pins.chunks = 2;
    assert_ok(weft_search_run(&b.p, &r));
    const weft_search_choice *x = &r->choice[0];
    assert_int_equal(x->point.cut[0], 3);
    assert_int_equal(x->point.cut[1], 4);
    assert_int_equal(x->point.cut[7], 3);
    assert_int_equal(weft_search_chunk_layers(x, 0), 1);
    assert_int_equal(weft_search_chunk_layers(x, 7), 2);
    assert_int_equal(weft_search_chunk_layers(x, 8), 2);
    assert_int_equal(weft_search_chunk_layers(x, 15), 1);
    assert_ok(weft_search_config(x, &b.m, b.a, &b.config));
    assert_ok(weft_engine_emit(WEFT_ENGINE_MEGATRON, &b.config, &t));
    assert_non_null(strstr(t.s, "--account-for-embedding-in-pipeline-split "
                                "--account-for-loss-in-pipeline-split"));
    weft_engine_open(&c);
    assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", t.s, t.n, 64, b.a, &c, NULL));
    assert_string_equal(c.stage_layers, "3-4-4-4-4-4-4-3");
    assert_int_equal(c.vpp, 2);
    weft_text_fini(&t);
    weft_search_destroy(r);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_equal_brute_force),
        cmocka_unit_test(bounds_lose_nothing),
        cmocka_unit_test(never_worse_than_rules),
        cmocka_unit_test(never_worse_than_people),
        cmocka_unit_test(mixed_machines_gain),
        cmocka_unit_test(pins_are_kept_or_refused),
        cmocka_unit_test(nothing_fits_says_what_would_help),
        cmocka_unit_test(emitted_plans_read_back),
        cmocka_unit_test(lost_nodes_are_left_out),
        cmocka_unit_test(switches_count),
        cmocka_unit_test(the_same_twice),
        cmocka_unit_test(as_few_layers_as_fit_run_again),
        cmocka_unit_test(chunks_with_short_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
