#include "session/program_state.h"

#include <string.h>

#include "base/hash.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/computed_state.h"
#include "state/table.h"

static int find_slab(const weft_program *p, weft_slab_kind kind)
{
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind == kind) return i;
    return -1;
}

int weft_program_state_slab(const weft_program *p)
{
    return find_slab(p, WEFT_SLAB_STATE);
}

int weft_program_host_state_slab(const weft_program *p)
{
    return find_slab(p, WEFT_SLAB_HOST_STATE);
}

/* ---- memory ---- */

static bool uses_slab(const weft_program *p, const weft_instr *i, int slab)
{
    for (int k = 0; k < i->n_in; k++)
        if (p->buffer[i->in[k].buffer].slab == slab) return true;
    for (int k = 0; k < i->n_out; k++)
        if (p->buffer[i->out[k].buffer].slab == slab) return true;
    return false;
}

/* Gradients, and parameters that ranks give each other parts of: where ranks share memory,
 * collectives work on them where they are. */
static bool peers_reach(const weft_program *p, int slab)
{
    if (p->slab[slab].kind == WEFT_SLAB_STAGING ||
        weft_slab_kind_is_host(p->slab[slab].kind))
        return false;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++) {
            const weft_instr *q = &p->actor[a].instr[i];
            if (q->kind == WEFT_INSTR_COLLECTIVE && uses_slab(p, q, slab)) return true;
        }
    return false;
}

/* used: with what is there. */
static weft_status share_slab(const weft_program *p, int slab, bool used, weft_comm *comm,
                              weft_device *device, weft_memory *out)
{
    weft_comm *end = weft_comm_shared_end(comm);
    *out           = (weft_memory){0};
    if (!device->host_access || !end) return WEFT_OK;
    /* of a rank whose place another process may take all outlives it */
    if (!peers_reach(p, slab) && !weft_comm_shm_kept_slot(end)) return WEFT_OK;
    weft_memory m = {device, WEFT_SPACE_SHARED, NULL, p->slab[slab].bytes};
    WEFT_TRY(used ? weft_comm_shm_alloc_used(end, m.bytes, &m.address)
                  : weft_comm_shm_alloc(end, m.bytes, &m.address));
    *out = m;
    return WEFT_OK;
}

weft_status weft_program_slab_share(const weft_program *p, int slab, weft_comm *comm,
                                    weft_device *device, weft_memory *out)
{
    return share_slab(p, slab, true, comm, device, out);
}

weft_status weft_program_slab_adopt(const weft_program *p, int slab, weft_comm *comm,
                                    weft_device *device, int64_t at, weft_memory *out)
{
    weft_memory m = {device, WEFT_SPACE_SHARED, NULL, p->slab[slab].bytes};
    WEFT_TRY(weft_comm_shm_adopt(weft_comm_shared_end(comm), at, m.bytes, &m.address));
    *out = m;
    return WEFT_OK;
}

int64_t weft_program_slab_find(weft_comm *comm, const weft_memory *m)
{
    weft_comm *end = weft_comm_shared_end(comm);
    int64_t    at  = -1;
    if (!end || m->space != WEFT_SPACE_SHARED ||
        weft_comm_shm_find(end, m->address, &at) != weft_comm_shm_own_slot(end))
        return -1;
    return at;
}

void weft_program_slab_free(weft_comm *comm, weft_memory *m)
{
    if (m->space != WEFT_SPACE_SHARED) {
        weft_device_free(m);
        return;
    }
    weft_comm_shm_free(weft_comm_shared_end(comm), m->address);
    *m = (weft_memory){0};
}

static void free_slab(void *arg, weft_memory *m)
{
    weft_program_slab_free(arg, m);
}

/* ---- tensors ---- */

static bool is_kept(const weft_graph_value *v)
{
    return v->kind == WEFT_VALUE_PARAM || (v->kind == WEFT_VALUE_STATE && v->node < 0);
}

