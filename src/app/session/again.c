/* A step that was held back is run once more.
 *
 *     it is not held back again      some rank computed other numbers the first time: it is named,
 *                                    and training goes on with the second run, which all agree on;
 *                                    its agent is told, and leaves it out where it may
 *     the same numbers               they are the job's: stop, with the state before the step saved
 *     other numbers, held back too   stop likewise, and name the rank
 *
 * Which rank: where norms differ, those whose norm is not that of most ranks; else those whose own
 * numbers changed from one run to the other; where those of all ranks did, those that sent others
 * before they had received any. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

/* The two runs at every rank, and who is named. */
typedef struct again {
    int                  n;     /* ranks */
    weft_session__trial *trial; /* two of each */
    bool                *named;
    char                 names[200]; /* "rank 2", "ranks 1, 3"; "": nobody */
} again;

static int count_ranks(const weft_session *s)
{
    return s->now->comm ? s->now->comm->world : 1;
}

/* ---- who ---- */

static uint32_t norm_bits(const weft_session__trial *t)
{
    uint32_t bits;
    memcpy(&bits, &t->norm, sizeof bits);
    return bits;
}

static bool same_bits(const weft_session__trial *a, const weft_session__trial *b)
{
    return !memcmp(&a->loss, &b->loss, sizeof a->loss) && norm_bits(a) == norm_bits(b);
}

static void write_names(again *g)
{
    int    n = 0;
    size_t at;
    g->names[0] = 0;
    for (int r = 0; r < g->n; r++) n += g->named[r];
    at = (size_t)snprintf(g->names, sizeof g->names, "%s",
                          !n      ? ""
                          : n > 1 ? "ranks"
                                  : "rank");
    for (int r = 0, k = 0; r < g->n; r++) {
        if (!g->named[r] || at >= sizeof g->names) continue;
        at += (size_t)snprintf(g->names + at, sizeof g->names - at, "%s %d",
                               k++ ? "," : "", r);
    }
}

/* Those whose norm is not that of more than half of the ranks. */
static bool name_minority(again *g, int run)
{
    for (int r = 0; r < g->n; r++) {
        int same = 0;
        for (int k = 0; k < g->n; k++) {
            g->named[k] =
                norm_bits(&g->trial[2 * k + run]) != norm_bits(&g->trial[2 * r + run]);
            same += !g->named[k];
        }
        if (2 * same > g->n) return true;
    }
    memset(g->named, 0, (size_t)g->n * sizeof *g->named);
    return false;
}

/* Those that sent other numbers though they had received the same. */
static bool name_senders(again *g)
{
    int n = 0;
    for (int r = 0; r < g->n; r++) n += g->named[r] = g->trial[2 * r + 1].sent_other;
    return n > 0;
}

/* Those whose numbers changed, where others' did not. */
static bool name_changed(again *g)
{
    int n = 0;
    for (int r = 0; r < g->n; r++) {
        g->named[r] = !same_bits(&g->trial[2 * r], &g->trial[2 * r + 1]);
        n += g->named[r];
    }
    if (n < g->n || g->n == 1) return n > 0;
    memset(g->named, 0, (size_t)g->n * sizeof *g->named);
    return true;
}

static void again_fini(again *g)
{
    free(g->trial);
    free(g->named);
}

/* trial: this rank's two. */
static weft_status gather_trials(weft_session *s, const weft_session__trial trial[2],
                                 again *g)
{
    *g       = (again){.n = count_ranks(s)};
    g->trial = calloc((size_t)g->n, 2 * sizeof *g->trial);
    g->named = calloc((size_t)g->n, sizeof *g->named);
    if (!g->trial || !g->named) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (g->n > 1) return weft_session__gather(s, trial, 2 * sizeof *trial, g->trial);
    memcpy(g->trial, trial, 2 * sizeof *trial);
    return WEFT_OK;
}

weft_status weft_session__name_differing(weft_session *s, const weft_session__trial *t,
                                         int64_t step)
{
    weft_session__trial pair[2] = {*t, *t};
    again               g;
    weft_status         st = gather_trials(s, pair, &g);
    if (st == WEFT_OK && name_minority(&g, 0)) {
        write_names(&g);
        weft_say_warn(&s->say,
                      "step %lld: %s computed another gradient norm than the other ranks",
                      (long long)step, g.names);
    }
    again_fini(&g);
    return st;
}

/* ---- what follows ---- */

