/* Instructions that talk to other ranks. */
#include "exec/exec_priv.h"

static weft_status open_messages(weft_exec *e, weft_exec__link *l)
{
    weft_comm_side side = l->send ? WEFT_COMM_SEND : WEFT_COMM_RECV;
    return weft_comm_open_channel(e->o.comm, l->peer, side, l->tag, l->bytes, l->credits,
                                  &l->data);
}

static weft_status open_meeting(weft_exec *e, weft_exec__link *l)
{
    const weft_group *g = &e->p->group[l->group];
    l->part             = WEFT_ARENA_ARRAY(e->arena, weft_comm_part, l->n_part + 1);
    l->room.p           = WEFT_ARENA_ARRAY(e->arena, char, l->room.bytes + 1);
    WEFT_TRY(weft_arena_status(e->arena));
    return weft_comm_open_group(e->o.comm, g->n_rank, g->rank, l->tag, &l->meeting);
}

static weft_status add_link(weft_exec *e, weft_exec__link link, weft_exec__link **out)
{
    weft_exec__link *l = weft_arena_memdup(e->arena, &link, sizeof link);
    void            *v = e->link;
    if (!l) return weft_arena_status(e->arena);
    WEFT_TRY(weft_arena_grow(e->arena, &v, &e->cap_link, e->n_link + 1, sizeof *e->link));
    e->link              = v;
    e->link[e->n_link++] = l;
    *out                 = l;
    return WEFT_OK;
}

/* The first n tensors: sizes, and where each is. */
static void fill_parts(const weft_program *p, const weft_instr *i, int n,
                       const weft_view *in, const weft_view *out, weft_comm_part *part)
{
    for (int t = 0; t < n; t++) {
        int64_t           unit  = weft_instr_unit(i, t);
        bool              whole = unit && i->coll == WEFT_ALL_GATHER;
        const weft_shape *s     = whole ? &i->out[t].type.shape : &i->in[t].type.shape;
        part[t] = (weft_comm_part){.count = weft_shape_count(s), .unit = unit};
        if (i->lanes)
            part[t].stride =
                p->buffer[i->in[t].buffer].bytes / weft_dtype_bytes(i->in[t].type.dtype);
        if (in) part[t].in = in[t].p, part[t].out = out[t].p;
    }
}

/* A collective but for its group and its packing memory.  parts: n_in of them where it has several
 * tensors; in and out NULL: sizes only. */
static weft_comm_call call_of(const weft_program *p, const weft_instr *i,
                              const weft_view *in, const weft_view *out,
                              weft_comm_part *part)
{
    weft_comm_call call = {.kind = i->coll, .dtype = WEFT_DTYPE_U8};
    if (i->coll == WEFT_BARRIER) return call;
    call.dtype      = i->in[0].type.dtype;
    call.n_lane     = i->lanes;
    call.lane_share = p->group[i->group].share;
    if (i->coll == WEFT_SEND_ROWS || i->coll == WEFT_RETURN_ROWS) {
        call.tensor = (weft_comm_part){.in = in[0].p, .out = out[0].p};
        call.rows   = (weft_comm_rows){.width    = in[0].shape.d[1],
                                       .n_bin    = (int)in[1].shape.d[1] - 1,
                                       .table    = in[1].p,
                                       .in_rows  = in[0].shape.d[0],
                                       .out_rows = out[0].shape.d[0]};
        return call;
    }
    if (i->n_out > 1) {
        fill_parts(p, i, i->n_in, in, out, part);
        call.n_part = i->n_in;
        call.part   = part;
    } else {
        fill_parts(p, i, 1, in, out, &call.tensor);
    }
    return call;
}

/* A collective of several tensors wants room to pack small ones. */
static weft_status add_room(weft_exec *e, const weft_instr *i, weft_exec__link *l)
{
    const weft_group *g = &e->p->group[i->group];
    if (i->n_in < 2 || i->n_out < 2) return WEFT_OK;
    weft_comm_part *part = WEFT_ARENA_ARRAY(e->arena, weft_comm_part, i->n_in);
    WEFT_TRY(weft_arena_status(e->arena));
    l->room.n = g->n_rank;
    while (g->rank[l->room.me] != e->p->rank) l->room.me++;
    weft_comm_call call  = call_of(e->p, i, NULL, NULL, part);
    int64_t        bytes = weft_comm_room_bytes(e->o.comm, &call, g->n_rank, l->room.me);
    if (bytes > l->room.bytes) l->room.bytes = bytes;
    if (i->n_in > l->n_part) l->n_part = i->n_in;
    return WEFT_OK;
}