/* Bytes from the beginning of the slab. */
static int64_t offset_of(const weft_program *p, const weft_binding *b)
{
    return p->buffer[b->at.buffer].offset +
           b->at.offset * weft_dtype_bytes(b->at.type.dtype);
}

/* Where the program has a parameter or state, or (standby from 1 on) has it for another rank; its
 * part is in a. */
static weft_status describe_tensor(const weft_compiled *made, const weft_graph_value *v,
                                   int standby, weft_arena *a, weft_state_tensor *out)
{
    const char *name = v->name;
    if (standby) name = weft_standby_name(a, standby - 1, name);
    WEFT_TRY(weft_arena_status(a));
    const weft_binding *b = weft_program_find(made->program, name);
    *out                  = (weft_state_tensor){
                         .name = v->name, .dtype = v->type.dtype, .shape = v->type.shape};
    if (!b) return WEFT_OK;
    weft_part *part = WEFT_ARENA_NEW(a, weft_part);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(standby ? weft_compiled_standby_part_of(made, standby - 1, v->name, a, part)
                     : weft_compiled_part_of(made, v->name, a, part));
    int slab = made->program->buffer[b->at.buffer].slab;
    if (weft_part_count(part) != weft_shape_count(&b->at.type.shape) ||
        !weft_slab_kind_is_state(made->program->slab[slab].kind))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: its part and its memory differ",
                         v->name);
    out->part    = part;
    out->offset  = offset_of(made->program, b);
    out->on_host = made->program->slab[slab].kind == WEFT_SLAB_HOST_STATE;
    return WEFT_OK;
}

static weft_status add_tensors(const weft_compiled *made, int standby, weft_state *s)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    for (weft_vid v = 0; v < made->graph->n_value; v++) {
        weft_state_tensor t;
        if (!is_kept(&made->graph->value[v])) continue;
        WEFT_GO(describe_tensor(made, &made->graph->value[v], standby, tmp, &t));
        WEFT_GO(weft_state_add(s, &t));
    }
out:
    weft_arena_destroy(tmp);
    return st;
}

/* Takes the memory of the slab: release frees it, also on failure. */
static weft_status make_state(const weft_compiled *made, const weft_memory *m,
                              weft_state_free_fn release, void *arg, weft_state **out)
{
    weft_state *s  = NULL, *standby;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_state_create_over(m, release, arg, &s));
    WEFT_GO(weft_state_add_host_memory(
        s, weft_program_bytes(made->program, WEFT_SLAB_HOST_STATE)));
    WEFT_GO(add_tensors(made, 0, s));
    for (int k = 1; k <= weft_program_n_standby(made->program); k++) {
        WEFT_GO(weft_state_add_standby(s, &standby));
        WEFT_GO(add_tensors(made, k, standby));
    }
    *out = s;
    s    = NULL;
out:
    weft_state_destroy(s);
    return st;
}

static weft_status create_state(const weft_compiled *made, bool used, weft_comm *comm,
                                weft_device *device, weft_state **out)
{
    const weft_program *p    = made->program;
    int                 slab = weft_program_state_slab(p);
    weft_memory         m    = {0};
    if (slab >= 0) WEFT_TRY(share_slab(p, slab, used, comm, device, &m));
    if (!m.address)
        WEFT_TRY(weft_device_alloc(device, WEFT_SPACE_DEVICE,
                                   slab < 0 ? 0 : p->slab[slab].bytes, &m));
    return make_state(made, &m, free_slab, comm, out);
}

weft_status weft_program_state_create(const weft_compiled *made, weft_comm *comm,
                                      weft_device *device, weft_state **out)
{
    return create_state(made, false, comm, device, out);
}

/* ---- that outlives a rank ---- */

weft_comm_shm_slot *weft_program_state_slot(weft_comm *comm)
{
    weft_comm *end = weft_comm_shared_end(comm);
    return end ? weft_comm_shm_kept_slot(end) : NULL;
}

