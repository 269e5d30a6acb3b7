#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cost/score.h"

enum {
    N_CLASS = 4 /* first, two kinds of layer, last */
};

typedef struct world {
    weft_cost_table   t;
    weft_cost_row     row[2 * 2 * N_CLASS];
    weft_cost_variant variant[2];
    weft_cost_segment segment[3];
    weft_device_kind  device[2];
    weft_cost_fabric  fabric[2];
} world;

static uint64_t seed = 1;

static double draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static void make(world *w)
{
    memset(w, 0, sizeof(*w));
    for (size_t i = 0; i < WEFT_COUNT(w->row); i++)
        w->row[i] = (weft_cost_row){.fwd_s      = 0.001 + draw(),
                                    .bwd_s      = 0.001 + 2 * draw(),
                                    .keep_bytes = 1e6 * draw(),
                                    .work_bytes = 1e6 * draw(),
                                    .n_param    = 1e6 * draw(),
                                    .out_bytes  = 0};
    for (int v = 0; v < 2; v++)
        w->variant[v] = (weft_cost_variant){.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
    for (int d = 0; d < 2; d++) {
        w->device[d] =
            (weft_device_kind){.name = "d", .mem_Bps = 1e30, .mem_bytes = 1 << 30};
        w->fabric[d] =
            (weft_cost_fabric){.domain = 8, .in = {.Bps = 1e30}, .out = {.Bps = 1e30}};
    }
    w->segment[0] = (weft_cost_segment){1, 3};
    w->segment[1] = (weft_cost_segment){2, 4};
    w->segment[2] = (weft_cost_segment){1, 5};
    w->t          = (weft_cost_table){.n_class     = N_CLASS,
                                      .first       = 0,
                                      .last        = 3,
                                      .n_segment   = 3,
                                      .segment     = w->segment,
                                      .n_variant   = 2,
                                      .variant     = w->variant,
                                      .n_device    = 2,
                                      .device      = w->device,
                                      .fabric      = w->fabric,
                                      .row         = w->row,
                                      .grad_bytes  = 4,
                                      .param_bytes = 2};
    w->t.engine   = (weft_cost_engine){
          .bubble = 1, .mem_spare = 1, .mem_weight = 4, .mem_state = 12, .mem_limit = 1};
}

static int class_at(const world *w, int layer)
{
    for (int i = 0; i < w->t.n_segment; i++) {
        if (layer < w->segment[i].count) return w->segment[i].layer_class;
        layer -= w->segment[i].count;
    }
    return -1;
}

/* Layer by layer: what the score composes from segments. */
static double direct(const world *w, const weft_cost_point *p, const uint16_t *cut,
                     double *mem)
{
    double slow = 0, sum = 0;
    int    layer = 0;
    *mem         = 0;
    for (int s = 0; s < p->pp; s++) {
        double worst = 0;
        int    kinds = p->kinds ? p->kinds[s] : 1;
        for (int d = 0; d < 2; d++) {
            if (!(kinds >> d & 1)) continue;
            const weft_cost_row *r    = w->row + (d * 2 + p->variant) * N_CLASS;
            double               time = 0, keep = 0, work = 0, param = 0;
            for (int i = 0; i < cut[s]; i++) {
                const weft_cost_row *x = &r[class_at(w, layer + i)];
                time += x->fwd_s + x->bwd_s;
                keep += x->keep_bytes;
                work = fmax(work, x->work_bytes);
                param += x->n_param;
            }
            if (s == 0) {
                time += r[0].fwd_s + r[0].bwd_s;
                keep += r[0].keep_bytes;
                work = fmax(work, r[0].work_bytes);
                param += r[0].n_param;
            }
            if (s == p->pp - 1) {
                time += r[3].fwd_s + r[3].bwd_s;
                work = fmax(work, r[3].work_bytes + r[3].keep_bytes);
                param += r[3].n_param;
            }
            worst         = fmax(worst, time);
            double flight = fmin(p->n_micro, p->pp - s);
            *mem          = fmax(*mem, 16 * param + keep * flight + work);
        }
        sum += worst;
        slow = fmax(slow, worst);
        layer += cut[s];
    }
    return p->n_micro * slow + sum - slow;
}

/* Stage by stage the same: the slowest, their sum, the fullest and what fills it. */
static void stages_are_its_parts(const world *w, const weft_cost_point *p,
                                 const weft_cost_score *s)
{
    weft_cost_stage g[12];
    double          slow = 0, sum = 0, over = -INFINITY;
    int             full = 0, layers = 0;
    weft_cost_score_stages(&w->t, p, g);
    for (int i = 0; i < p->pp; i++) {
        slow = fmax(slow, g[i].fwd_s + g[i].bwd_s);
        sum += g[i].fwd_s + g[i].bwd_s;
        layers += g[i].n_layer;
        if (g[i].mem_bytes - g[i].mem_limit <= over) continue;
        over = g[i].mem_bytes - g[i].mem_limit;
        full = i;
    }
    assert_int_equal(layers, 12);
    assert_true(fabs((p->n_micro * slow + sum - slow) / s->step_s - 1) < 1e-12);
    assert_true(fabs(g[full].mem_bytes / s->mem_bytes - 1) < 1e-12);
    assert_true(fabs(g[s->tightest].weight_bytes + g[s->tightest].grad_bytes -
                     s->weight_bytes) <= 1e-9 * s->mem_bytes);
}

static void equals_the_sum(void **state)
{
    (void)state;
    world w;
    for (int i = 0; i < 10000; i++) {
        if (i % 100 == 0) make(&w);
        uint16_t        cut[12];
        uint8_t         kinds[12];
        weft_cost_score s;
        weft_cost_point p    = {.variant = (int)(2 * draw()),
                                .dp      = 1,
                                .pp      = 1 + (int)(12 * draw()),
                                .chunks  = 1,
                                .n_micro = 1 + (int)(40 * draw()),
                                .cut     = cut,
                                .kinds   = kinds};
        int             left = 12;
        for (int k = 0; k < p.pp; k++) {
            int n    = k == p.pp - 1 ? left : (int)(draw() * (left + 1) / 2);
            cut[k]   = (uint16_t)n;
            kinds[k] = (uint8_t)(1 + (int)(3 * draw()));
            left -= n;
        }
        double mem, want = direct(&w, &p, cut, &mem);
        weft_cost_score_point(&w.t, &p, &s);
        if (fabs(s.step_s / want - 1) > 1e-12 || fabs(s.mem_bytes / mem - 1) > 1e-12)
            fail_msg("plan %d: %.15g for %.15g, %.15g for %.15g", i, s.step_s, want,
                     s.mem_bytes, mem);
        stages_are_its_parts(&w, &p, &s);
    }
}

/* Equal stages: idle (P-1) / (m + P-1) of the time; interleaving divides it; more in flight. */
static void bubbles(void **state)
{
    (void)state;
    world           w;
    weft_cost_score s;
    make(&w);
    w.t.first = w.t.last = -1;
    w.t.n_segment        = 1;
    w.segment[0]         = (weft_cost_segment){1, 16};
    weft_cost_point p    = {.dp = 1, .pp = 8, .chunks = 1, .n_micro = 24};
    weft_cost_score_point(&w.t, &p, &s);
    assert_true(fabs(s.bubble_s / s.step_s - 7.0 / 31) < 1e-12);
    double plain = s.bubble_s;
    p.chunks     = 2;
    weft_cost_score_point(&w.t, &p, &s);
    assert_true(fabs(s.bubble_s - plain / 2) < 1e-12 * plain);
}

/* Sharding states over replicas shrinks them by their number; zero 3 the weights too. */
static void sharding(void **state)
{
    (void)state;
    world           w;
    weft_cost_score s[4];
    make(&w);
    for (int z = 0; z < 4; z++) {
        weft_cost_point p = {.dp = 8, .pp = 1, .chunks = 1, .n_micro = 4, .zero = z};
        weft_cost_score_point(&w.t, &p, &s[z]);
    }
    assert_true(fabs(s[1].state_bytes - s[0].state_bytes / 8) < 1);
    assert_true(s[2].weight_bytes < s[1].weight_bytes &&
                s[3].weight_bytes < s[2].weight_bytes);
    assert_true(s[1].optimizer_s < s[0].optimizer_s || s[0].optimizer_s < 1e-20);
}

static void cuts(void **state)
{
    (void)state;
    for (int n = 0; n < 70; n++)
        for (int pp = 1; pp < 20; pp++) {
            int sum = 0, low = 1000, high = 0;
            for (int s = 0; s < pp; s++) {
                int x = weft_cost_even_cut(n, pp, s);
                sum += x;
                low  = x < low ? x : low;
                high = x > high ? x : high;
            }
            assert_int_equal(sum, n);
            assert_true(high - low <= 1);
        }
}

/* Full recomputation runs the forward pass again and keeps the input alone. */
static void filling(void **state)
{
    (void)state;
    weft_flop_rate   rate[] = {{"bf16", 1e12, 0}};
    weft_device_kind d = {.n_rate = 1, .rate = rate, .efficiency = 1, .mem_Bps = 1e30};
    weft_cost_fabric f = {.domain = 8, .in = {.Bps = 1e9}, .out = {.Bps = 1e9}};
    weft_cost_engine e = {
        .stream = 1, .product = 1, .tp_exposed = 1, .tp_overlap = 0.5, .mem_keep = 1};
    weft_cost_item item[3] = {
        {.phase      = WEFT_COST_FORWARD,
         .op         = weft_cost_product("bf16", 0, 1e4, 1e4, 1e4, 1),
         .keep_bytes = 100},
        {.phase = WEFT_COST_BACKWARD,
         .op    = weft_cost_product("bf16", 0, 1e4, 1e4, 1e4, 2)},
        {.phase         = WEFT_COST_FORWARD,
         .is_collective = true,
         .coll          = WEFT_ALL_REDUCE,
         .group         = {2, 1},
         .bytes         = 1e9},
    };
    weft_cost_layer l = {.n_item = 3, .item = item, .in_bytes = 10};
    weft_cost_row   none, full, overlapped;
    weft_cost_fill(&l, WEFT_RECOMPUTE_NONE, false, &d, &f, &e, &none);
    weft_cost_fill(&l, WEFT_RECOMPUTE_FULL, false, &d, &f, &e, &full);
    weft_cost_fill(&l, WEFT_RECOMPUTE_NONE, true, &d, &f, &e, &overlapped);
    assert_true(fabs(none.fwd_s - 3) < 1e-9 && fabs(none.bwd_s - 4) < 1e-9);
    assert_true(fabs(full.bwd_s - 7) < 1e-9 && fabs(full.again_s - 3) < 1e-9);
    assert_true(fabs(overlapped.fwd_s - 2.5) < 1e-9);
    assert_true(none.wire_bytes[WEFT_COST_TP] == 1e9 &&
                full.wire_bytes[WEFT_COST_TP] == 2e9);
    assert_true(none.keep_bytes == 100 && full.keep_bytes == 10 &&
                full.work_bytes == 100);
}

/* Eight values for eight ranks of four nodes: 4 (1 - 0.75^8) of them leave as copies, not eight. */
static void copies(void **state)
{
    (void)state;
    weft_device_kind d    = {.mem_Bps = 1e30};
    weft_cost_fabric f    = {.domain = 2, .in = {.Bps = 1e30}, .out = {.Bps = 1e9}};
    weft_cost_engine e    = {.stream = 1, .product = 1, .ep_exposed = 1};
    weft_cost_item   item = {.phase         = WEFT_COST_FORWARD,
                             .is_collective = true,
                             .coll          = WEFT_ALL_TO_ALL,
                             .traffic       = WEFT_COST_EP,
                             .group         = {8, 1},
                             .bytes         = 1e9};
    weft_cost_layer  l    = {.n_item = 1, .item = &item};
    weft_cost_row    each, once;
    weft_cost_fill(&l, WEFT_RECOMPUTE_NONE, false, &d, &f, &e, &each);
    item.copies = 8;
    weft_cost_fill(&l, WEFT_RECOMPUTE_NONE, false, &d, &f, &e, &once);
    assert_true(fabs(each.fwd_s - 0.75) < 1e-9);
    assert_true(fabs(once.fwd_s - 0.75 * 4 * (1 - pow(0.75, 8)) / 8) < 1e-9);
    f.domain = 8; /* inside a node every copy is sent */
    weft_cost_fill(&l, WEFT_RECOMPUTE_NONE, false, &d, &f, &e, &once);
    assert_true(once.fwd_s < 1e-12);
}

/* Gradient sums of interleaved stages hide behind the passes of the other chunks. */
static void hidden_sums(void **state)
{
    (void)state;
    world           w;
    weft_cost_score plain, chunked;
    make(&w);
    for (int d = 0; d < 2; d++) w.fabric[d].in.Bps = 1e5; /* sums take tens of seconds */
    weft_cost_point p = {
        .dp = 8, .pp = 4, .chunks = 1, .n_micro = 8, .zero = 1, .dp_overlap = true};
    weft_cost_score_point(&w.t, &p, &plain);
    p.chunks = 3;
    weft_cost_score_point(&w.t, &p, &chunked);
    assert_true(chunked.dp_s < plain.dp_s);
    p.dp_overlap = false;
    weft_cost_score_point(&w.t, &p, &chunked);
    assert_true(chunked.dp_s > plain.dp_s);
}

/* A stalled host frees in time: less is held, but as much may be when it is not. */
static void freed_late(void **state)
{
    (void)state;
    world           w;
    weft_cost_score ahead, stalled;
    make(&w);
    for (size_t i = 0; i < WEFT_COUNT(w.row); i++) w.row[i].gathered_bytes = 1e6;
    w.variant[0].tp   = 2;
    weft_cost_point p = {.dp = 4, .pp = 4, .chunks = 1, .n_micro = 8};
    weft_cost_score_point(&w.t, &p, &ahead);
    w.t.engine.stall_s = 10;
    weft_cost_score_point(&w.t, &p, &stalled);
    assert_true(stalled.step_s > ahead.step_s && stalled.mem_bytes < ahead.mem_bytes);
    assert_true(stalled.late_bytes >= stalled.mem_bytes &&
                ahead.late_bytes > ahead.mem_bytes);
}

/* On a crowd of nodes each message waits: two of a stage at the ends, four between them.  A
 * single stage stalls as those do where it is short of memory. */
static void crowds(void **state)
{
    (void)state;
    world           w;
    weft_cost_score s, more;
    make(&w);
    w.t.n_device = 1;
    w.t.first = w.t.last = -1;
    weft_cost_point p    = {.dp = 256, .pp = 2, .chunks = 1, .n_micro = 8};
    weft_cost_score_point(&w.t, &p, &s);
    w.t.engine.crowd_s = 1;
    weft_cost_score_point(&w.t, &p, &more);
    assert_true(fabs(more.step_s - s.step_s - 2 * (8 + 1)) < 1e-6);
    p.pp = 4, p.dp = 128, w.t.engine.crowd_s = 0;
    weft_cost_score_point(&w.t, &p, &s);
    w.t.engine.crowd_s = 1;
    weft_cost_score_point(&w.t, &p, &more);
    assert_true(fabs(more.step_s - s.step_s - 4 * (8 + 3)) < 1e-6);

    w.variant[0].tp    = 2;
    p                  = (weft_cost_point){.dp = 8, .pp = 1, .chunks = 1, .n_micro = 8};
    w.t.engine.crowd_s = 0, w.t.engine.thrash = 1e-9, w.t.engine.stall_s = 50;
    weft_cost_score_point(&w.t, &p, &s);
    w.device[0].mem_bytes = 1;
    weft_cost_score_point(&w.t, &p, &more);
    assert_true(s.step_s < 8 * 12 * 100 && fabs(more.step_s / (8 * 12 * 100) - 1) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),         cmocka_unit_test(hidden_sums),
        cmocka_unit_test(freed_late),     cmocka_unit_test(crowds),
        cmocka_unit_test(equals_the_sum), cmocka_unit_test(bubbles),
        cmocka_unit_test(sharding),       cmocka_unit_test(cuts),
        cmocka_unit_test(filling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
