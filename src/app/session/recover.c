/* A generation after one that lost a rank: some ranks were there before (survivors), some are new.
 *
 *     catch up     every rank says how far it is; new ones take over what the job has decided
 *                  (catch_up.c)
 *     plan         from a survivor to all; survivors keep their programs
 *     state        from who holds it after the newest step; where nobody does, all go back to the
 *                  newest checkpoint
 *     outputs      of a new rank 0
 *
 * Nothing happens in any of these where there is no agent (membership.h: tell), or before the job
 * has started on any rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/membership.h"
#include "session/cut.h"
#include "session/plans_priv.h"
#include "session/snapshots_priv.h"

static const weft_membership_source *agent_of(const weft_session *s)
{
    const weft_membership_source *m = s->o->member;
    return m && m->tell ? m : NULL;
}

bool weft_session__has_agent(const weft_session *s)
{
    return agent_of(s) != NULL;
}

void weft_session__tell_agent(const weft_session *s, weft_membership_news news)
{
    const weft_membership_source *m = agent_of(s);
    if (m)
        m->tell(m->arg, news, s->r.steps,
                news == WEFT_MEMBERSHIP_READY       ? s->out.folder
                : news == WEFT_MEMBERSHIP_LEFT      ? s->left_why
                : news == WEFT_MEMBERSHIP_COMMITTED ? s->now->plan_name
                                                    : NULL);
}

weft_comm_shm_slot *weft_session__slot(const weft_session *s)
{
    return s->now && s->now->comm ? weft_program_state_slot(s->now->comm) : NULL;
}

bool weft_session__state_stays(const weft_session *s)
{
    return weft_session__slot(s) && s->device->host_access &&
           weft_job_is_on_cpus(&s->job);
}

static void forget_computed(weft_session *s)
{
    weft_state_destroy(s->computed);
    s->computed = NULL;
}

/* -1 within a step: the step that the updates are of is still known. */
static void mark_memory(weft_session *s, weft_state *state, int64_t step)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    forget_computed(s);
    if (slot && step > atomic_load(&slot->step)) /* what the agent tells of a lost rank */
        atomic_store(&slot->step, step);
    if (slot && step >= 0) {
        atomic_store(&slot->arrived, step);
        atomic_store(&slot->passed, step);
    }
    if (weft_session__state_stays(s)) {
        atomic_store(&slot->state.step, step);
        atomic_store(&slot->state.computed_step, -1);
    }
    if (state) weft_state_set_step(state, step);
}

/* Before it is overwritten: no rank goes on from it. */
static void forget_memory(weft_session *s, weft_state *state)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    forget_computed(s);
    if (slot) {
        atomic_store(&slot->state.step, -1);
        atomic_store(&slot->state.computed_step, -1);
        atomic_store(&slot->arrived, -1);
        atomic_store(&slot->passed, -1);
    }
    weft_state_set_step(state, -1);
}

void weft_session__mark_state(weft_session *s, int64_t step)
{
    mark_memory(s, s->state, step);
}

/* ---- what is left for others ---- */

void weft_session__fill_card(const weft_session *s, const weft_metrics_row *row,
                             int64_t steps, weft_kept_card *c)
{
    *c             = (weft_kept_card){.started        = 1,
                                      .first_step     = s->r.first_step,
                                      .steps          = steps,
                                      .saved_step     = s->out.saved_step,
                                      .micro_batch    = s->job.micro_batch,
                                      .lanes          = s->job.lanes,
                                      .row            = *row,
                                      .snapshot_every = s->snapshot_every};
    c->run         = s->out.run;
    c->predicted_s = s->now->predicted_s > 0 ? s->now->predicted_s : s->kept.predicted_s;
    c->row.load    = NULL;
    if (c->row.n_load > WEFT_KEPT_MAX_LOAD) c->row.n_load = 0;
    for (int i = 0; i < c->row.n_load; i++) c->load[i] = row->load[i];
    snprintf(c->reduction, sizeof c->reduction, "%s", s->job.reduction);
    snprintf(c->folder, sizeof c->folder, "%s", s->out.folder);
    weft_session__put_history(s, c);
}

