/* weft cluster calibrate beside stub libraries whose GPU takes stated times: what it writes is
 * what they state, and what is missing or fails is one line. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cluster/cluster.h"
#include "stub/stated.h"
#include "support/files.h"
#include "support/test.h"

/* The command with libraries of these folders; what it says is in file "said". */
static int run(const char *libraries, const char *stub, const char *words)
{
    char line[4096];
    snprintf(line, sizeof line,
             "B=$(dirname " WEFT_TEST_COMMAND "); cd %s; export STUB_CUDA='%s' "
             "LD_LIBRARY_PATH=%s XDG_CACHE_HOME=$PWD/cache; { $B/weft %s; } >said 2>&1",
             test_files_path("."), stub, libraries, words);
    int how = system(line);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void said(const char *what)
{
    size_t n;
    char  *s = test_files_read(test_files_path("said"), &n);
    if (!strstr(s, what)) fail_msg("'%s' is not in: %s", what, s);
    free(s);
}

static void near(double x, double want, double off)
{
    if (fabs(x / want - 1) > off) fail_msg("%g, expected %g", x, want);
}

static double share_of(const weft_device_kind *d, const char *dtype)
{
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, dtype)) return d->rate[i].efficiency;
    fail_msg("no rate for %s", dtype);
    return 0;
}

static weft_cluster *load(void)
{
    weft_cluster *c;
    assert_ok(weft_cluster_load(test_files_path("gpu.yaml"), NULL, &c));
    return c;
}

#define BOTH      "$B/stub_cuda:$B/stub_blas:$B/stub_nccl"
#define FILES     "$OLDPWD/tests/fixtures/estimate"
#define ROWS      FILES "/rows.csv"
#define CALIBRATE "cluster calibrate --only gpus -o gpu.yaml"

static void everything(void **state)
{
    (void)state;
    if (run(BOTH, "", CALIBRATE)) said("no failure");
    said("2 x NVIDIA H200, measured");
    weft_cluster           *c = load();
    const weft_device_kind *d = weft_cluster_device(c, 0);
    assert_string_equal(d->name, "h200-141g");
    assert_int_equal(weft_cluster_count(c), 2);
    near(share_of(d, "bf16"), STATED_BF16, 0.01);
    near(share_of(d, "f16"), STATED_F16, 0.01);
    near(share_of(d, "f8_e4m3"), STATED_F8, 0.01);
    near(share_of(d, "f8_e5m2"), STATED_F8, 0.01);
    near(share_of(d, "tf32"), STATED_TF32, 0.01);
    near(share_of(d, "f32"), STATED_F32, 0.01);
    near(d->efficiency, STATED_BF16, 0.01);
    near(d->half_size, STATED_HALF, 0.05);
    near(d->stream * d->mem_Bps, STATED_STREAM, 0.01);
    near(d->launch_s, STATED_LAUNCH_S, 0.01);
    near((double)d->mem_bytes, (double)STATED_FREE, 0.05);
    assert_true(weft_cluster_flops(d, "bf16") == STATED_PEAK);
    assert_true(weft_cluster_flops(d, "tf32") == STATED_PEAK / 2);
    assert_int_equal(d->n_point, 5);
    assert_non_null(strstr(d->source, "measured by weft cluster calibrate"));
    const weft_link_kind *l = weft_cluster_link(c, 0, 1);
    assert_string_equal(l->name, "nvlink4");
    near(l->Bps * l->share, STATED_PEER, 0.01);
    near(l->alpha_s, STATED_PEER_S, 0.01);
    assert_int_equal(l->n_measured, 1);
    assert_int_equal(l->measured[0].n, 2);
    near(l->measured[0].alpha_s, STATED_SUM_S, 0.02);
    near(l->measured[0].Bps, STATED_SUM, 0.01);
    weft_cluster_destroy(c);
}