static void hash_tensors(weft_hash_state *h, const weft_state *s)
{
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *t     = weft_state_at(s, i);
        int64_t                  of[3] = {t->dtype, t->offset, t->part != NULL};
        weft_hash_add(h, t->name, strlen(t->name) + 1);
        weft_hash_add(h, of, sizeof of);
        for (int d = 0; t->part && d < t->part->shape.n; d++) {
            weft_hash_add(h, &t->part->shape.d[d], sizeof t->part->shape.d[d]);
            weft_hash_add(h, t->part->run[d],
                          sizeof *t->part->run[d] * (size_t)t->part->n[d]);
        }
    }
}

/* Names, types, parts and offsets, also of what is held for another rank. */
uint64_t weft_program_state_layout(const weft_state *s)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    hash_tensors(&h, s);
    for (int k = 0; k < weft_state_n_standby(s); k++)
        hash_tensors(&h, weft_state_standby(s, k));
    return weft_hash_value(&h);
}

/* Memory of the rank's own slab, by its offset. */
static void free_range(weft_comm *end, int64_t at, int64_t bytes)
{
    void *p = weft_comm_shm_reach(end, weft_comm_shm_own_slot(end), at, bytes);
    if (p) weft_comm_shm_free(end, p);
}

/* Is it of a step, all of it or what its rank has computed? */
static bool is_of_step(weft_comm_shm_held *h)
{
    return atomic_load(&h->step) >= 0 || atomic_load(&h->computed_step) >= 0;
}

static void forget_held(weft_comm *end, weft_comm_shm_held *h)
{
    if (!is_of_step(h)) return;
    atomic_store(&h->step, -1);
    atomic_store(&h->computed_step, -1);
    free_range(end, atomic_load(&h->at), atomic_load(&h->bytes));
    free_range(end, atomic_load(&h->table_at), atomic_load(&h->table_bytes));
    free_range(end, atomic_load(&h->computed_at), atomic_load(&h->computed_bytes));
}

static bool holds_step(weft_comm_shm_held *h, int64_t step)
{
    return step >= 0 &&
           (atomic_load(&h->step) == step || atomic_load(&h->computed_step) == step);
}

bool weft_program_state_holds(weft_comm_shm_slot *slot, int64_t step)
{
    bool holds = holds_step(&slot->state, step);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++)
        holds = holds || holds_step(&slot->older[k], step);
    return holds;
}

void weft_program_state_mark_computed(weft_comm_shm_slot *slot, int64_t step)
{
    weft_comm_shm_held *h = &slot->state;
    atomic_store(atomic_load(&h->computed_bytes) ? &h->computed_step : &h->step, step);
}

/* The memory and its tables are taken, or none of them. */
static bool adopt_ranges(weft_comm *end, weft_comm_shm_held *h)
{
    int64_t at[3]    = {atomic_load(&h->at), atomic_load(&h->table_at),
                        atomic_load(&h->computed_at)};
    int64_t bytes[3] = {atomic_load(&h->bytes), atomic_load(&h->table_bytes),
                        atomic_load(&h->computed_bytes)};
    void   *p;
    for (int k = 0; k < 3; k++) {
        if (k == 2 && !bytes[k]) continue;
        if (weft_comm_shm_adopt(end, at[k], bytes[k], &p) == WEFT_OK) continue;
        while (k-- > 0) free_range(end, at[k], bytes[k]);
        return false;
    }
    return true;
}

/* What is described twice, as while a description moves, is reserved once.  unfinished: it is of no
 * step, and stays. */
static void reserve_held(weft_comm *end, weft_comm_shm_held *h, int64_t step,
                         bool unfinished)
{
    if ((unfinished || holds_step(h, step)) && adopt_ranges(end, h)) return;
    atomic_store(&h->step, -1);
    atomic_store(&h->computed_step, -1);
    atomic_store(&h->bytes, 0);
}

