/* The sweep of a GPU: instructions in their place, and what a step takes besides.
 *
 * Each model's steps are run twice: as jobs run them, for the time T of a step, and traced, for its
 * instructions' times.  Over all models
 *     T = pace * (sum of instructions) + nodes * gap + rest
 * is solved for the three: the clocks that a card holds without records in between, what lies
 * between two nodes of a graph, and what a step takes of the host.  A gap below 0 is what the
 * records themselves take, and comes off the instructions.  Reads are what a step takes for them:
 * samples are there already, read while the device worked on the step before.
 *
 * The clocks of a card at its power limit come and go by some percent.  So each model's
 * instructions are scaled so that with gaps and rest they make up its own step T, which was run for
 * longer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/bench.h"
#include "session/runner.h"
#include "session/sweep_priv.h"

/* Widths, tokens and lengths as jobs on GPUs have them; few layers, since layers are alike. Two
 * models of many layers tell what a launch takes from what each of its tensors takes, and nothing
 * else: traced, the GPU waits for the host between their small instructions. */
static const weft_sweep__model table[] = {
    {WEFT_SWEEP_GPT, 64, 32, 32, 1, WEFT_STRATEGY_KEEP, 1, 256, 0,
     0}, /* launches alone */
    {WEFT_SWEEP_GPT, 320, 64, 128, 1, WEFT_STRATEGY_KEEP, 24, 8192, 0, 0}, /* many */
    {WEFT_SWEEP_LLAMA, 384, 64, 256, 1, WEFT_STRATEGY_KEEP, 16, 8192, 0, 0},
    {WEFT_SWEEP_GPT, 256, 64, 128, 1, WEFT_STRATEGY_KEEP, 4, 8192, 0, 0},
    {WEFT_SWEEP_GPT, 512, 64, 128, 2, WEFT_STRATEGY_KEEP, 4, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 512, 64, 512, 8, WEFT_STRATEGY_KEEP, 2, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 512, 64, 1024, 32, WEFT_STRATEGY_SELECTIVE, 2, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 768, 64, 128, 1, WEFT_STRATEGY_FULL, 4, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 768, 64, 256, 4, WEFT_STRATEGY_KEEP, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 768, 64, 1024, 16, WEFT_STRATEGY_KEEP, 2, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 768, 64, 4096, 2, WEFT_STRATEGY_FULL, 2, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 1024, 64, 128, 2, WEFT_STRATEGY_KEEP, 3, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 1024, 64, 512, 4, WEFT_STRATEGY_SELECTIVE, 2, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 1024, 128, 2048, 4, WEFT_STRATEGY_KEEP, 2, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 1024, 64, 8192, 1, WEFT_STRATEGY_KEEP, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1536, 64, 512, 2, WEFT_STRATEGY_KEEP, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1536, 128, 1024, 16, WEFT_STRATEGY_FULL, 2, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 2048, 128, 128, 1, WEFT_STRATEGY_KEEP, 2, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 2048, 128, 1024, 4, WEFT_STRATEGY_SELECTIVE, 2, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 2048, 64, 2048, 8, WEFT_STRATEGY_KEEP, 2, 32768, 0, 0},
    {WEFT_SWEEP_GPT, 3072, 128, 512, 4, WEFT_STRATEGY_KEEP, 1, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 3072, 128, 1024, 8, WEFT_STRATEGY_FULL, 1, 32768, 0, 0},
    {WEFT_SWEEP_LLAMA, 512, 64, 256, 2, WEFT_STRATEGY_KEEP, 4, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 768, 64, 1024, 4, WEFT_STRATEGY_SELECTIVE, 2, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 1024, 128, 128, 1, WEFT_STRATEGY_KEEP, 3, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 1024, 64, 4096, 4, WEFT_STRATEGY_FULL, 2, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 2048, 64, 512, 2, WEFT_STRATEGY_KEEP, 2, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 2048, 128, 2048, 4, WEFT_STRATEGY_SELECTIVE, 2, 65536, 0, 0},
    {WEFT_SWEEP_GPT, 384, 64, 512, 16, WEFT_STRATEGY_SELECTIVE, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 640, 64, 1024, 8, WEFT_STRATEGY_FULL, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 896, 64, 2048, 2, WEFT_STRATEGY_SELECTIVE, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1280, 64, 256, 2, WEFT_STRATEGY_FULL, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1280, 80, 1024, 4, WEFT_STRATEGY_SELECTIVE, 2, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1024, 64, 1024, 16, WEFT_STRATEGY_KEEP, 1, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1536, 64, 1024, 4, WEFT_STRATEGY_SELECTIVE, 1, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 1792, 128, 1024, 8, WEFT_STRATEGY_KEEP, 1, 16384, 0, 0},
    {WEFT_SWEEP_GPT, 2560, 128, 1024, 2, WEFT_STRATEGY_FULL, 1, 16384, 0, 0},
    {WEFT_SWEEP_LLAMA, 768, 64, 512, 32, WEFT_STRATEGY_KEEP, 2, 16384, 0, 0},
    {WEFT_SWEEP_LLAMA, 1280, 64, 2048, 8, WEFT_STRATEGY_KEEP, 1, 16384, 0, 0},
    {WEFT_SWEEP_LLAMA, 2560, 128, 2048, 2, WEFT_STRATEGY_FULL, 1, 16384, 0, 0},
    {WEFT_SWEEP_LLAMA, 3072, 128, 4096, 1, WEFT_STRATEGY_SELECTIVE, 1, 32000, 0, 0},
    {WEFT_SWEEP_LLAMA, 1536, 128, 8192, 1, WEFT_STRATEGY_KEEP, 2, 32000, 0, 0},
    {WEFT_SWEEP_MOE, 512, 64, 512, 2, WEFT_STRATEGY_KEEP, 2, 32000, 0, 0},
    {WEFT_SWEEP_MOE, 1024, 64, 1024, 8, WEFT_STRATEGY_KEEP, 2, 32000, 0, 0},
};

