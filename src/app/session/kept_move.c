#include "session/kept_move.h"

#include <stdlib.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/kept.h"
#include "session/program_state.h"
#include "state/move_batches.h"

/* While it runs. */
typedef struct move_run {
    weft_kept_move   *move;
    weft_mover       *own, **standby; /* n_standby of the move's */
    weft_move_batches batches;
    bool             *wanted; /* by tensor: is it in the batch? */
    bool              makes;  /* pages of this rank's state, which are not all there */
} move_run;

static weft_status open_mover(const weft_kept_move *m, const weft_mover_side *to, int tag,
                              weft_mover **out)
{
    const weft_kept_states *from = m->from;
    if (from->source)
        return weft_mover_open_hosts(from->source, from->holders, to, from->host, m->comm,
                                     tag, out);
    return weft_mover_open_near(from->state, from->holders, to, m->comm->rank, out);
}

/* Numbers of hosts by holder and rank, which comm names by their first ranks.  number[] is of
 * comm's world and the holders. */
static weft_move_hosts number_hosts(const weft_kept_move *m, const int32_t *first,
                                    int32_t *number)
{
    int             world = m->comm->world, n_old = m->from->holders->n_rank;
    weft_move_hosts x = {.old = number + world, .new = number};
    for (int r = 0; r < world; r++) number[r] = first[r] == r ? x.n++ : number[first[r]];
    for (int h = 0; h < n_old; h++) number[world + h] = number[h % world];
    return x;
}

static weft_status make_batches(const weft_kept_move *m, weft_move_batches *out)
{
    const int32_t *first  = weft_comm_hosts_of(m->comm); /* NULL: there is one host */
    int64_t        most   = m->in_batches ? weft_move_largest(m->to.holders) : INT64_MAX;
    size_t         n      = (size_t)m->comm->world + (size_t)m->from->holders->n_rank;
    int32_t       *number = calloc(n + 1, sizeof *number);
    const weft_holders **standby = calloc((size_t)m->n_standby + 1, sizeof *standby);
    weft_move_targets    to      = {m->to.holders, standby, m->n_standby};
    weft_move_hosts      hosts   = {0};
    weft_status          st      = WEFT_ERR_MEM;
    if (number && standby) {
        for (int k = 0; k < m->n_standby; k++) standby[k] = m->standby[k].holders;
        if (first) hosts = number_hosts(m, first, number);
        st = weft_move_batches_make(m->from->holders, &to, first ? &hosts : NULL, most,
                                    out);
    } else {
        st = WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    free(number);
    free(standby);
    return st;
}

static weft_status open_run(weft_kept_move *m, move_run *r)
{
    r->wanted  = calloc((size_t)weft_state_count(m->to.state) + 1, sizeof *r->wanted);
    r->standby = calloc((size_t)m->n_standby + 1, sizeof *r->standby);
    if (!r->wanted || !r->standby) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_TRY(make_batches(m, &r->batches));
    WEFT_TRY(open_mover(m, &m->to, m->tag, &r->own));
    for (int k = 0; k < m->n_standby; k++)
        WEFT_TRY(open_mover(m, &m->standby[k], m->standby_tag + k, &r->standby[k]));
    m->copied   = weft_mover_copied(r->own);
    m->sent     = weft_mover_sent(r->own);
    m->received = weft_mover_received(r->own);
    return WEFT_OK;
}

static void close_run(move_run *r)
{
    weft_mover_close(r->own);
    for (int k = 0; r->standby && k < r->move->n_standby; k++)
        weft_mover_close(r->standby[k]);
    free(r->standby);
    weft_move_batches_fini(&r->batches);
    free(r->wanted);
}

static void want_batch(move_run *r, int batch, bool on)
{
    const weft_move_batches *b = &r->batches;
    for (int i = b->first[batch]; i < b->first[batch + 1]; i++)
        r->wanted[b->tensor[i]] = on;
}

/* Of the tensors of the batch. */
static weft_status make_pages(const move_run *r, const weft_state *s)
{
    weft_comm *end = weft_comm_shared_end(r->move->comm);
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *t = weft_state_at(s, i);
        const weft_memory       *m = weft_state_memory_of(s, i);
        if (!r->wanted[i] || !t->part || t->on_host) continue;
        WEFT_TRY(weft_comm_shm_make_pages(end, (char *)m->address + t->offset,
                                          weft_part_count(t->part) *
                                              weft_dtype_bytes(t->dtype)));
    }
    return WEFT_OK;
}

static weft_status meet_all(const weft_kept_move *m)
{
    if (m->comm->world == 1) return WEFT_OK;
    return weft_comm_collective(m->comm, m->group, WEFT_BARRIER, WEFT_DTYPE_F32, NULL,
                                NULL, 0);
}

