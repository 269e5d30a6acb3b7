/* Rows of optimizer updates, each in one pass; a part of rows_impl.h. */
#ifndef WEFT_KERNEL_ROWS_UPDATE_H
#define WEFT_KERNEL_ROWS_UPDATE_H
#ifdef ROWS

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

VFN void adamw_1(const weft_kernel__update *u, vf *p, vf g, vf *m, vf *v)
{
    moments(u, vf_mul(g, vf_set1(u->scale)), m, v);
    *p = vf_mul(*p, vf_set1(1.0f - u->lr * u->decay));
    *p = vf_fnma(vf_set1(u->step_size), direction(u, *m, *v), *p);
}

VFN void adam_1(const weft_kernel__update *u, vf *p, vf g, vf *m, vf *v)
{
    moments(u, vf_fma(vf_set1(u->decay), *p, vf_mul(g, vf_set1(u->scale))), m, v);
    *p = vf_fnma(vf_set1(u->step_size), direction(u, *m, *v), *p);
}

#define UPDATE3(name, one)                                                               \
    static void name(const weft_kernel__update *u, float *p, const float *g, float *m,   \
                     float *v, int64_t n)                                                \
    {                                                                                    \
        int64_t i = 0;                                                                   \
        for (; i + VW <= n; i += VW) {                                                   \
            vf vp = vf_load(p + i), vm1 = vf_load(m + i), vv = vf_load(v + i);           \
            one(u, &vp, vf_load(g + i), &vm1, &vv);                                      \
            vf_store(p + i, vp);                                                         \
            vf_store(m + i, vm1);                                                        \
            vf_store(v + i, vv);                                                         \
        }                                                                                \
        if (i < n) {                                                                     \
            int64_t k  = n - i;                                                          \
            vf      vp = vf_load_n(p + i, k), vm1 = vf_load_n(m + i, k);                 \
            vf      vv = vf_load_n(v + i, k);                                            \
            one(u, &vp, vf_load_n(g + i, k), &vm1, &vv);                                 \
            vf_store_n(p + i, vp, k);                                                    \
            vf_store_n(m + i, vm1, k);                                                   \
            vf_store_n(v + i, vv, k);                                                    \
        }                                                                                \
    }
UPDATE3(adamw, adamw_1)
UPDATE3(adam, adam_1)

/* step_size is 1 / (1 - beta1^t) here; the norms and the learning rate come later.  m_next NULL:
 * the direction alone. */
static void lamb(const weft_kernel__update *u, float *dir, const float *p, const float *g,
                 const float *m, const float *v, float *m_next, float *v_next, int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t k   = n - i < VW ? n - i : VW;
        vf      vm1 = vf_load_n(m + i, k), vv = vf_load_n(v + i, k);
        moments(u, vf_mul(vf_load_n(g + i, k), vf_set1(u->scale)), &vm1, &vv);
        vf d = vf_mul(direction(u, vm1, vv), vf_set1(u->step_size));
        vf_store_n(dir + i, vf_fma(vf_set1(u->decay), vf_load_n(p + i, k), d), k);
        if (!m_next) continue;
        vf_store_n(m_next + i, vm1, k);
        vf_store_n(v_next + i, vv, k);
    }
}

/* The gradient as torch's L2 penalty has it: scale g + decay p. */
VFN vf penalized(const weft_kernel__update *u, vf p, vf g)
{
    return vf_fma(vf_set1(u->decay), p, vf_mul(g, vf_set1(u->scale)));
}

static void adagrad(const weft_kernel__update *u, float *p, const float *g, float *h,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t k  = n - i < VW ? n - i : VW;
        vf      vp = vf_load_n(p + i, k), vg = penalized(u, vp, vf_load_n(g + i, k));
        vf      vh = vf_fma(vg, vg, vf_load_n(h + i, k));
        vf      d  = vf_div(vg, vf_add(vf_sqrt(vh), vf_set1(u->eps)));
        vf_store_n(h + i, vh, k);
        vf_store_n(p + i, vf_fnma(vf_set1(u->lr), d, vp), k);
    }
}

static void sgd(const weft_kernel__update *u, float *p, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t k  = n - i < VW ? n - i : VW;
        vf      vp = vf_load_n(p + i, k), vg = penalized(u, vp, vf_load_n(g + i, k));
        vf_store_n(p + i, vf_fnma(vf_set1(u->lr), vg, vp), k);
    }
}

/* beta1 is the momentum. */
static void momentum(const weft_kernel__update *u, float *p, const float *g, float *m,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t k  = n - i < VW ? n - i : VW;
        vf      vp = vf_load_n(p + i, k), vg = penalized(u, vp, vf_load_n(g + i, k));
        vf      vm1 = vf_fma(vf_set1(u->beta1), vf_load_n(m + i, k), vg);
        vf_store_n(m + i, vm1, k);
        vf_store_n(p + i, vf_fnma(vf_set1(u->lr), vm1, vp), k);
    }
}

#endif
#endif
