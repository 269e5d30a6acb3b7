/* The models' graphs against Hugging Face: the first step's loss and gradient norm of all six
 * reference models, computed in double precision by the reference kernels, agree with PyTorch's own
 * double-precision run.  Shows that graphs, their gradients and the files' names mean the same. */
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
#include "store/safetensors.h"
#include "support/model_step.h"

#define ROOT "../shared/reference"

static const char *path_of(char buf[128], const char *model, const char *file)
{
    snprintf(buf, 128, ROOT "/%s/%s", model, file);
    return buf;
}

/* ---- what PyTorch got ---- */
typedef struct expected {
    int64_t batch, seq;
    double  loss, grad_norm; /* of the first step, fp64 */
} expected;

static double first_of(const weft_node *root, const char *key)
{
    const weft_node *list = weft_node_get(weft_node_get(root, "fp64"), key);
    assert_non_null(list);
    return list->u.list.node[0]->u.f;
}

static expected read_expected(const char *model)
{
    char      path[128];
    weft_doc *d;
    expected  e = {0};
    assert_int_equal(weft_doc_load(path_of(path, model, "reference.json"), &d), WEFT_OK);
    const weft_node *root = weft_doc_root(d);
    assert_int_equal(weft_doc_get_int(d, root, "batch", &e.batch), WEFT_OK);
    assert_int_equal(weft_doc_get_int(d, root, "seq", &e.seq), WEFT_OK);
    e.loss      = first_of(root, "loss");
    e.grad_norm = first_of(root, "grad_norm");
    weft_doc_destroy(d);
    return e;
}

/* ---- its inputs ---- */
/* Sample i: T+1 tokens from i*T, inputs and the same moved by one. */
static void fill_tokens(const weft_model *m, const char *model, weft_test_eval *e)
{
    char   path[128], *p;
    size_t n;
    assert_int_equal(weft_io_read_file(path_of(path, model, "tokens.bin"), &p, &n),
                     WEFT_OK);
    for (int64_t i = 0; i < m->batch * m->seq; i++) {
        uint16_t t[2];
        memcpy(t, p + 2 * i, 4);
        e->data[m->ids][i]    = t[0];
        e->data[m->labels][i] = t[1];
    }
    free(p);
}

static void fill_rows(const weft_model *m, const char *model, weft_test_eval *e)
{
    char             path[128];
    weft_store_file *f;
    assert_int_equal(weft_store_open(path_of(path, model, "data.safetensors"), &f),
                     WEFT_OK);
    const weft_store_tensor *t[2] = {weft_store_find(f, "input_ids"),
                                     weft_store_find(f, "labels")};
    weft_vid                 v[2] = {m->ids, m->labels};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < m->batch * m->seq; i++) {
            int32_t x;
            memcpy(&x, (const char *)t[k]->data + 4 * i, 4);
            e->data[v[k]][i] = x;
        }
    weft_store_close(f);
}

static void first_step_agrees(const char *model)
{
    char      path[128];
    expected  want = read_expected(model);
    test_step s;
    double    loss, norm;
    test_step_open(&s, path_of(path, model, "init"),
                   (weft_model_options){.batch = want.batch, .seq = want.seq});
    if (s.m->causal)
        fill_tokens(s.m, model, &s.e);
    else
        fill_rows(s.m, model, &s.e);
    test_step_run(&s, &loss, &norm);
    /* theirs rotates and normalises in single precision whatever the rest does: 1e-7, not 1e-12 */
    if (fabs(loss - want.loss) > 1e-7 * want.loss ||
        fabs(norm - want.grad_norm) > 1e-7 * norm)
        fail_msg("%s: loss %.12g, expected %.12g; gradient norm %.12g, expected %.12g",
                 model, loss, want.loss, norm, want.grad_norm);
    test_step_close(&s);
}

static void run(void **state)
{
    const char *model = *state;
    /* two of six have every operator of theirs but the rotation, which mixtral has too */
    if (WEFT_TEST_SANITIZED && strcmp(model, "mixtral") && strcmp(model, "bert")) skip();
    if (!weft_io_exists(ROOT "/gpt2/reference.json")) {
        print_message(ROOT " is absent: skipped\n");
        skip();
    }
    first_step_agrees(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"gpt2", run, NULL, NULL, "gpt2"},   {"llama", run, NULL, NULL, "llama"},
        {"qwen2", run, NULL, NULL, "qwen2"}, {"mixtral", run, NULL, NULL, "mixtral"},
        {"bert", run, NULL, NULL, "bert"},   {"ernie", run, NULL, NULL, "ernie"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
