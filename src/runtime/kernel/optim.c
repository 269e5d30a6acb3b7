/* Optimizer updates: each element is read and written once, at the speed of memory. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK = 65536
};

typedef struct job {
    const weft_kernel__rows *f;
    weft_kernel__update_fn   update; /* NULL: lamb_dir */
    weft_kernel__update      u;
    weft_kernel__updated     x;
    const float             *p, *m, *v; /* lamb_dir: read only */
    int64_t                  n;
} job;

static void task_fn(void *arg, int64_t task, int thread)
{
    const job           *j  = arg;
    int64_t              at = task * TASK, n = j->n - at < TASK ? j->n - at : TASK;
    weft_kernel__updated x = j->x;
    (void)thread;
    for (int k = 0; k < WEFT_UNDO_RESULT; k++)
        if (x.state[k]) x.state[k] += at;
    if (x.copy) x.copy += at;
    x.g += at;
    if (j->update)
        j->update(&j->u, &x, n);
    else
        j->f->lamb_dir(&j->u, x.state[0], j->p + at, x.g, j->m + at, j->v + at, n);
}

static weft_kernel__update_fn find_update(const weft_kernel__rows *f, weft_op op)
{
    switch ((int)op) {
    case WEFT_OP_SGD: return f->update[UPDATE_SGD];
    case WEFT_OP_SGD_MOMENTUM: return f->update[UPDATE_MOMENTUM];
    case WEFT_OP_ADAGRAD: return f->update[UPDATE_ADAGRAD];
    case WEFT_OP_ADAM: return f->update[UPDATE_ADAM];
    case WEFT_OP_ADAMW: return f->update[UPDATE_ADAMW];
    case WEFT_OP_LAMB: return f->update[UPDATE_LAMB];
    case WEFT_OP_EMA: return f->update[UPDATE_EMA];
    default: return NULL;
    }
}

/* ---- constants: names are looked up once, scalar operands are read in every step ---- */

/* Where attributes and scalar operands stand in the call; -1: the operator has none. */
typedef struct constants {
    int8_t beta1, beta2, eps, decay, momentum, count, unbias; /* attributes */
    int8_t step, lr, scale, p_sq, u_sq;                       /* operands */
} constants;

static int8_t find_attr(const weft_kernel_call *c, const char *name)
{
    return (int8_t)weft_op_attr_index(c->op, name);
}

static int8_t find_operand(const weft_kernel_call *c, const char *name)
{
    const char *p = weft_op_get(c->op)->in;
    size_t      n = strlen(name);
    for (int8_t i = 0; *p; i++) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0) return i;
        p += len;
        while (*p == ' ') p++;
    }
    return -1;
}

PREPARE(update)
{
    constants *k = WEFT_ARENA_NEW(arena, constants);
    if (!k) return weft_arena_status(arena);
    (void)x;
    *k   = (constants){.beta1    = find_attr(c, "beta1"),
                       .beta2    = find_attr(c, "beta2"),
                       .eps      = find_attr(c, "eps"),
                       .decay    = find_attr(c, "weight_decay"),
                       .momentum = find_attr(c, "momentum"),
                       .count    = find_attr(c, "count"),
                       .unbias   = find_attr(c, "unbias"),
                       .step     = find_operand(c, "step"),
                       .lr       = find_operand(c, "lr"),
                       .scale    = find_operand(c, "scale"),
                       .p_sq     = find_operand(c, "p_sq"),
                       .u_sq     = find_operand(c, "u_sq")};
    *out = k;
    return WEFT_OK;
}

static double attr(const weft_kernel_call *c, int8_t i)
{
    return i < 0 ? 0.0 : c->attr[i].f;
}

/* A scalar operand, or its neutral value. */
static double scalar(const weft_kernel_call *c, int8_t i, double otherwise)
{
    return i < 0 ? otherwise : weft_kernel__scalar(&c->in[i]);
}

/* beta^t for whole t: the same products as on GPUs, whose pow() has other last bits. */
static double power(double beta, int64_t t)
{
    double x = 1;
    for (; t > 0; t /= 2, beta *= beta)
        if (t % 2) x *= beta;
    return x;
}

