/* Optimizer updates. */
#include <string.h>

#include "cuda_priv.h"

static weft_cuda_update_kind kind_of(weft_op op)
{
    switch ((int)op) {
    case WEFT_OP_SGD: return WEFT_CUDA_UPDATE_SGD;
    case WEFT_OP_SGD_MOMENTUM: return WEFT_CUDA_UPDATE_MOMENTUM;
    case WEFT_OP_ADAGRAD: return WEFT_CUDA_UPDATE_ADAGRAD;
    case WEFT_OP_ADAM: return WEFT_CUDA_UPDATE_ADAM;
    case WEFT_OP_ADAMW: return WEFT_CUDA_UPDATE_ADAMW;
    case WEFT_OP_LAMB_DIR: return WEFT_CUDA_UPDATE_LAMB_DIR;
    default: return WEFT_CUDA_UPDATE_LAMB;
    }
}

/* An attribute that not every update has. */
static double attr_or(const weft_kernel_call *c, const char *name, double otherwise)
{
    int i = weft_op_attr_index(c->op, name);
    return i < 0 ? otherwise : c->attr[i].f;
}

/* The operand of that name among the row's; p NULL: the operator has none. */
static weft_cuda_scalar scalar_of(const weft_kernel_call *c, const char *name)
{
    const char *p = weft_op_get(c->op)->in;
    size_t      n = strlen(name);
    for (int i = 0; *p; i++) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0)
            return (weft_cuda_scalar){c->in[i].p, (int64_t)c->in[i].dtype};
        p += len;
        p += strspn(p, " ");
    }
    return (weft_cuda_scalar){0};
}

static weft_cuda_update_rule rule_of(const weft_kernel_call *c)
{
    double beta1 = attr_or(c, "beta1", attr_or(c, "momentum", 0));
    double beta2 = attr_or(c, "beta2", 0);
    return (weft_cuda_update_rule){.kind   = (int32_t)kind_of(c->op),
                                   .beta1  = (float)beta1,
                                   .beta2  = (float)beta2,
                                   .eps    = (float)attr_or(c, "eps", 0),
                                   .decay  = (float)attr_or(c, "weight_decay", 0),
                                   .power1 = beta1,
                                   .power2 = beta2,
                                   .lr     = scalar_of(c, "lr"),
                                   .scale  = scalar_of(c, "scale"),
                                   .step   = scalar_of(c, "step"),
                                   .p_sq   = scalar_of(c, "p_sq"),
                                   .u_sq   = scalar_of(c, "u_sq")};
}

static weft_status check_types(const weft_kernel_call *c, int n_state)
{
    bool f32 = c->in[0].dtype == WEFT_DTYPE_F32;
    for (int k = 0; k < n_state; k++) f32 = f32 && c->in[k + 2].dtype == WEFT_DTYPE_F32;
    for (int k = 0; k < c->n_own_out; k++) f32 = f32 && c->out[k].dtype == WEFT_DTYPE_F32;
    if (f32 && weft_cuda_is_float(c->in[1].dtype)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL,
                     "%s: state is not f32, or a gradient not f32 or bf16",
                     weft_op_get(c->op)->name);
}

/* Operands are p g m v or as many as there are; results p m v, or the direction alone. */
static weft_status make_update(const weft_kernel_call *c, weft_cuda_update_args *a)
{
    int n_state = c->op == WEFT_OP_LAMB_DIR ? 2 : c->n_own_out - 1;
    *a          = (weft_cuda_update_args){.rule    = rule_of(c),
                                          .p       = c->in[0].p,
                                          .g       = c->in[1].p,
                                          .g_dtype = (int32_t)c->in[1].dtype,
                                          .n       = weft_shape_count(&c->out[0].shape)};
    WEFT_TRY(check_types(c, n_state));
    if (n_state > 0) a->m = c->in[2].p;
    if (n_state > 1) a->v = c->in[3].p;
    for (int k = 0; k < c->n_own_out; k++) a->next[k] = c->out[k].p;
    if (c->n_post) a->copy = c->out[c->post[0].out].p;
    return WEFT_OK;
}

