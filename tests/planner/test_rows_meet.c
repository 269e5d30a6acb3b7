/* Collectives of a step over replicas: those that rows count are those of the program. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compile/compile.h"
#include "cost/score_priv.h"
#include "planner/rows.h"
#include "program/coalesce.h"
#include "program/work.h"
#include "support/test.h"

/* Once a step, and gathers of what each micro-batch uses. */
typedef enum kind {
    SUMS,
    SCATTERS,
    GATHERS,
    FETCHES,
    N_KIND
} kind;

typedef struct counted {
    double n[N_KIND], bytes[N_KIND];
} counted;

typedef struct setting {
    const char *model;
    int         dp, zero, n_micro;
    int64_t     bucket_bytes;
} setting;

static weft_compile_spec spec_of(const setting *x)
{
    weft_compile_spec s = weft_compile_spec_default(x->model, x->dp * x->n_micro, 32);
    s.micro_batch       = 1;
    s.lanes             = x->dp;
    s.dtype             = "fp32";
    return s;
}

/* ---- rows ---- */

typedef struct priced {
    weft_arena          *a;
    weft_cluster        *c;
    weft_model          *whole;
    weft_search_machines hw;
    weft_search_model    m;
    weft_cost_variant    v;
    weft_cost_row        row[64];
} priced;

static void open_rows(const setting *x, priced *out)
{
    weft_search_limits l = weft_search_limits_of("weft");
    weft_compile_spec  s = spec_of(x), one = s;
    *out          = (priced){.v = {.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1}};
    s.micro_batch = 0; /* the planner's to choose */
    one.batch     = 1;
    assert_ok(weft_arena_create(&out->a));
    assert_ok(weft_cluster_load("2 x (8 x a100-80g)", NULL, &out->c));
    assert_ok(weft_planner_machines(out->c, out->a, &out->hw));
    assert_ok(weft_compile_model(&one, &out->whole));
    assert_ok(
        weft_planner_rows(&s, out->whole, out->c, &l, x->bucket_bytes, out->a, &out->m));
    out->m.fill(out->m.arg, &out->m.shape.engine, &out->v, &out->hw.kind[0].device,
                &out->hw.kind[0].fabric, out->row);
}

static void close_rows(priced *x)
{
    weft_planner_rows_fini(&x->m);
    weft_model_destroy(x->whole);
    weft_cluster_destroy(x->c);
    weft_arena_destroy(x->a);
}

static void add_calls(const weft_cost_table *t, const weft_cost_point *p,
                      const weft_cost_calls *c, kind k, double sums, counted *out)
{
    for (int o = 0; o < WEFT_COST_N_OVER; o++) {
        out->n[k] += weft_cost__own_calls(t, p, &c[o], sums);
        out->bytes[k] += c[o].bytes;
    }
}

static void count_rows(const setting *x, counted *out)
{
    priced z;
    open_rows(x, &z);
    weft_cost_table t = z.m.shape;
    weft_cost_point p = {
        .dp = x->dp, .pp = 1, .chunks = 1, .n_micro = x->n_micro, .zero = x->zero};
    weft_cost__own   own  = {0};
    weft_cost_shares k    = weft_cost__own_shares(&p, &z.v);
    double           sums = 0;
    t.n_variant           = 1;
    t.variant             = &z.v;
    weft_cost__own_add(&own, &z.row[t.first], 1, k, x->dp);
    for (int i = 0; i < t.n_segment; i++)
        weft_cost__own_add(&own, &z.row[t.segment[i].layer_class], t.segment[i].count, k,
                           x->dp);
    weft_cost__own_add(&own, &z.row[t.last], 1, k, x->dp);
    const weft_cost_sharing *share = &own.share;
    for (int o = 0; o < WEFT_COST_N_OVER; o++)
        sums += share->sum[o].bytes + share->scatter[o].bytes;
    *out = (counted){0};
    add_calls(&t, &p, share->sum, SUMS, sums, out);
    add_calls(&t, &p, share->scatter, SCATTERS, sums, out);
    add_calls(&t, &p, share->tell, GATHERS, 0, out);
    add_calls(&t, &p, share->gather, GATHERS, 0, out);
    for (int back = 0; back < 2; back++) {
        weft_cost_calls c = weft_cost__own_fetches(&p, &share->fetch[back]);
        out->n[FETCHES] += c.n;
        out->bytes[FETCHES] += c.bytes;
    }
    close_rows(&z);
}