void weft_session__keep_card(weft_session *s)
{
    weft_kept_card c;
    if (!s->now->kept) return;
    weft_session__fill_card(s, &s->row, s->r.steps, &c);
    weft_kept_put_card(s->now->kept, &c);
}

void weft_session__note_arrival(weft_session *s, double loss, double norm)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    weft_metrics_row   *row  = &s->running;
    weft_kept_card      c;
    uint32_t            bits;
    float               single = (float)norm;
    if (!slot || !s->now->kept) return;
    double seconds    = weft_clock_s() - s->running_s;
    row->loss         = row->skipped ? 0 : loss / (double)row->labels;
    row->grad_norm    = norm;
    row->step_ms      = 1e3 * seconds;
    row->tokens_per_s = (double)(s->job.batch * s->job.seq) / seconds;
    weft_session__fill_card(s, row, row->step, &c);
    weft_kept_put_card(s->now->kept, &c);
    memcpy(&bits, &single, sizeof bits);
    atomic_store(&slot->norm, bits);
    atomic_store(&slot->arrived, row->step);
}

void weft_session__note_passed(const weft_session *s, int64_t step)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    if (slot) atomic_store(&slot->passed, step);
}

void weft_session__note_held(const weft_session *s, int64_t step)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    if (slot) atomic_store(&slot->arrived, step - 1);
}

