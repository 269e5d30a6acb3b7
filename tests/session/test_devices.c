/* src/app/session/devices.c: what ranks run on decides the order of sums and whose kernels must be
 * alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#include "session/session_priv.h"

enum {
    MAX_RANK = 4
};

typedef struct fixture {
    weft_session       s;
    weft_generation    g;
    weft_session__card card[MAX_RANK];
} fixture;

/* One letter a rank: c a CPU, 0 to 9 a GPU by its number. */
static fixture *make(fixture *f, const char *ranks, const char *reduction)
{
    *f = (fixture){.s.now = &f->g};
    for (int r = 0; ranks[r]; r++) {
        bool        gpu  = ranks[r] != 'c';
        const char *kind = gpu ? "cuda" : "cpu";
        snprintf(f->card[r].kind, sizeof f->card[r].kind, "%s", kind);
        snprintf(f->card[r].kernels, sizeof f->card[r].kernels, "%s 1.0", kind);
        if (gpu) snprintf(f->card[r].gpu, sizeof f->card[r].gpu, "id-%c", ranks[r]);
        f->g.devices.n++;
    }
    f->g.devices.card  = f->card;
    f->s.job.reduction = reduction;
    f->s.say.mute      = true;
    weft_session__count_devices(&f->g.devices);
    return f;
}

static const char *resolve(fixture *f)
{
    weft_session__resolve_reduction(&f->s);
    return f->s.job.reduction;
}

static void test_count(void **state)
{
    (void)state;
    fixture f;
    assert_int_equal(make(&f, "0000", "auto")->g.devices.n_gpu, 1);
    assert_int_equal(make(&f, "0101", "auto")->g.devices.n_gpu, 2);
    assert_int_equal(make(&f, "3c0c", "auto")->g.devices.n_gpu, 2);
    assert_int_equal(f.g.devices.n_cpu, 2);
}

static void test_reduction(void **state)
{
    (void)state;
    static const struct {
        const char *ranks, *given, *taken;
    } row[] = {
        {"c", "auto", "auto"},
        {"cccc", "auto", "auto"},
        {"0", "auto", "auto"},
        {"0000", "auto", "auto"},
        {"01", "auto", "fixed"},
        {"0101", "auto", "fixed"},
        {"0c", "auto", "fixed"},
        {"01", "invariant", "invariant"},
        {"0", "fixed", "fixed"},
        {"cc", "fixed", "fixed"},
        {"0c", "invariant", "invariant"},
    };
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        fixture f;
        assert_string_equal(resolve(make(&f, row[i].ranks, row[i].given)), row[i].taken);
    }
}

/* A plan says it itself; a job that has begun keeps what it has. */
static void test_kept(void **state)
{
    (void)state;
    fixture f;
    make(&f, "01", "auto")->s.job.plan_file = "plan.yaml";
    assert_string_equal(resolve(&f), "auto");
    make(&f, "01", "auto")->s.started = true;
    assert_string_equal(resolve(&f), "auto");
}

static void test_kernels(void **state)
{
    (void)state;
    fixture f;
    assert_ok(weft_session__compare_kernels(&make(&f, "0101", "invariant")->s));
    assert_ok(weft_session__compare_kernels(&make(&f, "0c1c", "invariant")->s));
    make(&f, "cc01", "invariant");
    snprintf(f.card[3].kernels, sizeof f.card[3].kernels, "cuda 1.0 cublasLt-13.2.0");
    assert_int_equal(weft_session__compare_kernels(&f.s), WEFT_ERR_ARG);
    assert_string_equal(
        weft_error_text(),
        "ranks on cuda have unlike kernels: rank 2 has cuda 1.0, rank 3 has cuda 1.0 "
        "cublasLt-13.2.0; reduction: invariant needs the same ones: install the same "
        "libraries and weft on like devices, or set reduction=fixed");
    f.s.job.reduction = "fixed";
    assert_ok(weft_session__compare_kernels(&f.s));
    make(&f, "cc0", "auto");
    snprintf(f.card[1].kernels, sizeof f.card[1].kernels, "cpu 1.0 avx2");
    assert_int_equal(weft_session__compare_kernels(&f.s), WEFT_ERR_ARG);
    assert_non_null(
        strstr(weft_error_text(), "ranks on cpu have unlike kernels: rank 0"));
}

static void expect(const char *device, int world, int local, int n_cpu, int n_gpu)
{
    weft_session__devices d;
    weft_job              j = {.device = device, .file = "job.yaml"};
    assert_ok(weft_session__expect_devices(&j, world, local, &d));
    assert_int_equal(d.n_cpu, n_cpu);
    assert_int_equal(d.n_gpu, n_gpu);
}

/* Without ranks, as --print-plan asks. */
static void test_expected(void **state)
{
    (void)state;
    expect("cpu", 4, 4, 4, 0);
    expect("cuda", 4, 4, 0, 4);
    expect("cuda", 4, 2, 0, 4);
    expect("cuda:1", 2, 2, 0, 1);
    expect("cuda:0,cpu", 4, 2, 2, 2);
    expect("cuda:0,cuda:0", 2, 2, 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count), cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_kept), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_expected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
