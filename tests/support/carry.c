#include "support/carry.h"

#include <stdlib.h>

#include "support/wires.h"

enum {
    BACK = 1 << 24 /* tags of messages back */
};

/* A channel or group of the program's. */
typedef struct link {
    struct link       *next;
    int                tag, peer, group; /* group -1: messages */
    bool               send;
    weft_comm_channel *data, *back;
    weft_comm_group   *meeting;
    int64_t            count; /* messages so far */
    double            *times; /* collectives: two a rank */
} link;

struct test_carrier {
    const weft_program *p;
    weft_comm          *comm;
    bool                wires;
    link               *first;
};

static link *find_link(const test_carrier *c, const weft_instr *i)
{
    bool meeting = i->kind == WEFT_INSTR_COLLECTIVE;
    int  peer = meeting ? -1 : i->peer, group = meeting ? i->group : -1;
    for (link *l = c->first; l; l = l->next)
        if (l->tag == i->tag && l->peer == peer && l->group == group &&
            l->send == (i->kind == WEFT_INSTR_SEND))
            return l;
    return NULL;
}

/* ---- opening ---- */

static weft_status open_messages(test_carrier *c, const weft_instr *i, link *l)
{
    weft_comm_side side    = l->send ? WEFT_COMM_SEND : WEFT_COMM_RECV;
    weft_comm_side other   = l->send ? WEFT_COMM_RECV : WEFT_COMM_SEND;
    int64_t        bytes   = 2 * (int64_t)sizeof(double);
    int            credits = c->wires || i->credits ? i->credits : 1;
    WEFT_TRY(
        weft_comm_open_channel(c->comm, l->peer, side, l->tag, bytes, credits, &l->data));
    if (c->wires) return WEFT_OK;
    return weft_comm_open_channel(c->comm, l->peer, other, l->tag + BACK, bytes, credits,
                                  &l->back);
}

static weft_status open_meeting(test_carrier *c, link *l)
{
    const weft_group *g = &c->p->group[l->group];
    l->times            = calloc(2 * ((size_t)g->n_rank + 1), sizeof *l->times);
    if (!l->times) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    return weft_comm_open_group(c->comm, g->n_rank, g->rank, l->tag, &l->meeting);
}

static weft_status open_link(test_carrier *c, const weft_instr *i)
{
    if (!weft_instr_is_comm(i) || find_link(c, i)) return WEFT_OK;
    bool  meeting = i->kind == WEFT_INSTR_COLLECTIVE;
    link *l       = calloc(1, sizeof *l);
    if (!l) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *l       = (link){.next  = c->first,
                      .tag   = i->tag,
                      .peer  = meeting ? -1 : i->peer,
                      .group = meeting ? i->group : -1,
                      .send  = i->kind == WEFT_INSTR_SEND};
    c->first = l;
    return meeting ? open_meeting(c, l) : open_messages(c, i, l);
}

weft_status test_carrier_create(const weft_program *p, weft_comm *comm, bool wires,
                                test_carrier **out)
{
    test_carrier *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *c   = (test_carrier){.p = p, .comm = comm, .wires = wires};
    *out = c;
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++)
            WEFT_TRY(open_link(c, &p->actor[a].instr[n]));
    return WEFT_OK;
}

void test_carrier_destroy(test_carrier *c)
{
    if (!c) return;
    for (link *l = c->first, *next; l; l = next) {
        next = l->next;
        (void)weft_comm_close_channel(c->comm, l->data);
        (void)weft_comm_close_channel(c->comm, l->back);
        (void)weft_comm_close_group(c->comm, l->meeting);
        free(l->times);
        free(l);
    }
    free(c);
}

/* ---- times ---- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* It lasts from the time ready on, or from its stream's. */
static void last(double ready, double seconds, double *start_s, double *end_s)
{
    *start_s = later(*start_s, ready);
    *end_s   = *start_s + seconds;
}

static weft_status meet_peer(test_carrier *c, link *l, double seconds, double *start_s,
                             double *end_s)
{
    weft_comm_channel *to   = l->send ? l->data : l->back,
                      *from = l->send ? l->back : l->data;
    double mine[2]          = {*start_s, seconds}, other[2];
    WEFT_TRY(weft_comm_send(c->comm, to, mine, sizeof mine));
    WEFT_TRY(weft_comm_recv(c->comm, from, other, sizeof other));
    last(other[0], later(seconds, other[1]), start_s, end_s);
    return WEFT_OK;
}

