/* Odd widths: which values get padded rows, and where they are placed. */
#include <stdio.h>

#include "segment.h"

static weft_segment *lower(const char *dtype, int vocabulary, int row_elements)
{
    char text[1200];
    snprintf(text, sizeof text,
             "graph t {\n"
             "  input x: %s[2,3,8]\n"
             "  input y: i32[2,3]\n"
             "  input d: f32[2,3]\n"
             "  param w: %s[%d,8]\n"
             "  forward\n"
             "  z: %s[2,3,%d] = matmul(x, w) {spec=bsd,vd->bsv}\n"
             "  l: f32[2,3], e: f32[2,3] = cross_entropy(z, y)\n"
             "  output l\n"
             "  backward\n"
             "  dz: %s[2,3,%d] = cross_entropy_grad(z, y, e, d)\n"
             "  dx: %s[2,3,8] = matmul(dz, w) {spec=bsv,vd->bsd}\n"
             "  dw: f32[%d,8] = matmul(x, dz) {spec=bsd,bsv->vd dtype=f32}\n"
             "  output dx\n"
             "  output dw\n"
             "}\n",
             dtype, dtype, vocabulary, dtype, vocabulary, dtype, vocabulary, dtype,
             vocabulary);
    return segment_lower(
        text, &(weft_lower_options){.one_micro = true, .row_elements = row_elements});
}

/* Logits and their gradient, which is placed over them; no copy is made; parameters stay dense. */
static void test_logits(void **state)
{
    (void)state;
    weft_segment     *s = lower("bf16", 1001, 64);
    const weft_instr *z = segment_find(s, "z"), *l = segment_find(s, "l"),
                     *dx = segment_find(s, "dx"), *dw = segment_find(s, "dw");
    assert_int_equal(s->n_instr, 4);
    assert_int_equal(z->out[0].stride[1], 1024);
    assert_int_equal(z->out[0].stride[0], 3 * 1024);
    assert_int_equal(s->storage[z->out[0].buffer].bytes, 2 * 6 * 1024);
    assert_int_equal(l->in[0].stride[1], 1024);
    const weft_operand *grad = &l->out[l->post[0].out];
    assert_int_equal(grad->buffer, z->out[0].buffer);
    assert_int_equal(grad->stride[1], 1024);
    assert_int_equal(dx->in[0].stride[1], 1024);
    assert_int_equal(dw->in[1].stride[1], 1024);
    assert_int_equal(dw->out[0].stride[0], 8);
    assert_int_equal(dx->in[1].stride[0], 8);
    weft_segment_destroy(s);
}

/* Not asked for, wide enough already, narrow, or f32: rows without gaps. */
static void test_dense(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        int         vocabulary, row_elements;
    } c[] = {{"bf16", 1001, 0}, {"bf16", 1000, 64}, {"bf16", 77, 64}, {"f32", 1001, 64}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        weft_segment *s = lower(c[i].dtype, c[i].vocabulary, c[i].row_elements);
        assert_int_equal(segment_find(s, "z")->out[0].stride[1], c[i].vocabulary);
        assert_int_equal(s->n_instr, 4);
        weft_segment_destroy(s);
    }
}

/* Somebody else reads them: a copy would be needed, so they stay dense. */
static void test_other_reader(void **state)
{
    (void)state;
    static const char text[] = "graph t {\n"
                               "  input x: bf16[2,3,8]\n"
                               "  param w: bf16[1001,8]\n"
                               "  param v: bf16[1001,8]\n"
                               "  forward\n"
                               "  z: bf16[2,3,1001] = matmul(x, w) {spec=bsd,vd->bsv}\n"
                               "  s: bf16[2,3,1001] = softmax(z)\n"
                               "  u: bf16[2,3,8] = matmul(z, v) {spec=bsv,vd->bsd}\n"
                               "  output s\n"
                               "  output u\n"
                               "}\n";
    weft_graph       *g;
    weft_segment     *s;
    assert_ok(weft_graph_from_text("test", text, strlen(text), &g));
    assert_ok(weft_lower(g, &(weft_lower_options){.row_elements = 64}, &s));
    assert_int_equal(segment_find(s, "z")->out[0].stride[1], 1001);
    weft_segment_destroy(s);
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_other_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
