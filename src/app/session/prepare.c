/* A new rank of a running job, before it is in a membership: it reads the model, finds the plan
 * that the job will have, compiles its program and makes the pages of its memory, while the others
 * train.  What it finds otherwise in the membership itself it does there again; so nothing here has
 * to be right, and an error is not reported. */
#include "base/failpoint.h"
#include "comm/shm.h"
#include "session/session_priv.h"

/* As the running ranks have decided it: what a program depends on. */
static weft_status take_decisions(weft_session *s, const weft_kept_card *c)
{
    s->job.micro_batch       = c->micro_batch;
    s->job.lanes             = c->lanes;
    s->job.given_micro_batch = s->job.given_lanes = true;
    s->job.reduction = weft_arena_strdup(s->arena, c->reduction);
    WEFT_TRY(weft_arena_status(s->arena));
    WEFT_TRY(weft_session__find_seq(&s->job));
    return weft_session__read_model(s);
}

static weft_status find_next_plan(weft_session *s, const weft_text *left, weft_plan **out)
{
    weft_plan *was = NULL;
    if (left->n)
        WEFT_TRY(weft_plan_parse("the plan of this job", left->s, left->n, &was));
    weft_status st = weft_session__replan(s, was, out);
    weft_plan_destroy(was);
    return st;
}

/* The program as memberships keep it, and room for it. */
static weft_status make_program(weft_session *s, const weft_membership_expected *x,
                                weft_plan *plan)
{
    weft_compiled made = {0};
    weft_text     text = {0};
    if (weft_plan_world(plan) != x->world)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d of %d ranks are of use", weft_plan_world(plan),
                         x->world);
    WEFT_TRY(weft_session__take_cut(&s->job, plan));
    WEFT_TRY(weft_compile_program(&s->training, plan, x->rank, &made));
    weft_status    st   = weft_plan_print(plan, &text);
    weft_kept_need need = {.plan_bytes = (int64_t)text.n,
                           .program    = made.program,
                           .n_thread   = weft_runner_cores(),
                           .journals   = true};
    weft_text_fini(&text);
    weft_failpoint("prepare.compiled");
    if (st == WEFT_OK)
        st = weft_comm_shm_prepare_slab(x->kept_fd, x->local_rank, weft_kept_room(&need));
    s->kept.made = made; /* of use without the pages, too */
    s->kept.rank = x->rank;
    return st;
}

static weft_status prepare(weft_session *s, const weft_membership_expected *x)
{
    weft_kept_card card;
    weft_text      left = {0};
    weft_status    st   = WEFT_OK;
    if (!weft_kept_read(x->kept_fd, 0, &card, &left))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "the running ranks have left nothing"));
    WEFT_GO(take_decisions(s, &card));
    WEFT_GO(find_next_plan(s, &left, &s->kept.plan));
    WEFT_GO(make_program(s, x, s->kept.plan));
out:
    weft_text_fini(&left);
    return st;
}

void weft_session__prepare(weft_session *s)
{
    const weft_membership_source *source = s->o->member;
    weft_membership_expected      x;
    if (!source || !source->expected || !source->expected(source->arg, &x)) return;
    weft_generation g = {.n_rank = x.world, .local = x.local_world};
    weft_failpoint("prepare.begin");
    s->now = &g;
    if (prepare(s, &x) != WEFT_OK && !s->kept.made.program) {
        weft_plan_destroy(s->kept.plan);
        s->kept.plan = NULL;
    }
    s->now        = NULL;
    s->job        = *s->asked; /* what was decided is taken over in the membership */
    s->job.source = s->model_source;
    weft_failpoint("prepare.done");
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_PREPARED);
}
