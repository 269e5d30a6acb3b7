/* plugin/cuda/tune.c on a clock of our own: which of a matmul's algorithms is chosen.  A run takes
 * longer when the device has worked for a while without a pause, as at a power limit. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "pinned.h"

enum {
    N_RESULT = 65536 /* f32 */
};

/* An algorithm: word[0] its number, word[1] cluster, word[2] option, word[3] swizzle. */
typedef struct kernel {
    uint64_t number, cluster, option;
    float    burst_ms, held_ms;
    float    makes; /* what it writes */
    size_t   workspace_bytes;
    bool     varied; /* runs with a config that the library did not offer */
} kernel;

static const kernel *table;
static int           n_table;
static double        now_ms, busy_ms;
static float         result[N_RESULT];
static char          factor[2][64];

#define LIMIT_MS 30 /* from when on runs are held */

/* ---- a device ---- */

static int create_event(weft_cuda_handle *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof(double));
    return !*e;
}

static int destroy_event(weft_cuda_handle e)
{
    free(e);
    return 0;
}

static int record_event(weft_cuda_handle e, weft_cuda_handle stream)
{
    (void)stream;
    *(double *)e = now_ms;
    return 0;
}

static int wait_for(weft_cuda_handle h)
{
    (void)h;
    busy_ms = 0;
    return 0;
}

static int elapsed_time(float *ms, weft_cuda_handle a, weft_cuda_handle b)
{
    *ms = (float)(*(double *)b - *(double *)a);
    return 0;
}

static int copy_memory(weft_cuda_ptr to, weft_cuda_ptr from, size_t n, weft_cuda_handle s)
{
    (void)s;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
    return 0;
}

static int set_memory(weft_cuda_ptr p, unsigned char x, size_t n, weft_cuda_handle s)
{
    (void)s;
    memset((void *)(uintptr_t)p, x, n);
    return 0;
}

weft_cuda_driver weft_cuda_cu = {.EventCreate       = create_event,
                                 .EventDestroy      = destroy_event,
                                 .EventRecord       = record_event,
                                 .EventSynchronize  = wait_for,
                                 .StreamSynchronize = wait_for,
                                 .EventElapsedTime  = elapsed_time,
                                 .MemcpyAsync       = copy_memory,
                                 .MemsetAsync       = set_memory};

weft_status weft_cuda_check(int code, const char *call)
{
    (void)call;
    return code ? WEFT_ERR_IO : WEFT_OK;
}

/* ---- a library ---- */

static int config_set(weft_cuda_blas_algo *a, int what, const void *p, size_t n)
{
    uint32_t x = 0;
    memcpy(&x, p, n);
    a->word[what == WEFT_BLAS_CONFIG_CLUSTER  ? 1
            : what == WEFT_BLAS_CONFIG_OPTION ? 2
                                              : 3] = x;
    return 0;
}

static const kernel *find_kernel(const weft_cuda_blas_algo *a)
{
    for (int i = 0; i < n_table; i++)
        if (table[i].number == a->word[0] && table[i].cluster == a->word[1] &&
            table[i].option == a->word[2] && !a->word[3])
            return &table[i];
    return NULL;
}

static int issue_run(void *arg, const weft_cuda_blas_algo *algo)
{
    const kernel *k = find_kernel(algo);
    (void)arg;
    if (!k) return 15;
    double ms = (double)(busy_ms < LIMIT_MS ? k->burst_ms : k->held_ms);
    now_ms += ms;
    busy_ms += ms;
    if (result[0] != k->makes)
        for (int i = 0; i < N_RESULT; i++) result[i] = k->makes;
    return 0;
}

static int check_run(void *arg, const weft_cuda_blas_algo *algo,
                     weft_cuda_blas_offer *offer)
{
    const kernel *k = find_kernel(algo);
    (void)arg;
    if (!k) return 15;
    offer->workspace_bytes = k->workspace_bytes;
    return 0;
}

/* ---- choosing ---- */

static const weft_cuda_blas       blas = {.config_set = config_set};
static const weft_cuda_pinned_key key  = {
     .m = 64, .n = 1024, .k = 4096, .batch = 1, .epilogue = 1};