static weft_kernel__update read_constants(const weft_kernel_call *c)
{
    const constants    *k  = c->prepared;
    double              lr = scalar(c, k->lr, 1.0), t = scalar(c, k->step, 1.0);
    weft_kernel__update u = {
        .lr    = (float)lr,
        .scale = (float)scalar(c, k->scale, 1.0),
        .beta1 = (float)attr(c, k->beta1 < 0 ? k->momentum : k->beta1),
        .beta2 = (float)attr(c, k->beta2),
        .eps   = (float)attr(c, k->eps),
        .decay = (float)attr(c, k->decay),
    };
    bool lamb = c->op == WEFT_OP_LAMB;
    if (c->op == WEFT_OP_EMA) {
        double m = attr(c, k->momentum);
        u.beta1  = (float)(1.0 - m);
        u.lr     = (float)(m * attr(c, k->unbias) / attr(c, k->count));
    }
    if (k->beta1 >= 0) {
        double bc1     = 1.0 - power(attr(c, k->beta1), (int64_t)t);
        double bc2     = 1.0 - power(attr(c, k->beta2), (int64_t)t);
        u.step_size    = (float)((lamb ? 1.0 : lr) / bc1);
        u.inv_sqrt_bc2 = (float)(1.0 / sqrt(bc2));
    }
    if (lamb) {
        double pn = scalar(c, k->p_sq, 0.0), un = scalar(c, k->u_sq, 0.0);
        if (pn > 0.0 && un > 0.0) u.lr = (float)(lr * (sqrt(pn) / sqrt(un)));
    }
    return u;
}

/* ---- the update ---- */

/* The state's next value lies where the state is, unless the caller keeps both. */
static weft_status settle(job *j, const weft_kernel_call *c, int out, int in,
                          weft_pool *pool)
{
    const weft_view *y = &c->out[out], *x = &c->in[in];
    if (y->dtype != WEFT_DTYPE_F32 || x->dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: state is not f32",
                         weft_op_get(c->op)->name);
    j->x.state[out] = y->p;
    return y->p == x->p ? WEFT_OK : weft_kernel__copy(y, x, 0, pool);
}

/* Without a step, or with the bf16 copy of the new parameter. */
bool weft_kernel__takes_update(const weft_kernel_call *c)
{
    if (!c->n_post) return true;
    int out = c->post[0].out;
    return c->n_post == 1 && c->post[0].op == WEFT_OP_CAST && out >= 0 &&
           c->out[out].dtype == WEFT_DTYPE_BF16 && weft_view_contiguous(&c->out[out]) &&
           weft_view_contiguous(&c->out[0]);
}

/* Others are those of elem.c. */
bool weft_kernel__takes_ema(const weft_kernel_call *c)
{
    return c->in[0].dtype == WEFT_DTYPE_F32 && c->in[1].dtype == WEFT_DTYPE_F32 &&
           c->out[0].dtype == WEFT_DTYPE_F32 && weft_view_contiguous(&c->in[0]) &&
           weft_view_contiguous(&c->in[1]) && weft_view_contiguous(&c->out[0]);
}

KERNEL(update)
{
    const weft_kernel__rows *f = weft_kernel__rows_now();
    job                      j = {.f      = f,
                                  .update = find_update(f, c->op),
                                  .u      = read_constants(c),
                                  .x      = {.g = c->in[1].p, .undo = c->undo},
                                  .n      = weft_shape_count(&c->out[0].shape)};
    if (c->in[1].dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: gradient is not f32",
                         weft_op_get(c->op)->name);
    /* results are p m v, operands p g m v; that of lamb_dir is new */
    if (j.update)
        WEFT_TRY(settle(&j, c, 0, 0, x->pool));
    else
        j.x.state[0] = c->out[0].p, j.p = c->in[0].p, j.m = c->in[2].p, j.v = c->in[3].p;
    for (int k = 1; k < c->n_own_out; k++) WEFT_TRY(settle(&j, c, k, k + 1, x->pool));
    if (c->n_post) j.x.copy = c->out[c->post[0].out].p;
    if (c->undo) /* block after block */
        j.update(&j.u, &j.x, j.n);
    else
        weft_pool_run(x->pool, weft_kernel__ceil(j.n, TASK), task_fn, &j);
    return WEFT_OK;
}
