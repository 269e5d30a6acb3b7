/* Each rank has a list; the first entry that is not everybody's is found by halving, with a
 * gather of digests for each step.  Lists are lines of text, or the calls of one line of a talk
 * (program/talk.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "program/talk.h"
#include "program/walk.h"
#include "session/agree_priv.h"

/* Of several causes, the likeliest. */
static const char remedy[] =
    "start every rank with the same weft, job, files and environment";

static weft_status gather(const weft_agree *a, const void *mine, size_t n, void *all)
{
    return weft_comm_collective(a->comm, a->group, WEFT_ALL_GATHER, WEFT_DTYPE_F32, mine,
                                all, (int64_t)(n / 4));
}

static weft_status room_for(const weft_agree *a, size_t n, void *out)
{
    void *p = calloc((size_t)a->comm->world, n ? n : 1);
    memcpy(out, &p, sizeof p);
    return p ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "no memory for what ranks compare");
}

/* All know what was gathered before one of them goes on, perhaps to fail and to give up: who is
 * told so here has its own words for it. */
static void settle(const weft_agree *a)
{
    (void)weft_comm_collective(a->comm, a->group, WEFT_BARRIER, WEFT_DTYPE_F32, NULL,
                               NULL, 0);
}

weft_status weft_agree_refuse(const weft_agree *a, weft_status st)
{
    char *text = strdup(weft_error_text());
    settle(a);
    if (text) st = WEFT_FAIL(st, "%s", text);
    free(text);
    return st;
}

weft_status weft_agree_outcome(const weft_agree *a, weft_status st, bool *everywhere)
{
    int32_t    *all = NULL, mine = (int32_t)st;
    char       *text = st == WEFT_OK ? NULL : strdup(weft_error_text());
    weft_status met  = room_for(a, sizeof mine, &all);
    if (met == WEFT_OK) met = gather(a, &mine, sizeof mine, all);
    *everywhere = met == WEFT_OK;
    for (int r = 0; r < a->comm->world && *everywhere; r++) *everywhere = all[r] != 0;
    if (*everywhere) settle(a);
    if (text) met = WEFT_FAIL(st, "%s", text);
    free(text);
    free(all);
    return met;
}

/* ---- the first difference of two lists ---- */

typedef struct list {
    const void *of;
    int64_t     n; /* -1: this rank has none */
    uint64_t (*prefix)(const void *of, int64_t n);
    void (*say)(const void *of, int64_t k, char *text, size_t n);
} list;

/* Ranks x and y differ: *at, the first entry that does, and all ranks' words for it (the caller
 * frees them). */
static weft_status find_first(const weft_agree *a, const list *l, int x, int y,
                              int64_t n_most, int64_t *at, agree_entry **all)
{
    uint64_t   *seen = NULL;
    int64_t     lo = 0, hi = n_most; /* the first lo are the same */
    agree_entry mine = {""};
    weft_status st   = WEFT_OK;
    *all             = NULL;
    WEFT_GO(room_for(a, sizeof *seen, &seen));
    while (lo + 1 < hi) {
        int64_t  mid = lo + (hi - lo) / 2;
        uint64_t own = l->n < 0 ? 0 : l->prefix(l->of, mid < l->n ? mid : l->n);
        WEFT_GO(gather(a, &own, sizeof own, seen));
        if (seen[x] == seen[y])
            lo = mid;
        else
            hi = mid;
    }
    *at = lo;
    if (lo < l->n) l->say(l->of, lo, mine.text, sizeof mine.text);
    WEFT_GO(room_for(a, sizeof mine, all));
    WEFT_GO(gather(a, &mine, sizeof mine, *all));
    WEFT_GO(weft_agree__read_entries(a, *all));
out:
    free(seen);
    if (st != WEFT_OK) {
        free(*all);
        *all = NULL;
    }
    return st;
}

/* ---- texts ---- */

typedef struct texts {
    int                n;
    const char *const *text;
} texts;

static uint64_t texts_prefix(const void *of, int64_t n)
{
    const texts *t = of;
    uint64_t     h = 0;
    for (int64_t k = 0; k < n; k++)
        h = weft_hash_xxh64(t->text[k], strlen(t->text[k]) + 1, h);
    return h;
}

