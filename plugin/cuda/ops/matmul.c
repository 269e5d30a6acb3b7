/* matmul by the plain kernel.
 *
 * Letters of a spec fall into four groups: batch (in a, b and y), rows (a, y), columns (b, y),
 * summed (not in y).  Steps after the product are launched on their own, on the product in the
 * memory of the last result. */
#include <string.h>

#include "cuda_priv.h"

enum {
    THREADS = 256
};

/* ---- a spec ---- */

typedef struct spec {
    const char *part[3]; /* letters of a, b, y */
    size_t      n[3];
} spec;

static spec split_spec(const char *s)
{
    spec r;
    for (int i = 0; i < 3; i++) {
        r.part[i] = s;
        r.n[i]    = strspn(s, "abcdefghijklmnopqrstuvwxyz");
        s += r.n[i];
        s += *s == ',' ? 1 : *s == '-' ? 2 : 0;
    }
    return r;
}

/* The dimension of a letter in operand i; -1: it has none. */
static int find_letter(const spec *s, int i, char letter)
{
    const char *at = memchr(s->part[i], letter, s->n[i]);
    return at ? (int)(at - s->part[i]) : -1;
}

static void add_letter(weft_cuda_matmul_args *m, const spec *s, const weft_view *view[3],
                       char letter)
{
    int64_t       step[3] = {0};
    int           at[3];
    weft_cuda_nd *group;
    for (int i = 0; i < 3; i++) {
        at[i] = find_letter(s, i, letter);
        if (at[i] >= 0) step[i] = view[i]->stride[at[i]];
    }
    if (at[2] < 0)
        group = &m->summed;
    else if (at[0] >= 0 && at[1] >= 0)
        group = &m->batch;
    else
        group = at[0] >= 0 ? &m->rows : &m->columns;
    int from = at[0] >= 0 ? 0 : 1;
    weft_cuda_nd_dim(group, view[from]->shape.d[at[from]], step);
}

static void group_letters(weft_cuda_matmul_args *m, const spec *s,
                          const weft_view *view[3])
{
    weft_cuda_nd *group[4] = {&m->batch, &m->rows, &m->columns, &m->summed};
    for (int g = 0; g < 4; g++) *group[g] = (weft_cuda_nd){.n_op = 3, .count = 1};
    for (size_t k = 0; k < s->n[2]; k++) add_letter(m, s, view, s->part[2][k]);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < s->n[i]; k++) {
            char letter = s->part[i][k];
            bool seen   = find_letter(s, 2, letter) >= 0 ||
                        (i == 1 && find_letter(s, 0, letter) >= 0);
            if (!seen) add_letter(m, s, view, letter);
        }
    for (int g = 0; g < 4; g++) weft_cuda_nd_merge(group[g]);
}

static weft_status launch_spec(const weft_kernel_call *c, const weft_kernel_ctx *x,
                               const weft_view *y, bool add)
{
    spec                  s       = split_spec(weft_cuda_attr(c, "spec")->s);
    const weft_view      *view[3] = {&c->in[0], &c->in[1], y};
    weft_cuda_matmul_args m       = {.a       = c->in[0].p,
                                     .b       = c->in[1].p,
                                     .y       = y->p,
                                     .a_dtype = (int32_t)c->in[0].dtype,
                                     .b_dtype = (int32_t)c->in[1].dtype,
                                     .y_dtype = (int32_t)y->dtype,
                                     .add     = add};
    group_letters(&m, &s, view);
    m.n_row_tile    = weft_cuda_ceil(m.rows.count, WEFT_CUDA_TILE);
    m.n_column_tile = weft_cuda_ceil(m.columns.count, WEFT_CUDA_TILE);
    int64_t n       = m.batch.count * m.n_row_tile * m.n_column_tile;
    return weft_cuda_launch(x, WEFT_CUDA_matmul,
                            (weft_cuda_grid){(unsigned)n, 1, 1, THREADS, 0}, &m);
}

/* The last result is added to after the steps: the product needs memory of its own. */
static bool needs_room(const weft_kernel_call *c)
{
    int out = c->n_post ? c->post[c->n_post - 1].out : -1;
    return out >= 0 && c->add >> out & 1;
}

CUDA_RUN(matmul)
{
    const weft_view *y = weft_cuda_last_result(c);
    if (!y) return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: its last value is not kept");
    if (!c->n_post) return launch_spec(c, x, y, c->add & 1);
    weft_view from = *y;
    if (needs_room(c)) from = weft_view_make(x->scratch, y->dtype, &y->shape);
    WEFT_TRY(launch_spec(c, x, &from, false));
    return weft_cuda_steps(c, x, &from, NULL);
}
CUDA_SCRATCH(matmul)
{
    const weft_view *y = weft_cuda_last_result(c);
    (void)n_thread;
    if (!y || !needs_room(c)) return 0;
    return (size_t)(weft_shape_count(&y->shape) * weft_dtype_bytes(y->dtype));
}
