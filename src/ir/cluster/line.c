/* A cluster in one line.
 *
 *     line  = group { "+" group } { "," ports }
 *     group = [ N "x" ] "(" N "x" device { "," ports } ")"  |  [ N "x" ] device
 *     ports = [ N "x" ] link
 *
 * A link is the node's own or its net by its scope.  What is left out is usual for the device. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cluster/cluster_priv.h"

typedef struct scan {
    weft_cluster     *c;
    const weft_kinds *lib;
    const char       *line, *at;
    char              word[64];
} scan;

static weft_status complain(const scan *s, const char *at, const char *what,
                            const char *more)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "cluster \"%s\", at %d: %s%s", s->line,
                     (int)(at - s->line) + 1, what, more);
}

static void skip(scan *s)
{
    while (isspace((unsigned char)*s->at)) s->at++;
}

static bool accept(scan *s, char c)
{
    skip(s);
    if (*s->at != c) return false;
    s->at++;
    return true;
}

/* N "x", where it stands there; else *n stays. */
static weft_status read_times(scan *s, int *n, bool *found)
{
    long v = 0;
    skip(s);
    const char *p = s->at;
    *found        = false;
    if (!isdigit((unsigned char)*p)) return WEFT_OK;
    for (; isdigit((unsigned char)*p); p++) v = v > 1 << 24 ? v : 10 * v + (*p - '0');
    while (isspace((unsigned char)*p)) p++;
    if (*p != 'x' && *p != 'X' && *p != '*')
        return complain(s, p, "expected 'x' after the number, as in 8 x h100-80g", "");
    if (v < 1 || v > 1 << 24) return complain(s, s->at, "a count is 1 to 2^24", "");
    s->at  = p + 1;
    *n     = (int)v;
    *found = true;
    return WEFT_OK;
}

static weft_status read_word(scan *s)
{
    size_t n = 0;
    skip(s);
    while (isalnum((unsigned char)s->at[n]) || (s->at[n] && strchr("-_.", s->at[n]))) n++;
    if (!n || n >= sizeof s->word)
        return complain(s, s->at, "expected the name of a device or a link", "");
    memcpy(s->word, s->at, n);
    s->word[n] = 0;
    s->at += n;
    return WEFT_OK;
}

static weft_status read_device(scan *s, int *device)
{
    WEFT_TRY(read_word(s));
    *device = weft_cluster__find_device(s->lib->c, s->word);
    if (*device >= 0) return WEFT_OK;
    int  at      = (int)(s->at - s->line - (long)strlen(s->word)) + 1;
    bool counted = s->word[strspn(s->word, "0123456789")] == 0;
    if (counted)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster \"%s\", at %d: expected a device, not %s; devices of a "
                         "node go in brackets, as in 4 x (8 x h100-80g)",
                         s->line, at, s->word);
    const char *near = weft_cluster__near_device(s->lib->c, s->word);
    return WEFT_FAIL(WEFT_ERR_ARG, "cluster \"%s\", at %d: there is no device '%s'%s",
                     s->line, at, s->word,
                     near[0] ? near : "; weft cluster kinds lists what is known");
}

/* [N x] link, into nodes [first, end) of the cluster. */
static weft_status read_ports(scan *s, int first, int end, bool net_only)
{
    int  n = 0, at;
    bool counted;
    WEFT_TRY(read_times(s, &n, &counted));
    WEFT_TRY(read_word(s));
    const char *from = s->at - strlen(s->word);
    int         i    = weft_cluster__find_link(s->lib->c, s->word);
    if (i < 0)
        return WEFT_FAIL(
            WEFT_ERR_ARG, "cluster \"%s\", at %d: there is no link '%s'%s", s->line,
            (int)(from - s->line) + 1, s->word,
            weft_cluster__near_link(s->lib->c, s->word, net_only ? WEFT_LINK_NET : -1));
    bool net = s->lib->c->link[i].scope == WEFT_LINK_NET;
    if (!net && (net_only || counted))
        return complain(s, from,
                        net_only ? "between nodes goes a net, and this links devices: "
                                 : "ports are counted of a net, and this links devices: ",
                        s->word);
    WEFT_TRY(weft_cluster__add_link(s->c, &s->lib->c->link[i], &at));
    for (int k = first; k < end; k++) {
        weft_host_kind *h = &s->c->node[k];
        if (!net && h->n_device > 1) h->link = at;
        if (net) h->net = at;
        if (net && counted) h->n_port = n;
    }
    return WEFT_OK;
}

static weft_status read_node(scan *s, int count)
{
    int  n_device = 1, device, at = s->c->n_node;
    bool found;
    WEFT_TRY(read_times(s, &n_device, &found));
    WEFT_TRY(read_device(s, &device));
    WEFT_TRY(weft_cluster__add_usual(s->c, s->lib, device, count, n_device));
    while (accept(s, ',')) WEFT_TRY(read_ports(s, at, at + 1, false));
    return accept(s, ')') ? WEFT_OK : complain(s, s->at, "expected ')'", "");
}

