/* Every family against Hugging Face on tiny models (tests/fixtures/families, made by make.py
 * there): loss and gradient norm in double precision, running statistics after the step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/safetensors.h"
#include "support/model_step.h"

#define ROOT "tests/fixtures/families"

/* Element i of a tensor, whatever it is made of. */
static double element(const weft_store_tensor *t, int64_t i)
{
    const char *p = t->data;
    int32_t     k;
    float       f;
    double      d;
    switch (t->dtype) {
    case WEFT_DTYPE_I32: memcpy(&k, p + 4 * i, 4); return k;
    case WEFT_DTYPE_F32: memcpy(&f, p + 4 * i, 4); return f;
    case WEFT_DTYPE_F64: memcpy(&d, p + 8 * i, 8); return d;
    default: fail_msg("%s: unexpected type", t->name); return 0;
    }
}

static const weft_store_tensor *get(const weft_store_file *f, const char *name)
{
    const weft_store_tensor *t = weft_store_find(f, name);
    if (!t) fail_msg("%s is not there", name);
    return t;
}

static void fill(test_step *s, weft_vid v, const weft_store_tensor *t)
{
    assert_true(v >= 0);
    assert_true(weft_shape_equal(&t->shape, &s->m->graph->value[v].type.shape));
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        s->e.data[v][i] = element(t, i);
}

static void near(const char *what, double got, double want)
{
    /* theirs rotates and normalises in single precision whatever the rest does */
    if (fabs(got - want) > 1e-6 * (fabs(want) + 1e-3))
        fail_msg("%s: %.12g, expected %.12g", what, got, want);
}

static void check_stats(test_step *s, const weft_store_file *f)
{
    for (int i = 0; i < s->m->n_stat; i++) {
        const weft_model_stat *r = &s->m->stat[i];
        char                   name[160];
        snprintf(name, sizeof name, "after.%s", r->p.name);
        const weft_store_tensor *want = get(f, name);
        for (int64_t k = 0; k < weft_shape_count(&want->shape); k++)
            near(name,
                 (1 - r->momentum) * s->e.data[r->p.value][k] +
                     r->momentum * r->unbias * s->e.data[r->stat][k],
                 element(want, k));
    }
}

static void family(void **state)
{
    const char        *name = *state;
    char               path[128];
    weft_store_file   *f;
    test_step          s;
    double             loss, norm;
    weft_model_options o = {.batch = 2, .seq = 10};

    snprintf(path, sizeof path, ROOT "/%s/step.safetensors", name);
    if (weft_store_open(path, &f) != WEFT_OK) fail_msg("%s", weft_error_text());
    bool images = weft_store_find(f, "images") != NULL;
    if (images) o.batch = 3;
    snprintf(path, sizeof path, ROOT "/%s", name);
    test_step_open(&s, path, o);
    fill(&s, s.m->ids, get(f, images ? "images" : "input_ids"));
    fill(&s, s.m->labels, get(f, "labels"));
    if (s.m->decoder_ids >= 0) fill(&s, s.m->decoder_ids, get(f, "decoder_input_ids"));

    test_step_run(&s, &loss, &norm);
    near("loss", loss, element(get(f, "loss"), 0));
    near("gradient norm", norm, element(get(f, "grad_norm"), 0));
    check_stats(&s, f);
    test_step_close(&s);
    weft_store_close(f);
}

#define FAMILY(name)                                                                     \
    {                                                                                    \
        name, family, NULL, NULL, name                                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAMILY("gpt2"),   FAMILY("llama"),        FAMILY("mistral"),
        FAMILY("qwen2"),  FAMILY("mixtral"),      FAMILY("bert"),
        FAMILY("ernie"),  FAMILY("t5"),           FAMILY("t5-gated"),
        FAMILY("resnet"), FAMILY("resnet-basic"), FAMILY("mixtral-balanced"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
