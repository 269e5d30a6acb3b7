/* Layers of two cuts in the search: the answer equals brute force over every set of layers that
 * may stay whole, and what is searched by hand is never faster. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "planner/planner.h"
#include "planner/rows.h"
#include "support/files.h"
#include "support/rows.h"
#include "support/test.h"

typedef struct brute {
    const weft_search_problem *p;
    weft_cost_table            t;
    weft_cost_row              row[32];
    weft_cost_variant          v;
    int                        n_layer;
    double                     best_s, alike_s; /* of all; of layers cut alike */
    weft_cost_variant          best_v;
} brute;

static void on_point(brute *b, const weft_cost_point *p)
{
    weft_cost_score s;
    weft_cost_score_point(&b->t, p, &s);
    if (s.mem_bytes > s.mem_limit) return;
    if (s.step_s < b->best_s) b->best_v = b->v;
    b->best_s = fmin(b->best_s, s.step_s);
    if (!b->v.whole) b->alike_s = fmin(b->alike_s, s.step_s);
}

static void all_cuts(brute *b, weft_cost_point *p, uint16_t *cut, int s, int left)
{
    if (s == p->pp - 1) {
        cut[s] = (uint16_t)left;
        p->cut = cut;
        on_point(b, p);
        return;
    }
    for (int n = 1; n <= left - (p->pp - 1 - s); n++) {
        cut[s] = (uint16_t)n;
        all_cuts(b, p, cut, s + 1, left - n);
    }
}

static void on_variant(brute *b, int n_device)
{
    const weft_search_model   *m = &b->p->model;
    const weft_search_machine *k = &b->p->machines->kind[0];
    uint16_t                   cut[16];
    if (b->v.whole && b->v.micro_batch % b->v.tp) return;
    if (!m->allows(m->arg, &b->v, NULL, 0)) return;
    m->fill(m->arg, &b->t.engine, &b->v, &k->device, &k->fabric, b->row);
    for (int dp = 1; dp * b->v.tp <= n_device; dp++)
        for (int pp = 1; pp <= b->n_layer && pp * dp * b->v.tp <= n_device; pp++)
            for (int zero = 0; zero < (dp > 1 ? 4 : 1); zero++)
                for (int z = 0; z < (pp > 1 ? 2 : 1); z++) {
                    weft_cost_point p = {.dp      = dp,
                                         .pp      = pp,
                                         .chunks  = 1,
                                         .zero    = zero,
                                         .n_micro = b->p->batch / dp / b->v.micro_batch,
                                         .schedule =
                                             z ? WEFT_COST_ZERO_BUBBLE : WEFT_COST_1F1B};
                    if (b->p->batch % (dp * b->v.micro_batch)) continue;
                    all_cuts(b, &p, cut, 0, b->n_layer);
                }
}

static void by_force(brute *b, int n_device)
{
    const weft_search_model   *m = &b->p->model;
    const weft_search_machine *k = &b->p->machines->kind[0];
    b->t                         = m->shape;
    b->t.n_variant = b->t.n_device = 1;
    b->t.variant                   = &b->v;
    b->t.row                       = b->row;
    b->t.device                    = &k->device;
    b->t.fabric                    = &k->fabric;
    b->best_s = b->alike_s = INFINITY;
    assert_true(b->t.n_class <= 32);
    for (int i = 0; i < b->t.n_segment; i++) b->n_layer += b->t.segment[i].count;
    for (int tp = 1; tp <= n_device; tp++)
        for (int way = -1; way < (tp > 1 ? m->n_whole : 1); way++)
            for (int mb = 1; mb <= b->p->batch; mb++)
                for (int again = 0; again < 3; again++) {
                    if (b->p->batch % mb || (way < 0 && tp < 2)) continue;
                    b->v = (weft_cost_variant){.tp          = tp,
                                               .cp          = 1,
                                               .ep          = 1,
                                               .sp          = way < 0,
                                               .micro_batch = mb,
                                               .recompute   = (weft_cost_recompute)again,
                                               .whole       = way < 0 ? 0 : way};
                    on_variant(b, n_device);
                }
}

