/* Several tensors in one collective, for transports that know only one.
 *
 * Small ones are copied side by side and go as one, in loads that room holds; larger ones go by
 * themselves: copying them would cost more than the messages.  Who holds what is decided by sizes
 *     that all members know. all_reduce       tensor by tensor; terms of lanes one whole load
 *     behind the other reduce_scatter   share by share: position k's share of every tensor, each
 *     as long as the longest all_gather       the own share of every tensor goes in, everybody's
 *     comes out */
#include <string.h>

#include "base/lanes.h"
#include "comm/comm.h"

enum {
    SMALL = 256 << 10, /* bytes of a tensor, terms counted */
    ROOM  = 4 << 20,
};

typedef struct pack {
    weft_comm            *c;
    const weft_comm_call *call;
    weft_collective       kind;
    int64_t               size; /* of an element */
    const weft_comm_part *part;
    int                   n, me, terms, most; /* own terms, the most of one member */
} pack;

/* Elements of the longest share, and where position k's begins; of the whole. */
static int64_t longest(const pack *k, const weft_comm_part *x)
{
    if (k->kind == WEFT_ALL_REDUCE) return x->count;
    if (x->unit) return weft_comm_share_at(x->count, x->unit, k->n, 1);
    return k->kind == WEFT_ALL_GATHER ? x->count : x->count / k->n;
}

static int64_t share_at(const pack *k, const weft_comm_part *x, int at)
{
    return x->unit ? weft_comm_share_at(x->count, x->unit, k->n, at) : at * longest(k, x);
}

/* Bytes of room that a tensor takes: what is given, and what comes. */
static int64_t needs(const pack *k, const weft_comm_part *x)
{
    int64_t one = longest(k, x) * k->size;
    if (k->kind == WEFT_ALL_REDUCE) return one * k->most;
    if (k->kind == WEFT_ALL_GATHER) return one * (k->n + 1);
    return one * (k->n * k->most + 1);
}

/* Is it sent with others?  All members find the same: they have as much room. */
static bool is_packed(const pack *k, const weft_comm_part *x)
{
    return needs(k, x) <= SMALL && needs(k, x) <= k->call->room.bytes;
}

static pack pack_of(const weft_comm_call *call, int n_member, int me)
{
    int        first, end;
    weft_lanes lanes = {call->n_lane, n_member, call->lane_share};
    pack       k     = {.call  = call,
                        .kind  = call->kind,
                        .size  = weft_dtype_bytes(call->dtype),
                        .part  = call->part,
                        .n     = n_member,
                        .me    = me,
                        .terms = 1,
                        .most  = 1};
    if (!call->n_lane) return k;
    weft_lanes_of(&lanes, me, &first, &end);
    k.terms = weft_lanes_terms(first, end, NULL);
    k.most  = weft_lanes_most_terms(&lanes);
    return k;
}

int64_t weft_comm_room_bytes(const weft_comm *c, const weft_comm_call *call, int n_member,
                             int me)
{
    pack    k     = pack_of(call, n_member, me);
    int64_t bytes = 0;
    int     small = 0;
    if (call->n_part < 2 || n_member < 2 || !c->packs) return 0;
    for (int i = 0; i < call->n_part; i++)
        if (needs(&k, &call->part[i]) <= SMALL)
            bytes += needs(&k, &call->part[i]), small++;
    return small < 2 ? 0 : bytes < ROOM ? bytes : ROOM;
}

/* ---- one tensor ---- */

static weft_status alone(const pack *k, const weft_comm_part *x)
{
    weft_comm_call one = weft_comm_part_call(k->call, x);
    return k->c->op->run(k->c, &one);
}

/* ---- a load ---- */

static void copy(const pack *k, void *to, int64_t at, const void *from, int64_t skip,
                 int64_t count)
{
    if (count > 0)
        memcpy((char *)to + at * k->size, (const char *)from + skip * k->size,
               (size_t)(count * k->size));
}

