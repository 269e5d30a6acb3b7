/* Agents of several hosts: what they agree on, one case at a time and under a seeded simulator with
 * loss, reordering, cut links, pauses, clock jumps, crashes at every action and registers that do
 * not answer.
 *
 *     build/test_hosts_sim              10,000 schedules
 *     build/test_hosts_sim 100000 7     as many, from seed 7 on
 *     build/test_hosts_sim 1 213 trace  one, with what its agents do
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member/hosts.h"
#include "register/register_priv.h"
#include "support/test.h"

enum {
    MAX_AGENT   = 8,
    MAX_MESSAGE = 4096,
    MAX_BYTES   = 900,
    MAX_EPOCH   = 200,
    MAX_FAULT   = 5
};

#define STEP_S    0.05
#define TIMEOUT_S 1.0
#define WAIT_S    5.0
#define END_S     120.0
#define PREPARE_S 2.0

/* ---- a register that all agents reach, at times ---- */

typedef struct sim_value {
    bool    stands;
    size_t  n;
    uint8_t bytes[MAX_BYTES];
} sim_value;

typedef struct sim_store {
    sim_value value[MAX_EPOCH];
    uint64_t  beat;
    double    now_s, down_s; /* until when it does not answer */
} sim_store;

typedef struct sim_register {
    weft_register base;
    sim_store    *store;
    int           n_call;
    struct {
        uint32_t epoch;
        double   due_s;
        uint64_t beat;
        size_t   n;
        uint8_t  bytes[MAX_BYTES];
    } call[4];
} sim_register;

static weft_status ask_sim(weft_register *r, uint32_t epoch, const void *bytes, int64_t n)
{
    sim_register *s    = (sim_register *)(void *)r;
    uint64_t      beat = 0;
    if (n < 0 && bytes) memcpy(&beat, bytes, sizeof beat);
    if (n < 0) epoch = 0; /* the newest */
    if (n < 0) n = 0;
    if (s->n_call == 4 || n > MAX_BYTES || epoch >= MAX_EPOCH)
        return WEFT_FAIL(WEFT_ERR_ARG, "not in this test");
    s->call[s->n_call].epoch = epoch;
    s->call[s->n_call].due_s = s->store->now_s + STEP_S * (1 + epoch % 2);
    s->call[s->n_call].beat  = beat;
    s->call[s->n_call].n     = (size_t)n;
    if (n) memcpy(s->call[s->n_call].bytes, bytes, (size_t)n);
    s->n_call++;
    return WEFT_OK;
}

static bool next_of_sim(weft_register *r, weft_register_outcome *out)
{
    sim_register *s    = (sim_register *)(void *)r;
    double        late = s->store->down_s > s->store->now_s ? TIMEOUT_S : 0;
    if (!s->n_call || s->store->now_s < s->call[0].due_s + late) return false;
    uint32_t epoch = s->call[0].epoch, newest = MAX_EPOCH - 1;
    bool     reads = !epoch;
    while (newest && !s->store->value[newest].stands) newest--;
    if (reads) epoch = newest;
    sim_value *v = &s->store->value[epoch];
    *out = (weft_register_outcome){.result = WEFT_REGISTER_UNKNOWN, .epoch = epoch};
    if (late <= 0) {
        if (!v->stands && !reads) {
            v->stands = true;
            v->n      = s->call[0].n;
            memcpy(v->bytes, s->call[0].bytes, v->n);
        }
        if (s->call[0].beat) s->store->beat = s->call[0].beat;
        out->beat   = s->store->beat;
        out->result = v->stands ? WEFT_REGISTER_STANDS : WEFT_REGISTER_EMPTY;
        out->bytes  = v->bytes;
        out->n      = v->n;
    }
    s->n_call--;
    memmove(&s->call[0], &s->call[1], sizeof s->call[0] * (size_t)s->n_call);
    return true;
}

static int fd_of_sim(const weft_register *r)
{
    (void)r;
    return -1;
}

static void close_sim(weft_register *r)
{
    (void)r;
}

static const register_ops sim_ops = {
    .ask = ask_sim, .next = next_of_sim, .fd = fd_of_sim, .close = close_sim};

/* ---- the simulator ---- */