/* Addresses are known, links are open. */
static weft_status prepare_call(weft_exec *e, weft_exec__instr *x)
{
    if (!weft_instr_is_comm(x->i)) return WEFT_OK;
    if (x->i->kind != WEFT_INSTR_COLLECTIVE)
        return x->host->link->on_device ? weft_exec__prepare_message(e, x) : WEFT_OK;
    weft_comm_call call =
        call_of(e->p, x->i, x->call.in, x->call.out, x->host->link->part);
    call.group = x->host->link->meeting;
    call.room  = x->host->link->room;
    if (weft_exec__find_device_comm(e, x->s->device, x->i))
        return x->host->link->on_device->backend->prepare(
            x->host->link->device_group, &call, x->i->name, &x->host->device_call);
    return weft_comm_prepare(e->o.comm, &call, &x->host->request);
}

weft_status weft_exec__prepare_calls(weft_exec *e)
{
    if (e->o.carry || e->o.alone) return WEFT_OK;
    for (int a = 0; a < e->p->n_actor; a++)
        for (weft_exec__variant *v = e->actor[a].variant; v; v = v->next)
            for (int n = 0; n < e->p->actor[a].n_instr; n++)
                WEFT_TRY(prepare_call(e, &v->instr[n]));
    return WEFT_OK;
}

weft_status weft_exec__find_link(weft_exec *e, const weft_device *d, const weft_instr *i,
                                 weft_exec__link **out)
{
    weft_exec__link  *l  = NULL;
    weft_device_comm *dc = weft_exec__find_device_comm(e, d, i);
    if (!weft_instr_is_comm(i) || e->o.carry || e->o.alone) return WEFT_OK;
    if (!e->o.comm)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s': there is nothing to communicate over",
                         weft_instr_kind_name(i->kind), i->name);
    bool            meeting = i->kind == WEFT_INSTR_COLLECTIVE;
    weft_exec__link want    = {.tag     = i->tag,
                               .peer    = meeting ? -1 : i->peer,
                               .group   = meeting ? i->group : -1,
                               .send    = i->kind == WEFT_INSTR_SEND,
                               .credits = i->credits};
    for (int k = 0; k < e->n_link && !l; k++)
        if (e->link[k]->tag == want.tag && e->link[k]->peer == want.peer &&
            e->link[k]->group == want.group && e->link[k]->send == want.send)
            l = e->link[k];
    if (!l) WEFT_TRY(add_link(e, want, &l));
    if (dc) l->on_device = dc;
    if ((int64_t)weft_instr_bytes(i) > l->bytes) l->bytes = (int64_t)weft_instr_bytes(i);
    *out = l;
    return meeting ? add_room(e, i, l) : WEFT_OK;
}

weft_status weft_exec__open_links(weft_exec *e)
{
    for (int k = 0; k < e->n_link; k++)
        if (e->link[k]->group >= 0)
            WEFT_TRY(open_meeting(e, e->link[k]));
        else if (!e->link[k]->on_device)
            WEFT_TRY(open_messages(e, e->link[k]));
    return weft_exec__open_device_links(e);
}

/* After a failure peers may be anywhere: links stay open until the communicator goes. */
void weft_exec__close_links(weft_exec *e)
{
    for (int a = 0; e->actor && a < e->p->n_actor; a++)
        for (weft_exec__variant *v = e->actor[a].variant; v; v = v->next)
            for (int n = 0; v->instr && n < e->p->actor[a].n_instr; n++)
                if (v->instr[n].i && v->instr[n].i->kind == WEFT_INSTR_COLLECTIVE &&
                    v->instr[n].host)
                    weft_comm_release(v->instr[n].host->request);
    for (int k = 0; k < e->n_link && !e->stop; k++) {
        (void)weft_comm_close_channel(e->o.comm, e->link[k]->data);
        (void)weft_comm_close_group(e->o.comm, e->link[k]->meeting);
    }
}

weft_status weft_exec__communicate(weft_exec__stream *s, weft_exec__instr *x)
{
    const weft_instr *i  = x->i;
    weft_comm        *c  = s->e->o.comm;
    const weft_view  *in = x->call.in, *out = x->call.out;
    switch (i->kind) {
    case WEFT_INSTR_SEND:
        return weft_comm_send(c, x->host->link->data, in->p,
                              (int64_t)weft_instr_bytes(i));
    case WEFT_INSTR_RECV:
        return weft_comm_recv(c, x->host->link->data, out->p,
                              (int64_t)weft_instr_bytes(i));
    default: break;
    }
    return weft_comm_run_request(x->host->request);
}
