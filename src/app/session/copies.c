/* Copies of the state: what each view says of them, and a check.
 *
 * After a lost rank all copies of each part of the state are the same: asked for by campaigns of
 * faults ($WEFT_CHECK_COPIES), as it reads all of the state. */
#include <stdio.h>
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

enum {
    N_KIND = 1 + WEFT_MAX_STANDBY /* a rank's own state, and what it has for others */
};

/* all: of each rank n digests of its own state, and as many of what it has for each other one. */
static weft_status compare_digests(const weft_session *s, const copy_digest *all, int n)
{
    for (int i = 0; i < n; i++)
        for (int r = 1; r < N_KIND * s->now->comm->world; r++)
            for (int k = 0; k < r; k++) {
                const copy_digest *a = &all[(int64_t)k * n + i],
                                  *b = &all[(int64_t)r * n + i];
                if (a->part && a->part == b->part && a->bytes != b->bytes)
                    return WEFT_FAIL(
                        WEFT_ERR_INTERNAL,
                        "after step %lld ranks %d and %d have different copies of %s",
                        (long long)s->r.steps, k / N_KIND, r / N_KIND,
                        weft_state_at(s->state, i)->name);
            }
    return WEFT_OK;
}

weft_status weft_session__compare_copies(weft_session *s)
{
    weft_generation *g = s->now;
    if (!getenv("WEFT_CHECK_COPIES") || !g->continues) return WEFT_OK;
    int          n   = weft_state_count(s->state);
    int64_t      m   = (int64_t)N_KIND * n;
    copy_digest *own = WEFT_ARENA_ARRAY(g->arena, copy_digest, m + 1);
    copy_digest *all = WEFT_ARENA_ARRAY(g->arena, copy_digest, m * g->comm->world + 1);
    WEFT_TRY(weft_arena_status(g->arena));
    for (int i = 0; i < n; i++) WEFT_TRY(find_digest(s->state, i, &own[i]));
    for (int k = 0; k < weft_state_n_standby(s->state); k++)
        for (int i = 0; i < n; i++)
            WEFT_TRY(find_digest(weft_state_standby(s->state, k), i,
                                 &own[(1 + k) * (int64_t)n + i]));
    WEFT_TRY(weft_session__gather(s, own, (size_t)m * sizeof *own, all));
    return weft_session__outcome(s, compare_digests(s, all, n));
}

/* ---- in each view ---- */

enum {
    MOST_NAMED = 8 /* ranks or hosts of a line */
};

/* Who is lost at once: a rank; on several hosts, or where there may be several, a host. */
static bool has_hosts(const weft_generation *g)
{
    return (g->local > 0 && g->local < g->n_rank) || g->max_rank > g->max_local;
}

int *weft_session__find_domains(const weft_generation *g)
{
    const int32_t *host   = g->comm ? weft_comm_hosts_of(g->comm) : NULL;
    bool           one    = has_hosts(g) && g->local >= g->n_rank;
    int           *domain = WEFT_ARENA_ARRAY(g->arena, int, N_KIND * g->n_rank);
    for (int k = 0; domain && k < N_KIND * g->n_rank; k++) {
        int r     = k % g->n_rank;
        domain[k] = !has_hosts(g) ? r : one ? 0 : host ? host[r] : r;
    }
    return domain;
}

/* The fewest domains that hold any part; alone, by first rank: those that hold what no other does.
 */
static int find_alone(const weft_generation *g, const int *domain, bool *alone)
{
    const weft_holders *h     = g->all_holders ? g->all_holders : g->holders;
    int                *of    = h ? WEFT_ARENA_ARRAY(g->arena, int, h->n_rank + 1) : NULL;
    int                 least = 0;
    if (!of || weft_holders_copies(h, domain, of) != WEFT_OK) return 1;
    for (int r = 0; r < g->n_rank; r++) {
        if (!of[r]) continue;
        if (of[r] < 2 && alone) alone[domain[r]] = true;
        if (!least || of[r] < least) least = of[r];
    }
    return least ? least : 1;
}

int weft_session__count_copies(const weft_session *s)
{
    const int *domain = weft_session__find_domains(s->now);
    return domain ? find_alone(s->now, domain, NULL) : 1;
}

