/* Events: a cluster and one line give the next cluster.  Nothing but the line and the cluster
 * decides the result, so a log of events, replayed, gives the same object. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/suggest.h"
#include "cluster/cluster_priv.h"

typedef struct event {
    char   verb[16];
    int    node, device; /* device -1: all of the node */
    int    ranks;        /* of share */
    double speed, link;
    char   why[128];
} event;

static weft_status bad(const char *text, const char *what)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "event '%s': %s", text, what);
}

/* One "key value" at p; *p moves behind it. */
static weft_status read_pair(const char *text, const char **p, event *e)
{
    static const char *const names[] = {"node",  "device", "ranks",
                                        "speed", "link",   "why"};
    char                     key[16], value[64];
    int                      n = 0;
    double                   x = 0;
    if (sscanf(*p, " %15s %63s%n", key, value, &n) != 2)
        return bad(text, "expected words in pairs, such as node 3");
    if (!strcmp(key, "why")) { /* the rest of the line */
        const char *rest = strstr(*p, "why") + 3, *end = rest + strlen(rest);
        rest += strspn(rest, " ");
        if ((size_t)(end - rest) >= sizeof e->why) return bad(text, "why: is too long");
        memcpy(e->why, rest, (size_t)(end - rest) + 1);
        for (int len; rest < end; rest += len)
            if (!(len = weft_escape_utf8_length(rest, end)))
                return bad(text, "why: is not UTF-8");
        *p = end;
        return WEFT_OK;
    }
    if (!weft_text_read_double(value, &x) || !isfinite(x))
        return bad(text, "expected a number");
    if (!strcmp(key, "speed"))
        e->speed = x;
    else if (!strcmp(key, "link"))
        e->link = x;
    else if (!strcmp(key, "node") || !strcmp(key, "device") || !strcmp(key, "ranks")) {
        if (!(x >= 0 && x < 1 << 24) || x != (int)x)
            return bad(text, "nodes and devices are counted from 0");
        *(key[0] == 'n' ? &e->node : key[0] == 'd' ? &e->device : &e->ranks) = (int)x;
    } else {
        const char *near = weft_suggest(key, names, (int)WEFT_COUNT(names));
        return WEFT_FAIL(WEFT_ERR_ARG, "event '%s': unknown word '%s'%s%s%s", text, key,
                         near ? ", did you mean '" : "", near ? near : "",
                         near ? "'?" : "");
    }
    *p += n;
    return WEFT_OK;
}

static weft_status read_event(const char *text, event *e)
{
    static const char *const verbs[] = {"cordon", "degrade", "restore",
                                        "remove", "share",   "add"};
    int                      n = 0, known = 0;
    *e = (event){.node = -1, .device = -1, .speed = 1, .link = 1};
    if (sscanf(text, " %15s%n", e->verb, &n) != 1) return bad(text, "is empty");
    for (size_t i = 0; i < WEFT_COUNT(verbs); i++) known += !strcmp(e->verb, verbs[i]);
    if (!known) {
        const char *near = weft_suggest(e->verb, verbs, (int)WEFT_COUNT(verbs));
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "event '%s': expected cordon, degrade, restore, remove, share "
                         "or add%s%s%s",
                         text, near ? ", did you mean '" : "", near ? near : "",
                         near ? "'?" : "");
    }
    if (!strcmp(e->verb, "add")) return WEFT_OK;
    for (const char *p = text + n; p[strspn(p, " ")];) WEFT_TRY(read_pair(text, &p, e));
    if (e->node < 0) return bad(text, "says no node");
    return WEFT_OK;
}

static bool covers(const weft_health *h, int node, int device)
{
    return node >= h->node && node < h->node + h->n_node &&
           (h->device < 0 || h->device == device);
}

/* The list again, where every entry is one device, or one whole node or run of them that the
 * event spares. */
static weft_status spread(const weft_cluster *c, weft_cluster *d, const event *e)
{
    d->n_health = 0;
    d->health   = NULL;
    for (int i = 0; i < c->n_health; i++) {
        weft_health h   = c->health[i];
        int         end = h.node + h.n_node;
        if (h.device >= 0 || e->node < h.node || e->node >= end) {
            WEFT_TRY(weft_cluster__add_health(d, &h));
            continue;
        }
        h.n_node = e->node - h.node;
        if (h.n_node) WEFT_TRY(weft_cluster__add_health(d, &h));
        h.node   = e->node;
        h.n_node = 1;
        int n    = weft_cluster__kind_of_node(c, e->node)->n_device;
        for (h.device = 0; h.device < n; h.device++)
            WEFT_TRY(weft_cluster__add_health(d, &h));
        h.device = -1;
        h.node   = e->node + 1;
        h.n_node = end - h.node;
        if (h.n_node) WEFT_TRY(weft_cluster__add_health(d, &h));
    }
    return WEFT_OK;
}

