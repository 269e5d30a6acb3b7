#include "session/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/bench.h"
#include "session/runner.h"
#include "session/sweep_priv.h"

typedef weft_sweep__model  model;
typedef weft_sweep__sample sample;

/* Widths double, tokens of a micro-batch go from 64 to 1024. */
static const model table[] = {
    {WEFT_SWEEP_GPT, 64, 32, 64, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 64, 32, 128, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 128, 32, 64, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 128, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 128, 32, 128, 4, WEFT_STRATEGY_SELECTIVE, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 128, 64, 256, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 256, 32, 64, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 256, 32, 128, 1, WEFT_STRATEGY_FULL, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 256, 32, 128, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 256, 64, 256, 2, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 512, 64, 64, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 512, 32, 128, 2, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_GPT, 512, 32, 128, 8, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_MOE, 256, 32, 128, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 64, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 64, 32, 256, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 128, 32, 64, 1, WEFT_STRATEGY_SELECTIVE, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 128, 32, 256, 2, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 256, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 256, 64, 256, 2, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 512, 64, 64, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_LLAMA, 512, 32, 256, 2, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_MOE, 64, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_MOE, 128, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_MOE, 128, 32, 128, 4, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
    {WEFT_SWEEP_MOE, 256, 32, 128, 1, WEFT_STRATEGY_KEEP, 0, 0, 0, 0},
};

enum {
    MOST_STEPS = 4,
    N_PASS     = 2 /* a machine may change its pace meanwhile */
};

#define ENOUGH_S 0.05 /* of timed steps; one of them at least */

typedef struct sweep {
    weft_pool              *pool;
    const weft_sweep_peers *peers;
    weft_sweep__samples     samples;
} sweep;

/* Two; six where few tokens go through weights that would stay in a cache, as those of whole
 * models do not. */
static int layers_of(const model *m)
{
    if (m->layers) return m->layers;
    return m->width == 256 && m->seq * m->batch <= 128 ? 6 : 2;
}

void weft_sweep__describe(const weft_sweep__model *m, char *text, size_t n)
{
    int heads  = m->width / m->head;
    int groups = m->groups ? m->groups : heads > 1 ? heads / 2 : 1;
    int ffn    = m->ffn ? m->ffn : (m->family == WEFT_SWEEP_MOE ? 2 : 3) * m->width;
    int vocab  = m->vocab ? m->vocab : (m->family == WEFT_SWEEP_GPT ? 8 : 4) * m->width;
    if (m->family == WEFT_SWEEP_GPT)
        snprintf(
            text, n,
            "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_embd\": %d, \"n_head\": "
            "%d, \"vocab_size\": %d, \"n_positions\": %d}",
            layers_of(m), m->width, heads, vocab, m->seq);
    else
        snprintf(
            text, n,
            "{\"model_type\": \"%s\", \"num_hidden_layers\": %d, \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"num_local_experts\": 4, "
            "\"num_experts_per_tok\": 2, \"vocab_size\": %d, \"rms_norm_eps\": "
            "1e-05, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
            "\"max_position_embeddings\": %d}",
            m->family == WEFT_SWEEP_MOE ? "mixtral" : "llama", layers_of(m), m->width,
            ffn, heads, groups, vocab, m->seq);
}

weft_status weft_sweep__keep(weft_sweep__samples *s, const weft_timeline *t)
{
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *x = &t->slice[i];
        weft_workload     w;
        weft_instr_work(&t->program[0]->actor[x->actor].instr[x->instr], &w);
        if (!w.n || !(x->end_s > x->start_s)) continue;
        if (s->n == s->cap) {
            s->cap     = s->cap ? 2 * s->cap : 4096;
            void *more = realloc(s->sample, sizeof *s->sample * (size_t)s->cap);
            if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for measured times");
            s->sample = more;
        }
        s->sample[s->n++] = (sample){w, x->end_s - x->start_s};
    }
    return WEFT_OK;
}