/* Tensors first .. end - 1 that are small, `one` elements of a share in all. */
typedef struct load {
    int     first, end;
    int64_t one;
    char   *given, *got;
} load;

/* Both ways: what is given goes in, or what came goes out.  at: where a tensor's share begins
 * within one. */
static void pack_in(const pack *k, const load *l, const weft_comm_part *x, int64_t at)
{
    int shares = k->kind == WEFT_REDUCE_SCATTER ? k->n : 1;
    for (int m = 0; m < k->terms; m++)
        for (int s = 0; s < shares; s++) {
            int64_t lo = shares > 1 ? share_at(k, x, s) : 0, n = longest(k, x);
            if (shares > 1) n = share_at(k, x, s + 1) - lo;
            if (k->kind == WEFT_ALL_GATHER)
                n = share_at(k, x, k->me + 1) - share_at(k, x, k->me);
            int64_t to = (m * shares + s) * l->one + at;
            copy(k, l->given, to, x->in, m * x->stride + lo, n);
            if (shares > 1) /* nobody wants it, but it is added */
                memset(l->given + (to + n) * k->size, 0,
                       (size_t)((longest(k, x) - n) * k->size));
        }
}

static void pack_out(const pack *k, const load *l, const weft_comm_part *x, int64_t at)
{
    if (k->kind == WEFT_ALL_GATHER)
        for (int s = 0; s < k->n; s++) {
            int64_t lo = share_at(k, x, s);
            copy(k, x->out, lo, l->got, s * l->one + at, share_at(k, x, s + 1) - lo);
        }
    else if (k->kind == WEFT_ALL_REDUCE)
        copy(k, x->out, 0, l->got, at, x->count);
    else
        copy(k, x->out, 0, l->got, at, share_at(k, x, k->me + 1) - share_at(k, x, k->me));
}

static weft_status go(const pack *k, const load *l)
{
    int64_t        given = k->kind == WEFT_REDUCE_SCATTER ? l->one * k->n : l->one;
    weft_comm_part all = {.in = l->given, .out = l->got, .count = given, .stride = given};
    int64_t        at  = 0;
    for (int i = l->first; i < l->end; i++)
        if (is_packed(k, &k->part[i])) {
            pack_in(k, l, &k->part[i], at);
            at += longest(k, &k->part[i]);
        }
    WEFT_TRY(alone(k, &all));
    at = 0;
    for (int i = l->first; i < l->end; i++)
        if (is_packed(k, &k->part[i])) {
            pack_out(k, l, &k->part[i], at);
            at += longest(k, &k->part[i]);
        }
    return WEFT_OK;
}

/* From tensor `first` on, as many small ones as room holds. */
static load load_from(const pack *k, int first, int n, const weft_comm_room *room)
{
    load    l     = {.first = first, .end = first, .given = room->p, .got = room->p};
    int64_t bytes = 0;
    for (; l.end < n; l.end++) {
        const weft_comm_part *x = &k->part[l.end];
        if (!is_packed(k, x)) continue;
        if (bytes + needs(k, x) > room->bytes) break;
        bytes += needs(k, x);
        l.one += longest(k, x);
    }
    if (k->kind != WEFT_ALL_REDUCE)
        l.got += l.one * k->size * (k->kind == WEFT_REDUCE_SCATTER ? k->n * k->most : 1);
    return l;
}

weft_status weft_comm_run_packed(weft_comm *c, const weft_comm_call *call)
{
    const weft_comm_room *room  = &call->room;
    bool                  packs = room->bytes && call->n_part > 1;
    pack                  k = pack_of(call, packs ? room->n : 1, packs ? room->me : 0);
    k.c                     = c;
    for (int i = 0; i < call->n_part; i++)
        if (!packs || !is_packed(&k, &call->part[i])) WEFT_TRY(alone(&k, &call->part[i]));
    for (int at = 0; packs && at < call->n_part;) {
        load l = load_from(&k, at, call->n_part, room);
        if (l.one) WEFT_TRY(go(&k, &l));
        at = l.end;
    }
    return WEFT_OK;
}