/* A host: its agent, and ranks of which only the vote matters. */
typedef struct sim_agent {
    weft_hosts  *h;
    sim_register store;
    uint64_t     id;
    bool         alive;
    double pause_s, clock_off_s, cut_s[MAX_AGENT]; /* until when nothing goes to others */
    int    crash_at;                               /* actions from now; -1: not */
    uint32_t epoch;                                /* of its ranks; 0: there are none */
    bool     running, stopping, is_new;
    double   start_s, stop_s; /* when ranks run, when they have stopped */
    int64_t  arrived, passed;
    double   end_s;                /* when it has saved and ends; 0: it is not asked to */
    double prepared_s, gives_up_s; /* it joins: when it is prepared, or ends; 0: never */
} sim_agent;

typedef struct sim_message {
    double  due_s;
    int     from, to;
    size_t  n;
    uint8_t bytes[MAX_BYTES];
} sim_message;

typedef struct sim_fault {
    double at_s;
    int    kind; /* fault_kind */
} sim_fault;

/* What was decided for an epoch, as the first agent that took it says. */
typedef struct sim_view {
    bool     known, restarts;
    size_t   n_host;
    int64_t  first_step, passed; /* the last step that a rank of this epoch has passed */
    uint64_t id[MAX_AGENT], proposer;
} sim_view;

typedef struct sim_tally {
    int views, fenced, left, alone, saved, crashed, trained, taken, prepared;
} sim_tally;

typedef struct sim_job {
    uint32_t    random;
    int         seed, n, min_host, loss;              /* of 100 messages */
    bool        shared, is_lossy, prepares, is_stuck; /* stuck: a host never prepares */
    double      now_s, heal_s;
    sim_agent   agent[MAX_AGENT];
    int         n_fault;
    sim_fault   fault[MAX_FAULT];
    int         n_message;
    sim_message message[MAX_MESSAGE];
    sim_view    view[MAX_EPOCH];
    uint32_t    newest;
    sim_store   store;
    sim_tally  *tally;
} sim_job;

static sim_job job;
static bool    traces; /* a third argument: what agents do */

static uint32_t draw(uint32_t below)
{
    job.random = job.random * 1664525u + 1013904223u;
    return (job.random >> 8) % below;
}

static double draw_s(double from_s, double to_s)
{
    return from_s + (to_s - from_s) * draw(1000) / 1000;
}

static int agent_of(uint64_t id)
{
    for (int k = 0; k < job.n; k++)
        if (job.agent[k].id == id) return k;
    return -1;
}

static void crash_agent(int k, bool announced)
{
    job.agent[k].alive = false;
    for (int i = 0; i < job.n && announced; i++)
        if (job.agent[i].alive && job.n_message < MAX_MESSAGE && i != k)
            job.message[job.n_message++] = (sim_message){
                .due_s = job.now_s + draw_s(0.05, 0.2), .from = k, .to = i, .n = 0};
}

static void post_message(int from, const weft_hosts_action *a)
{
    int to = agent_of(a->id);
    assert_true(to >= 0 && a->n && a->n <= MAX_BYTES);
    if (job.agent[from].cut_s[to] > job.now_s || (int)draw(100) < job.loss) return;
    assert_true(job.n_message < MAX_MESSAGE);
    sim_message *m = &job.message[job.n_message++];
    m->due_s       = job.now_s + (draw(10) ? draw_s(0, 0.04) : draw_s(0, 0.5));
    m->from        = from;
    m->to          = to;
    m->n           = a->n;
    memcpy(m->bytes, a->bytes, a->n);
}

/* No view twice, and the rule of commit. */
static void check_view(int k)
{
    const weft_member_view *v = weft_hosts_view(job.agent[k].h);
    sim_agent              *a = &job.agent[k];
    assert_true(v->epoch < MAX_EPOCH && v->n_host <= MAX_AGENT);
    sim_view *seen = &job.view[v->epoch];
    if (!seen->known) {
        *seen = (sim_view){.known      = true,
                           .restarts   = v->restarts,
                           .n_host     = (size_t)v->n_host,
                           .first_step = v->first_step,
                           .proposer   = v->proposer,
                           .passed     = v->first_step - 1};
        for (int i = 0; i < v->n_host; i++) seen->id[i] = v->host[i].id;
        job.tally->views++;
        job.tally->taken += v->restarts;
        assert_true(v->restarts || job.view[v->epoch - 1].passed < v->first_step);
    }
    assert_int_equal(seen->n_host, v->n_host);
    assert_int_equal(seen->restarts, v->restarts);
    assert_int_equal(seen->first_step, v->first_step);
    assert_int_equal(seen->proposer, v->proposer);
    for (int i = 0; i < v->n_host; i++) assert_int_equal(seen->id[i], v->host[i].id);
    if (v->epoch > job.newest) job.newest = v->epoch;
    if (a->epoch) { /* it holds the state before first_step, or the gradients of its last step */
        assert_false(a->running);
        assert_true(a->passed < v->first_step);
        assert_true(a->passed == v->first_step - 1 || a->arrived >= v->first_step - 1);
    }
}

