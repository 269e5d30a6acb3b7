#include "launch/dumps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"

enum {
    MAX_RANK  = 1 << 16, /* numbers of ranks */
    MAX_GROUP = 1024     /* ranks of one */
};

typedef struct group_key {
    int64_t  tag;
    int      n_rank;
    int64_t *rank;
} group_key;

/* A collective, message or task of one rank. */
typedef struct call {
    int         rank, group; /* group -1: a task */
    char        kind;        /* t, c, s, r */
    const char *op, *name;
    int64_t     step, seq, bytes;
    double      begun_s, ended_s; /* ended 0: it runs */
} call;

typedef struct rank_dump {
    weft_doc  *doc;
    char      *text;
    int64_t    rank, epoch;
    double     printed_s;
    int        n_group, n_call;
    group_key *group;
    call      *call; /* of the rank's epoch, in order */
} rank_dump;

struct weft_dumps {
    int        n, cap;
    rank_dump *rank;
};

weft_status weft_dumps_create(weft_dumps **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static void free_rank(rank_dump *r)
{
    for (int k = 0; k < r->n_group; k++) free(r->group[k].rank);
    free(r->group);
    free(r->call);
    weft_doc_destroy(r->doc);
    free(r->text);
}

void weft_dumps_destroy(weft_dumps *d)
{
    for (int k = 0; d && k < d->n; k++) free_rank(&d->rank[k]);
    if (d) free(d->rank);
    free(d);
}

int weft_dumps_count(const weft_dumps *d)
{
    return d->n;
}

/* ---- reading ---- */

static weft_status bad_dump(const weft_doc *d)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: it is no dump of a rank", weft_doc_file(d));
}

static const weft_node *get_list(const weft_doc *d, const weft_node *map, const char *key)
{
    const weft_node *n = weft_node_get(map, key);
    (void)d;
    return n && n->kind == WEFT_NODE_LIST ? n : NULL;
}

