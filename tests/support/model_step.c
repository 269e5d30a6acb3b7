#include "support/model_step.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "store/hf_dir.h"

/* Where a region begins in its parameter; ours are runs of whole rows. */
static int64_t first_of(const weft_region *r)
{
    int64_t at = 0, step = 1;
    for (int d = r->global.n - 1; d >= 0; step *= r->global.d[d--])
        at += r->offset[d] * step;
    return at;
}

static void fill_weights(test_step *s, const char *dir)
{
    weft_store_dir *d;
    int             left = s->m->n_stat;
    assert_int_equal(weft_store_dir_open(dir, &d), WEFT_OK);
    for (int i = 0; i < s->m->n_param; i++) left += s->m->param[i].n_tensor;
    for (int i = 0; i < weft_store_dir_count(d); i++) {
        const weft_store_tensor *f = weft_store_dir_at(d, i);
        const weft_model_param  *p;
        const weft_model_tensor *t;
        if (!weft_model_find_tensor(s->m, f->name, &p, &t)) continue;
        if (!weft_shape_equal(&f->shape, &t->shape))
            fail_msg("%s: another shape", f->name);
        double *to = s->e.data[p->value] + first_of(&t->region);
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++) {
            float x;
            memcpy(&x, (const char *)f->data + 4 * k, 4);
            to[k] = x;
        }
        left--;
    }
    if (left) fail_msg("%s: %d tensors are not there", dir, left);
    weft_store_dir_close(d);
}

void test_step_open(test_step *s, const char *dir, weft_model_options o)
{
    o.with_loss = true;
    if (weft_model_load(dir, &o, &s->m) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_int_equal(weft_arena_create(&s->a), WEFT_OK);
    weft_vid *wrt = WEFT_ARENA_ARRAY(s->a, weft_vid, s->m->n_param);
    s->grad       = WEFT_ARENA_ARRAY(s->a, weft_vid, s->m->n_param);
    for (int i = 0; i < s->m->n_param; i++) wrt[i] = s->m->param[i].value;
    if (weft_graph_differentiate(s->m->graph, s->m->loss_sum, -1, s->m->n_param, wrt,
                                 s->grad) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_graph_verify(s->m->graph), WEFT_OK);
    assert_int_equal(weft_test_eval_make(s->m->graph, s->a, &s->e), WEFT_OK);
    fill_weights(s, dir);
}

void test_step_run(test_step *s, double *loss, double *norm)
{
    const weft_model *m       = s->m;
    double            n_label = 0, sq = 0;
    if (weft_test_eval_run(&s->e, WEFT_PHASE_FORWARD, WEFT_PHASE_BACKWARD, false, NULL) !=
        WEFT_OK)
        fail_msg("%s", weft_error_text());
    for (int64_t i = 0; i < m->n_label; i++) n_label += s->e.data[m->labels][i] != -100;
    for (int i = 0; i < m->n_param; i++) {
        assert_true(s->grad[i] >= 0);
        const double *g = s->e.data[s->grad[i]];
        int64_t       n = weft_shape_count(&m->graph->value[s->grad[i]].type.shape);
        for (int64_t k = 0; k < n; k++) sq += g[k] * g[k];
    }
    *loss = s->e.data[m->loss_sum][0] / n_label;
    *norm = sqrt(sq) / n_label;
}

void test_step_close(test_step *s)
{
    weft_arena_destroy(s->a);
    weft_model_destroy(s->m);
}
