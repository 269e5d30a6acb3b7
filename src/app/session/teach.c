/* A rank that trains, and teaches the state to ranks that are to join (lesson.h).
 *
 *     the rank's own thread   at a commit point it copies its share of the inputs; between updates
 *                             the state may be read
 *     a thread for meeting    connects teachers and learners, then begins
 *     a thread for each learner   sends pieces of the state while it may be read, and inputs
 *
 * (1) Training waits for a learner for a short time only (weft_lesson_patience_s): the inputs of
 *     two steps are kept for it, and one that has more to come is not taught any more.
 * (2) Nothing of the generation is used once it ends but those copies: what is left of the last
 *     step is sent while ranks go over to the next view.
 * (3) Whatever fails, the lesson is over and the join moves the state in its pause. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "session/lesson.h"
#include "session/session_priv.h"

enum {
    N_BUFFER  = 2,       /* steps whose inputs are kept */
    N_TURN    = 64,      /* of those and steps without an update */
    COPY_TASK = 1 << 20, /* bytes */
    PART_FREE = 4        /* of the free memory, that buffers may take */
};

#define ALIVE_S 1.0

/* A step whose inputs are to be sent; buffer -1: it has no update. */
typedef struct turn {
    int64_t step;
    int     buffer;
} turn;

typedef struct weft_session__teaching teaching;

/* One learner, as its teacher sees it. */
typedef struct pupil {
    teaching          *t;
    int                rank; /* in the lesson */
    pthread_t          thread;
    bool               has_thread;
    weft_comm_channel *out, *in;
    int64_t            begin;              /* of the first pieces; its thread's */
    int64_t            input_lo, input_hi; /* its share of the rows, of this teacher */
    int64_t            at, state_hi;       /* what is left of the pieces */
    char              *buffer[N_BUFFER], *chunk;
    /* under lock */
    int64_t sent;
    double  sent_s;
    bool    follows; /* it gets the inputs of steps after `begin` */
    bool    busy[N_BUFFER];
    int     n_turn;
    turn    turn[N_TURN];
    bool    over;
} pupil;

struct weft_session__teaching {
    const weft_membership_source *source;
    weft_membership_lesson        lesson;
    int                           me, n_teacher, n_learner; /* this teacher; how many */
    weft_arena                   *arena;
    weft_lesson_state             state;
    weft_spans                    input;
    weft_lesson_hello             hello;
    double                        step_s; /* that the last step took; under lock */
    weft_pool                    *pool;
    pthread_t                     thread;
    bool                          has_thread;
    _Atomic uint32_t over; /* the epoch of the lesson, once this rank ends it */
    weft_comm       *comm;
    double           begun_s, waited_s;
    pthread_mutex_t  lock;
    pthread_cond_t   moved;
    /* under lock */
    int64_t step; /* the newest that is committed */
    bool    open; /* the state is of that step, and may be read */
    int64_t last; /* ranks leave after this step; -1: not yet */
    int     n_pupil;
    pupil   pupil[WEFT_LESSON_LEARNERS];
    bool    failed, told;
    char    why[300]; /* failed */
};

/* ---- the end ---- */

