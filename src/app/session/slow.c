#include "session/slow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 1.25, FINE = 1.1, SAME_WORK = 0.02, LEAST_S = 1e-3;

weft_status weft_slow_begin(weft_slow *s, int n, const double *work)
{
    weft_slow_fini(s);
    s->rank    = calloc((size_t)n, sizeof *s->rank);
    s->scratch = calloc((size_t)n, 2 * sizeof *s->scratch);
    if (!s->rank || !s->scratch) {
        weft_slow_fini(s);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    s->n = n;
    for (int r = 0; r < n; r++) s->rank[r].work = work[r];
    return WEFT_OK;
}

void weft_slow_fini(weft_slow *s)
{
    free(s->rank);
    free(s->scratch);
    *s = (weft_slow){0};
}

void weft_slow_add(weft_slow *s, int first, int n, const float *busy_s)
{
    for (int k = 0; k < n && first + k < s->n; k++) {
        weft_slow_rank *r = &s->rank[first + k];
        if (busy_s[k] > 0) r->busy_s[r->n++ % WEFT_SLOW_STEPS] = busy_s[k];
    }
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts x. */
static float find_median(float *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static bool is_judged(const weft_slow_rank *r)
{
    return r->n >= WEFT_SLOW_STEPS;
}

static bool is_same_work(const weft_slow_rank *a, const weft_slow_rank *b)
{
    return fabs(a->work - b->work) <= SAME_WORK * fmax(a->work, b->work);
}

/* Of the ranks with r's work, other than r; 0: there are none. */
static float find_others(weft_slow *s, int r)
{
    int n = 0;
    for (int k = 0; k < s->n; k++)
        if (k != r && is_judged(&s->rank[k]) && is_same_work(&s->rank[k], &s->rank[r]))
            s->scratch[n++] = s->rank[k].low_s;
    return n ? find_median(s->scratch, n) : 0;
}

bool weft_slow_next(weft_slow *s, int *rank)
{
    for (int r = 0; r < s->n; r++) {
        float x[WEFT_SLOW_STEPS];
        memcpy(x, s->rank[r].busy_s, sizeof x);
        if (!is_judged(&s->rank[r])) continue;
        qsort(x, WEFT_SLOW_STEPS, sizeof *x, by_size);
        s->rank[r].low_s = x[1];
    }
    for (int r = 0; r < s->n; r++) {
        weft_slow_rank *x = &s->rank[r];
        if (!is_judged(x)) continue;
        x->other_s   = find_others(s, r);
        double ratio = x->other_s > 0 ? (double)(x->low_s / x->other_s) : 0;
        bool   was   = x->slow;
        bool   far   = (double)(x->low_s - x->other_s) > LEAST_S;
        x->slow      = (ratio > SLOW && far) || (was && ratio > FINE);
        if (!x->slow || was) continue;
        *rank = r;
        return true;
    }
    return false;
}