static weft_status describe_need(weft_session *s)
{
    weft_generation *g    = s->now;
    weft_text        t    = {0};
    weft_status      st   = g->plan ? weft_plan_print(g->plan, &t) : WEFT_OK;
    char            *text = WEFT_ARENA_ARRAY(g->arena, char, (int64_t)t.n + 1);
    if (st == WEFT_OK) st = weft_arena_status(g->arena);
    if (st == WEFT_OK && t.n) memcpy(text, t.s, t.n);
    g->need = (weft_kept_need){.plan       = text,
                               .plan_bytes = (int64_t)t.n,
                               .program    = g->made.program,
                               .rank       = g->comm->rank,
                               .n_thread   = weft_pool_threads(s->pool),
                               .journals   = weft_session__state_stays(s)};
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__adopt_kept(weft_session *s)
{
    weft_generation *g = s->now;
    if (!agent_of(s) || !weft_session__slot(s)) return WEFT_OK;
    WEFT_TRY(describe_need(s));
    if (!g->continues || !weft_kept_adopt(g->comm, &g->need, &g->kept))
        g->left = weft_kept_reserve(g->comm);
    if (!g->kept || !weft_kept_slabs(g->kept, g->made.program)) {
        g->ends_left = g->resumes; /* updates are of another program */
        g->resumes   = false;
    }
    weft_session__adopt_snapshots(s);
    return WEFT_OK;
}

weft_status weft_session__create_kept(weft_session *s)
{
    weft_generation *g = s->now;
    if (!g->need.program || g->kept) return WEFT_OK;
    return weft_kept_create(g->comm, &g->need, &g->kept);
}

void weft_session__describe_kept(weft_session *s)
{
    weft_generation *g = s->now;
    int64_t          at[WEFT_KEPT_MAX_SLAB];
    if (!g->kept) return;
    for (int i = 0; i < g->made.program->n_slab && i < WEFT_KEPT_MAX_SLAB; i++)
        at[i] = weft_runner_slab_at(g->runner, i);
    weft_failpoint("view.describe");
    weft_kept_describe(g->kept, g->comm, &g->need, at, g->left);
    weft_kept_close(g->comm, g->left);
    g->left = NULL;
    weft_failpoint("view.described");
    if (s->started) weft_session__keep_card(s);
}

/* ---- the state ---- */

/* How far a rank is with the updates of the step that is continued. */
typedef struct update_words {
    int32_t whole;   /* all of its state is after the step */
    int32_t ended;   /* but for what it gathers */
    int32_t gathers; /* it has such */
    int32_t ready;   /* and can gather it again, with all that it gathers with */
    int32_t changed; /* that answer, since it was last asked */
} update_words;

/* Out of its gradients and its journal.  What is left of it is in memory, also if this process is
 * lost. */
static void resume_updates(weft_session *s, update_words *w)
{
    weft_generation *g = s->now;
    weft_exec       *e = weft_runner_exec(g->runner);
    weft_session__note_passed(s, g->step);
    weft_failpoint("resume.begin");
    w->ended = weft_exec_resume(e, g->step - 1) == WEFT_OK;
    weft_failpoint("resume.ended");
    if (!w->ended) forget_memory(s, s->state);
    if (!w->ended)
        weft_say_warn(&s->say, "step %lld: its updates cannot be ended: %s",
                      (long long)g->step, weft_error_text());
    else if (s->row.step == g->step && !s->row.n_load)
        (void)weft_session__read_loads(s, &s->row);
}

/* Which ranks can gather?  Those that have what they give and whose peers can.  A rank that lost
 * its memory cannot, nor can those that gather with it; with copies of shards others have all of
 * the state without them.  Asked until no answer changes; of: the words of all. */
static weft_status agree_on_gathers(weft_session *s, update_words *mine, update_words *of)
{
    weft_generation *g    = s->now;
    bool            *with = WEFT_ARENA_ARRAY(g->arena, bool, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    weft_exec_gather_ranks(weft_runner_exec(g->runner), with);
    mine->changed = true;
    for (bool any = true; any;) {
        bool ready = mine->ready;
        any        = false;
        WEFT_TRY(weft_session__gather(s, mine, sizeof *mine, of));
        for (int r = 0; r < g->comm->world; r++) {
            any   = any || of[r].changed;
            ready = ready && (of[r].ready || !with[r]);
        }
        mine->changed = mine->ready && !ready;
        mine->ready   = ready;
    }
    return WEFT_OK;
}

static weft_status end_gathers(weft_session *s, update_words *mine)
{
    weft_generation *g    = s->now;
    int              n    = 0;
    bool             some = false;
    update_words    *of   = WEFT_ARENA_ARRAY(g->arena, update_words, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(agree_on_gathers(s, mine, of));
    for (int r = 0; r < g->comm->world; r++) {
        some = some || (of[r].gathers && !of[r].whole);
        n += of[r].ended;
    }
    if (n)
        weft_say_info(&s->say, "step %lld: the updates of %d of %d ranks are ended",
                      (long long)g->step, n, g->comm->world);
    if (mine->ready && mine->gathers && some)
        WEFT_TRY(weft_exec_gather_again(weft_runner_exec(g->runner), g->step - 1));
    if (mine->ended && (mine->ready || !mine->gathers)) mine->whole = true;
    return WEFT_OK;
}

/* What slots have of the step; then they may change. */
static weft_status look_at_slots(weft_session *s)
{
    weft_generation *g = s->now;
    weft_failpoint("move.look");
    WEFT_TRY(weft_kept_states_open(g->comm, s->device, g->step, &g->from));
    return weft_session__meet(s);
}

/* What others can have from this rank: all of its state, or what it has computed of it; perhaps
 * that is in memory of another layout. */
static void mark_updates(weft_session *s, const update_words *w)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    if (w->whole)
        mark_memory(s, s->state, s->now->step);
    else if (w->ended)
        weft_program_state_mark_computed(slot, s->now->step);
    else if (!weft_program_state_holds(slot, s->now->step))
        forget_memory(s, s->state);
}

weft_status weft_session__end_updates(weft_session *s)
{
    weft_generation *g = s->now;
    weft_exec       *e = weft_runner_exec(g->runner);
    update_words     w = {.whole   = weft_state_step(s->state) == g->step,
                          .gathers = weft_exec_gathers(e)};
    if (g->resumes) resume_updates(s, &w);
    w.ready = (w.whole || w.ended) && (weft_exec_can_gather_again(e) || !w.gathers);
    WEFT_TRY(end_gathers(s, &w));
    weft_failpoint("resume.mark");
    mark_updates(s, &w);
    WEFT_TRY(weft_session__meet(s)); /* all are as far as they come alone */
    WEFT_TRY(look_at_slots(s));
    return weft_session__find_state(s, s->state);
}

weft_status weft_session__open_kept(weft_session *s, weft_state **out)
{
    weft_generation *g = s->now;
    if (g->unfinished) weft_session__end_left(s);
    weft_program_state_reserve(g->comm, g->continues ? g->step : -1, g->resumes);
    if (g->continues && !g->unfinished) {
        WEFT_TRY(look_at_slots(s));
        WEFT_TRY(weft_session__compare_room(s));
    }
    if (g->in_batches) weft_kept_give_back_rest(g->comm, g->step);
    /* it is moved there, or cleared before it is read from a checkpoint */
    return weft_program_state_open_kept(&g->made, g->comm, s->device, g->resumes,
                                        g->in_batches, g->continues, out);
}

/* Out of the memory of all slots, by copies, and by messages between hosts: what this rank has
 * already stays where it is. */
static weft_status move_kept(weft_session *s, weft_state *to)
{
    weft_generation            *g     = s->now;
    bool                        whole = weft_state_step(to) == g->step;
    const weft_comm            *end   = weft_comm_shared_end(g->comm);
    double                      begin = weft_clock_s() - weft_comm_shm_made_s(end);
    weft_kept_move              m     = {.comm        = g->comm,
                                         .group       = g->group,
                                         .step        = g->step,
                                         .from        = &g->from,
                                         .to          = {to, g->holders},
                                         .in_batches  = g->in_batches,
                                         .tag         = WEFT_SESSION__TAG_STATE,
                                         .standby_tag = WEFT_SESSION__TAG_STANDBY};
    weft_session__standby_sides x;
    WEFT_TRY(weft_session__list_standby(s, to, whole, &x));
    m.standby      = x.side;
    m.n_standby    = x.n;
    weft_status st = weft_kept_move_run(&m);
    double make_s  = (double)weft_comm_shm_count_made(end) / weft_session__page_Bps(s);
    g->moved       = (weft_session__moved){.load       = {m.copied, m.sent, m.received, make_s},
                                           .seconds    = weft_clock_s() - begin,
                                           .n_batch    = m.n_batch,
                                           .peak_bytes = m.peak_bytes,
                                           .learned    = s->learned.bytes};
    s->learned.bytes = 0;
    weft_session__standby_sides_fini(&x);
    return st;
}

/* Where nothing outlives a rank: out of what survivors have, by messages. */
weft_status weft_session__find_sent(weft_session *s, weft_state *to)
{
    weft_generation *g     = s->now;
    weft_state      *empty = NULL, *have = s->state;
    if (s->computed && weft_state_step(s->computed) == g->step) have = s->computed;
    if (!have || g->step < 0 || weft_state_step(have) != g->step) {
        WEFT_TRY(weft_state_make_empty(to, &empty));
        have = empty;
    }
    weft_status st = weft_session__move_sent(s, have, to);
    weft_state_destroy(empty);
    return st;
}

static weft_status find_kept(weft_session *s, weft_state *to)
{
    weft_generation *g = s->now;
    bool             complete;
    if (weft_comm_hosts_of(g->comm))
        WEFT_TRY(weft_kept_states_exchange(&g->from, to, g->comm, g->group));
    WEFT_TRY(weft_session__find_complete(g->from.holders, g->holders, &complete));
    g->restores = !complete;
    weft_failpoint("move.begin");
    if (!g->restores) WEFT_TRY(move_kept(s, to));
    weft_failpoint("move.copied");
    weft_kept_states_close(&g->from);
    return WEFT_OK;
}

/* Before it is read from a checkpoint: optimizer states begin so. */
static weft_status clear_state(weft_session *s, weft_state *to)
{
    weft_generation   *g = s->now;
    const weft_memory *m = weft_state_memory(to);
    if (g->in_batches)
        WEFT_TRY(weft_comm_shm_make_pages(weft_comm_shared_end(g->comm), m->address,
                                          m->bytes));
    return weft_state_zero(to);
}

weft_status weft_session__find_state(weft_session *s, weft_state *to)
{
    weft_generation *g = s->now;
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_BUILT);
    WEFT_TRY(weft_session__has_snapshots(s) ? weft_session__find_lost(s, to)
             : weft_session__slot(s)        ? find_kept(s, to)
                                            : weft_session__find_sent(s, to));
    if (g->restores)
        forget_memory(s, to);
    else
        mark_memory(s, to, g->step);
    if (weft_session__state_stays(s)) weft_program_state_mark(g->comm, -1);
    weft_failpoint("move.marked");
    if (weft_session__slot(s)) {
        WEFT_TRY(weft_session__account_move(s)); /* all have theirs */
        weft_failpoint("move.settle");
        if (weft_session__state_stays(s))
            weft_program_state_settle(g->comm, g->in_batches);
        weft_failpoint("move.settled");
    }
    return g->restores ? clear_state(s, to) : WEFT_OK;
}

/* ---- going back ---- */

static void close_outputs(weft_session *s)
{
    (void)weft_metrics_close(s->out.metrics);
    (void)weft_events_close(s->out.events);
    s->out.metrics = NULL;
    s->out.events  = NULL;
}

static weft_status fill_from_newest(weft_session *s)
{
    weft_failpoint("restore.begin");
    WEFT_TRY(weft_session__open_newest(s));
    weft_failpoint("restore.opened");
    WEFT_TRY(weft_session__fill_state(s));
    weft_failpoint("restore.filled");
    return WEFT_OK;
}

/* To the newest checkpoint; where there is none, to the beginning.  Where it fails the session is
 * where it was: the next view begins with what ranks and slots say about that step. */
static weft_status restore(weft_session *s)
{
    int64_t          was = s->r.steps, first = s->r.first_step, saved = s->out.saved_step;
    weft_metrics_row row = s->row;
    if (strcmp(s->job.recover, "on") != 0 && !strstr(s->job.recover, "checkpoint"))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no rank that is left holds all of the state after step %lld, "
                         "and recover: %s does not allow to go back to a checkpoint",
                         (long long)was, s->job.recover);
    s->r.steps = s->r.first_step = 0;
    s->row                       = (weft_metrics_row){.step = 0};
    weft_status st               = fill_from_newest(s);
    if (st != WEFT_OK) {
        s->r.steps        = was;
        s->r.first_step   = first;
        s->out.saved_step = saved;
        s->row            = row;
        return st;
    }
    close_outputs(s);
    s->r.steps      = s->r.first_step;
    s->r.first_step = first < s->r.steps ? first : s->r.steps;
    WEFT_TRY(weft_session__go_back_in_history(&s->checkpoint, s->r.steps, true, &s->job));
    weft_say_warn(&s->say,
                  "no rank that is left holds all of the state after step %lld: back to "
                  "step %lld",
                  (long long)was, (long long)s->r.steps);
    return WEFT_OK;
}

