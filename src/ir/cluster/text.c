/* A cluster, or a list of kinds, out of a YAML or JSON document. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cluster/cluster_priv.h"

typedef struct reader {
    const weft_doc *d;
    weft_cluster   *c;
    const char     *kinds; /* a user's file of them, or NULL */
    weft_kinds      lib;   /* opened when a name is not the file's own */
} reader;

static weft_status complain(const reader *r, const weft_node *n, const char *what,
                            const char *name)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s%s%s", weft_doc_file(r->d), n->line, what,
                     name ? ": " : "", name ? name : "");
}

static weft_status need_lib(reader *r)
{
    return r->lib.c ? WEFT_OK : weft_cluster__open_kinds(r->kinds, &r->lib);
}

/* A list of maps under key; absent: 0 entries. */
static weft_status get_list(const reader *r, const weft_node *root, const char *key,
                            const weft_node **out, int *n)
{
    const weft_node *l = weft_node_get(root, key);
    *n                 = 0;
    if (!l || l->kind == WEFT_NODE_NULL) return WEFT_OK;
    if (l->kind != WEFT_NODE_LIST) return complain(r, l, "expected a list", key);
    for (int i = 0; i < l->u.list.n; i++)
        if (l->u.list.node[i]->kind != WEFT_NODE_MAP)
            return complain(r, l->u.list.node[i], "expected a map", key);
    *out = l;
    *n   = l->u.list.n;
    return WEFT_OK;
}

/* A text that is kept; absent: *out stays. */
static weft_status get_text(const reader *r, const weft_node *m, const char *key,
                            const char **out)
{
    const char *s = NULL;
    WEFT_TRY(weft_doc_get_string(r->d, m, key, &s));
    if (s) *out = weft_arena_strdup(r->c->arena, s);
    return weft_arena_status(r->c->arena);
}

static weft_status get_name(const reader *r, const weft_node *m, const char *key,
                            const char **out)
{
    const char *s = NULL;
    WEFT_TRY(get_text(r, m, key, &s));
    if (!s) return complain(r, m, "missing", key);
    *out = s;
    return WEFT_OK;
}

static weft_status get_count(const reader *r, const weft_node *m, const char *key,
                             int *out)
{
    int64_t v = *out;
    WEFT_TRY(weft_doc_get_int(r->d, m, key, &v));
    if (v < -1 || v > 1 << 24) return complain(r, m, "out of range", key);
    *out = (int)v;
    return WEFT_OK;
}

enum {
    MAX_OVERSUBSCRIPTION = 64
};

/* A list of at most `most` numbers under key; absent: none. */
static weft_status get_numbers(const reader *r, const weft_node *m, const char *key,
                               int most, double *x, int *n)
{
    const weft_node *l = weft_node_get(m, key);
    *n                 = 0;
    if (!l || l->kind == WEFT_NODE_NULL) return WEFT_OK;
    if (l->kind != WEFT_NODE_LIST) return complain(r, l, "expected a list", key);
    if (l->u.list.n > most) return complain(r, l, "too many numbers", key);
    for (int i = 0; i < l->u.list.n; i++) {
        const weft_node *v = l->u.list.node[i];
        if (v->kind != WEFT_NODE_INT && v->kind != WEFT_NODE_FLOAT)
            return complain(r, v, "expected numbers", key);
        x[i] = v->kind == WEFT_NODE_INT ? (double)v->u.i : v->u.f;
    }
    *n = l->u.list.n;
    return WEFT_OK;
}

/* ---- kinds ---- */

static weft_status read_rates(const reader *r, const weft_node *m, weft_device_kind *k)
{
    const weft_node *f = weft_node_get(m, "flops");
    if (!f && k->n_rate) return WEFT_OK;
    if (!f || f->kind != WEFT_NODE_MAP)
        return complain(r, m, "expected a map of peaks, such as {f32: 1e12}", "flops");
    k->n_rate = f->u.list.n;
    k->rate   = WEFT_ARENA_ARRAY(r->c->arena, weft_flop_rate, k->n_rate + 1);
    WEFT_TRY(weft_arena_status(r->c->arena));
    for (int i = 0; i < k->n_rate; i++) {
        const char *dtype = f->u.list.node[i]->key;
        k->rate[i].dtype  = weft_arena_strdup(r->c->arena, dtype);
        WEFT_TRY(weft_doc_get_double(r->d, f, dtype, &k->rate[i].flops));
    }
    return weft_arena_status(r->c->arena);
}

