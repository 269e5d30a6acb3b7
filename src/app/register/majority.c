#include "register/majority.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "register/bytes.h"
#include "register/register_priv.h"

enum {
    MAX_OUTBOX = 1024
};
#define RESEND_S 0.2
#define LIMIT_S  5.0

typedef enum message_kind {
    PREPARE = 1, /* ballot */
    PROMISE,     /* ballot, ballot of what was accepted, that value */
    ACCEPT,      /* ballot, value */
    ACCEPTED,    /* ballot */
    REFUSED,     /* ballot, the one that was promised */
    DECIDED,     /* value of epoch */
} message_kind;

/* Ordered by round, then by agent; round 0: none. */
typedef struct ballot {
    uint64_t round, agent;
} ballot;

typedef struct value_bytes {
    uint8_t *p;
    size_t   n;
} value_bytes;

typedef struct majority_call {
    uint32_t    epoch;
    bool        reads;
    value_bytes value;
} majority_call;

typedef struct out_message {
    uint64_t    to;
    value_bytes value;
} out_message;

typedef struct majority_register {
    weft_register base;
    uint64_t      self;
    double        now_s;
    /* the newest epoch that is decided and known, and its value */
    uint32_t    epoch;
    value_bytes decided;
    /* who decides voting_epoch; `epoch` may be ahead of them */
    uint32_t voting_epoch;
    int      n_voter;
    uint64_t voter[WEFT_MAJORITY_MAX_VOTER];
    /* as acceptor of voting_epoch */
    ballot      promised, accepted;
    value_bytes accepted_value;
    /* as proposer of the first call */
    bool        is_proposing, is_accepting;
    ballot      mine, best;
    uint64_t    top_round; /* that was seen */
    value_bytes proposed;  /* own, or what an acceptor had */
    bool        answered[WEFT_MAJORITY_MAX_VOTER];
    double      began_s, resend_s;
    /* calls without an outcome */
    int           n_call, first_call;
    majority_call call[WEFT_REGISTER_QUEUE];
    int           n_out, first_out;
    out_message   out[MAX_OUTBOX];
    uint8_t      *given, *sent; /* of the last outcome, of the last message */
} majority_register;

static majority_register *majority_of(weft_register *r)
{
    return (majority_register *)(void *)r;
}

static bool copy_value(value_bytes *to, const void *p, size_t n)
{
    uint8_t *own = malloc(n + 1);
    if (!own) return false;
    if (n) memcpy(own, p, n);
    free(to->p);
    *to = (value_bytes){own, n};
    return true;
}

static bool is_after(ballot a, ballot b)
{
    return a.round > b.round || (a.round == b.round && a.agent > b.agent);
}

static bool is_same(ballot a, ballot b)
{
    return a.round == b.round && a.agent == b.agent;
}

static int find_voter(const majority_register *m, uint64_t id)
{
    for (int k = 0; k < m->n_voter; k++)
        if (m->voter[k] == id) return k;
    return -1;
}

bool weft_majority_is_quorum(int n_voter, const bool *has)
{
    int n = 0;
    for (int k = 0; k < n_voter; k++) n += has[k];
    return 2 * n > n_voter || (n_voter && 2 * n == n_voter && has[0]);
}

/* ---- messages ---- */

static void handle_message(majority_register *m, uint64_t from, const uint8_t *bytes,
                           size_t n);

/* To this agent itself: handled at once. */
static void send_message(majority_register *m, uint64_t to, const uint8_t *p, size_t n)
{
    if (to == m->self) {
        handle_message(m, to, p, n);
        return;
    }
    if (m->n_out == MAX_OUTBOX) return; /* repeated later */
    out_message *o = &m->out[(m->first_out + m->n_out) % MAX_OUTBOX];
    *o             = (out_message){.to = to};
    if (copy_value(&o->value, p, n)) m->n_out++;
}

static void put_ballot(weft_bytes_writer *w, ballot b)
{
    weft_bytes_put_number(w, b.round, 8);
    weft_bytes_put_number(w, b.agent, 8);
}

