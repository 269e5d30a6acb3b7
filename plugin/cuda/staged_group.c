/* Groups and channels of the backend "staged": the memory that their members share. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "staged.h"

enum {
    DEVICE_MAP  = 2, /* CU_MEMHOSTREGISTER_DEVICEMAP */
    NO_TIMING   = 2, /* CU_EVENT_DISABLE_TIMING */
    PAGE        = 4096,
    LEAST_PIECE = 64 << 10,
    PIECE       = 4 << 20, /* at most: 76 us of a link with 55 GB/s */
    MOST_PIECE  = 8 << 20, /* between two members */
    MOST_SLOT   = 1 << 16
};

/* What a member tells the others; position 0 names the memory and says how it is divided. */
typedef struct staged_record {
    int32_t st; /* it failed so far: text */
    char    text[120];
    char    name[32];
    int32_t n_slot;
    int64_t slot_bytes;
} staged_record;

static weft_status exchange(weft_device_group *g, const void *mine, void *all,
                            int64_t bytes)
{
    return weft_comm_collective(g->end->dc->comm, g->meeting, WEFT_ALL_GATHER,
                                WEFT_DTYPE_U8, mine, all, bytes);
}

static int64_t round_up(int64_t bytes, int64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* ---- what is where ---- */

static int count_pairs(const weft_device_group *g)
{
    return g->is_channel ? 1 : g->n * (g->n - 1);
}

int64_t weft_cuda_staged_word(int member)
{
    _Static_assert(STAGED_WORD * (STAGED_RANKS + 1) <= STAGED_STOP, "words of all");
    return (int64_t)STAGED_WORD * (member + 1);
}

int64_t weft_cuda_staged_flag(const weft_device_group *g, int from, int to, int slot)
{
    int64_t k = (int64_t)weft_cuda_staged_pair(g, from, to) * g->n_slot + slot;
    return STAGED_STOP + k * (int64_t)sizeof(uint32_t);
}

int64_t weft_cuda_staged_slot(const weft_device_group *g, int from, int to, int slot)
{
    int64_t flags = round_up((int64_t)count_pairs(g) * g->n_slot * 4, PAGE);
    int64_t k     = (int64_t)weft_cuda_staged_pair(g, from, to) * g->n_slot + slot;
    return STAGED_STOP + flags + k * g->slot_bytes;
}

/* A ring holds what a link moves while its two ends take turns: 64 MB between two members, less
 * between each two of many. */
static void divide_group(weft_device_group *g, int64_t largest)
{
    int64_t piece = round_up(largest / 8, STAGED_ALIGN);
    int64_t most  = g->n == 2 ? MOST_PIECE : PIECE;
    g->slot_bytes = piece < LEAST_PIECE ? LEAST_PIECE : piece > most ? most : piece;
    g->n_slot     = g->n == 2 ? 8 : g->n <= 4 ? 4 : 2;
}

static void divide_channel(weft_device_group *g, int64_t bytes, int credits)
{
    g->credits    = credits < 1 ? 1 : credits;
    g->n_piece    = (int)((bytes + PIECE - 1) / PIECE);
    g->slot_bytes = round_up((bytes + g->n_piece - 1) / g->n_piece, STAGED_ALIGN);
    g->n_slot     = g->credits * g->n_piece;
}

/* Numbers of another process. */
static weft_status take_division(weft_device_group *g, const staged_record *x)
{
    if (x->n_slot < 1 || x->n_slot > MOST_SLOT || x->slot_bytes < STAGED_ALIGN ||
        x->slot_bytes > MOST_PIECE || x->slot_bytes % STAGED_ALIGN)
        return WEFT_FAIL(WEFT_ERR_PEER, "rank %d: %d slots of %lld bytes", g->rank[0],
                         x->n_slot, (long long)x->slot_bytes);
    g->n_slot     = x->n_slot;
    g->slot_bytes = x->slot_bytes;
    return WEFT_OK;
}

/* ---- the mapping ---- */

static weft_status map_shared(weft_device_group *g, const char *name, bool create)
{
    int pairs = count_pairs(g);
    g->bytes =
        weft_cuda_staged_slot(g, 0, 1, 0) + (int64_t)pairs * g->n_slot * g->slot_bytes;
    int fd     = shm_open(name, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
    int failed = fd < 0 ? errno : create ? posix_fallocate(fd, 0, g->bytes) : 0;
    if (failed) {
        if (fd >= 0) close(fd);
        return WEFT_FAIL(WEFT_ERR_IO, "staged: %lld bytes of shared memory %s: %s",
                         (long long)g->bytes, name, strerror(failed));
    }
    void *p = mmap(NULL, (size_t)g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "staged: shared memory %s: %s", name,
                         strerror(errno));
    g->shared = p;
    return WEFT_OK;
}

static weft_status make_shared(weft_device_group *g, char *name, size_t size)
{
    static _Atomic unsigned n;
    snprintf(name, size, "/weft-staged-%d-%u", (int)getpid(), atomic_fetch_add(&n, 1));
    WEFT_TRY(map_shared(g, name, true));
    uint32_t *flag = (uint32_t *)(void *)(g->shared + STAGED_STOP);
    for (int k = 0; k < count_pairs(g) * g->n_slot; k++) flag[k] = STAGED_EMPTY;
    return WEFT_OK;
}

/* Smaller pieces where there is no room for large ones. */
static weft_status make_some(weft_device_group *g, char *name, size_t size)
{
    weft_status st = make_shared(g, name, size);
    while (st != WEFT_OK && !g->is_channel && g->slot_bytes > LEAST_PIECE) {
        shm_unlink(name);
        g->slot_bytes = LEAST_PIECE;
        st            = make_shared(g, name, size);
    }
    return st;
}

static weft_status register_shared(weft_device_group *g)
{
    CU_TRY(MemHostRegister, g->shared, (size_t)g->bytes, DEVICE_MAP);
    g->registered = true;
    CU_TRY(MemHostGetDevicePointer, &g->shared_at, g->shared, 0);
    return WEFT_OK;
}

/* ---- what is the member's own ---- */

static weft_status open_own(weft_device_group *g)
{
    weft_device   *d   = g->end->dc->device;
    weft_cuda_gpu *gpu = weft_cuda_gpu_of(d);
    g->round_bytes     = (g->n - 1) * g->slot_bytes;
    WEFT_TRY(d->alloc(d, WEFT_SPACE_DEVICE, STAGED_STOP + STAGED_ROUNDS * g->round_bytes,
                      &g->ring));
    g->end->dc->bytes += g->ring.bytes;
    WEFT_TRY(weft_cuda_branch_open(gpu, &g->out));
    WEFT_TRY(weft_cuda_branch_open(gpu, &g->in));
    CU_TRY(EventCreate, &g->arrived, NO_TIMING);
    CU_TRY(EventCreate, &g->left, NO_TIMING);
    for (int k = 0; k < STAGED_ROUNDS; k++) CU_TRY(EventCreate, &g->freed[k], NO_TIMING);
    return WEFT_OK;
}

static void close_event(weft_cuda_handle event)
{
    if (event) weft_cuda_cu.EventDestroy(event);
}

static void free_group(weft_device_group *g)
{
    weft_device *d = g->end->dc->device;
    (void)weft_cuda_use(weft_cuda_gpu_of(d));
    weft_cuda_branch_close(weft_cuda_gpu_of(d), &g->out);
    weft_cuda_branch_close(weft_cuda_gpu_of(d), &g->in);
    close_event(g->arrived);
    close_event(g->left);
    for (int k = 0; k < STAGED_ROUNDS; k++) close_event(g->freed[k]);
    g->end->dc->bytes -= g->ring.bytes;
    if (g->ring.address) d->free(d, &g->ring);
    if (g->registered) weft_cuda_cu.MemHostUnregister(g->shared);
    if (g->shared) munmap(g->shared, (size_t)g->bytes);
    weft_device_names_fini(&g->names);
    free(g);
}

/* ---- opening ---- */

static void note(staged_record *mine, weft_status st)
{
    mine->st = (int32_t)st;
    if (st != WEFT_OK) snprintf(mine->text, sizeof mine->text, "%s", weft_error_text());
}

/* What any member has failed with, in its text. */
static weft_status agree(weft_device_group *g, const staged_record *all)
{
    for (int r = 0; r < g->n; r++)
        if (all[r].st != WEFT_OK)
            return WEFT_FAIL(r == g->me ? (weft_status)all[r].st : WEFT_ERR_PEER,
                             "rank %d: %.*s",
                             weft_comm_name(g->end->dc->comm, g->rank[r]),
                             (int)sizeof all[r].text, all[r].text);
    return WEFT_OK;
}

static weft_status map_members(weft_device_group *g, staged_record *first)
{
    first->name[sizeof first->name - 1] = 0;
    if (g->me) WEFT_TRY(take_division(g, first));
    if (g->me) WEFT_TRY(map_shared(g, first->name, false));
    WEFT_TRY(register_shared(g));
    return open_own(g);
}

/* A member that fails reports it before any other waits for it. */
static weft_status open_members(weft_device_group *g, staged_record *mine,
                                staged_record *all)
{
    if (g->me == 0) {
        note(mine, make_some(g, mine->name, sizeof mine->name));
        mine->n_slot     = g->n_slot;
        mine->slot_bytes = g->slot_bytes;
    }
    WEFT_TRY(exchange(g, mine, all, sizeof *mine));
    WEFT_TRY(agree(g, all));
    note(mine, map_members(g, &all[0]));
    WEFT_TRY(exchange(g, mine, all, sizeof *mine));
    return agree(g, all);
}

static void enter_group(weft_device_group *g)
{
    staged_end *e = g->end;
    pthread_mutex_lock(&e->lock);
    g->next  = e->group;
    e->group = g;
    pthread_mutex_unlock(&e->lock);
}

weft_status weft_cuda_staged_open_group(weft_device_comm             *dc,
                                        const weft_device_group_spec *spec,
                                        weft_device_group           **out)
{
    weft_status        st   = WEFT_OK;
    weft_device_group *g    = calloc(1, sizeof *g);
    staged_record      mine = {0}, all[STAGED_RANKS];
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    g->end        = dc->impl;
    g->n          = spec->n;
    g->me         = spec->me;
    g->meeting    = spec->meeting;
    g->is_channel = spec->bytes > 0;
    memcpy(g->rank, spec->rank, sizeof *g->rank * (size_t)spec->n);
    if (g->is_channel)
        divide_channel(g, spec->bytes, spec->credits);
    else
        divide_group(g, spec->largest);
    WEFT_GO(weft_cuda_use(weft_cuda_gpu_of(dc->device)));
    WEFT_GO(open_members(g, &mine, all));
    weft_cuda_staged_watch(g, spec->tag);
    enter_group(g);
    *out = g;
out:
    if (mine.name[0]) shm_unlink(mine.name);
    if (st != WEFT_OK) free_group(g);
    return st;
}

/* Unless broken, returns when all members have closed the group: no copy between two of them is in
 * flight then. */
void weft_cuda_staged_close_group(weft_device_group *g, bool broken)
{
    staged_end         *e = g->end;
    weft_device_group **at;
    char                one = 1, all[STAGED_RANKS];
    pthread_mutex_lock(&e->lock);
    for (at = &e->group; *at != g;) at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&e->lock);
    if (!broken) (void)exchange(g, &one, all, 1);
    free_group(g);
}