static weft_status read_curve(const reader *r, const weft_node *m, weft_device_kind *k)
{
    static const char *const key[] = {"flops", "share"};
    const weft_node         *l     = NULL;
    int                      n;
    WEFT_TRY(get_list(r, m, "curve", &l, &n));
    if (!l) return WEFT_OK;
    k->n_point = n;
    k->point   = WEFT_ARENA_ARRAY(r->c->arena, weft_share_point, n + 1);
    WEFT_TRY(weft_arena_status(r->c->arena));
    for (int i = 0; i < n; i++) {
        const weft_node *p = l->u.list.node[i];
        WEFT_TRY(weft_doc_check_keys(r->d, p, key, 2));
        WEFT_TRY(weft_doc_get_double(r->d, p, "flops", &k->point[i].flops));
        WEFT_TRY(weft_doc_get_double(r->d, p, "share", &k->point[i].share));
    }
    return WEFT_OK;
}

static weft_status like_device(reader *r, const weft_node *m, weft_device_kind *k)
{
    const char *like = NULL;
    WEFT_TRY(weft_doc_get_string(r->d, m, "like", &like));
    if (!like) return WEFT_OK;
    WEFT_TRY(need_lib(r));
    int i = weft_cluster__find_device(r->lib.c, like);
    if (i < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: there is no device '%s'%s",
                         weft_doc_file(r->d), m->line, like,
                         weft_cluster__near_device(r->lib.c, like));
    *k      = r->lib.c->device[i];
    k->rate = weft_arena_memdup(r->c->arena, k->rate,
                                sizeof(weft_flop_rate) * (size_t)k->n_rate);
    return weft_arena_status(r->c->arena);
}

static weft_status read_efficiencies(const reader *r, const weft_node *m,
                                     weft_device_kind *k)
{
    const weft_node *f = weft_node_get(m, "efficiency_of");
    if (f && f->kind != WEFT_NODE_MAP)
        return complain(r, f, "expected a map", "efficiency_of");
    for (int i = 0; f && i < f->u.list.n; i++) {
        const char *dtype = f->u.list.node[i]->key;
        int         at    = 0;
        while (at < k->n_rate && strcmp(k->rate[at].dtype, dtype)) at++;
        if (at == k->n_rate) return complain(r, f, "no flops are given for", dtype);
        WEFT_TRY(weft_doc_get_double(r->d, f, dtype, &k->rate[at].efficiency));
    }
    return WEFT_OK;
}

static weft_status read_device(reader *r, const weft_node *m, bool lib,
                               weft_device_kind *k)
{
    static const char *const key[] = {
        "name",      "like",      "vendor",        "flops",  "efficiency",
        "mem_Bps",   "mem_bytes", "launch_s",      "source", "half_size",
        "attention", "stream",    "efficiency_of", "curve",  "usual"};
    const weft_doc *d = r->d;
    WEFT_TRY(weft_doc_check_keys(d, m, key, lib ? 15 : 14));
    *k = (weft_device_kind){.efficiency = 1, .vendor = "", .source = ""};
    WEFT_TRY(like_device(r, m, k));
    WEFT_TRY(get_name(r, m, "name", &k->name));
    WEFT_TRY(get_text(r, m, "vendor", &k->vendor));
    WEFT_TRY(get_text(r, m, "source", &k->source));
    WEFT_TRY(read_rates(r, m, k));
    WEFT_TRY(read_efficiencies(r, m, k));
    WEFT_TRY(read_curve(r, m, k));
    WEFT_TRY(weft_doc_get_double(d, m, "efficiency", &k->efficiency));
    WEFT_TRY(weft_doc_get_double(d, m, "half_size", &k->half_size));
    WEFT_TRY(weft_doc_get_double(d, m, "attention", &k->attention));
    WEFT_TRY(weft_doc_get_double(d, m, "stream", &k->stream));
    WEFT_TRY(weft_doc_get_double(d, m, "mem_Bps", &k->mem_Bps));
    WEFT_TRY(weft_doc_get_int(d, m, "mem_bytes", &k->mem_bytes));
    return weft_doc_get_double(d, m, "launch_s", &k->launch_s);
}

