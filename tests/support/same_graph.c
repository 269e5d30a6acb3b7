#include "support/same_graph.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

static void same_value(const weft_graph_value *a, const weft_graph_value *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->type.dtype, b->type.dtype);
    assert_true(weft_shape_equal(&a->type.shape, &b->type.shape));
    assert_int_equal(a->per_step, b->per_step);
    assert_int_equal(a->node, b->node);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->next, b->next);
    assert_int_equal(a->copy_of, b->copy_of);
}

static void same_node(const weft_graph_node *a, const weft_graph_node *b)
{
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->n_in, b->n_in);
    assert_int_equal(a->n_out, b->n_out);
    assert_int_equal(memcmp(a->in, b->in, sizeof(weft_vid) * (size_t)a->n_in), 0);
    assert_int_equal(memcmp(a->out, b->out, sizeof(weft_vid) * (size_t)a->n_out), 0);
    for (int i = 0; i < weft_op_n_attr(a->op); i++) {
        const weft_attr *x = &a->attr[i], *y = &b->attr[i];
        assert_int_equal(x->i, y->i);
        assert_true(x->f == y->f);
        assert_string_equal(x->s ? x->s : "", y->s ? y->s : "");
        assert_int_equal(x->n, y->n);
        assert_int_equal(memcmp(x->l, y->l, sizeof(int64_t) * (size_t)x->n), 0);
    }
}

void test_same_graph(const weft_graph *a, const weft_graph *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_value, b->n_value);
    for (int i = 0; i < a->n_value; i++) same_value(&a->value[i], &b->value[i]);
    assert_int_equal(a->n_node, b->n_node);
    for (int i = 0; i < a->n_node; i++) same_node(&a->node[i], &b->node[i]);
    assert_int_equal(a->n_output, b->n_output);
    for (int i = 0; i < a->n_output; i++) assert_int_equal(a->output[i], b->output[i]);
}