/* What other commands make of the file. */
static void used(void **state)
{
    (void)state;
    assert_int_equal(
        run(BOTH, "", CALIBRATE " --list all.csv && grep '^product tf32' all.csv"), 0);
    said("product tf32,4096,4096,4096,");
    assert_int_equal(run(BOTH, "", "cluster show gpu.yaml"), 0);
    said("reached");
    said("data sheet");
    assert_int_equal(run(BOTH, "", "cluster discover"), 0); /* out of the cache */
    said("measured by weft cluster calibrate");
    /* hardware.csv has no such GPU; one that has gets its numbers */
    assert_int_equal(
        run(BOTH, "", "estimate --cluster gpu.yaml --table " ROWS " --hardware " FILES),
        2);
    said("has measured no device of hardware.csv");
    assert_int_equal(run(BOTH, "",
                         "estimate --hardware " FILES " --table " ROWS " >plain; sed "
                         "s/h200-141g/h100-80g/ gpu.yaml >h100.yaml; $B/weft estimate "
                         "--cluster h100.yaml --hardware " FILES " --table " ROWS
                         " >mine; "
                         "grep -h ^dense plain mine"),
                     0);
    size_t n;
    char  *two = test_files_read(test_files_path("said"), &n), *end;
    char  *at = strstr(two, "dense,"), *next = at ? strstr(at + 6, "dense,") : NULL;
    if (!next) fail_msg("%s", two);
    double plain = strtod(at + 6, &end), mine = strtod(next + 6, &end);
    assert_true(mine > 0.8 * plain && mine < 1.2 * plain && mine != plain);
    free(two);
    assert_int_equal(run(BOTH, "",
                         "plan --model gpt2 --cluster gpu.yaml --batch 16 --seq 1024 "
                         "--engine megatron"),
                     0);
}

static void a_kind_nobody_knows(void **state)
{
    (void)state;
    if (run(BOTH, "other,one", CALIBRATE)) said("no failure");
    weft_cluster           *c = load();
    const weft_device_kind *d = weft_cluster_device(c, 0);
    assert_string_equal(d->name, "loom-7");
    assert_non_null(strstr(d->source, "no data sheet"));
    /* the best is below the rate of an endless product, and so is the peak */
    double best = weft_cluster_flops(d, "bf16");
    assert_true(best < STATED_PEAK * STATED_BF16 &&
                best > 0.9 * STATED_PEAK * STATED_BF16);
    near(d->mem_Bps, 2 * 3201e6 * 6144 / 8, 1e-6);
    weft_cluster_destroy(c);
}

static void parts_that_are_missing(void **state)
{
    (void)state;
    weft_cluster *c;
    /* no products */
    assert_int_equal(run("$B/stub_cuda:$B/stub_blas_old", "one", CALIBRATE), 0);
    said("NVIDIA H200: products not measured: libcublasLt has no cublasLtMatmul");
    c = load();
    near(c->device[0].stream * c->device[0].mem_Bps, STATED_STREAM, 0.01);
    assert_int_equal(c->device[0].n_point, 0);
    assert_non_null(strstr(c->device[0].source, "partly measured"));
    weft_cluster_destroy(c);
    assert_int_equal(run(BOTH, "one,fail:cublasLtMatmul", CALIBRATE), 0);
    said("products not measured: cublasLtMatmul fails with 13");
    assert_int_equal(run(BOTH, "fail:ncclCommInitAll", CALIBRATE), 0);
    said("sums over GPUs not measured: ncclCommInitAll fails with 2");
    /* no 8-bit types, no copies */
    assert_int_equal(run(BOTH, "one,fail:f8,fail:cuMemcpyDtoHAsync_v2", CALIBRATE), 0);
    said("copies to the host not measured: cuMemcpyDtoHAsync_v2 fails with 999: as the");
    c = load();
    assert_true(share_of(&c->device[0], "f8_e4m3") == 0);
    near(share_of(&c->device[0], "bf16"), STATED_BF16, 0.01);
    weft_cluster_destroy(c);
}

/* Times that change while they are taken: marked; that change wildly: refused. */
static void disturbed(void **state)
{
    (void)state;
    weft_cluster *c;
    assert_int_equal(run(BOTH, "one,uneven", CALIBRATE), 0);
    c = load();
    assert_non_null(strstr(c->device[0].source, "disturbed: one product took"));
    assert_int_equal(c->device[0].n_point, 5);
    weft_cluster_destroy(c);
    assert_int_equal(run(BOTH, "one,wild", CALIBRATE), 0);
    said("products not measured: one of them takes ");
    c = load();
    assert_int_equal(c->device[0].n_point, 0);
    weft_cluster_destroy(c);
}

