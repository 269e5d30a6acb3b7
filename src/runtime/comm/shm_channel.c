/* Channels in shared memory: rings of slots.
 *
 *     credits > 0    a slot a credit, each as large as the largest message
 *     credits = 0    two small slots; a message goes through them in chunks, or stays in the
 *                    sender's slab and is read there; the send ends when all was received
 *
 * sent is written by the sender alone, received by the receiver alone, both modulo a multiple of
 * the slots. What a dead sender left in the ring carries its epoch, so its successor goes on
 * behind it. */
#include "comm/shm_priv.h"

#include <string.h>

enum {
    CHUNK = 256 << 10
};

typedef struct slot {
    _Alignas(SHM_LINE) uint32_t epoch;
    uint32_t chunk;  /* of the message, from 0 */
    int64_t  bytes;  /* of the message */
    int64_t  direct; /* offset in the file, or -1: in the slot */
} slot;

typedef struct ring {
    int64_t  bytes, slot_bytes;
    int32_t  credits, n_slot;
    uint64_t data;     /* offset */
    int32_t  n_closed; /* sides that have closed it */
    _Alignas(SHM_LINE) shm_word sent;
    _Atomic uint32_t given_up; /* epoch + 1 of a send that ended before it was received */
    _Alignas(SHM_LINE) shm_word received;
    slot slot[];
} ring;

struct weft_comm_channel {
    shm_end *e;
    ring    *r;
    int      peer, tag;
    bool     send;
    int32_t  key[5]; /* in the directory */
    int32_t  n_slot; /* own copies: what a peer could damage is not relied on */
    int64_t  bytes, slot_bytes;
    int      credits;
    char    *data;
};

static weft_status check_equal(const weft_comm_channel *ch, int from, int to)
{
    if (ch->r->bytes == ch->bytes && ch->r->credits == ch->credits &&
        ch->r->n_slot == ch->n_slot && ch->r->slot_bytes == ch->slot_bytes && ch->r->data)
        return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "tag %d from rank %d to rank %d: one side has %lld bytes and %d "
                     "credits, the other %lld and %d",
                     ch->tag, weft_comm_name(&ch->e->c, from),
                     weft_comm_name(&ch->e->c, to), (long long)ch->r->bytes,
                     ch->r->credits, (long long)ch->bytes, ch->credits);
}

weft_status weft_comm__shm_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                        int tag, uint32_t instance, int64_t bytes,
                                        int credits, weft_comm_channel **out)
{
    shm_end           *e    = shm_of(c);
    bool               send = side == WEFT_COMM_SEND, fresh;
    int                from = send ? c->rank : peer, to = send ? peer : c->rank;
    int32_t            key[5] = {'c', tag, (int32_t)instance, from, to};
    void              *body;
    uint64_t           at;
    weft_status        st = WEFT_OK;
    weft_comm_channel *ch = weft_comm__shm_keep(e, sizeof *ch);
    if (!ch) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *ch = (weft_comm_channel){.e       = e,
                              .peer    = peer,
                              .tag     = tag,
                              .bytes   = bytes,
                              .credits = credits,
                              .send    = send};
    memcpy(ch->key, key, sizeof key);
    ch->n_slot         = credits ? credits : 2;
    ch->slot_bytes     = credits || bytes < CHUNK ? bytes : CHUNK;
    ch->slot_bytes     = (ch->slot_bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
    int64_t body_bytes = (int64_t)(sizeof(ring) + sizeof(slot) * (size_t)ch->n_slot);

    WEFT_TRY(weft_comm__shm_lock(e));
    WEFT_GO(weft_comm__shm_find_entry(e, key, 5, body_bytes, &body, &fresh));
    ch->r = body;
    if (fresh) {
        WEFT_GO(weft_comm__shm_heap_alloc(e, ch->slot_bytes * ch->n_slot, &at));
        ch->r->bytes      = bytes;
        ch->r->credits    = credits;
        ch->r->n_slot     = ch->n_slot;
        ch->r->slot_bytes = ch->slot_bytes;
        ch->r->data       = at;
    }
    WEFT_GO(check_equal(ch, from, to));
    ch->data =
        weft_comm__shm_heap_at(e, ch->r->data, (uint64_t)(ch->slot_bytes * ch->n_slot));
    if (!ch->data)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_PEER, "the ring from or to rank %d is damaged", peer));
    if (!send) {
        WEFT_GO(weft_comm__shm_populate(ch->data, ch->slot_bytes * ch->n_slot));
        c->bytes += ch->slot_bytes * ch->n_slot;
    }
    *out = ch;
