/* One membership of a job's ranks, from the communicator to the executor.
 *
 *     connect    the membership's ranks; do they mean the same job?
 *     decide     micro_batch, lanes, the plan; the first time the output folder and its checkpoint
 *     compile    training graph and plan -> this rank's program
 *     prepare    threads, memory, evaluation
 *     fill       the first time: state and outputs */
#include <malloc.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/membership.h"
#include "comm/shm.h"
#include "session/peak.h"
#include "session/gpu_memory.h"
#include "session/cut.h"
#include "session/plans_priv.h"
#include "session/snapshots_priv.h"

enum {
    TIMEOUT_S = 60 /* of ranks that wait for each other, where nobody says */
};

/* ---- connect ---- */

/* Once: the state stays where it is when memberships change.  A device is its slot's, whatever rank
 * that has. */
static weft_status open_device(weft_session *s, const weft_membership *m)
{
    int n_slot = m->max_local > m->local_world ? m->max_local : m->local_world;
    weft_session_no_gpu none = {.there = false};
    if (s->device) return WEFT_OK;
    WEFT_TRY(
        weft_session_open_device(&(weft_session_device){.where       = s->job.file,
                                                        .list        = s->job.device,
                                                        .share_gpu   = s->job.share_gpu,
                                                        .local_rank  = m->slot,
                                                        .local_world = n_slot,
                                                        .no_gpu      = &none},
                                 &s->device));
    if (none.text[0])
        (none.there ? weft_say_warn
                    : weft_say_info)(&s->say, "device=auto takes the CPU: %s", none.text);
    if (!strcmp(s->job.device, "auto")) s->job.device = s->device->kernels;
    return WEFT_OK;
}

static weft_status connect_ranks(weft_session *s)
{
    const weft_membership_source *source   = s->o->member;
    weft_generation              *g        = s->now;
    weft_comm                    *listener = NULL;
    weft_membership               m        = {.world = 1, .local_world = 1};
    double timeout_s = s->o->timeout_s > 0 ? s->o->timeout_s : TIMEOUT_S;
    if (source) {
        s->over = true; /* if nothing comes */
        weft_failpoint("view.await");
        WEFT_TRY(source->await(source->arg, &m, &listener));
        s->released = m.world == 0;
        if (s->released) s->r.rank = -1, s->status.writes = false;
        if (s->released) weft_session__give_up_claim(s);
        if (s->released)
            return WEFT_FAIL(WEFT_ERR_PEER, "the others go on without this rank");
        s->over = false;
    }
    weft_failpoint("view.received");
    /* others may have decided the next one */
    s->out.found.epoch = m.epoch - (uint32_t)m.saves_only;
    g->saves_only      = m.saves_only;
    g->takes_over      = m.takes_over;
    g->n_rank          = m.world;
    g->local           = m.local_world;
    g->max_rank        = m.max_world > m.world ? m.max_world : m.world;
    g->max_local       = m.max_local > m.local_world ? m.max_local : m.local_world;
    weft_status st     = WEFT_OK;
    /* one rank alone needs it where its state is to outlive it */
    if (m.world > 1 || m.has_kept)
        st = weft_comm_create(&m, listener, timeout_s, &g->comm);
    weft_comm_key_wipe(&m.key);
    WEFT_TRY(st);
    weft_failpoint("view.connected");
    s->r.rank       = m.rank;
    s->say.mute     = !weft_session__writes(s);
    s->say.progress = s->o->progress && !s->say.mute;
    WEFT_TRY(weft_session__open_group(s));
    WEFT_TRY(weft_session__outcome(s, open_device(s, &m)));
    WEFT_TRY(weft_session__compare_jobs(s));
    WEFT_TRY(weft_session__gather_devices(s));
    weft_session__check_learned(s, m.epoch);
    return weft_session__catch_up(s);
}

/* ---- decide and compile ---- */

/* A job whose ranks may become more or fewer is decided for all of them, so that it is the same one
 * however many there are. */
static weft_status decide_for_all(weft_session *s)
{
    weft_generation *g     = s->now;
    const weft_job   given = s->job;
    int              n = g->n_rank, local = g->local;
    g->n_rank      = g->max_rank;
    g->local       = g->max_local;
    weft_status st = weft_session__decide(s);
    g->n_rank      = n;
    g->local       = local;
    WEFT_TRY(st);
    WEFT_TRY(weft_session__outcome(s, weft_session__check_least(s)));
    int world = g->plan ? weft_plan_world(g->plan) : 1;
    if (g->max_rank != n || world != n) {
        weft_session__lower_lanes(s, &given);
        WEFT_TRY(weft_session__resize_plan(s));
    }
    return weft_session__note_cut(s, &given);
}