static void texts_say(const void *of, int64_t k, char *text, size_t n)
{
    const char *s = ((const texts *)of)->text[k];
    while (*s == ' ') s++;
    snprintf(text, n, "%s", s);
    size_t end = strlen(text);
    if (end && text[end - 1] == ',') text[end - 1] = 0;
}

weft_status weft_agree_texts(const weft_agree *a, const char *what, int n,
                             const char *const *text)
{
    texts        t    = {n, text};
    list         l    = {&t, n, texts_prefix, texts_say};
    agree_digest mine = {texts_prefix(&t, n), n}, *all = NULL;
    agree_entry *word = NULL;
    int          y    = 1;
    int64_t      at;
    weft_status  st = WEFT_OK;
    WEFT_GO(room_for(a, sizeof mine, &all));
    WEFT_GO(gather(a, &mine, sizeof mine, all));
    WEFT_GO(weft_agree__read_digests(a, all));
    while (y < a->comm->world && all[y].hash == all[0].hash && all[y].n == all[0].n) y++;
    if (y == a->comm->world) settle(a);
    if (y == a->comm->world) goto out;
    WEFT_GO(
        find_first(a, &l, 0, y, all[0].n > all[y].n ? all[0].n : all[y].n, &at, &word));
    const char *p = word[0].text, *q = word[y].text;
    WEFT_GO(weft_agree_refuse(
        a, WEFT_FAIL(WEFT_ERR_ARG,
                     "ranks 0 and %d do not agree on %s: %s at rank 0, %s at rank %d; %s",
                     weft_comm_name(a->comm, y), what, *p ? p : "nothing more",
                     *q ? q : "nothing more", weft_comm_name(a->comm, y), remedy)));
out:
    free(all);
    free(word);
    return st;
}

/* ---- programs ---- */

typedef struct calls {
    const weft_talk *talk;
    int              line;
} calls;

static uint64_t calls_prefix(const void *of, int64_t n)
{
    const calls *c = of;
    return weft_talk_prefix(c->talk, c->line, n);
}

static void calls_say(const void *of, int64_t k, char *text, size_t n)
{
    const calls *c = of;
    weft_talk_say(c->talk, c->line, k, text, n);
}

