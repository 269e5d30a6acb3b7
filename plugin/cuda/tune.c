/* WEFT_CUDA_TUNE=FILE: each matmul that is prepared and not pinned is measured with the algorithms
 * that cublasLt offers and with variants of the fastest ones; the line of the best goes to FILE and
 * is used from then on.  For making tables, never for jobs: what is chosen depends on timing.
 *
 * What is multiplied is overwritten with noise first: with zeros a GPU takes little power and runs
 * at clocks that it does not have in a step (H200: 860 TFLOP/s instead of 700), and which algorithm
 * is fastest depends on it.  In a long step a GPU is at its power limit (H200: 690 W at 1,400 to
 * 1,700 of 1,980 MHz), so that time is energy, which a burst of some milliseconds does not show:
 * those near the best burst are held, one after another without a pause, and the fastest of these
 * counts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "pinned.h"

enum {
    MOST_RUNS      = 32,
    ROUNDS         = 2,
    ROUND_MS       = 4, /* a round of a matmul that takes long has fewer runs */
    NOISE_BYTES    = 8 << 20,
    MOST_CANDIDATE = 256,
    N_BASE         = 2, /* of which there are variants */
    /* held: rounds in which each finalist runs SETTLE_MS, then HOLD_MS that count */
    MOST_FINALIST = 5,
    HELD_ROUNDS   = 3,
    WARM_UP_MS    = 100,
    SETTLE_MS     = 15,
    HOLD_MS       = 45,
    /* where results of two algorithms are compared */
    N_SAMPLE     = 64,
    SAMPLE_BYTES = 4096
};

#define NEAR_BEST   1.08f /* finalists, by bursts */
#define LEAST_HELD  0.1f  /* ms: shorter ones do not come to the limit */
#define WORTH_IT    0.99f /* of the first offer's time: less, and that one stays */
#define LOOKED_INTO 1.12f /* of the best so far: more, and one run was enough */
#define RECORD_MS   0.01f /* what records add to one run, at most */

typedef struct candidate {
    weft_cuda_blas_algo algo;
    size_t              workspace_bytes;
    int   offer;             /* its number, or that of the one that it is a variant of */
    bool  varied;            /* not the library's own offer */
    float burst_ms, held_ms; /* 0: not measured */
} candidate;

typedef struct contest {
    const weft_cuda_trial *t;
    int                    n, n_finalist;
    float                  best_ms; /* of all bursts; 0: none */
    candidate              all[MOST_CANDIDATE];
    /* numbers; the first offer, where it runs, is [0] */
    int   finalist[MOST_FINALIST];
    char *sample[2]; /* of the first offer's result, of another one's */
} contest;

static weft_cuda_handle mark[2 * MOST_FINALIST * HELD_ROUNDS];

/* ---- noise ---- */

enum {
    N_NOISE = 3
};

static void *noise[N_NOISE]; /* bf16, f32, fp8 */

/* About normal, mean 0, deviation 1. */
static float draw_number(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state       = x;
    uint64_t sum = (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48);
    return ((float)sum / 65536.0f - 2.0f) * 1.73f;
}

static const void *find_noise(int type)
{
    bool     codes = type == WEFT_BLAS_F8_E4M3 || type == WEFT_BLAS_F8_E5M2;
    void   **p     = &noise[codes ? 2 : type != WEFT_BLAS_BF16];
    uint64_t state = 88172645463325252u;
    if (*p || !(*p = malloc(NOISE_BYTES))) return *p;
    for (size_t i = 0; i < NOISE_BYTES / sizeof(float); i++) {
        float    x[2] = {draw_number(&state), draw_number(&state)};
        uint32_t u[2];
        memcpy(u, x, sizeof u);
        if (codes) u[0] = (u[0] & 0x8f8f8f8fu) | 0x30303030u; /* of a few sizes */
        if (type == WEFT_BLAS_BF16) u[0] = u[0] >> 16 | (u[1] & 0xffff0000u);
        memcpy((char *)*p + i * sizeof(float), u, sizeof(float));
    }
    return *p;
}

