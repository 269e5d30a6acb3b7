/* A state: regions in and out against taking every element by itself; whose memory it is. */
#include "state/cases.h"

/* The region's elements in row-major order: calls with the global index. */
static int64_t global_index(const weft_region *r, int64_t i, int64_t *x)
{
    int64_t at = 0, stride = 1;
    for (int d = r->global.n - 1; d >= 0; d--) {
        x[d] = r->offset[d] + i % r->extent[d];
        i /= r->extent[d];
        at += x[d] * stride;
        stride *= r->global.d[d];
    }
    return at;
}

static weft_region random_region(const weft_shape *s, unsigned *seed)
{
    weft_region r = {.global = *s};
    for (int d = 0; d < s->n; d++) {
        r.offset[d] = case_random(seed, (int)s->d[d]);
        r.extent[d] = 1 + case_random(seed, (int)(s->d[d] - r.offset[d]));
    }
    return r;
}

/* What is held is read, what is not is left as it was. */
static void check_read(const case_table *t, int tensor, const weft_state *s,
                       const weft_region *r)
{
    int64_t size = weft_dtype_bytes(t->tensor[tensor].dtype), x[WEFT_MAX_DIM];
    char    out[8 * 512], same[8];
    memset(out, 0x5a, sizeof out);
    memset(same, 0x5a, sizeof same);
    assert_ok(weft_state_read(s, tensor, r, out));
    for (int64_t i = 0; i < weft_region_count(r); i++) {
        uint64_t number = case_number(tensor, global_index(r, i, x));
        bool     held   = case_holds(&t->at[tensor][0], x);
        assert_memory_equal(out + i * size, held ? (void *)&number : same, (size_t)size);
    }
}

/* Every element by regions: one after another they fill the state, and nothing else. */
static void write_all(const case_table *t, int tensor, weft_state *s, unsigned *seed)
{
    int64_t     size = weft_dtype_bytes(t->tensor[tensor].dtype), x[WEFT_MAX_DIM], at = 0;
    weft_region all  = weft_region_whole(&t->tensor[tensor].shape), box;
    int64_t     most = 1 + case_random(seed, 9);
    while (weft_region_next_chunk(&all, most, &at, &box)) {
        char in[8 * 512];
        for (int64_t i = 0; i < weft_region_count(&box); i++) {
            uint64_t number = case_number(tensor, global_index(&box, i, x));
            memcpy(in + i * size, &number, (size_t)size);
        }
        assert_ok(weft_state_write(s, tensor, &box, in));
    }
}

static void regions_in_and_out(void **state)
{
    static case_table t;
    unsigned          seed = 11;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        weft_state *full, *filled;
        case_random_table(&t, &seed, 1, 6, 1);
        for (int k = 0; k < CASE_TENSORS; k++)
            case_any_part(&t.at[k][0], &t.tensor[k].shape, &seed);
        assert_ok(case_state(&t, 0, true, &full));
        assert_ok(case_state(&t, 0, false, &filled));
        for (int k = 0; k < CASE_TENSORS; k++) {
            weft_region r = random_region(&t.tensor[k].shape, &seed);
            check_read(&t, k, full, &r);
            write_all(&t, k, filled, &seed);
        }
        assert_ok(case_check(&t, 0, filled));
        assert_memory_equal(weft_memory_host(weft_state_memory(full)),
                            weft_memory_host(weft_state_memory(filled)),
                            (size_t)weft_state_memory(full)->bytes);
        weft_state_destroy(full);
        weft_state_destroy(filled);
    }
}

static int n_released;

static void count_release(void *arg, weft_memory *m)
{
    assert_ptr_equal(arg, &n_released);
    assert_int_equal(m->bytes, 64);
    n_released++;
}