/* Makes it, copies it, says so. */
static weft_status fill_batch(move_run *r)
{
    weft_kept_move *m = r->move;
    if (r->makes) {
        WEFT_TRY(make_pages(r, m->to.state));
        for (int k = 0; k < weft_state_n_standby(m->to.state); k++)
            WEFT_TRY(make_pages(r, weft_state_standby(m->to.state, k)));
    }
    WEFT_TRY(weft_mover_run_tensors(r->own, r->wanted));
    for (int k = 0; k < m->n_standby; k++)
        WEFT_TRY(weft_mover_run_tensors(r->standby[k], r->wanted));
    for (int i = 0; i < weft_state_count(m->to.state); i++)
        if (r->wanted[i]) weft_program_state_mark(m->comm, i);
    int64_t pages = weft_comm_shm_count_pages(weft_comm_shared_end(m->comm));
    if (pages > m->peak_bytes) m->peak_bytes = pages; /* the last rank sees all of them */
    weft_failpoint("move.there");
    return WEFT_OK;
}

static weft_status run_batches(move_run *r)
{
    weft_kept_move *m = r->move;
    for (int b = 0; b < r->batches.n; b++) {
        want_batch(r, b, true);
        WEFT_TRY(fill_batch(r));
        if (m->in_batches) {
            WEFT_TRY(meet_all(m));
            weft_failpoint("move.all_there");
            weft_kept_states_give_back(m->from, m->comm, m->to.state, r->wanted);
        }
        want_batch(r, b, false);
    }
    m->n_batch = r->batches.n;
    return WEFT_OK;
}

weft_status weft_kept_move_run(weft_kept_move *m)
{
    const weft_memory *memory = weft_state_memory(m->to.state);
    bool               whole  = weft_state_step(m->to.state) == m->step;
    bool partial  = atomic_load(&weft_program_state_slot(m->comm)->state.step) == m->step;
    move_run    r = {.move = m, .makes = !whole && (m->in_batches || partial)};
    weft_status st = WEFT_OK;
    WEFT_GO(open_run(m, &r));
    weft_program_state_begin_move(m->comm, m->step);
    WEFT_GO(run_batches(&r));
    if (r.makes) /* what no tensor has, and large pages over the borders of batches */
        WEFT_GO(weft_comm_shm_make_pages(weft_comm_shared_end(m->comm), memory->address,
                                         memory->bytes));
out:
    close_run(&r);
    return st;
}

/* ---- slots that have no rank ---- */

typedef struct slot_range {
    int64_t at, end;
} slot_range;

static int compare_ranges(const void *a, const void *b)
{
    const slot_range *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

enum {
    MOST_RANGES = 3 * (1 + WEFT_COMM_SHM_OLDER + WEFT_COMM_SHM_SNAPSHOT) + 1
};

static int add_held(const weft_comm_shm_held *h, int64_t step, slot_range *out)
{
    int64_t at = atomic_load(&h->at), table_at = atomic_load(&h->table_at);
    int64_t computed_at = atomic_load(&h->computed_at);
    if (atomic_load(&h->step) != step && atomic_load(&h->computed_step) != step) return 0;
    out[0] = (slot_range){at, at + atomic_load(&h->bytes)};
    out[1] = (slot_range){table_at, table_at + atomic_load(&h->table_bytes)};
    out[2] = (slot_range){computed_at, computed_at + atomic_load(&h->computed_bytes)};
    return atomic_load(&h->computed_bytes) ? 3 : 2;
}

static void give_back_slot(weft_comm *comm, int number, int64_t step)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_slot *slot = weft_comm_shm_kept_slot_of(end, number);
    const weft_kept    *kept = weft_kept_find_of(comm, number);
    slot_range          keep[MOST_RANGES];
    int64_t             at = 0;
    int                 n  = 0;
    if (!kept) return; /* nothing is there, or what is made for a rank to come */
    at        = atomic_load(&slot->record) - 1;
    keep[n++] = (slot_range){at, at + weft_kept_bytes(kept)};
    n += add_held(&slot->state, step, keep + n);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++)
        n += add_held(&slot->older[k], step, keep + n);
    for (int k = 0; k < WEFT_COMM_SHM_SNAPSHOT; k++)
        n += add_held(&slot->snapshot[k], atomic_load(&slot->snapshot[k].step), keep + n);
    qsort(keep, (size_t)n, sizeof *keep, compare_ranges);
    at = 0;
    for (int i = 0; i < n; i++) {
        char *p = weft_comm_shm_reach(end, number, at, keep[i].at - at);
        if (p) weft_comm_shm_give_back(end, p, keep[i].at - at);
        if (keep[i].end > at) at = keep[i].end;
    }
    weft_comm_shm_give_back_from(end, number, at);
}

void weft_kept_give_back_rest(weft_comm *comm, int64_t step)
{
    const weft_comm *end = weft_comm_shared_end(comm);
    int              at  = end->rank + end->world; /* after those that ranks have */
    for (int slot; (slot = weft_comm_shm_slot_at(end, at)) >= 0; at += end->world)
        if (weft_comm_shm_kept_slot_of(end, slot)) give_back_slot(comm, slot, step);
}