static weft_status read_measured(const reader *r, const weft_node *m, weft_link_kind *k)
{
    static const char *const key[] = {"n", "alpha_s", "Bps"};
    const weft_node         *l     = NULL;
    int                      n;
    WEFT_TRY(get_list(r, m, "measured", &l, &n));
    if (!l) return WEFT_OK;
    k->n_measured = n;
    k->measured   = WEFT_ARENA_ARRAY(r->c->arena, weft_link_measured, n + 1);
    WEFT_TRY(weft_arena_status(r->c->arena));
    for (int i = 0; i < n; i++) {
        const weft_node *p = l->u.list.node[i];
        WEFT_TRY(weft_doc_check_keys(r->d, p, key, 3));
        WEFT_TRY(get_count(r, p, "n", &k->measured[i].n));
        WEFT_TRY(weft_doc_get_double(r->d, p, "alpha_s", &k->measured[i].alpha_s));
        WEFT_TRY(weft_doc_get_double(r->d, p, "Bps", &k->measured[i].Bps));
    }
    return WEFT_OK;
}

static weft_status like_link(reader *r, const weft_node *m, weft_link_kind *k)
{
    const char *like = NULL;
    WEFT_TRY(weft_doc_get_string(r->d, m, "like", &like));
    if (!like) return WEFT_OK;
    WEFT_TRY(need_lib(r));
    int i = weft_cluster__find_link(r->lib.c, like);
    if (i < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: there is no link '%s'%s",
                         weft_doc_file(r->d), m->line, like,
                         weft_cluster__near_link(r->lib.c, like, -1));
    *k = r->lib.c->link[i];
    return WEFT_OK;
}

static weft_status read_link(reader *r, const weft_node *m, weft_link_kind *k)
{
    static const char *const key[] = {"name", "like",  "scope",    "alpha_s",
                                      "Bps",  "share", "measured", "source"};
    const char              *scope = NULL;
    if (weft_node_get(m, "crowd")) /* of an earlier build's calibration */
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: unknown key 'crowd': it is oversubscription now; weft "
                         "cluster calibrate measures it",
                         weft_doc_file(r->d), m->line);
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 8));
    *k = (weft_link_kind){.share = 1, .source = ""};
    WEFT_TRY(like_link(r, m, k));
    WEFT_TRY(get_name(r, m, "name", &k->name));
    WEFT_TRY(get_text(r, m, "source", &k->source));
    WEFT_TRY(weft_doc_get_string(r->d, m, "scope", &scope));
    if (scope && strcmp(scope, "net") && strcmp(scope, "node"))
        return complain(r, m, "scope: expected node or net", scope);
    if (scope) k->scope = strcmp(scope, "net") ? WEFT_LINK_NODE : WEFT_LINK_NET;
    WEFT_TRY(read_measured(r, m, k));
    WEFT_TRY(weft_doc_get_double(r->d, m, "alpha_s", &k->alpha_s));
    WEFT_TRY(weft_doc_get_double(r->d, m, "share", &k->share));
    return weft_doc_get_double(r->d, m, "Bps", &k->Bps);
}

/* As the kind that it is like. */
static weft_status like_usual(const reader *r, const weft_node *m, weft_usual *u)
{
    const char *like = NULL;
    weft_arena *a    = r->c->arena;
    WEFT_TRY(weft_doc_get_string(r->d, m, "like", &like));
    if (!like) return WEFT_OK;
    *u = r->lib.usual[weft_cluster__find_device(r->lib.c, like)];
    if (u->link) u->link = weft_arena_strdup(a, u->link);
    if (u->net) u->net = weft_arena_strdup(a, u->net);
    if (u->domain) u->domain = weft_arena_strdup(a, u->domain);
    return weft_arena_status(a);
}

static weft_status read_usual(const reader *r, const weft_node *m, weft_usual *u)
{
    static const char *const key[] = {"n_device", "link",   "net",
                                      "n_port",   "domain", "span"};
    const weft_node         *n     = weft_node_get(m, "usual");
    *u                             = (weft_usual){.n_device = 1, .n_port = 1};
    if (!n) return like_usual(r, m, u);
    if (n->kind != WEFT_NODE_MAP) return complain(r, n, "expected a map", "usual");
    WEFT_TRY(weft_doc_check_keys(r->d, n, key, 6));
    WEFT_TRY(get_count(r, n, "n_device", &u->n_device));
    WEFT_TRY(get_count(r, n, "n_port", &u->n_port));
    WEFT_TRY(get_count(r, n, "span", &u->span));
    WEFT_TRY(get_text(r, n, "link", &u->link));
    WEFT_TRY(get_text(r, n, "net", &u->net));
    if (u->n_device < 1 || u->n_port < 1 || u->span < 0)
        return complain(r, n, "usual: counts are to be 1 or more", NULL);
    return get_text(r, n, "domain", &u->domain);
}

