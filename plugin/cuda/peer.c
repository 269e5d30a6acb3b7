/* The backend "peer": who can use it, a rank's end, and noticing that somebody does not come. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BOARD_BYTES = 8 << 20,
    MAX_REACH   = 16
};

/* ---- who can ---- */

/* A rank's hello: the host as processes see it, the GPU, and the GPUs whose memory it reaches. */
typedef struct peer_hello {
    char          magic[8];
    char          host[64];
    int32_t       pid, n_reach;
    unsigned char gpu[16];
    uint64_t      reach[MAX_REACH];
} peer_hello;

_Static_assert(sizeof(peer_hello) <= WEFT_DEVICE_HELLO_BYTES, "a hello holds it");

static uint64_t short_id(const unsigned char gpu[16])
{
    uint64_t id = 1469598103934665603u;
    for (int i = 0; i < 16; i++) id = (id ^ gpu[i]) * 1099511628211u;
    return id;
}

static weft_status find_reach(weft_cuda_gpu *g, peer_hello *h)
{
    int n = 0;
    CU_TRY(DeviceGetCount, &n);
    h->reach[h->n_reach++] = short_id(h->gpu);
    for (int i = 0; i < n && h->n_reach < MAX_REACH; i++) {
        int           other, can = 0;
        unsigned char gpu[16];
        CU_TRY(DeviceGet, &other, i);
        if (other == g->ordinal) continue;
        CU_TRY(DeviceCanAccessPeer, &can, g->ordinal, other);
        if (!can) continue;
        CU_TRY(DeviceGetUuid, gpu, other);
        h->reach[h->n_reach++] = short_id(gpu);
    }
    return WEFT_OK;
}

static weft_status say_hello(weft_device *d, weft_device_hello *out)
{
    weft_cuda_gpu *g = weft_cuda_gpu_of(d);
    peer_hello     h = {.magic = "peer 1", .pid = (int32_t)getpid()};
    WEFT_TRY(weft_cuda_use(g));
    weft_cuda_name_host(h.host, sizeof h.host);
    CU_TRY(DeviceGetUuid, h.gpu, g->ordinal);
    WEFT_TRY(find_reach(g, &h));
    memcpy(out, &h, sizeof h);
    return WEFT_OK;
}

static bool reaches(const peer_hello *a, const peer_hello *b)
{
    for (int i = 0; i < a->n_reach && i < MAX_REACH; i++)
        if (a->reach[i] == short_id(b->gpu)) return true;
    return false;
}

static bool joins(const weft_device_hello *const *hello, int n)
{
    if (n < 2 || n > PEER_RANKS) return false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            peer_hello a, b;
            memcpy(&a, hello[i], sizeof a);
            memcpy(&b, hello[k], sizeof b);
            if (i != k && (memcmp(a.magic, b.magic, sizeof a.magic) != 0 ||
                           memcmp(a.host, b.host, sizeof a.host) != 0 || a.pid == b.pid ||
                           !reaches(&a, &b)))
                return false;
        }
    return true;
}

bool weft_cuda_peer_shares_gpu(const weft_device_comm *dc, int n, const int32_t *rank)
{
    peer_hello first, other;
    memcpy(&first, &dc->hello[rank[0]], sizeof first);
    for (int i = 1; i < n; i++) {
        memcpy(&other, &dc->hello[rank[i]], sizeof other);
        if (memcmp(first.gpu, other.gpu, sizeof first.gpu) != 0) return false;
    }
    return true;
}

/* ---- a rank's end ---- */

weft_status weft_cuda_peer_take(peer_end *e, int64_t bytes, int64_t *at)
{
    bytes = (bytes + 63) / 64 * 64;
    if (e->board_used + bytes > e->board.bytes)
        return WEFT_FAIL(WEFT_ERR_MEM, "peer: tables of more than %lld bytes",
                         (long long)e->board.bytes);
    *at = e->board_used;
    e->board_used += bytes;
    e->n_user++;
    return WEFT_OK;
}

void weft_cuda_peer_give_back(peer_end *e)
{
    if (--e->n_user == 0) e->board_used = 64;
}

weft_status weft_cuda_peer_write(const weft_memory *m, int64_t at, const void *from,
                                 int64_t bytes)
{
    weft_device *d    = m->device;
    weft_memory  to   = {d, m->space, (char *)m->address + at, bytes};
    weft_memory  host = {d, WEFT_SPACE_HOST, (void *)(uintptr_t)from, bytes};
    return d->copy(d, NULL, &to, &host);
}

