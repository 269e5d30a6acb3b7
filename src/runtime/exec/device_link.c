/* Communication on the device: instructions between ranks that the device's communication
 * backends carry out, in the order of streams like kernels.  All others are host work
 * (link.c). */
#include <string.h>

#include "exec/exec_priv.h"

enum {
    /* a channel's ends meet as a group; its tag is no other group's */
    CHANNEL_TAG = 1 << 29
};

/* The ranks of an instruction: of its group, or sender and receiver. */
static int ranks_of(const weft_program *p, int group, int peer, bool send, int32_t *pair,
                    const int32_t **rank)
{
    if (group >= 0) {
        *rank = p->group[group].rank;
        return p->group[group].n_rank;
    }
    pair[send ? 0 : 1] = p->rank;
    pair[send ? 1 : 0] = peer;
    *rank              = pair;
    return 2;
}

weft_device_comm *weft_exec__find_device_comm(const weft_exec *e, const weft_device *d,
                                              const weft_instr *i)
{
    bool           meets = i->kind == WEFT_INSTR_COLLECTIVE;
    int32_t        pair[2];
    const int32_t *rank;
    if (!weft_instr_is_comm(i) || e->o.price || e->o.carry) return NULL;
    int n = ranks_of(e->p, meets ? i->group : -1, i->peer, i->kind == WEFT_INSTR_SEND,
                     pair, &rank);
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++) {
        weft_device_comm *dc = e->o.device_comm[k];
        if (!dc || dc->device != d || !weft_device_comm_joins(dc, n, rank)) continue;
        if (meets ? i->n_in > 0 && dc->backend->takes(i->coll, i->in[0].type.dtype)
                  : dc->backend->messages)
            return dc;
    }
    return NULL;
}

bool weft_exec__comm_needs_host(const weft_exec *e, const weft_device *d,
                                const weft_instr *i)
{
    const weft_device_comm *dc   = weft_exec__find_device_comm(e, d, i);
    bool                    rows = i->kind == WEFT_INSTR_COLLECTIVE &&
                (i->coll == WEFT_SEND_ROWS || i->coll == WEFT_RETURN_ROWS);
    return !dc || (rows && dc->backend->reads_rows);
}

/* ---- before the first step ---- */

static int compare_links(const weft_exec *e, const weft_exec__link *a,
                         const weft_exec__link *b)
{
    int32_t        pair_a[2], pair_b[2];
    const int32_t *x, *y;
    int            n = ranks_of(e->p, a->group, a->peer, a->send, pair_a, &x);
    int            m = ranks_of(e->p, b->group, b->peer, b->send, pair_b, &y);
    if ((a->group < 0) != (b->group < 0)) return a->group < 0 ? 1 : -1;
    if (a->tag != b->tag) return a->tag < b->tag ? -1 : 1;
    if (n != m) return n < m ? -1 : 1;
    for (int i = 0; i < n; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Members wait for each other when a group is opened or closed, so all ranks do it in one order. */
static weft_exec__link *next_link(const weft_exec *e, const weft_exec__link *last)
{
    weft_exec__link *next = NULL;
    for (int k = 0; k < e->n_link; k++) {
        weft_exec__link *l = e->link[k];
        if (!l->on_device || (last && compare_links(e, l, last) <= 0)) continue;
        if (!next || compare_links(e, l, next) < 0) next = l;
    }
    return next;
}

static weft_status open_link(weft_exec *e, weft_exec__link *l)
{
    int32_t                pair[2];
    weft_device_group_spec spec = {
        .tag = l->tag, .n_slab = e->p->n_slab, .slab = e->slab};
    spec.n = ranks_of(e->p, l->group, l->peer, l->send, pair, &spec.rank);
    while (spec.rank[spec.me] != e->p->rank) spec.me++;
    if (l->group < 0) {
        spec.bytes   = l->bytes;
        spec.credits = l->credits;
        WEFT_TRY(
            weft_comm_open_group(e->o.comm, 2, pair, l->tag + CHANNEL_TAG, &l->meeting));
    }
    spec.largest = l->bytes;
    spec.meeting = l->meeting;
    return l->on_device->backend->open_group(l->on_device, &spec, &l->device_group);
}

weft_status weft_exec__open_device_links(weft_exec *e)
{
    for (weft_exec__link *l = NULL; (l = next_link(e, l));) WEFT_TRY(open_link(e, l));
    return WEFT_OK;
}

weft_status weft_exec__prepare_message(weft_exec *e, weft_exec__instr *x)
{
    bool        send = x->i->kind == WEFT_INSTR_SEND;
    weft_memory at   = {.device  = x->s->device,
                        .space   = WEFT_SPACE_DEVICE,
                        .address = send ? x->call.in->p : x->call.out->p,
                        .bytes   = (int64_t)weft_instr_bytes(x->i)};
    (void)e;
    return x->host->link->on_device->backend->prepare_message(
        x->host->link->device_group, send ? WEFT_COMM_SEND : WEFT_COMM_RECV, &at,
        x->i->name, &x->host->device_call);
}

/* After an error work may be left; the watcher lets it end. */
static void finish_streams(weft_exec *e)
{
    for (int i = 0; i < e->n_stream; i++)
        if (e->stream[i].dev.device) (void)e->stream[i].device->finish(&e->stream[i].dev);
}

/* After graphs are gone. */
void weft_exec__close_device_links(weft_exec *e)
{
    if (next_link(e, NULL)) finish_streams(e);
    for (int a = 0; e->actor && a < e->p->n_actor; a++)
        for (weft_exec__variant *v = e->actor[a].variant; v; v = v->next)
            for (int n = 0; v->instr && n < e->p->actor[a].n_instr; n++) {
                const weft_exec__instr *x = &v->instr[n];
                if (x->i && weft_instr_is_comm(x->i) && x->host && x->host->device_call)
                    x->host->link->on_device->backend->release(x->host->device_call);
            }
    for (weft_exec__link *l = NULL; (l = next_link(e, l));)
        if (l->device_group)
            l->on_device->backend->close_group(l->device_group, e->stop || !e->opened);
}

/* ---- in a step ---- */

weft_status weft_exec__run_on_device(const weft_exec__instr *x)
{
    weft_exec__link *l = x->host->link;
    if (x->s->e->alone) return weft_exec__keep_own_share(x);
    if (x->s->e->o.places_shares && weft_exec__gathers_state(x))
        WEFT_TRY(weft_exec__keep_own_share(x));
    atomic_store_explicit(&l->on_device->step, x->s->job_step + 1, memory_order_relaxed);
    if (l->step != x->s->step) {
        l->step      = x->s->step;
        l->n_message = 0;
    }
    return l->on_device->backend->run(x->host->device_call, &x->s->dev, l->n_message++);
}

void weft_exec__note_device_step(const weft_exec *e, int64_t step)
{
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        if (e->o.device_comm[k])
            atomic_store_explicit(&e->o.device_comm[k]->step, step, memory_order_relaxed);
}

weft_status weft_exec__check_device_comm(const weft_exec *e)
{
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        WEFT_TRY(weft_device_comm_check(e->o.device_comm[k]));
    return WEFT_OK;
}