static bool fill_noise(const weft_cuda_factor *f, void *stream)
{
    const void *bytes = find_noise(f->type);
    for (int64_t at = 0, n; bytes && at < f->bytes; at += n) {
        n = f->bytes - at < NOISE_BYTES ? f->bytes - at : NOISE_BYTES;
        if (weft_cuda_cu.MemcpyAsync((weft_cuda_ptr)(uintptr_t)f->p + (uint64_t)at,
                                     (weft_cuda_ptr)(uintptr_t)bytes, (size_t)n, stream))
            return false;
    }
    return bytes;
}

/* ---- bursts ---- */

static bool issue_runs(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo, int n)
{
    for (int i = 0; i < n; i++)
        if (t->issue(t->arg, algo)) return false;
    return true;
}

/* Milliseconds of one of n runs; negative: it cannot run. */
static float time_runs(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo, int n)
{
    float ms;
    if (weft_cuda_cu.EventRecord(mark[0], t->stream) || !issue_runs(t, algo, n) ||
        weft_cuda_cu.EventRecord(mark[1], t->stream) ||
        weft_cuda_cu.EventSynchronize(mark[1]) ||
        weft_cuda_cu.EventElapsedTime(&ms, mark[0], mark[1]))
        return -1;
    return ms / (float)n;
}

/* Runs that take about ms. */
static int count_runs(float ms, float one_ms)
{
    float n = ms / one_ms;
    return n < 1 ? 1 : n > 1e6f ? 1000000 : (int)n;
}

/* The best of some rounds; a negative time: it cannot run. */
static float time_burst(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo,
                        float best_ms)
{
    if (time_runs(t, algo, 1) < 0) return -1;
    float best = time_runs(t, algo, 1);
    if (best <= 0 || (best_ms > 0 && best > LOOKED_INTO * best_ms + RECORD_MS))
        return best;
    int n = count_runs(ROUND_MS, best);
    for (int r = 0; r < ROUNDS; r++) {
        float ms = time_runs(t, algo, n > MOST_RUNS ? MOST_RUNS : n);
        if (ms < 0) return -1;
        if (r == 0 || ms < best) best = ms;
    }
    return best;
}

/* One that is there already or cannot run is left out. */
static void add_candidate(contest *c, const candidate *x)
{
    for (int i = 0; i < c->n; i++)
        if (!memcmp(&c->all[i].algo, &x->algo, sizeof x->algo)) return;
    if (c->n == MOST_CANDIDATE) return;
    float ms = time_burst(c->t, &x->algo, c->best_ms);
    if (ms <= 0) return;
    c->all[c->n]          = *x;
    c->all[c->n].burst_ms = ms;
    c->n++;
    if (c->best_ms == 0 || ms < c->best_ms) c->best_ms = ms;
}

/* -1: all are taken */
static int find_fastest(const contest *c, const bool *taken)
{
    int best = -1;
    for (int i = 0; i < c->n; i++)
        if (!taken[i] && (best < 0 || c->all[i].burst_ms < c->all[best].burst_ms))
            best = i;
    return best;
}

/* ---- variants ---- */

/* Other clusters of blocks, orders of tiles and inner variants of a kernel.  Tiles, stages and how
 * sums are split stay; one that wants a workspace where its base wants none is left out, since it
 * may split sums by itself. */