static weft_status send_time(test_carrier *c, link *l, const weft_instr *i,
                             double seconds, double *start_s, double *end_s)
{
    double credit[2] = {0};
    if (l->count++ >= i->credits)
        WEFT_TRY(weft_comm_recv(c->comm, l->back, credit, sizeof credit));
    last(credit[0], seconds, start_s, end_s);
    double done[2] = {*end_s, i->credits};
    return weft_comm_send(c->comm, l->data, done, sizeof done);
}

static weft_status receive_time(test_carrier *c, link *l, double seconds, double *start_s,
                                double *end_s)
{
    double sent[2] = {0};
    WEFT_TRY(weft_comm_recv(c->comm, l->data, sent, sizeof sent));
    last(sent[0], seconds, start_s, end_s);
    double done[2] = {*end_s, 0};
    return weft_comm_send(c->comm, l->back, done, sizeof done);
}

static weft_status gather_times(test_carrier *c, link *l, double seconds, double *start_s,
                                double *end_s)
{
    double *mine = l->times, *all = mine + 2, ready = 0, longest = 0;
    mine[0] = *start_s;
    mine[1] = seconds;
    WEFT_TRY(weft_comm_collective(c->comm, l->meeting, WEFT_ALL_GATHER, WEFT_DTYPE_F64,
                                  mine, all, 2));
    for (int k = 0; k < c->p->group[l->group].n_rank; k++) {
        ready   = later(ready, all[2 * k]);
        longest = later(longest, all[2 * k + 1]);
    }
    last(ready, longest, start_s, end_s);
    return WEFT_OK;
}

/* ---- over wires ---- */

static weft_comm_part part_of(const weft_instr *i, int t)
{
    int64_t           unit  = weft_instr_unit(i, t);
    bool              whole = unit && i->coll == WEFT_ALL_GATHER;
    const weft_shape *s     = whole ? &i->out[t].type.shape : &i->in[t].type.shape;
    return (weft_comm_part){.count = weft_shape_count(s), .unit = unit};
}

static weft_status exchange(test_carrier *c, link *l, const weft_instr *i)
{
    weft_comm_call call = {.kind = i->coll, .dtype = WEFT_DTYPE_U8, .group = l->meeting};
    if (i->coll == WEFT_BARRIER) return c->comm->op->run(c->comm, &call);
    call.dtype      = i->in[0].type.dtype;
    call.n_lane     = i->lanes;
    call.lane_share = c->p->group[i->group].share;
    if (i->coll == WEFT_SEND_ROWS || i->coll == WEFT_RETURN_ROWS) {
        call.rows = (weft_comm_rows){.width    = i->in[0].type.shape.d[1],
                                     .n_bin    = (int)i->in[1].type.shape.d[1] - 1,
                                     .in_rows  = i->in[0].type.shape.d[0],
                                     .out_rows = i->out[0].type.shape.d[0]};
        return c->comm->op->run(c->comm, &call);
    }
    call.tensor          = part_of(i, 0);
    weft_comm_part *part = calloc((size_t)i->n_in, sizeof *part);
    if (!part) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int t = 0; i->n_out > 1 && t < i->n_in; t++) part[call.n_part++] = part_of(i, t);
    call.part      = part;
    weft_status st = c->comm->op->run(c->comm, &call);
    free(part);
    return st;
}

static weft_status use_wires(test_carrier *c, link *l, const weft_instr *i,
                             double *start_s, double *end_s)
{
    int64_t bytes = (int64_t)weft_instr_bytes(i);
    test_wires_set_moment(*start_s);
    switch (i->kind) {
    case WEFT_INSTR_SEND: WEFT_TRY(weft_comm_send(c->comm, l->data, NULL, bytes)); break;
    case WEFT_INSTR_RECV: WEFT_TRY(weft_comm_recv(c->comm, l->data, NULL, bytes)); break;
    default: WEFT_TRY(exchange(c, l, i));
    }
    *end_s = test_wires_moment();
    return WEFT_OK;
}

weft_status test_carry(void *carrier, const weft_instr *i, double seconds,
                       double *start_s, double *end_s)
{
    test_carrier *c = carrier;
    link         *l = find_link(c, i);
    if (c->wires) return use_wires(c, l, i, start_s, end_s);
    if (i->kind == WEFT_INSTR_COLLECTIVE)
        return gather_times(c, l, seconds, start_s, end_s);
    if (!i->credits) return meet_peer(c, l, seconds, start_s, end_s);
    if (i->kind == WEFT_INSTR_SEND) return send_time(c, l, i, seconds, start_s, end_s);
    return receive_time(c, l, seconds, start_s, end_s);
}
