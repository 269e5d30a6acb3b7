/* A graph by hand: a small classifier, its gradient, and the text of both.
 *
 *     cc hand_graph.c $(pkg-config --cflags --libs weft) -o hand_graph && ./hand_graph
 *
 * Prints the graph and ends with 0; every step's status is checked, as in any program of yours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/graph.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_error_text());
    return 1;
}

typedef struct classifier {
    weft_vid x, labels;      /* (8,16) numbers, (8) classes */
    weft_vid w1, b1, w2, b2; /* (16,32), (32), (32,4), (4) */
    weft_vid loss;           /* sum over the 8 rows */
} classifier;

static weft_status declare(weft_graph *g, classifier *c)
{
    weft_status st = WEFT_OK;
    if (!st)
        st = weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){8, 16}, &c->x);
    if (!st)
        st = weft_graph_add_input(g, "labels", WEFT_DTYPE_I32, 1, (int64_t[]){8},
                                  &c->labels);
    if (!st)
        st =
            weft_graph_add_param(g, "w1", WEFT_DTYPE_F32, 2, (int64_t[]){16, 32}, &c->w1);
    if (!st)
        st = weft_graph_add_param(g, "b1", WEFT_DTYPE_F32, 1, (int64_t[]){32}, &c->b1);
    if (!st)
        st = weft_graph_add_param(g, "w2", WEFT_DTYPE_F32, 2, (int64_t[]){32, 4}, &c->w2);
    if (!st)
        st = weft_graph_add_param(g, "b2", WEFT_DTYPE_F32, 1, (int64_t[]){4}, &c->b2);
    return st;
}

/* y = op(a, b) */
static weft_status two(weft_graph *g, const char *op, const char *attr, weft_vid a,
                       weft_vid b, const char *name, weft_vid *y)
{
    return weft_graph_add_op(g, op, attr, 2, (weft_vid[]){a, b}, name, 1, y);
}

static weft_status forward(weft_graph *g, classifier *c)
{
    weft_status st = WEFT_OK;
    weft_vid    h  = c->x, row[2];
    if (!st) st = two(g, "matmul", "spec=bd,dn->bn", h, c->w1, "h.product", &h);
    if (!st) st = two(g, "add", "", h, c->b1, "h.sum", &h);
    if (!st) st = weft_graph_add_op(g, "relu", "", 1, &h, "h", 1, &h);
    if (!st) st = two(g, "matmul", "spec=bd,dn->bn", h, c->w2, "logits.product", &h);
    if (!st) st = two(g, "add", "", h, c->b2, "logits", &h);
    if (!st) /* two results: the loss of each row, and what the gradient wants to remember */
        st = weft_graph_add_op(g, "cross_entropy", "", 2, (weft_vid[]){h, c->labels},
                               "rows", 2, row);
    if (!st) st = weft_graph_add_op(g, "reduce", "axes=[0]", 1, row, "loss", 1, &c->loss);
    if (!st) st = weft_graph_set_output(g, c->loss);
    return st;
}

int main(void)
{
    weft_graph *g, *again;
    classifier  c;
    weft_vid    grad[4];
    char       *text;

    if (weft_graph_create("classifier", &g)) return failed("create");
    if (declare(g, &c)) return failed("declare");
    if (forward(g, &c)) return failed("forward");
    if (weft_graph_differentiate(g, c.loss, -1, 4, (weft_vid[]){c.w1, c.b1, c.w2, c.b2},
                                 grad))
        return failed("differentiate");
    for (int i = 0; i < 4;
         i++) /* what the graph is computed for: the loss and four gradients */
        if (weft_graph_set_output(g, grad[i])) return failed("output");
    if (weft_graph_verify(g)) return failed("verify");
    if (weft_graph_to_text(g, &text)) return failed("print");
    fputs(text, stdout);

    /* The text is the graph: it reads back as the same one. */
    if (weft_graph_from_text("hand_graph", text, strlen(text), &again))
        return failed("parse");
    int same = weft_graph_hash(g) == weft_graph_hash(again);
    printf("# %d values, %s\n", weft_graph_n_value(g),
           same ? "reads back the same" : "DIFFERS");

    free(text);
    weft_graph_destroy(again);
    weft_graph_destroy(g);
    return same ? 0 : 1;
}