static void add_variants(contest *c, candidate base)
{
    static const uint16_t cluster[] = {WEFT_BLAS_CLUSTER_1x1, WEFT_BLAS_CLUSTER_2x1,
                                       WEFT_BLAS_CLUSTER_1x2, WEFT_BLAS_CLUSTER_2x2,
                                       WEFT_BLAS_CLUSTER_4x1, WEFT_BLAS_CLUSTER_1x4};
    enum {
        N_OPTION  = 8,
        N_SWIZZLE = 2,
        N_VARIANT = (int)WEFT_COUNT(cluster) * N_OPTION * N_SWIZZLE
    };
    int (*set)(weft_cuda_blas_algo *, int, const void *, size_t) = c->t->blas->config_set;
    for (int i = 0; i < N_VARIANT; i++) {
        candidate            x       = base;
        uint32_t             swizzle = (uint32_t)(i % N_SWIZZLE);
        uint32_t             option  = (uint32_t)(i / N_SWIZZLE % N_OPTION);
        const uint16_t      *blocks  = &cluster[i / N_SWIZZLE / N_OPTION];
        weft_cuda_blas_offer made    = {.status = 0};
        x.varied                     = true;
        if (set(&x.algo, WEFT_BLAS_CONFIG_SWIZZLE, &swizzle, sizeof swizzle) ||
            set(&x.algo, WEFT_BLAS_CONFIG_OPTION, &option, sizeof option) ||
            set(&x.algo, WEFT_BLAS_CONFIG_CLUSTER, blocks, sizeof *blocks) ||
            c->t->check(c->t->arg, &x.algo, &made) || made.status ||
            made.workspace_bytes > base.workspace_bytes)
            continue;
        add_candidate(c, &x);
    }
}

/* Of the fastest offers. */
static void vary_fastest(contest *c)
{
    bool taken[MOST_CANDIDATE] = {false};
    int  base[N_BASE], n_base = 0;
    for (int i; n_base < N_BASE && (i = find_fastest(c, taken)) >= 0;)
        taken[base[n_base++] = i] = true;
    for (int b = 0; b < n_base; b++) add_variants(c, c->all[base[b]]);
}

/* ---- results ---- */

/* Parts of the result of one run, all zeros before it. */
static bool read_sample(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo,
                        char *sample)
{
    const weft_cuda_factor *d  = &t->result;
    weft_cuda_ptr           at = (weft_cuda_ptr)(uintptr_t)d->p;
    memset(sample, 0, (size_t)N_SAMPLE * SAMPLE_BYTES);
    if (weft_cuda_cu.MemsetAsync(at, 0, (size_t)d->bytes, t->stream) ||
        !issue_runs(t, algo, 1))
        return false;
    int64_t bytes = d->bytes < SAMPLE_BYTES ? d->bytes : SAMPLE_BYTES;
    for (int i = 0; i < N_SAMPLE; i++) {
        int64_t first = (d->bytes - bytes) / (N_SAMPLE - 1) * i / 16 * 16;
        if (i == N_SAMPLE - 1) first = d->bytes - bytes;
        if (weft_cuda_cu.MemcpyAsync(
                (weft_cuda_ptr)(uintptr_t)(sample + (size_t)i * SAMPLE_BYTES),
                at + (uint64_t)first, (size_t)bytes, t->stream))
            return false;
    }
    return !weft_cuda_cu.StreamSynchronize(t->stream);
}