const weft_sweep__model *weft_sweep__gpu_models(int *n)
{
    *n = (int)WEFT_COUNT(table);
    return table;
}

/* Whose matmuls are tuned besides: gpt2, a gpt of 1.3 B, a llama of 1.2 B weights. */
static const weft_sweep__model common[] = {
    {WEFT_SWEEP_GPT, 768, 64, 1024, 32, WEFT_STRATEGY_KEEP, 1, 50257, 0, 0},
    {WEFT_SWEEP_GPT, 2048, 64, 1024, 8, WEFT_STRATEGY_KEEP, 1, 50257, 0, 0},
    {WEFT_SWEEP_LLAMA, 2048, 64, 2048, 8, WEFT_STRATEGY_KEEP, 1, 128256, 8192, 8},
};

enum {
    WARM_UP     = 3, /* the first issues, the second captures */
    LEAST_STEPS = 5,
    LAST_STEPS  = 64, /* that count, at most */
    MOST_LAYERS = 8,  /* of a model whose instructions count */
    TRACED      = 2   /* steps that are kept */
};

#define FAR_OFF   0.1
#define LEAST_S   1e-9 /* below: rounding */
#define MOST_PACE 0.1  /* a model's scale is this near to 1 */

/* Steps without a pause before one counts: at its power limit a card comes down to clocks that it
 * can hold, some tenths of a second after the work began.  Short steps, of small operands, do not
 * come near that limit; traced ones follow the others at once, and are scaled to them. */
#define LONG_STEP_S 3e-3
static const struct {
    double plain_s, traced_s, again_s;
} settle[2] = {{0.15, 0.1, 0.05}, {0.4, 0.15, 0.1}}; /* short, long */

/* A model's step and its parts. */
typedef struct step_parts {
    const weft_sweep__model *model;
    double                   step_s, instr_s, read_s;
    int                      n_node;
    int64_t                  from, to;  /* its samples; none of a deep one */
    bool                     disturbed; /* the step is not what its parts say */
    double                   scale;     /* of its instructions, so that they are */
} step_parts;

enum {
    MOST_SHARED = 16,
    LINE_POINTS = 20
};

typedef struct gpu_sweep {
    const weft_sweep_gpu_options *o;
    weft_sweep__shared            shared[MOST_SHARED]; /* of the model that has most */
    int                           n_shared;
    weft_sweep__shared  all[MOST_SHARED * WEFT_COUNT(table)]; /* of every model */
    int                 n_all;
    weft_sweep__samples samples;
    step_parts          step[WEFT_COUNT(table)];
    int                 n_step;
    double              pace, gap_s, rest_s;
    double              end_s; /* when no model is begun any more */
    int                 n_left_out;
} gpu_sweep;

