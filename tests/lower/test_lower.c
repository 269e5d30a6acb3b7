/* Lowering: what is fused, what is written in place, what is not copied. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "lower/lower.h"
#include "lower/lower_priv.h"

static weft_segment *lower(const char *text)
{
    weft_graph   *g;
    weft_segment *s;
    weft_status   st = weft_graph_from_text("test", text, strlen(text), &g);
    if (st != WEFT_OK) print_error("%s\n", weft_error_text());
    assert_int_equal(st, WEFT_OK);
    st = weft_lower(g, &(weft_lower_options){.one_micro = true}, &s);
    if (st != WEFT_OK) print_error("%s\n", weft_error_text());
    assert_int_equal(st, WEFT_OK);
    weft_graph_destroy(g);
    return s;
}

static int count_op(const weft_segment *s, weft_op op)
{
    int n = 0;
    for (int i = 0; i < s->n_instr; i++) n += s->instr[i].op == op;
    return n;
}

/* x.w + b, gelu, and the pre-activation is needed again: one instruction, two results kept. */
static void test_bias_and_activation_ride_on_the_product(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[2,3,8]\n"
                            "  param w: f32[8,16]\n"
                            "  param b: f32[16]\n"
                            "  forward\n"
                            "  u: f32[2,3,16] = matmul(x, w) {spec=bsd,dn->bsn}\n"
                            "  v: f32[2,3,16] = add(u, b)\n"
                            "  y: f32[2,3,16] = gelu(v)\n"
                            "  z: f32[2,3,16] = mul(y, v)\n"
                            "  output z\n"
                            "}\n");
    assert_int_equal(s->n_instr, 2);
    const weft_instr *i = &s->instr[0];
    assert_int_equal(i->n_post, 2);
    assert_int_equal(i->post[0].op, WEFT_OP_ADD);
    assert_int_equal(i->post[1].op, WEFT_OP_GELU);
    assert_int_equal(i->out[0].buffer, -1);
    assert_true(i->post[0].out > 0 && i->post[1].out > 0);
    assert_int_equal(s->instr[1].op, WEFT_OP_MUL);
    weft_segment_destroy(s);
}

/* A residual that is made after the product would be read too early: not fused. */
static void test_a_late_operand_is_not_fused(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[4,8]\n"
                            "  param w: f32[8,8]\n"
                            "  forward\n"
                            "  u: f32[4,8] = matmul(x, w) {spec=bd,dn->bn}\n"
                            "  r: f32[4,8] = tanh(x)\n"
                            "  y: f32[4,8] = add(u, r)\n"
                            "  output y\n"
                            "}\n");
    assert_int_equal(s->n_instr, 3);
    weft_segment_destroy(s);
}

/* Parts of a gradient put together and summed: the parts are slices or made in place; either way
 * somebody writes the sum. */
static void test_a_sum_of_a_concat_is_written(void **state)
{
    static const char *const part[] = {"slice(y) {axis=0 start=1 stop=2}", "tanh(z)"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        char text[600];
        snprintf(text, sizeof text,
                 "graph t {\n"
                 "  input x: f32[2,8]\n"
                 "  input z: f32[1,8]\n"
                 "  forward\n"
                 "  y: f32[2,8] = tanh(x)\n"
                 "  a: f32[1,8] = gelu(z)\n"
                 "  b: f32[1,8] = %s\n"
                 "  c: f32[2,8] = concat(a, b) {axis=0}\n"
                 "  update\n"
                 "  g: f32[2,8] = accumulate(c)\n"
                 "  output g\n"
                 "}\n",
                 part[k]);
        weft_segment *s = lower(text);
        int           n = 0;
        for (int b = 0; b < s->n_binding; b++)
            for (int i = 0; i < s->n_instr && !strcmp(s->binding[b].name, "g"); i++)
                n += s->instr[i].out[0].buffer == s->binding[b].at.buffer;
        assert_true(n > 0);
        weft_segment_destroy(s);
    }
}

