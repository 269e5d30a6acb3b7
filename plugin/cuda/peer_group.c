/* Groups and channels of the backend "peer": members tell each other what they export, map the
 * flags they meet by, and open each other's memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

enum {
    DEVICE_MAP = 2 /* CU_MEMHOSTREGISTER_DEVICEMAP */
};

/* What a member tells the others. */
typedef struct peer_record {
    int32_t            st; /* it failed so far: text */
    char               text[120];
    char               flags[32]; /* position 0: the name of the shared memory */
    int64_t            slot;
    int32_t            n_slab;
    weft_memory_handle board, ring, slab[PEER_SLABS];
} peer_record;

static weft_status exchange(weft_device_group *g, const void *mine, void *all,
                            int64_t bytes)
{
    return weft_comm_collective(g->end->dc->comm, g->meeting, WEFT_ALL_GATHER,
                                WEFT_DTYPE_U8, mine, all, bytes);
}

/* ---- flags ---- */

static weft_status map_flags(weft_device_group *g, const char *name, bool create)
{
    int fd = shm_open(name, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
    if (fd < 0 || (create && ftruncate(fd, sizeof *g->flags))) {
        int failed = errno;
        if (fd >= 0) close(fd);
        return WEFT_FAIL(WEFT_ERR_IO, "peer: shared memory %s: %s", name,
                         strerror(failed));
    }
    void *p = mmap(NULL, sizeof *g->flags, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "peer: shared memory %s: %s", name,
                         strerror(errno));
    g->flags = p;
    return WEFT_OK;
}

static weft_status register_flags(weft_device_group *g)
{
    WEFT_TRY(weft_cuda_use(weft_cuda_gpu_of(g->end->dc->device)));
    CU_TRY(MemHostRegister, g->flags, sizeof *g->flags, DEVICE_MAP);
    g->registered = true;
    CU_TRY(MemHostGetDevicePointer, &g->flags_at, g->flags, 0);
    return WEFT_OK;
}

/* Position 0 makes them; the slots of a channel are empty. */
static weft_status make_flags(weft_device_group *g, char *name, size_t size)
{
    static _Atomic unsigned n;
    snprintf(name, size, "/weft-%d-%u", (int)getpid(), atomic_fetch_add(&n, 1));
    WEFT_TRY(map_flags(g, name, true));
    for (int k = 0; k < g->n_slot; k++) g->flags->empty[k] = 1;
    return WEFT_OK;
}

/* ---- memory of others ---- */

static weft_status import_memory(weft_device_group *g, int rank,
                                 const weft_memory_handle *h, weft_memory *out)
{
    peer_end    *e = g->end;
    weft_device *d = e->dc->device;
    peer_import *x = e->import;
    while (x && (x->rank != rank || memcmp(&x->handle, h, sizeof *h) != 0)) x = x->next;
    if (!x) {
        x = calloc(1, sizeof *x);
        if (!x) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        x->rank        = rank;
        x->handle      = *h;
        weft_status st = d->import_memory(d, h, &x->memory);
        if (st != WEFT_OK) {
            free(x);
            return weft_fail_in(
                st, "peer: memory of rank %d: ", weft_comm_name(e->dc->comm, rank));
        }
        x->next   = e->import;
        e->import = x;
    }
    x->n_user++;
    g->import[g->n_import++] = x;
    *out                     = x->memory;
    return WEFT_OK;
}

static void close_imports(weft_device_group *g)
{
    weft_device *d = g->end->dc->device;
    for (int i = 0; i < g->n_import; i++) {
        peer_import *x = g->import[i];
        if (--x->n_user) continue;
        peer_import **at = &g->end->import;
        while (*at != x) at = &(*at)->next;
        *at = x->next;
        d->import_close(d, &x->handle, &x->memory);
        free(x);
    }
    g->n_import = 0;
}

/* The addresses of member r as this rank has them. */
static weft_status map_member(weft_device_group *g, int r, const peer_record *x,
                              weft_cuda_peer_map *map)
{
    weft_memory m;
    map->slot[r] = x->slot;
    if (r == g->me) {
        map->board[r] = g->end->board.address;
        for (int k = 0; k < g->n_slab; k++) map->slab[r][k] = g->slab[k].address;
        return WEFT_OK;
    }
    if (x->n_slab < 0 || x->n_slab > PEER_SLABS)
        return WEFT_FAIL(WEFT_ERR_PEER, "rank %d exports %d slabs", g->rank[r],
                         x->n_slab);
    WEFT_TRY(import_memory(g, g->rank[r], &x->board, &g->board[r]));
    map->board[r] = g->board[r].address;
    for (int k = 0; k < x->n_slab; k++) {
        WEFT_TRY(import_memory(g, g->rank[r], &x->slab[k], &m));
        map->slab[r][k] = m.address;
    }
    return WEFT_OK;
}

static weft_status map_members(weft_device_group *g, const peer_record *all)
{
    weft_cuda_peer_map map = {0};
    if (g->n_slot) {
        WEFT_TRY(
            import_memory(g, g->rank[!g->me], &all[!g->me].board, &g->board[!g->me]));
        if (g->me == 0) WEFT_TRY(import_memory(g, g->rank[1], &all[1].ring, &g->ring));
        return WEFT_OK;
    }
    for (int r = 0; r < g->n; r++) WEFT_TRY(map_member(g, r, &all[r], &map));
    weft_device *d = g->end->dc->device;
    WEFT_TRY(d->alloc(d, WEFT_SPACE_DEVICE, sizeof map, &g->map));
    return weft_cuda_peer_write(&g->map, 0, &map, sizeof map);
}

/* ---- opening ---- */

/* Slabs in device memory, each once. */
static weft_status export_slabs(weft_device_group *g, const weft_device_group_spec *spec,
                                peer_record *mine)
{
    weft_device *d = g->end->dc->device;
    for (int i = 0; i < spec->n_slab; i++) {
        const weft_memory *m = &spec->slab[i];
        if (!m->address || !m->bytes || m->space != WEFT_SPACE_DEVICE) continue;
        if (g->n_slab == PEER_SLABS)
            return WEFT_FAIL(WEFT_ERR_ARG, "peer: more than %d slabs", PEER_SLABS);
        WEFT_TRY(d->export_memory(d, m, &mine->slab[g->n_slab]));
        g->slab[g->n_slab++] = *m;
    }
    mine->n_slab = g->n_slab;
    return WEFT_OK;
}

static weft_status make_own(weft_device_group *g, const weft_device_group_spec *spec,
                            peer_record *mine)
{
    peer_end    *e = g->end;
    weft_device *d = e->dc->device;
    if (g->me == 0) WEFT_TRY(make_flags(g, mine->flags, sizeof mine->flags));
    mine->board = e->board_handle;
    if (g->n_slot && g->me == 1) {
        WEFT_TRY(d->alloc(d, WEFT_SPACE_DEVICE, g->n_slot * g->slot_bytes, &g->ring));
        e->dc->bytes += g->ring.bytes;
        return d->export_memory(d, &g->ring, &mine->ring);
    }
    if (g->n_slot) return WEFT_OK;
    WEFT_TRY(weft_cuda_peer_take(e, sizeof(uint32_t), &g->slot));
    mine->slot = g->slot;
    return export_slabs(g, spec, mine);
}

static weft_status note(peer_record *mine, weft_status st)
{
    mine->st = (int32_t)st;
    if (st != WEFT_OK) snprintf(mine->text, sizeof mine->text, "%s", weft_error_text());
    return st;
}

/* What any member has failed with, in its text. */
static weft_status agree(weft_device_group *g, const peer_record *all)
{
    for (int r = 0; r < g->n; r++)
        if (all[r].st != WEFT_OK)
            return WEFT_FAIL(r == g->me ? (weft_status)all[r].st : WEFT_ERR_PEER,
                             "rank %d: %.*s",
                             weft_comm_name(g->end->dc->comm, g->rank[r]),
                             (int)sizeof all[r].text, all[r].text);
    return WEFT_OK;
}

/* A member that fails reports it before any other waits for it. */
static weft_status open_members(weft_device_group *g, const weft_device_group_spec *spec,
                                peer_record *mine, peer_record *all)
{
    (void)note(mine, make_own(g, spec, mine));
    WEFT_TRY(exchange(g, mine, all, sizeof *mine));
    WEFT_TRY(agree(g, all));
    all[0].flags[sizeof all[0].flags - 1] = 0;
    weft_status st = g->me ? map_flags(g, all[0].flags, false) : WEFT_OK;
    if (st == WEFT_OK) st = register_flags(g);
    if (st == WEFT_OK) st = map_members(g, all);
    (void)note(mine, st);
    WEFT_TRY(exchange(g, mine, all, sizeof *mine));
    return agree(g, all);
}

static void free_group(weft_device_group *g)
{
    weft_device *d = g->end->dc->device;
    close_imports(g);
    if (g->map.address) d->free(d, &g->map);
    if (g->n_slot && g->me == 1 && g->ring.address) {
        g->end->dc->bytes -= g->ring.bytes;
        d->free(d, &g->ring);
    }
    if (g->registered && weft_cuda_use(weft_cuda_gpu_of(d)) == WEFT_OK)
        weft_cuda_cu.MemHostUnregister(g->flags);
    if (g->flags) munmap(g->flags, sizeof *g->flags);
    if (g->slot) weft_cuda_peer_give_back(g->end);
    weft_device_names_fini(&g->names);
    free(g);
}

static void enter_group(weft_device_group *g)
{
    peer_end *e = g->end;
    pthread_mutex_lock(&e->lock);
    g->next  = e->group;
    e->group = g;
    pthread_mutex_unlock(&e->lock);
}

weft_status weft_cuda_peer_open_group(weft_device_comm             *dc,
                                      const weft_device_group_spec *spec,
                                      weft_device_group           **out)
{
    weft_status        st   = WEFT_OK;
    weft_device_group *g    = calloc(1, sizeof *g);
    peer_record       *mine = calloc(1, sizeof *mine);
    peer_record       *all  = calloc((size_t)spec->n, sizeof *all);
    if (!g || !mine || !all) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    g->end     = dc->impl;
    g->n       = spec->n;
    g->me      = spec->me;
    g->meeting = spec->meeting;
    memcpy(g->rank, spec->rank, sizeof *g->rank * (size_t)spec->n);
    g->one_gpu = weft_cuda_peer_shares_gpu(dc, spec->n, spec->rank);
    if (spec->bytes) {
        g->n_slot     = spec->credits < 1              ? 1
                        : spec->credits > PEER_CREDITS ? PEER_CREDITS
                                                       : spec->credits;
        g->slot_bytes = (spec->bytes + 255) / 256 * 256;
    }
    WEFT_GO(open_members(g, spec, mine, all));
    weft_cuda_peer_watch(g, spec->tag);
    enter_group(g);
    *out = g;
out:
    if (mine && mine->flags[0]) shm_unlink(mine->flags);
    if (g && st != WEFT_OK) free_group(g);
    free(mine);
    free(all);
    return st;
}

/* Memory that others have opened is freed after they have closed it. */
void weft_cuda_peer_close_group(weft_device_group *g, bool broken)
{
    peer_end           *e = g->end;
    weft_device_group **at;
    char                one = 1, all[PEER_RANKS];
    pthread_mutex_lock(&e->lock);
    for (at = &e->group; *at != g;) at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&e->lock);
    close_imports(g);
    if (!broken) (void)exchange(g, &one, all, 1);
    free_group(g);
}
