#include "session/kept_state.h"

#include <stdlib.h>

#include "comm/hosts.h"
#include "comm/shm.h"
#include "state/table.h"

enum {
    N_OF_SLOT = 1 + WEFT_COMM_SHM_OLDER
};

static weft_comm_shm_held *held_of(weft_comm *end, int slot, int k)
{
    weft_comm_shm_slot *s = weft_comm_shm_kept_slot_of(end, slot);
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

weft_status weft_kept_states_open(weft_comm *comm, weft_device *device, int64_t step,
                                  weft_kept_states *out)
{
    weft_comm        *end    = weft_comm_shared_end(comm);
    int               n_slot = 0;
    weft_kept_states  k      = {0};
    const weft_state *like   = NULL;
    weft_status       st     = WEFT_OK;
    while (weft_comm_shm_kept_slot_of(end, n_slot)) n_slot++;
    k.n     = n_slot * N_OF_SLOT;
    k.state = calloc((size_t)k.n + 1, sizeof *k.state);
    if (!k.state) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int h = 0; h < k.n; h++) {
        const weft_comm_shm_held *x = held_of(end, h % n_slot, h / n_slot);
        WEFT_GO(open_held(end, device, h % n_slot, x, step, &k.state[h]));
        if (!like) like = k.state[h];
    }
    if (like) WEFT_GO(find_holders(&k, like));
    *out = k;
    k    = (weft_kept_states){0};
out:
    weft_kept_states_close(&k);
    return st;
}

void weft_kept_states_close(weft_kept_states *k)
{
    for (int h = 0; h < k->n && k->state; h++) weft_state_destroy(k->state[h]);
    free(k->state);
    weft_holders_destroy(k->holders);
    *k = (weft_kept_states){0};
}