static weft_status read_devices(reader *r, const weft_node *root, weft_usual **usual)
{
    const weft_node *l = NULL;
    int              n;
    WEFT_TRY(get_list(r, root, "device", &l, &n));
    if (usual) *usual = WEFT_ARENA_ARRAY(r->c->arena, weft_usual, n + 1);
    for (int i = 0; i < n; i++) {
        const weft_node *m = l->u.list.node[i];
        weft_device_kind k;
        int              at;
        WEFT_TRY(read_device(r, m, usual != NULL, &k));
        if (weft_cluster__find_device(r->c, k.name) >= 0)
            return complain(r, m, "this device is there twice", k.name);
        WEFT_TRY(weft_cluster__add_device(r->c, &k, &at));
        if (usual) WEFT_TRY(read_usual(r, m, &(*usual)[at]));
    }
    return weft_arena_status(r->c->arena);
}

static weft_status read_links(reader *r, const weft_node *root)
{
    const weft_node *l = NULL;
    int              n;
    WEFT_TRY(get_list(r, root, "link", &l, &n));
    for (int i = 0; i < n; i++) {
        weft_link_kind k;
        WEFT_TRY(read_link(r, l->u.list.node[i], &k));
        if (weft_cluster__find_link(r->c, k.name) >= 0)
            return complain(r, l->u.list.node[i], "this link is there twice", k.name);
        WEFT_TRY(weft_cluster__add_link(r->c, &k, NULL));
    }
    return WEFT_OK;
}

weft_status weft_cluster__read_kinds(const weft_doc *d, weft_cluster *into,
                                     weft_usual **usual)
{
    static const char *const key[] = {"device", "link"};
    reader                   r     = {.d = d, .c = into};
    weft_status              st    = WEFT_OK;
    const weft_node         *root  = weft_doc_root(d);
    if (!root || root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: kinds are a map of device and link",
                         weft_doc_file(d));
    WEFT_GO(weft_doc_check_keys(d, root, key, 2));
    WEFT_GO(read_devices(&r, root, usual));
    WEFT_GO(read_links(&r, root));
out:
    weft_cluster__close_kinds(&r.lib);
    return st;
}

/* ---- nodes, switches, health ---- */

/* The link that key names, the file's own or one we know; -1 when the key is absent. */
static weft_status find_link(reader *r, const weft_node *m, const char *key, int *out)
{
    const char *s = NULL;
    WEFT_TRY(weft_doc_get_string(r->d, m, key, &s));
    if (!s) return WEFT_OK;
    *out = weft_cluster__find_link(r->c, s);
    if (*out >= 0) return WEFT_OK;
    WEFT_TRY(need_lib(r));
    int i = weft_cluster__find_link(r->lib.c, s);
    if (i >= 0) return weft_cluster__add_link(r->c, &r->lib.c->link[i], out);
    const char *near = weft_cluster__near_link(r->c, s, -1);
    if (!near[0]) near = weft_cluster__near_link(r->lib.c, s, -1);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: there is no such link: %s%s",
                     weft_doc_file(r->d), m->line, key, s, near);
}

/* *usual: the node a device we know is mostly found in; the file's own devices have none. */
static weft_status find_device(reader *r, const weft_node *m, int *out,
                               const weft_usual **usual)
{
    const char *s = NULL;
    WEFT_TRY(get_name(r, m, "device", &s));
    *out = weft_cluster__find_device(r->c, s);
    if (*out >= 0) return WEFT_OK;
    WEFT_TRY(need_lib(r));
    int i = weft_cluster__find_device(r->lib.c, s);
    if (i >= 0) {
        *usual = &r->lib.usual[i];
        return weft_cluster__add_device(r->c, &r->lib.c->device[i], out);
    }
    const char *near = weft_cluster__near_device(r->c, s);
    if (!near[0]) near = weft_cluster__near_device(r->lib.c, s);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: there is no such device: %s%s",
                     weft_doc_file(r->d), m->line, s, near);
}

