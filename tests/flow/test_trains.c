/* Training against independent implementations: losses, gradient norms and final weights.
 *
 *   tests/fixtures      two tiny models by numpy in double precision (tools/make_fixture.py)
 *   ../shared/reference six models by PyTorch, 20 steps; skipped where it is not there
 *
 * WEFT_TEST_DEVICE=cuda trains them on a GPU. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "job/job.h"
#include "weft/session.h"
#include "support/files.h"
#include "support/weights.h"

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

enum {
    MAX_STEP = 64
};

typedef struct curve {
    int    n;
    double loss[MAX_STEP], norm[MAX_STEP];
} curve;

static double number(const weft_node *n)
{
    assert_non_null(n);
    return n->kind == WEFT_NODE_INT ? (double)n->u.i : n->u.f;
}

static void read_list(const weft_node *map, const char *key, double *out, int *n)
{
    const weft_node *l = weft_node_get(map, key);
    assert_non_null(l);
    assert_true(l->u.list.n <= MAX_STEP);
    *n = l->u.list.n;
    for (int i = 0; i < *n; i++) out[i] = number(l->u.list.node[i]);
}

static curve read_curve(const weft_node *map)
{
    curve c;
    read_list(map, "loss", c.loss, &c.n);
    read_list(map, "grad_norm", c.norm, &c.n);
    return c;
}

static curve read_metrics(const char *path)
{
    curve  c = {.n = 0};
    size_t n;
    char  *text = test_files_read(path, &n), *save = NULL;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        weft_doc *d;
        OK(weft_doc_parse_json(path, l, strlen(l), &d));
        const weft_node *root = weft_doc_root(d);
        assert_int_equal((int)number(weft_node_get(root, "step")), c.n + 1);
        c.loss[c.n]   = number(weft_node_get(root, "loss"));
        c.norm[c.n++] = number(weft_node_get(root, "grad_norm"));
        weft_doc_destroy(d);
    }
    free(text);
    return c;
}

/* tolerance[i] is of norm i. */
static void compare_curve(const char *name, const curve *want, const curve *got,
                          const double *tolerance)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < want->n; i++) {
        double l = fabs(got->loss[i] / want->loss[i] - 1);
        double g = fabs(got->norm[i] / want->norm[i] - 1);
        if (!(l <= 1e-5)) fail_msg("%s step %d: loss off by %.3g", name, i + 1, l);
        if (!(g <= tolerance[i]))
            fail_msg("%s step %d: gradient norm off by %.3g, allowed %.3g", name, i + 1,
                     g, tolerance[i]);
    }
}

/* Runs the job that the numbers in root describe, micro_batch sequences at a time. */
static void train(const weft_node *root, const char *model, const char *data,
                  int64_t micro)
{
    weft_text t = {0};
    weft_job *j;
    double    beta[2];
    int       two;
    read_list(root, "betas", beta, &two);
    weft_text_add(
        &t, "{model: %s, data: %s, seq: %d, batch: %d, micro_batch: %d, steps: %d, ",
        model, data, (int)number(weft_node_get(root, "seq")),
        (int)number(weft_node_get(root, "batch")), (int)micro,
        (int)number(weft_node_get(root, "steps")));
    weft_text_add(
        &t, "optimizer: {name: adamw, lr: %.17g, betas: [%.17g, %.17g], eps: %.17g, ",
        number(weft_node_get(root, "lr")), beta[0], beta[1],
        number(weft_node_get(root, "eps")));
    weft_text_add(&t,
                  "weight_decay: %.17g, clip: 1.0}, output: %s, threads: 2, device: %s}",
                  number(weft_node_get(root, "weight_decay")), test_files_path("out"),
                  getenv("WEFT_TEST_DEVICE") ? getenv("WEFT_TEST_DEVICE") : "cpu");
    OK(weft_job_parse("test.yaml", t.s, t.n, 0, NULL, &j));
    weft_session_options o = {.quiet = true};
    weft_session_result  r;
    OK(weft_session_run(j, &o, &r));
    weft_job_destroy(j);
    weft_text_fini(&t);
}

static void fixture(const char *name, int64_t micro)
{
    char             path[256], model[256], data[256];
    weft_doc        *d;
    weft_store_file *final;
    double           tolerance[MAX_STEP];
    for (int i = 0; i < MAX_STEP; i++) tolerance[i] = 1e-5;
    snprintf(path, sizeof path, "tests/fixtures/%s/expected.json", name);
    snprintf(model, sizeof model, "tests/fixtures/%s/init", name);
    snprintf(data, sizeof data, "tests/fixtures/%s/tokens.bin", name);
    test_files_begin();
    OK(weft_doc_load(path, &d));
    train(weft_doc_root(d), model, data, micro);
    curve want = read_curve(weft_doc_root(d));
    curve got  = read_metrics(test_files_path("out/metrics.jsonl"));
    compare_curve(name, &want, &got, tolerance);
    snprintf(path, sizeof path, "tests/fixtures/%s/final.safetensors", name);
    OK(weft_store_open(path, &final));
    test_weights_compare(name, final, test_files_path("out/final"));
    weft_store_close(final);
    weft_doc_destroy(d);
    test_files_end();
}

static void reference(const char *name, int64_t micro)
{
    char        dir[256], path[512], model[512], data[512];
    weft_doc   *d;
    double      tolerance[MAX_STEP];
    const char *all = getenv("WEFT_TEST_REFERENCE");
    snprintf(dir, sizeof dir, "%s/%s", all ? all : "../shared/reference", name);
    if (!weft_io_exists(dir)) {
        print_message("skipped: %s is not there\n", dir);
        return;
    }
    snprintf(path, sizeof path, "%s/reference.json", dir);
    snprintf(model, sizeof model, "%s/init", dir);
    snprintf(data, sizeof data, "%s/tokens.bin", dir);
    if (!weft_io_exists(data)) snprintf(data, sizeof data, "%s/data.safetensors", dir);
    test_files_begin();
    OK(weft_doc_load(path, &d));
    train(weft_doc_root(d), model, data, micro);
    curve want = read_curve(weft_node_get(weft_doc_root(d), "fp64"));
    curve fp32 = read_curve(weft_node_get(weft_doc_root(d), "fp32"));
    curve got  = read_metrics(test_files_path("out/metrics.jsonl"));
    for (int i = 0; i < want.n; i++)
        tolerance[i] = fmax(1e-5, 4 * fabs(fp32.norm[i] / want.norm[i] - 1));
    compare_curve(name, &want, &got, tolerance);
    snprintf(path, sizeof path, "%s/final", dir);
    test_weights_compare_dir(name, path, test_files_path("out/final"));
    weft_doc_destroy(d);
    test_files_end();
}

static void test_fixture_gpt2(void **s)
{
    (void)s;
    fixture("gpt2", 6);
    fixture("gpt2", 1);
}

static void test_fixture_llama(void **s)
{
    (void)s;
    fixture("llama", 6);
    fixture("llama", 2);
}

#define REFERENCE(name)                                                                  \
    static void test_##name(void **s)                                                    \
    {                                                                                    \
        (void)s;                                                                         \
        if (!WEFT_TEST_SANITIZED) reference(#name, 8);                                   \
        reference(#name, 2);                                                             \
    }
REFERENCE(gpt2)
REFERENCE(llama)
REFERENCE(qwen2)
REFERENCE(mixtral)
REFERENCE(bert)
REFERENCE(ernie)

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_fixture_gpt2), cmocka_unit_test(test_fixture_llama),
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_llama),
        cmocka_unit_test(test_qwen2),        cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_bert),         cmocka_unit_test(test_ernie),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