out:
    weft_comm__shm_unlock(e);
    return st;
}

/* The last of the two sides frees it. */
weft_status weft_comm__shm_close_channel(weft_comm *c, weft_comm_channel *ch)
{
    shm_end *e     = ch->e;
    int64_t  bytes = ch->slot_bytes * ch->n_slot;
    if (!ch->send) c->bytes -= bytes;
    WEFT_TRY(weft_comm__shm_lock(e));
    if (++ch->r->n_closed == 2) {
        weft_comm__shm_heap_free(e, ch->r->data, bytes);
        weft_comm__shm_remove_entry(
            e, ch->key, 5, (int64_t)(sizeof(ring) + sizeof(slot) * (size_t)ch->n_slot));
    }
    weft_comm__shm_unlock(e);
    weft_comm__shm_discard(e, ch);
    return WEFT_OK;
}

/* ---- counters ---- */

static uint32_t modulus(const weft_comm_channel *ch)
{
    return (UINT32_C(1) << 30) / (uint32_t)ch->n_slot * (uint32_t)ch->n_slot;
}

static uint32_t waiting(const weft_comm_channel *ch)
{
    uint32_t s = atomic_load_explicit(&ch->r->sent.v, memory_order_acquire);
    uint32_t r = atomic_load_explicit(&ch->r->received.v, memory_order_acquire);
    return s >= r ? s - r : s + modulus(ch) - r;
}

static void step(const weft_comm_channel *ch, shm_word *w)
{
    uint32_t v = atomic_load_explicit(&w->v, memory_order_relaxed) + 1;
    atomic_store(&w->v, v == modulus(ch) ? 0 : v);
    weft_comm__shm_wake(w);
}

static slot *slot_at(const weft_comm_channel *ch, const shm_word *w, char **data)
{
    uint32_t i = atomic_load_explicit(&w->v, memory_order_relaxed) % (uint32_t)ch->n_slot;
    *data      = ch->data + (int64_t)i * ch->slot_bytes;
    return &ch->r->slot[i];
}

static weft_status silent(const weft_comm_channel *ch, const char *what, bool gone)
{
    const weft_comm *c = &ch->e->c;
    if (gone)
        return WEFT_FAIL(
            WEFT_ERR_PEER,
            "rank %d is silent: it is gone while rank %d waits to %s (tag %d)",
            weft_comm_name(c, ch->peer), weft_comm_name(c, c->rank), what, ch->tag);
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d is silent: rank %d waited %g s to %s (tag %d)",
                     weft_comm_name(c, ch->peer), weft_comm_name(c, c->rank),
                     c->timeout_s, what, ch->tag);
}

/* Waits until lo <= messages waiting <= hi; w is the word that the peer moves. */
static weft_status wait_count(weft_comm_channel *ch, shm_word *w, uint32_t lo,
                              uint32_t hi, const char *what, double *deadline)
{
    shm_end *e    = ch->e;
    bool     late = false;
    for (;;) {
        uint32_t seen  = atomic_load_explicit(&w->v, memory_order_acquire);
        uint32_t alarm = atomic_load(&e->head->alarm.v);
        bool     gone  = weft_comm__shm_gone(e, ch->peer);
        uint32_t n     = waiting(ch);
        if (n > (uint32_t)ch->n_slot)
            return WEFT_FAIL(WEFT_ERR_PEER, "the ring from or to rank %d is damaged",
                             ch->peer);
        if (n >= lo && n <= hi) return WEFT_OK;
        if (late || gone) {
            WEFT_TRY(weft_comm__shm_check(e));
            return silent(ch, what, gone);
        }
        if (weft_comm__shm_spin(w, seen, SHM_ALL, e->spin)) continue;
        WEFT_TRY(weft_comm__shm_check(e));
        if (*deadline <= 0 && weft_comm__shm_yield(w, seen, SHM_ALL)) continue;
        late = weft_comm__shm_sleep(e, w, seen, SHM_ALL, alarm, deadline) == SHM_LATE;
    }
}