/* A small model with a vocabulary of its own size. */
static const char *write_model(const char *kind, int width, int vocab)
{
    static char path[512];
    char        text[1024];
    bool        llama = !strcmp(kind, "llama");
    int         n     = snprintf(
                    text, sizeof text,
        llama ? "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": "
                            "%d, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
                            "\"num_key_value_heads\": 4, \"vocab_size\": %d, "
                            "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, "
                            "\"tie_word_embeddings\": false}"
                          : "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_inner\": %d, "
                            "\"n_layer\": 4, \"n_head\": 4, \"vocab_size\": %d, \"n_positions\": "
                            "256, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}",
                    width, 4 * width, vocab);
    snprintf(path, sizeof path, "%s", test_files_path("%s-%d-%d", kind, width, vocab));
    assert_ok(weft_io_mkdirs(path));
    test_files_write(test_files_path("%s-%d-%d/config.json", kind, width, vocab), text,
                     (size_t)n);
    return path;
}

static void equals_brute_force(void **state)
{
    static const struct {
        const char *kind, *cluster;
        int         width, vocab, batch, n_device;
    } t[]   = {{"gpt2", "4 x v100-32g", 256, 120000, 4, 4},
               {"gpt2", "4 x v100-32g", 512, 2000, 8, 4},
               {"gpt2", "2 x (2 x v100-32g)", 256, 60000, 8, 4},
               {"gpt2", "4 x t4", 384, 30000, 4, 4},
               {"llama", "4 x a100-80g", 256, 120000, 8, 4},
               {"llama", "2 x (2 x t4)", 256, 30000, 4, 4},
               {"llama", "2 x v100-32g", 512, 250000, 2, 2}};
    int won = 0;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i += WEFT_TEST_SANITIZED ? 6 : TEST_FEW(2)) {
        weft_cluster        *c;
        weft_arena          *a;
        weft_search_machines hw;
        weft_search_result  *r;
        brute               *b = calloc(1, sizeof *b);
        weft_search_limits   l = weft_search_limits_of("weft");
        weft_search_problem  p = {.machines = &hw, .batch = t[i].batch, .n_best = 1};
        weft_compile_spec    s = weft_compile_spec_default(
               write_model(t[i].kind, t[i].width, t[i].vocab), 1, 128);
        assert_non_null(b);
        l.cp = l.ep = l.chunks = l.shares = false;
        s.micro_batch                     = 0;
        assert_ok(weft_arena_create(&a));
        assert_ok(weft_cluster_load(t[i].cluster, NULL, &c));
        assert_ok(weft_planner_machines(c, a, &hw));
        test_rows_open(&s, c, &l, a, &p.model);
        weft_search_open(&p.constraints);
        b->p = &p;
        by_force(b, t[i].n_device);
        assert_ok(weft_search_run(&p, &r));
        double    is       = r->choice[0].score.step_s;
        weft_text excluded = {0};
        weft_strategy_print(&r->choice[0].strategy, &excluded);
        print_message("%s %s, vocabulary %d: %.6f s (%s), cut alike %.6f s\n", t[i].kind,
                      t[i].cluster, t[i].vocab, is, excluded.s, b->alike_s);
        weft_text_fini(&excluded);
        if (fabs(is / b->best_s - 1) > 1e-9)
            fail_msg("by force %.9g s: tp=%d whole %d micro_batch=%d", b->best_s,
                     b->best_v.tp, b->best_v.whole, b->best_v.micro_batch);
        won += is < 0.99 * b->alike_s;
        weft_search_destroy(r);
        weft_planner_rows_fini(&p.model);
        weft_cluster_destroy(c);
        weft_arena_destroy(a);
        free(b);
    }
    assert_true(WEFT_TEST_SANITIZED || won >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
    };
    test_files_begin();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_files_end();
    return failed;
}