/* As the recorded run had it. */
static weft_status take_replayed(weft_session *s)
{
    WEFT_TRY(weft_session__find_seq(&s->job));
    WEFT_TRY(weft_session__outcome(s, weft_session__read_model(s)));
    WEFT_TRY(weft_session__resize_plan(s));
    return weft_session__outcome(s, weft_session__check_replayed(s));
}

static weft_status decide(weft_session *s)
{
    if (s->now->continues) {
        weft_session__resolve_reduction(s);
        WEFT_TRY(weft_session__compare_kernels(s));
        return weft_session__take_plan(s);
    }
    weft_session__forget_program(s); /* that was prepared */
    if (!s->started) {
        WEFT_TRY(weft_session__place(s));
        WEFT_TRY(weft_session__eval_check(s));
    }
    weft_session__resolve_reduction(s);
    WEFT_TRY(weft_session__compare_kernels(s));
    WEFT_TRY(weft_session__check_replay(s));
    WEFT_TRY(weft_session__begins_replayed(s) ? take_replayed(s) : decide_for_all(s));
    if (s->started) return WEFT_OK;
    WEFT_TRY(weft_session__take_place(s));
    return weft_session__name_run(s);
}

weft_status weft_session__make_training(weft_session *s)
{
    weft_compile_spec spec = weft_job_spec(&s->job);
    if (s->training.graph && weft_training_is_for(&s->training, &spec)) return WEFT_OK;
    weft_session__forget_replans(s); /* they are of the other one */
    weft_training_fini(&s->training);
    return weft_compile_training(&spec, &s->training);
}

static weft_status make_program(weft_session *s)
{
    bool ranks = s->now->comm && s->now->plan;
    if (s->now->continues && s->kept.made.program) {
        s->now->made = s->kept.made;
        s->kept.made = (weft_compiled){0};
        return WEFT_OK;
    }
    WEFT_TRY(weft_gpu_check_offload(s->now->plan ? s->now->plan->strategy.offload
                                                 : s->job.strategy.offload,
                                    s->device));
    WEFT_TRY(weft_session__make_training(s));
    return weft_compile_program(&s->training, ranks ? s->now->plan : NULL,
                                ranks ? s->now->comm->rank : 0, &s->now->made);
}

weft_status weft_generation__compile(weft_session *s)
{
    bool again;
    WEFT_TRY(weft_session__outcome(s, make_program(s)));
    WEFT_TRY(weft_session__fit(s, &again));
    if (!again) return WEFT_OK;
    weft_compiled_fini(&s->now->made);
    return make_program(s); /* of another micro-batch */
}

static weft_status compile(weft_session *s)
{
    WEFT_TRY(weft_session__check_machines(s));
    if (s->now->plan) WEFT_TRY(weft_session__compare_plans(s));
    WEFT_TRY(weft_generation__compile(s));
    WEFT_TRY(weft_session__check_model(s));
    const weft_model *m = s->training.model;
    if (m->kind != WEFT_MODEL_LM && m->kind != WEFT_MODEL_ENCDEC)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "model: %s takes no tokens; weft train reads tokens only",
                         s->job.model);
    return weft_session__open_data(s, s->job.data, s->job.shuffle, &s->data);
}

/* ---- prepare ---- */

enum {
    MAX_CONFLICT = 4 /* that are told; layers are alike */
};

/* Marks of a plan file that could not all have their way; what words of a job make is as it
 * should be. */
static void say_conflicts(weft_session *s)
{
    const weft_sharding *x = s->now->made.sharding;
    if (!x || !s->job.plan_file) return;
    for (int i = 0; i < x->n_conflict && i < MAX_CONFLICT; i++)
        weft_say_info(&s->say, "%s", x->conflict[i].text);
    if (x->n_conflict > MAX_CONFLICT)
        weft_say_info(&s->say, "and %d values more are resharded for such reasons",
                      x->n_conflict - MAX_CONFLICT);
}

