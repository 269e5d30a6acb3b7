/* Optimizer updates: each element is read and written once, at the speed of memory. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK = 65536
};

typedef struct job {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    weft_kernel__update      u;
    float                   *state[3]; /* p, m, v or as many as there are */
    const float             *g;
    const float             *p; /* lamb: read only */
    int64_t                  n;
} job;

static void task_fn(void *arg, int64_t task, int thread)
{
    job    *j  = arg;
    int64_t at = task * TASK, n = j->n - at < TASK ? j->n - at : TASK;
    float  *a = j->state[0] + at, *b = j->state[1] ? j->state[1] + at : NULL,
          *d       = j->state[2] ? j->state[2] + at : NULL;
    const float *g = j->g + at;
    (void)thread;
    switch ((int)j->c->op) {
    case WEFT_OP_SGD: j->f->sgd(&j->u, a, g, n); break;
    case WEFT_OP_SGD_MOMENTUM: j->f->momentum(&j->u, a, g, b, n); break;
    case WEFT_OP_ADAGRAD: j->f->adagrad(&j->u, a, g, b, n); break;
    case WEFT_OP_ADAM: j->f->adam(&j->u, a, g, b, d, n); break;
    case WEFT_OP_ADAMW: j->f->adamw(&j->u, a, g, b, d, n); break;
    case WEFT_OP_LAMB_DIR: j->f->lamb(&j->u, a, j->p + at, g, b, d, n); break;
    default: j->f->map[MAP_AXPY](a, a, g, -j->u.lr, n); break;
    }
}

static float attr(const weft_kernel_call *c, const char *name)
{
    int i = weft_op_attr_index(c->op, name);
    return i < 0 ? 0.0f : (float)c->attr[i].f;
}

/* The scalar operand of this name, or its neutral value. */
static double scalar(const weft_kernel_call *c, const char *name, double otherwise)
{
    const char *p = weft_op_get(c->op)->in;
    size_t      n = strlen(name);
    for (int i = 0; *p; i++) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0) return weft_kernel__scalar(&c->in[i]);
        p += len;
        while (*p == ' ') p++;
    }
    return otherwise;
}

static void constants(job *j)
{
    const weft_kernel_call *c = j->c;
    weft_kernel__update    *u = &j->u;
    double                  t = scalar(c, "step", 1.0), lr = scalar(c, "lr", 1.0);
    int                     b1 = weft_op_attr_index(c->op, "beta1");

    u->lr    = (float)lr;
    u->scale = (float)scalar(c, "scale", 1.0);
    u->eps   = attr(c, "eps");
    u->decay = attr(c, "weight_decay");
    u->beta1 = attr(c, b1 < 0 ? "momentum" : "beta1");
    u->beta2 = attr(c, "beta2");
    if (b1 >= 0) {
        int b2          = weft_op_attr_index(c->op, "beta2");
        u->step_size    = (float)(lr / (1.0 - pow(c->attr[b1].f, t)));
        u->inv_sqrt_bc2 = (float)(1.0 / sqrt(1.0 - pow(c->attr[b2].f, t)));
    }
    if (c->op == WEFT_OP_LAMB_APPLY) {
        double pn = scalar(c, "p_sq", 0.0), un = scalar(c, "u_sq", 0.0);
        if (pn > 0.0 && un > 0.0) u->lr = (float)(lr * (sqrt(pn) / sqrt(un)));
    }
}

/* The state's next value lies where the state is, unless the caller keeps both. */
static weft_status settle(job *j, int out, int in, weft_pool *pool)
{
    const weft_view *y = &j->c->out[out], *x = &j->c->in[in];
    if (y->dtype != WEFT_DTYPE_F32 || x->dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: state is not f32",
                         weft_op_get(j->c->op)->name);
    j->state[out] = y->p;
    return y->p == x->p ? WEFT_OK : weft_kernel__copy(y, x, 0, pool);
}

KERNEL(update)
{
    job j = {
        .c = c, .f = weft_kernel__rows_now(), .n = weft_shape_count(&c->out[0].shape)};
    bool l = c->op == WEFT_OP_LAMB_DIR;
    if (c->in[1].dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: gradient is not f32",
                         weft_op_get(c->op)->name);
    constants(&j);
    j.g = c->in[1].p;
    j.p = c->in[0].p;
    /* results are p m v, operands p g m v; lamb's result 0 is new */
    if (l)
        j.state[0] = c->out[0].p;
    else
        WEFT_TRY(settle(&j, 0, 0, x->pool));
    for (int k = 1; k < c->n_own_out; k++) WEFT_TRY(settle(&j, k, k + 1, x->pool));
    weft_pool_run(x->pool, weft_kernel__ceil(j.n, TASK), task_fn, &j);
    return WEFT_OK;
}
