/* A rank that is to join learns the state while the others train (lesson.h): into its slot, where
 * the program that it has compiled wants it.
 *
 *     the rank's own thread     makes the updates by the tail of its program, alone
 *     a thread for each teacher receives pieces and inputs
 *
 * (1) The slot says that it holds the state after a step only when all pieces are there and the
 *     updates up to that step are made; from the first instruction of an update to its last it says
 *     that it holds nothing.  So the slot is as that of any rank: what becomes of this process does
 *     not matter, and the membership finds the state there, or moves it.
 * (2) It is of use in one membership: that which follows the one in which it was learned.
 * (3) Whatever fails, the slot holds nothing and the rank joins as it is. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/lesson.h"
#include "session/plans_priv.h"

#define TICK_S   0.05
#define INVITE_S 1.0 /* without a byte, when the others wait for this rank */

typedef struct learning learning;

/* A teacher. */
typedef struct teacher {
    learning          *l;
    int                rank; /* in the lesson */
    weft_comm_channel *in, *out;
    pthread_t          thread;
    bool               has_thread;
    int64_t            input_lo, input_hi, state_lo, state_hi;
    int64_t            at; /* of the next piece */
    char              *chunk;
    /* under lock */
    int64_t step;    /* inputs up to that one are there */
    bool    skipped; /* that step has no update */
    bool    whole;   /* its pieces are all there */
    int64_t last;    /* ranks leave after that step; -1: not yet */
} teacher;

struct learning {
    weft_session                   *s;
    const weft_membership_expected *x;
    weft_say                        say;
    weft_arena                     *arena;
    weft_comm                      *own, *comm; /* the slot's memory; the lesson's */
    weft_comm_shm_slot             *slot;
    weft_pool                      *pool;
    weft_state                     *state;
    weft_memory                     slab[WEFT_KEPT_MAX_SLAB];
    weft_exec                      *exec;
    weft_tail                       tail;
    weft_lesson_state               state_row;
    weft_spans                      input_row;
    int                             n_teacher;
    teacher                         teacher[WEFT_LESSON_TEACHERS];
    _Atomic uint32_t                over;
    double                          begun_s;
    pthread_mutex_t                 lock;
    pthread_cond_t                  moved;
    /* under lock */
    int64_t begin;            /* the state of the first pieces is after this step */
    int64_t applied;          /* updates up to that one are made */
    int64_t pieces, received; /* bytes, of the state and in all */
    bool    failed;
    char    why[300];
};

/* ---- what is said ---- */

static void tell_percent(const learning *l, int percent)
{
    const weft_membership_source *m = l->s->o->member;
    if (m->tell) m->tell(m->arg, WEFT_MEMBERSHIP_LEARNS, percent, NULL);
}

static void fail_learning(learning *l, const char *why)
{
    pthread_mutex_lock(&l->lock);
    if (!l->failed) snprintf(l->why, sizeof l->why, "%s", why);
    l->failed = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

/* ---- what the slot says ---- */

static void mark_slot(const learning *l, int64_t step)
{
    atomic_store(&l->slot->state.step, step);
    if (step < 0) return;
    atomic_store(&l->slot->arrived, step);
    atomic_store(&l->slot->passed, step);
}

static void forget_slot(weft_comm_shm_slot *slot)
{
    atomic_store(&slot->state.step, -1);
    atomic_store(&slot->state.computed_step, -1);
    atomic_store(&slot->arrived, -1);
    atomic_store(&slot->passed, -1);
}

/* ---- receiving ---- */

/* row NULL: nowhere. */
static weft_status receive_into(teacher *t, const weft_spans *row, int64_t at, int64_t n)
{
    learning *l = t->l;
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < WEFT_LESSON_CHUNK ? n - done : WEFT_LESSON_CHUNK;
        WEFT_TRY(weft_comm_recv(l->comm, t->in, t->chunk, part));
        if (row) weft_spans_write(row, at + done, part, t->chunk);
        done += part;
        pthread_mutex_lock(&l->lock);
        l->received += part;
        pthread_mutex_unlock(&l->lock);
    }
    return WEFT_OK;
}

static weft_status refuse_head(const teacher *t, const weft_lesson_head *h)
{
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "teacher %d sent what is out of range (%lld, step %lld)", t->rank,
                     (long long)h->kind, (long long)h->step);
}