void weft_session__say_back(weft_session *s)
{
    weft_comm          *end = s->now->comm ? weft_comm_shared_end(s->now->comm) : NULL;
    weft_comm_shm_slot *slot;
    int64_t             was = 0;
    for (int k = 0; end && (slot = weft_comm_shm_kept_slot_of(end, k)); k++)
        if (atomic_load(&slot->step) > was) was = atomic_load(&slot->step);
    if (was <= s->r.steps) return;
    weft_say_warn(&s->say, "nothing is left of step %lld: back to step %lld",
                  (long long)was, (long long)s->r.steps);
}

weft_status weft_session__go_back(weft_session *s, int64_t step)
{
    int64_t was = s->r.steps;
    if (step >= was) return WEFT_OK; /* what follows the step is done once more */
    s->r.steps = step;
    if (s->r.first_step > s->r.steps) s->r.first_step = s->r.steps;
    s->row = (weft_metrics_row){.step = 0};
    close_outputs(s);
    weft_say_warn(
        &s->say,
        "no rank that is left holds all of the state after step %lld: back to the "
        "snapshot of step %lld",
        (long long)was, (long long)s->r.steps);
    return weft_session__go_back_in_history(&s->checkpoint, s->r.steps, false, &s->job);
}

bool weft_session__may_be_stale(const weft_session *s)
{
    return s->now->max_rank > s->now->max_local || s->now->takes_over;
}