static void take_view(int k)
{
    sim_agent              *a = &job.agent[k];
    const weft_member_view *v = weft_hosts_view(a->h);
    assert_true(v->epoch > a->epoch); /* epochs rise */
    assert_true(weft_member_view_find(v, a->id) >= 0);
    check_view(k);
    a->epoch    = v->epoch;
    a->stopping = a->running = false;
    a->arrived = a->passed = v->first_step - 1;
    a->start_s             = job.now_s + draw_s(0.05, 0.2);
}

static void end_agent(int k, weft_hosts_action_kind kind)
{
    job.tally->fenced += kind == WEFT_HOSTS_FENCED;
    job.tally->left += kind == WEFT_HOSTS_LEFT;
    job.tally->alone += kind == WEFT_HOSTS_ALONE;
    job.agent[k].running = false;
    crash_agent(k, true);
}

static void trace_action(int k, const weft_hosts_action *a)
{
    static const char *const name[] = {"send",        "stop ranks of", "takes",
                                       "prepares in", "warns in",      "saves in",
                                       "has left",    "is fenced in",  "is alone in"};
    const weft_member_view  *v      = weft_hosts_view(job.agent[k].h);
    print_message("%6.2f host %d: %s view %u, %d hosts from step %d: %s\n", job.now_s,
                  (int)job.agent[k].id, name[a->kind], a->epoch, v->n_host,
                  (int)v->first_step, a->why);
}

static void act(int k)
{
    weft_hosts_action a;
    sim_agent        *self = &job.agent[k];
    while (self->alive && weft_hosts_next(self->h, &a)) {
        if (self->crash_at >= 0 && self->crash_at-- == 0) {
            job.tally->crashed++;
            crash_agent(k, draw(2));
            return;
        }
        if (traces && a.kind != WEFT_HOSTS_SEND) trace_action(k, &a);
        if (a.kind == WEFT_HOSTS_SEND)
            post_message(k, &a);
        else if (a.kind == WEFT_HOSTS_VIEW)
            take_view(k);
        else if (a.kind == WEFT_HOSTS_STOP_RANKS) {
            assert_int_equal(a.epoch, self->epoch);
            self->stopping = true;
            self->stop_s   = job.now_s + draw_s(0, 0.3);
        } else if (a.kind == WEFT_HOSTS_SAVE) {
            job.tally->saved++;
            self->end_s = job.now_s + 1;
        } else if (a.kind == WEFT_HOSTS_PREPARE) {
            bool never       = !draw(6);
            job.is_stuck     = job.is_stuck || never;
            self->prepared_s = never ? 0 : job.now_s + draw_s(0, 2.5);
            self->gives_up_s = never && !self->epoch ? job.now_s + PREPARE_S + 0.5 : 0;
        } else if (a.kind != WEFT_HOSTS_WARN)
            end_agent(k, a.kind);
    }
}

static void tell(int k, weft_hosts_event e)
{
    if (!job.agent[k].alive) return;
    weft_hosts_tell(job.agent[k].h, &e);
    act(k);
}

static void start_agent(uint64_t id)
{
    sim_agent *a         = &job.agent[job.n++];
    *a                   = (sim_agent){.id = id, .alive = true, .crash_at = -1};
    a->store             = (sim_register){.base = {.op = &sim_ops}, .store = &job.store};
    weft_hosts_options o = {.self              = {.id = id, .n_rank = 2},
                            .shared            = job.shared ? &a->store.base : NULL,
                            .min_host          = job.min_host,
                            .max_host          = MAX_AGENT,
                            .failure_timeout_s = TIMEOUT_S,
                            .max_view          = 60,
                            .prepare_s         = job.prepares ? PREPARE_S : 0,
                            .leave_s           = job.prepares ? PREPARE_S : 0,
                            .wait_s            = WAIT_S};
    snprintf(o.self.name, sizeof o.self.name, "h%d", (int)id);
    assert_int_equal(weft_hosts_create(&o, &a->h), WEFT_OK);
}

