/* lower/largest.c: matmuls in fp8 find largest magnitudes for those that read an operand the other
 * way, and nothing else changes. */
#include <stdio.h>

#include "segment.h"
#include "support/ranks.h"

#include "compile/compile.h"
#include "program/work.h"

static weft_segment *lower(const char *dtype, int rows, const char *between,
                           unsigned fusions)
{
    char text[1600];
    snprintf(text, sizeof text,
             "graph t {\n"
             "  input x: %s[2,%d,32]\n"
             "  input dy: %s[2,%d,48]\n"
             "  input b: %s[48]\n"
             "  param w: %s[48,32]\n"
             "  forward\n"
             "  z: %s[2,%d,48] = matmul(x, w) {spec=bsd,nd->bsn fp8=e4m3,e4m3,e5m2}\n"
             "  y: %s[2,%d,48] = add(z, b)\n"
             "  output y\n"
             "  backward\n"
             "  dx: %s[2,%d,32] = matmul(dy, w) {spec=bsn,nd->bsd fp8=e5m2,e4m3}\n"
             "%s"
             "  dw: f32[48,32] = matmul(dy, x) {spec=bsn,bsd->nd dtype=f32 "
             "fp8=e5m2,e4m3}\n"
             "  output dx\n"
             "  output dw\n"
             "}\n",
             dtype, rows, dtype, rows, dtype, dtype, dtype, rows, dtype, rows, dtype,
             rows, between);
    return segment_lower(text,
                         &(weft_lower_options){.one_micro = true, .fusions = fusions});
}

static bool gives(const weft_segment *s, const char *giver, int k, const char *taker,
                  int j, int64_t n)
{
    const weft_instr *from = segment_find(s, giver), *to = segment_find(s, taker);
    if (from->n_own_out < 3 || to->n_own_in < 4 || from->out[1 + k].buffer < 0)
        return false;
    assert_int_equal(from->out[1 + k].type.shape.d[0], n);
    assert_int_equal(to->in[2 + j].type.shape.d[0], n);
    return from->out[1 + k].buffer == to->in[2 + j].buffer;
}

/* x and w go from the forward pass to the gradients of w and of x, dy from one to the other. */
static void test_linear_layer(void **state)
{
    (void)state;
    weft_segment     *s = lower("bf16", 16, "", WEFT_FUSION_LARGEST);
    const weft_instr *y = segment_find(s, "z");
    assert_true(gives(s, "z", 0, "dw", 1, 32));
    assert_true(gives(s, "z", 1, "dx", 1, 32));
    assert_true(gives(s, "dx", 0, "dw", 0, 48));
    /* the step after it is where it was among operands and results */
    assert_int_equal(y->n_own_out, 3);
    assert_int_equal(y->n_own_in, 2);
    assert_int_equal(y->n_post, 1);
    assert_int_equal(y->post[0].in, 2);
    assert_int_equal(y->post[0].out, 3);
    assert_int_equal(y->out[0].buffer, -1);
    assert_int_equal(segment_find(s, "dx")->in[2].buffer, -1);
    weft_segment_destroy(s);
}

static int count_shared(const weft_segment *s)
{
    int n = 0;
    for (int i = 0; i < s->n_instr; i++)
        n += (s->instr[i].n_own_in > 2) + (s->instr[i].n_own_out > 2);
    return n;
}

/* Not asked for, not bf16, or numbers of rows that the kernels take one by one: as before. */
static void test_nothing_shared(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        int         rows;
        unsigned    fusions;
        int         shared;
    } c[] = {{"bf16", 16, 0, 0},
             {"f32", 16, WEFT_FUSION_LARGEST, 0},
             {"bf16", 5, WEFT_FUSION_LARGEST, 2}}; /* w alone, from z to dx */
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        weft_segment *s = lower(c[i].dtype, c[i].rows, "", c[i].fusions);
        if (c[i].shared) assert_true(gives(s, "z", 1, "dx", 1, 32));
        assert_int_equal(count_shared(s), c[i].shared);
        weft_segment_destroy(s);
    }
}

typedef struct turned_count {
    int all, known;
} turned_count;

/* Operands of fp8 matmuls whose rows are side by side. */
static turned_count count_turned(const char *model, int64_t batch, int64_t micro)
{
    weft_compile_spec spec = weft_compile_spec_default(model, batch, 16);
    weft_training     t    = {0};
    weft_compiled     c    = {0};
    turned_count      n    = {0};
    spec.dtype = "fp8", spec.micro_batch = micro, spec.layers = 2;
    weft_compile_for_cuda(&spec);
    assert_ok(weft_compile_training(&spec, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &c));
    assert_ok(weft_program_verify(c.program));
    for (int a = 0; a < c.program->n_actor; a++)
        for (int m = 0; m < c.program->actor[a].n_instr; m++) {
            const weft_instr *i = &c.program->actor[a].instr[m];
            for (int k = 0; k < 2 && weft_instr_is_fp8(i); k++) {
                const char *spec_text = i->attr[0].s, *y = strstr(spec_text, "->") + 2;
                const char *part = k ? strchr(spec_text, ',') + 1 : spec_text;
                if (!strchr(y, part[i->in[k].type.shape.n - 1])) continue;
                n.all++;
                n.known += i->n_own_in > 2 + k && i->in[2 + k].buffer >= 0;
            }
        }
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    return n;
}

/* Four linear layers in a block of GPT-2: x and dy of each; the weights of the forward pass have
 * no kernel before them.  Llama's are read row by row there, and turned for dx; q, k and v are one,
 * the gradient of whose weights comes before that of x. */
static void test_models(void **state)
{
    (void)state;
    turned_count n = count_turned("tiny256", 2, 1);
    assert_int_equal(n.all, 2 * 4 * 3);
    assert_int_equal(n.known, 2 * 4 * 2);
    n = count_turned("llama3-8b", 2, 1);
    assert_int_equal(n.all, 2 * 5 * 3);
    assert_int_equal(n.known, 2 * (5 * 3 - 1));
}

static void test_bits(void **state)
{
    static const weft_strategy_recompute again[] = {WEFT_STRATEGY_KEEP,
                                                    WEFT_STRATEGY_FULL};
    (void)state;
    for (int r = 0; r < 2; r++) {
        test_job    j;
        test_result made[2];
        test_job_open(&j, "tiny256",
                      (test_job_options){.seq       = 16,
                                         .n_micro   = 2,
                                         .dtype     = WEFT_DTYPE_BF16,
                                         .recompute = again[r],
                                         .fp8       = "e4m3,e4m3,e5m2"});
        for (int i = 0; i < 2; i++) {
            weft_partition_options o = {.n_micro    = 2,
                                        .n_lane     = 1,
                                        .join_width = 2048,
                                        .fusions    = i ? WEFT_FUSION_LARGEST : 0};
            weft_program          *p = test_job_compile(&j, NULL, false, &o);
            made[i]                  = test_job_run(&j, &p, 1, 1);
        }
        assert_int_equal(made[0].weights, made[1].weights);
        test_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_layer),
        cmocka_unit_test(test_nothing_shared),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