/* Rank 0, where it is new or all went back. */
static weft_status take_over_outputs(weft_session *s)
{
    int64_t done = s->row.step == s->r.steps && s->row.step ? s->r.steps - 1 : s->r.steps;
    if (s->out.metrics) return WEFT_OK;
    s->row_written = false;
    WEFT_TRY(weft_session__take_epoch(s));
    WEFT_TRY(weft_ckpt_tidy(s->out.checkpoints, false, &s->out.found));
    weft_session__show_findings(s);
    weft_failpoint("view.outputs");
    WEFT_TRY(weft_metrics_open(s->out.folder, done, weft_session__may_be_stale(s),
                               &s->out.metrics));
    return weft_events_open(s->out.folder, done, &s->out.events);
}

weft_status weft_session__continue(weft_session *s)
{
    bool is_new = !s->started;
    if (!weft_session__writes(s)) { /* another rank does, from now on */
        close_outputs(s);
        weft_session__give_up_claim(s);
    }
    if (is_new) {
        WEFT_TRY(weft_session__take_place(s));
        s->times.step_s = WEFT_ARENA_ARRAY(s->arena, double, WEFT_SESSION__MAX_TIMED);
        WEFT_TRY(weft_arena_status(s->arena));
    } else {
        WEFT_TRY(weft_session__meet(s)); /* with new ranks, in take_place */
    }
    if (s->now->restores)
        WEFT_TRY(restore(s));
    else if (is_new)
        WEFT_TRY(weft_session__open_source(s));
    if (s->now->back) WEFT_TRY(weft_session__go_back(s, s->now->step));
    if (s->now->restores || s->now->back)
        weft_session__tell_agent(s, WEFT_MEMBERSHIP_BACK);
    WEFT_TRY(weft_session__compare_copies(s));
    s->started = true;
    return weft_session__lead(s, take_over_outputs);
}