static ballot get_ballot(weft_bytes_reader *r)
{
    ballot b;
    b.round = weft_bytes_get_number(r, 8);
    b.agent = weft_bytes_get_number(r, 8);
    return b;
}

static void tell_agent(majority_register *m, uint64_t to, message_kind kind,
                       uint32_t epoch, ballot b, ballot other, const value_bytes *value)
{
    size_t            cap = WEFT_MAJORITY_HEAD + (value ? value->n : 0);
    weft_bytes_writer w   = {.p = malloc(cap), .cap = cap};
    if (!w.p) return; /* repeated later */
    weft_bytes_put_number(&w, kind, 1);
    weft_bytes_put_number(&w, epoch, 4);
    put_ballot(&w, b);
    put_ballot(&w, other);
    if (value) weft_bytes_put(&w, value->p, value->n);
    send_message(m, to, w.p, w.n);
    free(w.p);
}

/* ---- the proposer ---- */

static const ballot NO_BALLOT = {0, 0};

static void ask_voters(majority_register *m)
{
    m->resend_s = m->now_s + RESEND_S;
    for (int k = 0; k < m->n_voter && m->is_proposing; k++) {
        if (m->answered[k]) continue;
        bool accepting = m->is_accepting;
        tell_agent(m, m->voter[k], accepting ? ACCEPT : PREPARE, m->voting_epoch, m->mine,
                   NO_BALLOT, accepting ? &m->proposed : NULL);
        if (accepting != m->is_accepting) return; /* the next phase has asked all */
    }
}

static void begin_ballot(majority_register *m)
{
    const majority_call *c = &m->call[m->first_call];
    m->mine                = (ballot){++m->top_round, m->self};
    m->best                = NO_BALLOT;
    m->is_accepting        = false;
    memset(m->answered, 0, sizeof m->answered);
    if (!copy_value(&m->proposed, c->value.p, c->value.n)) return;
    m->is_proposing = true;
    ask_voters(m);
}

/* The first call begins when it can: voters are known, and nothing is decided. */
static void begin_call(majority_register *m)
{
    if (m->is_proposing || !m->n_call) return;
    const majority_call *c = &m->call[m->first_call];
    if (c->reads || c->epoch <= m->epoch || c->epoch != m->voting_epoch) return;
    if (find_voter(m, m->self) < 0) return;
    m->began_s = m->now_s;
    begin_ballot(m);
}

static void learn_value(majority_register *m, uint32_t epoch, const void *p, size_t n)
{
    if (epoch <= m->epoch || !copy_value(&m->decided, p, n)) return;
    m->epoch        = epoch;
    m->is_proposing = false;
}

static void count_answer(majority_register *m, int voter)
{
    m->answered[voter] = true;
    if (!weft_majority_is_quorum(m->n_voter, m->answered)) return;
    if (!m->is_accepting) {
        m->is_accepting = true;
        memset(m->answered, 0, sizeof m->answered);
        ask_voters(m);
        return;
    }
    learn_value(m, m->voting_epoch, m->proposed.p, m->proposed.n);
    for (int k = 0; k < m->n_voter; k++)
        if (m->voter[k] != m->self)
            tell_agent(m, m->voter[k], DECIDED, m->epoch, NO_BALLOT, NO_BALLOT,
                       &m->decided);
}

static void hear_promise(majority_register *m, int voter, ballot b, ballot accepted,
                         const weft_bytes_reader *value)
{
    if (!m->is_proposing || m->is_accepting || !is_same(b, m->mine)) return;
    if (is_after(accepted, m->best)) {
        if (!copy_value(&m->proposed, value->p, value->n)) return;
        m->best = accepted;
    }
    count_answer(m, voter);
}

/* Another proposer is ahead: again after a while, which differs among voters. */
static void hear_refusal(majority_register *m, ballot b, ballot promised)
{
    if (promised.round > m->top_round) m->top_round = promised.round;
    if (!m->is_proposing || !is_same(b, m->mine) || !is_after(promised, m->mine)) return;
    m->mine     = NO_BALLOT;
    m->resend_s = m->now_s + RESEND_S / 4 * (1 + find_voter(m, m->self));
}

