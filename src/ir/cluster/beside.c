/* Kinds of one cluster beside those of another: what a host has that is no node of it. */
#include "cluster/cluster_priv.h"

static weft_status add_kinds(weft_cluster *c, const weft_cluster *more)
{
    for (int i = 0; i < more->n_device; i++)
        WEFT_TRY(weft_cluster__add_device(c, &more->device[i], NULL));
    for (int i = 0; i < more->n_link; i++)
        WEFT_TRY(weft_cluster__add_link(c, &more->link[i], NULL));
    return WEFT_OK;
}

/* Timings of what came from more, by its place in c. */
static weft_status add_timings(weft_cluster *c, const weft_cluster *own,
                               const weft_cluster *more)
{
    for (int i = 0; i < more->n_timing; i++) {
        weft_timing t = more->timing[i];
        const char *name =
            t.device >= 0 ? more->device[t.device].name : more->link[t.link].name;
        if (t.device >= 0 ? weft_cluster__find_device(own, name) >= 0
                          : weft_cluster__find_link(own, name) >= 0)
            continue;
        if (t.device >= 0)
            t.device = weft_cluster__find_device(c, name);
        else
            t.link = weft_cluster__find_link(c, name);
        WEFT_TRY(weft_cluster__add_timing(c, &t));
    }
    return WEFT_OK;
}

weft_status weft_cluster_beside(const weft_cluster *c, const weft_cluster *more,
                                weft_cluster **out)
{
    weft_cluster *d  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(weft_cluster__copy(c, &d));
    WEFT_GO(add_kinds(d, more));
    WEFT_GO(add_timings(d, c, more));
    WEFT_GO(weft_cluster__freeze(d));
    *out = d;
    d    = NULL;
out:
    weft_cluster_destroy(d);
    return st;
}