static int by_key(const void *a, const void *b)
{
    const agree_row *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Of the lines that do not balance, the one that comes first in a step; *n rows of it in order of
 * ranks. */
static agree_row *pick(agree_row *r, int64_t n_row, int *n)
{
    agree_row *best = NULL;
    int64_t    at   = INT64_MAX;
    qsort(r, (size_t)n_row, sizeof *r, by_key);
    for (int64_t i = 0, k; i < n_row; i = k) {
        uint64_t sum   = 0;
        int64_t  first = INT64_MAX;
        for (k = i; k < n_row && r[k].key == r[i].key; k++) {
            sum += r[k].weight;
            if (r[k].first < first) first = r[k].first;
        }
        if (!sum || first >= at) continue;
        best = &r[i];
        at   = first;
        *n   = (int)(k - i);
    }
    return best;
}

enum {
    MOST_ROWS_BYTES = 256 << 20 /* of all ranks together */
};

/* The rows of all ranks; *n_row of them (the caller frees them). */
static weft_status gather_rows(const weft_agree *a, const weft_talk *t, agree_row **out,
                               int64_t *n_row)
{
    int64_t    *n = NULL, own = t->n_line, most = 0;
    agree_row  *mine = NULL, *all = NULL;
    weft_status st = WEFT_OK;
    *n_row         = 0;
    WEFT_GO(room_for(a, sizeof *n, &n));
    WEFT_GO(gather(a, &own, sizeof own, n));
    WEFT_GO(weft_agree__read_counts(
        a, n, MOST_ROWS_BYTES / (int64_t)sizeof *all / a->comm->world, "lines of calls",
        &most));
    mine = calloc((size_t)most + 1, sizeof *mine);
    if (!mine) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for what ranks compare"));
    for (int k = 0; k < t->n_line; k++) {
        const weft_talk_line *l  = &t->line[k];
        int                   me = a->comm->rank;

        mine[k] = (agree_row){l->key, l->digest, weft_talk_weigh(l), l->first, l->n_call,
                              me,     k};
    }
    WEFT_GO(room_for(a, sizeof *all * (size_t)most, &all));
    WEFT_GO(gather(a, mine, sizeof *mine * (size_t)most, all));
    WEFT_GO(weft_agree__read_rows(a, n, most, all, n_row));
    *out = all;
    all  = NULL;
out:
    free(n);
    free(mine);
    free(all);
    return st;
}

static void say_ranks(const weft_talk_line *l, char *text, size_t n)
{
    size_t k = 0;
    for (int i = 0; i < l->n_rank && k + 24 < n; i++) {
        int m = snprintf(text + k, n - k, "%s%d",
                         !i                   ? ""
                         : l->message         ? " to rank "
                         : i == l->n_rank - 1 ? " and "
                                              : ", ",
                         (int)l->rank[i]);
        k += (size_t)m;
        if (i + 1 < l->n_rank && k + 24 >= n) snprintf(text + k, n - k, ", ...");
    }
}

static agree_party party_of(const weft_talk_line *l, const agree_row *r, int n)
{
    agree_party p = {.lacks = -1, .message = l->message, .tag = l->tag};
    say_ranks(l, p.who, sizeof p.who);
    for (int i = 0; i < l->n_rank && p.lacks < 0; i++) {
        int k = 0;
        while (k < n && r[k].rank != l->rank[i]) k++;
        if (k == n) p.lacks = l->rank[i];
    }
    return p;
}

static weft_status say_difference(const weft_agree *a, const agree_party *p, int x, int y,
                                  int64_t at, const agree_entry *word)
{
    const char *one = word[x].text, *two = word[y].text;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "ranks %d and %d would wait for each other: of a step's %s %s (tag "
                     "%d), number %lld is %s at rank %d and %s at rank %d; %s",
                     weft_comm_name(a->comm, x), weft_comm_name(a->comm, y),
                     p->message ? "messages from rank" : "calls among ranks", p->who,
                     p->tag, (long long)at + 1, *one ? one : "missing",
                     weft_comm_name(a->comm, x), *two ? two : "missing",
                     weft_comm_name(a->comm, y), remedy);
}

/* What rank 'from' has of size n, to all; every rank calls it. */
static weft_status from_one(const weft_agree *a, int from, void *p, size_t n)
{
    char       *all = NULL;
    weft_status st  = WEFT_OK;
    WEFT_GO(room_for(a, n, &all));
    WEFT_GO(gather(a, p, n, all));
    memcpy(p, all + n * (size_t)from, n);
out:
    free(all);
    return st;
}

/* Ranks disagree, and all know it. */
static weft_status explain(const weft_agree *a, const weft_talk *t)
{
    agree_row   *all  = NULL, *r;
    agree_entry *word = NULL;
    int64_t      n_row, at;
    int          n = 0, k = 1, own = -1;
    weft_status  st = WEFT_OK;
    WEFT_GO(gather_rows(a, t, &all, &n_row));
    r = pick(all, n_row, &n);
    if (!r) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "ranks do not agree; %s", remedy));
    while (k < n && r[k].digest == r[0].digest) k++;
    for (int i = 0; i < n; i++)
        if (r[i].rank == a->comm->rank) own = r[i].line;
    agree_party of = {.lacks = -1};
    if (own >= 0) of = party_of(&t->line[own], r, n);
    WEFT_GO(from_one(a, r[0].rank, &of, sizeof of));
    WEFT_GO(weft_agree__read_party(a, r[0].rank, &of));
    int     x = r[0].rank, y = k < n ? r[k].rank : of.lacks;
    int64_t most = r[0].n_call;
    if (k < n && r[k].n_call > most) most = r[k].n_call;
    if (y < 0) /* all that have it say the same, and nobody lacks it */
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "ranks do not agree; %s", remedy));
    calls c = {t, own};
    list  l = {&c, own < 0 ? -1 : t->line[own].n_call, calls_prefix, calls_say};
    WEFT_GO(find_first(a, &l, x, y, most, &at, &word));
    WEFT_GO(say_difference(a, &of, x, y, at, word));
out:
    free(all);
    free(word);
    return st;
}

