/* Memory for the next membership, made while steps go on: where another number of ranks was asked
 * for, each rank that stays finds the plan and the programs that it will have, and makes the pages
 * that their memory lacks.  The pause does not wait for them.  On several hosts also where hosts
 * join or leave (launch/hosts_ahead.c).
 *
 * All of it is in a thread of its own, which reads the job, its training graph and its plan alone.
 * What the membership itself finds otherwise is made there: nothing here has to be right. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/ahead.h"
#include "session/brief.h"
#include "session/plans_priv.h"
#include "state/table.h"

enum {
    /* bytes of pages between two looks whether the membership is over */
    PIECE    = 32 << 20,
    MOST_OF  = 8,   /* all but this part of the free memory may be taken */
    UNUSED_S = 300, /* pages that nothing uses then are given back */
    MAX_KEEP = 4,
    MAX_WANT = 3 + 2 * WEFT_KEPT_MAX_SLAB /* state, record, slabs of two programs */
};

struct weft_session__memory_ahead {
    weft_session            *s;
    weft_membership_expected next;
    int                      host_ranks[WEFT_SESSION__MAX_RANK];
    weft_text                brief;
    pthread_t                thread;
    bool                     has_thread;
    _Atomic bool             over, stops;
    bool                     reported;
};

typedef struct weft_session__memory_ahead memory_ahead;

/* ---- what there will be ---- */

/* The one that was made ahead, or what a quick search gives. */
static weft_status find_plan(memory_ahead *a, weft_plan **out)
{
    const int        *count  = a->host_ranks;
    int               n_host = a->next.n_host ? a->next.n_host : 1;
    weft_ahead_answer x;
    weft_brief        b;
    if (a->brief.n && weft_brief_parse(a->brief.s, a->brief.n, &b) == WEFT_OK &&
        weft_ahead_find(b.ahead, b.ahead_bytes, n_host, count, &x))
        return weft_plan_parse("a plan made ahead", x.plan, x.plan_bytes, out);
    return weft_session__replan_for(a->s, a->s->now->plan, n_host, count, &a->stops, out);
}

typedef struct next_programs {
    weft_plan    *plan;
    weft_text     text; /* of the plan */
    weft_training own;  /* where that has other lanes */
    weft_compiled train, eval;
} next_programs;

/* The membership is over: what would be made is not needed. */
static weft_status check_stop(memory_ahead *a)
{
    return atomic_load(&a->stops) ? WEFT_FAIL(WEFT_ERR_PEER, "the membership is over")
                                  : WEFT_OK;
}

static weft_status make_programs(memory_ahead *a, next_programs *x)
{
    weft_session        *s = a->s;
    const weft_training *t;
    WEFT_TRY(find_plan(a, &x->plan));
    WEFT_TRY(check_stop(a));
    if (weft_plan_world(x->plan) != a->next.world)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d of %d ranks are of use",
                         weft_plan_world(x->plan), a->next.world);
    WEFT_TRY(weft_plan_print(x->plan, &x->text));
    WEFT_TRY(weft_compile_training_of(&s->training, &x->plan->of, &x->own, &t));
    WEFT_TRY(weft_compile_program(t, x->plan, a->next.rank, &x->train));
    WEFT_TRY(check_stop(a));
    if (!s->now->eval.runner) return WEFT_OK;
    return weft_compile_eval(&t->spec, t->model, x->plan, a->next.rank, &x->train,
                             &x->eval);
}

static void next_programs_fini(next_programs *x)
{
    weft_compiled_fini(&x->eval);
    weft_compiled_fini(&x->train);
    weft_training_fini(&x->own);
    weft_text_fini(&x->text);
    weft_plan_destroy(x->plan);
}

/* ---- where it will be ---- */

