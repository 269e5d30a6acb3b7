/* Building a cluster: what is added is copied, names are one each, freeze sets what follows from
 * the rest. */
#include <string.h>

#include "cluster/cluster_priv.h"

weft_status weft_cluster__create(weft_cluster **out)
{
    weft_arena *a;
    WEFT_TRY(weft_arena_create(&a));
    weft_cluster *c = WEFT_ARENA_NEW(a, weft_cluster);
    if (!c) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a cluster");
    }
    c->arena   = a;
    c->name    = "";
    c->version = 1;
    *out       = c;
    return WEFT_OK;
}

void weft_cluster_destroy(weft_cluster *c)
{
    if (c) weft_arena_destroy(c->arena);
}

/* One more place at the end of an array of n; the array may move. */
static weft_status more(weft_arena *a, void **list, int *n, size_t size)
{
    /* powers of two are when it is full */
    if (!(*n & (*n - 1))) {
        char *wide = weft_arena_alloc(a, size * (size_t)(*n ? 2 * *n : 1));
        if (!wide) return weft_arena_status(a);
        if (*n) memcpy(wide, *list, size * (size_t)*n);
        *list = wide;
    }
    memset((char *)*list + size * (size_t)*n, 0, size);
    ++*n;
    return WEFT_OK;
}

static const char *keep(weft_arena *a, const char *s)
{
    return weft_arena_strdup(a, s ? s : "");
}

int weft_cluster__find_device(const weft_cluster *c, const char *name)
{
    for (int i = 0; i < c->n_device; i++)
        if (!strcmp(c->device[i].name, name)) return i;
    return -1;
}

int weft_cluster__find_link(const weft_cluster *c, const char *name)
{
    for (int i = 0; i < c->n_link; i++)
        if (!strcmp(c->link[i].name, name)) return i;
    return -1;
}

static weft_status copy_device(weft_arena *a, const weft_device_kind *k,
                               weft_device_kind *d)
{
    *d        = *k;
    d->name   = keep(a, k->name);
    d->vendor = keep(a, k->vendor);
    d->source = keep(a, k->source);
    d->rate   = weft_arena_memdup(
          a, k->rate, sizeof(weft_flop_rate) * (size_t)(k->n_rate + !k->n_rate));
    d->point = k->n_point
                   ? weft_arena_memdup(a, k->point,
                                       sizeof(weft_share_point) * (size_t)k->n_point)
                   : NULL;
    for (int i = 0; d->rate && i < d->n_rate; i++)
        d->rate[i].dtype = keep(a, k->rate[i].dtype);
    return weft_arena_status(a);
}

weft_status weft_cluster__add_device(weft_cluster *c, const weft_device_kind *k, int *out)
{
    int at = weft_cluster__find_device(c, k->name);
    if (at < 0) {
        at        = c->n_device;
        void *all = c->device;
        WEFT_TRY(more(c->arena, &all, &c->n_device, sizeof *k));
        c->device = all;
        WEFT_TRY(copy_device(c->arena, k, &c->device[at]));
    }
    if (out) *out = at;
    return WEFT_OK;
}

weft_status weft_cluster__add_link(weft_cluster *c, const weft_link_kind *k, int *out)
{
    int at = weft_cluster__find_link(c, k->name);
    if (at < 0) {
        at        = c->n_link;
        void *all = c->link;
        WEFT_TRY(more(c->arena, &all, &c->n_link, sizeof *k));
        c->link           = all;
        weft_link_kind *l = &c->link[at];
        *l                = *k;
        l->name           = keep(c->arena, k->name);
        l->source         = keep(c->arena, k->source);
        l->measured =
            k->n_measured
                ? weft_arena_memdup(c->arena, k->measured,
                                    sizeof(weft_link_measured) * (size_t)k->n_measured)
                : NULL;
    }
    if (out) *out = at;
    return weft_arena_status(c->arena);
}

weft_status weft_cluster__add_node(weft_cluster *c, const weft_host_kind *k)
{
    void *all = c->node;
    WEFT_TRY(more(c->arena, &all, &c->n_node, sizeof *k));
    c->node                     = all;
    c->node[c->n_node - 1]      = *k;
    c->node[c->n_node - 1].name = keep(c->arena, k->name);
    if (k->n_oversubscription)
        c->node[c->n_node - 1].oversubscription =
            weft_arena_memdup(c->arena, k->oversubscription,
                              sizeof(double) * (size_t)k->n_oversubscription);
    return weft_arena_status(c->arena);
}

weft_status weft_cluster__add_switch(weft_cluster *c, const weft_switch_kind *k)
{
    void *all = c->sw;
    WEFT_TRY(more(c->arena, &all, &c->n_switch, sizeof *k));
    c->sw                       = all;
    c->sw[c->n_switch - 1]      = *k;
    c->sw[c->n_switch - 1].name = keep(c->arena, k->name);
    return weft_arena_status(c->arena);
}

