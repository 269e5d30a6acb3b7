/* The kinds that can be named: data/devices.yaml and data/links.yaml as built in, and a user's
 * file over them. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/suggest.h"
#include "cluster/cluster_priv.h"

static weft_status read_into(const char *file, const char *text, size_t n,
                             weft_cluster *into, weft_usual **usual)
{
    weft_doc *d;
    WEFT_TRY(weft_doc_parse_yaml(file, text, n, &d));
    weft_status st = weft_cluster__read_kinds(d, into, usual);
    weft_doc_destroy(d);
    return st;
}

/* Kinds of from that into has no name for. */
static weft_status merge(weft_kinds *into, const weft_kinds *from)
{
    weft_cluster *c = into->c;
    weft_usual   *all =
        WEFT_ARENA_ARRAY(c->arena, weft_usual, c->n_device + from->c->n_device + 1);
    if (!all) return weft_arena_status(c->arena);
    memcpy(all, into->usual, sizeof *all * (size_t)c->n_device);
    into->usual = all;
    for (int i = 0; i < from->c->n_device; i++) {
        weft_usual u = from->usual[i];
        int        at, n = c->n_device;
        WEFT_TRY(weft_cluster__add_device(c, &from->c->device[i], &at));
        if (at < n) continue;
        if (u.link) u.link = weft_arena_strdup(c->arena, u.link);
        if (u.net) u.net = weft_arena_strdup(c->arena, u.net);
        if (u.domain) u.domain = weft_arena_strdup(c->arena, u.domain);
        all[at] = u;
    }
    for (int i = 0; i < from->c->n_link; i++)
        WEFT_TRY(weft_cluster__add_link(c, &from->c->link[i], NULL));
    return weft_arena_status(c->arena);
}

static weft_status open_own(weft_kinds *out)
{
    weft_usual *none = NULL;
    WEFT_TRY(weft_cluster__create(&out->c));
    out->c->name = "kinds";
    WEFT_TRY(read_into("devices.yaml", weft_cluster_devices_yaml,
                       strlen(weft_cluster_devices_yaml), out->c, &out->usual));
    return read_into("links.yaml", weft_cluster_links_yaml,
                     strlen(weft_cluster_links_yaml), out->c, &none);
}

static weft_status open_both(const char *file, weft_kinds *own, weft_kinds *user)
{
    char  *text;
    size_t n;
    WEFT_TRY(open_own(own));
    if (!file) return WEFT_OK;
    WEFT_TRY(weft_cluster__create(&user->c));
    user->c->name = "kinds";
    WEFT_TRY(weft_io_read_as(file, WEFT_IO_PIPES, &text, &n));
    weft_status st = read_into(file, text, n, user->c, &user->usual);
    free(text);
    return st == WEFT_OK ? merge(user, own) : st;
}

weft_status weft_cluster__open_kinds(const char *file, weft_kinds *out)
{
    weft_kinds  own = {0}, user = {0};
    weft_status st = open_both(file, &own, &user);
    if (st == WEFT_OK) {
        *out  = user.c ? user : own;
        own.c = user.c ? own.c : NULL;
        user  = (weft_kinds){0};
    }
    weft_cluster__close_kinds(&own);
    weft_cluster__close_kinds(&user);
    return st;
}

void weft_cluster__close_kinds(weft_kinds *k)
{
    weft_cluster_destroy(k->c);
    k->c = NULL;
}

weft_status weft_cluster_kinds(const char *kinds, weft_cluster **out)
{
    weft_kinds k = {0};
    WEFT_TRY(weft_cluster__open_kinds(kinds, &k));
    *out = k.c;
    return WEFT_OK;
}

static const char *near(weft_cluster *c, const char *name, const char **list, int n)
{
    const char *best = NULL;
    for (int i = n - 1; i >= 0; i--) /* "a100" for "a100-80g" */
        if (name[0] && !strncmp(list[i], name, strlen(name))) best = list[i];
    if (!best) best = weft_suggest(name, list, n);
    const char *s =
        best ? weft_arena_printf(c->arena, ", did you mean '%s'?", best) : NULL;
    return s ? s : "";
}

const char *weft_cluster__near_device(weft_cluster *c, const char *name)
{
    const char **list = WEFT_ARENA_ARRAY(c->arena, const char *, c->n_device + 1);
    for (int i = 0; list && i < c->n_device; i++) list[i] = c->device[i].name;
    return list ? near(c, name, list, c->n_device) : "";
}

const char *weft_cluster__near_link(weft_cluster *c, const char *name, int scope)
{
    const char **list = WEFT_ARENA_ARRAY(c->arena, const char *, c->n_link + 1);
    int          n    = 0;
    for (int i = 0; list && i < c->n_link; i++)
        if (scope < 0 || (int)c->link[i].scope == scope) list[n++] = c->link[i].name;
    return list ? near(c, name, list, n) : "";
}
