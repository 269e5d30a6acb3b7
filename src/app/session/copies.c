/* Copies of the state: what the start says of them, and a check.
 *
 * After a lost rank all copies of each part of the state are the same: asked for by campaigns of
 * faults ($WEFT_CHECK_COPIES), as it reads all of the state. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/hosts.h"
#include "session/session_priv.h"

/* A tensor of a rank: which part of it, and its bytes; 0: it has none. */
typedef struct copy_digest {
    uint64_t part, bytes;
} copy_digest;

static uint64_t hash_part(const weft_part *p)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    for (int d = 0; d < p->shape.n; d++) {
        weft_hash_add(&h, &p->shape.d[d], sizeof p->shape.d[d]);
        weft_hash_add(&h, p->run[d], sizeof *p->run[d] * (size_t)p->n[d]);
    }
    return weft_hash_value(&h) | 1;
}

static weft_status find_digest(const weft_state *s, int i, copy_digest *out)
{
    const weft_state_tensor *t = weft_state_at(s, i);
    const weft_memory       *m = weft_state_memory(s);
    *out                       = (copy_digest){0};
    if (!t->part || t->on_host) return WEFT_OK;
    size_t n      = (size_t)(weft_part_count(t->part) * weft_dtype_bytes(t->dtype));
    void  *number = malloc(n + 1);
    if (!number) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to compare %s", t->name);
    weft_status st = weft_device_read(number, m, t->offset, (int64_t)n);
    *out           = (copy_digest){hash_part(t->part), weft_hash_xxh64(number, n, 0)};
    free(number);
    return st;
}

/* all: of each rank n digests of its own state, and as many of what it has for another one. */
static weft_status compare_digests(const weft_session *s, const copy_digest *all, int n)
{
    for (int i = 0; i < n; i++)
        for (int r = 1; r < 2 * s->now->comm->world; r++)
            for (int k = 0; k < r; k++) {
                const copy_digest *a = &all[(int64_t)k * n + i],
                                  *b = &all[(int64_t)r * n + i];
                if (a->part && a->part == b->part && a->bytes != b->bytes)
                    return WEFT_FAIL(
                        WEFT_ERR_INTERNAL,
                        "after step %lld ranks %d and %d have different copies of %s",
                        (long long)s->r.steps, k / 2, r / 2,
                        weft_state_at(s->state, i)->name);
            }
    return WEFT_OK;
}

weft_status weft_session__compare_copies(weft_session *s)
{
    weft_generation *g = s->now;
    if (!getenv("WEFT_CHECK_COPIES") || !g->continues) return WEFT_OK;
    const weft_state *standby = weft_state_standby(s->state);
    int               n       = weft_state_count(s->state);
    copy_digest      *own     = WEFT_ARENA_ARRAY(g->arena, copy_digest, 2 * n + 1);
    copy_digest      *all =
        WEFT_ARENA_ARRAY(g->arena, copy_digest, (int64_t)2 * n * g->comm->world + 1);
    WEFT_TRY(weft_arena_status(g->arena));
    for (int i = 0; i < n; i++) {
        WEFT_TRY(find_digest(s->state, i, &own[i]));
        if (standby) WEFT_TRY(find_digest(standby, i, &own[n + i]));
    }
    WEFT_TRY(weft_session__gather(s, own, (size_t)(2 * n) * sizeof *own, all));
    return weft_session__outcome(s, compare_digests(s, all, n));
}

/* ---- at the start ---- */

enum {
    MOST_NAMED = 8 /* ranks or hosts of a line */
};

/* "ranks 0, 1 and 6 more"; alone: by number. */
static void put_alone(const bool *alone, int n, const char *what, weft_text *t)
{
    int count = 0, named = 0;
    for (int k = 0; k < n; k++) count += alone[k];
    weft_text_add(t, "%s%s ", what, count > 1 ? "s" : "");
    for (int k = 0; k < n && named < MOST_NAMED; k++)
        if (alone[k]) weft_text_add(t, named++ ? ", %d" : "%d", k);
    if (count > named) weft_text_add(t, " and %d more", count - named);
}

/* Which failure domains hold what no other one does?  The fewest copies of anything. */
static int find_alone(const weft_session *s, const int *domain, bool *alone)
{
    const weft_generation *g     = s->now;
    const weft_holders    *h     = g->all_holders ? g->all_holders : g->holders;
    int                    least = g->n_rank;
    for (int r = 0; r < g->n_rank; r++) {
        int n = weft_holders_copies(h, r, domain);
        if (!n) continue;
        if (n < 2) alone[domain[r]] = true;
        if (n < least) least = n;
    }
    return least;
}

static void say_fewer(weft_session *s, const char *what, const char *names, int least)
{
    int asked = s->job.strategy.copies;
    if (least > 1)
        weft_say_warn(&s->say, "copies is %d: of some of the state there are %d", asked,
                      least);
    else
        (asked > 1 ? weft_say_warn : weft_say_info)(
            &s->say,
            "%s: of their state there is no other copy; where such a %s %s, all go back "
            "to "
            "the newest checkpoint (checkpoint.every is %lld)",
            names, what, *what == 'h' ? "is lost" : "crashes by its own fault",
            (long long)s->job.checkpoint.every);
}

/* In the generation that runs: the fewest hosts (on one host: ranks) that hold any part. */
int weft_session__count_copies(const weft_session *s)
{
    const weft_generation *g     = s->now;
    const weft_holders    *h     = g->holders;
    const int32_t         *host  = g->comm ? weft_comm_hosts_of(g->comm) : NULL;
    int                    least = 0;
    for (int r = 0; h && r < h->n_rank; r++) {
        int n = weft_holders_copies(h, r, host);
        if (n && (!least || n < least)) least = n;
    }
    return least;
}

/* Asked for, or of use: with recover.  GPUs have snapshots besides. */
void weft_session__say_copies(weft_session *s)
{
    weft_generation *g     = s->now;
    bool             hosts = g->local > 0 && g->local < g->n_rank;
    const char      *what  = hosts ? "host" : "rank";
    weft_text        names = {0};
    if (!g->holders || g->n_rank < 2 || !s->device->host_access ||
        (s->job.strategy.copies < 2 && !strcmp(s->job.recover, "off")))
        return;
    bool *alone  = WEFT_ARENA_ARRAY(g->arena, bool, g->n_rank);
    int  *domain = WEFT_ARENA_ARRAY(g->arena, int, 2 * g->n_rank);
    if (weft_arena_status(g->arena) != WEFT_OK) return;
    for (int h = 0; h < 2 * g->n_rank; h++) /* holders of both kinds (all_holders) */
        domain[h] = hosts ? h % g->n_rank / g->local : h % g->n_rank;
    int least = find_alone(s, domain, alone);
    put_alone(alone, g->n_rank, what, &names);
    if (least >= 2 && least >= s->job.strategy.copies)
        weft_say_info(&s->say,
                      "copies: every part of the state is in the memory of %d %ss", least,
                      what);
    else
        say_fewer(s, what, names.s ? names.s : "", least);
    weft_text_fini(&names);
}
