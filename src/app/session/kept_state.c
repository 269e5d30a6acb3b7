#include "session/kept_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "state/table.h"

enum {
    FIRST_OLDER = 1 + WEFT_COMM_SHM_SNAPSHOT,
    N_HELD      = FIRST_OLDER + WEFT_COMM_SHM_OLDER,
    /* by a rank that is alone on its host: each, then what each has for up to three other ranks */
    MAX_SERVED = 1024 * 4 * N_HELD
};

static weft_comm_shm_held *held_of(weft_comm *end, int slot, int k)
{
    weft_comm_shm_slot *s = weft_comm_shm_kept_slot_of(end, slot);
    if (k >= FIRST_OLDER) return &s->older[k - FIRST_OLDER];
    return k ? &s->snapshot[k - 1] : &s->state;
}

/* As many as any slot has, of the step. */
static int count_held(weft_comm *end, int n_slot, int64_t step)
{
    int n = 1;
    for (int slot = 0; slot < n_slot && step >= 0; slot++)
        for (int k = n; k < N_HELD; k++)
            if (atomic_load(&held_of(end, slot, k)->step) == step ||
                atomic_load(&held_of(end, slot, k)->computed_step) == step)
                n = k + 1;
    return n;
}

/* *out stays NULL where nothing of the step is there, or its table cannot be read.  Of a step whose
 * gathers are missing it is what the rank has computed itself, also while the rest is moved. */
static weft_status open_held(weft_comm *end, weft_device *device, int slot,
                             const weft_comm_shm_held *h, int64_t step,
                             weft_state_table_last *last, weft_state **out,
                             struct weft_kept_table *where)
{
    bool        whole       = atomic_load(&h->computed_step) != step;
    int64_t     bytes       = atomic_load(&h->bytes);
    int64_t     table_at    = atomic_load(whole ? &h->table_at : &h->computed_at);
    int64_t     table_bytes = atomic_load(whole ? &h->table_bytes : &h->computed_bytes);
    weft_memory m           = {device, WEFT_SPACE_SHARED, NULL, bytes};
    if (step < 0 || (whole && atomic_load(&h->step) != step)) return WEFT_OK;
    m.address   = weft_comm_shm_reach(end, slot, atomic_load(&h->at), bytes);
    void *table = weft_comm_shm_reach(end, slot, table_at, table_bytes);
    if (!m.address || !table) return WEFT_OK;
    *where         = (struct weft_kept_table){table, table_bytes};
    weft_status st = weft_state_table_open_next(table, table_bytes, &m, last, out);
    return st == WEFT_ERR_MEM ? st : WEFT_OK;
}

/* All states name the same tensors in the same order. */
static bool names_alike(const weft_state *s, const weft_state *like, int i)
{
    if (i >= weft_state_count(s)) return false;
    const char *a = weft_state_at(s, i)->name, *b = weft_state_at(like, i)->name;
    return a == b || !strcmp(a, b);
}

/* Who holds what of the tensors of `like`. */
static weft_status find_holders(weft_kept_states *k, const weft_state *like)
{
    int               n    = weft_state_count(like);
    const weft_part **part = calloc((size_t)n * (size_t)k->n + 1, sizeof *part);
    if (!part) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < k->n; h++)
        for (int i = 0; k->state[h] && i < n; i++)
            if (names_alike(k->state[h], like, i))
                part[(size_t)i * (size_t)k->n + (size_t)h] =
                    weft_state_at(k->state[h], i)->part;
    weft_status st = weft_holders_create(n, n ? weft_state_at(like, 0) : NULL, k->n, part,
                                         &k->holders);
    free(part);
    return st;
}

/* What a slot has stays where it is: moves take it before the same from others. */
static weft_status prefer_own_slot(weft_kept_states *k)
{
    int32_t *slot = malloc(sizeof *slot * (size_t)(k->n + 1));
    if (!slot) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < k->n; h++) slot[h] = h % k->n_slot;
    weft_status st = weft_holders_set_hosts(k->holders, slot);
    free(slot);
    return st;
}

/* What states have for other ranks: the first of each, the second of each, ... */
static weft_status add_standby(weft_kept_states *k)
{
    int most = 0, n = k->n_state;
    for (int h = 0; h < n; h++) {
        int m = k->state[h] ? weft_state_n_standby(k->state[h]) : 0;
        if (m > most) most = m;
    }
    size_t       size = sizeof *k->state;
    weft_state **all  = realloc(k->state, (size_t)(1 + most) * (size_t)n * size + size);
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    k->state = all;
    k->n     = (1 + most) * n;
    for (int h = n; h < k->n; h++)
        all[h] = all[h % n] ? weft_state_standby(all[h % n], h / n - 1) : NULL;
    return WEFT_OK;
}

