/* Measured times: kept in order, found by what was measured, replaced by what was measured later.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster_priv.h"

/* By what it is of; sizes last. */
static int by_subject(const weft_timing *x, const weft_timing *y)
{
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->link != y->link) return x->link < y->link ? -1 : 1;
    return strcmp(x->work, y->work);
}

static int by_all(const void *a, const void *b)
{
    const weft_timing *x = a, *y = b;
    int                c = by_subject(x, y);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    for (int i = 0; i < x->n_size && i < y->n_size; i++)
        if (x->size[i] != y->size[i]) return x->size[i] < y->size[i] ? -1 : 1;
    return (x->n_size > y->n_size) - (x->n_size < y->n_size);
}

void weft_cluster__sort_timings(weft_cluster *c)
{
    if (c->n_timing > 1) qsort(c->timing, (size_t)c->n_timing, sizeof *c->timing, by_all);
}

/* The first that does not come before; ranks -1: any. */
static int first_of(const weft_cluster *c, const weft_timing *want, int ranks)
{
    int lo = 0, hi = c->n_timing;
    while (lo < hi) {
        int  mid = lo + (hi - lo) / 2, order = by_subject(&c->timing[mid], want);
        bool before = order < 0 || (!order && ranks >= 0 && c->timing[mid].n < ranks);
        if (before)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const weft_timing *weft_cluster_timings(const weft_cluster *c, int device, int link,
                                        const char *work, int ranks, int *n)
{
    weft_timing want = {.device = device, .link = link, .work = work};
    int         lo   = first_of(c, &want, ranks);
    *n               = 0;
    while (lo + *n < c->n_timing && !by_subject(&c->timing[lo + *n], &want) &&
           (ranks < 0 || c->timing[lo + *n].n == ranks))
        ++*n;
    return *n ? &c->timing[lo] : NULL;
}

const weft_timing *weft_cluster_timings_like(const weft_cluster *c, int device,
                                             const char *begin, int *n)
{
    weft_timing        want = {.device = device, .link = -1, .work = begin};
    int                lo   = first_of(c, &want, -1);
    const weft_timing *t = c->timing + lo, *end = c->timing + c->n_timing;
    *n = 0;
    while (t + *n < end && t[*n].device == device && t[*n].link < 0 &&
           !strncmp(t[*n].work, begin, strlen(begin)))
        ++*n;
    return *n ? t : NULL;
}

weft_status weft_cluster_learn(const weft_cluster *c, const weft_timing *t, int n,
                               weft_cluster **out)
{
    weft_cluster *d  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(weft_cluster__copy(c, &d));
    int known = d->n_timing;
    for (int i = 0; i < n; i++) {
        weft_timing *was =
            known ? bsearch(&t[i], d->timing, (size_t)known, sizeof *t, by_all) : NULL;
        if (was)
            was->s = t[i].s;
        else
            WEFT_GO(weft_cluster__add_timing(d, &t[i]));
    }
    d->version = c->version + 1;
    WEFT_GO(weft_cluster__freeze(d));
    *out = d;
    d    = NULL;
out:
    weft_cluster_destroy(d);
    return st;
}
