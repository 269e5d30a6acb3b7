/* Paddle's cluster.json: machines with devices, and links between any two of them by global id.
 *
 *     {"machines": [{"hostname": "m0", "devices": [{"global_id": 0, "local_id": 0, "type": "GPU",
 *       "model": "A100-SXM4-40GB", "sp_gflops": 19500, "dp_gflops": 9700, "memory": 40}],
 *       "links": [{"source_global_id": 0, "target_global_id": 1, "type": "NVL", "bandwidth":
 *       235}]}],
 *      "alpha_latency": {"base": {"ring": 8.4}, "switch": 10}}
 *
 * memory is in GiB, bandwidth in GB/s, alpha in microseconds.  A kind of device is known by its
 * model; peaks the file has no field for come from the kind of ours whose name the model holds.
 * A machine's link is the slowest between its accelerators, its net the slowest that leaves it. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster_priv.h"

enum {
    MAX_DEVICE = 1 << 16
};

typedef struct paddle {
    const weft_doc *d;
    weft_cluster   *c;
    weft_kinds      lib;
    int             n_id; /* device ids seen, and the machine of each; -1: none */
    int            *machine_of;
    double          alpha_s;
} paddle;

static weft_status complain(const paddle *p, const weft_node *n, const char *what)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s", weft_doc_file(p->d), n->line, what);
}

static weft_status list_of(const paddle *p, const weft_node *m, const char *key,
                           const weft_node **out)
{
    *out = weft_node_get(m, key);
    if (!*out || (*out)->kind != WEFT_NODE_LIST)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: expected a list", weft_doc_file(p->d),
                         *out ? (*out)->line : m->line, key);
    for (int i = 0; i < (*out)->u.list.n; i++)
        if ((*out)->u.list.node[i]->kind != WEFT_NODE_MAP)
            return complain(p, (*out)->u.list.node[i], "expected a map");
    return WEFT_OK;
}

static bool computes(const char *type)
{
    return type && (!strcmp(type, "GPU") || !strcmp(type, "NPU") ||
                    !strcmp(type, "XPU") || !strcmp(type, "DCU"));
}

/* Ours whose letters, up to the '-', are in the model, the nearest memory; -1. */
static int known(const paddle *p, const char *model, double gib)
{
    int    best = -1;
    double off  = INFINITY;
    char   low[64];
    size_t n = 0;
    for (; model[n] && n + 1 < sizeof low; n++)
        low[n] = (char)tolower((unsigned char)model[n]);
    low[n] = 0;
    for (int i = 0; i < p->lib.c->n_device; i++) {
        const weft_device_kind *k = &p->lib.c->device[i];
        char                    stem[32];
        size_t                  m = strcspn(k->name, "-");
        if (m >= sizeof stem || m < 2 || !strcmp(k->name, "cpu")) continue;
        memcpy(stem, k->name, m);
        stem[m]     = 0;
        double away = fabs((double)k->mem_bytes / 1073741824.0 - gib);
        if (strstr(low, stem) && away < off) {
            best = i;
            off  = away;
        }
    }
    return best;
}

static weft_status add_device(paddle *p, const weft_node *m, int *out)
{
    weft_device_kind k     = {.efficiency = 0.5, .mem_Bps = 1e11};
    weft_flop_rate   f32   = {.dtype = "f32"};
    const char      *model = "device";
    double           sp = 0, gib = 0;
    WEFT_TRY(weft_doc_get_string(p->d, m, "model", &model));
    WEFT_TRY(weft_doc_get_double(p->d, m, "sp_gflops", &sp));
    WEFT_TRY(weft_doc_get_double(p->d, m, "memory", &gib));
    model += strspn(model, " ");
    int i = known(p, model, gib);
    if (i >= 0) {
        k = p->lib.c->device[i];
    } else {
        if (!(sp > 0)) return complain(p, m, "sp_gflops: expected the peak in fp32");
        k.rate     = &f32;
        k.n_rate   = 1;
        k.launch_s = 5e-06;
        k.source   = "cluster.json says its peak; the rest is assumed";
        f32.flops  = sp * 1e9;
    }
    k.name = model;
    if (gib > 0 && gib < 1e6) k.mem_bytes = (int64_t)(gib * 1073741824.0);
    return weft_cluster__add_device(p->c, &k, out);
}