static const char *describe_fault(const weft_session__trial *t)
{
    if (t->fault == WEFT_SESSION__DIFFERS) return "ranks have different gradient norms";
    if (t->fault == WEFT_SESSION__MISREAD)
        return "its samples were not read once each by the ranks that have to";
    return isfinite(t->loss) ? "the gradient is not finite" : "the loss is not finite";
}

/* As the same command finds it again.  Nobody fails before all have saved. */
static weft_status save_before(weft_session *s, char *text, size_t size)
{
    if (s->r.steps > s->r.first_step) WEFT_TRY(weft_session__save(s));
    WEFT_TRY(weft_session__meet(s));
    if (s->out.saved_step >= 0)
        snprintf(text, size, "; the state after step %lld is saved",
                 (long long)s->out.saved_step);
    return WEFT_OK;
}

static weft_status stop_at(weft_session *s, const again *g, const weft_metrics_row *row,
                           const weft_session__trial trial[2], bool same)
{
    char        saved[80] = "", who[280] = "";
    const char *why = describe_fault(&trial[1]);
    WEFT_TRY(save_before(s, saved, sizeof saved));
    if (!same && g->names[0]) snprintf(who, sizeof who, ": %s computed them", g->names);
    if (!same)
        return WEFT_FAIL(WEFT_ERR_NUMERIC,
                         "step %lld: %s, with other numbers when it was run again%s%s",
                         (long long)row->step, why, who, saved);
    if (trial[1].fault == WEFT_SESSION__DIFFERS)
        return WEFT_FAIL(WEFT_ERR_NUMERIC,
                         "step %lld: %s, also when it was run again: a machine or a "
                         "library computes other bits%s%s%s",
                         (long long)row->step, why, g->names[0] ? ": " : "", g->names,
                         saved);
    if (trial[1].fault == WEFT_SESSION__MISREAD)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "step %lld: %s, also when it was run again%s",
                         (long long)row->step, why, saved);
    return WEFT_FAIL(
        WEFT_ERR_NUMERIC,
        "step %lld: %s (lr %g), also when it was run again; lower optimizer.lr "
        "or set optimizer.clip%s",
        (long long)row->step, why, row->lr, saved);
}

/* Who is to be named, the second run considered. */
static void find_names(again *g, const weft_session__trial trial[2], bool *same)
{
    bool changed = name_changed(g);
    *same        = !changed;
    if (changed) {
        bool named = false;
        for (int r = 0; r < g->n; r++) named = named || g->named[r];
        if (!named) (void)name_senders(g);
    } else if (trial[1].fault == WEFT_SESSION__DIFFERS) {
        (void)name_minority(g, 1);
    }
    write_names(g);
}

/* The agent decides whether the job goes on without this rank's machine. */
static void doubt_own(const weft_session *s, const weft_metrics_row *row,
                      const weft_session__trial *first)
{
    const weft_membership_source *m = s->o->member;
    char                          text[200];
    if (!weft_session__has_agent(s)) return;
    snprintf(text, sizeof text,
             "step %lld: %s, and rank %d computed other numbers when it was run again",
             (long long)row->step, describe_fault(first), s->now->comm->rank);
    m->tell(m->arg, WEFT_MEMBERSHIP_CORDON, row->step, text);
}

weft_status weft_session__compare_trials(weft_session             *s,
                                         const weft_session__trial trial[2],
                                         const weft_metrics_row   *row)
{
    again       g;
    bool        same;
    weft_status st = WEFT_OK;
    WEFT_GO(gather_trials(s, trial, &g));
    find_names(&g, trial, &same);
    if (trial[1].fault != WEFT_SESSION__NO_FAULT)
        WEFT_GO(stop_at(s, &g, row, trial, same));
    weft_say_warn(&s->say,
                  "step %lld: %s, and not so when it was run again: %s computed other "
                  "numbers; its hardware is in doubt",
                  (long long)row->step, describe_fault(&trial[0]),
                  g.names[0] ? g.names : "a rank (which one cannot be told)");
    if (weft_session__writes(s))
        weft_session__report(s, "differs", "retry",
                             "step %lld: %s; %s computed other numbers than when it was "
                             "run again",
                             (long long)row->step, describe_fault(&trial[0]),
                             g.names[0] ? g.names : "a rank");
    if (g.n > 1 && g.named[s->now->comm->rank]) doubt_own(s, row, &trial[0]);
out:
    again_fini(&g);
    return st;
}
