/* Updates that were broken off, where ranks go on with another plan: hosts or ranks came or went
 * between the vote of a step and its end.
 *
 * No update after the vote waits for a message (program/verify_commit.c), so the process that has
 * the slot now ends them alone: it compiles the program that the slot's record names, the plan and
 * rank before this view, over the memory that is there, and goes on where its journal says.  Slots
 * that have no rank now are done by the ranks that tell of them.
 *
 * (1) Nothing is allocated in slabs and nothing is sent: it is done before the state is adopted.
 * (2) What that program would have gathered after the commit point stays as it was.  The slot then
 *     holds what its rank computes of the state (computed_step), and the move between holders
 *     brings the shards of all ranks to where the next plan wants them.
 * (3) It can be broken off as well: until the slot is marked the next process does it again. */
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "session/session_priv.h"

typedef struct left_program {
    int                 slot;
    weft_comm_shm_slot *words;
    const weft_kept    *kept;
    weft_plan          *plan; /* NULL: of one rank */
    weft_training       own;  /* where the next plan has other lanes */
    weft_compiled       made;
    weft_pool          *pool;
    weft_memory         slab[WEFT_KEPT_MAX_SLAB];
    bool                is_own[WEFT_KEPT_MAX_SLAB]; /* not in the slot */
} left_program;

static weft_status compile_left(weft_session *s, left_program *x)
{
    int64_t              n    = 0;
    const char          *text = weft_kept_plan(x->kept, &n);
    const weft_training *t    = &s->training;
    if (n) WEFT_TRY(weft_plan_parse("the plan of a slot", text, (size_t)n, &x->plan));
    WEFT_TRY(weft_session__make_training(s));
    if (x->plan) WEFT_TRY(weft_compile_training_of(t, &x->plan->of, &x->own, &t));
    return weft_compile_program(t, x->plan, weft_kept_rank(x->kept), &x->made);
}

/* The memory of the slot, and for what does not outlive a process (staging) new memory. */
static weft_status find_slabs(weft_session *s, left_program *x)
{
    const weft_program *p   = x->made.program;
    weft_comm          *end = weft_comm_shared_end(s->now->comm);
    const int64_t      *at  = weft_kept_slabs(x->kept, p);
    if (!at || weft_program_host_state_slab(p) >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "the work memory of slot %d is of another program",
                         x->slot);
    for (int i = 0; i < p->n_slab; i++) {
        int64_t bytes = p->slab[i].bytes;
        x->is_own[i]  = p->slab[i].kind != WEFT_SLAB_STATE && (at[i] < 0 || bytes < 1);
        if (p->slab[i].kind == WEFT_SLAB_STATE || x->is_own[i]) continue;
        x->slab[i] =
            (weft_memory){s->device, WEFT_SPACE_SHARED,
                          weft_comm_shm_reach(end, x->slot, at[i], bytes), bytes};
        if (!x->slab[i].address)
            return WEFT_FAIL(WEFT_ERR_ARG, "the work memory of slot %d is not there",
                             x->slot);
    }
    int state = weft_program_state_slab(p);
    if (state >= 0)
        WEFT_TRY(weft_program_state_find_left(&x->made, s->now->comm, s->device, x->slot,
                                              &x->slab[state]));
    return weft_exec_alloc_slabs(p, s->device, x->slab);
}

static weft_status run_rest(weft_session *s, left_program *x)
{
    int64_t           step = s->now->step;
    weft_exec        *e    = NULL;
    weft_exec_options o    = {.device      = {s->device, weft_device_cpu()},
                              .pool        = x->pool,
                              .slab        = x->slab,
                              .seed        = (uint64_t)s->job.seed,
                              .batch       = s->job.batch,
                              .micro_batch = x->made.model->batch,
                              .journal = weft_kept_journal((weft_kept *)(uintptr_t)x->kept),
                              .resumes = true,
                              .alone   = true};
    WEFT_TRY(weft_exec_create(x->made.program, &o, &e));
    weft_failpoint("left.begin");
    weft_status st = weft_exec_resume(e, step - 1);
    weft_failpoint("left.ended");
    if (st == WEFT_OK &&
        x->slot == weft_comm_shm_own_slot(weft_comm_shared_end(s->now->comm)) &&
        s->row.step == step && !s->row.n_load)
        (void)weft_session__read_loads_of(s, e, &x->made, &s->row);
    weft_exec_destroy(e);
    return st;
}

static void close_left(left_program *x)
{
    const weft_program *p = x->made.program;
    for (int i = 0; p && i < p->n_slab && i < WEFT_KEPT_MAX_SLAB; i++)
        if (x->is_own[i]) weft_device_free(&x->slab[i]);
    weft_pool_destroy(x->pool);
    weft_compiled_fini(&x->made);
    weft_training_fini(&x->own);
    weft_plan_destroy(x->plan);
}

static weft_status end_slot(weft_session *s, int slot)
{
    weft_comm   *end = weft_comm_shared_end(s->now->comm);
    left_program x   = {.slot  = slot,
                        .words = weft_comm_shm_kept_slot_of(end, slot),
                        .kept  = weft_kept_find_of(s->now->comm, slot)};
    weft_status  st  = WEFT_OK;
    if (!x.kept || !x.words)
        return WEFT_FAIL(WEFT_ERR_ARG, "slot %d has no record of its plan", slot);
    atomic_store(&x.words->passed, s->now->step);
    WEFT_GO(compile_left(s, &x));
    int n_thread = weft_kept_threads(x.kept, x.made.program);
    if (!n_thread)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "the journal of slot %d is of another program",
                          slot));
    WEFT_GO(weft_pool_create(n_thread, 0, &x.pool));
    WEFT_GO(find_slabs(s, &x));
    WEFT_GO(run_rest(s, &x));
    weft_program_state_mark_computed(x.words, s->now->step);
    weft_failpoint("left.marked");
out:
    close_left(&x);
    return st;
}

static void end_or_forget(weft_session *s, int slot)
{
    weft_comm *end = weft_comm_shared_end(s->now->comm);
    if (end_slot(s, slot) == WEFT_OK) {
        weft_say_info(&s->say,
                      "step %lld: the updates of slot %d are ended by the plan before",
                      (long long)s->now->step, slot);
        return;
    }
    weft_say_warn(&s->say, "step %lld: the updates of slot %d cannot be ended: %s",
                  (long long)s->now->step, slot, weft_error_text());
    weft_comm_shm_slot *words = weft_comm_shm_kept_slot_of(end, slot);
    atomic_store(&words->state.step, -1);
    atomic_store(&words->state.computed_step, -1);
    atomic_store(&words->arrived, -1);
    atomic_store(&words->passed, -1);
}

void weft_session__end_left(weft_session *s)
{
    int slot = weft_comm_shm_own_slot(weft_comm_shared_end(s->now->comm));
    if (s->now->ends_left) end_or_forget(s, slot);
    while ((slot = weft_session__find_unfinished(s, s->now->step)) >= 0)
        end_or_forget(s, slot);
}