/* Until updates up to that step are made. */
static weft_status await_applied(learning *l, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    while (l->applied < step && !l->failed) pthread_cond_wait(&l->moved, &l->lock);
    bool failed = l->failed;
    pthread_mutex_unlock(&l->lock);
    return failed ? WEFT_FAIL(WEFT_ERR_PEER, "the lesson is over") : WEFT_OK;
}

static weft_status take_piece(teacher *t, const weft_lesson_head *h)
{
    learning *l = t->l;
    int64_t   n = weft_lesson_piece(&l->state_row, t->at);
    if (n > t->state_hi - t->at) n = t->state_hi - t->at;
    if (h->at != t->at || h->bytes <= 0 || h->bytes != n || h->step != t->step ||
        h->step < l->begin)
        return refuse_head(t, h);
    weft_failpoint("learn.piece");
    WEFT_TRY(await_applied(l, h->step));
    WEFT_TRY(receive_into(t, &l->state_row.row, h->at, h->bytes));
    t->at += h->bytes;
    pthread_mutex_lock(&l->lock);
    l->pieces += h->bytes;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}

static void note_step(teacher *t, int64_t step, bool skipped)
{
    pthread_mutex_lock(&t->l->lock);
    t->step    = step;
    t->skipped = skipped;
    pthread_cond_broadcast(&t->l->moved);
    pthread_mutex_unlock(&t->l->lock);
}

/* Those of the step before are used until its update is made. */
static weft_status take_inputs(teacher *t, const weft_lesson_head *h)
{
    bool    skipped = h->kind == WEFT_LESSON_SKIP;
    int64_t n       = skipped ? 0 : t->input_hi - t->input_lo;
    bool    drops   = h->step <= t->l->begin; /* other teachers began later */
    if (h->step != t->step + 1 || h->bytes != n) return refuse_head(t, h);
    weft_failpoint("learn.inputs");
    if (!drops) WEFT_TRY(await_applied(t->l, t->step));
    WEFT_TRY(receive_into(t, drops ? NULL : &t->l->input_row, t->input_lo, n));
    note_step(t, h->step, skipped);
    return WEFT_OK;
}

static weft_status take_end(teacher *t, const weft_lesson_head *h)
{
    learning *l     = t->l;
    bool      whole = h->kind == WEFT_LESSON_WHOLE;
    if (whole ? t->at != t->state_hi : h->step != t->step && h->step >= l->begin)
        return refuse_head(t, h);
    pthread_mutex_lock(&l->lock);
    if (whole) t->whole = true;
    if (!whole) t->last = h->step;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}

static weft_status receive_all(teacher *t)
{
    while (t->last < 0) {
        weft_lesson_head h;
        WEFT_TRY(weft_comm_recv(t->l->comm, t->in, &h, sizeof h));
        switch ((weft_lesson_kind)h.kind) {
        case WEFT_LESSON_PIECE: WEFT_TRY(take_piece(t, &h)); break;
        case WEFT_LESSON_INPUTS:
        case WEFT_LESSON_SKIP: WEFT_TRY(take_inputs(t, &h)); break;
        case WEFT_LESSON_WHOLE:
        case WEFT_LESSON_END: WEFT_TRY(take_end(t, &h)); break;
        case WEFT_LESSON_ALIVE: break;
        default: return refuse_head(t, &h);
        }
    }
    return WEFT_OK;
}

static void *run_teacher(void *arg)
{
    teacher *t = arg;
    if (receive_all(t) != WEFT_OK) fail_learning(t->l, weft_error_text());
    return NULL;
}

/* ---- the program ---- */

static weft_status make_slabs(learning *l)
{
    const weft_compiled *made  = &l->s->kept.made;
    const weft_program  *p     = made->program;
    int                  state = weft_program_state_slab(p);
    if (p->n_slab > WEFT_KEPT_MAX_SLAB || state < 0 ||
        weft_program_host_state_slab(p) >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "the state is not in one slab of the host");
    weft_program_state_reserve(l->own, -1, false);
    WEFT_TRY(weft_program_state_open_kept(made, l->own, weft_device_cpu(), false, false,
                                          true, &l->state));
    l->slab[state] = *weft_state_memory(l->state);
    for (int i = 0; i < p->n_slab; i++)
        if (i != state)
            WEFT_TRY(
                weft_program_slab_share(p, i, l->own, weft_device_cpu(), &l->slab[i]));
    return weft_exec_alloc_slabs(p, weft_device_cpu(), l->slab);
}

