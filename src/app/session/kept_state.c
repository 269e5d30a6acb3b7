#include "session/kept_state.h"

#include <stdlib.h>

#include "comm/hosts.h"
#include "comm/shm.h"
#include "state/table.h"

enum {
    N_HELD     = 1 + WEFT_COMM_SHM_OLDER + WEFT_COMM_SHM_SNAPSHOT,
    N_OF_SLOT  = 2 * N_HELD,      /* each, then what each has for another rank */
    MAX_SERVED = 1024 * N_OF_SLOT /* by a rank that is alone on its host */
};

static weft_comm_shm_held *held_of(weft_comm *end, int slot, int k)
{
    weft_comm_shm_slot *s = weft_comm_shm_kept_slot_of(end, slot);
    if (k > WEFT_COMM_SHM_OLDER) return &s->snapshot[k - 1 - WEFT_COMM_SHM_OLDER];
    return k ? &s->older[k - 1] : &s->state;
}

/* *out stays NULL where nothing of the step is there, or its table cannot be read. */
static weft_status open_held(weft_comm *end, weft_device *device, int slot,
                             const weft_comm_shm_held *h, int64_t step, weft_state **out)
{
    int64_t     bytes       = atomic_load(&h->bytes);
    int64_t     table_bytes = atomic_load(&h->table_bytes);
    weft_memory m           = {device, WEFT_SPACE_SHARED, NULL, bytes};
    if (step < 0 || atomic_load(&h->step) != step) return WEFT_OK;
    m.address   = weft_comm_shm_reach(end, slot, atomic_load(&h->at), bytes);
    void *table = weft_comm_shm_reach(end, slot, atomic_load(&h->table_at), table_bytes);
    if (!m.address || !table) return WEFT_OK;
    weft_status st = weft_state_table_open(table, table_bytes, &m, out);
    return st == WEFT_ERR_MEM ? st : WEFT_OK;
}

/* Who holds what of the tensors of `like`. */
static weft_status find_holders(weft_kept_states *k, const weft_state *like)
{
    int               n    = weft_state_count(like);
    const weft_part **part = calloc((size_t)n * (size_t)k->n + 1, sizeof *part);
    if (!part) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < k->n; h++)
        for (int i = 0; k->state[h] && i < n; i++) {
            int at = weft_state_find(k->state[h], weft_state_at(like, i)->name);
            /* all name the same tensors in the same order */
            if (at == i)
                part[(size_t)i * (size_t)k->n + (size_t)h] =
                    weft_state_at(k->state[h], at)->part;
        }
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

weft_status weft_kept_states_open(weft_comm *comm, weft_device *device, int64_t step,
                                  weft_kept_states *out)
{
    weft_comm        *end    = weft_comm_shared_end(comm);
    int               n_slot = 0;
    weft_kept_states  k      = {0};
    const weft_state *like   = NULL;
    weft_status       st     = WEFT_OK;
    while (weft_comm_shm_kept_slot_of(end, n_slot)) n_slot++;
    k.n_slot = n_slot;
    k.n      = n_slot * N_OF_SLOT;
    k.state  = calloc((size_t)k.n + 1, sizeof *k.state);
    if (!k.state) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < n_slot * N_HELD; h++) {
        const weft_comm_shm_held *x = held_of(end, h % n_slot, h / n_slot);
        WEFT_GO(open_held(end, device, h % n_slot, x, step, &k.state[h]));
        if (!k.state[h]) continue;
        if (!like) like = k.state[h];
        k.state[n_slot * N_HELD + h] = weft_state_standby(k.state[h]);
    }
    if (like) WEFT_GO(find_holders(&k, like));
    if (like) WEFT_GO(prefer_own_slot(&k));
    *out = k;
    k    = (weft_kept_states){0};
out:
    weft_kept_states_close(&k);
    return st;
}

/* ---- between hosts ---- */

static bool has_tensors_of(const weft_state *s, const weft_state *like)
{
    if (weft_state_count(s) != weft_state_count(like)) return false;
    for (int i = 0; i < weft_state_count(s); i++)
        if (weft_state_find(s, weft_state_at(like, i)->name) != i) return false;
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
    weft_state      *list[MAX_SERVED];
    k->source = calloc((size_t)n + 1, sizeof *k->source);
    k->host   = calloc((size_t)n + 1, sizeof *k->host);
    if (!k->source || !k->host) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < n; h++) k->host[h] = host[h % comm->world];
    for (int local = 0; local < end->world; local++) {
        int served = list_served(k, like, local, end->world, list);
        for (int t = 0; t < served && t < n_turn; t++)
            k->source[t * comm->world + end->name[local]] = list[t];
    }
    return WEFT_OK;
}

weft_status weft_kept_states_exchange(weft_kept_states *k, const weft_state *like,
                                      weft_comm *comm, weft_comm_group *group)
{
    const weft_comm *end              = weft_comm_shared_end(comm);
    weft_holders    *turn[MAX_SERVED] = {0};
    int              n_turn           = 0;
    int              served           = list_served(k, like, end->rank, end->world, NULL);
    weft_status      st               = WEFT_OK;
    WEFT_GO(find_most(comm, group, served < MAX_SERVED ? served : MAX_SERVED, &n_turn));
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
    return st;
}

void weft_kept_states_close(weft_kept_states *k)
{
    for (int h = 0; h < k->n / 2 && k->state; h++) weft_state_destroy(k->state[h]);
    free(k->state);
    free(k->source);
    free(k->host);
    weft_holders_destroy(k->holders);
    *k = (weft_kept_states){0};
}