weft_status weft_kept_states_open(weft_comm *comm, weft_device *device, int64_t step,
                                  weft_kept_states *out)
{
    weft_comm        *end    = weft_comm_shared_end(comm);
    int               n_slot = 0;
    weft_kept_states  k      = {0};
    const weft_state *like   = NULL;
    weft_status       st     = WEFT_OK;

    weft_state_table_last last = {0};
    while (weft_comm_shm_kept_slot_of(end, n_slot)) n_slot++;
    int n_state = n_slot * count_held(end, n_slot, step);
    k.n_slot    = n_slot;
    k.n         = n_state;
    k.n_state   = n_state;
    k.state     = calloc((size_t)n_state + 1, sizeof *k.state);
    k.table     = calloc((size_t)n_state + 1, sizeof *k.table);
    if (!k.state || !k.table) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    for (int h = 0; h < n_state; h++) {
        int slot = weft_comm_shm_slot_at(end, h % n_slot);
        if (slot < 0) continue;
        const weft_comm_shm_held *x = held_of(end, slot, h / n_slot);
        WEFT_GO(open_held(end, device, slot, x, step, &last, &k.state[h], &k.table[h]));
        if (!k.state[h]) continue;
        if (!like) like = k.state[h];
    }
    WEFT_GO(add_standby(&k));
    if (like) WEFT_GO(find_holders(&k, like));
    if (like) WEFT_GO(prefer_own_slot(&k));
    *out = k;
    k    = (weft_kept_states){0};
out:
    weft_state_table_last_fini(&last);
    weft_kept_states_close(&k);
    return st;
}

/* ---- between hosts ---- */

static bool has_tensors_of(const weft_state *s, const weft_state *like)
{
    if (weft_state_count(s) != weft_state_count(like)) return false;
    for (int i = 0; i < weft_state_count(s); i++)
        if (!names_alike(s, like, i)) return false;
    return true;
}

/* The states that rank `local` of n on this host serves, in an order that all of them find: of its
 * slot, then of slots that have no rank now.  Returns how many; list NULL: only counts. */
static int list_served(const weft_kept_states *k, const weft_state *like, int local,
                       int n, weft_state **list)
{
    int count = 0;
    for (int slot = local; slot < k->n_slot; slot += n)
        for (int h = slot; h < k->n; h += k->n_slot) {
            if (!k->state[h] || !has_tensors_of(k->state[h], like)) continue;
            if (list) list[count] = k->state[h];
            count++;
        }
    return count;
}

/* The most that a rank serves. */
static weft_status find_most(weft_comm *comm, weft_comm_group *group, int32_t own,
                             int *out)
{
    int32_t *all = calloc((size_t)comm->world, sizeof *all);
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st =
        weft_comm_collective(comm, group, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &own, all, 1);
    *out = 0;
    for (int r = 0; r < comm->world && st == WEFT_OK; r++) {
        if (all[r] < 0 || all[r] > MAX_SERVED)
            st = WEFT_FAIL(WEFT_ERR_PEER, "rank %d failed: it serves %d states", r,
                           all[r]);
        if (all[r] > *out) *out = all[r];
    }
    free(all);
    return st;
}

/* What all ranks serve as their turn-th. */
static weft_status exchange_turn(weft_kept_states *k, const weft_state *like, int turn,
                                 weft_comm *comm, weft_comm_group *group,
                                 weft_holders **out)
{
    weft_state *mine = k->source[(size_t)turn * (size_t)comm->world + (size_t)comm->rank];
    weft_state *none = NULL;
    if (!mine) WEFT_TRY(weft_state_make_empty(like, &none));
    weft_status st = weft_holders_exchange(mine ? mine : none, comm, group, out);
    weft_state_destroy(none);
    return st;
}