/* The session's own, and those of states. */
static int64_t own_tables(const weft_session *s)
{
    return weft_arena_bytes(s->arena) + weft_arena_bytes(s->now->arena) +
           weft_arena_bytes(s->now->plan ? s->now->plan->arena : NULL) +
           weft_model_source_bytes(s->model_source) + weft_state_bytes(s->state) +
           weft_holders_bytes(s->now->holders) + weft_holders_bytes(s->now->all_holders) +
           weft_gather_bytes(s->now->gather) + weft_state_bytes(s->now->eval.state) +
           weft_mover_bytes(s->now->eval.mover);
}

/* The tensors of states; *shared: those in memory that ranks share. */
static int64_t state_memory(const weft_session *s, int64_t *shared)
{
    const weft_memory *m     = weft_state_memory(s->state);
    const weft_state  *eval  = s->now->eval.state;
    int64_t            bytes = m->bytes + weft_state_host_memory(s->state)->bytes;
    *shared                  = m->space == WEFT_SPACE_SHARED ? m->bytes : 0;
    if (!eval || weft_program_state_is_shared(eval, s->state)) return bytes;
    m = weft_state_memory(eval);
    *shared += m->space == WEFT_SPACE_SHARED ? m->bytes : 0;
    return bytes + m->bytes;
}

/* What this rank will hold, and what the others will. */
static weft_status plan_memory(weft_session *s)
{
    weft_runner_memory m = weft_runner_mem(s->now->runner), e = {0};
    if (s->now->eval.runner) e = weft_runner_mem(s->now->eval.runner);
    int64_t shared, tables = weft_training_bytes(&s->training) + own_tables(s);
    s->r.mem_table_bytes = m.table_bytes + e.table_bytes + tables;
    s->r.mem_peak_bytes  = m.bytes + e.bytes + tables + state_memory(s, &shared);
    s->r.mem_peak_bytes += WEFT_SESSION__MAX_TIMED * (int64_t)sizeof *s->times.step_s;
    if (weft_session__writes(s)) /* checkpoints are written by blocks */
        s->r.mem_peak_bytes += WEFT_STORE_BLOCK;
    s->r.mem_shared_bytes = m.shared_bytes + e.shared_bytes + shared;
    if (s->now->comm) { /* once, whatever runs over it */
        s->r.mem_peak_bytes += s->now->comm->bytes;
        if (!strcmp(s->now->comm->transport, "shm"))
            s->r.mem_shared_bytes += s->now->comm->bytes;
    }
    int64_t *of =
        WEFT_ARENA_ARRAY(s->now->arena, int64_t, s->now->comm ? s->now->comm->world : 1);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(weft_session__gather(s, &s->r.mem_peak_bytes, sizeof *of, of));
    for (int k = 0; k < (s->now->comm ? s->now->comm->world : 1); k++)
        if (of[k] > s->r.mem_most_bytes) s->r.mem_most_bytes = of[k];
    return WEFT_OK;
}

/* As many threads as this host's ranks leave to this one. */
static weft_status open_pool(weft_session *s)
{
    int n;
    WEFT_TRY(weft_session__threads(s, &n));
    if (s->pool && weft_pool_threads(s->pool) == n) return WEFT_OK;
    weft_pool_destroy(s->pool);
    s->pool = NULL;
    return weft_pool_create(n, 0, &s->pool);
}

/* From where ranks have the state to where their programs want it.  Ranks whose state stays where
 * it is take part: others may lack what they have. */
static weft_status move_state(weft_session *s, weft_state *to)
{
    weft_generation *g    = s->now;
    weft_holders    *from = NULL, *own = NULL;
    weft_mover      *m  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(weft_holders_exchange(s->state, g->comm, g->group, &from));
    if (!g->holders) WEFT_GO(weft_holders_exchange(to, g->comm, g->group, &own));
    WEFT_GO(weft_mover_open(&(weft_mover_side){s->state, from},
                            &(weft_mover_side){to, g->holders ? g->holders : own},
                            g->comm, WEFT_SESSION__TAG_STATE, &m));
    WEFT_GO(weft_mover_run(m));
    if (g->holders) WEFT_GO(weft_session__fill_standby(s, to));
    weft_state_set_step(to, weft_state_step(s->state));
out:
    weft_mover_close(m);
    weft_holders_destroy(own);
    weft_holders_destroy(from);
    return st;
}

/* Whose memory a state is in, where host code reaches it.  NULL: the process's own, which stays
 * through memberships as a GPU's does, while collectives go by way of comm's buffers. */
static weft_comm *state_comm(const weft_session *s)
{
    return weft_session__has_snapshots(s) ? NULL : s->now->comm;
}

