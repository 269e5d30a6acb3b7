/* Two hashes: the shape (what a plan must match) and the numbers (which tell that it was made for
 * others). */
#include <string.h>

#include "base/hash.h"
#include "cluster/cluster.h"

static void add_text(weft_hash_state *h, const char *s)
{
    weft_hash_add(h, s, strlen(s) + 1);
}

static void add_int(weft_hash_state *h, int64_t x)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)((uint64_t)x >> (8 * i));
    weft_hash_add(h, b, sizeof b);
}

static void add_real(weft_hash_state *h, double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_int(h, bits);
}

static void add_name(weft_hash_state *h, const weft_cluster *c, int link)
{
    add_text(h, link < 0 ? "" : c->link[link].name);
}

uint64_t weft_cluster_hash_shape(const weft_cluster *c)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        add_text(&h, c->device[k->device].name);
        add_int(&h, k->count);
        add_int(&h, k->n_device);
        add_name(&h, c, k->link);
        add_name(&h, c, k->net);
        add_int(&h, k->n_port);
    }
    add_int(&h, c->n_switch);
    for (int i = 0; i < c->n_switch; i++) {
        add_int(&h, c->sw[i].span);
        add_name(&h, c, c->sw[i].link);
    }
    return weft_hash_value(&h);
}

static void add_device(weft_hash_state *h, const weft_device_kind *d)
{
    add_text(h, d->name);
    add_int(h, d->n_rate);
    for (int i = 0; i < d->n_rate; i++) {
        add_text(h, d->rate[i].dtype);
        add_real(h, d->rate[i].flops);
        add_real(h, d->rate[i].efficiency);
    }
    const double x[] = {d->efficiency, d->half_size, d->attention,
                        d->stream,     d->mem_Bps,   d->launch_s};
    for (size_t i = 0; i < WEFT_COUNT(x); i++) add_real(h, x[i]);
    add_int(h, d->mem_bytes);
    add_int(h, d->n_point);
    for (int i = 0; i < d->n_point; i++) {
        add_real(h, d->point[i].flops);
        add_real(h, d->point[i].share);
    }
}

static void add_link(weft_hash_state *h, const weft_link_kind *l)
{
    add_text(h, l->name);
    add_int(h, l->scope);
    add_real(h, l->alpha_s);
    add_real(h, l->Bps);
    add_real(h, l->share);
    add_int(h, l->n_measured);
    for (int i = 0; i < l->n_measured; i++) {
        add_int(h, l->measured[i].n);
        add_real(h, l->measured[i].alpha_s);
        add_real(h, l->measured[i].Bps);
    }
}

uint64_t weft_cluster_hash_constants(const weft_cluster *c)
{
    weft_hash_state h;
    weft_hash_init(&h, 2);
    for (int i = 0; i < c->n_device; i++) add_device(&h, &c->device[i]);
    for (int i = 0; i < c->n_link; i++) add_link(&h, &c->link[i]);
    for (int i = 0; i < c->n_node; i++)
        for (int k = 0; k < c->node[i].n_oversubscription; k++)
            add_real(&h, c->node[i].oversubscription[k]);
    for (int i = 0; i < c->n_timing; i++) {
        add_text(&h, c->timing[i].work);
        add_int(&h, c->timing[i].n);
        for (int k = 0; k < c->timing[i].n_size; k++) add_real(&h, c->timing[i].size[k]);
        add_real(&h, c->timing[i].s);
    }
    for (int i = 0; i < c->n_switch; i++) {
        add_real(&h, c->sw[i].alpha_s);
        add_real(&h, c->sw[i].taper);
    }
    for (int i = 0; i < c->n_health; i++) {
        const weft_health *x = &c->health[i];
        add_int(&h, x->first_rank);
        add_int(&h, x->n_rank);
        add_int(&h, x->cordoned);
        add_real(&h, x->speed);
        add_real(&h, x->link);
    }
    return weft_hash_value(&h);
}
