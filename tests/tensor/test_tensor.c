#include "support/test.h"
#include "weft/tensor.h"

static weft_shape shape(int n, int64_t a, int64_t b, int64_t c)
{
    return weft_shape_make(n, (int64_t[]){a, b, c});
}

static void dtypes(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_N_DTYPE; i++) {
        weft_dtype t = (weft_dtype)i, u;
        assert_in_range(weft_dtype_bytes(t), 1, 8);
        assert_true(weft_dtype_parse(weft_dtype_name(t), &u));
        assert_int_equal(u, t);
        assert_true(weft_dtype_parse(weft_dtype_st_name(t), &u));
        assert_int_equal(u, t);
    }
    weft_dtype t = WEFT_DTYPE_I8;
    assert_true(weft_dtype_parse("bfloat16", &t));
    assert_int_equal(t, WEFT_DTYPE_BF16);
    assert_int_equal(weft_dtype_bytes(t), 2);
    assert_false(weft_dtype_parse("float", &t));
    assert_string_equal(weft_dtype_name((weft_dtype)99), "?");
}

static void shapes(void **state)
{
    (void)state;
    char       buf[64];
    weft_shape s = shape(3, 4, 64, 768), scalar = weft_shape_make(0, NULL);
    assert_int_equal(weft_shape_count(&s), 4 * 64 * 768);
    assert_int_equal(weft_shape_count(&scalar), 1);
    assert_string_equal(weft_shape_text(&s, buf, sizeof buf), "4,64,768");
    assert_string_equal(weft_shape_text(&scalar, buf, sizeof buf), "");
    assert_string_equal(weft_shape_text(&s, buf, 4), "4,6"); /* cut, still ended */
    weft_shape t = shape(2, 4, 64, 0);
    assert_false(weft_shape_equal(&s, &t));
    t = shape(3, 4, 64, 768);
    assert_true(weft_shape_equal(&s, &t));
}

static void shapes_verify(void **state)
{
    (void)state;
    weft_shape s = shape(3, 4, 0, 5);
    assert_ok(weft_shape_verify(&s));
    s = shape(2, 3, -1, 0);
    assert_fails(weft_shape_verify(&s), WEFT_ERR_ARG, "dimension 1 of a shape is -1");
    s = shape(3, INT64_MAX, INT64_MAX, INT64_MAX);
    assert_fails(weft_shape_verify(&s), WEFT_ERR_ARG, "2^56");
    s = shape(3, INT64_MAX, INT64_MAX, 0); /* a zero does not excuse it */
    assert_fails(weft_shape_verify(&s), WEFT_ERR_ARG, "2^56");
    s = shape(2, (int64_t)1 << 28, (int64_t)1 << 28, 0);
    assert_ok(weft_shape_verify(&s));
    s.n = 9;
    assert_fails(weft_shape_verify(&s), WEFT_ERR_ARG, "9 dimensions");
}

static void regions(void **state)
{
    (void)state;
    weft_shape  s = shape(2, 10, 20, 0), other = shape(2, 10, 21, 0);
    weft_region a = weft_region_whole(&s), b = a, c = weft_region_whole(&other), r;
    assert_int_equal(weft_region_count(&a), 200);
    b.offset[0] = 4, b.extent[0] = 3, b.offset[1] = 15, b.extent[1] = 5;
    assert_true(weft_region_intersect(&a, &b, &r));
    assert_int_equal(weft_region_count(&r), 15);
    assert_int_equal(r.offset[0], 4);
    assert_int_equal(r.offset[1], 15);
    a.extent[0] = 5;
    assert_true(weft_region_intersect(&a, &b, &r));
    assert_int_equal(r.extent[0], 1);
    a.extent[0] = 4; /* they touch and do not meet */
    assert_false(weft_region_intersect(&a, &b, &r));
    assert_false(weft_region_intersect(&b, &c, &r));
    weft_shape  none   = weft_shape_make(0, NULL);
    weft_region scalar = weft_region_whole(&none);
    assert_true(weft_region_intersect(&scalar, &scalar, &r));
    assert_int_equal(weft_region_count(&r), 1);
}

static void views(void **state)
{
    (void)state;
    float      x[24];
    weft_shape s = shape(3, 2, 3, 4);
    weft_view  v = weft_view_make(x, WEFT_DTYPE_F32, &s);
    assert_int_equal(v.stride[0], 12);
    assert_int_equal(v.stride[2], 1);
    assert_int_equal(v.origin[0], 0);
    assert_true(weft_view_contiguous(&v));
    v.shape.d[1] = 2;
    assert_false(weft_view_contiguous(&v));
    v.shape.d[0] = 1; /* a stride over one element does not matter */
    assert_true(weft_view_contiguous(&v));
    v.stride[1] = 7;
    assert_false(weft_view_contiguous(&v));
    v.shape.d[2] = 0;
    assert_true(weft_view_contiguous(&v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes),        cmocka_unit_test(shapes),
        cmocka_unit_test(shapes_verify), cmocka_unit_test(regions),
        cmocka_unit_test(views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
