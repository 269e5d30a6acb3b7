/* Tensors of a state from functions and files and into files: for any parts, regions and types. */
#include "state/cases.h"

#include "base/hash.h"
#include "state/convert.h"
#include "state/file.h"
#include "support/files.h"

static case_table table;
static int64_t    n_made; /* elements that a function was asked for */

/* Exact in bf16. */
static weft_status make_numbers(const void *arg, int64_t index, int64_t n, float *out)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) out[i] = (float)((index + i) % 251);
    n_made += n;
    return WEFT_OK;
}

static float number_at(const weft_state *s, int tensor, const int64_t *x)
{
    const weft_state_tensor *t = weft_state_at(s, tensor);
    weft_region              r = {.global = t->shape};
    char                     raw[8];
    float                    out;
    for (int d = 0; d < t->shape.n; d++) r.offset[d] = x[d], r.extent[d] = 1;
    assert_ok(weft_state_read(s, tensor, &r, raw));
    assert_ok(weft_convert_to_f32(t->dtype, raw, 1, &out));
    return out;
}

/* A parameter and its copy, held differently: each gets what it holds of a region, of another
 * region nothing; only what is held is made. */
static void fill_parts(unsigned *seed)
{
    weft_state       *s;
    weft_region       r  = weft_region_whole(&table.tensor[2].shape);
    weft_state_target to = {.n_tensor = 2, .tensor = {2, 3}};
    int64_t           x[WEFT_MAX_DIM], held = 0;
    assert_ok(case_state(&table, 0, false, &s));
    r.offset[0] = rand_r(seed) % (int)r.global.d[0];
    r.extent[0] -= r.offset[0];
    to.region = r;
    n_made    = 0;
    assert_ok(weft_state_fill(s, &to, make_numbers, NULL));
    for (int64_t i = 0; i < weft_shape_count(&r.global); i++) {
        case_position(&r.global, i, x);
        float want =
            x[0] < r.offset[0] ? 0 : (float)((i - r.offset[0] * r.global.d[1]) % 251);
        for (int k = 2; k < 4; k++) {
            if (!case_holds(&table.at[k][0], x)) continue;
            held += x[0] >= r.offset[0];
            if (number_at(s, k, x) != want) fail_msg("%s at %d", case_name[k], (int)i);
        }
    }
    assert_true(n_made <= held);
    weft_state_destroy(s);
}

static void what_is_held_is_made(void **state)
{
    unsigned seed = 81;
    (void)state;
    for (int round = 0; round < 300; round++) {
        case_random_table(&table, &seed, 1, round % 50 ? 12 : 250, 1);
        for (int k = 2; k < 4; k++)
            if (round % 3) case_any_part(&table.at[k][0], &table.tensor[k].shape, &seed);
        fill_parts(&seed);
    }
}

/* Whole tensors of all types to a file, and from it into parts. */
static void to_a_file_and_back(void **state)
{
    unsigned         seed = 91;
    weft_state      *from, *to;
    weft_gather     *g;
    weft_arena      *a;
    weft_store_item  item[CASE_TENSORS];
    weft_store_file *f;
    (void)state;
    test_files_begin();
    case_random_table(&table, &seed, 1, 300, 1);
    assert_ok(case_state(&table, 0, true, &from));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_gather_open(from, NULL, NULL, 0, &g));
    for (int k = 0; k < CASE_TENSORS; k++) {
        weft_region r = weft_region_whole(&table.tensor[k].shape);
        item[k]       = (weft_store_item){.name  = case_name[k],
                                          .dtype = table.tensor[k].dtype,
                                          .shape = table.tensor[k].shape};
        assert_ok(weft_gather_source(g, k, &r, item[k].dtype, a, &item[k].from));
    }
    assert_ok(weft_store_write(test_files_path("all.safetensors"),
                               &(weft_store_spec){.item = item, .n_item = CASE_TENSORS}));
    assert_ok(weft_store_open(test_files_path("all.safetensors"), &f));
    for (int round = 0; round < 100; round++) {
        for (int k = 0; k < CASE_TENSORS; k++)
            case_any_part(&table.at[k][0], &table.tensor[k].shape, &seed);
        assert_ok(case_state(&table, 0, false, &to));
        for (int k = 0; k < CASE_TENSORS; k++) {
            weft_state_target t = {weft_region_whole(&table.tensor[k].shape), 1, {k}};
            assert_ok(weft_state_load(to, &t, weft_store_find(f, case_name[k])));
        }
        assert_ok(case_check(&table, 0, to));
        weft_state_destroy(to);
    }
    weft_store_close(f);
    weft_gather_close(g);
    weft_arena_destroy(a);
    weft_state_destroy(from);
    test_files_end();
}