static int by_place(const void *a, const void *b)
{
    const weft_health *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return (x->device > y->device) - (x->device < y->device);
}

/* Whole nodes whose devices are all alike become one entry again, so that equal health has one
 * form. */
static void gather(weft_cluster *d)
{
    int n = 0;
    for (int i = 0; i < d->n_health;) {
        weft_health h = d->health[i];
        int         k = i, n_device;
        n_device      = weft_cluster__kind_of_node(d, h.node)->n_device;
        while (h.device == 0 && k < d->n_health && d->health[k].node == h.node &&
               d->health[k].device == k - i && d->health[k].cordoned == h.cordoned &&
               !(d->health[k].speed < h.speed || d->health[k].speed > h.speed) &&
               !(d->health[k].link < h.link || d->health[k].link > h.link) &&
               !strcmp(d->health[k].why, h.why))
            k++;
        if (h.device == 0 && k - i == n_device) {
            h.device = -1;
            i        = k;
        } else {
            i++;
        }
        d->health[n++] = h;
    }
    d->n_health = n;
}

static weft_status set_health(const weft_cluster *c, weft_cluster *d, const event *e)
{
    const weft_host_kind *k = weft_cluster__kind_of_node(c, e->node);
    if (!k || e->device >= k->n_device)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no node %d%s", c->name, e->node,
                         k ? " with so many devices" : "");
    WEFT_TRY(spread(c, d, e));
    int first = e->device < 0 ? 0 : e->device;
    int last  = e->device < 0 ? k->n_device - 1 : e->device;
    int n     = 0;
    for (int i = 0; i < d->n_health; i++) { /* what the event replaces */
        bool gone = e->device < 0 ? covers(&d->health[i], e->node, d->health[i].device)
                                  : covers(&d->health[i], e->node, e->device);
        if (!gone) d->health[n++] = d->health[i];
    }
    weft_health *left   = d->health;
    int          n_left = n;
    d->health           = NULL;
    d->n_health         = 0;
    for (int i = 0; i < n_left; i++) WEFT_TRY(weft_cluster__add_health(d, &left[i]));
    if (strcmp(e->verb, "restore")) {
        weft_health h = {.node     = e->node,
                         .n_node   = 1,
                         .cordoned = !strcmp(e->verb, "cordon"),
                         .speed    = e->speed,
                         .link     = e->link,
                         .why      = e->why};
        for (h.device = first; h.device <= last; h.device++)
            WEFT_TRY(weft_cluster__add_health(d, &h));
    }
    if (d->n_health) qsort(d->health, (size_t)d->n_health, sizeof(weft_health), by_place);
    gather(d);
    return WEFT_OK;
}

/* One node less of its kind; the numbers of those behind it move up. */
static weft_status remove_node(const weft_cluster *c, weft_cluster *d, const event *e)
{
    event gone = *e;
    strcpy(gone.verb, "restore");
    gone.device = -1;
    WEFT_TRY(set_health(c, d, &gone));
    for (int i = 0; i < d->n_health; i++)
        if (d->health[i].node > e->node) d->health[i].node--;
    for (int i = 0, n = 0; i < c->n_node; n += c->node[i++].count) {
        if (e->node < n || e->node >= n + c->node[i].count) continue;
        if (--d->node[i].count) return WEFT_OK;
        memmove(&d->node[i], &d->node[i + 1],
                sizeof(weft_host_kind) * (size_t)(d->n_node - i - 1));
        d->n_node--;
        return WEFT_OK;
    }
    return WEFT_OK;
}

static weft_status add_line(weft_cluster *d, const char *text)
{
    weft_kinds  lib = {0};
    const char *at  = strstr(text, "add") + 3;
    WEFT_TRY(weft_cluster__open_kinds(NULL, &lib));
    weft_status st = weft_cluster__read_line(d, &lib, text, at);
    weft_cluster__close_kinds(&lib);
    return st;
}

weft_status weft_cluster_change(const weft_cluster *c, const char *text,
                                weft_cluster **out)
{
    event         e;
    weft_cluster *d  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(read_event(text, &e));
    WEFT_TRY(weft_cluster__copy(c, &d));
    d->version++;
    if (!strcmp(e.verb, "add"))
        WEFT_GO(add_line(d, text));
    else if (!strcmp(e.verb, "remove"))
        WEFT_GO(remove_node(c, d, &e));
    else if (!strcmp(e.verb, "share"))
        WEFT_GO(weft_cluster__share_device(d, e.node, e.ranks));
    else
        WEFT_GO(set_health(c, d, &e));
    WEFT_GO(weft_cluster__freeze(d));
    *out = d;
    d    = NULL;
out:
    weft_cluster_destroy(d);
    return st;
}