/* What says which tensors of it are there; *bytes: of the table. */
static void *table_of(weft_comm *end, const weft_comm_shm_held *h, int64_t *bytes)
{
    *bytes = atomic_load(&h->table_bytes);
    return weft_comm_shm_reach(end, weft_comm_shm_own_slot(end),
                               atomic_load(&h->table_at), *bytes);
}

/* Of how many tensors; -1: nothing says so. */
static int count_there(weft_comm *end, const weft_comm_shm_held *h, int *all)
{
    int64_t     bytes;
    const void *table = table_of(end, h, &bytes);
    *all              = 0;
    return table ? weft_state_table_count(table, bytes, all) : -1;
}

/* The target of a move that was broken off before it had anything, or a source that has nothing
 * left. */
static void forget_empty(weft_comm *end, weft_comm_shm_held *h)
{
    int all;
    if (atomic_load(&h->computed_step) < 0 && atomic_load(&h->step) >= 0 &&
        count_there(end, h, &all) == 0 && all)
        forget_held(end, h);
}

void weft_program_state_reserve(weft_comm *comm, int64_t step, bool unfinished)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_slot *slot = weft_program_state_slot(comm);
    int                 n    = 0;
    reserve_held(end, &slot->state, step, unfinished);
    if (!unfinished) forget_empty(end, &slot->state);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++) {
        reserve_held(end, &slot->older[k], step, false);
        forget_empty(end, &slot->older[k]);
        n += is_of_step(&slot->older[k]);
    }
    /* One place is left for the state, before ranks look at what slots have.  Where so many moves
     * were broken off that it is not: the oldest is what all ranks had. */
    if (n == WEFT_COMM_SHM_OLDER && !unfinished) forget_held(end, &slot->state);
}

void weft_program_state_settle(weft_comm *comm, bool give_back)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_slot *slot = weft_program_state_slot(comm);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++) {
        weft_comm_shm_held *h     = &slot->older[k];
        int64_t             bytes = atomic_load(&h->bytes);
        void               *p     = weft_comm_shm_reach(end, weft_comm_shm_own_slot(end),
                                                        atomic_load(&h->at), bytes);
        if (!is_of_step(h)) continue;
        forget_held(end, h);
        if (give_back && p) weft_comm_shm_give_back(end, p, bytes);
    }
}

void weft_program_state_begin_move(weft_comm *comm, int64_t step)
{
    weft_comm_shm_held *h = &weft_program_state_slot(comm)->state;
    int64_t             bytes;
    void               *table = table_of(weft_comm_shared_end(comm), h, &bytes);
    if (atomic_load(&h->step) == step || !table) return;
    weft_state_table_mark(table, bytes, -1, false);
    atomic_store(&h->step, step);
}

void weft_program_state_mark(weft_comm *comm, int tensor)
{
    int64_t bytes;
    void   *table = table_of(weft_comm_shared_end(comm),
                             &weft_program_state_slot(comm)->state, &bytes);
    if (table) weft_state_table_mark(table, bytes, tensor, true);
}

bool weft_program_state_is_whole(weft_comm *comm)
{
    int all;
    return count_there(weft_comm_shared_end(comm), &weft_program_state_slot(comm)->state,
                       &all) == all;
}

/* A process that is killed in between leaves it described twice, never not at all. */
static void move_held(weft_comm_shm_held *from, weft_comm_shm_held *to)
{
    atomic_store(&to->step, -1);
    atomic_store(&to->computed_step, -1);
    atomic_store(&to->at, atomic_load(&from->at));
    atomic_store(&to->bytes, atomic_load(&from->bytes));
    atomic_store(&to->table_at, atomic_load(&from->table_at));
    atomic_store(&to->table_bytes, atomic_load(&from->table_bytes));
    atomic_store(&to->computed_at, atomic_load(&from->computed_at));
    atomic_store(&to->computed_bytes, atomic_load(&from->computed_bytes));
    atomic_store(&to->layout, atomic_load(&from->layout));
    atomic_store(&to->step, atomic_load(&from->step));
    atomic_store(&to->computed_step, atomic_load(&from->computed_step));
    atomic_store(&from->step, -1);
    atomic_store(&from->computed_step, -1);
}