static bool has_vectors(const weft_cuda_update_args *a)
{
    const void *address[] = {a->p, a->g, a->m, a->v, a->next[0], a->next[1], a->next[2]};
    for (size_t k = 0; k < WEFT_COUNT(address); k++)
        if ((uintptr_t)address[k] % 16) return false;
    return (uintptr_t)a->copy % 8 == 0;
}

/* The one step: the new parameter in bf16. */
CUDA_TAKES(update)
{
    return !c->n_post || (c->n_post == 1 && c->out[c->post[0].out].p &&
                          c->out[c->post[0].out].dtype == WEFT_DTYPE_BF16);
}

static int64_t count_blocks(int64_t n)
{
    return weft_cuda_ceil(n, WEFT_CUDA_UPDATE_BLOCK);
}

static weft_status launch_update(const weft_kernel_ctx *x, const weft_cuda_update_args *a)
{
    weft_cuda_grid grid = {
        .x = (unsigned)count_blocks(a->n), 1, 1, WEFT_CUDA_UPDATE_THREADS, 0};
    if (has_vectors(a)) return weft_cuda_launch(x, WEFT_CUDA_update_4, grid, a);
    return weft_cuda_launch(x, WEFT_CUDA_update_1,
                            weft_cuda_grid_1d(a->n, WEFT_CUDA_UPDATE_THREADS), a);
}

CUDA_RUN(update)
{
    weft_cuda_update_args a;
    WEFT_TRY(make_update(c, &a));
    return launch_update(x, &a);
}

/* ---- many ---- */

/* Updates of one rule that wait for their launch. */
typedef struct waiting {
    weft_cuda_updates_args args;
    int64_t                n_block;
} waiting;

static bool same_scalar(const weft_cuda_scalar *a, const weft_cuda_scalar *b)
{
    return a->p == b->p && a->dtype == b->dtype;
}

/* The decay may differ. */
static bool same_rule(const weft_cuda_update_rule *a, const weft_cuda_update_rule *b)
{
    return a->kind == b->kind && a->power1 == b->power1 && a->power2 == b->power2 &&
           a->eps == b->eps && same_scalar(&a->lr, &b->lr) &&
           same_scalar(&a->scale, &b->scale) && same_scalar(&a->step, &b->step) &&
           same_scalar(&a->p_sq, &b->p_sq) && same_scalar(&a->u_sq, &b->u_sq);
}

/* In place, and read in vectors. */
static bool can_wait(const weft_cuda_update_args *a)
{
    return a->next[0] == a->p && a->next[1] == a->m && a->next[2] == a->v &&
           has_vectors(a);
}

static weft_status launch_waiting(const weft_kernel_ctx *x, waiting *w)
{
    weft_cuda_grid grid = {(unsigned)w->n_block, 1, 1, WEFT_CUDA_UPDATE_THREADS, 0};
    if (!w->args.n_task) return WEFT_OK;
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_updates, grid, &w->args));
    w->args.n_task = 0;
    w->n_block     = 0;
    return WEFT_OK;
}

static weft_status add_waiting(const weft_kernel_ctx *x, waiting *w,
                               const weft_cuda_update_args *a)
{
    weft_cuda_updates_args *u = &w->args;
    if (u->n_task == WEFT_CUDA_MAX_MANY ||
        (u->n_task && (!same_rule(&u->rule, &a->rule) || u->g_dtype != a->g_dtype)))
        WEFT_TRY(launch_waiting(x, w));
    if (!u->n_task) {
        u->rule    = a->rule;
        u->g_dtype = a->g_dtype;
    }
    u->task[u->n_task++] = (weft_cuda_update_task){.p           = a->next[0],
                                                   .m           = a->next[1],
                                                   .v           = a->next[2],
                                                   .g           = a->g,
                                                   .copy        = a->copy,
                                                   .n           = a->n,
                                                   .first_block = (int32_t)w->n_block,
                                                   .decay       = a->rule.decay};
    w->n_block += count_blocks(a->n);
    return WEFT_OK;
}

CUDA_MANY(update)
{
    waiting w = {0};
    for (int i = 0; i < n; i++) {
        weft_cuda_update_args a;
        WEFT_TRY(make_update(c[i], &a));
        WEFT_TRY(can_wait(&a) ? add_waiting(x, &w, &a) : launch_update(x, &a));
    }
    return launch_waiting(x, &w);
}
