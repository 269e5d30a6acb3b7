/* WEFT_CUDA_TUNE=FILE: each matmul that is prepared and not pinned is measured with every algorithm
 * that cublasLt offers; the fastest one's line goes to FILE and is used from then on.  For making
 * tables, never for jobs: what is chosen depends on timing.
 *
 * What is multiplied is overwritten with noise first: with zeros a GPU takes little power and runs
 * at clocks that it does not have in a step (H200: 860 TFLOP/s instead of 700), and which algorithm
 * is fastest depends on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "pinned.h"

enum {
    MOST_RUNS   = 32,
    ROUNDS      = 3,
    ROUND_MS    = 16, /* a round of a matmul that takes long has fewer runs */
    NOISE_BYTES = 8 << 20
};

static weft_cuda_handle from, until;

/* ---- noise ---- */

static void *noise[2]; /* bf16, f32 */

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
    void   **p     = &noise[type != WEFT_BLAS_BF16];
    uint64_t state = 88172645463325252u;
    if (*p || !(*p = malloc(NOISE_BYTES))) return *p;
    for (size_t i = 0; i < NOISE_BYTES / sizeof(float); i++) {
        float    x[2] = {draw_number(&state), draw_number(&state)};
        uint32_t u[2];
        memcpy(u, x, sizeof u);
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

/* ---- measuring ---- */

/* Milliseconds of one of n runs; negative: it cannot run. */
static float time_runs(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo, int n)
{
    float ms;
    if (weft_cuda_cu.EventRecord(from, t->stream)) return -1;
    for (int i = 0; i < n; i++)
        if (t->issue(t->arg, algo)) return -1;
    if (weft_cuda_cu.EventRecord(until, t->stream) ||
        weft_cuda_cu.EventSynchronize(until) ||
        weft_cuda_cu.EventElapsedTime(&ms, from, until))
        return -1;
    return ms / (float)n;
}

/* The best of some rounds; a negative time: it cannot run.  One that is far from the best so far
 * (negative: none yet) is left after a run. */
static float time_offer(const weft_cuda_trial *t, const weft_cuda_blas_algo *algo,
                        float so_far)
{
    if (time_runs(t, algo, 1) < 0) return -1;
    float best = time_runs(t, algo, 1);
    if (best < 0 || (so_far > 0 && best > 1.25f * so_far)) return best;
    int n = best > ROUND_MS ? 1 : (int)(ROUND_MS / best);
    for (int r = 0; r < ROUNDS; r++) {
        float ms = time_runs(t, algo, n > MOST_RUNS ? MOST_RUNS : n);
        if (ms < 0) return -1;
        if (r == 0 || ms < best) best = ms;
    }
    return best;
}

static void write_line(const weft_cuda_pinned_key *key, const weft_cuda_blas_algo *algo,
                       float first, float best, int which)
{
    char  line[512];
    FILE *f = fopen(getenv("WEFT_CUDA_TUNE"), "a");
    if (!f) return;
    weft_cuda_pinned_print(key, algo, line, sizeof line);
    fprintf(f, "# %.4f ms, the first offer %.4f, %.0f TFLOP/s, offer %d\n%s\n",
            (double)best, (double)first,
            2e-9 * (double)key->m * (double)key->n * (double)key->k * (double)key->batch /
                (double)best,
            which, line);
    fclose(f);
}

/* The first offer stays where no other is 2 % faster, and again when both are measured anew. */
static int choose_offer(const weft_cuda_trial *t, const weft_cuda_blas_offer *offer,
                        int n)
{
    if (!fill_noise(&t->factor[0], t->stream) || !fill_noise(&t->factor[1], t->stream))
        return 0;
    float first = time_offer(t, &offer[0].algo, -1), best = first;
    int   which = 0;
    for (int i = 1; i < n; i++) {
        if (offer[i].status) continue;
        float ms = time_offer(t, &offer[i].algo, best);
        if (ms > 0 && (best < 0 || ms < 0.98f * best)) best = ms, which = i;
    }
    if (which && first > 0) {
        first = time_offer(t, &offer[0].algo, -1);
        best  = time_offer(t, &offer[which].algo, -1);
        if (best > 0.98f * first) best = first, which = 0;
    }
    write_line(t->key, &offer[which].algo, first, best, which);
    (void)weft_cuda_pinned_add(t->key, &offer[which].algo);
    return which;
}

weft_status weft_cuda_open_tuner(void)
{
    const char *file = getenv("WEFT_CUDA_TUNE");
    if (!file || !*file || weft_cuda_tuner) return WEFT_OK;
    CU_TRY(EventCreate, &from, 0);
    CU_TRY(EventCreate, &until, 0);
    weft_cuda_tuner = choose_offer;
    return WEFT_OK;
}

void weft_cuda_close_tuner(void)
{
    if (!weft_cuda_tuner) return;
    weft_cuda_tuner = NULL;
    for (int i = 0; i < 2; i++) free(noise[i]), noise[i] = NULL;
    weft_cuda_cu.EventDestroy(from);
    weft_cuda_cu.EventDestroy(until);
}

/* ---- tables ---- */

/* "NVIDIA H200", {13, 1, 0}: "nvidia-h200-13.1.0" */
static void name_table(const char *device, const int version[3], char *out, size_t n)
{
    size_t i = 0;
    for (; *device && i + 1 < n; device++, i++) {
        char c = *device;
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        out[i] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
    }
    snprintf(out + i, n - i, "-%d.%d.%d", version[0], version[1], version[2]);
}

static weft_status read_file(const char *path)
{
    char  *text = NULL;
    size_t n = 0, cap = 0;
    FILE  *f = fopen(path, "r");
    if (!f) return WEFT_FAIL(WEFT_ERR_IO, "WEFT_CUDA_PINNED: %s cannot be read", path);
    do {
        cap += 1 << 16;
        char *more = realloc(text, cap + 1);
        if (!more) break;
        text = more;
        n += fread(text + n, 1, cap - n, f);
    } while (n == cap);
    fclose(f);
    if (!text) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %s", path);
    text[n]        = 0;
    weft_status st = weft_cuda_pinned_read(text, path);
    free(text);
    return st;
}

weft_status weft_cuda_read_pinned(const char *device)
{
    const char *file = getenv("WEFT_CUDA_PINNED");
    char        name[160];
    if (file && *file) return read_file(file);
    name_table(device, weft_cuda_library_get(WEFT_CUDA_BLAS)->version, name, sizeof name);
    for (int i = 0; i < weft_cuda_n_pinned; i++)
        if (!strcmp(weft_cuda_pinned_name[i], name))
            return weft_cuda_pinned_read(weft_cuda_pinned_text[i], name);
    return WEFT_OK;
}