/* The state of the slot makes room for another one: there is a place for it (reserve). */
static void put_aside(weft_comm *end, weft_comm_shm_slot *slot)
{
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++) {
        if (is_of_step(&slot->older[k])) continue;
        if (is_of_step(&slot->state)) move_held(&slot->state, &slot->older[k]);
        return;
    }
    forget_held(end, &slot->state);
}

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

/* A table of s next to it. */
static weft_status write_table(weft_comm *end, const weft_state *s, int64_t *at,
                               int64_t *bytes)
{
    void *table;
    *bytes = weft_state_table_bytes(s);
    WEFT_TRY(weft_comm_shm_alloc(end, *bytes, &table));
    weft_state_table_write(s, *bytes, table);
    if (weft_comm_shm_find(end, table, at) != weft_comm_shm_own_slot(end)) *at = -1;
    return WEFT_OK;
}

/* The same of what this rank computes itself; *bytes stays 0 where that is all of it. */
static weft_status write_computed(const weft_compiled *made, weft_comm *end,
                                  const weft_state *s, int64_t *at, int64_t *bytes)
{
    weft_state *own = NULL;
    WEFT_TRY(weft_computed_state_make(made, s, &own));
    weft_status st = own ? write_table(end, own, at, bytes) : WEFT_OK;
    weft_state_destroy(own);
    return st;
}

/* Next to the state, what it holds. */
static weft_status describe_slot(const weft_compiled *made, weft_comm_shm_slot *slot,
                                 weft_comm *end, const weft_state *s)
{
    weft_comm_shm_held *h  = &slot->state;
    int64_t             at = 0, table_at = 0, bytes, own_at = 0, own_bytes = 0;
    WEFT_TRY(write_table(end, s, &table_at, &bytes));
    WEFT_TRY(write_computed(made, end, s, &own_at, &own_bytes));
    if (weft_comm_shm_find(end, weft_state_memory(s)->address, &at) !=
        weft_comm_shm_own_slot(end))
        at = -1;
    atomic_store(&h->step, -1);
    atomic_store(&h->computed_step, -1);
    atomic_store(&h->at, at);
    atomic_store(&h->bytes, weft_state_memory(s)->bytes);
    atomic_store(&h->table_at, table_at);
    atomic_store(&h->table_bytes, bytes);
    atomic_store(&h->computed_at, own_at);
    atomic_store(&h->computed_bytes, own_bytes);
    atomic_store(&h->layout, weft_program_state_layout(s));
    return WEFT_OK;
}

/* The memory of a slot's state, where that is laid out as the program wants it; its address stays
 * NULL where it is not. */
static weft_status find_memory(const weft_compiled *made, weft_comm *comm, int slot,
                               const weft_comm_shm_held *held, weft_memory *out)
{
    int         slab  = weft_program_state_slab(made->program);
    int64_t     bytes = atomic_load(&held->bytes);
    weft_memory m     = {out->device, WEFT_SPACE_SHARED, NULL, bytes};
    weft_state *like  = NULL;
    if (slab < 0 || bytes != made->program->slab[slab].bytes) return WEFT_OK;
    m.address = weft_comm_shm_reach(weft_comm_shared_end(comm), slot,
                                    atomic_load(&held->at), bytes);
    if (!m.address) return WEFT_OK;
    WEFT_TRY(make_state(made, &m, keep_memory, NULL, &like));
    if (weft_program_state_layout(like) == atomic_load(&held->layout)) *out = m;
    weft_state_destroy(like);
    return WEFT_OK;
}

weft_status weft_program_state_find_left(const weft_compiled *made, weft_comm *comm,
                                         weft_device *device, int slot, weft_memory *out)
{
    weft_comm_shm_slot *words =
        weft_comm_shm_kept_slot_of(weft_comm_shared_end(comm), slot);
    *out = (weft_memory){.device = device};
    WEFT_TRY(find_memory(made, comm, slot, &words->state, out));
    return out->address ? WEFT_OK
                        : WEFT_FAIL(WEFT_ERR_ARG,
                                    "the state of slot %d is not laid out "
                                    "for the plan that was left there",
                                    slot);
}