/* ---- the program ---- */

static void count_actor(const weft_program *p, const weft_actor *a, counted *out)
{
    bool update = !strncmp(a->name, "update", 6);
    for (int i = 0; i < a->n_instr; i++) {
        const weft_instr *c = &a->instr[i];
        if (c->kind != WEFT_INSTR_COLLECTIVE) continue;
        const weft_group *g = &p->group[c->group];
        kind              k = c->coll == WEFT_REDUCE_SCATTER ? SCATTERS
                              : c->coll != WEFT_ALL_GATHER   ? SUMS
                              : update                       ? GATHERS
                                                             : FETCHES;
        out->n[k]++;
        out->bytes[k] += c->coll == WEFT_ALL_GATHER ? weft_instr_given(c, g) * g->n_rank
                                                    : weft_instr_bytes(c);
    }
}

static void count_program(const setting *x, counted *out)
{
    weft_compile_spec s = spec_of(x);
    weft_training     t;
    weft_strategy     y;
    weft_plan        *p;
    weft_compiled     made = {0};
    char              words[64];
    snprintf(words, sizeof words, "dp=%d zero=%d", x->dp, x->zero);
    assert_ok(weft_strategy_parse(words, &y));
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_plan(&t, &y, 0, &p));
    p->strategy.bucket_bytes = x->bucket_bytes;
    assert_ok(weft_compile_program(&t, p, 0, &made));
    *out = (counted){0};
    for (int a = 0; a < made.program->n_actor; a++)
        count_actor(made.program, &made.program->actor[a], out);
    weft_compiled_fini(&made);
    weft_plan_destroy(p);
    weft_training_fini(&t);
}

/* Bytes are the same, but that whole sums count with what aligns them.  Calls are, too, but for
 * buckets that end incomplete, of which rows count a part: three at most.  Small gradients in the
 * backward pass may be fewer buckets than parts. */
static void compare(const setting *x)
{
    static const char *const name[] = {"all-reduces", "reduce-scatters", "all-gathers",
                                       "gathers of parameters"};
    counted                  rows, made;
    count_rows(x, &rows);
    count_program(x, &made);
    for (int k = 0; k < N_KIND; k++) {
        bool few = k == SCATTERS && made.n[k] >= 1 &&
                   made.n[k] <= WEFT_COALESCE_BACKWARD_PARTS &&
                   rows.n[k] == WEFT_COALESCE_BACKWARD_PARTS;
        bool   same  = fabs(rows.n[k] - made.n[k]) <= 3;
        double align = x->zero ? 0 : 64 * 16;
        if (fabs(rows.bytes[k] - made.bytes[k]) > 1e-9 * made.bytes[k] + align ||
            (!few && !same))
            fail_msg("%s dp=%d zero=%d, %d micro-batches, bucket_bytes=%lld: %.2f %s of "
                     "%.10g bytes, the program has %g of %.10g",
                     x->model, x->dp, x->zero, x->n_micro, (long long)x->bucket_bytes,
                     rows.n[k], name[k], rows.bytes[k], made.n[k], made.bytes[k]);
    }
}

static void calls_are_the_programs(void **state)
{
    (void)state;
    static const char *const model[] = {
        "tests/fixtures/narrow", "tests/fixtures/families/llama",
        "tests/fixtures/planner/gpt2", "tests/fixtures/planner/llama"};
    static const int64_t bucket[] = {0, 2000, 20000, 1 << 20, 25 << 20};
    for (int i = 0; i < 4 * 4 * 2 * 2 * 5; i += TEST_FEW(3)) {
        setting x = {.model        = model[i % 4],
                     .zero         = i / 4 % 4,
                     .dp           = i / 16 % 2 ? 4 : 2,
                     .n_micro      = i / 32 % 2 ? 4 : 1,
                     .bucket_bytes = bucket[i / 64]};
        compare(&x);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(calls_are_the_programs),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