static weft_status read_group(const weft_doc *d, const weft_node *n, group_key *g)
{
    if (n->kind != WEFT_NODE_MAP) return bad_dump(d);
    const weft_node *ranks = get_list(d, n, "ranks");
    if (!ranks || ranks->u.list.n > MAX_GROUP) return bad_dump(d);
    WEFT_TRY(weft_doc_get_int(d, n, "tag", &g->tag));
    g->rank = calloc((size_t)ranks->u.list.n + 1, sizeof *g->rank);
    if (!g->rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    g->n_rank = ranks->u.list.n;
    for (int k = 0; k < g->n_rank; k++) {
        const weft_node *x = ranks->u.list.node[k];
        if (x->kind != WEFT_NODE_INT) return bad_dump(d);
        g->rank[k] = x->u.i;
    }
    return WEFT_OK;
}

static weft_status read_call(const weft_doc *d, const weft_node *n, rank_dump *r)
{
    call        c     = {.rank = (int)r->rank, .group = -1};
    const char *kind  = NULL;
    int64_t     epoch = 0, group = -1;
    if (n->kind != WEFT_NODE_MAP) return bad_dump(d);
    WEFT_TRY(weft_doc_get_string(d, n, "kind", &kind));
    WEFT_TRY(weft_doc_get_string(d, n, "op", &c.op));
    WEFT_TRY(weft_doc_get_string(d, n, "name", &c.name));
    WEFT_TRY(weft_doc_get_int(d, n, "epoch", &epoch));
    WEFT_TRY(weft_doc_get_int(d, n, "step", &c.step));
    WEFT_TRY(weft_doc_get_double(d, n, "begun_s", &c.begun_s));
    if (!kind || !c.op || !c.name) return bad_dump(d);
    if (weft_node_get(n, "ended_s"))
        WEFT_TRY(weft_doc_get_double(d, n, "ended_s", &c.ended_s));
    if (weft_node_get(n, "group")) {
        WEFT_TRY(weft_doc_get_int(d, n, "group", &group));
        WEFT_TRY(weft_doc_get_int(d, n, "seq", &c.seq));
        WEFT_TRY(weft_doc_get_int(d, n, "bytes", &c.bytes));
    }
    if (epoch != r->epoch) return WEFT_OK; /* of a view before */
    c.kind = *kind;
    if (group >= 0 && group < r->n_group && strchr("csr", c.kind)) c.group = (int)group;
    if (c.group < 0) c.kind = 't';
    r->call[r->n_call++] = c;
    return WEFT_OK;
}

static weft_status read_rank(const weft_doc *d, rank_dump *r)
{
    const weft_node *root   = weft_doc_root(d);
    int64_t          format = 0;
    if (root->kind != WEFT_NODE_MAP) return bad_dump(d);
    const weft_node *groups  = get_list(d, root, "groups"),
                    *entries = get_list(d, root, "entries");
    WEFT_TRY(weft_doc_get_int(d, root, "format", &format));
    WEFT_TRY(weft_doc_get_int(d, root, "rank", &r->rank));
    WEFT_TRY(weft_doc_get_int(d, root, "epoch", &r->epoch));
    WEFT_TRY(weft_doc_get_double(d, root, "printed_s", &r->printed_s));
    if (format != 1 || r->rank < 0 || r->rank > MAX_RANK || !groups || !entries)
        return bad_dump(d);
    r->group = calloc((size_t)groups->u.list.n + 1, sizeof *r->group);
    r->call  = calloc((size_t)entries->u.list.n + 1, sizeof *r->call);
    if (!r->group || !r->call) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (; r->n_group < groups->u.list.n; r->n_group++)
        WEFT_TRY(read_group(d, groups->u.list.node[r->n_group], &r->group[r->n_group]));
    for (int k = 0; k < entries->u.list.n; k++)
        WEFT_TRY(read_call(d, entries->u.list.node[k], r));
    return WEFT_OK;
}

weft_status weft_dumps_add(weft_dumps *d, const char *file, const char *text, size_t n)
{
    rank_dump r = {.rank = -1};
    if (d->n == d->cap) {
        int        cap  = d->cap ? 2 * d->cap : 16;
        rank_dump *more = realloc(d->rank, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        d->rank = more;
        d->cap  = cap;
    }
    r.text = malloc(n + 1);
    if (!r.text) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(r.text, text, n);
    weft_status st = weft_doc_parse_json(file, r.text, n, &r.doc);
    if (st == WEFT_OK) st = read_rank(r.doc, &r);
    for (int k = 0; st == WEFT_OK && k < d->n; k++)
        if (d->rank[k].rank == r.rank)
            st = WEFT_FAIL(WEFT_ERR_ARG, "%s: a second dump of rank %lld", file,
                           (long long)r.rank);
    if (st == WEFT_OK)
        d->rank[d->n++] = r;
    else {
        if (r.group && r.n_group >= 0) {
            /* the one that failed has its ranks, too */
            const weft_node *groups = get_list(r.doc, weft_doc_root(r.doc), "groups");
            if (groups && r.n_group < groups->u.list.n) r.n_group++;
        }
        free_rank(&r);
    }
    return st;
}

/* ---- comparing ---- */

static bool is_same_group(const group_key *a, const group_key *b)
{
    return a->tag == b->tag && a->n_rank == b->n_rank &&
           !memcmp(a->rank, b->rank, (size_t)a->n_rank * sizeof *a->rank);
}

static const rank_dump *find_rank(const weft_dumps *d, int64_t rank, int64_t epoch)
{
    for (int k = 0; k < d->n; k++)
        if (d->rank[k].rank == rank && d->rank[k].epoch == epoch) return &d->rank[k];
    return NULL;
}

/* What a rank has of call number seq of a group. */
typedef enum presence {
    HAS,     /* *found, or it is too long ago */
    HAS_NOT, /* it has not begun it */
    NO_DUMP,
} presence;

static presence find_call(const rank_dump *r, const group_key *g, char kind, int64_t seq,
                          const call **found)
{
    bool later = false;
    *found     = NULL;
    if (!r) return NO_DUMP;
    for (int k = 0; k < r->n_call; k++) {
        const call *c = &r->call[k];
        if (c->kind != kind || !is_same_group(&r->group[c->group], g)) continue;
        if (c->seq == seq) *found = c;
        later = later || c->seq > seq;
    }
    return *found || later ? HAS : HAS_NOT;
}

/* The same call, as far as ranks have to agree on it: shares may be uneven. */
static bool is_same_call(const call *a, const call *b)
{
    return !strcmp(a->op, b->op) &&
           (strcmp(a->op, "all_reduce") != 0 || a->bytes == b->bytes);
}

typedef struct mismatch {
    const rank_dump *of;   /* who waits */
    const call      *call; /* NULL: there is none */
    int64_t          missing[8], other;
    int              n_missing;
    const call      *differs; /* NULL: nobody's */
} mismatch;

/* Who is not there, of those that a call of rank r needs. */
static void check_call(const weft_dumps *d, const rank_dump *r, const call *c,
                       mismatch *m)
{
    const group_key *g     = &r->group[c->group];
    bool             waits = c->kind == 'c' || (c->kind == 'r' && g->n_rank == 2);
    *m                     = (mismatch){.of = r, .call = c, .other = -1};
    for (int k = 0; waits && k < g->n_rank; k++) {
        const call *theirs;
        if (g->rank[k] == r->rank || (c->kind == 'r' && k > 0)) continue;
        presence p = find_call(find_rank(d, g->rank[k], r->epoch), g,
                               c->kind == 'r' ? 's' : 'c', c->seq, &theirs);
        if (p != HAS && m->n_missing < 8) m->missing[m->n_missing++] = g->rank[k];
        if (theirs && c->kind == 'c' && !is_same_call(c, theirs) && !m->differs) {
            m->differs = theirs;
            m->other   = g->rank[k];
        }
    }
}

static mismatch find_first(const weft_dumps *d, int64_t epoch)
{
    mismatch first = {0};
    for (int k = 0; k < d->n; k++) {
        const rank_dump *r = &d->rank[k];
        for (int i = 0; r->epoch == epoch && i < r->n_call; i++) {
            const call *c = &r->call[i];
            mismatch    m;
            if (c->group < 0) continue;
            check_call(d, r, c, &m);
            bool waits = m.n_missing && c->ended_s <= 0;
            if (!waits && !m.differs) continue;
            if (!first.call || c->begun_s < first.call->begun_s) first = m;
        }
    }
    return first;
}

/* ---- for people ---- */

static void put_call(const call *c, weft_text *t)
{
    weft_text_add(t, "%s '%s' of step %lld", c->op, c->name, (long long)c->step);
}

static void put_mismatch(const mismatch *m, weft_text *t)
{
    const call      *c = m->call;
    const group_key *g = &m->of->group[c->group];
    weft_text_add(t, "first mismatch: ");
    put_call(c, t);
    weft_text_add(t, " (call %lld of tag %lld, ranks", (long long)c->seq,
                  (long long)g->tag);
    for (int k = 0; k < g->n_rank; k++) weft_text_add(t, " %lld", (long long)g->rank[k]);
    weft_text_add(t, "): ");
    if (m->differs) {
        weft_text_add(t, "rank %lld calls it with %lld bytes, rank %lld calls ",
                      (long long)m->of->rank, (long long)c->bytes, (long long)m->other);
        put_call(m->differs, t);
        weft_text_add(t, " with %lld bytes\n", (long long)m->differs->bytes);
        return;
    }
    weft_text_add(t, "rank %lld has waited in it for %.3g s; missing: rank%s",
                  (long long)m->of->rank, m->of->printed_s - c->begun_s,
                  m->n_missing > 1 ? "s" : "");
    for (int k = 0; k < m->n_missing; k++)
        weft_text_add(t, " %lld", (long long)m->missing[k]);
    weft_text_add(t, "\n");
}

/* What runs, else what ran last. */
static void put_rank(const rank_dump *r, int64_t epoch, weft_text *t)
{
    const call *c = r->n_call ? &r->call[r->n_call - 1] : NULL;
    weft_text_add(t, "rank %lld: ", (long long)r->rank);
    if (r->epoch != epoch) weft_text_add(t, "still in view %lld; ", (long long)r->epoch);
    for (int k = r->n_call - 1; k >= 0; k--)
        if (r->call[k].ended_s <= 0) c = &r->call[k];
    if (!c) {
        weft_text_add(t, "nothing was recorded\n");
        return;
    }
    put_call(c, t);
    if (c->ended_s <= 0)
        weft_text_add(t, " runs for %.3g s\n", r->printed_s - c->begun_s);
    else
        weft_text_add(t, " was the last, and ended %.3g s before the dump\n",
                      r->printed_s - c->ended_s);
}

bool weft_dumps_explain(const weft_dumps *d, weft_text *t)
{
    int64_t epoch = 0;
    for (int k = 0; k < d->n; k++)
        if (d->rank[k].epoch > epoch) epoch = d->rank[k].epoch;
    mismatch m = find_first(d, epoch);
    if (m.call)
        put_mismatch(&m, t);
    else
        weft_text_add(
            t, "no mismatch: what ranks have begun, their peers have begun, too\n");
    for (int k = 0; k < d->n; k++) put_rank(&d->rank[k], epoch, t);
    return m.call != NULL;
}