/* The program's state: the session's, where it is as the program wants it, else new memory; into
 * that, what the session has of an earlier generation. */
static weft_status open_state(weft_session *s)
{
    weft_generation *g    = s->now;
    weft_state      *made = NULL;
    bool             fits = g->keeps_state;
    weft_status      st   = WEFT_OK;
    weft_failpoint("view.adopt");
    WEFT_TRY(weft_session__adopt_kept(s));
    if (weft_session__state_stays(s))
        WEFT_TRY(weft_session__open_kept(s, &made));
    else if (!fits)
        WEFT_TRY(weft_program_state_create(&g->made, state_comm(s), s->device, &made));
    weft_state *to = fits ? s->state : made;
    if (g->comm) WEFT_GO(weft_holders_exchange(to, g->comm, g->group, &g->holders));
    WEFT_GO(weft_session__find_all_holders(s, to));
    if (g->continues && !g->unfinished)
        WEFT_GO(weft_session__find_state(s, to));
    else if (!g->continues && s->state && (g->comm || !fits))
        WEFT_GO(move_state(s, to));
    if (!fits) {
        weft_state_destroy(s->state);
        s->state = made;
        made     = NULL;
    }
    WEFT_GO(weft_session__create_kept(s));
out:
    weft_state_destroy(made);
    return st;
}

/* The way of the state to files. */
static weft_status open_gather(weft_session *s)
{
    weft_generation *g = s->now;
    WEFT_TRY(weft_gather_open(s->state, g->holders, g->comm, WEFT_SESSION__TAG_GATHER,
                              &g->gather));
    g->weights = (weft_weights){.model  = g->made.model,
                                .graph  = g->made.graph,
                                .state  = s->state,
                                .gather = g->gather,
                                .pool   = s->pool};
    return WEFT_OK;
}

static weft_status open_runner(weft_session *s)
{
    weft_generation    *g      = s->now;
    bool                copies = g->plan && weft_plan_copies(g->plan) > 1;
    weft_runner_options o      = {
             .made       = &g->made,
             .pool       = s->pool,
             .device     = s->device,
             .seed       = (uint64_t)s->job.seed,
             .data       = s->data,
             .comm       = g->comm,
             .gpu_comm   = g->gpu_comm,
             .state      = s->state,
             .commit     = weft_session__commit,
             .commit_arg = s,
             .given      = weft_session__work_meanwhile,
             .journal    = g->kept && g->need.journals ? weft_kept_journal(g->kept) : NULL,
             .resumes    = g->resumes,
             /* other ranks hold what a lost one had: a step that it was lost in is worth ending */
             .places_shares = copies && weft_session__has_snapshots(s),
             .slab_at       = g->kept ? weft_kept_slabs(g->kept, g->made.program) : NULL,
             .trace         = s->o->trace ? weft_runner_instructions(g->made.program) : 0,
             .gaps          = weft_session__measures_gaps()};
    return weft_runner_create(&o, &g->runner);
}

/* What it took apart from moving the state. */
static void report_pages(weft_session *s)
{
    const weft_membership_source *source = s->o->member;
    weft_comm *end = s->now->comm ? weft_comm_shared_end(s->now->comm) : NULL;
    if (s->now->continues && end && source && source->made)
        source->made(source->arg, weft_comm_shm_count_made(end));
    if (!end) return;
    s->page_bytes += weft_comm_shm_count_made(end);
    s->page_s += weft_comm_shm_made_s(end);
}

static weft_status take_memory(weft_session *s)
{
    WEFT_TRY(open_pool(s));
    WEFT_TRY(weft_session__open_gpu_comm(s));
    WEFT_TRY(open_state(s));
    WEFT_TRY(open_gather(s));
    WEFT_TRY(open_runner(s));
    report_pages(s);
    weft_session__describe_kept(s);
    if (s->now->unfinished) WEFT_TRY(weft_session__end_updates(s));
    return weft_session__eval_open(s);
}

static weft_status prepare(weft_session *s)
{
    weft_generation *g = s->now;
    WEFT_TRY(weft_session__compare_programs(s, &g->made, s->data));
    if (s->state)
        WEFT_TRY(
            weft_program_state_fits(&g->made, state_comm(s), s->state, &g->keeps_state));
    if (!g->continues)
        WEFT_TRY(weft_session__check_memory(s)); /* else much of it is there */
    weft_status st = take_memory(s);
    if (st != WEFT_OK) return weft_session__explain_memory(s, st);
    if (!g->continues) say_conflicts(s);
    if (!weft_session__has_agent(s)) {           /* else the next generation needs it */
        weft_sharding_destroy(g->made.sharding); /* states have it now */
        g->made.sharding = NULL;
    }
    return plan_memory(s);
}