static weft_status list_sources(weft_kept_states *k, const weft_state *like,
                                weft_comm *comm, int n_turn)
{
    const weft_comm *end  = weft_comm_shared_end(comm);
    const int32_t   *host = weft_comm_hosts_of(comm);
    int              n    = comm->world * n_turn;
    weft_state     **list = calloc((size_t)k->n + 1, sizeof *list);
    k->source             = calloc((size_t)n + 1, sizeof *k->source);
    k->host               = calloc((size_t)n + 1, sizeof *k->host);
    bool good             = list && k->source && k->host;
    for (int h = 0; good && h < n; h++) k->host[h] = host[h % comm->world];
    for (int local = 0; good && local < end->world; local++) {
        int served = list_served(k, like, local, end->world, list);
        for (int t = 0; t < served && t < n_turn; t++)
            k->source[t * comm->world + end->name[local]] = list[t];
    }
    free(list);
    return good ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

weft_status weft_kept_states_exchange(weft_kept_states *k, const weft_state *like,
                                      weft_comm *comm, weft_comm_group *group)
{
    const weft_comm *end    = weft_comm_shared_end(comm);
    weft_holders   **turn   = NULL;
    int              n_turn = 0;
    int              served = list_served(k, like, end->rank, end->world, NULL);
    weft_status      st     = WEFT_OK;
    WEFT_TRY(find_most(comm, group, served < MAX_SERVED ? served : MAX_SERVED, &n_turn));
    turn = calloc((size_t)n_turn + 1, sizeof *turn);
    if (!turn) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_GO(list_sources(k, like, comm, n_turn));
    for (int t = 0; t < n_turn; t++)
        WEFT_GO(exchange_turn(k, like, t, comm, group, &turn[t]));
    weft_holders_destroy(k->holders);
    k->holders = NULL;
    if (n_turn)
        WEFT_GO(
            weft_holders_join((const weft_holders *const *)turn, n_turn, &k->holders));
    if (n_turn) WEFT_GO(weft_holders_set_hosts(k->holders, k->host));
out:
    for (int t = 0; t < n_turn; t++) weft_holders_destroy(turn[t]);
    free(turn);
    return st;
}

/* ---- giving back ---- */

/* Bytes of a tensor in its state's memory. */
typedef struct tensor_span {
    int64_t from, to;
    bool    gone, now; /* it is not there any more; since this batch */
} tensor_span;

static int compare_spans(const void *a, const void *b)
{
    const tensor_span *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Of what a state holds, or holds for another rank. */
static int add_spans(const weft_state *s, const struct weft_kept_table *table,
                     const bool *tensor, tensor_span *out)
{
    int n = 0;
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *t = weft_state_at(s, i);
        int64_t                  bytes =
            t->part ? weft_part_count(t->part) * weft_dtype_bytes(t->dtype) : 0;
        if (bytes)
            out[n++] = (tensor_span){t->offset, t->offset + bytes,
                                     !weft_state_table_has(table->at, table->bytes, i),
                                     tensor[i]};
    }
    return n;
}

/* A page may have bytes of several tensors: it goes with the last of them. */
static void give_back_spans(weft_comm *end, const weft_memory *m, const tensor_span *span,
                            int n)
{
    int64_t from = 0; /* from where on nothing is there */
    bool    some = false;
    for (int i = 0; i <= n; i++) {
        if (i < n && span[i].gone) {
            some = some || span[i].now;
            continue;
        }
        int64_t to = i < n ? span[i].from : m->bytes;
        if (some && to > from)
            weft_comm_shm_give_back(end, (char *)m->address + from, to - from);
        if (i < n && span[i].to > from) from = span[i].to;
        some = false;
    }
}

static void give_back_state(weft_comm *end, const weft_state *s,
                            const struct weft_kept_table *table, const bool *tensor)
{
    int          n         = weft_state_count(s);
    int          n_standby = weft_state_n_standby(s);
    tensor_span *span = calloc((1 + (size_t)n_standby) * (size_t)n + 1, sizeof *span);
    for (int i = 0; i < n; i++)
        if (tensor[i]) weft_state_table_mark(table->at, table->bytes, i, false);
    weft_failpoint("move.gone");
    if (!span) return; /* the memory is free when the move is over */
    int n_span = add_spans(s, table, tensor, span);
    for (int k = 0; k < n_standby; k++)
        n_span += add_spans(weft_state_standby(s, k), table, tensor, span + n_span);
    qsort(span, (size_t)n_span, sizeof *span, compare_spans);
    give_back_spans(end, weft_state_memory(s), span, n_span);
    free(span);
}

void weft_kept_states_give_back(weft_kept_states *k, weft_comm *comm,
                                const weft_state *to, const bool *tensor)
{
    weft_comm  *end  = weft_comm_shared_end(comm);
    const void *stay = weft_state_memory(to)->address;
    for (int h = 0; h < k->n_state; h++) {
        const weft_state *s    = k->state[h];
        int               held = h / k->n_slot;
        if (!s || (held > 0 && held < FIRST_OLDER) || /* a snapshot */
            h % k->n_slot % end->world != end->rank || !has_tensors_of(s, to) ||
            weft_state_memory(s)->address == stay)
            continue;
        give_back_state(end, s, &k->table[h], tensor);
    }
}

void weft_kept_states_close(weft_kept_states *k)
{
    for (int h = 0; h < k->n_state && k->state; h++) weft_state_destroy(k->state[h]);
    free(k->state);
    free(k->table);
    free(k->source);
    free(k->host);
    weft_holders_destroy(k->holders);
    *k = (weft_kept_states){0};
}
