/* Fusions that the options name: what rides on norms' and attention's gradients and on updates, and
 * that without them the same graph has one instruction for each. */
#include <stdio.h>

#include "segment.h"

/* Half a block's backward pass and the update of its bias. */
static const char block[] =
    "graph t {\n"
    "  input x: bf16[2,3,8]\n"
    "  input dy: bf16[2,3,8]\n"
    "  input up: bf16[2,3,8]\n"
    "  input pre: bf16[2,3,16]\n"
    "  input lr: f32[] per_step\n"
    "  param w: bf16[16,8]\n"
    "  param g: f32[8]\n"
    "  param h: f32[8]\n"
    "  param b: f32[8]\n"
    "  state b_low: bf16[8]\n"
    "  forward\n"
    "  n: bf16[2,3,8], mean: f32[2,3], rstd: f32[2,3] = layer_norm(x, g, h)\n"
    "  y: bf16[2,3,8] = add(n, b_low)\n"
    "  output y\n"
    "  backward\n"
    "  du: bf16[2,3,16] = matmul(up, w) {spec=bsd,fd->bsf}\n"
    "  dpre: bf16[2,3,16] = gelu_grad(du, pre)\n"
    "  dfc: f32[16] = reduce(dpre) {axes=[0,1] dtype=f32}\n"
    "  dn: bf16[2,3,8] = matmul(dpre, w) {spec=bsf,fd->bsd}\n"
    "  dx: bf16[2,3,8], dg: f32[8], dh: f32[8] = layer_norm_grad(dn, x, g, mean, rstd)\n"
    "  dres: bf16[2,3,8] = add(dx, dy)\n"
    "  db: f32[8] = reduce(dres) {axes=[0,1] dtype=f32}\n"
    "  dw: f32[8,8] = matmul(x, dres) {spec=bsd,bse->de dtype=f32}\n"
    "  output dg\n"
    "  output dh\n"
    "  output dres\n"
    "  output dw\n"
    "  update\n"
    "  dfc_sum: f32[16] = accumulate(dfc)\n"
    "  db_sum: f32[8] = accumulate(db)\n"
    "  output dfc_sum\n"
    "  b_next: f32[8] = sgd(b, db_sum, lr, lr)\n"
    "  b_low_next: bf16[8] = cast(b_next) {dtype=bf16}\n"
    "  next b = b_next\n"
    "  next b_low = b_low_next\n"
    "}\n";

static weft_segment *lower(const char *text, unsigned fusions, bool one_micro)
{
    return segment_lower(
        text, &(weft_lower_options){.one_micro = one_micro, .fusions = fusions});
}

static void assert_in(const weft_segment *s, const weft_operand *o, const char *storage)
{
    assert_true(o->buffer >= 0);
    assert_string_equal(s->storage[o->buffer].name, storage);
}

enum {
    ALL = WEFT_FUSION_RESIDUAL | WEFT_FUSION_NORM_SUMS | WEFT_FUSION_COPY
};

/* Nothing named: an instruction each, the activation's gradient on the matmul. */
static void test_none(void **state)
{
    (void)state;
    weft_segment *s = lower(block, 0, true);
    for (int i = 0; i < s->n_instr; i++)
        for (int k = 0; k < s->instr[i].n_post; k++)
            assert_int_equal(weft_op_fusion(s->instr[i].op, s->instr[i].post[k].op), 0);
    assert_true(segment_find_index(s, "dres") >= 0 && segment_find_index(s, "db") >= 0);
    assert_true(segment_find_index(s, "dfc") >= 0 &&
                segment_find_index(s, "b_low_next") >= 0);
    assert_int_equal(segment_find(s, "du")->post[0].op, WEFT_OP_GELU_GRAD);
    weft_segment_destroy(s);
}

/* The residual is added to dx, which is not stored; the bias' gradient is made of the sum and goes
 * into its accumulator. */
static void test_norm_grad(void **state)
{
    (void)state;
    for (int one_micro = 0; one_micro < 2; one_micro++) {
        weft_segment     *s = lower(block, ALL, one_micro);
        const weft_instr *i = segment_find(s, "dx");
        assert_int_equal(i->n_post, 2);
        assert_int_equal(i->post[0].op, WEFT_OP_ADD);
        assert_int_equal(i->post[1].op, WEFT_OP_REDUCE);
        assert_int_equal(i->out[0].buffer, -1);
        assert_in(s, &i->in[i->post[0].in], "dy");
        assert_in(s, &i->out[i->post[0].out], "dres");
        assert_in(s, &i->out[i->post[1].out], "db_sum");
        assert_int_equal(i->add, 1u << i->post[1].out);
        assert_int_equal(segment_find_index(s, "dres"), -1);
        assert_int_equal(segment_find_index(s, "db"), -1);
        /* 3 reads and 2 writes of 48 bf16; statistics; weights; sums, one of them read too */
        assert_true(weft_instr_bytes(i) == 4 * 96 + 2 * 24 + 3 * 32 + 2 * 32);
        weft_segment_destroy(s);
    }
}

