/* Rows against the programs they stand for: the prices of a stage's instructions, one by one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost/cost.h"
#include "planner/rows.h"
#include "support/rows.h"
#include "support/test.h"

enum {
    MAX_LAYER = 20,
    N_PLAN    = 400 /* of each variant */
};

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- what a stage's program costs, for one micro-batch ---- */

typedef struct sums {
    bool   known;
    double fwd_s, bwd_s, comm_s;
} sums;

static bool is_fired(const weft_program *p, int actor)
{
    weft_stream_kind s = (weft_stream_kind)p->actor[actor].stream;
    for (int i = 0; i < p->stream[s].n_firing; i++)
        if (p->stream[s].firing[i].actor == actor && p->stream[s].firing[i].micro >= 0)
            return true;
    return false;
}

static sums add_up(const weft_program *p, const weft_cluster *c)
{
    sums out = {.known = true};
    for (int a = 0; a < p->n_actor; a++) {
        if (p->stream[p->actor[a].stream].kind != WEFT_STREAM_COMPUTE || !is_fired(p, a))
            continue;
        bool back = strstr(p->actor[a].name, "backward") != NULL;
        for (int k = 0; k < p->actor[a].n_instr; k++) {
            const weft_instr *i = &p->actor[a].instr[k];
            double            t;
            if (i->kind == WEFT_INSTR_READ) continue; /* the host's */
            assert_ok(weft_cost_instr(p, i, c, &t));
            *(back ? &out.bwd_s : &out.fwd_s) += t;
            if (i->kind == WEFT_INSTR_COLLECTIVE) out.comm_s += t;
        }
    }
    return out;
}

/* ---- models under variants ---- */

typedef struct job {
    const char       *model;
    int64_t           seq;
    weft_cost_variant v;
    const char       *whole; /* "": all layers are cut alike */
    weft_cluster     *c;
    int               n_layer;
    weft_training     training; /* of the variant; its stages are made from it */
    sums              of[MAX_LAYER][MAX_LAYER + 1]; /* layers [from, to) */
} job;

static weft_compile_spec spec_of(const job *j)
{
    int               micro = j->v.micro_batch * j->v.ep;
    weft_compile_spec s     = weft_compile_spec_default(j->model, 2 * micro, j->seq);
    s.micro_batch           = micro;
    s.recompute             = (weft_strategy_recompute)j->v.recompute;
    return s;
}

/* Asks the program of the stage that has layers [from, to). */
static const sums *stage_of(job *j, int from, int to)
{
    sums *x = &j->of[from][to];
    if (x->known) return x;
    int           cut[3], n = 0, me;
    char          words[128];
    weft_strategy h;
    weft_plan    *p;
    weft_compiled c = {0};
    if (from) cut[n++] = from;
    me       = n;
    cut[n++] = to - from;
    if (to < j->n_layer) cut[n++] = j->n_layer - to;
    int used = snprintf(words, sizeof words, "dp=1");
    if (j->v.ep > 1) used += snprintf(words + used, 16, " ep=%d", j->v.ep);
    if (j->v.cp > 1) used += snprintf(words + used, 16, " cp=%d", j->v.cp);
    if (j->v.tp > 1) used += snprintf(words + used, 16, " tp=%d", j->v.tp);
    if (j->v.ep > 1 && j->v.cp > 1)
        used += snprintf(words + used, 32, " mesh_order=dp,ep,cp,tp");
    snprintf(words + used, 64, " pp=%d%s%s%s", n, j->v.sp ? " sp=true" : "",
             j->whole[0] ? " tp_exclude=" : "", j->whole);
    assert_ok(weft_strategy_parse(words, &h));
    assert_ok(weft_compile_plan_layers(&j->training, &h, cut, 0, &p));
    if (weft_compile_program(&j->training, p, me * weft_plan_places(p), &c) != WEFT_OK)
        fail_msg("%s, %s: %s", j->model, words, weft_error_text());
    *x = add_up(c.program, j->c);
    weft_compiled_fini(&c);
    weft_plan_destroy(p);
    return x;
}

/* ---- rows of the same layers ---- */

static void add_seam(sums *to, const weft_cost_seam *x)
{
    to->fwd_s += x->fwd_s;
    to->bwd_s += x->bwd_s;
    to->comm_s += x->comm_s;
}

static int class_of(const weft_cost_table *t, int layer)
{
    int k = 0;
    while (layer >= t->segment[k].count) layer -= t->segment[k++].count;
    return t->segment[k].layer_class;
}

