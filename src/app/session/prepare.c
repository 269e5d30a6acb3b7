/* A new rank of a running job, before it is in a membership: it opens model and data, finds the
 * plan that the job will have, compiles its program and makes the pages of its memory, while the
 * others train.  What it finds otherwise in the membership itself it does there again; so nothing
 * here has to be right.  A model or data that cannot be opened are errors now, and the others do
 * not notice; in the membership they would end the job. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/shm.h"
#include "session/ahead.h"
#include "session/brief.h"
#include "session/plans_priv.h"

enum {
    /* bytes of plans in a brief, which is one frame between agents */
    MAX_AHEAD = 256 << 10
};

/* ---- briefs ---- */

void weft_session__offer_brief(const weft_session *s)
{
    const weft_membership_source *source = s->o->member;
    weft_brief b = {.micro_batch = s->job.micro_batch, .lanes = s->job.lanes};
    weft_text  t = {0}, ahead = {0};
    if (!source || !source->brief) return;
    weft_session__add_answers(s, MAX_AHEAD, &ahead);
    if (weft_text_status(&ahead) == WEFT_OK) b.ahead = ahead.s, b.ahead_bytes = ahead.n;
    b.plan       = s->now->need.plan;
    b.plan_bytes = (size_t)s->now->need.plan_bytes;
    snprintf(b.reduction, sizeof b.reduction, "%s", s->job.reduction);
    weft_brief_print(&b, &t);
    if (weft_text_status(&t) == WEFT_OK) source->brief(source->arg, t.s, t.n);
    weft_text_fini(&ahead);
    weft_text_fini(&t);
}

static weft_status read_brief(int fd, weft_text *t, weft_brief *out)
{
    char    part[4096];
    ssize_t n = 0;
    while (fd >= 0 && (n = pread(fd, part, sizeof part, (off_t)t->n)) > 0)
        weft_text_put(t, part, (size_t)n);
    if (fd < 0 || n || !t->n)
        return WEFT_FAIL(WEFT_ERR_ARG, "the running ranks have left nothing");
    WEFT_TRY(weft_text_status(t));
    return weft_brief_parse(t->s, t->n, out);
}

/* ---- the program ---- */

/* As the running ranks have decided it: what a program depends on. */
static weft_status take_decisions(weft_session *s, const weft_brief *b)
{
    s->job.micro_batch       = b->micro_batch;
    s->job.lanes             = b->lanes;
    s->job.given_micro_batch = s->job.given_lanes = true;
    s->job.reduction = weft_arena_strdup(s->arena, b->reduction);
    return weft_arena_status(s->arena);
}

/* As the leader will find it: the one that was made ahead, or what a quick search gives. */
static weft_status find_next_plan(weft_session *s, const weft_brief *b, weft_plan **out)
{
    weft_plan        *was = NULL;
    weft_ahead_answer a;
    int               count[WEFT_SESSION__MAX_RANK];
    int               n_host = weft_session__count_by_host(s, count);
    if (weft_ahead_find(b->ahead, b->ahead_bytes, n_host, count, &a))
        return weft_plan_parse("a plan made ahead", a.plan, a.plan_bytes, out);
    weft_failpoint("prepare.search");
    if (b->plan_bytes)
        WEFT_TRY(weft_plan_parse("the plan of this job", b->plan, b->plan_bytes, &was));
    weft_status st = weft_session__replan(s, was, false, out);
    weft_plan_destroy(was);
    return st;
}

/* The program as memberships keep it, and room for it. */
static weft_status make_program(weft_session *s, const weft_membership_expected *x,
                                weft_plan *plan)
{
    weft_compiled made = {0};
    weft_text     text = {0};
    /* none of this host's */
    if (x->n_host > 1 && weft_plan_world(plan) <= x->rank - x->local_rank)
        s->o->member->tell(s->o->member->arg, WEFT_MEMBERSHIP_WANTS,
                           weft_plan_world(plan), NULL);
    if (weft_plan_world(plan) != x->world)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d of %d ranks are of use", weft_plan_world(plan),
                         x->world);
    s->job.given_micro_batch = s->job.given_lanes = false;
    WEFT_TRY(weft_session__take_cut(&s->job, plan));
    WEFT_TRY(weft_session__make_training(s));
    WEFT_TRY(weft_compile_program(&s->training, plan, x->rank, &made));
    weft_status    st   = weft_plan_print(plan, &text);
    weft_kept_need need = {.plan_bytes = (int64_t)text.n,
                           .program    = made.program,
                           .n_thread   = weft_runner_cores(),
                           .journals   = true};
    weft_text_fini(&text);
    weft_failpoint("prepare.compiled");
    /* in jobs with GPUs the state is elsewhere, on a GPU work too */
    if (st == WEFT_OK && weft_job_is_on_cpus(&s->job))
        st = weft_comm_shm_prepare_slab(x->kept_fd, x->slot, weft_kept_room(&need));
    s->kept.made = made; /* of use without the pages, too */
    s->kept.rank = x->rank;
    return st;
}

static void prepare_program(weft_session *s, const weft_membership_expected *x)
{
    weft_text   t = {0};
    weft_brief  b;
    weft_status st = read_brief(x->brief_fd, &t, &b);
    if (st == WEFT_OK) st = take_decisions(s, &b);
    if (st == WEFT_OK) st = find_next_plan(s, &b, &s->kept.plan);
    if (st == WEFT_OK) st = make_program(s, x, s->kept.plan);
    if (st != WEFT_OK && !s->kept.made.program) {
        weft_plan_destroy(s->kept.plan);
        s->kept.plan = NULL;
    }
    weft_text_fini(&t);
}

/* ---- files ---- */

/* With the training graph, which says what the model takes. */
static weft_status open_files(weft_session *s)
{
    weft_compile_spec spec = weft_job_spec(&s->job);
    if (!s->training.graph || !weft_training_is_for(&s->training, &spec)) return WEFT_OK;
    s->now->made.model = s->training.model;
    WEFT_TRY(weft_session__open_data(s, s->job.data, s->job.shuffle, &s->data));
    WEFT_TRY(weft_session__eval_open_data(s));
    return weft_session__open_source(s);
}

void weft_session__tell_prepared(weft_session *s)
{
    if (s->learned.prepared) return;
    s->learned.prepared = true;
    weft_failpoint("prepare.done");
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_PREPARED);
}

weft_status weft_session__prepare(weft_session *s)
{
    const weft_membership_source *source = s->o->member;
    weft_membership_expected      x;
    if (!source || !source->expected || !source->expected(source->arg, &x))
        return WEFT_OK;
    weft_generation g  = {.n_rank     = x.world,
                          .local      = x.local_world,
                          .n_host     = x.n_host,
                          .host_ranks = x.host_ranks};
    weft_status     st = WEFT_OK;
    weft_failpoint("prepare.begin");
    s->now      = &g;
    s->say.mute = true;
    WEFT_GO(weft_session__find_seq(&s->job));
    WEFT_GO(weft_session__read_model(s));
    prepare_program(s, &x);
    WEFT_GO(open_files(s));
    weft_session__learn(s, &x);
    s->job        = *s->asked; /* what was decided is taken over in the membership */
    s->job.source = s->model_source;
    weft_session__tell_prepared(s);
out:
    s->now = NULL;
    return st;
}
