/* Programs as text and back, and what verify refuses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

static char *load(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = calloc(1, 1 << 16);
    assert_non_null(f);
    *n = fread(s, 1, (1 << 16) - 1, f);
    fclose(f);
    return s;
}

/* The golden text with one replacement; NULL: as it is. */
static char *golden(const char *from, const char *to, size_t *n)
{
    char *s = load("tests/golden/two_stage.prog", n);
    if (!from) return s;
    char *at = strstr(s, from), *t = calloc(1, *n + strlen(to) + 1);
    assert_non_null(at);
    sprintf(t, "%.*s%s%s", (int)(at - s), s, to, at + strlen(from));
    free(s);
    *n = strlen(t);
    return t;
}

static weft_status verify_text(const char *s, size_t n)
{
    weft_program **p;
    int            n_p;
    assert_int_equal(weft_program_parse_set("two_stage", s, n, &p, &n_p), WEFT_OK);
    weft_status st = weft_program_verify_all((const weft_program *const *)p, n_p);
    weft_program_destroy_set(p, n_p);
    return st;
}

static void text_and_back(void **state)
{
    (void)state;
    size_t         n;
    char          *s = golden(NULL, NULL, &n);
    weft_program **p, *q;
    int            n_p;
    assert_int_equal(weft_program_parse_set("two_stage", s, n, &p, &n_p), WEFT_OK);
    assert_int_equal(n_p, 2);
    assert_int_equal(p[0]->n_buffer, 10);
    assert_int_equal(p[1]->n_edge, 3);
    assert_int_equal(p[0]->actor[3].instr[0].credits, 2);
    assert_true(p[0]->actor[1].instr[0].add == 1);
    assert_true(weft_program_stream(p[0], WEFT_STREAM_COMPUTE)->firing[2].first);
    assert_int_equal(weft_program_stream(p[0], WEFT_STREAM_COMPUTE)->firing[8].micro, -1);
    for (int i = 0; i < n_p; i++) {
        weft_text a = {0}, b = {0};
        assert_int_equal(weft_program_print(p[i], &a), WEFT_OK);
        assert_int_equal(weft_program_parse("again", a.s, a.n, &q), WEFT_OK);
        assert_int_equal(weft_program_print(q, &b), WEFT_OK);
        assert_string_equal(a.s, b.s);
        weft_program_destroy(q);
        weft_text_fini(&a);
        weft_text_fini(&b);
    }
    weft_program_destroy_set(p, n_p);
    free(s);
}

