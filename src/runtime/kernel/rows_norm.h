/* Rows of norms, softmax and rotary; a part of rows_impl.h. */
#ifndef WEFT_KERNEL_ROWS_NORM_H
#define WEFT_KERNEL_ROWS_NORM_H
#ifdef ROWS

/* Mean first, then the sum of squares around it: no cancellation. */
static void layer_norm(float *y, const float *x, const float *w, const float *b,
                       int64_t n, float eps, float stat[2])
{
    lanes a;
    float mean = sum(x, n) / (float)n;
    vf    mu   = vf_set1(mean);

    lanes_zero(&a);
    EACH_VECTOR(
        {
            vf d   = vf_sub(LOAD(x), mu);
            a.v[v] = vf_fma(d, d, a.v[v]);
        },
        {
            vf    d = vf_sub(vf_load_n(x + j, k), mu);
            float t[VW];
            vf_store(t, d);
            for (int64_t l = k; l < VW; l++) t[l] = 0.0f;
            d      = vf_load(t);
            a.v[v] = vf_fma(d, d, a.v[v]);
        });
    float rstd = 1.0f / sqrtf(lanes_sum(&a) / (float)n + eps);
    vf    rs   = vf_set1(rstd);
    EACH_VECTOR(
        vf_store(y + j, vf_fma(vf_mul(vf_sub(LOAD(x), mu), rs), LOAD(w), LOAD(b))),
        vf_store_n(y + j, vf_fma(vf_mul(vf_sub(LOADN(x), mu), rs), LOADN(w), LOADN(b)),
                   k));
    stat[0] = mean;
    stat[1] = rstd;
}

/* h = (x - mean) rstd, g = dy w:  dx = rstd (g - mean(g) - h mean(g h)) */
static void layer_norm_grad(float *dx, const float *dy, const float *x, const float *w,
                            int64_t n, float mean, float rstd, float *dw, float *db)
{
    lanes a, c;
    vf    mu = vf_set1(mean), rs = vf_set1(rstd);

    lanes_zero(&a);
    lanes_zero(&c);
#define STEP(LD, ST)                                                                     \
    {                                                                                    \
        vf d = LD(dy), h = vf_mul(vf_sub(LD(x), mu), rs), g = vf_mul(d, LD(w));          \
        a.v[v] = vf_add(a.v[v], g);                                                      \
        c.v[v] = vf_fma(g, h, c.v[v]);                                                   \
        ST(dw + j, vf_fma(d, h, LD(dw)));                                                \
        ST(db + j, vf_add(d, LD(db)));                                                   \
    }
#define STORE_K(p, x) vf_store_n(p, x, k)
    EACH_VECTOR(STEP(LOAD, vf_store), STEP(LOADN, STORE_K));
#undef STEP
    vf m1 = vf_set1(lanes_sum(&a) / (float)n), m2 = vf_set1(lanes_sum(&c) / (float)n);
#define STEP(LD, ST)                                                                     \
    {                                                                                    \
        vf h = vf_mul(vf_sub(LD(x), mu), rs), g = vf_mul(LD(dy), LD(w));                 \
        ST(dx + j, vf_mul(rs, vf_fnma(h, m2, vf_sub(g, m1))));                           \
    }
    EACH_VECTOR(STEP(LOAD, vf_store), STEP(LOADN, STORE_K));
#undef STEP
}

static void rms_norm(float *y, const float *x, const float *w, int64_t n, float eps,
                     float *rstd)
{
    float r  = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    vf    rs = vf_set1(r);
    EACH_VECTOR(vf_store(y + j, vf_mul(vf_mul(LOAD(x), rs), LOAD(w))),
                vf_store_n(y + j, vf_mul(vf_mul(LOADN(x), rs), LOADN(w)), k));
    *rstd = r;
}

/* h = x rstd, g = dy w:  dx = rstd (g - h mean(g h)) */
static void rms_norm_grad(float *dx, const float *dy, const float *x, const float *w,
                          int64_t n, float rstd, float *dw)
{
    lanes c;
    vf    rs = vf_set1(rstd);

    lanes_zero(&c);
#define STEP(LD, ST)                                                                     \
    {                                                                                    \
        vf d = LD(dy), h = vf_mul(LD(x), rs);                                            \
        c.v[v] = vf_fma(vf_mul(d, LD(w)), h, c.v[v]);                                    \
        ST(dw + j, vf_fma(d, h, LD(dw)));                                                \
    }
    EACH_VECTOR(STEP(LOAD, vf_store), STEP(LOADN, STORE_K));
#undef STEP
    vf m2 = vf_set1(lanes_sum(&c) / (float)n);
#define STEP(LD, ST)                                                                     \
    {                                                                                    \
        vf h = vf_mul(LD(x), rs), g = vf_mul(LD(dy), LD(w));                             \
        ST(dx + j, vf_mul(rs, vf_fnma(h, m2, g)));                                       \
    }
    EACH_VECTOR(STEP(LOAD, vf_store), STEP(LOADN, STORE_K));
#undef STEP
}

static float exp_sum(float *y, const float *x, int64_t n, float m)
{
    lanes a;
    vf    vm1 = vf_set1(m);

    lanes_zero(&a);
    EACH_VECTOR(
        {
            vf e   = vf_exp(vf_sub(LOAD(x), vm1));
            a.v[v] = vf_add(a.v[v], e);
            if (y) vf_store(y + j, e);
        },
        {
            vf    e = vf_exp(vf_sub(LOADN(x), vm1));
            float t[VW];
            if (y) vf_store_n(y + j, e, k);
            vf_store(t, e);
            for (int64_t l = k; l < VW; l++) t[l] = 0.0f;
            a.v[v] = vf_add(a.v[v], vf_load(t));
        });
    return lanes_sum(&a);
}

static void exp_scale(float *y, const float *x, int64_t n, float m, float s)
{
    vf vm1 = vf_set1(m), vs = vf_set1(s);
    EACH_VECTOR(vf_store(y + j, vf_mul(vs, vf_exp(vf_sub(LOAD(x), vm1)))),
                vf_store_n(y + j, vf_mul(vs, vf_exp(vf_sub(LOADN(x), vm1))), k));
}

static void softmax_grad(float *dx, const float *dy, const float *y, int64_t n, float d)
{
    vf vd = vf_set1(d);
    EACH_VECTOR(vf_store(dx + j, vf_mul(vf_sub(LOAD(dy), vd), LOAD(y))),
                vf_store_n(dx + j, vf_mul(vf_sub(LOADN(dy), vd), LOADN(y)), k));
}

static void rotate(float *y, const float *x, const float *cosine, const float *sine,
                   int64_t n)
{
#define STEP(LD, ST)                                                                     \
    {                                                                                    \
        vf a = LD(x), b = LD(x + n), c = LD(cosine), s = LD(sine);                       \
        ST(y + j, vf_fnma(b, s, vf_mul(a, c)));                                          \
        ST(y + n + j, vf_fma(a, s, vf_mul(b, c)));                                       \
    }
    EACH_VECTOR(STEP(LOAD, vf_store), STEP(LOADN, STORE_K));
#undef STEP
#undef STORE_K
}

#endif
#endif