/* The memory of this rank's slot, and what makes updates in it. */
static weft_status make_program(learning *l)
{
    weft_session        *s    = l->s;
    const weft_compiled *made = &s->kept.made;
    weft_exec_options    o    = {.device      = {weft_device_cpu()},
                                 .slab        = l->slab,
                                 .seed        = (uint64_t)s->job.seed,
                                 .batch       = s->job.batch,
                                 .micro_batch = made->model->batch,
                                 .alone       = true};
    WEFT_TRY(weft_program_find_tail(made->program, l->arena, &l->tail));
    WEFT_TRY(weft_comm_shm_join_alone(l->x->kept_fd, l->x->slot, &l->own));
    l->slot = weft_program_state_slot(l->own);
    if (!l->slot) return WEFT_FAIL(WEFT_ERR_ARG, "there is no slot to learn into");
    atomic_store(&l->slot->clean_to, 0); /* it is written to from here on */
    WEFT_TRY(make_slabs(l));
    WEFT_TRY(weft_pool_create(weft_runner_cores(), 0, &l->pool));
    o.pool = l->pool;
    WEFT_TRY(weft_exec_create(made->program, &o, &l->exec));
    WEFT_TRY(weft_lesson_spans_of_tail(l->exec, &l->tail, l->arena, &l->input_row));
    return weft_lesson_state_make(l->state, made->program, &l->tail, l->arena,
                                  &l->state_row);
}

static void close_program(learning *l)
{
    const weft_program *p = l->s->kept.made.program;
    weft_exec_destroy(l->exec);
    weft_pool_destroy(l->pool);
    for (int i = 0; i < p->n_slab && i < WEFT_KEPT_MAX_SLAB; i++)
        if (i != weft_program_state_slab(p) && l->slab[i].address)
            weft_program_slab_free(l->own, &l->slab[i]);
    weft_state_destroy(l->state); /* the slot still says where it is */
    weft_comm_destroy(l->own);
}

/* ---- the beginning ---- */

static weft_status compare_hello(const learning *l, const weft_lesson_hello *h)
{
    if (h->version != WEFT_LESSON_VERSION)
        return WEFT_FAIL(WEFT_ERR_ARG, "a teacher of another version");
    if (h->refused)
        return WEFT_FAIL(WEFT_ERR_ARG, "%.*s", (int)sizeof h->why - 1, h->why);
    if (h->state != l->state_row.hash || h->state_bytes != l->state_row.row.bytes)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "in the plan to come ranks hold other parts of the "
                         "state than now");
    if (h->tail != l->tail.hash || h->input_bytes != l->input_row.bytes)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "in the plan to come updates are made from other gradients");
    return WEFT_OK;
}

static weft_status open_channels(learning *l)
{
    for (int k = 0; k < l->n_teacher; k++) {
        teacher *t = &l->teacher[k];
        *t = (teacher){.l = l, .rank = l->x->world - l->x->lesson.first + k, .last = -1};
        t->chunk = malloc(WEFT_LESSON_CHUNK);
        if (!t->chunk) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        WEFT_TRY(weft_comm_open_channel(l->comm, t->rank, WEFT_COMM_RECV, WEFT_LESSON_TAG,
                                        WEFT_LESSON_CHUNK, WEFT_LESSON_CREDITS, &t->in));
        WEFT_TRY(weft_comm_open_channel(l->comm, t->rank, WEFT_COMM_SEND,
                                        WEFT_LESSON_TAG + 1, sizeof(weft_lesson_pick), 1,
                                        &t->out));
    }
    return WEFT_OK;
}