static sums rows_of(const weft_cost_table *t, const weft_cost_row *row, int from, int to,
                    int n_layer)
{
    sums out = {0};
    int  at  = 0;
    for (int k = -2; k < t->n_segment; k++) {
        const weft_cost_row *r;
        int                  n;
        if (k == -2) {
            r = &row[t->first];
            n = from == 0;
        } else if (k == -1) {
            r = &row[t->last];
            n = to == n_layer;
        } else {
            int lo = at > from ? at : from;
            at += t->segment[k].count;
            n = (at < to ? at : to) - lo;
            r = &row[t->segment[k].layer_class];
        }
        if (n <= 0) continue;
        out.fwd_s += n * r->fwd_s;
        out.bwd_s += n * r->bwd_s;
        out.comm_s += n * r->comm_s;
    }
    if (from > 0) add_seam(&out, &row[class_of(t, from - 1)].of->begin);
    if (to < n_layer) add_seam(&out, &row[class_of(t, to - 1)].of->end);
    return out;
}

static double worst;

static void compare(job *j, double rows, double program, int from, int to,
                    const char *what)
{
    double off = fabs(rows - program) / fmax(program, 1e-9);
    worst      = fmax(worst, off);
    if (off > 1e-12)
        fail_msg("%s tp=%d cp=%d ep=%d sp=%d micro=%d again=%d whole=%s layers %d..%d: "
                 "%s %.17g "
                 "s, program %.17g s (%.2g)",
                 j->model, j->v.tp, j->v.cp, j->v.ep, j->v.sp, j->v.micro_batch,
                 j->v.recompute, j->whole, from, to, what, rows, program, off);
}

/* n random plans: the layers cut into 1 to all stages, wherever. */
static void try_plans(job *j, const weft_search_model *m, const weft_search_machines *hw,
                      uint64_t *r, int n)
{
    weft_cost_row     row[64];
    weft_compile_spec spec = spec_of(j);
    assert_ok(weft_compile_training(&spec, &j->training));
    m->fill(m->arg, &m->shape.engine, &j->v, &hw->kind[0].device, &hw->kind[0].fabric,
            row);
    for (int i = 0; i < n; i++) {
        int pp = 1 + (int)(draw(r) % (uint64_t)j->n_layer), from = 0;
        for (int s = 0; s < pp; s++) {
            int left = j->n_layer - from - (pp - s - 1);
            int to =
                s == pp - 1 ? j->n_layer : from + 1 + (int)(draw(r) % (uint64_t)left);
            const sums *p = stage_of(j, from, to);
            sums        q = rows_of(&m->shape, row, from, to, j->n_layer);
            compare(j, q.fwd_s, p->fwd_s, from, to, "forward");
            compare(j, q.bwd_s, p->bwd_s, from, to, "backward");
            compare(j, q.comm_s, p->comm_s, from, to, "collectives");
            from = to;
        }
    }
    weft_training_fini(&j->training);
}

typedef struct family {
    const char       *model;
    int64_t           seq;
    int               n;
    weft_cost_variant v[12];
} family;