/* q, k, v are slices of one product and their gradients parts of one concat: no copies. */
static void test_splits_and_concats_are_views(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[2,4,3,2,8]\n"
                            "  input d: f32[2,4,2,8]\n"
                            "  forward\n"
                            "  q0: f32[2,4,1,2,8], k0: f32[2,4,1,2,8], v0: "
                            "f32[2,4,1,2,8] = split(x) {axis=2 sizes=[1,1,1]}\n"
                            "  q: f32[2,4,2,8] = reshape(q0) {shape=[2,4,2,8]}\n"
                            "  k: f32[2,4,2,8] = reshape(k0) {shape=[2,4,2,8]}\n"
                            "  v: f32[2,4,2,8] = reshape(v0) {shape=[2,4,2,8]}\n"
                            "  o: f32[2,4,2,8], l: f32[2,4,2] = attention(q, k, v)\n"
                            "  backward\n"
                            "  dq: f32[2,4,2,8], dk: f32[2,4,2,8], dv: f32[2,4,2,8] = "
                            "attention_grad(d, q, k, v, o, l)\n"
                            "  dq1: f32[2,4,1,2,8] = reshape(dq) {shape=[2,4,1,2,8]}\n"
                            "  dk1: f32[2,4,1,2,8] = reshape(dk) {shape=[2,4,1,2,8]}\n"
                            "  dv1: f32[2,4,1,2,8] = reshape(dv) {shape=[2,4,1,2,8]}\n"
                            "  dx: f32[2,4,3,2,8] = concat(dq1, dk1, dv1) {axis=2}\n"
                            "  output dx\n"
                            "}\n");
    assert_int_equal(s->n_instr, 2);
    const weft_instr *g = &s->instr[1];
    assert_int_equal(g->out[0].buffer, g->out[2].buffer);
    assert_int_equal(g->out[1].offset, 16);
    assert_int_equal(g->out[2].offset, 32);
    assert_int_equal(g->out[1].stride[1], 48);
    assert_int_equal(s->instr[0].in[2].offset, 32);
    weft_segment_destroy(s);
}

/* A gradient goes straight into its accumulator, the update overwrites its parameter. */
static void test_gradients_and_updates_are_in_place(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[4,8]\n"
                            "  input dy: f32[4,6]\n"
                            "  input lr: f32[] per_step\n"
                            "  input scale: f32[] per_step\n"
                            "  param w: f32[8,6]\n"
                            "  backward\n"
                            "  dw: f32[8,6] = matmul(x, dy) {spec=bd,bn->dn}\n"
                            "  update\n"
                            "  g: f32[8,6] = accumulate(dw)\n"
                            "  w1: f32[8,6] = sgd(w, g, lr, scale)\n"
                            "  next w = w1\n"
                            "}\n");
    assert_int_equal(s->n_instr, 2);
    assert_int_equal(s->instr[0].add, 1);
    assert_int_equal(s->storage[s->instr[0].out[0].buffer].kind, WEFT_STORE_ACCUM);
    assert_int_equal(s->instr[1].in[0].buffer, s->instr[1].out[0].buffer);
    assert_int_equal(count_op(s, WEFT_OP_ACCUMULATE), 0);
    weft_segment_destroy(s);
}

/* The loss and its gradient: one instruction, the gradient over the logits' memory. */
static void test_loss_and_gradient_are_one_pass(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[4,8]\n"
                            "  input y: i32[4]\n"
                            "  input inv_n: f32[] per_step\n"
                            "  param w: f32[16,8]\n"
                            "  forward\n"
                            "  z: f32[4,16] = matmul(x, w) {spec=bd,vd->bv}\n"
                            "  l: f32[4], e: f32[4] = cross_entropy(z, y)\n"
                            "  backward\n"
                            "  d: f32[4] = broadcast(inv_n) {shape=[4]}\n"
                            "  dz: f32[4,16] = cross_entropy_grad(z, y, e, d)\n"
                            "  dx: f32[4,8] = matmul(dz, w) {spec=bv,vd->bd}\n"
                            "  output l\n"
                            "  output dx\n"
                            "}\n");
    assert_int_equal(s->n_instr, 3);
    const weft_instr *i = &s->instr[1];
    assert_int_equal(i->n_post, 1);
    assert_int_equal(i->out[1].buffer, -1);
    assert_int_equal(i->out[2].buffer, i->in[0].buffer);
    assert_int_equal(i->in[2].stride[0], 0);
    weft_segment_destroy(s);
}

/* A table used for lookup and product: the product's gradient is made in place, the looked-up rows
 * are added to it. */