static weft_status run_steps(const sweep *s, weft_runner *r)
{
    double start = 0;
    for (int i = 0; i <= MOST_STEPS; i++) {
        if (i == 1) start = weft_clock_s();
        bool enough = i > 1 && weft_clock_s() - start > ENOUGH_S;
        if (s->peers) WEFT_TRY(s->peers->meet(s->peers->arg, &enough));
        if (enough) break;
        weft_runner_put(r, "lr", 1e-5);
        weft_runner_put(r, "step", (double)(i + 1));
        weft_runner_put(r, "inv_n", 1e-3);
        WEFT_TRY(weft_runner_step(r, i));
    }
    return weft_runner_settle(r);
}

static weft_status run_model(sweep *s, const model *m)
{
    char              text[640] = "";
    weft_training     training  = {0};
    weft_compiled     c         = {0};
    weft_runner      *r         = NULL;
    weft_timeline    *t         = NULL;
    weft_status       st;
    weft_compile_spec spec = weft_compile_spec_default(text, 2 * m->batch, m->seq);
    weft_sweep__describe(m, text, sizeof text);
    spec.micro_batch = m->batch;
    spec.lanes       = 2;
    spec.recompute   = m->recompute;
    WEFT_GO(weft_compile_training(&spec, &training));
    WEFT_GO(weft_compile_program(&training, NULL, 0, &c));
    weft_runner_options o = {.made  = &c,
                             .pool  = s->pool,
                             .seed  = 1,
                             .trace = weft_runner_instructions(c.program)};
    WEFT_GO(weft_runner_create(&o, &r));
    WEFT_GO(weft_bench_draw_weights(r, &c, s->pool));
    WEFT_GO(run_steps(s, r));
    WEFT_GO(weft_runner_timeline(r, &t));
    WEFT_GO(weft_sweep__keep(&s->samples, t));
out:
    weft_timeline_destroy(t);
    weft_runner_destroy(r);
    weft_compiled_fini(&c);
    weft_training_fini(&training);
    return st;
}

static int by_work(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int           c = strcmp(x->w.kind, y->w.kind);
    for (int i = 0; !c && i < x->w.n; i++)
        c = (x->w.size[i] > y->w.size[i]) - (x->w.size[i] < y->w.size[i]);
    return c;
}

static int by_all(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int           c = by_work(a, b);
    return c ? c : (x->s > y->s) - (x->s < y->s);
}

/* The median of each work and size. */
weft_status weft_sweep__sum_up(weft_sweep__samples *s, weft_arena *a, weft_timing **out,
                               int *n)
{
    qsort(s->sample, (size_t)s->n, sizeof *s->sample, by_all);
    *out = WEFT_ARENA_ARRAY(a, weft_timing, s->n + 1);
    *n   = 0;
    WEFT_TRY(weft_arena_status(a));
    for (int64_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && !by_work(&s->sample[i], &s->sample[end]);) end++;
        const weft_workload *w   = &s->sample[i].w;
        int64_t              mid = i + (end - i) / 2, low = mid - !((end - i) % 2);
        weft_timing         *t = &(*out)[(*n)++];
        *t                     = (weft_timing){.link   = -1,
                                               .work   = weft_arena_strdup(a, w->kind),
                                               .n_size = w->n,
                                               .s      = (s->sample[low].s + s->sample[mid].s) / 2};
        memcpy(t->size, w->size, sizeof w->size);
    }
    return weft_arena_status(a);
}

weft_status weft_sweep_run(weft_pool *pool, const weft_sweep_peers *peers, weft_arena *a,
                           weft_timing **out, int *n)
{
    sweep       s  = {.pool = pool, .peers = peers};
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < N_PASS * WEFT_COUNT(table); i++)
        WEFT_GO(run_model(&s, &table[i % WEFT_COUNT(table)]));
    WEFT_GO(weft_sweep__sum_up(&s.samples, a, out, n));
out:
    free(s.samples.sample);
    return st;
}