/* made: the outcome of make_program. */
static weft_status agree(learning *l, weft_status made)
{
    weft_lesson_hello hello[WEFT_LESSON_TEACHERS];
    weft_lesson_pick  pick = {.n = l->n_teacher};
    char              why[sizeof pick.why];
    snprintf(why, sizeof why, "%s", made == WEFT_OK ? "" : weft_error_text());
    WEFT_TRY(open_channels(l));
    for (int k = 0; k < l->n_teacher; k++) {
        WEFT_TRY(weft_comm_recv(l->comm, l->teacher[k].in, &hello[k], sizeof hello[k]));
        if (*why || compare_hello(l, &hello[k]) == WEFT_OK) continue;
        snprintf(why, sizeof why, "%s", weft_error_text());
    }
    pick.refused = *why != 0;
    snprintf(pick.why, sizeof pick.why, "%s", why);
    for (int k = 0; k < l->n_teacher; k++) {
        teacher *t = &l->teacher[k];
        pick.which = k;
        weft_lesson_share(l->input_row.bytes, l->n_teacher, k, &t->input_lo,
                          &t->input_hi);
        weft_lesson_state_share(&l->state_row, l->n_teacher, k, &t->state_lo,
                                &t->state_hi);
        t->at = t->state_lo;
        WEFT_TRY(weft_comm_send(l->comm, t->out, &pick, sizeof pick));
    }
    return pick.refused ? WEFT_FAIL(WEFT_ERR_ARG, "%s", why) : WEFT_OK;
}

/* The step from which on all teachers follow. */
static weft_status agree_on_step(learning *l)
{
    weft_lesson_pick go = {.n = l->n_teacher};
    for (int k = 0; k < l->n_teacher; k++) {
        teacher         *t = &l->teacher[k];
        weft_lesson_head h;
        WEFT_TRY(weft_comm_recv(l->comm, t->in, &h, sizeof h));
        if (h.kind != WEFT_LESSON_BEGIN || h.step < 0) return refuse_head(t, &h);
        t->step = h.step;
        if (t->step > go.begin) go.begin = t->step;
    }
    l->begin = l->applied = go.begin;
    for (int k = 0; k < l->n_teacher; k++)
        WEFT_TRY(weft_comm_send(l->comm, l->teacher[k].out, &go, sizeof go));
    return WEFT_OK;
}

static weft_status start_teachers(learning *l)
{
    for (int k = 0; k < l->n_teacher; k++) {
        teacher *t    = &l->teacher[k];
        t->has_thread = !pthread_create(&t->thread, NULL, run_teacher, t);
        if (!t->has_thread)
            return WEFT_FAIL(WEFT_ERR_MEM, "no thread to receive the state with");
    }
    return WEFT_OK;
}

/* ---- the lesson ---- */

typedef struct progress {
    bool    ready, skipped; /* the inputs of the next step are there */
    bool    whole, ended;
    int64_t last, received;
    int     percent;
} progress;

/* Under lock. */
static progress look(const learning *l)
{
    progress p = {.ready = true, .whole = true, .ended = true, .received = l->received};
    for (int k = 0; k < l->n_teacher; k++) {
        const teacher *t = &l->teacher[k];
        p.ready          = p.ready && t->step > l->applied;
        p.skipped        = p.skipped || (t->step > l->applied && t->skipped);
        p.whole          = p.whole && (t->whole || t->state_lo == t->state_hi);
        p.ended          = p.ended && t->last >= 0;
        if (t->last > p.last) p.last = t->last;
    }
    int64_t all = l->state_row.row.bytes;
    p.percent   = all ? (int)(99.0 * (double)l->pieces / (double)all) : 99;
    return p;
}

static weft_status make_update(learning *l, bool skipped)
{
    if (!skipped) {
        mark_slot(l, -1);
        weft_failpoint("learn.update");
        WEFT_TRY(weft_exec_run_tail(l->exec, &l->tail, l->applied));
    }
    pthread_mutex_lock(&l->lock);
    l->applied++;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}

static void say_learned(learning *l)
{
    char state[32], inputs[32];
    weft_say_info(&l->say,
                  "rank %d has learned the state after step %lld while the others "
                  "trained: %s in %.3g s, and %s of gradients",
                  l->x->rank, (long long)l->applied,
                  weft_session__print_size((double)l->pieces, state, sizeof state),
                  weft_clock_s() - l->begun_s,
                  weft_session__print_size((double)(l->received - l->pieces), inputs,
                                           sizeof inputs));
}

/* The others wait for this rank, and nothing has come for a while; or the job ends. */
static bool is_late(const learning *l, const progress *p, int64_t *received,
                    double *since_s)
{
    const weft_membership_source *m       = l->s->o->member;
    double                        now     = weft_clock_s();
    int                           invited = m->invited(m->arg);
    if (p->received != *received || !invited) *since_s = now;
    *received = p->received;
    return invited < 0 || now - *since_s > INVITE_S;
}