/* Everything the text form can say, printed as the file stands. */
static void golden_text(void **state)
{
    (void)state;
    size_t        n;
    char         *s = load("tests/golden/all_parts.prog", &n);
    weft_program *p;
    weft_text     t = {0};
    if (weft_program_parse("all_parts.prog", s, n, &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_program_print(p, &t), WEFT_OK);
    assert_string_equal(t.s, s);
    weft_text_fini(&t);
    weft_program_destroy(p);
    free(s);
}

static void good_is_good(void **state)
{
    (void)state;
    size_t n;
    char  *s = golden(NULL, NULL, &n);
    if (verify_text(s, n) != WEFT_OK) fail_msg("%s", weft_error_text());
    free(s);
}

/* One change to the golden programs, and words that the refusal must hold. */
static const struct {
    const char *from, *to, *words;
} wrong[] = {
    {"buffer dw0 slab work at 256", "buffer dw0 slab work at 640", "outside slab work"},
    {"(h f32[2,8]) seconds 0.004", "(h f32[2,16]) seconds 0.004", "outside buffer h"},
    {"(h f32[2,8]) seconds 0.004", "(h f32[2,7]) seconds 0.004", "should be f32[2,8]"},
    {"buffer dh slab work at 128 bytes 64 slots 2",
     "buffer dh slab work at 256 bytes 64 slots 2", "lies over operand dh"},
    {"bwd 0 first; fwd 2;", "bwd 0; fwd 2;", "before anything was written"},
    {"edge fwd -> out credits 2", "", "nothing orders it"},
    {"edge in -> bwd credits 2", "", "before anything was written"},
    {"at 0 bytes 64 slots 2 by micro          # (2,8), sent", "at 0 bytes 64",
     "holds micro-batch 1"},
    {"bwd 3;\n", "", "fires more often"},
    {"out 0; out 1;\n    in 0;", "in 0; out 0; out 1;", "deadlock"},
    {"out 0; in 2;\n    out 1; in 3;", "in 2; out 0; in 3; out 1;", "deadlock"},
    {"credits 2 (h f32[2,8])", "credits 1 (h f32[2,8])", "has 1"},
    {"tag 9 (sq", "tag 8 (sq", "waits in collective"},
    {"all_reduce group 0", "broadcast group 0", "is broadcast"},
    {"credits 2 (dh f32[2,8])", "credits 2 (dh f32[2,4])", "receives 64"},
    {"slab staging staging 320", "slab staging staging 300", "outside slab staging"},
    {"(w0 f32[4,8], dw0 f32[4,8], lr f32[], scale",
     "(w0 f32[4,8], dw0 f32[4,8], lr f32[], norm", NULL},
    {"buffer y slab work at 256", "buffer y slab work at 64", "buffer y"},
    {"compute y matmul \"spec=bd,dn->bn\" (h", "compute y matmul \"spec=bd,dn->bn\" (y",
     "before anything was written"},
    {"actor update on compute", "actor update on comm", "fires on compute"},
    {"stream comm comm device 0 threads 1", "stream comm comm device 0 threads 7",
     "threads are 1, or 0"},
    {"stream comm comm device 0", "stream comm comm device -1", "on device -1"},
    {"stream comm comm", "stream compute comm", "there is no stream 'comm'"},
    {"list comm {", "list host {", "there is no stream 'host'"},
    {"group [0,1]", "group [0,0]", "twice"},
    {"group [0,1]", "group [1]", "not in group"},
    {"from 1 tag 2", "from 0 tag 2", "no other rank 0"},
    {"buffer norm slab", "buffer sq slab", "there is no buffer"},
};

static void wrong_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
        size_t         n;
        char          *s = golden(wrong[i].from, wrong[i].to, &n);
        weft_program **p;
        int            n_p;
        weft_status    st = weft_program_parse_set("two_stage", s, n, &p, &n_p);
        if (st == WEFT_OK) {
            st = weft_program_verify_all((const weft_program *const *)p, n_p);
            weft_program_destroy_set(p, n_p);
        }
        if (!wrong[i].words)
            assert_int_equal(st, WEFT_OK);
        else if (st != WEFT_ERR_ARG || !strstr(weft_error_text(), wrong[i].words))
            fail_msg("'%s' for '%s': %s: %s", wrong[i].to, wrong[i].from,
                     weft_status_name(st), weft_error_text());
        free(s);
    }
}

static void bad_text_names_its_line(void **state)
{
    (void)state;
    static const char *const text[][2] = {
        {"program a rank 0 of 1 micro 1 lanes 1 {\n slob a work 64\n}", "t:2: 'slob'"},
        {"program a rank 0 of 1 micro 1 lanes 1 {\n slab a work 64\n", "t:3: "},
        {"program a rank 0 of 1 micro 1 lanes 1 { buffer b slab c at 0 bytes 64 }",
         "no slab 'c'"},
        {"program a rank 99999999999 of 1", "32 bits"},
        {"program a rank 0 of 1 micro 1 lanes 1 {} x", "end of the text"},
        {"", "expected 'program'"},
    };
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        weft_program *p;
        assert_int_equal(weft_program_parse("t", text[i][0], strlen(text[i][0]), &p),
                         WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), text[i][1])) fail_msg("%s", weft_error_text());
    }
}