/* Names, steps, places; memory of another origin goes back to where it came from. */
static void what_a_state_knows(void **state)
{
    static char   bytes[64];
    weft_memory   m     = {weft_device_cpu(), WEFT_SPACE_HOST, bytes, sizeof bytes};
    weft_shape    shape = {.n = 1, .d = {10}};
    weft_interval run[] = {{2, 6}};
    weft_part     part  = {.shape = shape, .n = {1}, .run = {run}};
    weft_state   *s;
    (void)state;
    int64_t before = weft_device_bytes();
    assert_ok(weft_state_create_over(&m, count_release, &n_released, &s));
    assert_int_equal(weft_state_step(s), -1);
    weft_state_set_step(s, 7);
    assert_int_equal(weft_state_step(s), 7);
    weft_state_tensor t = {"a", WEFT_DTYPE_F32, shape, &part, 48, false};
    assert_ok(weft_state_add(s, &t));
    run[0].lo = 5; /* it was copied */
    assert_int_equal(weft_part_count(weft_state_at(s, 0)->part), 4);
    run[0].lo = 2;
    t.name = "b", t.offset = 49;
    assert_fails(weft_state_add(s, &t), WEFT_ERR_INTERNAL, "b: bytes 49 to 65");
    t.part = NULL;
    assert_ok(weft_state_add(s, &t));
    assert_int_equal(weft_state_count(s), 2);
    assert_int_equal(weft_state_find(s, "b"), 1);
    assert_int_equal(weft_state_find(s, "c"), -1);
    assert_ptr_equal(weft_state_memory(s)->address, bytes);
    weft_state_destroy(s);
    assert_int_equal(n_released, 1);
    assert_int_equal(weft_device_bytes(), before);
    weft_state_destroy(NULL);
}

/* A clone has the tensors, parts, numbers and step, in memory of its own. */
static void a_clone_stands_alone(void **state)
{
    static case_table t;
    unsigned          seed = 5;
    (void)state;
    for (int round = 0; round < 200; round++) {
        weft_state *s, *clone;
        case_random_table(&t, &seed, 1, 6, 1);
        assert_ok(case_state(&t, 0, true, &s));
        weft_state_set_step(s, 9);
        assert_ok(weft_state_clone(s, &clone));
        assert_ptr_not_equal(weft_state_memory(s)->address,
                             weft_state_memory(clone)->address);
        assert_int_equal(weft_state_count(clone), weft_state_count(s));
        weft_state_destroy(s);
        assert_ok(case_check(&t, 0, clone));
        assert_int_equal(weft_state_step(clone), 9);
        weft_state_destroy(clone);
    }
}

/* A tensor in the block of host memory is read, written and cloned like any other. */
static void a_block_of_host_memory(void **state)
{
    static const float numbers[4] = {1, 2, 3, 4};
    weft_shape         shape      = {.n = 1, .d = {4}};
    weft_region        all        = weft_region_whole(&shape);
    weft_interval      run[WEFT_MAX_DIM];
    weft_part          part = weft_part_of_region(&all, run);
    weft_state        *s, *clone;
    float              got[4] = {0};
    (void)state;
    int64_t before = weft_device_bytes();
    assert_ok(weft_state_create(weft_device_guard(), 16, &s));
    weft_state_tensor t = {"m", WEFT_DTYPE_F32, shape, &part, 64, true};
    assert_fails(weft_state_add(s, &t), WEFT_ERR_INTERNAL, "m: bytes 64 to 80");
    assert_ok(weft_state_add_host_memory(s, 80));
    assert_int_equal(weft_state_host_memory(s)->space, WEFT_SPACE_PINNED);
    assert_ok(weft_state_add(s, &t));
    assert_fails(weft_state_add_host_memory(s, 80), WEFT_ERR_INTERNAL, "one block");
    assert_ok(weft_state_write(s, 0, &all, numbers));
    assert_memory_equal((char *)weft_memory_host(weft_state_host_memory(s)) + 64, numbers,
                        sizeof numbers);
    assert_ok(weft_state_clone(s, &clone));
    weft_state_destroy(s);
    assert_ok(weft_state_read(clone, 0, &all, got));
    assert_memory_equal(got, numbers, sizeof numbers);
    weft_state_destroy(clone);
    assert_int_equal(weft_device_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(a_block_of_host_memory),
        cmocka_unit_test(a_clone_stands_alone),
        cmocka_unit_test(regions_in_and_out),
        cmocka_unit_test(what_a_state_knows),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