static void test_a_tied_table_has_one_gradient(void **state)
{
    (void)state;
    weft_segment *s = lower("graph t {\n"
                            "  input x: f32[4,8]\n"
                            "  input dz: f32[4,16]\n"
                            "  input ids: i32[4]\n"
                            "  backward\n"
                            "  h: f32[16,8] = matmul(dz, x) {spec=bv,bd->vd}\n"
                            "  e: f32[16,8] = embedding_grad(x, ids) {rows=16}\n"
                            "  update\n"
                            "  a: f32[16,8] = accumulate(e)\n"
                            "  b: f32[16,8] = accumulate(h)\n"
                            "  g: f32[16,8] = add(a, b)\n"
                            "  output g\n"
                            "}\n");
    assert_int_equal(s->n_instr, 2);
    assert_int_equal(s->instr[1].op, WEFT_OP_EMBEDDING_GRAD);
    assert_int_equal(s->instr[1].n_own_in, 3);
    assert_int_equal(s->instr[1].in[2].buffer, s->instr[0].out[0].buffer);
    assert_int_equal(s->instr[1].out[0].buffer, s->instr[0].out[0].buffer);
    weft_segment_destroy(s);
}

/* Strides under another shape exist only where the dimensions lie behind each other. */
static void test_reshape_of_strides(void **state)
{
    weft_shape a = weft_shape_make(3, (int64_t[]){2, 3, 4}),
               b = weft_shape_make(2, (int64_t[]){6, 4});
    weft_shape c = weft_shape_make(2, (int64_t[]){2, 12});
    int64_t    out[WEFT_MAX_DIM];
    (void)state;
    assert_true(weft_lower__reshape(&a, (int64_t[]){24, 8, 1}, &b, out));
    assert_int_equal(out[0], 8);
    assert_false(weft_lower__reshape(&a, (int64_t[]){24, 8, 1}, &c, out));
    assert_true(weft_lower__reshape(&a, (int64_t[]){12, 4, 1}, &c, out));
    assert_int_equal(out[1], 1);
}

/* Collectives are instructions of their own; a sum over micro-batches is reduced where it lies,
 * and products before and behind are not fused across. */
static void test_collectives_are_instructions(void **state)
{
    (void)state;
    static const char text[] =
        "graph t {\n"
        "  input x: f32[4,8]\n"
        "  param w: f32[8,6]\n"
        "  param b: f32[6]\n"
        "  forward\n"
        "  u: f32[4,6] = matmul(x, w) {spec=bd,dn->bn}\n"
        "  v: f32[4,6] = all_reduce(u) {group=1}\n"
        "  y: f32[4,6] = add(v, b)\n"
        "  c: f32[2,6] = reduce_scatter(y) {group=0 parts=3 part=0}\n"
        "  d: f32[4,6] = all_gather(c) {group=0 parts=3 size=4}\n"
        "  e: f32[4,6] = all_to_all(d) {group=2 parts=2}\n"
        "  z: f32[] = reduce(e) {axes=[0,1]}\n"
        "  update\n"
        "  own: f32[] = accumulate(z)\n"
        "  sum: f32[] = all_reduce(own) {group=2}\n"
        "  output sum\n"
        "}\n";
    weft_segment                *s      = lower(text);
    static const weft_collective coll[] = {WEFT_ALL_REDUCE, WEFT_REDUCE_SCATTER,
                                           WEFT_ALL_GATHER, WEFT_ALL_TO_ALL,
                                           WEFT_ALL_REDUCE};
    int                          n      = 0;
    for (int i = 0; i < s->n_instr; i++) {
        const weft_instr *q = &s->instr[i];
        if (q->kind != WEFT_INSTR_COLLECTIVE) continue;
        assert_int_equal(q->coll, coll[n]);
        assert_int_equal(q->unit, n == 1 || n == 2 ? 6 : 0);
        n++;
    }
    assert_int_equal(n, 5);
    const weft_instr *last = &s->instr[s->n_instr - 1];
    assert_int_equal(last->in[0].buffer, last->out[0].buffer);
    assert_int_equal(s->storage[last->out[0].buffer].kind, WEFT_STORE_ACCUM);
    assert_int_equal(s->instr[0].n_post, 0);
    weft_segment_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias_and_activation_ride_on_the_product),
        cmocka_unit_test(test_a_late_operand_is_not_fused),
        cmocka_unit_test(test_splits_and_concats_are_views),
        cmocka_unit_test(test_a_sum_of_a_concat_is_written),
        cmocka_unit_test(test_gradients_and_updates_are_in_place),
        cmocka_unit_test(test_loss_and_gradient_are_one_pass),
        cmocka_unit_test(test_a_tied_table_has_one_gradient),
        cmocka_unit_test(test_reshape_of_strides),
        cmocka_unit_test(test_collectives_are_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
