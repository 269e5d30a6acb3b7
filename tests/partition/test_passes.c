/* Passes over programs, by text: tests/partition/passes/<pass>.in.prog becomes <pass>.out.prog, and
 * what comes in stays as it is. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "partition/partition.h"
#include "partition/passes.h"

typedef weft_status (*pass)(const weft_program *in, weft_program **out);

static weft_status overlap_reductions(const weft_program *in, weft_program **out)
{
    return weft_pass_overlap_reductions(in, &(weft_overlap_options){.bucket_bytes = 100},
                                        out);
}

static weft_status offload_optimizer(const weft_program *in, weft_program **out)
{
    weft_offload_options o = {.chunk_bytes = 64, .gradient_bytes = 1 << 20};
    return weft_pass_offload_optimizer(in, &o, out);
}

static weft_program *load(const char *name, const char *end)
{
    static char   text[16384];
    char          path[256];
    weft_program *p;
    snprintf(path, sizeof path, "tests/partition/passes/%s.%s.prog", name, end);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s is missing", path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(n < sizeof text);
    assert_ok(weft_program_parse(path, text, n, &p));
    return p;
}

static weft_text text_of(const weft_program *p)
{
    weft_text t = {0};
    assert_ok(weft_program_print(p, &t));
    return t;
}

static void check(const char *name, pass run)
{
    weft_program *in = load(name, "in"), *want = load(name, "out"), *out, *again;
    weft_text     a = text_of(in), w = text_of(want);
    assert_ok(run(in, &out));
    weft_text b = text_of(in), o = text_of(out);
    assert_string_equal(a.s, b.s);
    if (strcmp(o.s, w.s) != 0) {
        fputs(o.s, stderr);
        fail_msg("%s makes the program above, not %s.out.prog", name, name);
    }
    assert_ok(weft_program_verify(out));
    assert_ok(weft_program_copy(out, &again));
    weft_text c = text_of(again);
    assert_string_equal(c.s, o.s);
    weft_text *all[] = {&a, &b, &c, &o, &w};
    for (int i = 0; i < 5; i++) weft_text_fini(all[i]);
    weft_program *made[] = {in, want, out, again};
    for (int i = 0; i < 4; i++) weft_program_destroy(made[i]);
}

/* The sum of dw1 starts while dw0 is made. */
static void reductions_overlap(void **state)
{
    (void)state;
    check("overlap_reductions", overlap_reductions);
}

/* What needs neither operands nor results of a collective runs while it does. */
static void collectives_overlap(void **state)
{
    (void)state;
    check("overlap_collectives", weft_pass_overlap_collectives);
}

/* The first product waits for w0 alone; the next step's gathers wait for the update. */
static void step_gathers_overlap(void **state)
{
    (void)state;
    check("overlap_step_gathers", weft_pass_overlap_step_gathers);
}

/* w0 is updated by halves of its rows; what only updates use is in the host's memory, and the next
 * step's products wait for the copies of their own parameter alone. */
static void updates_move(void **state)
{
    (void)state;
    check("offload_optimizer", offload_optimizer);
}

/* Programs of all ranks of a file; each sends to its guard and holds its ward's state. */
static void check_standby(const char *from, const char *to)
{
    static char    text[32768];
    weft_program **in, *out[4];
    weft_text      made = {0};
    int            n;
    FILE          *f = fopen(from, "r");
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_ok(weft_program_parse_set(from, text, size, &in, &n));
    assert_true(n <= 4);
    for (int r = 0; r < n; r++) {
        weft_standby_options o = {.n            = 1,
                                  .guard        = {in[weft_standby_guard(r, n, 1, 0)]},
                                  .ward         = {in[weft_standby_ward(r, n, 1, 0)]},
                                  .bucket_bytes = 100};
        assert_ok(weft_pass_add_standby(in[r], &o, &out[r]));
        assert_ok(weft_program_verify(out[r]));
        assert_ok(weft_program_print(out[r], &made));
    }
    assert_ok(weft_program_verify_all((const weft_program *const *)out, n));
    f = fopen(to, "r");
    assert_non_null(f);
    size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[size] = 0;
    if (strcmp(made.s, text) != 0) {
        fputs(made.s, stderr);
        fail_msg("%s makes the programs above, not %s", from, to);
    }
    for (int r = 0; r < n; r++) weft_program_destroy(out[r]);
    weft_program_destroy_set(in, n);
    weft_text_fini(&made);
}

/* Two stages: gradients overlap with the backward pass, the clipping scale is each rank's own. */
static void stages_stand_by(void **state)
{
    (void)state;
    check_standby("tests/golden/two_stage.prog",
                  "tests/partition/passes/add_standby_pp.out.prog");
}

/* Halves of a matrix: what both ranks hold has no replica, what is made late is sent late. */
static void shards_stand_by(void **state)
{
    (void)state;
    check_standby("tests/partition/passes/add_standby_tp.in.prog",
                  "tests/partition/passes/add_standby_tp.out.prog");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_overlap),   cmocka_unit_test(collectives_overlap),
        cmocka_unit_test(step_gathers_overlap), cmocka_unit_test(stages_stand_by),
        cmocka_unit_test(shards_stand_by),      cmocka_unit_test(updates_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