static void rows_are_programs(void **state)
{
    (void)state;
#define AT "tests/fixtures/planner/"
    const family table[] = {
        {AT "gpt2",
         256,
         6,
         {{1, 1, 1, 0, 1, 0, 0},
          {2, 1, 1, 0, 2, 1, 0},
          {4, 1, 1, 1, 1, 2, 0},
          {1, 2, 1, 0, 2, 0, 0},
          {2, 2, 1, 1, 1, 1, 0},
          {1, 1, 1, 0, 4, 2, 0}}},
        {AT "llama",
         512,
         6,
         {{1, 1, 1, 0, 1, 0, 0},
          {8, 1, 1, 1, 2, 0, 0},
          {2, 2, 1, 0, 1, 1, 0},
          {4, 1, 1, 0, 2, 2, 0},
          {2, 1, 1, 1, 3, 0, 0},
          {1, 4, 1, 0, 1, 2, 0}}},
        {AT "bert",
         128,
         4,
         {{1, 1, 1, 0, 8, 0, 0},
          {4, 1, 1, 0, 4, 1, 0},
          {2, 1, 1, 1, 2, 2, 0},
          {1, 1, 1, 0, 2, 1, 0}}},
        {AT "mixtral",
         256,
         4,
         {{1, 1, 1, 0, 1, 0, 0},
          {2, 1, 1, 0, 2, 2, 0},
          {1, 1, 4, 0, 1, 0, 0},
          {2, 1, 2, 0, 1, 1, 0}}},
        {AT "t5",
         256,
         4,
         {{1, 1, 1, 0, 2, 0, 0},
          {2, 1, 1, 0, 1, 0, 0},
          {4, 1, 1, 0, 2, 1, 0},
          {2, 1, 1, 1, 1, 2, 0}}},
        {"resnet50",
         0,
         3,
         {{1, 1, 1, 0, 8, 0, 0}, {1, 1, 1, 0, 2, 1, 0}, {2, 1, 1, 0, 4, 2, 0}}},
        {AT "t5_unlike", 256, 2, {{1, 1, 1, 0, 2, 0, 0}, {2, 1, 1, 1, 1, 2, 0}}},
        {AT "mlp_deep",
         0,
         3,
         {{1, 1, 1, 0, 32, 0, 0}, {2, 1, 1, 0, 64, 0, 0}, {4, 1, 1, 0, 64, 1, 0}}},
        {"mlp",
         0,
         3,
         {{1, 1, 1, 0, 32, 0, 0}, {2, 1, 1, 0, 64, 0, 0}, {1, 1, 1, 0, 256, 1, 0}}},
    };
    uint64_t             r = 7;
    weft_cluster        *c;
    weft_arena          *a;
    weft_search_machines hw;
    int                  n_plan = 0;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_cluster_load("32 x (8 x a100-80g)", NULL, &c));
    assert_ok(weft_planner_machines(c, a, &hw));
    for (size_t f = 0; f < sizeof table / sizeof *table; f += TEST_STRIDE(4)) {
        weft_search_limits l = weft_search_limits_of("weft");
        weft_search_model  m;
        weft_compile_spec  s = weft_compile_spec_default(table[f].model, 1, table[f].seq);
        s.micro_batch        = 0; /* the planner's to choose */
        test_rows_open(&s, c, &l, a, &m);
        for (int k = 0; k < table[f].n; k += WEFT_TEST_SANITIZED ? 8 : TEST_FEW(4)) {
            job j = {.model = table[f].model,
                     .seq   = table[f].seq,
                     .v     = table[f].v[k],
                     .whole = "",
                     .c     = c};
            for (int i = 0; i < m.shape.n_segment; i++)
                j.n_layer += m.shape.segment[i].count;
            assert_true(j.n_layer <= MAX_LAYER);
            try_plans(&j, &m, &hw, &r, N_PLAN);
            n_plan += N_PLAN;
        }
        weft_planner_rows_fini(&m);
    }
    print_message("%d plans, rows at most %.2g off\n", n_plan, worst);
    assert_true(WEFT_TEST_SANITIZED || n_plan >= (TEST_LONG ? 10000 : 2500));
    weft_cluster_destroy(c);
    weft_arena_destroy(a);
}

/* Each set of layers that may stay whole, of each family. */
static void unlike_layers(void **state)
{
    static const struct {
        const char *model;
        int64_t     seq;
    } table[] = {{AT "gpt2", 256},    {AT "llama", 512}, {AT "bert", 128}, {AT "t5", 256},
                 {AT "mixtral", 256}, {"resnet50", 0},   {"mlp", 0}};
    uint64_t             r     = 11;
    int                  n_set = 0;
    weft_cluster        *c;
    weft_arena          *a;
    weft_search_machines hw;
    (void)state;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_cluster_load("32 x (8 x a100-80g)", NULL, &c));
    assert_ok(weft_planner_machines(c, a, &hw));
    for (size_t f = 0; f < sizeof table / sizeof *table; f += TEST_STRIDE(4)) {
        weft_search_limits l = weft_search_limits_of("weft");
        weft_search_model  m;
        weft_compile_spec  s = weft_compile_spec_default(table[f].model, 1, table[f].seq);
        s.micro_batch        = 0;
        test_rows_open(&s, c, &l, a, &m);
        assert_true(m.n_whole > 1);
        int       few  = TEST_FEW(3);
        int       step = WEFT_TEST_SANITIZED ? m.n_whole : (m.n_whole > 8 ? 3 : 1) * few;
        weft_text excluded = {0};
        for (int k = 1; k < m.n_whole; k += step) {
            excluded.n = 0;
            weft_layer_spans_print(m.whole[k].span, m.whole[k].n_span, &excluded);
            job  j        = {.model = table[f].model,
                             .seq   = table[f].seq,
                             .v     = {2 << k % 2, 1, 1, 0, 4, (weft_cost_recompute)(k % 3), k},
                             .whole = excluded.s,
                             .c     = c};
            char why[200] = "";
            for (int i = 0; i < m.shape.n_segment; i++)
                j.n_layer += m.shape.segment[i].count;
            bool can = m.allows(m.arg, &j.v, why, sizeof why);
            if (!can) print_message("%s whole=%s: %s\n", j.model, j.whole, why);
            if (can) try_plans(&j, &m, &hw, &r, 8);
            n_set += can;
        }
        weft_text_fini(&excluded);
        weft_planner_rows_fini(&m);
    }
    assert_true(WEFT_TEST_SANITIZED || n_set >= (TEST_LONG ? 20 : 6));
    weft_cluster_destroy(c);
    weft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unlike_layers),
        cmocka_unit_test(rows_are_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