static void nothing_to_measure(void **state)
{
    (void)state;
    static const struct {
        const char *libraries, *stub, *line;
    } t[] = {
        {"/nowhere", "", "GPUs are not measured: libcuda.so.1 is not here"},
        {"$B/stub_cuda_old", "", "libcuda.so.1 has no cuLaunchKernel: a driver before"},
        {BOTH, "none", "GPUs are not measured: the driver finds none"},
        {BOTH, "fail:cuInit", "GPUs are not measured: cuInit fails with 999: as the"},
        {BOTH, "full", "NVIDIA H200: 1 MiB of memory are free, of 153600"},
        {BOTH, "fail:cuMemAlloc_v2", "NVIDIA H200: cuMemAlloc_v2 fails with 999"},
        {BOTH, "other,fail:cublasLtCreate", "GPUs are left out: NVIDIA Loom 7: neither"},
    };
    void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (real) dlclose(real);
    for (size_t i = real ? 1 : 0; i < WEFT_COUNT(t); i++) {
        assert_int_equal(run(t[i].libraries, t[i].stub, CALIBRATE), 1);
        said(t[i].line);
    }
}

/* Not measured yet: by NVML; programs run on processors all the same. */
static void described(void **state)
{
    (void)state;
    assert_int_equal(run("$B/stub_nvml", "", "cluster discover"), 0);
    said("2 x h200-141g, nvlink4");
    said("NVML: NVIDIA H200; peaks as h200-141g");
    /* with a driver: lines of the GPUs and libraries, and why nothing trains there */
    assert_int_equal(run("$B/stub_nvml:" BOTH, "", "cluster discover"), 0);
    said("driver 580.159.04, of CUDA 13.0\n"
         "cuda:0  NVIDIA H200, capability 9.0, 132 multiprocessors, ");
    said(" GiB free; 18 NVLinks; peer access to cuda:1\ncuda:1  NVIDIA H200, ");
    said("; 18 NVLinks; peer access to cuda:0\nno training on GPUs: ");
    said("\nNCCL 2.28.9 ");
    assert_int_equal(run("$B/stub_nvml:" BOTH, "one", "cluster discover"), 0);
    said("GiB\nno training on GPUs: ");
    assert_int_equal(run("$B/stub_nvml", "", "cluster discover --ranks 2"), 0);
    said("2 x cpu");
    assert_int_equal(run("$B/stub_nvml", "other", "cluster discover"), 2);
    said("NVML finds 2 x NVIDIA Loom 7, a kind we have no numbers for: weft cluster");
}

/* Processors stand beside GPUs with their times, and are no node. */
static void processors_beside(void **state)
{
    (void)state;
    static const char gpu[] =
        "name: g\nnode:\n  - {name: host, device: h200-141g, n_device: 1}\n";
    static const char cpu[] =
        "name: c\ndevice:\n  - {name: mine, like: cpu}\nlink:\n  - {name: memory, "
        "alpha_s: "
        "1e-6, Bps: 1e10}\nnode:\n  - {name: host, device: mine, n_device: 2, link: "
        "memory}\ntiming:\n  - {device: mine, work: stream, size: [4096], s: 1e-6}\n  - "
        "{link: memory, work: send, size: [64], s: 2e-6}\n";
    weft_cluster *g, *c, *both;
    int           n;
    assert_ok(weft_cluster_parse("g", gpu, sizeof gpu - 1, &g));
    assert_ok(weft_cluster_parse("c", cpu, sizeof cpu - 1, &c));
    assert_ok(weft_cluster_beside(g, c, &both));
    assert_int_equal(weft_cluster_count(both), 1);
    assert_string_equal(weft_cluster_device(both, 0)->name, "h200-141g");
    assert_string_equal(both->device[1].name, "mine");
    assert_true(weft_cluster_hash_shape(both) == weft_cluster_hash_shape(g));
    assert_non_null(weft_cluster_timings(both, 1, -1, "stream", -1, &n));
    int memory = 0;
    while (strcmp(both->link[memory].name, "memory")) memory++;
    assert_non_null(weft_cluster_timings(both, -1, memory, "send", -1, &n));
    weft_cluster_destroy(both);
    weft_cluster_destroy(g);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(everything),          with_files(used),
        with_files(a_kind_nobody_knows), with_files(parts_that_are_missing),
        with_files(disturbed),           with_files(nothing_to_measure),
        with_files(described),           cmocka_unit_test(processors_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
