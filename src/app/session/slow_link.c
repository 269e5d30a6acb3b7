#include "session/slow_link.h"

#include <stdlib.h>

static const double SLOW = 1.0 / 3, FINE = 0.5;

enum {
    TIMES       = 3,
    LEAST_BYTES = 1 << 20
};

weft_status weft_slow_links_begin(weft_slow_links *x, int n, const int32_t *host)
{
    weft_slow_links_fini(x);
    x->rank    = calloc((size_t)n, sizeof *x->rank);
    x->scratch = calloc((size_t)n, sizeof *x->scratch);
    if (!x->rank || !x->scratch) {
        weft_slow_links_fini(x);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    x->n    = n;
    x->host = host;
    return WEFT_OK;
}

void weft_slow_links_fini(weft_slow_links *x)
{
    free(x->rank);
    free(x->scratch);
    *x = (weft_slow_links){0};
}

/* A connection that was made anew counts from nothing. */
static void set_rate(weft_slow_link_rank *r, const weft_comm_link *now)
{
    int64_t bytes  = now->bytes - r->bytes;
    double  busy_s = now->busy_s - r->busy_s;
    r->bytes       = now->bytes;
    r->busy_s      = now->busy_s;
    r->rate        = bytes >= LEAST_BYTES && busy_s > 0 ? (double)bytes / busy_s : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the links to hosts other than that of rank k; 0: there are none. */
static double find_others(weft_slow_links *x, int k)
{
    int n = 0;
    for (int i = 0; i < x->n; i++)
        if (x->rank[i].rate > 0 && i != k && (!x->host || x->host[i] != x->host[k]))
            x->scratch[n++] = x->rank[i].rate;
    qsort(x->scratch, (size_t)n, sizeof *x->scratch, by_size);
    return !n      ? 0
           : n % 2 ? x->scratch[n / 2]
                   : (x->scratch[n / 2 - 1] + x->scratch[n / 2]) / 2;
}

static void judge(weft_slow_links *x, int k, double crowding)
{
    weft_slow_link_rank *r      = &x->rank[k];
    double               others = find_others(x, k);
    if (!(r->rate > 0)) return;
    r->usual_rate = others > r->best_rate ? others : r->best_rate;
    r->n_low      = r->rate * crowding < SLOW * r->usual_rate ? r->n_low + 1 : 0;
    if (r->n_low >= TIMES) r->slow = true;
    if (r->rate > FINE * r->usual_rate) r->slow = r->named = false;
    if (r->rate > r->best_rate) r->best_rate = r->rate;
}

void weft_slow_links_add(weft_slow_links *x, const weft_comm_link *link, int n,
                         double crowding)
{
    for (int k = 0; k < x->n; k++) x->rank[k].rate = 0;
    for (int k = 0; k < n; k++)
        if (link[k].rank >= 0 && link[k].rank < x->n)
            set_rate(&x->rank[link[k].rank], &link[k]);
    for (int k = 0; k < x->n; k++) judge(x, k, crowding > 1 ? crowding : 1);
}

bool weft_slow_links_next(weft_slow_links *x, weft_slow_link *out)
{
    for (int k = 0; k < x->n; k++) {
        weft_slow_link_rank *r = &x->rank[k];
        if (!r->slow || r->named) continue;
        r->named = true;
        *out     = (weft_slow_link){k, r->rate, r->usual_rate};
        return true;
    }
    return false;
}