static void counts(void **state)
{
    (void)state;
    size_t        n;
    char         *s = load("tests/golden/all_parts.prog", &n);
    weft_program *p;
    assert_int_equal(weft_program_parse("all_parts.prog", s, n, &p), WEFT_OK);
    /* (4,16) = (4,8)(8,16), fused add and gelu, the product itself not kept */
    const weft_instr *i = &p->actor[1].instr[0];
    assert_true(weft_instr_flops(i) == 2 * 4 * 8 * 16 + 64 + 12 * 64);
    assert_true(weft_instr_bytes(i) == 4 * (4 * 8 + 8 * 16 + 16 + 64 + 64));
    /* an accumulator is read as well */
    i = &p->actor[2].instr[0];
    assert_true(weft_instr_bytes(i) == 4 * (4 * 8 + 4 * 16 + 2 * 8 * 16));
    assert_true(weft_program_bytes(p, WEFT_SLAB_STATE) == 1024);
    assert_non_null(weft_program_find(p, "w"));
    assert_null(weft_program_find(p, "nobody"));
    weft_program_destroy(p);
    free(s);
}

/* ---- delays and credits ---- */

/* make writes m, use reads it; both are of one step each. */
static const char delayed_text[] =
    "program delayed rank 0 of 1 micro 2 lanes 1 {\n"
    "  slab state state 256\n"
    "  buffer x slab state at 0 bytes 64\n"
    "  buffer m slab state at 64 bytes 64\n"
    "  buffer n slab state at 128 bytes 64\n"
    "  buffer y slab state at 192 bytes 64\n"
    "  bind state x x f32[4]\n"
    "  bind state m m f32[4]\n"
    "  bind state n n f32[4]\n"
    "  bind state y y f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream host host device 0 threads 1\n"
    "  actor begin on compute { commit step ; }\n"
    "  actor make on compute { copy m (x f32[4]) -> (m f32[4]) ; }\n"
    "  actor use on host { copy y (%s f32[4]) -> (y f32[4]) ; }\n"
    "  edge begin -> use credits 200000 per_step\n"
    "  edge make -> use credits %d%s delay %d\n"
    "  list compute { begin; make%s; }\n"
    "  list host { use%s; }\n"
    "}\n";

static weft_status verify_delayed(const char *reads, int credits, int delay,
                                  bool per_step)
{
    char text[2048];
    snprintf(text, sizeof text, delayed_text, reads, credits, per_step ? " per_step" : "",
             delay, per_step ? "" : " 0; make 1", per_step ? "" : " 0; use 1");
    return verify_text(text, strlen(text));
}

static void delays_and_credits_of_any_length_verify(void **state)
{
    (void)state;
    for (int delay = 0; delay < 6; delay++)
        for (int credits = 1; credits < 12; credits++)
            for (int per_step = 0; per_step < 2; per_step++) {
                int         n  = per_step ? 1 : 2; /* messages a step */
                weft_status st = verify_delayed("n", credits, delay, per_step);
                /* the first steps' messages are there: what lacks credit for them waits for a
                 * later step's use, which a run of one step does not have */
                bool ends = credits >= delay * n;
                if ((st == WEFT_OK) != ends)
                    fail_msg("delay %d, credits %d, %d a step: %s", delay, credits, n,
                             st == WEFT_OK ? "verifies" : weft_error_text());
                if (!ends) assert_non_null(strstr(weft_error_text(), "deadlock"));
            }
    assert_int_equal(verify_delayed("n", 100000, 99999, true), WEFT_OK);
    assert_int_equal(verify_delayed("n", 1, -1, true), WEFT_ERR_ARG);
    assert_int_equal(verify_delayed("n", 1, 1 << 30, true), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "more than can be checked"));
}

/* What a delay of more than one step hands over has been written over by then. */
static void memory_of_a_delay_is_checked(void **state)
{
    (void)state;
    assert_int_equal(verify_delayed("m", 1, 1, true), WEFT_OK);
    for (int delay = 2; delay < 5; delay++) {
        assert_int_equal(verify_delayed("m", delay + 1, delay, true), WEFT_ERR_ARG);
        assert_non_null(strstr(weft_error_text(), "nothing orders it against a"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(golden_text),
        cmocka_unit_test(good_is_good),
        cmocka_unit_test(wrong_is_refused),
        cmocka_unit_test(bad_text_names_its_line),
        cmocka_unit_test(counts),
        cmocka_unit_test(delays_and_credits_of_any_length_verify),
        cmocka_unit_test(memory_of_a_delay_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