/* A new one in memory of the slot that has no pages yet. */
static weft_status create_bare(const weft_compiled *made, weft_comm *comm,
                               weft_device *device, weft_state **out)
{
    int slab = weft_program_state_slab(made->program);
    if (slab < 0) return weft_program_state_create(made, comm, device, out);
    weft_memory m = {device, WEFT_SPACE_SHARED, NULL, made->program->slab[slab].bytes};
    WEFT_TRY(weft_comm_shm_reserve(weft_comm_shared_end(comm), m.bytes, &m.address));
    return make_state(made, &m, free_slab, comm, out);
}

/* Is one of this rank's slot?  m: its memory. */
static weft_status compare_layout(const weft_compiled *made, weft_comm *comm,
                                  weft_device *device, const weft_comm_shm_held *held,
                                  bool unfinished, weft_memory *m, bool *same)
{
    *m    = (weft_memory){.device = device};
    *same = false;
    if (atomic_load(&held->step) < 0 && !unfinished) return WEFT_OK;
    WEFT_TRY(find_memory(made, comm, weft_comm_shm_own_slot(weft_comm_shared_end(comm)),
                         held, m));
    *same = m->address != NULL;
    return WEFT_OK;
}

weft_status weft_program_state_is_laid_out(const weft_compiled *made, weft_comm *comm,
                                           weft_device *device, bool *same)
{
    weft_memory m;
    return compare_layout(made, comm, device, &weft_program_state_slot(comm)->state, true,
                          &m, same);
}

/* *out: the one that is, and m its memory; NULL: none is. */
static weft_status find_kept(const weft_compiled *made, weft_comm *comm,
                             weft_device *device, bool unfinished, weft_memory *m,
                             weft_comm_shm_held **out)
{
    weft_comm_shm_slot *slot = weft_program_state_slot(comm);
    bool                same;
    *out = &slot->state;
    WEFT_TRY(compare_layout(made, comm, device, *out, unfinished, m, &same));
    for (int k = 0; k < WEFT_COMM_SHM_OLDER && !same; k++) {
        *out = &slot->older[k];
        WEFT_TRY(compare_layout(made, comm, device, *out, false, m, &same));
    }
    if (!same) *out = NULL;
    return WEFT_OK;
}

weft_status weft_program_state_count_missing(const weft_compiled *made, weft_comm *comm,
                                             weft_device *device, bool unfinished,
                                             int64_t *bytes)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    int                 slab = weft_program_state_slab(made->program);
    weft_comm_shm_held *held;
    weft_memory         m;
    *bytes = 0;
    if (slab < 0) return WEFT_OK;
    WEFT_TRY(find_kept(made, comm, device, unfinished, &m, &held));
    *bytes = made->program->slab[slab].bytes;
    *bytes -= held ? weft_comm_shm_count_range(end, m.address, m.bytes)
                   : weft_comm_shm_count_free(end);
    if (*bytes < 0) *bytes = 0;
    return WEFT_OK;
}

weft_status weft_program_state_open_kept(const weft_compiled *made, weft_comm *comm,
                                         weft_device *device, bool unfinished, bool bare,
                                         bool used, weft_state **out)
{
    weft_comm_shm_slot *slot = weft_program_state_slot(comm);
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_held *held;
    weft_memory         m;
    weft_state         *s;
    WEFT_TRY(find_kept(made, comm, device, unfinished, &m, &held));
    if (held) {
        WEFT_TRY(make_state(made, &m, free_slab, comm, out));
        if (held != &slot->state) {
            put_aside(end, slot);
            move_held(held, &slot->state);
        }
        bool whole = weft_program_state_is_whole(comm);
        weft_state_set_step(*out, whole ? atomic_load(&slot->state.step) : -1);
        return WEFT_OK;
    }
    put_aside(end, slot);
    if (bare) weft_comm_shm_give_back_free(end);
    WEFT_TRY(bare ? create_bare(made, comm, device, &s)
                  : create_state(made, used, comm, device, &s));
    weft_status st = describe_slot(made, slot, end, s);
    if (st == WEFT_OK)
        *out = s;
    else
        weft_state_destroy(s);
    return st;
}