/* Ids and their machines; the machine as a node without links yet. */
static weft_status read_machine(paddle *p, const weft_node *m, int machine)
{
    const weft_node *l;
    weft_host_kind   k = {.count = 1, .device = -1, .link = -1, .net = -1};
    WEFT_TRY(weft_doc_get_string(p->d, m, "hostname", &k.name));
    WEFT_TRY(list_of(p, m, "devices", &l));
    for (int i = 0; i < l->u.list.n; i++) {
        const weft_node *x    = l->u.list.node[i];
        const char      *type = NULL;
        int64_t          id   = -1;
        int              kind;
        WEFT_TRY(weft_doc_get_string(p->d, x, "type", &type));
        WEFT_TRY(weft_doc_get_int(p->d, x, "global_id", &id));
        if (id < 0 || id >= MAX_DEVICE)
            return complain(p, x, "global_id: expected a number from 0 to 65535");
        if (p->machine_of[id] >= 0) return complain(p, x, "global_id: there twice");
        p->machine_of[id] = computes(type) ? 2 * machine : 2 * machine + 1;
        if (!computes(type)) continue;
        WEFT_TRY(add_device(p, x, &kind));
        if (k.device >= 0 && kind != k.device)
            return complain(p, x, "two kinds of devices in one machine are not read");
        k.device = kind;
        k.n_device++;
    }
    if (k.device < 0) return complain(p, m, "a machine without a GPU, NPU, XPU or DCU");
    return weft_cluster__add_node(p->c, &k);
}

static weft_status set_link(paddle *p, const weft_node *x, const char *type, double gbps,
                            bool net, weft_host_kind *k)
{
    weft_link_kind l  = {.scope = net, .alpha_s = p->alpha_s, .Bps = gbps * 1e9};
    int            at = net ? k->net : k->link;
    if (!(gbps > 0) || gbps > 1e9)
        return complain(p, x, "bandwidth: expected GB/s above 0");
    if (at >= 0 && p->c->link[at].Bps <= l.Bps) return WEFT_OK;
    l.share  = 1;
    l.source = "cluster.json";
    l.name   = weft_arena_printf(p->c->arena, "%s-%g", type ? type : "link", gbps);
    WEFT_TRY(weft_arena_status(p->c->arena));
    WEFT_TRY(weft_cluster__add_link(p->c, &l, &at));
    *(net ? &k->net : &k->link) = at;
    if (net) k->n_port = 1;
    return WEFT_OK;
}

static weft_status read_links(paddle *p, const weft_node *m, int machine)
{
    const weft_node *l = weft_node_get(m, "links");
    if (!l) return WEFT_OK;
    WEFT_TRY(list_of(p, m, "links", &l));
    for (int i = 0; i < l->u.list.n; i++) {
        const weft_node *x = l->u.list.node[i];
        int64_t          a = -1, b = -1;
        double           gbps = 0;
        const char      *type = NULL;
        WEFT_TRY(weft_doc_get_int(p->d, x, "source_global_id", &a));
        WEFT_TRY(weft_doc_get_int(p->d, x, "target_global_id", &b));
        WEFT_TRY(weft_doc_get_double(p->d, x, "bandwidth", &gbps));
        WEFT_TRY(weft_doc_get_string(p->d, x, "type", &type));
        if (a < 0 || b < 0 || a >= MAX_DEVICE || b >= MAX_DEVICE ||
            p->machine_of[a] < 0 || p->machine_of[b] < 0)
            return complain(p, x, "a link to a global_id that no device has");
        int  ma = p->machine_of[a], mb = p->machine_of[b];
        bool net = ma / 2 != mb / 2;
        if (!net && ((ma & 1) || (mb & 1))) continue; /* to a CPU or a NIC of its own */
        WEFT_TRY(set_link(p, x, type, gbps, net, &p->c->node[net ? ma / 2 : machine]));
    }
    return WEFT_OK;
}