/* Bytes of a source in pieces that begin and end inside elements, in another type; the hash of a
 * region is that of its bytes. */
static void sources_in_any_pieces(void **state)
{
    unsigned          seed = 101;
    weft_state       *s;
    weft_gather      *g;
    weft_arena       *a;
    weft_store_source from;
    uint64_t          hash;
    (void)state;
    case_random_table(&table, &seed, 1, 200, 1);
    case_whole_part(&table.at[2][0], &table.tensor[2].shape);
    assert_ok(case_state(&table, 0, false, &s));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_gather_open(s, NULL, NULL, 0, &g));
    weft_state_target to = {weft_region_whole(&table.tensor[2].shape), 1, {2}};
    assert_ok(weft_state_fill(s, &to, make_numbers, NULL));
    int64_t   n    = weft_region_count(&to.region);
    float    *want = malloc((size_t)n * 4);
    uint16_t *half = malloc((size_t)n * 2);
    char     *got  = malloc((size_t)n * 2);
    assert_ok(make_numbers(NULL, 0, n, want));
    assert_ok(weft_convert_from_f32(WEFT_DTYPE_BF16, want, n, half));
    assert_ok(weft_gather_source(g, 2, &to.region, WEFT_DTYPE_BF16, a, &from));
    for (int64_t at = 0, k; at < 2 * n; at += k) {
        k = 1 + rand_r(&seed) % 999;
        if (k > 2 * n - at) k = 2 * n - at;
        assert_ok(from.read(from.arg, at, got + at, (size_t)k));
    }
    assert_memory_equal(got, half, (size_t)n * 2);
    assert_ok(weft_gather_hash(g, 2, &to.region, &hash));
    assert_true(hash == weft_hash_xxh64(want, (size_t)n * 4, 0));
    free(want);
    free(half);
    free(got);
    weft_gather_close(g);
    weft_arena_destroy(a);
    weft_state_destroy(s);
}

/* On a device chunks are larger: two of them and a part of one, into a parameter and its copy in
 * bf16. */
static void large_chunks_of_a_device(void **state)
{
    enum {
        N = (2 << 20) + 77
    };
    weft_shape        shape = {1, {N}};
    weft_region       r     = weft_region_whole(&shape);
    weft_interval     run[WEFT_MAX_DIM];
    weft_part         part = weft_part_of_region(&r, run);
    weft_state_target to   = {.region = r, .n_tensor = 2, .tensor = {0, 1}};
    float            *back = malloc(sizeof *back * N);
    weft_state       *s;
    (void)state;
    assert_non_null(back);
    assert_ok(weft_state_create(weft_device_guard(), (int64_t)N * 8, &s));
    assert_ok(weft_state_add(
        s, &(weft_state_tensor){"x", WEFT_DTYPE_F32, shape, &part, 0, false}));
    assert_ok(weft_state_add(
        s, &(weft_state_tensor){"y", WEFT_DTYPE_BF16, shape, &part, 4 * N, false}));
    assert_ok(weft_state_fill(s, &to, make_numbers, NULL));
    assert_ok(weft_state_read(s, 0, &r, back));
    for (int64_t i = 0; i < N; i++) assert_true(back[i] == (float)(i % 251));
    for (int64_t i = 0; i < N; i += 4099)
        assert_true(number_at(s, 1, &i) == (float)(i % 251));
    weft_state_destroy(s);
    free(back);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(what_is_held_is_made),
        cmocka_unit_test(to_a_file_and_back),
        cmocka_unit_test(sources_in_any_pieces),
        cmocka_unit_test(large_chunks_of_a_device),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
