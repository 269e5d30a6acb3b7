/* A cluster as YAML: every number of every kind, so that it reads back the same whatever kinds we
 * know. */
#include "cluster/cluster_priv.h"

static void put(weft_text *t, const char *key, double x)
{
    weft_text_add(t, ", %s: ", key);
    weft_text_put_double(t, x);
}

static void put_word(weft_text *t, const char *key, const char *s)
{
    weft_text_add(t, ", %s: ", key);
    weft_text_put_quoted(t, s);
}

static void put_name(weft_text *t, const char *name)
{
    weft_text_add(t, "  - {name: ");
    weft_text_put_quoted(t, name);
}

static void put_rates(const weft_device_kind *k, weft_text *t)
{
    int n = 0;
    for (int i = 0; i < k->n_rate; i++) {
        if (!(k->rate[i].efficiency > 0)) continue;
        weft_text_add(t, n++ ? ", " : ", efficiency_of: {");
        weft_text_put_quoted(t, k->rate[i].dtype);
        weft_text_add(t, ": ");
        weft_text_put_double(t, k->rate[i].efficiency);
    }
    if (n) weft_text_add(t, "}");
}

void weft_cluster_print_device(const weft_device_kind *k, weft_text *t)
{
    put_name(t, k->name);
    if (k->vendor[0]) put_word(t, "vendor", k->vendor);
    weft_text_add(t, ", flops: {");
    for (int i = 0; i < k->n_rate; i++) {
        if (i) weft_text_add(t, ", ");
        weft_text_put_quoted(t, k->rate[i].dtype);
        weft_text_add(t, ": ");
        weft_text_put_double(t, k->rate[i].flops);
    }
    weft_text_add(t, "}");
    put(t, "efficiency", k->efficiency);
    put_rates(k, t);
    if (k->half_size > 0) put(t, "half_size", k->half_size);
    if (k->attention > 0) put(t, "attention", k->attention);
    if (k->stream > 0) put(t, "stream", k->stream);
    for (int i = 0; i < k->n_point; i++) {
        weft_text_add(t, i ? ", {flops: " : ", curve: [{flops: ");
        weft_text_put_double(t, k->point[i].flops);
        put(t, "share", k->point[i].share);
        weft_text_add(t, i + 1 < k->n_point ? "}" : "}]");
    }
    put(t, "mem_Bps", k->mem_Bps);
    weft_text_add(t, ", mem_bytes: %lld", (long long)k->mem_bytes);
    put(t, "launch_s", k->launch_s);
    if (k->source[0]) put_word(t, "source", k->source);
    weft_text_add(t, "}\n");
}

void weft_cluster_print_link(const weft_link_kind *l, weft_text *t)
{
    put_name(t, l->name);
    if (l->scope == WEFT_LINK_NET) weft_text_add(t, ", scope: net");
    put(t, "alpha_s", l->alpha_s);
    put(t, "Bps", l->Bps);
    put(t, "share", l->share);
    for (int i = 0; i < l->n_measured; i++) {
        weft_text_add(t, "%s{n: %d", i ? ", " : ", measured: [", l->measured[i].n);
        put(t, "alpha_s", l->measured[i].alpha_s);
        put(t, "Bps", l->measured[i].Bps);
        weft_text_add(t, i + 1 < l->n_measured ? "}" : "}]");
    }
    if (l->source[0]) put_word(t, "source", l->source);
    weft_text_add(t, "}\n");
}

static void put_node(const weft_cluster *c, const weft_host_kind *k, weft_text *t)
{
    put_name(t, k->name);
    weft_text_add(t, ", count: %d", k->count);
    put_word(t, "device", c->device[k->device].name);
    weft_text_add(t, ", n_device: %d", k->n_device);
    if (k->link >= 0) put_word(t, "link", c->link[k->link].name);
    if (k->net >= 0) {
        put_word(t, "net", c->link[k->net].name);
        weft_text_add(t, ", n_port: %d", k->n_port);
    }
    for (int i = 0; i < k->n_oversubscription; i++) {
        weft_text_add(t, i ? ", " : ", oversubscription: [");
        weft_text_put_double(t, k->oversubscription[i]);
    }
    if (k->n_oversubscription) weft_text_add(t, "]");
    weft_text_add(t, "}\n");
}

static void put_switch(const weft_cluster *c, const weft_switch_kind *s, weft_text *t)
{
    put_name(t, s->name);
    weft_text_add(t, ", span: %d", s->span);
    if (s->link >= 0) put_word(t, "link", c->link[s->link].name);
    put(t, "alpha_s", s->alpha_s);
    put(t, "taper", s->taper);
    weft_text_add(t, "}\n");
}

static void put_health(const weft_health *h, weft_text *t)
{
    weft_text_add(t, "  - {node: %d", h->node);
    if (h->n_node > 1) weft_text_add(t, ", n_node: %d", h->n_node);
    if (h->device >= 0) weft_text_add(t, ", device: %d", h->device);
    if (h->cordoned) weft_text_add(t, ", state: cordoned");
    put(t, "speed", h->speed);
    put(t, "link", h->link);
    if (h->why[0]) put_word(t, "why", h->why);
    weft_text_add(t, "}\n");
}

static void put_timing(const weft_cluster *c, const weft_timing *x, weft_text *t)
{
    weft_text_add(t, x->device >= 0 ? "  - {device: " : "  - {link: ");
    weft_text_put_quoted(t, x->device >= 0 ? c->device[x->device].name
                                           : c->link[x->link].name);
    put_word(t, "work", x->work);
    if (x->n) weft_text_add(t, ", n: %d", x->n);
    for (int i = 0; i < x->n_size; i++) {
        weft_text_add(t, i ? ", " : ", size: [");
        weft_text_put_double(t, x->size[i]);
    }
    weft_text_add(t, "]");
    put(t, "s", x->s);
    weft_text_add(t, "}\n");
}

weft_status weft_cluster_print(const weft_cluster *c, weft_text *t)
{
    weft_text_add(t, "name: ");
    weft_text_put_quoted(t, c->name);
    weft_text_add(t, "\nversion: %lld\ndevice:\n", (long long)c->version);
    for (int i = 0; i < c->n_device; i++) weft_cluster_print_device(&c->device[i], t);
    if (c->n_link) weft_text_add(t, "link:\n");
    for (int i = 0; i < c->n_link; i++) weft_cluster_print_link(&c->link[i], t);
    if (c->n_node) weft_text_add(t, "node:\n");
    for (int i = 0; i < c->n_node; i++) put_node(c, &c->node[i], t);
    if (c->n_switch) weft_text_add(t, "switch:\n");
    for (int i = 0; i < c->n_switch; i++) put_switch(c, &c->sw[i], t);
    if (c->n_health) weft_text_add(t, "health:\n");
    for (int i = 0; i < c->n_health; i++) put_health(&c->health[i], t);
    if (c->n_timing) weft_text_add(t, "timing:\n");
    for (int i = 0; i < c->n_timing; i++) put_timing(c, &c->timing[i], t);
    return weft_text_status(t);
}