/* Until ranks leave for the membership that this one will be in. */
static weft_status follow(learning *l)
{
    int64_t received = 0;
    double  since_s  = weft_clock_s();
    int     told     = 1;
    bool    whole    = false;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        progress p = look(l);
        if (!l->failed && !p.ready && !p.ended && (!p.whole || whole)) {
            (void)weft_lesson_wait(&l->moved, &l->lock, weft_clock_s() + TICK_S);
            p = look(l);
        }
        bool failed = l->failed;
        pthread_mutex_unlock(&l->lock);
        if (p.percent > told) tell_percent(l, told = p.percent);
        if (failed) return WEFT_FAIL(WEFT_ERR_PEER, "%s", l->why);
        if (p.ready) WEFT_TRY(make_update(l, p.skipped));
        if (p.whole && !whole) say_learned(l);
        whole = p.whole;
        /* what came since p was looked at is of later steps */
        if (whole) mark_slot(l, l->applied);
        if (whole) weft_session__tell_prepared(l->s);
        if (!p.ready && p.ended)
            return whole && p.last == l->applied
                       ? WEFT_OK
                       : WEFT_FAIL(WEFT_ERR_PEER, "ranks left before all of it was here");
        if (is_late(l, &p, &received, &since_s))
            return WEFT_FAIL(WEFT_ERR_PEER, "the last of it has not come in time");
    }
}

static weft_status learn(learning *l)
{
    const weft_membership_source *m = l->s->o->member;
    const weft_membership_lesson *x = &l->x->lesson;
    weft_failpoint("learn.meet");
    tell_percent(l, 1); /* it begins, which is not late */
    WEFT_TRY(m->meet(m->arg, x, l->x->rank - x->first,
                     l->x->world - x->first + l->n_teacher, &l->over, &l->comm));
    WEFT_TRY(agree(l, make_program(l)));
    WEFT_TRY(agree_on_step(l));
    weft_failpoint("learn.begin");
    WEFT_TRY(start_teachers(l));
    return follow(l);
}

static void end_lesson(learning *l, bool in_order)
{
    if (!in_order) {
        fail_learning(l, "the lesson is over");
        if (l->comm) weft_comm_abort(l->comm, l->why);
    }
    for (int k = 0; k < l->n_teacher; k++) {
        if (l->teacher[k].has_thread) pthread_join(l->teacher[k].thread, NULL);
        free(l->teacher[k].chunk);
    }
    if (in_order)
        weft_comm_destroy(l->comm);
    else
        weft_comm_drop(l->comm);
}

void weft_session__learn(weft_session *s, const weft_membership_expected *x)
{
    const weft_membership_source *m = s->o->member;
    int      n = x->lesson.first ? weft_lesson_n_teacher(x->lesson.first) : 0;
    learning l = {
        .s = s, .x = x, .say = s->say, .n_teacher = n, .begun_s = weft_clock_s()};
    bool may = weft_lesson_is_held(s->asked, x->world, x->lesson.first) && m->meet &&
               m->invited && s->kept.made.program;
    if (!may || weft_arena_create(&l.arena) != WEFT_OK) return;
    l.say.mute = false; /* any rank's line */
    pthread_mutex_init(&l.lock, NULL);
    weft_lesson_cond_init(&l.moved);
    weft_status st = learn(&l);
    if (st != WEFT_OK)
        weft_say_info(&l.say,
                      "rank %d does not learn the state while the others train: %s; it "
                      "is moved in the pause",
                      x->rank, weft_error_text());
    if (st == WEFT_OK) s->learned.epoch = x->lesson.epoch;
    if (st == WEFT_OK) s->learned.bytes = l.received;
    end_lesson(&l, st == WEFT_OK);
    if (st != WEFT_OK && l.slot) forget_slot(l.slot);
    weft_failpoint("learn.ended");
    close_program(&l);
    pthread_mutex_destroy(&l.lock);
    pthread_cond_destroy(&l.moved);
    weft_arena_destroy(l.arena);
}

void weft_session__check_learned(weft_session *s, uint32_t epoch)
{
    weft_comm_shm_slot *slot = weft_session__slot(s);
    bool                is   = s->learned.epoch == epoch;
    if (s->learned.epoch && !is && slot) forget_slot(slot);
    if (!is) s->learned.bytes = 0;
    s->learned.epoch = 0;
}