/* ---- all programs at once ---- */

/* Bytes that a rank takes for it: some thousand ranks of many calls are beyond. */
enum {
    MOST_TEXT = 64 << 20
};

/* The calls of all ranks as one text, at rank 0; nothing where they are too many. */
static weft_status gather_calls(const weft_agree *a, const weft_program *p,
                                weft_arena *arena, weft_text *out)
{
    weft_text    mine = {0};
    weft_program calls_only;
    int64_t     *n = NULL, own, most = 0;
    char        *room = NULL, *all = NULL;
    weft_status  st = WEFT_OK;
    WEFT_GO(weft_talk_strip(p, arena, &calls_only));
    WEFT_GO(weft_program_print(&calls_only, &mine));
    WEFT_GO(weft_text_status(&mine));
    own = (int64_t)mine.n;
    WEFT_GO(room_for(a, sizeof *n, &n));
    WEFT_GO(gather(a, &own, sizeof own, n));
    WEFT_GO(weft_agree__read_counts(a, n, INT32_MAX, "bytes of calls", &most));
    most = (most + 3) / 4 * 4;
    if (most > MOST_TEXT / a->comm->world) goto out;
    room = calloc(1, (size_t)most + 1);
    if (!room) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for what ranks compare"));
    memcpy(room, mine.s, mine.n);
    WEFT_GO(room_for(a, (size_t)most, &all));
    WEFT_GO(gather(a, room, (size_t)most, all));
    for (int r = 0; r < a->comm->world && a->comm->rank == 0; r++)
        weft_text_put(out, all + r * most, (size_t)n[r]);
    WEFT_GO(weft_text_status(out));
out:
    weft_text_fini(&mine);
    free(n);
    free(room);
    free(all);
    return st;
}

static weft_status walk(const weft_text *t)
{
    weft_program **p;
    int            n;
    WEFT_TRY(weft_program_parse_set("the programs of all ranks", t->s, t->n, &p, &n));
    weft_status st = WEFT_OK;
    for (int k = 0; k < n && st == WEFT_OK; k++) st = weft_program_verify_calls(p[k]);
    if (st == WEFT_OK)
        st = weft_program_walk((const weft_program *const *)p, n,
                               &(weft_walk_options){.n_step = 2});
    weft_program_destroy_set(p, n);
    return st;
}

/* Every call meets its like; can they wait for each other in a ring?  Rank 0 walks through all
 * programs and tells. */
static weft_status agree_order(const weft_agree *a, const weft_program *p,
                               weft_arena *arena)
{
    agree_verdict word = {0};
    weft_text     text = {0};
    weft_status   st   = gather_calls(a, p, arena, &text);
    if (st == WEFT_OK && text.n) {
        word.st = (int32_t)walk(&text);
        if (word.st) snprintf(word.text, sizeof word.text, "%s", weft_error_text());
    }
    weft_text_fini(&text);
    WEFT_TRY(st);
    WEFT_TRY(weft_comm_collective(a->comm, a->group, WEFT_BROADCAST, WEFT_DTYPE_F32,
                                  &word, &word, sizeof word / 4));
    WEFT_TRY(weft_agree__read_verdict(a, &word));
    if (!word.st) return WEFT_OK;
    return WEFT_FAIL(
        (weft_status)word.st,
        "ranks would wait for each other for ever: %s; take another plan, or "
        "the same weft at every rank",
        word.text);
}

weft_status weft_agree_programs(const weft_agree *a, const weft_program *p)
{
    weft_arena *arena = NULL;
    weft_talk   t;
    uint64_t    mine, sum = 0, *all = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&arena));
    WEFT_GO(weft_talk_make(p, arena, &t));
    mine = weft_talk_balance(&t);
    WEFT_GO(room_for(a, sizeof mine, &all));
    WEFT_GO(gather(a, &mine, sizeof mine, all));
    for (int r = 0; r < a->comm->world; r++) sum += all[r];
    st = sum ? explain(a, &t) : agree_order(a, p, arena);
    if (st == WEFT_OK) settle(a);
    if (st == WEFT_ERR_ARG) st = weft_agree_refuse(a, st);
out:
    free(all);
    weft_arena_destroy(arena);
    return st;
}