static const char *const family_name[] = {"gpt", "llama", "moe"};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_status run_step(weft_runner *r, int64_t i)
{
    weft_runner_put(r, "lr", 1e-5);
    weft_runner_put(r, "step", (double)(i + 1));
    weft_runner_put(r, "inv_n", 1e-4);
    return weft_runner_step(r, i);
}

/* The median of the later half, of the last ones where there are many. */
static weft_status time_steps(weft_runner *r, double settle_s, int64_t *step,
                              double *median)
{
    double s[LAST_STEPS], start = weft_clock_s();
    int    n = 0;
    for (int i = 0; n < LEAST_STEPS || weft_clock_s() - start < settle_s; i++) {
        double begin = weft_clock_s();
        WEFT_TRY(run_step(r, (*step)++));
        if (i >= WARM_UP) s[n++ % LAST_STEPS] = weft_clock_s() - begin;
    }
    int from = n < LAST_STEPS ? n / 2 : 0; /* else all are of the later part */
    n        = n < LAST_STEPS ? n : LAST_STEPS;
    qsort(s + from, (size_t)(n - from), sizeof *s, by_size);
    *median = s[from + (n - from) / 2];
    return WEFT_OK;
}

/* How long to go on before a step counts, after one that took step_s. */
static double find_settle(const gpu_sweep *s, double step_s, int trace)
{
    int k = step_s > LONG_STEP_S;
    if (s->o->settle_s > 0) return s->o->settle_s;
    return trace < 0 ? settle[k].plain_s : trace ? settle[k].again_s : settle[k].traced_s;
}

static void add_parts(const weft_timeline *t, step_parts *out)
{
    out->instr_s = out->read_s = 0;
    out->n_node                = 0;
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *x     = &t->slice[i];
        const weft_instr *instr = &t->program[0]->actor[x->actor].instr[x->instr];
        double            took  = x->end_s - x->start_s;
        if (instr->kind == WEFT_INSTR_READ) out->read_s += took;
        if (instr->kind == WEFT_INSTR_READ || instr->kind == WEFT_INSTR_COMMIT) continue;
        out->instr_s += took;
        out->n_node += weft_instr_launches(instr);
    }
}

static weft_sweep__shared *find_shared(weft_sweep__shared *all, int *n, const char *kind)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(all[i].kind, kind)) return &all[i];
    if (*n == MOST_SHARED) return &all[*n - 1];
    snprintf(all[*n].kind, sizeof all[*n].kind, "%s", kind);
    return &all[(*n)++];
}

/* Their instructions share a launch: the rate is that of all of them. */
static void keep_shared(gpu_sweep *s, const weft_timeline *t)
{
    weft_sweep__shared here[MOST_SHARED] = {{.n = 0}};
    int                n                 = 0;
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *x     = &t->slice[i];
        const weft_instr *instr = &t->program[0]->actor[x->actor].instr[x->instr];
        weft_workload     w;
        weft_instr_work(instr, &w);
        if (instr->kind != WEFT_INSTR_COMPUTE || weft_instr_launches(instr) || !w.n)
            continue;
        weft_sweep__shared *of = find_shared(here, &n, w.kind);
        of->n++;
        of->bytes += w.size[0];
        of->s += x->end_s - x->start_s;
    }
    for (int i = 0; i < n; i++) {
        weft_sweep__shared *best = find_shared(s->shared, &s->n_shared, here[i].kind);
        if (here[i].bytes >= best->bytes) *best = here[i];
        if (s->n_all < (int)WEFT_COUNT(s->all)) s->all[s->n_all++] = here[i];
    }
}

/* A model of launches with many tensors. */
static bool is_deep(const weft_sweep__model *m)
{
    return m->layers > MOST_LAYERS;
}

/* The last step of several without a pause, which a card would use for higher clocks. */
static weft_status trace_steps(gpu_sweep *s, weft_runner *r, int64_t *step,
                               step_parts *out)
{
    weft_timeline *t = NULL;
    double         ignored;
    out->from = s->samples.n;
    for (int i = 0; i < TRACED; i++) {
        WEFT_TRY(time_steps(r, find_settle(s, out->step_s, i), step, &ignored));
        WEFT_TRY(weft_runner_timeline(r, &t));
        add_parts(t, out);
        if (!i) keep_shared(s, t);
        weft_status st = is_deep(out->model) ? WEFT_OK : weft_sweep__keep(&s->samples, t);
        weft_timeline_destroy(t);
        WEFT_TRY(st);
    }
    out->to = s->samples.n;
    return WEFT_OK;
}