/* Machines that are alike and side by side become one kind with a count. */
static void fold(weft_cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->n_node; i++) {
        weft_host_kind *k = &c->node[i], *to = n ? &c->node[n - 1] : NULL;
        if (to && to->device == k->device && to->n_device == k->n_device &&
            to->link == k->link && to->net == k->net && to->n_port == k->n_port)
            to->count++;
        else
            c->node[n++] = *k;
    }
    c->n_node = n;
}

/* Links the file leaves out: the usual ones of a kind we know, PCIe and 10 Gb/s Ethernet
 * otherwise. */
static weft_status fill_links(paddle *p)
{
    weft_cluster *lib = p->lib.c;
    for (int i = 0; i < p->c->n_node; i++) {
        weft_host_kind   *k = &p->c->node[i];
        int               j = known(p, p->c->device[k->device].name,
                                    (double)p->c->device[k->device].mem_bytes / 1073741824.0);
        const weft_usual *u = j >= 0 ? &p->lib.usual[j] : NULL;
        if (k->link < 0 && k->n_device > 1) {
            int l = weft_cluster__find_link(lib, u && u->link ? u->link : "pcie3");
            WEFT_TRY(weft_cluster__add_link(p->c, &lib->link[l < 0 ? 0 : l], &k->link));
        }
        if (k->net < 0 && p->c->n_node > 1) {
            int l = weft_cluster__find_link(lib, u && u->net ? u->net : "eth-10g");
            WEFT_TRY(weft_cluster__add_link(p->c, &lib->link[l < 0 ? 0 : l], &k->net));
            k->n_port = u ? u->n_port : 1;
        }
    }
    return WEFT_OK;
}

static weft_status read_alpha(paddle *p)
{
    const weft_node *a = weft_node_get(weft_doc_root(p->d), "alpha_latency");
    const weft_node *base =
        a && a->kind == WEFT_NODE_MAP ? weft_node_get(a, "base") : NULL;
    double us = 5;
    if (base && base->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_double(p->d, base, "ring", &us));
    if (!(us >= 0 && us < 1e6))
        return complain(p, base, "alpha_latency: expected microseconds");
    p->alpha_s = us * 1e-6;
    return WEFT_OK;
}

static weft_status read_all(paddle *p)
{
    const weft_node *l;
    p->c->name    = weft_arena_strdup(p->c->arena, weft_doc_file(p->d));
    p->machine_of = WEFT_ARENA_ARRAY(p->c->arena, int, MAX_DEVICE);
    WEFT_TRY(weft_arena_status(p->c->arena));
    for (int i = 0; i < MAX_DEVICE; i++) p->machine_of[i] = -1;
    WEFT_TRY(read_alpha(p));
    WEFT_TRY(list_of(p, weft_doc_root(p->d), "machines", &l));
    for (int i = 0; i < l->u.list.n; i++) WEFT_TRY(read_machine(p, l->u.list.node[i], i));
    for (int i = 0; i < l->u.list.n; i++) WEFT_TRY(read_links(p, l->u.list.node[i], i));
    WEFT_TRY(fill_links(p));
    fold(p->c);
    weft_status st = weft_cluster__freeze(p->c);
    return st == WEFT_ERR_ARG ? weft_fail_in(st, "%s: ", weft_doc_file(p->d)) : st;
}

weft_status weft_cluster__read_paddle(const weft_doc *d, weft_cluster **out)
{
    paddle      p = {.d = d};
    weft_status st;
    WEFT_GO(weft_cluster__open_kinds(NULL, &p.lib));
    WEFT_GO(weft_cluster__create(&p.c));
    WEFT_GO(read_all(&p));
    *out = p.c;
    p.c  = NULL;
out:
    weft_cluster_destroy(p.c);
    weft_cluster__close_kinds(&p.lib);
    return st;
}