static float read_number(const char *p, int type, size_t i)
{
    uint16_t half;
    uint32_t u;
    float    x;
    if (type == WEFT_BLAS_BF16) {
        memcpy(&half, p + 2 * i, sizeof half);
        u = (uint32_t)half << 16;
    } else {
        memcpy(&u, p + 4 * i, sizeof u);
    }
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Sums in another order differ by little of what is usual in the result. */
static bool equal_samples(const contest *c)
{
    int    type = c->t->result.type;
    size_t n    = (size_t)N_SAMPLE * SAMPLE_BYTES / (type == WEFT_BLAS_BF16 ? 2 : 4);
    double sum = 0, count = 1;
    for (size_t i = 0; i < n; i++) {
        float x = read_number(c->sample[0], type, i);
        if (isfinite(x)) sum += (double)x * x, count++;
    }
    float near = 0.02f * (float)sqrt(sum / count);
    for (size_t i = 0; i < n; i++) {
        float x = read_number(c->sample[0], type, i);
        float y = read_number(c->sample[1], type, i);
        if (isfinite(x) != isfinite(y)) return false;
        if (isfinite(x) && fabsf(x - y) > near + 0.02f * fabsf(x)) return false;
    }
    return true;
}

/* A variant was never promised by the library: it counts where it computes what an offer does. */
static bool is_right(contest *c, const candidate *x)
{
    if (!x->varied) return true;
    if (!c->sample[0]) {
        for (int i = 0; i < 2; i++)
            c->sample[i] = malloc((size_t)N_SAMPLE * SAMPLE_BYTES);
        if (!c->sample[0] || !c->sample[1] ||
            !read_sample(c->t, &c->all[0].algo, c->sample[0]))
            return false;
    }
    return c->sample[1] && read_sample(c->t, &x->algo, c->sample[1]) && equal_samples(c);
}

/* ---- held ---- */

static void pick_finalists(contest *c)
{
    bool taken[MOST_CANDIDATE]   = {true};
    c->finalist[c->n_finalist++] = 0;
    for (int i; c->n_finalist < MOST_FINALIST && (i = find_fastest(c, taken)) >= 0;) {
        taken[i] = true;
        if (c->all[i].burst_ms > NEAR_BEST * c->best_ms) return;
        if (is_right(c, &c->all[i])) c->finalist[c->n_finalist++] = i;
    }
}

static bool issue_held(const contest *c, int round, int k)
{
    const weft_cuda_trial *t = c->t;
    const candidate       *x = &c->all[c->finalist[k]];
    weft_cuda_handle      *m = &mark[2 * (round * MOST_FINALIST + k)];
    return issue_runs(t, &x->algo, count_runs(SETTLE_MS, x->burst_ms)) &&
           !weft_cuda_cu.EventRecord(m[0], t->stream) &&
           issue_runs(t, &x->algo, count_runs(HOLD_MS, x->burst_ms)) &&
           !weft_cuda_cu.EventRecord(m[1], t->stream);
}

/* The mean of the rounds of each finalist into held_ms; every other round backwards, as clocks
 * drift. */
static bool hold_finalists(contest *c)
{
    const weft_cuda_trial *t     = c->t;
    const candidate       *first = &c->all[0];
    if (!issue_runs(t, &first->algo, count_runs(WARM_UP_MS, first->burst_ms)))
        return false;
    for (int r = 0; r < HELD_ROUNDS; r++)
        for (int k = 0; k < c->n_finalist; k++)
            if (!issue_held(c, r, r % 2 ? c->n_finalist - 1 - k : k)) return false;
    if (weft_cuda_cu.StreamSynchronize(t->stream)) return false;
    for (int k = 0; k < c->n_finalist; k++) {
        candidate *x   = &c->all[c->finalist[k]];
        float      sum = 0, ms;
        for (int r = 0; r < HELD_ROUNDS; r++) {
            weft_cuda_handle *m = &mark[2 * (r * MOST_FINALIST + k)];
            if (weft_cuda_cu.EventElapsedTime(&ms, m[0], m[1])) return false;
            sum += ms;
        }
        x->held_ms = sum / (float)(HELD_ROUNDS * count_runs(HOLD_MS, x->burst_ms));
    }
    return true;
}

/* ---- choosing ---- */

static float time_of(const candidate *x, bool held)
{
    return held ? x->held_ms : x->burst_ms;
}

static int find_best(const contest *c, bool held)
{
    int best = 0;
    for (int k = 1; k < c->n_finalist; k++) {
        int i = c->finalist[k];
        if (time_of(&c->all[i], held) < time_of(&c->all[best], held)) best = i;
    }
    return time_of(&c->all[best], held) < WORTH_IT * time_of(&c->all[0], held) ? best : 0;
}

static void write_line(const contest *c, const candidate *best, int n_held)
{
    const weft_cuda_pinned_key *key   = c->t->key;
    const candidate            *first = &c->all[0];
    char                        line[512];
    bool                        held = n_held > 0;
    FILE                       *f    = fopen(getenv("WEFT_CUDA_TUNE"), "a");
    double                      ms   = (double)time_of(best, held);
    if (!f) return;
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) == 0)
        fprintf(
            f,
            "# measured on noise: bursts of up to %d ms; held: those within %.0f %% of "
            "the best burst, in turn and without a pause, %d times %d ms after %d ms\n",
            ROUND_MS, (double)(NEAR_BEST - 1) * 100, HELD_ROUNDS, HOLD_MS, SETTLE_MS);
    weft_cuda_pinned_print(key, &best->algo, line, sizeof line);
    fprintf(f, "# %.4f ms %s, the first offer %.4f, %.0f TFLOP/s", ms,
            held ? "held" : "in a burst", (double)time_of(first, held),
            2e-9 * (double)key->m * (double)key->n * (double)key->k * (double)key->batch /
                ms);
    if (held)
        fprintf(f, ", in a burst %.4f and %.4f", (double)best->burst_ms,
                (double)first->burst_ms);
    fprintf(f, "; %s %d, %d of %d held\n%s\n",
            best->varied ? "variant of offer" : "offer", best->offer, n_held, c->n, line);
    fclose(f);
}