/* A step as jobs run it; the first few say how long it is. */
static weft_status time_plain(const gpu_sweep *s, weft_runner *r, int64_t *step,
                              double *step_s)
{
    WEFT_TRY(time_steps(r, 0, step, step_s));
    return time_steps(r, find_settle(s, *step_s, -1), step, step_s);
}

static weft_status run_compiled(gpu_sweep *s, const weft_compiled *c, step_parts *out)
{
    weft_runner        *plain = NULL, *traced = NULL;
    int64_t             step = 0;
    weft_status         st   = WEFT_OK;
    weft_runner_options o    = {
           .made = c, .pool = s->o->pool, .device = s->o->device, .seed = 1};
    WEFT_GO(weft_runner_create(&o, &plain));
    if (s->o->tunes) goto out;
    WEFT_GO(weft_bench_draw_weights(plain, c, s->o->pool));
    WEFT_GO(time_plain(s, plain, &step, &out->step_s));
    o.state = weft_runner_state(plain);
    o.trace = weft_runner_instructions(c->program);
    WEFT_GO(weft_runner_create(&o, &traced));
    WEFT_GO(trace_steps(s, traced, &step, out));
out:
    weft_runner_destroy(traced);
    weft_runner_destroy(plain);
    return st;
}

static weft_status run_model(gpu_sweep *s, const weft_sweep__model *m)
{
    char              text[640] = "";
    weft_training     training  = {0};
    weft_compiled     c         = {0};
    step_parts        parts     = {.model = m};
    weft_status       st;
    weft_compile_spec spec = weft_compile_spec_default(text, m->batch, m->seq);
    weft_sweep__describe(m, text, sizeof text);
    spec.micro_batch = m->batch;
    spec.recompute   = m->recompute;
    spec.dtype       = "bf16";
    weft_compile_for_cuda(&spec);
    WEFT_GO(weft_compile_training(&spec, &training));
    WEFT_GO(weft_compile_program(&training, NULL, 0, &c));
    WEFT_GO(run_compiled(s, &c, &parts));
    if (!s->o->tunes) s->step[s->n_step++] = parts;
out:
    weft_compiled_fini(&c);
    weft_training_fini(&training);
    return st;
}

/* ---- what a step takes besides its instructions ---- */

/* Least squares of relative errors, as normal equations; false: too few models. */
static bool solve_three(const gpu_sweep *s, double x[3])
{
    double a[3][4] = {{0}};
    if (s->n_step < 6) return false;
    for (int i = 0; i < s->n_step; i++) {
        const step_parts *p = &s->step[i];
        if (p->disturbed || is_deep(p->model)) continue;
        double row[] = {p->instr_s, p->n_node, 1, p->step_s - p->read_s};
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 4; k++)
                a[r][k] += row[r] * row[k] / (p->step_s * p->step_s);
    }
    for (int r = 0; r < 3; r++) /* positive definite: nothing to pivot for */
        for (int q = 0; q < 3; q++) {
            if (q == r || !(fabs(a[r][r]) > 0)) continue;
            double f = a[q][r] / a[r][r];
            for (int k = 0; k < 4; k++) a[q][k] -= f * a[r][k];
        }
    for (int r = 0; r < 3; r++) {
        if (!(fabs(a[r][r]) > 0)) return false;
        x[r] = a[r][3] / a[r][r];
    }
    return isfinite(x[0] + x[1] + x[2]);
}

static double compose_step(const step_parts *p, const double x[3])
{
    return x[0] * p->instr_s + p->read_s + x[1] * p->n_node + x[2];
}

/* Steps that are far off are left out, and the others solved again. */
static void fit_rest(gpu_sweep *s)
{
    double x[3] = {1, 0, 0};
    bool   ok   = solve_three(s, x);
    for (int i = 0; i < s->n_step && ok; i++) {
        step_parts *p = &s->step[i];
        p->disturbed  = fabs(compose_step(p, x) / p->step_s - 1) > FAR_OFF;
    }
    if (!ok || !solve_three(s, x)) x[0] = 1, x[1] = x[2] = 0;
    s->pace   = fmin(1.1, fmax(0.9, x[0]));
    s->gap_s  = x[1];
    s->rest_s = fmax(0, x[2]);
}

static bool is_shared(const gpu_sweep *s, const char *work)
{
    for (int i = 0; i < s->n_shared; i++)
        if (!strcmp(s->shared[i].kind, work)) return true;
    return false;
}

