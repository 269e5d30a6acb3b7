/* A cluster as the kinds of devices that a search tells apart. */
#include <string.h>

#include "engine/engine.h"
#include "search/search_priv.h"

/* Bad health makes devices and wires slower. */
static void slow_down(weft_search_machine *m)
{
    for (int i = 0; i < m->device.n_rate; i++) m->rate[i].flops *= m->speed;
    m->device.mem_Bps *= m->speed;
    m->fabric.in.Bps *= m->link;
    m->fabric.in.Bps_2 *= m->link;
    m->fabric.in.Bps_4 *= m->link;
    m->fabric.out.Bps *= m->link;
    m->fabric.port_Bps *= m->link;
    m->fabric.ports_Bps *= m->link;
}

/* out.Bps is a device's share while all of its node talk: fewer get more, up to a whole port. */
static void share_ports(const weft_host_kind *k, weft_cost_fabric *f)
{
    if (k->net < 0 || k->n_port < 1) return;
    f->node      = k->n_device;
    f->ports_Bps = f->out.Bps * k->n_device;
    f->port_Bps  = f->ports_Bps / k->n_port;
    if (f->port_Bps < f->out.Bps) f->port_Bps = f->out.Bps;
}

static weft_status add_kind(const weft_hardware *h, int node, const weft_device_run *r,
                            const weft_cost_constants *k, weft_arena *a,
                            weft_search_machines *out)
{
    if (out->n == WEFT_COST_MAX_DEVICE)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "the cluster has more than %d kinds of devices, degraded ones "
                         "counted: cordon the odd ones",
                         WEFT_COST_MAX_DEVICE);
    weft_search_machine *m = &out->kind[out->n++];
    *m                     = (weft_search_machine){.device   = h->device[node],
                                                   .per_node = r->node->n_device,
                                                   .node     = node,
                                                   .speed    = r->speed,
                                                   .link     = r->link};
    m->device.name         = weft_arena_strdup(a, h->device[node].name);
    m->device.rate         = m->rate;
    m->device.n_rate       = m->device.n_rate < 8 ? m->device.n_rate : 8;
    memcpy(m->rate, h->device[node].rate, sizeof(*m->rate) * (size_t)m->device.n_rate);
    for (int i = 0; i < m->device.n_rate; i++)
        m->rate[i].dtype = weft_arena_strdup(a, m->rate[i].dtype);
    WEFT_TRY(weft_arena_status(a));
    weft_cost_constants_device(k, &m->device);
    weft_estimate_fabric(k, &h->net[node], r->node->n_device, &m->fabric);
    share_ports(r->node, &m->fabric);
    int kind   = weft_cost_kind_of(k, WEFT_COST_DEVICE, m->device.name);
    out->known = out->known && weft_cost_kind_fitted(k, WEFT_COST_DEVICE, kind);
    slow_down(m);
    return weft_arena_status(a);
}

static int find_kind(const weft_search_machines *m, int node, const weft_device_run *r)
{
    for (int i = 0; i < m->n; i++)
        if (m->kind[i].node == node && m->kind[i].speed == r->speed &&
            m->kind[i].link == r->link)
            return i;
    return -1;
}

typedef struct parts { /* of the kind that is being counted */
    int cap, last_node;
} parts;

static weft_status add_part(weft_search_machine *m, parts *p, int node, int n,
                            weft_arena *a)
{
    if (n < 1) return WEFT_OK;
    if (m->n_part && p->last_node == node) {
        m->part[m->n_part - 1] += n;
        return WEFT_OK;
    }
    WEFT_TRY(
        weft_arena_grow(a, (void **)&m->part, &p->cap, m->n_part + 1, sizeof *m->part));
    m->part[m->n_part++] = n;
    p->last_node         = node;
    return WEFT_OK;
}

static weft_status count_run(const weft_device_run *r, weft_search_machine *m, parts *p,
                             weft_arena *a)
{
    int each = r->node->n_device, at = r->first - r->node->first_rank, n = r->n;
    int head = at % each ? each - at % each : 0;
    if (head > n) head = n;
    WEFT_TRY(add_part(m, p, at / each, head, a));
    m->n_node += (n - head) / each;
    return add_part(m, p, (at + n) / each, (n - head) % each, a);
}

weft_status weft_search_machines_of(const weft_cluster *c, const weft_cost_constants *k,
                                    weft_arena *a, weft_search_machines *out)
{
    weft_hardware  *h = NULL;
    weft_config     none;
    weft_device_run r;
    parts           p[WEFT_COST_MAX_DEVICE] = {0};
    int             at                      = 0;
    weft_status     st                      = WEFT_OK;
    *out                                    = (weft_search_machines){.known = true};
    weft_engine_open(&none);
    WEFT_TRY(weft_engine_cluster(c, a, &none, &h));
    while (weft_cluster_next_run(c, &at, &r)) {
        int node = (int)(r.node - c->node);
        if (r.cordoned) continue;
        int i = find_kind(out, node, &r);
        if (i < 0) {
            i = out->n;
            WEFT_GO(add_kind(h, node, &r, k, a, out));
        }
        WEFT_GO(count_run(&r, &out->kind[i], &p[i], a));
    }
    if (!out->n)
        st = WEFT_FAIL(WEFT_ERR_ARG, "the cluster has no device that may be used");
out:
    weft_hardware_destroy(h);
    return st;
}

int weft_search_usable(const weft_search_machine *m, int tp)
{
    int n = m->n_node * m->per_node;
    if (tp > m->per_node || m->per_node % tp) /* groups reach over nodes */
        return n / tp * tp;
    for (int i = 0; i < m->n_part; i++) n += m->part[i] / tp * tp;
    return n;
}