/* ---- ranks ---- */

static bool all_arrived(const sim_view *v, uint32_t epoch, int64_t step)
{
    for (size_t i = 0; i < v->n_host; i++) {
        const sim_agent *a = &job.agent[agent_of(v->id[i])];
        if (a->epoch != epoch || a->arrived < step) return false;
    }
    return true;
}

static bool all_running(const sim_view *v, uint32_t epoch)
{
    for (size_t i = 0; i < v->n_host; i++) {
        const sim_agent *a = &job.agent[agent_of(v->id[i])];
        if (!a->alive || a->epoch != epoch || job.now_s < a->start_s || a->stopping)
            return false;
    }
    return true;
}

/* A run that was taken over has no ranks any more, but where its agents could not know it: they
 * were stopped, or have not reached the register, within the time that a look takes. */
static void check_taken(const sim_agent *by)
{
    if (job.store.down_s > job.now_s - 2 * TIMEOUT_S) return;
    for (int k = 0; k < job.n; k++) {
        const sim_agent *a   = &job.agent[k];
        bool             old = a->alive && a->running && a->epoch < by->epoch;
        assert_true(!old || a->pause_s > job.now_s - TIMEOUT_S);
    }
}

/* Ranks of a host run on while its agent is paused. */
static void move_ranks(int k)
{
    sim_agent *a = &job.agent[k];
    sim_view  *v = &job.view[a->epoch];
    if (!a->epoch || (int)v->n_host < job.min_host) return;
    if (!a->running) {
        if (a->stopping || !all_running(v, a->epoch)) return;
        a->running = true;
        a->is_new  = true;
        if (v->restarts) check_taken(a);
    } else if (a->passed == a->arrived) {
        a->arrived += draw(3) == 0;
    } else if (all_arrived(v, a->epoch, a->arrived) && draw(2)) {
        a->passed = a->arrived;
        if (a->passed > v->passed) v->passed = a->passed;
        /* the next view does not run this step again */
        if (job.view[a->epoch + 1].known && !job.view[a->epoch + 1].restarts)
            assert_true(a->passed < job.view[a->epoch + 1].first_step);
        tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_STEP, .passed = a->passed});
    }
}

/* Its ranks have prepared, or those of all that stay; or they do not, and one that joins ends. */
static void move_prepared(int k)
{
    sim_agent *a = &job.agent[k];
    if (!a->alive) return;
    if (a->prepared_s > 0 && job.now_s >= a->prepared_s) {
        a->prepared_s = 0;
        job.tally->prepared++;
        tell(k, (weft_hosts_event){.kind  = WEFT_HOSTS_PREPARED,
                                   .epoch = weft_hosts_expected(a->h)->epoch});
    }
    if (!a->epoch && a->gives_up_s > 0 && job.now_s >= a->gives_up_s)
        crash_agent(k, true);
}

static void move_agent(int k)
{
    sim_agent *a = &job.agent[k];
    if (!a->alive) return;
    move_ranks(k);
    if (!a->alive || a->pause_s > job.now_s) return;
    if (a->running && a->is_new) {
        a->is_new = false;
        tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_READY, .epoch = a->epoch});
    }
    if (a->stopping && job.now_s >= a->stop_s && a->stop_s > 0) {
        a->running = false;
        a->stop_s  = 0;
        tell(k, (weft_hosts_event){.kind    = WEFT_HOSTS_STOPPED,
                                   .epoch   = a->epoch,
                                   .arrived = a->arrived,
                                   .passed  = a->passed,
                                   .n_rank  = 2});
    }
    if (a->alive && a->end_s > 0 && job.now_s >= a->end_s) {
        tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
        if (a->alive) crash_agent(k, true);
    }
    move_prepared(k);
    if (draw(2))
        tell(k, (weft_hosts_event){.kind  = WEFT_HOSTS_TICK,
                                   .now_s = job.now_s + a->clock_off_s});
}