weft_status weft_cluster__add_health(weft_cluster *c, const weft_health *h)
{
    void *all = c->health;
    WEFT_TRY(more(c->arena, &all, &c->n_health, sizeof *h));
    c->health                      = all;
    c->health[c->n_health - 1]     = *h;
    c->health[c->n_health - 1].why = keep(c->arena, h->why);
    return weft_arena_status(c->arena);
}

weft_status weft_cluster__add_timing(weft_cluster *c, const weft_timing *t)
{
    void *all = c->timing;
    WEFT_TRY(more(c->arena, &all, &c->n_timing, sizeof *t));
    c->timing                       = all;
    c->timing[c->n_timing - 1]      = *t;
    c->timing[c->n_timing - 1].work = keep(c->arena, t->work);
    return weft_arena_status(c->arena);
}

weft_status weft_cluster__copy(const weft_cluster *c, weft_cluster **out)
{
    weft_cluster *d  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(weft_cluster__create(&d));
    d->name    = keep(d->arena, c->name);
    d->version = c->version;
    for (int i = 0; i < c->n_device; i++)
        WEFT_GO(weft_cluster__add_device(d, &c->device[i], NULL));
    for (int i = 0; i < c->n_link; i++)
        WEFT_GO(weft_cluster__add_link(d, &c->link[i], NULL));
    for (int i = 0; i < c->n_node; i++) WEFT_GO(weft_cluster__add_node(d, &c->node[i]));
    for (int i = 0; i < c->n_switch; i++) WEFT_GO(weft_cluster__add_switch(d, &c->sw[i]));
    for (int i = 0; i < c->n_health; i++)
        WEFT_GO(weft_cluster__add_health(d, &c->health[i]));
    for (int i = 0; i < c->n_timing; i++)
        WEFT_GO(weft_cluster__add_timing(d, &c->timing[i]));
    *out = d;
    d    = NULL;
out:
    weft_cluster_destroy(d);
    return st;
}

weft_status weft_cluster__freeze(weft_cluster *c)
{
    WEFT_TRY(weft_arena_status(c->arena));
    WEFT_TRY(weft_cluster_verify(c));
    weft_cluster__sort_timings(c);
    int node = 0, rank = 0;
    for (int i = 0; i < c->n_node; i++) {
        c->node[i].first_node = node;
        c->node[i].first_rank = rank;
        node += c->node[i].count;
        rank += c->node[i].count * c->node[i].n_device;
    }
    for (int i = 0; i < c->n_health; i++) {
        weft_health          *h = &c->health[i];
        const weft_host_kind *a = weft_cluster__kind_of_node(c, h->node);
        const weft_host_kind *b = weft_cluster__kind_of_node(c, h->node + h->n_node - 1);
        h->first_rank = a->first_rank + (h->node - a->first_node) * a->n_device +
                        (h->device < 0 ? 0 : h->device);
        h->n_rank = h->device >= 0
                        ? 1
                        : b->first_rank +
                              (h->node + h->n_node - b->first_node) * b->n_device -
                              h->first_rank;
    }
    return WEFT_OK;
}

weft_status weft_cluster_copy(const weft_cluster *c, weft_cluster **out)
{
    weft_cluster *d;
    WEFT_TRY(weft_cluster__copy(c, &d));
    weft_status st = weft_cluster__freeze(d);
    if (st == WEFT_OK)
        *out = d;
    else
        weft_cluster_destroy(d);
    return st;
}

weft_status weft_cluster__add_usual(weft_cluster *c, const weft_kinds *lib, int device,
                                    int count, int n_device)
{
    const weft_usual *u = &lib->usual[device];
    weft_host_kind    k = {.count = count, .n_device = n_device, .link = -1, .net = -1};
    const char       *d = lib->c->device[device].name;
    WEFT_TRY(weft_cluster__add_device(c, &lib->c->device[device], &k.device));
    k.name = weft_arena_printf(c->arena, "%dx%s", n_device, d);
    int l  = u->link ? weft_cluster__find_link(lib->c, u->link) : -1;
    if (l >= 0 && n_device > 1)
        WEFT_TRY(weft_cluster__add_link(c, &lib->c->link[l], &k.link));
    l = u->net ? weft_cluster__find_link(lib->c, u->net) : -1;
    if (l >= 0) WEFT_TRY(weft_cluster__add_link(c, &lib->c->link[l], &k.net));
    /* a part of the usual node has its part of the ports */
    if (l >= 0) k.n_port = u->n_device ? u->n_port * n_device / u->n_device : u->n_port;
    if (l >= 0 && k.n_port < 1) k.n_port = 1;
    return weft_cluster__add_node(c, &k);
}