/* Of one instruction, as it takes part in a step, by its model's clocks at the time. */
static double take_off_gap(const gpu_sweep *s, double x)
{
    return s->gap_s < 0 ? fmax(x / 2, x + s->gap_s) : x;
}

static bool is_scaled(const gpu_sweep *s, const weft_sweep__sample *x)
{
    return strcmp(x->w.kind, "read") != 0 && !is_shared(s, x->w.kind);
}

/* The scale with which a model's instructions make up its step. */
static double find_scale(const gpu_sweep *s, const step_parts *p)
{
    double own = 0, shared = 0, least = 1 - MOST_PACE, most = 1 + MOST_PACE;
    for (int64_t i = p->from; i < p->to; i++) {
        const weft_sweep__sample *x = &s->samples.sample[i];
        if (is_scaled(s, x))
            own += take_off_gap(s, x->s) / TRACED;
        else if (is_shared(s, x->w.kind))
            shared += s->pace * x->s / TRACED;
    }
    double rest = p->read_s + s->rest_s + shared + fmax(0, s->gap_s) * p->n_node;
    if (p->disturbed || !(own > 0)) return s->pace;
    return fmin(most, fmax(least, (p->step_s - rest) / own));
}

static void scale_samples(gpu_sweep *s)
{
    for (int k = 0; k < s->n_step; k++) {
        step_parts *p = &s->step[k];
        p->scale      = find_scale(s, p);
        for (int64_t i = p->from; i < p->to; i++) {
            weft_sweep__sample *x = &s->samples.sample[i];
            if (is_scaled(s, x)) x->s = p->scale * take_off_gap(s, x->s);
        }
    }
}

void weft_sweep__fit_launch(const weft_sweep__shared *all, int n, weft_sweep__shared *x)
{
    double rate = x->bytes / x->s, w = 0, wn = 0, wnn = 0, wy = 0, wny = 0;
    for (int i = 0; i < n; i++) {
        const weft_sweep__shared *m = &all[i];
        if (strcmp(m->kind, x->kind) || !(m->s > 0)) continue;
        double weight = 1 / (m->s * m->s), y = m->s - m->bytes / rate;
        w += weight;
        wn += weight * m->n;
        wnn += weight * m->n * m->n;
        wy += weight * y;
        wny += weight * m->n * y;
    }
    double det = w * wnn - wn * wn;
    x->each_s  = det > 1e-9 * w * wnn ? (w * wny - wn * wy) / det : 0;
    x->once_s  = w > 0 ? (wy - x->each_s * wn) / w : 0;
    if (x->once_s < 0) x->each_s = wnn > 0 ? wny / wnn : 0;
    if (x->each_s < 0) x->once_s = w > 0 ? wy / w : 0;
    x->once_s = fmax(0, x->once_s);
    x->each_s = fmax(0, x->each_s);
}

/* Points of a line: a tensor's share of the launch, and time in proportion to bytes. */
static void add_rate(const gpu_sweep *s, const weft_sweep__shared *x, weft_arena *a,
                     weft_timing *t, int *n)
{
    double rate = x->bytes / x->s;
    for (double bytes = 64; bytes < 1e12; bytes *= 4)
        t[(*n)++] = (weft_timing){.link   = -1,
                                  .work   = weft_arena_strdup(a, x->kind),
                                  .n_size = 1,
                                  .size   = {bytes},
                                  .s      = s->pace * (x->each_s + bytes / rate)};
}

static weft_status add_rest(gpu_sweep *s, weft_arena *a, weft_timing **t, int *n)
{
    weft_timing *all =
        WEFT_ARENA_ARRAY(a, weft_timing, *n + 2 + LINE_POINTS * s->n_shared);
    int most = *n;
    WEFT_TRY(weft_arena_status(a));
    *n = 0;
    for (int i = 0; i < most; i++) {
        if (is_shared(s, (*t)[i].work)) continue;
        all[(*n)++] = (*t)[i];
    }
    for (int i = 0; i < s->n_shared; i++) {
        weft_sweep__fit_launch(s->all, s->n_all, &s->shared[i]);
        add_rate(s, &s->shared[i], a, all, n);
        s->rest_s += s->pace * s->shared[i].once_s;
    }
    if (s->gap_s > 0)
        all[(*n)++] = (weft_timing){
            .link = -1, .work = WEFT_WORK_NODE, .n_size = 1, .size = {1}, .s = s->gap_s};
    if (s->rest_s > LEAST_S)
        all[(*n)++] = (weft_timing){
            .link = -1, .work = WEFT_WORK_STEP, .n_size = 1, .size = {1}, .s = s->rest_s};
    *t = all;
    return weft_arena_status(a);
}