/* ---- the acceptor ---- */

static void answer_proposer(majority_register *m, uint64_t from, message_kind kind,
                            ballot b, const weft_bytes_reader *value)
{
    if (b.round > m->top_round) m->top_round = b.round;
    if (!b.round || is_after(m->promised, b)) {
        tell_agent(m, from, REFUSED, m->voting_epoch, b, m->promised, NULL);
        return;
    }
    if (kind == ACCEPT) {
        if (!copy_value(&m->accepted_value, value->p, value->n)) return;
        m->promised = m->accepted = b;
        tell_agent(m, from, ACCEPTED, m->voting_epoch, b, NO_BALLOT, NULL);
        return;
    }
    m->promised = b;
    tell_agent(m, from, PROMISE, m->voting_epoch, b, m->accepted,
               m->accepted.round ? &m->accepted_value : NULL);
}

static void handle_message(majority_register *m, uint64_t from, const uint8_t *bytes,
                           size_t n)
{
    weft_bytes_reader r     = {.p = bytes, .n = n};
    message_kind      kind  = (message_kind)weft_bytes_get_number(&r, 1);
    uint32_t          epoch = (uint32_t)weft_bytes_get_number(&r, 4);
    ballot            b = get_ballot(&r), other = get_ballot(&r);
    int               voter  = find_voter(m, from);
    bool              is_ask = kind == PREPARE || kind == ACCEPT;
    if (r.bad || r.n > WEFT_REGISTER_MOST || !epoch) return;
    if (kind == DECIDED) {
        if (voter >= 0 && epoch != WEFT_REGISTER_NEWEST) learn_value(m, epoch, r.p, r.n);
    } else if (epoch <= m->epoch) {
        if (is_ask)
            tell_agent(m, from, DECIDED, m->epoch, NO_BALLOT, NO_BALLOT, &m->decided);
    } else if (epoch != m->voting_epoch || voter < 0 || find_voter(m, m->self) < 0) {
        return;
    } else if (is_ask) {
        answer_proposer(m, from, kind, b, &r);
    } else if (kind == PROMISE) {
        hear_promise(m, voter, b, other, &r);
    } else if (kind == ACCEPTED) {
        if (m->is_proposing && m->is_accepting && is_same(b, m->mine))
            count_answer(m, voter);
    } else if (kind == REFUSED) {
        hear_refusal(m, b, other);
    }
}

void weft_majority_receive(weft_register *r, uint64_t from, const void *bytes, size_t n)
{
    majority_register *m = majority_of(r);
    if (from != m->self) handle_message(m, from, bytes, n);
}

bool weft_majority_send(weft_register *r, weft_majority_message *out)
{
    majority_register *m = majority_of(r);
    if (!m->n_out) return false;
    out_message *o = &m->out[m->first_out];
    free(m->sent);
    m->sent = o->value.p;
    *out    = (weft_majority_message){.to = o->to, .bytes = m->sent, .n = o->value.n};
    *o      = (out_message){0};
    m->first_out = (m->first_out + 1) % MAX_OUTBOX;
    m->n_out--;
    return true;
}

void weft_majority_tick(weft_register *r, double now_s)
{
    majority_register *m = majority_of(r);
    m->now_s             = now_s;
    begin_call(m);
    if (!m->is_proposing || now_s < m->resend_s) return;
    if (m->mine.round)
        ask_voters(m);
    else
        begin_ballot(m);
}

