/* Messages, how vectors are divided into shares and sums into terms, leaving. */
#include "comm/comm.h"

#include "base/hash.h"
#include "base/lanes.h"
#include "comm/call_priv.h"

weft_status weft_comm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                           int64_t bytes)
{
    return c->op->send(c, ch, p, bytes);
}

weft_status weft_comm_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes)
{
    return c->op->recv(c, ch, p, bytes);
}

bool weft_comm_can_send(weft_comm *c, weft_comm_channel *ch)
{
    return !c->op->can_send || c->op->can_send(c, ch);
}

int64_t weft_comm_share_at(int64_t total, int64_t unit, int n, int k)
{
    int64_t units = (total + unit - 1) / unit, more = units % n;
    int64_t at = (units / n * k + (k < more ? k : more)) * unit;
    return at < total ? at : total;
}

uint32_t weft_comm_dealt(const weft_comm_lanes *l, int n)
{
    if (!l->share) return 0;
    return (uint32_t)weft_hash_xxh64(l->share, sizeof *l->share * (size_t)n, 0) | 1;
}

weft_status weft_comm_terms_of(const weft_comm_lanes *l, int n, weft_comm_terms *out)
{
    weft_lanes d = {l->n_lane, n, l->share};
    if (!weft_lanes_right(&d) || l->stride < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d members share %d lanes, %lld elements apart",
                         n, l->n_lane, (long long)l->stride);
    out->n = out->most = 0;
    for (int k = 0; k < n; k++) {
        int first, end, level[WEFT_LANES_MAX_TERM];
        weft_lanes_of(&d, k, &first, &end);
        int m = weft_lanes_terms(first, end, level);
        if (out->n + m > WEFT_COMM_MAX_TERM)
            return WEFT_FAIL(WEFT_ERR_ARG, "%d members and %d lanes: more than %d terms",
                             n, l->n_lane, WEFT_COMM_MAX_TERM);
        if (m > out->most) out->most = m;
        for (int i = 0; i < m; i++, out->n++) {
            out->who[out->n]   = k;
            out->which[out->n] = i;
            out->level[out->n] = level[i];
        }
    }
    return WEFT_OK;
}

void weft_comm_abort(weft_comm *c, const char *why)
{
    c->op->abort(c, why);
}

int weft_comm_list_links(weft_comm *c, weft_comm_link *out, int n)
{
    return c->op->list_links ? c->op->list_links(c, out, n) : 0;
}

weft_status weft_comm_check(weft_comm *c)
{
    return c->op->check ? c->op->check(c) : WEFT_OK;
}

/* ---- notes ---- */

void weft_comm_note(weft_comm *c, int n, const int32_t *rank, uint32_t key, bool waits)
{
    for (int k = 0; c->op->note && k < n; k++)
        if (rank[k] != c->rank) c->op->note(c, rank[k], key, waits);
}

bool weft_comm_is_noted(weft_comm *c, int rank, uint32_t key)
{
    return c->op->noted && c->op->noted(c, rank, key);
}

bool weft_comm_can_note(const weft_comm *c)
{
    return c->op->note != NULL;
}

bool weft_comm_notes_has(const weft_comm_notes *n, uint32_t key)
{
    for (int k = 0; k < WEFT_COMM_MAX_NOTE; k++)
        if (atomic_load(&n->key[k]) == key) return true;
    return false;
}

/* Where all places are taken it is not kept. */
void weft_comm_notes_put(weft_comm_notes *n, uint32_t key, bool waits)
{
    if (waits && weft_comm_notes_has(n, key)) return;
    for (int k = 0; k < WEFT_COMM_MAX_NOTE; k++) {
        uint32_t was = waits ? 0 : key;
        if (atomic_compare_exchange_strong(&n->key[k], &was, waits ? key : 0)) return;
    }
}

/* What has this epoch already is not written: the end's watcher may be reading it. */
void weft_comm_set_epoch(weft_comm *c, uint32_t epoch)
{
    if (c->epoch != epoch) c->epoch = epoch;
}

void weft_comm_destroy(weft_comm *c)
{
    if (!c) return;
    weft_comm__forget_opened(c);
    c->op->destroy(c);
}

void weft_comm_drop(weft_comm *c)
{
    if (!c) return;
    c->op->stop(c);
    weft_comm__forget_opened(c);
    c->op->destroy(c);
}