/* The bf16 copy is written where it is kept. */
static void test_update(void **state)
{
    (void)state;
    weft_segment     *s = lower(block, ALL, true);
    const weft_instr *i = segment_find(s, "b_next");
    assert_int_equal(i->n_post, 1);
    assert_int_equal(i->post[0].op, WEFT_OP_CAST);
    assert_in(s, &i->out[0], "b");
    assert_in(s, &i->out[i->post[0].out], "b_low");
    assert_int_equal(segment_find_index(s, "b_low_next"), -1);
    weft_segment_destroy(s);
}

/* Each fusion is taken alone. */
static void test_one_by_one(void **state)
{
    (void)state;
    for (unsigned bit = 1; bit <= ALL; bit *= 2) {
        weft_segment *s    = lower(block, bit, true);
        unsigned      have = 0;
        for (int i = 0; i < s->n_instr; i++)
            for (int k = 0; k < s->instr[i].n_post; k++)
                have |= weft_op_fusion(s->instr[i].op, s->instr[i].post[k].op);
        /* sums on a norm's gradient are of what is stored: none without the residual */
        assert_int_equal(have, bit == WEFT_FUSION_NORM_SUMS ? 0 : bit);
        weft_segment_destroy(s);
    }
}

/* A value that others read is stored; a residual that comes later stays an add; a copy that would
 * replace what is still read is made in its place. */
static void test_not_taken(void **state)
{
    (void)state;
    static const char text[] = "graph t {\n"
                               "  input x: f32[6,8]\n"
                               "  input dy: f32[6,8]\n"
                               "  input r: f32[6]\n"
                               "  input lr: f32[] per_step\n"
                               "  param g: f32[8]\n"
                               "  state low: bf16[8]\n"
                               "  backward\n"
                               "  dx: f32[6,8], dg: f32[8] = rms_norm_grad(dy, x, g, r)\n"
                               "  late: f32[6,8] = scale(dy) {alpha=2}\n"
                               "  sum: f32[6,8] = add(dx, late)\n"
                               "  rows: f32[6] = reduce(sum) {axes=[1]}\n"
                               "  output rows\n"
                               "  output sum\n"
                               "  update\n"
                               "  dg_sum: f32[8] = accumulate(dg)\n"
                               "  g_next: f32[8] = sgd(g, dg_sum, lr, lr)\n"
                               "  was: f32[8] = cast(low) {dtype=f32}\n"
                               "  low_next: bf16[8] = cast(g_next) {dtype=bf16}\n"
                               "  output was\n"
                               "  next g = g_next\n"
                               "  next low = low_next\n"
                               "}\n";
    weft_segment     *s      = lower(text, ALL, true);
    for (int i = 0; i < s->n_instr; i++) assert_int_equal(s->instr[i].n_post, 0);
    weft_segment_destroy(s);
}

/* The gradient of attention over q and k that were turned; use: of dq, after `turn`. */
static weft_segment *lower_attention(const char *turn, const char *use, unsigned fusions)
{
    char text[2048];
    snprintf(text, sizeof text,
             "graph t {\n"
             "  input dy: bf16[2,3,4,8]\n"
             "  input q: bf16[2,3,4,8]\n"
             "  input k: bf16[2,3,2,8]\n"
             "  input v: bf16[2,3,2,8]\n"
             "  input o: bf16[2,3,4,8]\n"
             "  input lse: f32[2,3,4]\n"
             "  backward\n"
             "  dq: bf16[2,3,4,8], dk: bf16[2,3,2,8], dv: bf16[2,3,2,8] = "
             "attention_grad(dy, q, k, v, o, lse) {causal=1}\n"
             "  dq0: bf16[2,3,4,8] = rotary(dq) {inverse=1}\n"
             "%s"
             "  output dq0\n"
             "  output dv\n"
             "%s"
             "}\n",
             turn, use);
    return lower(text, fusions, true);
}

/* Both of dq and dk are turned back by the kernel that makes them, or neither is. */
static void test_turned(void **state)
{
    static const char turn[] =
        "  dk0: bf16[2,3,2,8] = rotary(dk) {inverse=1 first=3}\n  output dk0\n";
    weft_segment *s = lower_attention(turn, "", WEFT_FUSION_ROTARY);
    (void)state;
    const weft_instr *i = segment_find(s, "dq");
    assert_int_equal(s->n_instr, 1);
    assert_int_equal(i->n_post, 2);
    assert_int_equal(i->out[0].buffer, -1);
    assert_int_equal(i->out[1].buffer, -1);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(i->post[k].op, WEFT_OP_ROTARY);
        assert_in(s, &i->out[i->post[k].out], k ? "dk0" : "dq0");
    }
    assert_in(s, &i->out[2], "dv");
    assert_int_equal(i->post[1].attr[weft_op_attr_index(WEFT_OP_ROTARY, "first")].i, 3);
    weft_segment_destroy(s);

    s = lower_attention(turn, "", ALL);
    assert_int_equal(s->n_instr, 3);
    weft_segment_destroy(s);
    s = lower_attention(turn, "  output dq\n", WEFT_FUSION_ROTARY);
    assert_int_equal(s->n_instr, 3);
    weft_segment_destroy(s);
    s = lower_attention("  output dk\n", "", WEFT_FUSION_ROTARY);
    assert_int_equal(s->n_instr, 2);
    weft_segment_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),      cmocka_unit_test(test_norm_grad),
        cmocka_unit_test(test_update),    cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_not_taken), cmocka_unit_test(test_turned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