/* What the slot describes, which the next membership begins with. */
static int list_kept(weft_session *s, weft_comm_shm_range *keep)
{
    const weft_comm_shm_slot *slot = weft_session__slot(s);
    const weft_comm_shm_held *h    = &slot->state;
    int                       n    = 0;
    keep[n++] = (weft_comm_shm_range){atomic_load(&h->at), atomic_load(&h->bytes)};
    keep[n++] =
        (weft_comm_shm_range){atomic_load(&h->table_at), atomic_load(&h->table_bytes)};
    keep[n++] = (weft_comm_shm_range){atomic_load(&h->computed_at),
                                      atomic_load(&h->computed_bytes)};
    keep[n++] = (weft_comm_shm_range){atomic_load(&slot->record) - 1,
                                      weft_kept_bytes(s->now->kept)};
    return n;
}

static int list_slabs(const weft_program *p, int64_t *want)
{
    int n = 0;
    for (int i = 0; p && i < p->n_slab && i < WEFT_KEPT_MAX_SLAB; i++)
        if (!weft_slab_kind_is_state(p->slab[i].kind)) want[n++] = p->slab[i].bytes;
    return n;
}

static int count_threads(const memory_ahead *a)
{
    const weft_session *s = a->s;
    int n = s->now->n_core / (a->next.local_world > 0 ? a->next.local_world : 1);
    return s->job.threads ? (int)s->job.threads : n > 1 ? n : 1;
}

/* In the order in which a generation takes it: a state of another layout, the record, slabs. */
static weft_status list_wanted(const memory_ahead *a, const next_programs *x,
                               int64_t *want, int *n)
{
    weft_session  *s    = a->s;
    weft_kept_need need = {.plan_bytes = (int64_t)x->text.n,
                           .program    = x->train.program,
                           .rank       = a->next.rank,
                           .n_thread   = count_threads(a),
                           .journals   = true};
    bool           same;
    WEFT_TRY(weft_program_state_is_laid_out(&x->train, s->now->comm, s->device, &same));
    *n = 0;
    if (!same) {
        want[(*n)++] = weft_program_bytes(x->train.program, WEFT_SLAB_STATE);
        want[(*n)++] = weft_state_table_bytes(s->state);
    }
    want[(*n)++] = weft_kept_record_bytes(&need);
    *n += list_slabs(x->train.program, want + *n);
    *n += list_slabs(x->eval.program, want + *n);
    return WEFT_OK;
}

/* Bytes without pages, in the ranges. */
static int64_t count_missing(weft_comm *end, const weft_comm_shm_range *range, int n)
{
    int64_t bytes = 0;
    int     slot  = weft_comm_shm_own_slot(end);
    for (int k = 0; k < n; k++) {
        const void *p = weft_comm_shm_reach(end, slot, range[k].at, range[k].bytes);
        if (p)
            bytes += range[k].bytes - weft_comm_shm_count_range(end, p, range[k].bytes);
    }
    return bytes;
}

static weft_status make_pages(memory_ahead *a, weft_comm_shm_range x)
{
    weft_comm *end = weft_comm_shared_end(a->s->now->comm);
    for (int64_t at = 0; x.at >= 0 && at < x.bytes && !atomic_load(&a->stops);
         at += PIECE) {
        int64_t n = x.bytes - at < PIECE ? x.bytes - at : PIECE;
        WEFT_TRY(weft_comm_shm_make_ahead(end, (weft_comm_shm_range){x.at + at, n}));
    }
    return WEFT_OK;
}

static weft_status make_memory(memory_ahead *a)
{
    weft_comm          *end = weft_comm_shared_end(a->s->now->comm);
    weft_comm_shm_range keep[MAX_KEEP], range[MAX_WANT];
    int64_t             want[MAX_WANT], free_bytes = weft_session__free_bytes();
    int                 n_keep, n;
    next_programs       x  = {0};
    weft_status         st = WEFT_OK;
    WEFT_GO(make_programs(a, &x));
    weft_failpoint("memory_ahead.compiled");
    WEFT_GO(list_wanted(a, &x, want, &n));
    n_keep = list_kept(a->s, keep);
    WEFT_GO(weft_comm_shm_foresee(end, keep, n_keep, want, n, range));
    if (count_missing(end, range, n) >
        (free_bytes - free_bytes / MOST_OF) / a->next.local_world)
        goto out; /* moves by batches need it */
    for (int k = 0; k < n; k++) WEFT_GO(make_pages(a, range[k]));
    weft_failpoint("memory_ahead.made");
out:
    next_programs_fini(&x);
    return st;
}