static void close_end(weft_device_comm *dc)
{
    peer_end *e = dc->impl;
    if (!e) return;
    if (e->board.address) dc->device->free(dc->device, &e->board);
    pthread_mutex_destroy(&e->lock);
    free(e);
    dc->impl = NULL;
}

static weft_status open_end(weft_device_comm *dc)
{
    peer_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    e->dc         = dc;
    e->board_used = 64; /* no table begins at 0 */
    dc->impl      = e;
    weft_status st =
        dc->device->alloc(dc->device, WEFT_SPACE_DEVICE, BOARD_BYTES, &e->board);
    if (st == WEFT_OK) st = weft_cuda_export(dc->device, &e->board, &e->board_handle);
    if (st != WEFT_OK) close_end(dc);
    if (st == WEFT_OK) dc->bytes += e->board.bytes;
    return st;
}

/* ---- the watcher's part ---- */

static uint32_t read_flag(const uint32_t *w)
{
    return __atomic_load_n(w, __ATOMIC_ACQUIRE);
}

/* Has it come to where this member is?  A channel's other end has, when this one need not wait. */
static bool is_here(const weft_device_group *g, int r)
{
    bool begins = read_flag(&g->flags->count[g->me]) % 2;
    if (g->n_slot) return !begins;
    return read_flag(begins ? &g->flags->begin[r][g->me] : &g->flags->end[r][g->me]);
}

static bool waits(const weft_device_group *g, uint32_t count)
{
    bool all = true;
    for (int r = 0; r < g->n; r++) all = all && (r == g->me || is_here(g, r));
    return count && !all;
}

static weft_status look_at(weft_device_group *g)
{
    const weft_comm *c     = g->end->dc->comm;
    uint32_t         count = read_flag(&g->flags->count[g->me]);
    if (read_flag(&g->flags->bad[g->me]))
        return WEFT_FAIL(WEFT_ERR_PEER,
                         "rank %d: the table of an exchange of rows on %s does not fit",
                         weft_comm_name(c, c->rank), g->end->dc->device->name);
    return weft_device_comm_watch(g->end->dc, &g->watched, count, waits(g, count));
}

static weft_status look(weft_device_comm *dc)
{
    peer_end   *e  = dc->impl;
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->group; g && st == WEFT_OK; g = g->next)
        st = look_at(g);
    pthread_mutex_unlock(&e->lock);
    return st;
}

void weft_cuda_peer_watch(weft_device_group *g, int32_t tag)
{
    g->watched = (weft_device_watched){.n       = g->n,
                                       .me      = g->me,
                                       .rank    = g->rank,
                                       .tag     = tag,
                                       .names   = &g->names,
                                       .is_here = is_here,
                                       .group   = g};
}

static void write_flag(uint32_t *w, uint32_t x)
{
    __atomic_store_n(w, x, __ATOMIC_RELEASE);
}

static void end_group(weft_device_group *g)
{
    for (int r = 0; r < g->n; r++) {
        write_flag(&g->flags->begin[r][g->me], 1);
        write_flag(&g->flags->end[r][g->me], 1);
    }
    for (int k = 0; k < g->n_slot; k++)
        write_flag(g->me ? &g->flags->full[k] : &g->flags->empty[k], 1);
}

static void stop_writes(const weft_device_group *g)
{
    const uint32_t one = 1;
    for (int r = 0; r < g->n; r++)
        if (g->board[r].address)
            (void)weft_cuda_peer_write(&g->board[r], 0, &one, sizeof one);
}

/* Stops writes first, then releases all waits.  On a GPU that failed nothing runs. */
static void abort_end(weft_device_comm *dc)
{
    peer_end      *e   = dc->impl;
    const uint32_t one = 1;
    if (!e->aborted) (void)weft_cuda_peer_write(&e->board, 0, &one, sizeof one);
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->group; g && !e->aborted; g = g->next) stop_writes(g);
    e->aborted = true; /* only this thread asks */
    for (weft_device_group *g = e->group; g; g = g->next) end_group(g);
    pthread_mutex_unlock(&e->lock);
}

const weft_device_backend weft_cuda_peer_backend = {
    .name            = "peer",
    .hello           = say_hello,
    .joins           = joins,
    .takes           = weft_cuda_peer_takes,
    .messages        = true,
    .open            = open_end,
    .close           = close_end,
    .open_group      = weft_cuda_peer_open_group,
    .close_group     = weft_cuda_peer_close_group,
    .prepare         = weft_cuda_peer_prepare,
    .prepare_message = weft_cuda_peer_prepare_message,
    .run             = weft_cuda_peer_run,
    .release         = weft_cuda_peer_release,
    .look            = look,
    .abort           = abort_end};