static void deliver_messages(void)
{
    for (int i = 0; i < job.n_message; i++) {
        sim_message *m = &job.message[i];
        if (m->due_s > job.now_s || job.agent[m->to].pause_s > job.now_s) continue;
        static sim_message now;
        now = (sim_message){.from = m->from, .to = m->to, .n = m->n};
        memcpy(now.bytes, m->bytes, m->n);
        if (i != --job.n_message) {
            const sim_message *last = &job.message[job.n_message];
            m->due_s = last->due_s, m->from = last->from, m->to = last->to,
            m->n = last->n;
            memcpy(m->bytes, last->bytes, last->n);
        }
        i--;
        tell(now.to,
             (weft_hosts_event){.kind  = now.n ? WEFT_HOSTS_MESSAGE : WEFT_HOSTS_GONE,
                                .id    = job.agent[now.from].id,
                                .bytes = now.bytes,
                                .n     = now.n});
    }
}

/* ---- faults ---- */

typedef enum fault_kind {
    CRASH,
    CRASH_AT, /* one of the next actions */
    PAUSE,
    CUT,
    CUT_ONE_WAY,
    ISOLATE,
    MUTE,
    CLOCK,
    RANK, /* the next view is needed */
    DRAIN,
    TERM,
    JOIN,
    REGISTER, /* does not answer */
    SAVE,
    N_FAULT_KIND
} fault_kind;

static void cut_links(int k, double until_s, bool both)
{
    for (int i = 0; i < job.n; i++) {
        job.agent[k].cut_s[i] = until_s;
        if (both) job.agent[i].cut_s[k] = until_s;
    }
}

static void add_candidate(void)
{
    if (job.n == MAX_AGENT) return;
    start_agent((uint64_t)job.n + 1);
    if (job.shared && draw(2)) { /* the register says whom to ask */
        tell(job.n - 1, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
        return;
    }
    for (int i = 0; i < job.n - 1; i++)
        tell(job.n - 1,
             (weft_hosts_event){.kind = WEFT_HOSTS_CONTACT, .id = job.agent[i].id});
}

static void cause_fault(int kind)
{
    int        k = (int)draw((uint32_t)job.n), other = (int)draw((uint32_t)job.n);
    sim_agent *a       = &job.agent[k];
    double     until_s = job.now_s + draw_s(0.2, 3);
    if (until_s > job.heal_s) job.heal_s = until_s;
    switch (kind) {
    case CRASH:
        job.tally->crashed += a->alive;
        crash_agent(k, draw(2));
        break;
    case CRASH_AT: a->crash_at = (int)draw(40); break;
    case PAUSE: a->pause_s = until_s; break;
    case CUT: a->cut_s[other] = job.agent[other].cut_s[k] = until_s; break;
    case CUT_ONE_WAY: a->cut_s[other] = until_s; break;
    case ISOLATE: cut_links(k, until_s, true); break;
    case MUTE: cut_links(k, until_s, false); break;
    case CLOCK: a->clock_off_s += draw(2) ? 100 : -100; break;
    case RANK:
        tell(k, (weft_hosts_event){
                    .kind = WEFT_HOSTS_CHANGE, .n_rank = 2, .text = "a rank was lost"});
        break;
    case DRAIN:
        tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = job.agent[other].id});
        break;
    case TERM: tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_TERM}); break;
    case JOIN: add_candidate(); break;
    case REGISTER: job.store.down_s = until_s; break;
    default:
        tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_SAVE_ALL, .text = "asked"});
        break;
    }
}

/* ---- a schedule ---- */

/* All agents that are left are in one view, and its ranks commit steps; or none is left. */
static bool is_settled(void)
{
    int n_alive = 0;
    for (int k = 0; k < job.n; k++) {
        const sim_agent *a = &job.agent[k];
        if (!a->alive) continue;
        n_alive++;
        if (!weft_hosts_is_member(a->h) || a->epoch != job.newest || a->end_s > 0)
            return false;
        const sim_view *v = &job.view[a->epoch];
        if (!a->running || a->passed < v->first_step + 1) return false;
    }
    return !n_alive || n_alive == (int)job.view[job.newest].n_host;
}