static weft_status usual_link(reader *r, const char *name, int *out)
{
    int i = name ? weft_cluster__find_link(r->lib.c, name) : -1;
    return i < 0 ? WEFT_OK : weft_cluster__add_link(r->c, &r->lib.c->link[i], out);
}

static weft_status read_node(reader *r, const weft_node *m, int net)
{
    static const char *const key[] = {"name", "count", "device", "n_device",
                                      "link", "net",   "n_port", "oversubscription"};
    weft_host_kind           k     = {.count = 1, .n_device = 1, .link = -1, .net = -1};
    const weft_usual        *usual = NULL;
    double                   oversubscription[MAX_OVERSUBSCRIPTION];
    if (weft_node_get(m, "crowd")) /* of an earlier build's calibration */
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: unknown key 'crowd': it is oversubscription now; weft "
                         "cluster calibrate measures it",
                         weft_doc_file(r->d), m->line);
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 8));
    WEFT_TRY(find_device(r, m, &k.device, &usual));
    if (usual) k.n_device = usual->n_device;
    k.name = r->c->device[k.device].name;
    WEFT_TRY(get_text(r, m, "name", &k.name));
    WEFT_TRY(get_count(r, m, "count", &k.count));
    WEFT_TRY(get_count(r, m, "n_device", &k.n_device));
    WEFT_TRY(find_link(r, m, "link", &k.link));
    WEFT_TRY(find_link(r, m, "net", &k.net));
    if (usual && k.link < 0 && k.n_device > 1)
        WEFT_TRY(usual_link(r, usual->link, &k.link));
    k.n_port = k.n_device;
    if (k.net < 0 && net >= 0) k.net = net;
    if (usual && k.net < 0) {
        WEFT_TRY(usual_link(r, usual->net, &k.net));
        k.n_port = usual->n_port;
    }
    WEFT_TRY(get_count(r, m, "n_port", &k.n_port));
    if (k.net < 0) k.n_port = 0;
    WEFT_TRY(get_numbers(r, m, "oversubscription", MAX_OVERSUBSCRIPTION, oversubscription,
                         &k.n_oversubscription));
    k.oversubscription = oversubscription;
    return weft_cluster__add_node(r->c, &k);
}

static weft_status read_switch(reader *r, const weft_node *m)
{
    static const char *const key[] = {"name", "span", "link", "alpha_s", "taper"};
    weft_switch_kind         k     = {.link = -1, .taper = 1};
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 5));
    WEFT_TRY(get_name(r, m, "name", &k.name));
    WEFT_TRY(get_count(r, m, "span", &k.span));
    WEFT_TRY(find_link(r, m, "link", &k.link));
    WEFT_TRY(weft_doc_get_double(r->d, m, "alpha_s", &k.alpha_s));
    WEFT_TRY(weft_doc_get_double(r->d, m, "taper", &k.taper));
    return weft_cluster__add_switch(r->c, &k);
}

static weft_status read_health(reader *r, const weft_node *m)
{
    static const char *const key[] = {"node",  "n_node", "device", "state",
                                      "speed", "link",   "why"};
    weft_health h     = {.node = -1, .n_node = 1, .device = -1, .speed = 1, .link = 1};
    const char *state = NULL;
    h.why             = "";
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 7));
    WEFT_TRY(get_count(r, m, "node", &h.node));
    if (h.node < 0) return complain(r, m, "missing", "node");
    WEFT_TRY(get_count(r, m, "n_node", &h.n_node));
    WEFT_TRY(get_count(r, m, "device", &h.device));
    WEFT_TRY(weft_doc_get_string(r->d, m, "state", &state));
    if (state && strcmp(state, "cordoned") && strcmp(state, "degraded") &&
        strcmp(state, "ok"))
        return complain(r, m, "state: expected ok, degraded or cordoned", state);
    h.cordoned = state && !strcmp(state, "cordoned");
    WEFT_TRY(weft_doc_get_double(r->d, m, "speed", &h.speed));
    WEFT_TRY(weft_doc_get_double(r->d, m, "link", &h.link));
    WEFT_TRY(get_text(r, m, "why", &h.why));
    return weft_cluster__add_health(r->c, &h);
}