/* The first offer stays where no other is clearly faster. */
static void choose_in(contest *c, const weft_cuda_blas_offer *offer, int n,
                      weft_cuda_blas_algo *out)
{
    for (int i = 0; i < n; i++) {
        if (!offer[i].status)
            add_candidate(c, &(candidate){.algo            = offer[i].algo,
                                          .workspace_bytes = offer[i].workspace_bytes,
                                          .offer           = i});
        if (c->n == 0) return; /* the first offer does not run: nothing to compare with */
    }
    vary_fastest(c);
    pick_finalists(c);
    int n_held = c->n_finalist > 1 && c->best_ms >= LEAST_HELD ? c->n_finalist : 0;
    if (n_held && !hold_finalists(c)) return;
    int best = find_best(c, n_held);
    /* the luckiest of several: once more beside the first offer */
    if (n_held > 2 && best) {
        c->n_finalist  = 2;
        c->finalist[1] = best;
        if (!hold_finalists(c)) return;
        best = find_best(c, n_held);
    }
    *out = c->all[best].algo;
    write_line(c, &c->all[best], n_held);
    (void)weft_cuda_pinned_add(c->t->key, out);
}

static void choose_algorithm(const weft_cuda_trial *t, const weft_cuda_blas_offer *offer,
                             int n, weft_cuda_blas_algo *out)
{
    contest *c = calloc(1, sizeof *c);
    *out       = offer[0].algo;
    if (!c) return;
    c->t = t;
    if (fill_noise(&t->factor[0], t->stream) && fill_noise(&t->factor[1], t->stream))
        choose_in(c, offer, n, out);
    for (int i = 0; i < 2; i++) free(c->sample[i]);
    free(c);
}

weft_status weft_cuda_open_tuner(void)
{
    const char *file = getenv("WEFT_CUDA_TUNE");
    if (!file || !*file || weft_cuda_tuner) return WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT(mark); i++)
        if (!mark[i]) CU_TRY(EventCreate, &mark[i], 0);
    weft_cuda_tuner = choose_algorithm;
    return WEFT_OK;
}

void weft_cuda_close_tuner(void)
{
    if (!weft_cuda_tuner) return;
    weft_cuda_tuner = NULL;
    for (int i = 0; i < N_NOISE; i++) free(noise[i]), noise[i] = NULL;
    for (size_t i = 0; i < WEFT_COUNT(mark); i++) {
        weft_cuda_cu.EventDestroy(mark[i]);
        mark[i] = NULL;
    }
}