weft_status weft_majority_advance(weft_register *r, uint32_t epoch, const void *bytes,
                                  size_t n, int n_voter, const uint64_t *voter)
{
    majority_register *m = majority_of(r);
    if (n_voter < 1 || n_voter > WEFT_MAJORITY_MAX_VOTER)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d voters: 1 to %d are possible", n_voter,
                         WEFT_MAJORITY_MAX_VOTER);
    if (epoch < m->epoch || epoch + 1 <= m->voting_epoch) return WEFT_OK;
    if (epoch > m->epoch) {
        if (!copy_value(&m->decided, bytes, n))
            return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        m->epoch = epoch;
    }
    m->voting_epoch = epoch + 1;
    m->n_voter      = n_voter;
    memcpy(m->voter, voter, sizeof *voter * (size_t)n_voter);
    m->promised = m->accepted = NO_BALLOT;
    m->top_round              = 0;
    m->is_proposing           = false;
    begin_call(m);
    return WEFT_OK;
}

/* ---- calls ---- */

static weft_status ask_majority(weft_register *r, uint32_t epoch, const void *bytes,
                                int64_t n)
{
    majority_register *m = majority_of(r);
    majority_call      c = {.epoch = epoch, .reads = n < 0};
    if (m->n_call == WEFT_REGISTER_QUEUE)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d calls of a register are under way",
                         WEFT_REGISTER_QUEUE);
    if (n >= 0 && !copy_value(&c.value, bytes, (size_t)n))
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    m->call[(m->first_call + m->n_call++) % WEFT_REGISTER_QUEUE] = c;
    if (m->n_call == 1) m->began_s = m->now_s;
    begin_call(m);
    return WEFT_OK;
}

static bool next_of_majority(weft_register *r, weft_register_outcome *out)
{
    majority_register *m = majority_of(r);
    if (!m->n_call) return false;
    majority_call *c      = &m->call[m->first_call];
    bool           newest = c->epoch == WEFT_REGISTER_NEWEST;
    bool           stands = m->epoch && (newest || c->epoch <= m->epoch);
    bool           late   = m->now_s - m->began_s >= LIMIT_S;
    if (!stands && !c->reads && !late) return false;
    *out = (weft_register_outcome){.result = WEFT_REGISTER_EMPTY,
                                   .epoch  = newest ? 0 : c->epoch};
    if (stands) {
        value_bytes copy = {0};
        if (!copy_value(&copy, m->decided.p, m->decided.n)) return false;
        free(m->given);
        m->given    = copy.p;
        out->result = WEFT_REGISTER_STANDS;
        out->epoch  = m->epoch;
        out->bytes  = m->given;
        out->n      = m->decided.n;
    } else if (!c->reads) {
        out->result = WEFT_REGISTER_UNKNOWN;
        snprintf(out->why, sizeof out->why,
                 "no majority of the %d hosts of the last view answers: file: or etcd:// "
                 "lets fewer go on",
                 m->n_voter);
    }
    free(c->value.p);
    *c            = (majority_call){0};
    m->first_call = (m->first_call + 1) % WEFT_REGISTER_QUEUE;
    m->n_call--;
    m->is_proposing = false;
    m->began_s      = m->now_s;
    begin_call(m);
    return true;
}

static int fd_of_majority(const weft_register *r)
{
    (void)r;
    return -1;
}

static void close_majority(weft_register *r)
{
    majority_register *m = majority_of(r);
    for (int k = 0; k < WEFT_REGISTER_QUEUE; k++) free(m->call[k].value.p);
    for (int k = 0; k < MAX_OUTBOX; k++) free(m->out[k].value.p);
    free(m->decided.p);
    free(m->accepted_value.p);
    free(m->proposed.p);
    free(m->given);
    free(m->sent);
    free(m);
}

weft_status weft_register_open_majority(uint64_t self, weft_register **out)
{
    static const register_ops ops = {.ask   = ask_majority,
                                     .next  = next_of_majority,
                                     .fd    = fd_of_majority,
                                     .close = close_majority};
    majority_register        *m   = calloc(1, sizeof *m);
    if (!self || !m) {
        free(m);
        return self ? WEFT_FAIL(WEFT_ERR_MEM, "out of memory")
                    : WEFT_FAIL(WEFT_ERR_ARG, "an agent's number is not 0");
    }
    m->base.op = &ops;
    m->self    = self;
    *out       = &m->base;
    return WEFT_OK;
}