static void *run(void *arg)
{
    memory_ahead *a = arg;
    (void)make_memory(a); /* or the membership makes it */
    atomic_store(&a->over, true);
    return NULL;
}

/* ---- in the rank ---- */

static void read_brief(int fd, weft_text *t)
{
    char    part[4096];
    ssize_t n;
    while (fd >= 0 && (n = pread(fd, part, sizeof part, (off_t)t->n)) > 0)
        weft_text_put(t, part, (size_t)n);
    if (fd >= 0) close(fd);
    if (weft_text_status(t) != WEFT_OK) weft_text_fini(t);
}

/* Where there is memory that outlives ranks, and a program in it. */
static bool may_begin(const weft_session *s)
{
    return s->now->kept && s->now->plan && s->training.graph &&
           weft_session__state_stays(s);
}

/* What the agent passes stays until its next message alone: the thread has a copy. */
static void copy_next(memory_ahead *a, const weft_membership_expected *next)
{
    a->next          = *next;
    a->host_ranks[0] = next->world;
    for (int k = 0; k < next->n_host && k < WEFT_SESSION__MAX_RANK; k++)
        a->host_ranks[k] = next->host_ranks[k];
    a->next.host_ranks = NULL;
    read_brief(next->brief_fd, &a->brief);
}

static void begin(weft_session *s, const weft_membership_expected *next)
{
    memory_ahead *a = calloc(1, sizeof *a);
    if (a) {
        a->s = s;
        copy_next(a, next);
        a->has_thread = may_begin(s) && !pthread_create(&a->thread, NULL, run, a);
    } else if (next->brief_fd >= 0) {
        close(next->brief_fd);
    }
    s->now->memory_ahead = a;
    if (a && a->has_thread) return;
    weft_session__close_memory_ahead(s->now);
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_PREPARED);
}

/* Where no membership came that uses them. */
static void give_back_unused(weft_session *s)
{
    const memory_ahead *a   = s->now->memory_ahead;
    weft_comm          *end = weft_comm_shared_end(s->now->comm);
    if (s->pages_ahead_s <= 0 || (a && !atomic_load(&a->over))) return;
    if (weft_clock_s() < s->pages_ahead_s + UNUSED_S &&
        !weft_failpoint_flips("memory_ahead.unused"))
        return;
    s->pages_ahead_s = 0;
    if (end && weft_session__slot(s)) weft_comm_shm_give_back_free(end);
}

void weft_session__step_memory_ahead(weft_session *s)
{
    const weft_membership_source *source = s->o->member;
    weft_membership_expected      next;
    memory_ahead                 *a = s->now->memory_ahead;
    if (a && !a->reported && atomic_load(&a->over)) {
        a->reported      = true;
        s->pages_ahead_s = weft_clock_s();
        weft_session__tell_agent(s, WEFT_MEMBERSHIP_PREPARED);
    }
    give_back_unused(s);
    if (!source || !source->resizes || !source->resizes(source->arg, &next)) return;
    weft_session__close_memory_ahead(s->now);
    begin(s, &next);
    weft_session__begin_teaching(s, &next);
}

void weft_session__close_memory_ahead(weft_generation *g)
{
    memory_ahead *a = g->memory_ahead;
    g->memory_ahead = NULL;
    if (!a) return;
    atomic_store(&a->stops, true);
    if (a->has_thread) {
        pthread_join(a->thread, NULL);
        a->s->pages_ahead_s = weft_clock_s();
    }
    weft_text_fini(&a->brief);
    free(a);
}