/* ---- fill ---- */

static weft_status start(weft_session *s)
{
    WEFT_TRY(weft_session__fill_state(s));
    weft_session__say_back(s);
    s->times.step_s = WEFT_ARENA_ARRAY(s->arena, double, WEFT_SESSION__MAX_TIMED);
    WEFT_TRY(weft_arena_status(s->arena));
    if (s->say.progress)
        WEFT_TRY(weft_peak_gflops(s->pool, weft_pool_threads(s->pool), 1024, 3,
                                  &s->times.peak_gflops));
    WEFT_TRY(weft_session__lead(s, weft_session__open_outputs));
    /* from here on the job keeps what was decided, whatever ranks it has */
    s->job.given_micro_batch = s->job.given_lanes = true;
    s->started                                    = true;
    return WEFT_OK;
}

void weft_generation_trim(weft_generation *g)
{
    g->trims = false;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

weft_status weft_generation_open(weft_session *s, weft_generation *g)
{
    bool first = !s->started;
    *g         = (weft_generation){0};
    s->now     = g;
    WEFT_TRY(weft_arena_create(&g->arena));
    WEFT_TRY(connect_ranks(s));
    double begun_s = weft_clock_s();
    WEFT_TRY(decide(s));
    weft_failpoint("view.planned");
    WEFT_TRY(compile(s));
    weft_failpoint("view.compiled");
    WEFT_TRY(prepare(s));
    weft_failpoint("view.prepared");
    if (g->saves_only) return weft_session__prepare_save(s);
    if (g->continues)
        WEFT_TRY(weft_session__continue(s));
    else if (first)
        WEFT_TRY(start(s));
    WEFT_TRY(weft_session__open_snapshots(s));
    if (g->continues)
        g->trims = true; /* after its first step: others wait for this rank now */
    else
        weft_generation_trim(g);
    if (first && !g->continues) /* what was named wrongly has failed by now */
        weft_session__log_start(s);
    WEFT_TRY(weft_session__open_status(s));
    weft_session__say_copies(s);
    WEFT_TRY(weft_session__probe_hosts(s));
    weft_session__keep_card(s);
    g->opened_s = weft_clock_s() - begun_s;
    weft_failpoint("view.ready");
    weft_session__close_teaching(s); /* who learned is here */
    weft_session__record_plan(s);
    weft_session__offer_brief(s);
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_READY);
    s->n_settled   = g->n_rank;
    s->left_why[0] = 0; /* that was of an earlier one */
    weft_failpoint("view.told");
    return WEFT_OK;
}

bool weft_generation_is_state_shared(const weft_session *s)
{
    return s->state && weft_state_memory(s->state)->space == WEFT_SPACE_SHARED;
}

weft_status weft_generation_keep_state(weft_session *s)
{
    weft_state *own;
    if (!weft_generation_is_state_shared(s)) return WEFT_OK;
    WEFT_TRY(weft_state_clone(s->state, &own));
    weft_state_destroy(s->state);
    s->state = own;
    return WEFT_OK;
}

void weft_generation_close(weft_session *s, weft_generation *g)
{
    weft_session__close_memory_ahead(g);
    weft_session__drop_save(s);
    weft_session__close_snapshots(s);
    weft_state_destroy(g->copy);
    weft_session__free_spent(s);
    weft_session__eval_close(g);
    weft_runner_destroy(g->runner);
    weft_kept_close(g->comm, g->kept);
    weft_kept_close(g->comm, g->left);
    weft_gather_close(g->gather);
    weft_holders_destroy(g->holders);
    weft_holders_destroy(g->all_holders);
    weft_kept_states_close(&g->from);
    if (weft_generation_is_state_shared(s)) { /* it goes with the communicator */
        weft_state_destroy(s->state);
        s->state = NULL;
    }
    weft_session__keep_program(s);
    weft_compiled_fini(&g->made);
    weft_plan_destroy(g->plan);
    weft_session__close_gpu_comm(g);
    weft_comm_destroy(g->comm); /* and its groups and channels */
    weft_arena_destroy(g->arena);
    s->now = NULL;
}