weft_status weft_session__prepare_save(weft_session *s)
{
    int         count[WEFT_SESSION__MAX_RANK];
    bool        several = weft_session__count_by_host(s, count) > 1;
    const char *part    = several ? "these hosts together do not hold all of the state"
                                  : "this host alone does not hold all of the state";
    const weft_generation *g     = s->now;
    bool                   holds = g->continues && s->started && !g->restores && !g->back;
    weft_status            st    = holds ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "%s", part);
    s->status.writes             = false; /* it is others' */
    st                           = weft_session__outcome(s, st);
    if (st != WEFT_OK)
        weft_say_warn(&s->say,
                      "%s after step %lld: nothing is saved, the checkpoints so far stay",
                      part, (long long)s->r.steps);
    WEFT_TRY(st);
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_READY);
    return WEFT_OK;
}

/* ---- before the next view ---- */

/* What was begun on the way to the first step begins anew. */
static void forget_start(weft_session *s)
{
    weft_ckpt_close(s->resume);
    s->resume = NULL;
    weft_ckpt_state_fini(&s->checkpoint);
    s->checkpoint = (weft_ckpt_state){0};
    weft_state_destroy(s->state);
    s->state = NULL;
    weft_store_dir_close(s->source);
    s->source = NULL;
    close_outputs(s);
    weft_session__give_up_claim(s);
    s->r.steps = s->r.first_step = 0;
    s->out.saved_step            = -1;
    s->job                       = *s->asked; /* what was decided is decided anew */
    s->job.source                = s->model_source;
    s->by_devices                = false;
    if (s->device && !strcmp(s->job.device, "auto")) s->job.device = s->device->kernels;
}

weft_status weft_session__keep_for_next(weft_session *s)
{
    weft_ckpt_close(s->resume); /* of a restore that was broken off */
    s->resume = NULL;
    if (!s->started) {
        if (weft_generation_is_state_shared(s))
            weft_state_destroy(s->state), s->state = NULL;
        forget_start(s);
        return WEFT_OK;
    }
    bool outlives = weft_session__slot(s) || (s->state && weft_state_step(s->state) < 0);
    if (outlives && weft_generation_is_state_shared(s)) {
        weft_state_destroy(s->state);
        s->state = NULL;
    }
    return weft_generation_keep_state(s);
}

void weft_session__keep_program(weft_session *s)
{
    weft_generation *g = s->now;
    if (!agent_of(s) || !g->plan || !g->made.program) return;
    weft_compiled_fini(&s->kept.made);
    weft_plan_destroy(s->kept.plan);
    s->kept.made        = g->made;
    s->kept.plan        = g->plan;
    s->kept.rank        = s->r.rank;
    s->kept.predicted_s = g->predicted_s;
    g->made             = (weft_compiled){0};
    g->plan             = NULL;
}

void weft_session__forget_program(weft_session *s)
{
    weft_compiled_fini(&s->kept.made);
    weft_plan_destroy(s->kept.plan);
    s->kept.plan = NULL;
}