/* ---- messages ---- */

weft_status weft_comm__shm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes)
{
    shm_end *e        = ch->e;
    double   deadline = 0;
    if (bytes > ch->bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "a message of %lld bytes over a channel of %lld",
                         (long long)bytes, (long long)ch->bytes);
    WEFT_TRY(weft_comm__shm_check(e));
    shm_tell_epoch(e);
    int64_t direct = -1, at = 0;
    if (!ch->credits && bytes > ch->slot_bytes)
        direct = weft_comm__shm_offset(e, p, bytes);
    for (uint32_t chunk = 0; !chunk || (direct < 0 && at < bytes); chunk++) {
        char   *data;
        int64_t n = bytes - at < ch->slot_bytes ? bytes - at : ch->slot_bytes;
        WEFT_TRY(wait_count(ch, &ch->r->received, 0, (uint32_t)ch->n_slot - 1, "send",
                            &deadline));
        slot *s   = slot_at(ch, &ch->r->sent, &data);
        s->epoch  = c->epoch;
        s->chunk  = chunk;
        s->bytes  = bytes;
        s->direct = direct;
        if (direct < 0 && n) memcpy(data, (const char *)p + at, (size_t)n);
        at += n;
        step(ch, &ch->r->sent);
    }
    if (ch->credits) return WEFT_OK;
    weft_status st = wait_count(ch, &ch->r->received, 0, 0, "send", &deadline);
    if (st != WEFT_OK) atomic_store(&ch->r->given_up, c->epoch + 1);
    return st;
}

bool weft_comm__shm_can_send(weft_comm *c, weft_comm_channel *ch)
{
    (void)c;
    return waiting(ch) < (uint32_t)ch->n_slot || weft_comm__shm_gone(ch->e, ch->peer) ||
           weft_comm__shm_check(ch->e) != WEFT_OK;
}

/* Copies a chunk out of its slot, or a whole message out of the sender's slab. */
static weft_status take(weft_comm_channel *ch, const slot *s, const char *data, char *p,
                        int64_t bytes, int64_t *at)
{
    int64_t left = bytes - *at, n = left < ch->slot_bytes ? left : ch->slot_bytes;
    if (s->direct >= 0) {
        data = weft_comm__shm_slab(ch->e, s->direct, bytes);
        n    = bytes;
        if (!data || *at)
            return WEFT_FAIL(WEFT_ERR_PEER, "the message of rank %d is damaged",
                             ch->peer);
    }
    for (int64_t i = 0; i < n; i += SHM_PIECE) {
        WEFT_TRY(weft_comm__shm_check(ch->e));
        memcpy(p + *at + i, data + i, (size_t)(n - i < SHM_PIECE ? n - i : SHM_PIECE));
    }
    *at += n;
    if (s->direct >= 0 && atomic_load(&ch->r->given_up) > ch->e->c.epoch) {
        WEFT_TRY(weft_comm__shm_check(ch->e));
        return silent(ch, "receive", true); /* the sender's memory is its own again */
    }
    return WEFT_OK;
}

weft_status weft_comm__shm_recv(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes)
{
    double  deadline = 0;
    int64_t at       = 0;
    WEFT_TRY(weft_comm__shm_check(ch->e));
    shm_tell_epoch(ch->e);
    for (uint32_t chunk = 0; !chunk || at < bytes;) {
        char *data;
        WEFT_TRY(
            wait_count(ch, &ch->r->sent, 1, (uint32_t)ch->n_slot, "receive", &deadline));
        slot *s = slot_at(ch, &ch->r->received, &data);
        if (s->epoch >= c->epoch) {
            if (s->bytes != bytes)
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "rank %d sent %lld bytes with tag %d, rank %d expected %lld",
                    weft_comm_name(c, ch->peer), (long long)s->bytes, ch->tag,
                    weft_comm_name(c, c->rank), (long long)bytes);
            if (s->chunk != chunk++)
                return WEFT_FAIL(WEFT_ERR_PEER, "the message of rank %d is damaged",
                                 ch->peer);
            WEFT_TRY(take(ch, s, data, p, bytes, &at));
        }
        step(ch, &ch->r->received);
    }
    return WEFT_OK;
}
