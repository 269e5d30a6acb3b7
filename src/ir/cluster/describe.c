/* A cluster in a few lines, for people. */
#include "cluster/cluster_priv.h"

/* 1.5e11 -> "150 G". */
static void put_scaled(weft_text *t, double x)
{
    static const char *const unit[] = {"", " k", " M", " G", " T", " P", " E"};
    int                      i      = 0;
    while (x >= 999.5 && i < 6) x /= 1000, i++;
    weft_text_add(t, "%.3g%s", x, i ? unit[i] : " ");
}

/* What measuring found, in the numbers that are priced with; beside it what the built-in kind of
 * that name says. */
static void put_reached(const weft_device_kind *d, const char *head, weft_text *t)
{
    double stream = d->stream > 0 ? d->stream : 1;
    weft_text_add(t, "       %-14s ", head);
    for (int i = 0; i < d->n_rate; i++) {
        double e = d->rate[i].efficiency > 0 ? d->rate[i].efficiency : d->efficiency;
        weft_text_add(t, "%s%s ", i ? ", " : "", d->rate[i].dtype);
        put_scaled(t, e * d->rate[i].flops);
        weft_text_add(t, "flop/s (%.3g)", e);
    }
    weft_text_add(t, "; half of it at %.3g; memory ", d->half_size);
    put_scaled(t, stream * d->mem_Bps);
    weft_text_add(t, "B/s (%.3g), %.4g GiB; launch %.3g us\n", stream,
                  (double)d->mem_bytes / 1073741824.0, 1e6 * d->launch_s);
}

static weft_status put_beside(const weft_device_kind *d, weft_text *t)
{
    weft_kinds lib;
    if (!d->n_point || !d->vendor[0]) return WEFT_OK;
    put_reached(d, "reached", t);
    WEFT_TRY(weft_cluster__open_kinds(NULL, &lib));
    int i = weft_cluster__find_device(lib.c, d->name);
    if (i >= 0) put_reached(&lib.c->device[i], "data sheet", t);
    weft_cluster__close_kinds(&lib);
    return WEFT_OK;
}

static void put_device(const weft_device_kind *d, weft_text *t)
{
    weft_text_add(t, "device %-14s", d->name);
    for (int i = 0; i < d->n_rate; i++) {
        weft_text_add(t, "%s%s ", i ? ", " : " ", d->rate[i].dtype);
        put_scaled(t, d->rate[i].flops);
        weft_text_add(t, "flop/s");
    }
    weft_text_add(t, "; %.3g GiB at ", (double)d->mem_bytes / 1073741824.0);
    put_scaled(t, d->mem_Bps);
    weft_text_add(t, "B/s; efficiency %.3g", d->efficiency);
    if (d->n_point) weft_text_add(t, " (curve of %d points)", d->n_point);
    weft_text_add(t, "; launch %.3g us\n", 1e6 * d->launch_s);
    if (d->source[0]) weft_text_add(t, "       %-14s %s\n", "", d->source);
}

static void put_link(const weft_link_kind *l, weft_text *t)
{
    weft_text_add(t, "link   %-14s ", l->name);
    put_scaled(t, l->Bps);
    weft_text_add(t, "B/s a %s, %.3g of it reached, %.3g us\n",
                  l->scope == WEFT_LINK_NET ? "port" : "device", l->share,
                  1e6 * l->alpha_s);
    if (l->source[0]) weft_text_add(t, "       %-14s %s\n", "", l->source);
}

static void put_nodes(const weft_cluster *c, weft_text *t)
{
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        weft_text_add(t, "nodes  %d..%d: %d x (%d x %s", k->first_node,
                      k->first_node + k->count - 1, k->count, k->n_device,
                      c->device[k->device].name);
        if (k->link >= 0) weft_text_add(t, ", %s", c->link[k->link].name);
        if (k->net >= 0) weft_text_add(t, ", %d x %s", k->n_port, c->link[k->net].name);
        weft_text_add(t, "), devices %d..%d\n", k->first_rank,
                      k->first_rank + k->count * k->n_device - 1);
    }
    for (int i = 0; i < c->n_switch; i++) {
        const weft_switch_kind *s = &c->sw[i];
        weft_text_add(t, "switch %s: ", s->name);
        if (s->span)
            weft_text_add(t, "%d nodes each", s->span);
        else
            weft_text_add(t, "all nodes");
        if (s->link >= 0) weft_text_add(t, ", %s of each device", c->link[s->link].name);
        weft_text_add(t, ", +%.3g us, taper %.3g\n", 1e6 * s->alpha_s, s->taper);
    }
}

/* How much was measured, and what devices of a node cost each other. */
static void put_measured(const weft_cluster *c, weft_text *t)
{
    int work = 0;
    for (int i = 0; i < c->n_timing; i++) work += c->timing[i].device >= 0;
    if (c->n_timing)
        weft_text_add(t, "timed  %d sizes of work, %d of messages and collectives\n",
                      work, c->n_timing - work);
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        for (int m = 0; m < k->n_oversubscription; m++)
            weft_text_add(t, m ? ", %.3g" : "oversubscription  work takes %.3g",
                          k->oversubscription[m]);
        if (k->n_oversubscription)
            weft_text_add(t, " times as long with 1, 2, ... at it\n");
    }
}

static void put_health(const weft_cluster *c, weft_text *t)
{
    for (int i = 0; i < c->n_health; i++) {
        const weft_health *h = &c->health[i];
        weft_text_add(t, "health node %d", h->node);
        if (h->n_node > 1) weft_text_add(t, "..%d", h->node + h->n_node - 1);
        if (h->device >= 0) weft_text_add(t, " device %d", h->device);
        weft_text_add(t, ": %s", h->cordoned ? "cordoned" : "degraded");
        if (h->speed < 1) weft_text_add(t, ", speed %.3g", h->speed);
        if (h->link < 1) weft_text_add(t, ", links %.3g", h->link);
        weft_text_add(t, "%s%s\n", h->why[0] ? "; " : "", h->why);
    }
}

weft_status weft_cluster_describe(const weft_cluster *c, weft_text *t)
{
    if (c->n_node) {
        int node = weft_cluster_n_node(c), device = weft_cluster_count(c);
        weft_text_add(t, "cluster %s, version %lld: %d node%s, %d device%s, %d usable\n",
                      c->name, (long long)c->version, node, node == 1 ? "" : "s", device,
                      device == 1 ? "" : "s", weft_cluster_usable(c));
        put_nodes(c, t);
        put_health(c, t);
    }
    for (int i = 0; i < c->n_device; i++) {
        put_device(&c->device[i], t);
        WEFT_TRY(put_beside(&c->device[i], t));
    }
    for (int i = 0; i < c->n_link; i++) put_link(&c->link[i], t);
    put_measured(c, t);
    if (c->n_node)
        weft_text_add(t, "shape %016llx, constants %016llx\n",
                      (unsigned long long)weft_cluster_hash_shape(c),
                      (unsigned long long)weft_cluster_hash_constants(c));
    return weft_text_status(t);
}