static bool is_same_tensor(const weft_state_tensor *a, const weft_state_tensor *b)
{
    if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype ||
        !weft_shape_equal(&a->shape, &b->shape) || !a->part != !b->part)
        return false;
    return !a->part || (a->offset == b->offset && a->on_host == b->on_host &&
                        weft_part_equal(a->part, b->part));
}

/* Are the tensors of s those that the program has, or has for another rank? */
static weft_status has_same_tensors(const weft_compiled *made, const weft_state *s,
                                    int standby, bool *same)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    int         n   = 0;
    WEFT_TRY(weft_arena_create(&tmp));
    *same = true;
    for (weft_vid v = 0; v < made->graph->n_value && *same; v++) {
        weft_state_tensor t;
        if (!is_kept(&made->graph->value[v])) continue;
        WEFT_GO(describe_tensor(made, &made->graph->value[v], standby, tmp, &t));
        *same = n < weft_state_count(s) && is_same_tensor(&t, weft_state_at(s, n));
        n++;
    }
    *same = *same && n == weft_state_count(s);
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_program_state_fits(const weft_compiled *made, weft_comm *comm,
                                    const weft_state *s, bool *fits)
{
    const weft_program *p    = made->program;
    int                 slab = weft_program_state_slab(p);
    int                 n    = weft_program_n_standby(p);
    *fits =
        weft_state_memory(s)->space != WEFT_SPACE_SHARED &&
        weft_state_memory(s)->bytes == (slab < 0 ? 0 : p->slab[slab].bytes) &&
        weft_state_host_memory(s)->bytes == weft_program_bytes(p, WEFT_SLAB_HOST_STATE) &&
        !(slab >= 0 && weft_state_memory(s)->device->host_access &&
          weft_comm_shared_end(comm) && peers_reach(p, slab)) &&
        n == weft_state_n_standby(s);
    if (*fits) WEFT_TRY(has_same_tensors(made, s, 0, fits));
    for (int k = 0; k < n && *fits; k++)
        WEFT_TRY(has_same_tensors(made, weft_state_standby(s, k), 1 + k, fits));
    return WEFT_OK;
}

/* ---- shared by two programs ---- */

/* Is everything that the program has at the same place in s? */
static bool is_laid_out_like(const weft_compiled *made, const weft_state *s)
{
    const weft_program *p    = made->program;
    int                 slab = weft_program_state_slab(p);
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *b = &p->binding[i];
        if (b->kind != WEFT_BIND_PARAM && b->kind != WEFT_BIND_STATE) continue;
        int                      k = weft_state_find(s, b->name);
        const weft_state_tensor *t = k < 0 ? NULL : weft_state_at(s, k);
        if (!t || !t->part || t->on_host || t->offset != offset_of(p, b) ||
            p->buffer[b->at.buffer].slab != slab ||
            weft_part_count(t->part) != weft_shape_count(&b->at.type.shape))
            return false;
    }
    return slab >= 0 && p->slab[slab].bytes <= weft_state_memory(s)->bytes;
}

weft_status weft_program_state_share(const weft_compiled *made, const weft_state *first,
                                     weft_comm *comm, weft_state **out)
{
    if (!is_laid_out_like(made, first))
        return weft_program_state_create(made, comm, weft_state_memory(first)->device,
                                         out);
    return make_state(made, weft_state_memory(first), keep_memory, NULL, out);
}

bool weft_program_state_is_shared(const weft_state *s, const weft_state *first)
{
    return weft_state_memory(s)->address == weft_state_memory(first)->address;
}