static weft_status read_timing(reader *r, const weft_node *m)
{
    static const char *const key[] = {"device", "link", "work", "n", "size", "s"};
    weft_timing              x     = {.device = -1, .link = -1};
    const char              *d     = NULL;
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 6));
    WEFT_TRY(weft_doc_get_string(r->d, m, "device", &d));
    if (d) x.device = weft_cluster__find_device(r->c, d);
    if (d && x.device < 0) return complain(r, m, "there is no such device", d);
    WEFT_TRY(find_link(r, m, "link", &x.link));
    if ((x.device < 0) == (x.link < 0))
        return complain(r, m, "a timing is of a device or of a link", NULL);
    WEFT_TRY(get_name(r, m, "work", &x.work));
    WEFT_TRY(get_count(r, m, "n", &x.n));
    WEFT_TRY(get_numbers(r, m, "size", WEFT_TIMING_SIZES, x.size, &x.n_size));
    WEFT_TRY(weft_doc_get_double(r->d, m, "s", &x.s));
    bool good = x.n_size > 0 && x.s > 0 && x.n >= 0;
    for (int i = 0; i < x.n_size; i++) good = good && x.size[i] >= 0;
    if (!good)
        return complain(r, m, "a timing has one to three sizes, and s above 0", x.work);
    return weft_cluster__add_timing(r->c, &x);
}

static weft_status read_cluster(reader *r)
{
    static const char *const key[] = {"name", "version", "device", "link",  "node",
                                      "net",  "switch",  "health", "timing"};
    weft_cluster            *c     = r->c;
    const weft_node         *root = weft_doc_root(r->d), *l = NULL;
    int                      n, net                         = -1;
    WEFT_TRY(weft_doc_check_keys(r->d, root, key, 9));
    WEFT_TRY(get_text(r, root, "name", &c->name));
    WEFT_TRY(weft_doc_get_int(r->d, root, "version", &c->version));
    WEFT_TRY(read_devices(r, root, NULL));
    WEFT_TRY(read_links(r, root));
    WEFT_TRY(find_link(r, root, "net", &net));
    WEFT_TRY(get_list(r, root, "node", &l, &n));
    for (int i = 0; i < n; i++) WEFT_TRY(read_node(r, l->u.list.node[i], net));
    WEFT_TRY(get_list(r, root, "switch", &l, &n));
    for (int i = 0; i < n; i++) WEFT_TRY(read_switch(r, l->u.list.node[i]));
    WEFT_TRY(get_list(r, root, "health", &l, &n));
    for (int i = 0; i < n; i++) WEFT_TRY(read_health(r, l->u.list.node[i]));
    WEFT_TRY(get_list(r, root, "timing", &l, &n));
    for (int i = 0; i < n; i++) WEFT_TRY(read_timing(r, l->u.list.node[i]));
    weft_status st = weft_cluster__freeze(c);
    return st == WEFT_ERR_ARG ? weft_fail_in(st, "%s: ", weft_doc_file(r->d)) : st;
}

static weft_status parse_doc(const char *file, const char *text, size_t n, weft_doc **out)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", text[i]) && text[i]) i++;
    return i < n && text[i] == '{' ? weft_doc_parse_json(file, text, n, out)
                                   : weft_doc_parse_yaml(file, text, n, out);
}

weft_status weft_cluster__parse(const char *file, const char *text, size_t n,
                                const char *kinds, weft_cluster **out)
{
    weft_doc   *d = NULL;
    reader      r = {.kinds = kinds};
    weft_status st;
    WEFT_TRY(parse_doc(file, text, n, &d));
    const weft_node *root = weft_doc_root(d);
    r.d                   = d;
    if (!root || root->kind != WEFT_NODE_MAP)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: a cluster is a map", file));
    if (weft_node_get(root, "machines")) {
        WEFT_GO(weft_cluster__read_paddle(d, out));
        goto out;
    }
    WEFT_GO(weft_cluster__create(&r.c));
    WEFT_GO(read_cluster(&r));
    *out = r.c;
    r.c  = NULL;
out:
    weft_cluster_destroy(r.c);
    weft_cluster__close_kinds(&r.lib);
    weft_doc_destroy(d);
    return st;
}

weft_status weft_cluster_parse(const char *file, const char *text, size_t n,
                               weft_cluster **out)
{
    return weft_cluster__parse(file, text, n, NULL, out);
}