static void fail_lesson(teaching *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void fail_lesson(teaching *t, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    pthread_mutex_lock(&t->lock);
    bool first = !t->failed;
    if (first) vsnprintf(t->why, sizeof t->why, fmt, a);
    t->failed       = true;
    weft_comm *comm = t->comm;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    va_end(a);
    if (first && comm) weft_comm_abort(comm, t->why);
}

static bool is_over(const teaching *t)
{
    return t->failed || atomic_load(&t->over);
}

/* ---- sending ---- */

static weft_status send_bytes(pupil *p, const void *bytes, int64_t n)
{
    double begin = weft_clock_s();
    WEFT_TRY(weft_comm_send(p->t->comm, p->out, bytes, n));
    pthread_mutex_lock(&p->t->lock);
    p->sent += n;
    p->sent_s += weft_clock_s() - begin;
    pthread_mutex_unlock(&p->t->lock);
    return WEFT_OK;
}

static weft_status send_head(pupil *p, weft_lesson_kind kind, int64_t step, int64_t at,
                             int64_t bytes)
{
    weft_lesson_head h = {(int64_t)kind, step, at, bytes};
    return weft_comm_send(p->t->comm, p->out, &h, sizeof h);
}

static weft_status send_turn(pupil *p, const turn *x)
{
    if (x->buffer < 0) return send_head(p, WEFT_LESSON_SKIP, x->step, 0, 0);
    int64_t n = p->input_hi - p->input_lo;
    weft_failpoint("teach.inputs");
    WEFT_TRY(send_head(p, WEFT_LESSON_INPUTS, x->step, 0, n));
    for (int64_t at = 0; at < n; at += WEFT_LESSON_CHUNK)
        WEFT_TRY(
            send_bytes(p, p->buffer[x->buffer] + at,
                       n - at < WEFT_LESSON_CHUNK ? n - at : (int64_t)WEFT_LESSON_CHUNK));
    return WEFT_OK;
}

static void end_turn(pupil *p)
{
    pthread_mutex_lock(&p->t->lock);
    if (p->turn[0].buffer >= 0) p->busy[p->turn[0].buffer] = false;
    p->n_turn--;
    memmove(p->turn, p->turn + 1, sizeof *p->turn * (size_t)p->n_turn);
    pthread_cond_broadcast(&p->t->moved);
    pthread_mutex_unlock(&p->t->lock);
}

/* What a pupil's thread does next. */
typedef enum job_kind {
    JOB_STOP,
    JOB_TURN,
    JOB_PIECE,
    JOB_END,
    JOB_ALIVE
} job_kind;

static bool may_send_piece(const pupil *p)
{
    return p->t->open && p->t->step >= p->begin && p->at < p->state_hi;
}

/* Under lock: a chunk of the state, as of t->step. */
static int64_t copy_piece(pupil *p)
{
    int64_t n = weft_lesson_piece(&p->t->state, p->at);
    if (n > p->state_hi - p->at) n = p->state_hi - p->at;
    weft_spans_read(&p->t->state.row, p->at, n, p->chunk);
    return n;
}

static job_kind find_job(pupil *p, int64_t *step, int64_t *bytes)
{
    teaching *t       = p->t;
    job_kind  kind    = JOB_ALIVE;
    double    until_s = weft_clock_s() + ALIVE_S;
    pthread_mutex_lock(&t->lock);
    for (bool late = false; !late && kind == JOB_ALIVE;) {
        if (is_over(t))
            kind = JOB_STOP;
        else if (p->n_turn)
            kind = JOB_TURN;
        else if (may_send_piece(p))
            kind = JOB_PIECE;
        else if (t->last >= 0)
            kind = JOB_END;
        else
            late = weft_lesson_wait(&t->moved, &t->lock, until_s);
    }
    *step = t->step;
    if (kind == JOB_END) *step = t->last;
    if (kind == JOB_PIECE) *bytes = copy_piece(p);
    pthread_mutex_unlock(&t->lock);
    return kind;
}

static weft_status send_piece(pupil *p, int64_t step, int64_t bytes)
{
    weft_failpoint("teach.piece");
    WEFT_TRY(send_head(p, WEFT_LESSON_PIECE, step, p->at, bytes));
    WEFT_TRY(send_bytes(p, p->chunk, bytes));
    p->at += bytes;
    return p->at < p->state_hi ? WEFT_OK : send_head(p, WEFT_LESSON_WHOLE, step, 0, 0);
}

static weft_status run_jobs(pupil *p)
{
    for (;;) {
        int64_t  step, bytes = 0;
        job_kind kind = find_job(p, &step, &bytes);
        switch (kind) {
        case JOB_STOP: return WEFT_OK;
        case JOB_TURN:
            WEFT_TRY(send_turn(p, &p->turn[0]));
            end_turn(p);
            break;
        case JOB_PIECE: WEFT_TRY(send_piece(p, step, bytes)); break;
        case JOB_END: return send_head(p, WEFT_LESSON_END, step, 0, 0);
        case JOB_ALIVE: WEFT_TRY(send_head(p, WEFT_LESSON_ALIVE, step, 0, 0)); break;
        }
    }
}

/* ---- beginning ---- */

static weft_status make_buffers(pupil *p)
{
    int64_t n    = p->input_hi - p->input_lo;
    int64_t most = weft_session__free_bytes() / PART_FREE;
    if (N_BUFFER * n > most)
        return WEFT_FAIL(WEFT_ERR_MEM, "not enough memory for the inputs of two steps");
    p->chunk = malloc(WEFT_LESSON_CHUNK);
    for (int k = 0; k < N_BUFFER; k++) {
        p->buffer[k] = malloc((size_t)n + 1);
        if (p->buffer[k]) memset(p->buffer[k], 0, (size_t)n); /* not at a commit point */
    }
    return p->chunk && p->buffer[0] && p->buffer[1]
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static weft_status take_pick(pupil *p, const weft_lesson_pick *x)
{
    teaching *t = p->t;
    if (x->refused)
        return WEFT_FAIL(WEFT_ERR_ARG, "%.*s", (int)sizeof x->why - 1, x->why);
    if (x->n < 1 || x->n > WEFT_LESSON_TEACHERS || x->which < 0 || x->which >= x->n)
        return WEFT_FAIL(WEFT_ERR_PEER, "what a learner asks for is out of range");
    weft_lesson_share(t->input.bytes, (int)x->n, (int)x->which, &p->input_lo,
                      &p->input_hi);
    weft_lesson_state_share(&t->state, (int)x->n, (int)x->which, &p->at, &p->state_hi);
    return make_buffers(p);
}

/* From now on it gets the inputs of each step; of the state from that step on which all teachers
 * have come to. */
static weft_status begin_to_follow(pupil *p, weft_lesson_pick *x)
{
    teaching *t = p->t;
    pthread_mutex_lock(&t->lock);
    p->follows   = true;
    int64_t from = t->step;
    pthread_mutex_unlock(&t->lock);
    WEFT_TRY(send_head(p, WEFT_LESSON_BEGIN, from, 0, 0));
    WEFT_TRY(weft_comm_recv(t->comm, p->in, x, sizeof *x));
    if (x->refused || x->begin < from)
        return WEFT_FAIL(WEFT_ERR_PEER, "a learner begins at step %lld, not at %lld",
                         (long long)x->begin, (long long)from);
    p->begin = x->begin;
    return WEFT_OK;
}

static weft_status teach_pupil(pupil *p)
{
    teaching        *t = p->t;
    weft_lesson_pick x;
    WEFT_TRY(weft_comm_open_channel(t->comm, p->rank, WEFT_COMM_SEND, WEFT_LESSON_TAG,
                                    WEFT_LESSON_CHUNK, WEFT_LESSON_CREDITS, &p->out));
    WEFT_TRY(weft_comm_open_channel(t->comm, p->rank, WEFT_COMM_RECV, WEFT_LESSON_TAG + 1,
                                    sizeof x, 1, &p->in));
    WEFT_TRY(weft_comm_send(t->comm, p->out, &t->hello, sizeof t->hello));
    WEFT_TRY(weft_comm_recv(t->comm, p->in, &x, sizeof x));
    if (t->hello.refused) return WEFT_FAIL(WEFT_ERR_ARG, "%s", t->hello.why);
    WEFT_TRY(take_pick(p, &x));
    WEFT_TRY(begin_to_follow(p, &x));
    weft_failpoint("teach.begin");
    return run_jobs(p);
}

static void *run_pupil(void *arg)
{
    pupil      *p  = arg;
    weft_status st = teach_pupil(p);
    if (st != WEFT_OK) fail_lesson(p->t, "%s", weft_error_text());
    pthread_mutex_lock(&p->t->lock);
    p->over    = true;
    p->follows = false;
    pthread_cond_broadcast(&p->t->moved);
    pthread_mutex_unlock(&p->t->lock);
    return NULL;
}

/* Learners are the first ranks of the lesson, then teachers. */
static void *run_lesson(void *arg)
{
    teaching  *t = arg;
    weft_comm *c = NULL;
    weft_failpoint("teach.meet");
    if (t->source->meet(t->source->arg, &t->lesson, t->n_learner + t->me,
                        t->n_learner + t->n_teacher, &t->over, &c) != WEFT_OK) {
        fail_lesson(t, "%s", weft_error_text());
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    t->comm = c;
    for (int k = 0; k < t->n_learner && !is_over(t); k++) {
        pupil *p      = &t->pupil[t->n_pupil++];
        *p            = (pupil){.t = t, .rank = k};
        p->has_thread = !pthread_create(&p->thread, NULL, run_pupil, p);
        p->over       = !p->has_thread;
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void refuse(teaching *t, const char *why)
{
    t->hello.refused = 1;
    snprintf(t->hello.why, sizeof t->hello.why, "%s", why);
}

/* What this rank can teach; where it can nothing, it says so to those who ask. */
static weft_status find_rows(weft_session *s, teaching *t)
{
    const weft_program *p = s->now->made.program;
    const weft_exec    *e = weft_runner_exec(s->now->runner);
    weft_tail           tail;
    WEFT_TRY(weft_program_find_tail(p, t->arena, &tail));
    WEFT_TRY(weft_lesson_state_make(s->state, p, &tail, t->arena, &t->state));
    WEFT_TRY(weft_lesson_spans_of_tail(e, &tail, t->arena, &t->input));
    t->hello.state       = t->state.hash;
    t->hello.tail        = tail.hash;
    t->hello.input_bytes = t->input.bytes;
    t->hello.state_bytes = t->state.row.bytes;
    return WEFT_OK;
}

static double last_step_s(const weft_session *s)
{
    int64_t n = s->times.n_step;
    return n ? s->times.step_s[(n - 1) % WEFT_SESSION__MAX_TIMED] : 0;
}

static void free_teaching(teaching *t)
{
    for (int k = 0; k < t->n_pupil; k++) {
        for (int b = 0; b < N_BUFFER; b++) free(t->pupil[k].buffer[b]);
        free(t->pupil[k].chunk);
    }
    if (t->arena) weft_arena_destroy(t->arena);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->moved);
    weft_comm_key_wipe(&t->lesson.key);
    free(t);
}

static teaching *create_teaching(weft_session *s, const weft_membership_expected *next,
                                 int me)
{
    teaching *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    weft_lesson_cond_init(&t->moved);
    t->source        = s->o->member;
    t->lesson        = next->lesson;
    t->me            = me;
    t->n_teacher     = weft_lesson_n_teacher(next->lesson.first);
    t->n_learner     = next->world - next->lesson.first;
    t->pool          = s->pool;
    t->begun_s       = weft_clock_s();
    t->step          = s->r.steps;
    t->open          = true;
    t->last          = -1;
    t->hello.version = WEFT_LESSON_VERSION;
    if (weft_arena_create(&t->arena) == WEFT_OK) return t;
    free_teaching(t);
    return NULL;
}

void weft_session__begin_teaching(weft_session *s, const weft_membership_expected *next)
{
    int first = next->lesson.first, n = weft_lesson_n_teacher(first), me = 0;
    weft_session__close_teaching(s);
    if (!weft_lesson_is_held(s->asked, next->world, first) || !s->o->member->meet) return;
    while (me < n && weft_lesson_teacher(first, me) != next->rank) me++;
    teaching *t = me < n ? create_teaching(s, next, me) : NULL;
    if (!t) return;
    if (find_rows(s, t) != WEFT_OK) refuse(t, weft_error_text());
    s->teaching   = t;
    t->has_thread = !pthread_create(&t->thread, NULL, run_lesson, t);
    if (!t->has_thread) weft_session__close_teaching(s);
}

/* ---- in the rank's own thread ---- */

typedef struct copy_row {
    const weft_spans *row;
    int64_t           lo, hi;
    char             *to;
} copy_row;

static void copy_task(void *arg, int64_t task, int thread)
{
    const copy_row *c  = arg;
    int64_t         at = c->lo + task * COPY_TASK;
    int64_t         n  = c->hi - at < COPY_TASK ? c->hi - at : COPY_TASK;
    (void)thread;
    weft_spans_read(c->row, at, n, c->to + (at - c->lo));
}

static int find_buffer(const pupil *p)
{
    for (int k = 0; k < N_BUFFER; k++)
        if (!p->busy[k]) return k;
    return -1;
}

/* Under lock; waits as long as there is patience left.  -1: there is none. */
static int await_buffer(teaching *t, pupil *p)
{
    double begin = weft_clock_s();
    double until = begin + weft_lesson_patience_s(begin - t->begun_s) - t->waited_s;
    while (find_buffer(p) < 0 && p->follows && !is_over(t))
        if (weft_lesson_wait(&t->moved, &t->lock, until)) break;
    t->waited_s += weft_clock_s() - begin;
    return find_buffer(p);
}

static void add_turn(pupil *p, int64_t step, int buffer)
{
    if (p->n_turn < N_TURN) p->turn[p->n_turn++] = (turn){step, buffer};
    if (buffer >= 0) p->busy[buffer] = true;
}

/* Copies are made without the lock: only this thread takes a buffer. */
static void give_inputs(teaching *t, pupil *p, int64_t step)
{
    char text[160] = "";
    int  buffer    = await_buffer(t, p);
    if (!p->follows || is_over(t)) return;
    copy_row c    = {&t->input, p->input_lo, p->input_hi,
                  buffer < 0 ? NULL : p->buffer[buffer]};
    bool     fast = weft_lesson_keeps_up(c.hi - c.lo, p->sent, p->sent_s, t->step_s, text,
                                         sizeof text);
    pthread_mutex_unlock(&t->lock);
    if (buffer < 0 || p->n_turn == N_TURN)
        fail_lesson(t, "the new rank lags, and training does not wait for it");
    else if (!fast)
        fail_lesson(t, "%s", text);
    else if (c.hi > c.lo)
        weft_pool_run(t->pool, (c.hi - c.lo + COPY_TASK - 1) / COPY_TASK, copy_task, &c);
    pthread_mutex_lock(&t->lock);
    if (buffer >= 0 && !is_over(t)) add_turn(p, step, buffer);
}

static void next_step(weft_session *s, int64_t step, bool skipped)
{
    teaching *t = s->teaching;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->open   = false;
    t->step   = step; /* one that begins to follow now has missed it */
    t->step_s = last_step_s(s);
    for (int k = 0; k < t->n_pupil && t->last < 0; k++) {
        pupil *p = &t->pupil[k];
        if (!p->follows || is_over(t)) continue;
        if (skipped)
            add_turn(p, step, -1);
        else
            give_inputs(t, p, step);
    }
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    weft_failpoint("teach.copied");
}

void weft_session__teach_inputs(weft_session *s, int64_t step)
{
    next_step(s, step, false);
}

void weft_session__teach_skipped(weft_session *s, int64_t step)
{
    next_step(s, step, true);
}

static void say_failed(weft_session *s, teaching *t)
{
    if (!t->failed || t->told) return;
    t->told = true;
    if (!atomic_load(&t->over))
        weft_say_info(&s->say,
                      "new ranks do not learn the state while the others train: "
                      "%s",
                      t->why);
}

void weft_session__teach_state(weft_session *s, int64_t step)
{
    teaching *t = s->teaching;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->step = step;
    t->open = t->last < 0;
    pthread_cond_broadcast(&t->moved);
    say_failed(s, t);
    pthread_mutex_unlock(&t->lock);
}

void weft_session__end_teaching(weft_session *s, int64_t step)
{
    teaching *t = s->teaching;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->open = false;
    if (t->last < 0) t->last = step;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    if (step < 0) weft_session__close_teaching(s);
}

void weft_session__close_teaching(weft_session *s)
{
    teaching *t = s->teaching;
    s->teaching = NULL;
    if (!t) return;
    bool open = false;
    atomic_store(&t->over, t->lesson.epoch);
    pthread_mutex_lock(&t->lock);
    for (int k = 0; k < t->n_pupil; k++) open = open || !t->pupil[k].over;
    pthread_mutex_unlock(&t->lock);
    if (open || !t->comm) fail_lesson(t, "the ranks that teach go on without it");
    if (t->has_thread) pthread_join(t->thread, NULL);
    for (int k = 0; k < t->n_pupil; k++)
        if (t->pupil[k].has_thread) pthread_join(t->pupil[k].thread, NULL);
    if (t->comm && t->failed)
        weft_comm_drop(t->comm);
    else
        weft_comm_destroy(t->comm);
    free_teaching(t);
}