void weft_session__put_domains(const weft_generation *g, const int *domain,
                               const bool *of, weft_text *t)
{
    int count = 0, named = 0;
    for (int r = 0; r < g->n_rank; r++) count += of[r];
    weft_text_add(t, "%s%s ", has_hosts(g) ? "host" : "rank", count > 1 ? "s" : "");
    for (int r = 0, last; r < g->n_rank && named < MOST_NAMED; r++) {
        if (!of[r]) continue;
        weft_text_add(t, named++ ? ", " : "");
        if (!has_hosts(g)) weft_text_add(t, "%d", r);
        if (!has_hosts(g)) continue;
        for (last = r; last + 1 < g->n_rank && domain[last + 1] == r;) last++;
        weft_text_add(t, "%s (rank", g->host_name ? g->host_name[r] : "?");
        weft_text_add(t, last > r ? "s %d-%d)" : " %d)", r, last);
    }
    if (count > named) weft_text_add(t, " and %d more", count - named);
}

/* Jobs with GPUs have snapshots, too, but for states that are offloaded. */
static bool has_snapshots(const weft_session *s)
{
    const weft_plan *p = s->now->plan;
    return weft_session__has_agent(s) && !weft_job_is_on_cpus(&s->job) &&
           !(p && p->strategy.offload);
}

/* What the job goes back to where all copies of a part are lost. */
static void put_last_resort(const weft_session *s, weft_text *t)
{
    if (has_snapshots(s))
        weft_text_add(t, "the newest snapshot (snapshot_every is %lld)",
                      (long long)s->job.snapshot_every);
    else
        weft_text_add(t, "the newest checkpoint (checkpoint.every is %lld)",
                      (long long)s->job.checkpoint.every);
}

static void put_copies(const weft_session *s, const int *domain, bool *alone, int least,
                       weft_text *t)
{
    const weft_generation *g     = s->now;
    const char            *what  = has_hosts(g) ? "host" : "rank";
    int                    asked = s->job.strategy.copies, n = 0, n_alone = 0;
    for (int r = 0; r < g->n_rank; r++) {
        n += domain[r] == r;
        n_alone += alone[r];
    }
    if (least < asked)
        weft_text_add(t, "copies is %d, and of some of the state there %s %d", asked,
                      least > 1 ? "are" : "is", least);
    if (n_alone) {
        weft_text_add(t, least < asked ? "; " : "copies: ");
        weft_session__put_domains(g, domain, alone, t);
        weft_text_add(
            t, " hold%s what no other %s does: where %s %s, the job goes back to ",
            n_alone > 1 ? "" : "s", what, n_alone > 1 ? "one of them" : "it",
            has_hosts(g) || !weft_job_is_on_cpus(&s->job) ? "is lost"
                                                          : "crashes by its own fault");
        put_last_resort(s, t);
        if (n > n_alone) weft_text_add(t, "; the loss of another costs no step");
        return;
    }
    if (least >= asked)
        weft_text_add(
            t, "copies: every part of the state is in the memory of at least %d of ",
            least);
    else
        weft_text_add(t, ": ");
    for (int r = 0; r < g->n_rank; r++) alone[r] = domain[r] == r;
    weft_session__put_domains(g, domain, alone, t);
    weft_text_add(t, "; the loss of one costs no step");
}

/* A job that asks for more than who started its ranks can do. */
static void warn_of_no_agent(weft_session *s)
{
    if (!strcmp(s->job.recover, "off") && s->job.strategy.copies < 2) return;
    weft_say_warn(&s->say,
                  "%s: a lost rank ends the job, which resumes from the newest "
                  "checkpoint",
                  !strcmp(s->job.recover, "off")
                      ? "copies are of use with recover=on"
                      : "recover=on is for ranks that weft run --nproc-per-node starts");
}

/* Asked for, or of use: with recover, and an agent that replaces ranks. */
void weft_session__say_copies(weft_session *s)
{
    weft_generation *g     = s->now;
    int              asked = s->job.strategy.copies;
    weft_text        t     = {0};
    if (!weft_session__has_agent(s)) {
        warn_of_no_agent(s);
        return;
    }
    if (!g->holders || g->saves_only || (asked < 2 && !strcmp(s->job.recover, "off")) ||
        (g->n_rank < 2 && asked < 2 && !*s->status.copies))
        return;
    bool *alone  = WEFT_ARENA_ARRAY(g->arena, bool, g->n_rank);
    int  *domain = weft_session__find_domains(g);
    if (weft_arena_status(g->arena) != WEFT_OK) return;
    int least = find_alone(g, domain, alone);
    put_copies(s, domain, alone, least, &t);
    if (t.s && strncmp(t.s, s->status.copies, sizeof s->status.copies - 1) != 0) {
        bool again = s->status.few_copies && least >= asked;
        snprintf(s->status.copies, sizeof s->status.copies, "%s", t.s);
        s->status.few_copies = least < asked;
        if (again)
            weft_say_info(&s->say, "copies are whole again: %s",
                          t.s + strlen("copies: "));
        else
            (least < asked ? weft_say_warn : weft_say_info)(&s->say, "%s", t.s);
    }
    weft_text_fini(&t);
}
