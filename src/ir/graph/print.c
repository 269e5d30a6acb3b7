/* A graph as text that a person likes to read:
 *
 *     graph mlp {
 *       input   x: f32[8,16]
 *       input   lr: f32[] per_step
 *       param   w: f32[16,4]
 *
 *       forward
 *       y: f32[8,4] = matmul(x, w) {spec=bd,dn->bn}
 *       ...
 *       next w = w.next
 *       copy w.bf16 = w
 *       output loss
 *     }
 *
 * Lines follow the order of values, so the text keeps every value's number.  Attributes at their
 * defaults are left out, names that are no plain word stand between quotes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph_priv.h"

static const char *const phase_name[] = {"forward", "backward", "update"};

/* A name that the tokenizer reads as one word; others are written between quotes. */
static bool is_word(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_' && *s != '%') return false;
    for (s++; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("_.%/'", *s) &&
            (*s != '-' || s[1] == '>'))
            return false;
    return true;
}

static void put_name(weft_text *t, const char *name)
{
    if (is_word(name))
        weft_text_add(t, "%s", name);
    else
        weft_text_put_quoted(t, name);
}

static void put_value(weft_text *t, const weft_graph_value *v)
{
    char buf[192];
    put_name(t, v->name);
    weft_text_add(t, ": %s[%s]", weft_dtype_name(v->type.dtype),
                  weft_shape_text(&v->type.shape, buf, sizeof buf));
}

static void put_leaf(weft_text *t, const weft_graph_value *v)
{
    static const char *const kind[] = {"input", "param", "state"};
    weft_text_add(t, "  %-7s ", kind[v->kind]);
    put_value(t, v);
    weft_text_add(t, "%s\n", v->per_step ? " per_step" : "");
}

static void put_node(weft_text *t, const weft_graph *g, const weft_graph_node *n)
{
    weft_text attr = {0};
    for (int j = 0; j < n->n_out; j++) {
        weft_text_add(t, j ? ", " : "  ");
        put_value(t, &g->value[n->out[j]]);
    }
    weft_text_add(t, " = %s(", weft_op_get(n->op)->name);
    for (int i = 0; i < n->n_in; i++) {
        if (i) weft_text_add(t, ", ");
        put_name(t, g->value[n->in[i]].name);
    }
    weft_text_add(t, ")");
    weft_op_print_attr(n->op, n->attr, &attr);
    if (attr.n) weft_text_add(t, " {%s}", attr.s);
    weft_text_add(t, "\n");
    if (attr.failed) t->failed = 1;
    weft_text_fini(&attr);
}

static void put_values(weft_text *t, const weft_graph *g)
{
    int phase = -1;
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].kind != WEFT_VALUE_NODE) {
            put_leaf(t, &g->value[v]);
            continue;
        }
        if (g->value[v].index > 0) continue; /* its node's line names it */
        const weft_graph_node *n = &g->node[g->value[v].node];
        if ((int)n->phase != phase) weft_text_add(t, "\n  %s\n", phase_name[n->phase]);
        phase = (int)n->phase;
        put_node(t, g, n);
    }
}

static void put_pair(weft_text *t, const char *word, const weft_graph *g, weft_vid a,
                     weft_vid b)
{
    weft_text_add(t, "  %s ", word);
    put_name(t, g->value[a].name);
    weft_text_add(t, " = ");
    put_name(t, g->value[b].name);
    weft_text_add(t, "\n");
}

weft_status weft_graph_to_text(const weft_graph *g, char **text)
{
    weft_text t = {0};
    weft_text_add(&t, "graph ");
    put_name(&t, g->name);
    weft_text_add(&t, " {\n");
    put_values(&t, g);
    weft_text_add(&t, "\n");
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].next >= 0) put_pair(&t, "next", g, v, g->value[v].next);
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].copy_of >= 0) put_pair(&t, "copy", g, v, g->value[v].copy_of);
    for (int i = 0; i < g->n_output; i++) {
        weft_text_add(&t, "  output ");
        put_name(&t, g->value[g->output[i]].name);
        weft_text_add(&t, "\n");
    }
    weft_text_add(&t, "}\n");
    if (weft_text_status(&t) != WEFT_OK) {
        weft_text_fini(&t);
        return WEFT_FAIL(WEFT_ERR_MEM, "graph %s: no memory for its text", g->name);
    }
    *text = t.s;
    return WEFT_OK;
}