/* The chosen kernel's number in the table; text: what was written. */
static int choose(const kernel *k, int n, char *text, size_t bytes)
{
    char                 path[] = "/tmp/weft-test-XXXXXX";
    int                  fd = mkstemp(path), n_offer = 0;
    weft_cuda_blas_offer offer[16] = {{.status = 0}};
    weft_cuda_blas_algo  chosen, again;
    assert_true(fd >= 0);
    table   = k;
    n_table = n;
    busy_ms = 0;
    memset(result, 0, sizeof result);
    for (int i = 0; i < n; i++)
        if (!k[i].varied)
            offer[n_offer++] =
                (weft_cuda_blas_offer){.algo = {{k[i].number, k[i].cluster, k[i].option}},
                                       .workspace_bytes = k[i].workspace_bytes};
    setenv("WEFT_CUDA_TUNE", path, 1);
    assert_ok(weft_cuda_open_tuner());
    assert_ok(weft_cuda_pinned_read(NULL, ""));
    weft_cuda_tuner(&(weft_cuda_trial){.issue  = issue_run,
                                       .check  = check_run,
                                       .blas   = &blas,
                                       .key    = &key,
                                       .factor = {{factor[0], 64, WEFT_BLAS_F32},
                                                  {factor[1], 64, WEFT_BLAS_BF16}},
                                       .result = {result, sizeof result, WEFT_BLAS_F32}},
                    offer, n_offer, &chosen);
    assert_true(weft_cuda_pinned_find(&key, &again));
    assert_memory_equal(&again, &chosen, sizeof chosen);
    weft_cuda_close_tuner();
    unsetenv("WEFT_CUDA_TUNE");
    ssize_t got = read(fd, text, bytes - 1);
    assert_true(got > 0);
    text[got] = 0;
    close(fd);
    remove(path);
    return (int)(find_kernel(&chosen) - k);
}

/* What is fastest at the limit, not in a burst; one that is far off in a burst is not held. */
static void fastest_when_held(void **state)
{
    (void)state;
    char         text[2048];
    const kernel k[] = {{.number = 1, .burst_ms = 1.00f, .held_ms = 1.30f, .makes = 1},
                        {.number = 2, .burst_ms = 0.97f, .held_ms = 1.31f, .makes = 1},
                        {.number = 3, .burst_ms = 1.04f, .held_ms = 1.10f, .makes = 1},
                        {.number = 4, .burst_ms = 1.20f, .held_ms = 0.90f, .makes = 1}};
    assert_int_equal(choose(k, 4, text, sizeof text), 2);
    assert_non_null(strstr(text, "# measured on noise"));
    assert_non_null(strstr(text, "1.1000 ms held, the first offer 1.3000"));
    assert_non_null(strstr(text, "offer 2, 3 of 4 held"));
}

/* The first offer stays where another gains less than 1 %. */
static void first_offer_stays(void **state)
{
    (void)state;
    char         text[2048];
    const kernel k[] = {{.number = 1, .burst_ms = 1.00f, .held_ms = 1.30f, .makes = 1},
                        {.number = 2, .burst_ms = 0.95f, .held_ms = 1.29f, .makes = 1}};
    assert_int_equal(choose(k, 2, text, sizeof text), 0);
}

/* A variant that computes something else, or wants a workspace, is left out. */
static void variants_must_be_right(void **state)
{
    (void)state;
    enum {
        C = WEFT_BLAS_CLUSTER_2x1
    };
    char         text[2048];
    const kernel k[] = {
        {.number = 1, .burst_ms = 1.00f, .held_ms = 1.30f, .makes = 1},
        {1, C, 1, 0.95f, 1.00f, .makes = 1.5f, .varied = true},
        {1, C, 2, 0.95f, 1.05f, .makes = 1, .workspace_bytes = 64, .varied = true},
        {1, C, 3, 0.95f, 1.20f, .makes = 1.001f, .varied = true},
        {1, C, 4, 0.95f, 1.25f, .makes = 1, .varied = true}};
    assert_int_equal(choose(k, 5, text, sizeof text), 3);
    assert_non_null(strstr(text, "variant of offer 0, 3 of 4 held"));
}

/* A short one is not held: bursts decide. */
static void short_ones_by_bursts(void **state)
{
    (void)state;
    char         text[2048];
    const kernel k[] = {{.number = 1, .burst_ms = 0.020f, .held_ms = 0.02f, .makes = 1},
                        {.number = 2, .burst_ms = 0.019f, .held_ms = 0.03f, .makes = 1}};
    assert_int_equal(choose(k, 2, text, sizeof text), 1);
    assert_non_null(strstr(text, "in a burst"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fastest_when_held), cmocka_unit_test(first_offer_stays),
        cmocka_unit_test(variants_must_be_right), cmocka_unit_test(short_ones_by_bursts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