static void print_steps(const gpu_sweep *s, weft_text *t)
{
    weft_text_add(t, "# a step is %.4f of its instructions, %.3g us a node, %.4g us\n",
                  s->pace, 1e6 * s->gap_s, 1e6 * s->rest_s);
    for (int i = 0; i < s->n_shared; i++)
        weft_text_add(
            t, "# %s, launched together: %.4g us, %.3g us a tensor, %.4g GB/s\n",
            s->shared[i].kind, 1e6 * s->shared[i].once_s, 1e6 * s->shared[i].each_s,
            1e-9 * s->shared[i].bytes / s->shared[i].s);
    weft_text_add(t, "family,width,head,seq,batch,recompute,layers,vocab,step_s,instr_s,"
                     "read_s,nodes,as_composed_s,scale\n");
    for (int i = 0; i < s->n_step; i++) {
        const step_parts        *p = &s->step[i];
        const weft_sweep__model *m = p->model;
        weft_text_add(t, "%s,%d,%d,%d,%d,%d,%d,%d,%.6g,%.6g,%.6g,%d,%.6g,%.4f\n",
                      family_name[m->family], m->width, m->head, m->seq, m->batch,
                      (int)m->recompute, m->layers, m->vocab, p->step_s, p->instr_s,
                      p->read_s, p->n_node,
                      s->pace * p->instr_s + p->read_s + s->gap_s * p->n_node + s->rest_s,
                      p->scale);
    }
}

/* One that does not fit this GPU is left out. */
static weft_status try_model(gpu_sweep *s, const weft_sweep__model *m)
{
    char   line[400];
    double start = weft_clock_s();
    s->n_left_out += start > s->end_s;
    if (start > s->end_s) return WEFT_OK;
    weft_status st = run_model(s, m);
    if (st == WEFT_OK && !s->o->tunes)
        snprintf(line, sizeof line,
                 "%s, width %d, %d x %d tokens: %.4g ms a step, %.1f s",
                 family_name[m->family], m->width, m->batch, m->seq,
                 1e3 * s->step[s->n_step - 1].step_s, weft_clock_s() - start);
    else if (st == WEFT_OK)
        snprintf(line, sizeof line, "%s, width %d, %d x %d tokens: tuned, %.1f s",
                 family_name[m->family], m->width, m->batch, m->seq,
                 weft_clock_s() - start);
    else if (st == WEFT_ERR_MEM || st == WEFT_ERR_NOFIT)
        snprintf(line, sizeof line, "%s, width %d, %d x %d tokens: left out: %.280s",
                 family_name[m->family], m->width, m->batch, m->seq, weft_error_text());
    else
        return st;
    if (s->o->log) s->o->log(line);
    return WEFT_OK;
}

static void say_left_out(const gpu_sweep *s)
{
    char line[160];
    if (!s->n_left_out || !s->o->log) return;
    snprintf(line, sizeof line,
             "%d models are left out after %g s: their matmuls have the first algorithm "
             "that is offered",
             s->n_left_out, s->o->tune_limit_s);
    s->o->log(line);
}

weft_status weft_sweep_gpu(const weft_sweep_gpu_options *o, weft_arena *a,
                           weft_timing **out, int *n)
{
    gpu_sweep  *s  = calloc(1, sizeof *s);
    weft_status st = WEFT_OK;
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a calibration");
    s->o    = o;
    int end = o->n_model > 0 && o->n_model < (int)WEFT_COUNT(table)
                  ? o->n_model
                  : (int)WEFT_COUNT(table);
    s->end_s =
        o->tunes && o->tune_limit_s > 0 ? weft_clock_s() + o->tune_limit_s : INFINITY;
    for (int i = 0; i < (int)WEFT_COUNT(common) && o->tunes && !o->n_model; i++)
        WEFT_GO(try_model(s, &common[i]));
    for (int i = 0; i < end; i++) WEFT_GO(try_model(s, &table[i]));
    say_left_out(s);
    fit_rest(s);
    scale_samples(s);
    WEFT_GO(weft_sweep__sum_up(&s->samples, a, out, n));
    WEFT_GO(add_rest(s, a, out, n));
    if (o->list) print_steps(s, o->list);
out:
    free(s->samples.sample);
    free(s);
    return st;
}
