/* Optimizer updates: each element is read and written once, at the speed of memory. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK  = 65536,
    BLOCK = 1024 /* directions of LAMB that are made and used at once */
};

typedef struct job {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    weft_kernel__update      u;
    float                   *state[3]; /* p, m, v or as many as there are */
    const float             *g;
    const float             *p, *m, *v; /* lamb_dir: read only */
    uint16_t                *copy;      /* bf16, of the new parameter; NULL: none */
    int64_t                  n;
} job;

/* p, m, v in place: the direction as lamb_dir makes it, then a step along it. */
static void lamb_step(const job *j, float *p, const float *g, float *m, float *v,
                      int64_t n)
{
    float dir[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t k = n - i < BLOCK ? n - i : BLOCK;
        j->f->lamb(&j->u, dir, p + i, g + i, m + i, v + i, m + i, v + i, k);
        j->f->map[MAP_AXPY](p + i, p + i, dir, -j->u.lr, k);
    }
}

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
    case WEFT_OP_LAMB: lamb_step(j, a, g, b, d, n); break;
    default:
        j->f->lamb(&j->u, a, j->p + at, g, j->m + at, j->v + at, NULL, NULL, n);
        break;
    }
    if (j->copy) j->f->narrow(j->copy + at, a, n); /* out of the cache */
}

/* ---- constants: names are looked up once, scalar operands are read in every step ---- */

/* Where attributes and scalar operands stand in the call; -1: the operator has none. */
typedef struct constants {
    int8_t beta1, beta2, eps, decay, momentum; /* attributes */
    int8_t step, lr, scale, p_sq, u_sq;        /* operands */
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
    if (k->beta1 >= 0) {
        u.step_size    = (float)((lamb ? 1.0 : lr) / (1.0 - pow(attr(c, k->beta1), t)));
        u.inv_sqrt_bc2 = (float)(1.0 / sqrt(1.0 - pow(attr(c, k->beta2), t)));
    }
    if (lamb) {
        double pn = scalar(c, k->p_sq, 0.0), un = scalar(c, k->u_sq, 0.0);
        if (pn > 0.0 && un > 0.0) u.lr = (float)(lr * (sqrt(pn) / sqrt(un)));
    }
    return u;
}

/* ---- the update ---- */

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

/* Without a step, or with the bf16 copy of the new parameter. */
bool weft_kernel__takes_update(const weft_kernel_call *c)
{
    if (!c->n_post) return true;
    int out = c->post[0].out;
    return c->n_post == 1 && c->post[0].op == WEFT_OP_CAST && out >= 0 &&
           c->out[out].dtype == WEFT_DTYPE_BF16 && weft_view_contiguous(&c->out[out]) &&
           weft_view_contiguous(&c->out[0]);
}

KERNEL(update)
{
    job j = {
        .c = c, .f = weft_kernel__rows_now(), .n = weft_shape_count(&c->out[0].shape)};
    bool l = c->op == WEFT_OP_LAMB_DIR;
    if (c->in[1].dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: gradient is not f32",
                         weft_op_get(c->op)->name);
    j.u = read_constants(c);
    j.g = c->in[1].p;
    j.p = c->in[0].p;
    /* results are p m v, operands p g m v; that of lamb_dir is new */
    if (l)
        j.state[0] = c->out[0].p, j.m = c->in[2].p, j.v = c->in[3].p;
    else
        WEFT_TRY(settle(&j, 0, 0, x->pool));
    for (int k = 1; k < c->n_own_out; k++) WEFT_TRY(settle(&j, k, k + 1, x->pool));
    if (c->n_post) j.copy = c->out[c->post[0].out].p;
    weft_pool_run(x->pool, weft_kernel__ceil(j.n, TASK), task_fn, &j);
    return WEFT_OK;
}
