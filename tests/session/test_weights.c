/* Weights between files and memory: what goes in comes out, the hash is the one that is
 * documented. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "session/weights.h"
#include "support/files.h"

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

typedef struct held {
    weft_model  *m;
    weft_weights w;
} held;

/* A state with every parameter of a model, each whole. */
static weft_state *make_state(const weft_model *m)
{
    weft_state *s;
    int64_t     bytes = 0;
    for (int i = 0; i < m->n_param; i++)
        bytes += 4 * weft_shape_count(&m->graph->value[m->param[i].value].type.shape);
    OK(weft_state_create(NULL, bytes, &s));
    bytes = 0;
    for (int i = 0; i < m->n_param; i++) {
        weft_type     t = m->graph->value[m->param[i].value].type;
        weft_region   r = weft_region_whole(&t.shape);
        weft_interval run[WEFT_MAX_DIM];
        weft_part     p = weft_part_of_region(&r, run);
        OK(weft_state_add(s, &(weft_state_tensor){m->param[i].name, WEFT_DTYPE_F32,
                                                  t.shape, &p, bytes, false}));
        bytes += 4 * weft_shape_count(&t.shape);
    }
    return s;
}

static held hold(const char *dir)
{
    held               h = {0};
    weft_model_options o = {.batch = 1, .seq = 8, .with_loss = true};
    OK(weft_model_load(dir, &o, &h.m));
    h.w = (weft_weights){.model = h.m, .graph = h.m->graph, .state = make_state(h.m)};
    OK(weft_gather_open(h.w.state, NULL, NULL, 0, &h.w.gather));
    return h;
}

static void drop(held *h)
{
    weft_gather_close(h->w.gather);
    weft_state_destroy(h->w.state);
    weft_model_destroy(h->m);
}

/* In, out again: the same bytes of file, header included. */
static void round_trip(const char *dir)
{
    held             h = hold(dir);
    weft_store_dir  *d;
    weft_store_item *it;
    weft_arena      *a;
    int              n;
    char             from[512];
    const char      *to = test_files_path("copy");
    OK(weft_store_dir_open(dir, &d));
    OK(weft_weights_read_dir(&h.w, d));
    OK(weft_arena_create(&a));
    OK(weft_weights_items(&h.w, d, WEFT_DTYPE_F32, a, &it, &n));
    assert_true(n > 10);
    OK(weft_store_dir_rewrite(d, to, it, n));
    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    assert_true(test_files_same(from, test_files_path("copy/model.safetensors")));
    weft_store_dir_close(d);
    weft_arena_destroy(a);
    drop(&h);
}

static void test_round_trip(void **s)
{
    (void)s;
    static const char *const all[] = {"gpt2",    "llama", "qwen2",
                                      "mixtral", "bert",  "ernie"};
    test_files_begin();
    round_trip("tests/fixtures/gpt2/init");
    round_trip("tests/fixtures/llama/init");
    for (size_t i = 0; i < 6; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, "../shared/reference/%s/init", all[i]);
        if (weft_io_exists(dir))
            round_trip(dir);
        else
            print_message("skipped: %s is not there\n", dir);
    }
    test_files_end();
}

static int by_name(const void *a, const void *b)
{
    const weft_store_tensor *x = *(const weft_store_tensor *const *)a,
                            *y = *(const weft_store_tensor *const *)b;
    return strcmp(x->name, y->name);
}

/* The hash straight from the file. */
static void test_hash(void **s)
{
    (void)s;
    held                     h = hold("tests/fixtures/llama/init");
    weft_store_dir          *d;
    const weft_store_tensor *t[64];
    uint8_t                  list[8192];
    size_t                   n = 0;
    uint64_t                 got;
    OK(weft_store_dir_open("tests/fixtures/llama/init", &d));
    OK(weft_weights_read_dir(&h.w, d));
    OK(weft_weights_hash(&h.w, &got));
    int n_tensor = weft_store_dir_count(d);
    for (int i = 0; i < n_tensor; i++) t[i] = weft_store_dir_at(d, i);
    qsort(t, (size_t)n_tensor, sizeof t[0], by_name);
    for (int i = 0; i < n_tensor; i++) {
        uint64_t x = weft_hash_xxh64(t[i]->data, (size_t)t[i]->bytes, 0);
        memcpy(list + n, t[i]->name, strlen(t[i]->name) + 1);
        n += strlen(t[i]->name) + 1;
        memcpy(list + n, &x, 8);
        n += 8;
    }
    assert_true(got == weft_hash_xxh64(list, n, 0));
    float       x;
    uint64_t    other;
    weft_region first = weft_region_whole(&weft_state_at(h.w.state, 3)->shape);
    for (int k = 0; k < first.global.n; k++) first.extent[k] = 1;
    OK(weft_state_read(h.w.state, 3, &first, &x));
    x = nextafterf(x, 9);
    OK(weft_state_write(h.w.state, 3, &first, &x));
    OK(weft_weights_hash(&h.w, &other));
    assert_true(got != other);
    weft_store_dir_close(d);
    drop(&h);
}

/* New weights depend on the seed and on nothing else. */
static void test_init(void **s)
{
    (void)s;
    held     h = hold("tests/fixtures/gpt2/init"), k = hold("tests/fixtures/gpt2/init");
    uint64_t a, b, c;
    OK(weft_weights_init(&h.w, 1));
    OK(weft_weights_hash(&h.w, &a));
    OK(weft_weights_init(&k.w, 1));
    OK(weft_weights_hash(&k.w, &b));
    OK(weft_weights_init(&k.w, 2));
    OK(weft_weights_hash(&k.w, &c));
    assert_true(a == b);
    assert_true(a != c);
    drop(&h);
    drop(&k);
}

/* A model's weights in another model: one line that names the tensor. */
static void test_refused(void **s)
{
    (void)s;
    held            h = hold("tests/fixtures/gpt2/init");
    weft_store_dir *d;
    OK(weft_store_dir_open("tests/fixtures/llama/init", &d));
    assert_int_equal(weft_weights_read_dir(&h.w, d), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(),
                           "llama/init/model.safetensors: lm_head.weight has shape"));
    weft_store_dir_close(d);
    drop(&h);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