static void start_job(int seed, sim_tally *tally)
{
    job.n = job.n_message = 0;
    memset(job.view, 0, sizeof job.view);
    for (int e = 0; e < MAX_EPOCH; e++) job.store.value[e].stands = false;
    job.store.now_s = job.store.down_s = 0;
    job.store.beat                     = 0;
    job.random                         = (uint32_t)seed * 2654435761u + 1;
    job.seed                           = seed;
    job.tally                          = tally;
    job.now_s                          = 0;
    job.heal_s                         = 0;
    job.newest                         = 0;
    job.shared                         = draw(2);
    job.prepares                       = draw(2);
    job.is_stuck                       = false;
    job.loss                           = draw(2) ? 0 : (int)draw(25);
    job.is_lossy                       = job.loss > 0;
    int n                              = 1 + (int)draw(5);
    job.min_host                       = 1 + (int)draw((uint32_t)n);
    job.n_fault                        = (int)draw(MAX_FAULT + 1);
    for (int k = 0; k < job.n_fault; k++)
        job.fault[k] = (sim_fault){.at_s = draw_s(0, 4),
                                   .kind = draw(3) ? (int)draw(N_FAULT_KIND) : CRASH_AT};
    for (int k = 0; k < n; k++) start_agent((uint64_t)k + 1);
    for (int k = 0; k < n; k++) /* with a shared register all may begin */
        if (!k || (job.shared && draw(2)))
            tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = draw(2)});
        else
            tell(k, (weft_hosts_event){.kind = WEFT_HOSTS_CONTACT, .id = 1});
}

/* Has this schedule nothing but late messages, lost ranks, clocks that jump and joins? */
static bool is_harmless(void)
{
    if (job.is_lossy || job.is_stuck) return false;
    for (int k = 0; k < job.n_fault; k++)
        if (job.fault[k].kind != CLOCK && job.fault[k].kind != RANK &&
            job.fault[k].kind != JOIN)
            return false;
    return true;
}

static void fail_unended(void)
{
    for (int k = 0; k < job.n; k++) {
        const sim_agent *a = &job.agent[k];
        print_error("host %d: %s %s, view %u of %d hosts, ranks: epoch %u, %s, step %d\n",
                    (int)a->id, a->alive ? "alive" : "ended",
                    weft_hosts_is_member(a->h) ? "member" : "not a member",
                    weft_hosts_view(a->h)->epoch, weft_hosts_view(a->h)->n_host, a->epoch,
                    a->running ? "running" : "stopped", (int)a->passed);
    }
    fail_msg("seed %d has not ended", job.seed);
}

static void run_schedule(int seed, sim_tally *tally)
{
    start_job(seed, tally);
    for (;; job.now_s += STEP_S) {
        int left        = 0;
        job.store.now_s = job.now_s;
        for (int k = 0; k < job.n_fault; k++) {
            left += job.fault[k].at_s >= job.now_s;
            if (job.fault[k].at_s >= job.now_s && job.fault[k].at_s < job.now_s + STEP_S)
                cause_fault(job.fault[k].kind);
        }
        if (!left && job.now_s > job.heal_s) job.loss = 0;
        deliver_messages();
        for (int k = 0; k < job.n; k++) move_agent(k);
        if (!left && job.now_s > job.heal_s && is_settled()) break;
        if (job.now_s > END_S) fail_unended();
    }
    if (is_harmless())
        for (int k = 0; k < job.n; k++) assert_true(job.agent[k].alive);
    for (int k = 0; k < job.n; k++) {
        tally->trained += job.agent[k].alive;
        weft_hosts_destroy(job.agent[k].h);
    }
}

static int n_schedule = 10000 / TEST_STRIDE(5), first_seed = 1;

static void every_schedule_ends_in_one_view(void **state)
{
    (void)state;
    sim_tally tally = {0};
    for (int k = 0; k < n_schedule; k++) run_schedule(first_seed + k, &tally);
    printf(
        "%d schedules from seed %d: %d views, agents: %d crashed, %d fenced, %d left, %d "
        "stopped alone, %d saved, %d train at the end; %d dead runs were taken over, %d "
        "hosts prepared\n",
        n_schedule, first_seed, tally.views, tally.crashed, tally.fenced, tally.left,
        tally.alone, tally.saved, tally.trained, tally.taken, tally.prepared);
    assert_true(tally.views > 2 * n_schedule && tally.fenced && tally.left &&
                tally.alone && tally.taken && tally.prepared);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_ends_in_one_view),
    };
    const char *count = getenv("WEFT_HOSTS_SCHEDULES"), *seed = getenv("WEFT_HOSTS_SEED");
    if (argc > 1) count = argv[1];
    if (argc > 2) seed = argv[2];
    if (count) n_schedule = atoi(count);
    if (seed) first_seed = atoi(seed);
    traces = argc > 3;
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