static weft_status read_group(scan *s)
{
    int  n = 1, device;
    bool found;
    WEFT_TRY(read_times(s, &n, &found));
    if (accept(s, '(')) return read_node(s, n);
    const char *from = s->at;
    WEFT_TRY(read_device(s, &device));
    int usual = s->lib->usual[device].n_device;
    if (n <= usual) return weft_cluster__add_usual(s->c, s->lib, device, 1, n);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "cluster \"%s\", at %d: %d devices are more than one node; write "
                     "%d x (%d x %s)",
                     s->line, (int)(from - s->line) + 1, n, (n + usual - 1) / usual,
                     usual, s->word);
}

/* Links from the first on that no node has in the end are not the cluster's. */
static weft_status drop_links(weft_cluster *c, int first)
{
    int *to = WEFT_ARENA_ARRAY(c->arena, int, c->n_link + 1), n = 0;
    if (!to) return weft_arena_status(c->arena);
    for (int i = 0; i < c->n_link; i++) to[i] = i < first ? 0 : -1;
    for (int i = 0; i < c->n_node; i++) {
        if (c->node[i].link >= 0) to[c->node[i].link] = 0;
        if (c->node[i].net >= 0) to[c->node[i].net] = 0;
    }
    for (int i = 0; i < c->n_switch; i++)
        if (c->sw[i].link >= 0) to[c->sw[i].link] = 0;
    for (int i = 0; i < c->n_link; i++) {
        if (to[i] < 0) continue;
        to[i]      = n;
        c->link[n] = c->link[i];
        n++;
    }
    c->n_link = n;
    for (int i = 0; i < c->n_node; i++) {
        if (c->node[i].link >= 0) c->node[i].link = to[c->node[i].link];
        if (c->node[i].net >= 0) c->node[i].net = to[c->node[i].net];
    }
    for (int i = 0; i < c->n_switch; i++)
        if (c->sw[i].link >= 0) c->sw[i].link = to[c->sw[i].link];
    return WEFT_OK;
}

/* A rack-wide link, where all devices of the line have the same. */
static weft_status add_domain(scan *s, int first)
{
    const weft_usual *u = NULL;
    weft_switch_kind  k = {.name = "rack", .taper = 1};
    for (int i = first; i < s->c->n_node; i++) {
        const char       *name = s->c->device[s->c->node[i].device].name;
        const weft_usual *v = &s->lib->usual[weft_cluster__find_device(s->lib->c, name)];
        if (!v->domain || (u && (strcmp(u->domain, v->domain) || u->span != v->span)))
            return WEFT_OK;
        u = v;
    }
    if (!u || first) return WEFT_OK;
    int l  = weft_cluster__find_link(s->lib->c, u->domain);
    k.span = u->span;
    if (l < 0) return WEFT_OK;
    WEFT_TRY(weft_cluster__add_link(s->c, &s->lib->c->link[l], &k.link));
    return weft_cluster__add_switch(s->c, &k);
}

weft_status weft_cluster__read_line(weft_cluster *c, const weft_kinds *lib,
                                    const char *line, const char *at)
{
    scan s     = {.c = c, .lib = lib, .line = line, .at = at};
    int  first = c->n_node, first_link = c->n_link;
    do {
        WEFT_TRY(read_group(&s));
    } while (accept(&s, '+'));
    while (accept(&s, ',')) WEFT_TRY(read_ports(&s, first, c->n_node, true));
    skip(&s);
    if (*s.at) return complain(&s, s.at, "expected '+', ',' or the end, not ", s.at);
    WEFT_TRY(add_domain(&s, first));
    return drop_links(c, first_link);
}

weft_status weft_cluster_parse_line(const char *line, const char *kinds,
                                    weft_cluster **out)
{
    weft_kinds    lib = {0};
    weft_cluster *c   = NULL;
    weft_status   st;
    WEFT_GO(weft_cluster__open_kinds(kinds, &lib));
    WEFT_GO(weft_cluster__create(&c));
    c->name = weft_arena_strdup(c->arena, line);
    WEFT_GO(weft_arena_status(c->arena));
    WEFT_GO(weft_cluster__read_line(c, &lib, line, line));
    WEFT_GO(weft_cluster__freeze(c));
    *out = c;
    c    = NULL;
out:
    weft_cluster_destroy(c);
    weft_cluster__close_kinds(&lib);
    return st;
}

static bool is_file(const char *what)
{
    size_t n = strlen(what);
    return weft_io_exists(what) || strchr(what, '/') ||
           (n > 5 &&
            (!strcmp(what + n - 5, ".yaml") || !strcmp(what + n - 5, ".json"))) ||
           (n > 4 && !strcmp(what + n - 4, ".yml"));
}

weft_status weft_cluster_load(const char *what, const char *kinds, weft_cluster **out)
{
    char  *text;
    size_t n;
    if (!is_file(what)) return weft_cluster_parse_line(what, kinds, out);
    WEFT_TRY(weft_io_read_as(what, WEFT_IO_PIPES, &text, &n));
    weft_status st = weft_cluster__parse(what, text, n, kinds, out);
    free(text);
    return st;
}
