/* Rows of optimizer updates, each in one pass; a part of rows_impl.h. */
#ifndef WEFT_KERNEL_ROWS_UPDATE_H
#define WEFT_KERNEL_ROWS_UPDATE_H
#ifdef ROWS

_Static_assert((int)LANES == (int)WEFT_UNDO_BLOCK, "a block of undo is one of a row");

/* ---- one vector: state[0] is the parameter ---- */

/* The moments of Adam: m and v move towards g and g^2. */
VFN void moments(const weft_kernel__update *u, vf g, vf *m, vf *v)
{
    *m = vf_fma(vf_set1(1.0f - u->beta1), vf_sub(g, *m), *m);
    *v = vf_fma(vf_mul(vf_set1(1.0f - u->beta2), g), g, vf_mul(vf_set1(u->beta2), *v));
}

/* m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), without the first division */
VFN vf direction(const weft_kernel__update *u, vf m, vf v)
{
    vf d = vf_fma(vf_sqrt(v), vf_set1(u->inv_sqrt_bc2), vf_set1(u->eps));
    return vf_div(m, d);
}

VFN void adamw_1(const weft_kernel__update *u, vf *state, vf g)
{
    moments(u, vf_mul(g, vf_set1(u->scale)), &state[1], &state[2]);
    vf p     = vf_mul(state[0], vf_set1(1.0f - u->lr * u->decay));
    state[0] = vf_fnma(vf_set1(u->step_size), direction(u, state[1], state[2]), p);
}

VFN void adam_1(const weft_kernel__update *u, vf *state, vf g)
{
    vf p = state[0];
    moments(u, vf_fma(vf_set1(u->decay), p, vf_mul(g, vf_set1(u->scale))), &state[1],
            &state[2]);
    state[0] = vf_fnma(vf_set1(u->step_size), direction(u, state[1], state[2]), p);
}

/* step_size is 1 / (1 - beta1^t) here; the norms and the learning rate come later. */
VFN vf lamb_direction(const weft_kernel__update *u, vf p, vf g, vf *m, vf *v)
{
    moments(u, vf_mul(g, vf_set1(u->scale)), m, v);
    vf d = vf_mul(direction(u, *m, *v), vf_set1(u->step_size));
    return vf_fma(vf_set1(u->decay), p, d);
}

VFN void lamb_1(const weft_kernel__update *u, vf *state, vf g)
{
    vf d     = lamb_direction(u, state[0], g, &state[1], &state[2]);
    state[0] = vf_fma(vf_set1(-u->lr), d, state[0]);
}

/* The gradient as torch's L2 penalty has it: scale g + decay p. */
VFN vf penalized(const weft_kernel__update *u, vf p, vf g)
{
    return vf_fma(vf_set1(u->decay), p, vf_mul(g, vf_set1(u->scale)));
}

VFN void adagrad_1(const weft_kernel__update *u, vf *state, vf g)
{
    vf d     = penalized(u, state[0], g);
    state[1] = vf_fma(d, d, state[1]);
    d        = vf_div(d, vf_add(vf_sqrt(state[1]), vf_set1(u->eps)));
    state[0] = vf_fnma(vf_set1(u->lr), d, state[0]);
}

VFN void sgd_1(const weft_kernel__update *u, vf *state, vf g)
{
    state[0] = vf_fnma(vf_set1(u->lr), penalized(u, state[0], g), state[0]);
}

/* beta1 is the momentum. */
VFN void momentum_1(const weft_kernel__update *u, vf *state, vf g)
{
    state[1] = vf_fma(vf_set1(u->beta1), state[1], penalized(u, state[0], g));
    state[0] = vf_fnma(vf_set1(u->lr), state[1], state[0]);
}

/* A running mean moves towards g: beta1 of it stay. */
VFN void ema_1(const weft_kernel__update *u, vf *state, vf g)
{
    state[0] = vf_fma(vf_set1(u->lr), g, vf_mul(vf_set1(u->beta1), state[0]));
}

/* ---- rows ---- */

/* Old values of k elements from i on; then they may be overwritten.  It is enough that the compiler
 * keeps this order of stores (undo.h). */
VFN void keep_old(const weft_kernel__updated *x, int n_state, int64_t i, int64_t k)
{
    int64_t block = x->undo->first + i / LANES;
    for (int s = 0; s < n_state; s++) {
        float *to = x->undo->old[block % 2][s];
        if (k == LANES)
            for (int v = 0; v < NV; v++)
                vf_store(to + v * VW, vf_load(x->state[s] + i + v * VW));
        else
            memcpy(to, x->state[s] + i, (size_t)k * sizeof *to);
    }
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&x->undo->block, block, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

VFN vf load_k(const float *p, int64_t k)
{
    return k == VW ? vf_load(p) : vf_load_n(p, k);
}

VFN void store_k(float *p, vf x, int64_t k)
{
    if (k == VW)
        vf_store(p, x);
    else
        vf_store_n(p, x, k);
}

VFN void copy_k(uint16_t *to, const float *from, vf x, int64_t k)
{
    if (k == VW)
        vf_store_bf16(to, x);
    else
        for (int64_t i = 0; i < k; i++) to[i] = weft_bf16_round(from[i]);
}

/* One vector of k elements from i on; then rows of n, by blocks.  The copies of what they point to
 * are nowhere in memory, so they stay in registers over stores and fences. */
#define UPDATE(name, n_state)                                                            \
    VFN void name##_k(const weft_kernel__update *u, const weft_kernel__updated *x,       \
                      int64_t i, int64_t k)                                              \
    {                                                                                    \
        vf state[WEFT_UNDO_RESULT];                                                      \
        for (int s = 0; s < n_state; s++) state[s] = load_k(x->state[s] + i, k);         \
        name##_1(u, state, load_k(x->g + i, k));                                         \
        for (int s = 0; s < n_state; s++) store_k(x->state[s] + i, state[s], k);         \
        if (x->copy) copy_k(x->copy + i, x->state[0] + i, state[0], k);                  \
    }                                                                                    \
    static void name(const weft_kernel__update *u, const weft_kernel__updated *x,        \
                     int64_t n)                                                          \
    {                                                                                    \
        const weft_kernel__update  numbers = *u;                                         \
        const weft_kernel__updated memory  = *x;                                         \
        int64_t                    i       = 0;                                          \
        for (; i + LANES <= n; i += LANES) {                                             \
            if (memory.undo) keep_old(&memory, n_state, i, LANES);                       \
            for (int v = 0; v < NV; v++) name##_k(&numbers, &memory, i + v * VW, VW);    \
        }                                                                                \
        if (memory.undo && i < n) keep_old(&memory, n_state, i, n - i);                  \
        for (; i + VW <= n; i += VW) name##_k(&numbers, &memory, i, VW);                 \
        if (i < n) name##_k(&numbers, &memory, i, n - i);                                \
    }
UPDATE(sgd, 1)
UPDATE(momentum, 2)
UPDATE(adagrad, 2)
UPDATE(adam, 3)
UPDATE(adamw, 3)
UPDATE(lamb, 3)
UPDATE(ema, 1)

/* The direction of LAMB alone. */
static void lamb_dir(const weft_kernel__update *u, float *dir, const float *p,
                     const float *g, const float *m, const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t k   = n - i < VW ? n - i : VW;
        vf      vm1 = vf_load_n(m + i, k), vv = vf_load_n(v + i, k);
        vf d = lamb_direction(u, vf_load_n(p + i, k), vf_load_n(g + i, k), &vm1, &vv);
        vf_store_n(dir + i, d, k);
    }
}

#endif
#endif
