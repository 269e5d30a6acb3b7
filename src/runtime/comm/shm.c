/* The shared file of a job on one host: made by the launcher, joined by ranks.
 *
 * It is sparse: every slab is as large as the machine's memory, and all of it is mapped at once,
 * so that a rank that allocates has nothing to tell its peers. */
#include "comm/shm_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC   UINT64_C(0x316d687374666577) /* "weftshm1" */
#define MOST_VM (INT64_C(1) << 45)           /* of 2^47 that a process can map */

enum {
    VERSION = 7
};

struct weft_comm_shm {
    int       fd;
    shm_head *head;
    shm_rank *rank;
    size_t    mapped;
};

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

static uint64_t ranks_at(void)
{
    return round_up(sizeof(shm_head), SHM_PAGE);
}

static shm_head plan(int world)
{
    uint64_t ram  = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t most = (uint64_t)MOST_VM / (uint64_t)(world + 1) / SHM_HUGE * SHM_HUGE;
    uint64_t slab = round_up(ram, SHM_HUGE);
    shm_head h    = {.magic   = MAGIC,
                     .version = VERSION,
                     .world   = (uint32_t)world,
                     .n_rank  = (uint32_t)world};
    if (slab > most) slab = most;
    /* one record more than ranks: the launcher's */
    h.heap_at = round_up(ranks_at() + sizeof(shm_rank) * (uint64_t)(world + 1), SHM_PAGE);
    h.slab_at = round_up(h.heap_at + slab, SHM_HUGE);
    h.slab_bytes = slab;
    h.file_bytes = h.slab_at + slab * (uint64_t)world;
    h.heap_used  = h.heap_at;
    return h;
}

static weft_status fail_errno(const char *what)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "shared memory: %s: %s", what, strerror(errno));
}

static weft_status fill(weft_comm_shm *w, int world)
{
    shm_head h = plan(world);
    w->mapped  = h.heap_at;
    w->fd      = memfd_create("weft", MFD_CLOEXEC);
    if (w->fd < 0) return fail_errno("memfd_create");
    if (ftruncate(w->fd, (off_t)h.file_bytes)) return fail_errno("ftruncate");
    if (fallocate(w->fd, 0, 0, (off_t)w->mapped)) return fail_errno("fallocate");
    void *p = mmap(NULL, w->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    if (p == MAP_FAILED) return fail_errno("mmap");
    w->head  = p;
    w->rank  = (shm_rank *)(void *)((char *)p + ranks_at());
    *w->head = h;
    WEFT_TRY(weft_comm__shm_init_mutex(&w->head->lock));
    for (int r = 0; r < world; r++) {
        WEFT_TRY(weft_comm__shm_init_mutex(&w->rank[r].alive));
        weft_comm_shm_distrust(&w->rank[r].slot);
        w->rank[r].at_slot = (uint32_t)r;
    }
    return WEFT_OK;
}

weft_status weft_comm_shm_create(int world, weft_comm_shm **out)
{
    if (world < 1 || world > SHM_MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks on one host: 1 to %d are possible",
                         world, SHM_MAX_RANK);
    weft_comm_shm *w = calloc(1, sizeof *w);
    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    w->fd          = -1;
    weft_status st = fill(w, world);
    if (st != WEFT_OK)
        weft_comm_shm_destroy(w);
    else
        *out = w;
    return st;
}

void weft_comm_shm_destroy(weft_comm_shm *w)
{
    if (!w) return;
    if (w->head) munmap(w->head, w->mapped);
    if (w->fd >= 0) close(w->fd);
    free(w);
}

void weft_comm_shm_set_epoch(weft_comm_shm *w, uint32_t epoch)
{
    w->head->epoch = epoch;
    for (uint32_t r = 0; r < w->head->world; r++) atomic_store(&w->rank[r].epoch, epoch);
}

void weft_comm_shm_set_slots(weft_comm_shm *w, int n, const int *slot)
{
    int world = (int)w->head->world;
    if (n >= 1 && n <= world) w->head->n_rank = (uint32_t)n;
    for (int k = 0; k < world; k++) w->rank[k].at_slot = (uint32_t)slot[k];
}

void weft_comm_shm_clear_slab(weft_comm_shm *w, int slot)
{
    uint64_t at = w->head->slab_at + w->head->slab_bytes * (uint64_t)slot;
    fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
              (off_t)w->head->slab_bytes);
}

int weft_comm_shm_fd(const weft_comm_shm *w)
{
    return w->fd;
}

void weft_comm_shm_report(weft_comm_shm *w, int rank, const char *how)
{
    weft_comm__shm_condemn(w->head, w->rank, atomic_load(&w->rank[rank].epoch), rank,
                           (int)w->head->world, how);
    atomic_store(&w->rank[rank].state.v, SHM_DEAD);
    weft_comm__shm_wake(&w->rank[rank].state);
}

/* ---- a rank's end ---- */

static void shm_abort(weft_comm *c, const char *why)
{
    shm_end *e = shm_of(c);
    weft_comm__shm_condemn(e->head, e->rank, c->epoch, c->rank, c->rank, why);
}

static void shm_pass_on(weft_comm *c, const char *verdict)
{
    shm_end *e = shm_of(c);
    weft_comm__shm_condemn(e->head, e->rank, c->epoch, SHM_TOLD, c->rank, verdict);
}

/* Who sleeps looks up at an alarm. */
static void shm_stop(weft_comm *c)
{
    shm_end *e = shm_of(c);
    atomic_store(&e->stopped, true);
    atomic_fetch_add(&e->head->alarm.v, 1);
    weft_comm__shm_wake(&e->head->alarm);
}

static void shm_destroy(weft_comm *c)
{
    shm_end *e = shm_of(c);
    weft_comm__shm_unwatch(e);
    if (e->head) munmap(e->base, e->head->file_bytes);
    if (e->kept_base) munmap(e->kept_base, e->kept_bytes);
    if (e->slab_fd >= 0 && e->slab_fd != e->fd) close(e->slab_fd);
    if (e->fd >= 0) close(e->fd);
    for (void *k = e->opened, *next; k; k = next) {
        next = *(void **)k;
        free(k);
    }
    pthread_mutex_destroy(&e->opening);
    free(e->used.range);
    free(e);
}

static weft_status shm_check(weft_comm *c)
{
    return weft_comm__shm_check(shm_of(c));
}

/* All ranks read this one's. */
static void shm_note(weft_comm *c, int rank, uint32_t key, bool waits)
{
    (void)rank;
    weft_comm_notes_put(&shm_of(c)->rank[c->rank].notes, key, waits);
}

static bool shm_noted(weft_comm *c, int rank, uint32_t key)
{
    return weft_comm_notes_has(&shm_of(c)->rank[rank].notes, key);
}

static const weft_comm_ops ops = {
    .open_channel  = weft_comm__shm_open_channel,
    .open_group    = weft_comm__shm_open_group,
    .send          = weft_comm__shm_send,
    .recv          = weft_comm__shm_recv,
    .can_send      = weft_comm__shm_can_send,
    .run           = weft_comm__shm_run,
    .missing       = weft_comm__shm_missing,
    .note          = shm_note,
    .noted         = shm_noted,
    .close_channel = weft_comm__shm_close_channel,
    .close_group   = weft_comm__shm_close_group,
    .stop          = shm_stop,
    .abort         = shm_abort,
    .check         = shm_check,
    .pass_on       = shm_pass_on,
    .destroy       = shm_destroy,
};

/* Everything that the head says is compared with what we would have written. */
weft_status weft_comm__shm_read_head(int fd, shm_head *out)
{
    struct stat s;
    if (fstat(fd, &s) || pread(fd, out, sizeof *out, 0) != (ssize_t)sizeof *out ||
        out->magic != MAGIC)
        return WEFT_FAIL(WEFT_ERR_ARG, "file descriptor %d is not a weft job's memory",
                         fd);
    if (out->version != VERSION)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "the job's shared memory is of version %u, this weft's is %d",
                         out->version, VERSION);
    if (out->world >= 1 && out->world <= SHM_MAX_RANK) {
        shm_head h = plan((int)out->world);
        if (h.file_bytes == out->file_bytes && h.heap_at == out->heap_at &&
            h.slab_at == out->slab_at && h.slab_bytes == out->slab_bytes &&
            (uint64_t)s.st_size == h.file_bytes && out->n_rank >= 1 &&
            out->n_rank <= out->world)
            return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "the job's shared memory is damaged");
}

/* At a multiple of 2 MB, so that large pages can be mapped as such. */
static weft_status map_all(shm_end *e, size_t bytes)
{
    char *p = mmap(NULL, bytes + SHM_HUGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return fail_errno("mmap");
    char *at = (char *)round_up((uintptr_t)p, SHM_HUGE);
    if (at > p) munmap(p, (size_t)(at - p));
    munmap(at + bytes, (size_t)(p + SHM_HUGE - at));
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             e->fd, 0) == MAP_FAILED) {
        munmap(at, bytes);
        return fail_errno("mmap");
    }
    madvise(at, bytes, MADV_DONTDUMP);
    e->base = at;
    e->head = (shm_head *)(void *)at;
    e->rank = (shm_rank *)(void *)(at + ranks_at());
    return WEFT_OK;
}

static void tell_processors(shm_end *e)
{
    cpu_set_t set;
    uint64_t *cpu = e->rank[e->c.rank].cpu;
    memset(cpu, 0, sizeof e->rank->cpu);
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int i = 0; i < 64 * SHM_CPU_WORD && i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set)) cpu[i / 64] |= UINT64_C(1) << i % 64;
}

/* As the kernel sees it; sysconf's answer counts sharers that a virtual machine does not have. */
static int64_t last_cache(void)
{
    long  kb = 0;
    FILE *f  = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    if (f && fscanf(f, "%ldK", &kb) != 1) kb = 0;
    if (f) fclose(f);
    return kb > 0 && kb < 1 << 20 ? kb << 10 : 32 << 20;
}

static weft_status wait_for_all(shm_end *e)
{
    double deadline = 0;
    for (int r = 0; r < e->c.world; r++) {
        shm_word *w = &e->rank[r].state;
        while (atomic_load(&w->v) == SHM_ABSENT) {
            uint32_t alarm = atomic_load(&e->head->alarm.v);
            if (atomic_load(&w->v) != SHM_ABSENT) break;
            if (e->head->epoch) WEFT_TRY(weft_comm__shm_check(e));
            if (weft_comm__shm_sleep(e, w, SHM_ABSENT, SHM_ALL, alarm, &deadline) ==
                SHM_LATE)
                return WEFT_FAIL(WEFT_ERR_PEER,
                                 "rank %d is silent: it has not joined within %g s", r,
                                 e->c.timeout_s);
        }
    }
    return WEFT_OK;
}

/* The slabs, and the record of this rank, out of another file. */
static weft_status map_kept(shm_end *e, int kept)
{
    shm_head h;
    e->slab_fd = e->fd;
    if (kept < 0) return WEFT_OK;
    WEFT_TRY(weft_comm__shm_read_head(kept, &h));
    if (h.file_bytes != e->head->file_bytes || h.slab_at != e->head->slab_at)
        return WEFT_FAIL(WEFT_ERR_ARG, "slabs of %u ranks for %u", h.world,
                         e->head->world);
    e->slab_fd = fcntl(kept, F_DUPFD_CLOEXEC, 3);
    if (e->slab_fd < 0) return fail_errno("dup");
    if (mmap(e->base + h.slab_at, h.file_bytes - h.slab_at, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, e->slab_fd,
             (off_t)h.slab_at) == MAP_FAILED)
        return fail_errno("mmap");
    void *p = mmap(NULL, h.heap_at, PROT_READ | PROT_WRITE, MAP_SHARED, e->slab_fd, 0);
    if (p == MAP_FAILED) return fail_errno("mmap");
    e->kept_base  = p;
    e->kept_bytes = h.heap_at;
    e->kept       = &((shm_rank *)(void *)((char *)p + ranks_at()))[e->slot].slot;
    return WEFT_OK;
}

static weft_status join(shm_end *e, int fd, int kept, int rank)
{
    shm_head h;
    WEFT_TRY(weft_comm__shm_read_head(fd, &h));
    if (rank < 0 || rank >= (int)h.n_rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d of a job of %u ranks", rank, h.n_rank);
    e->c.rank  = rank;
    e->c.world = (int)h.n_rank;
    e->fd      = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (e->fd < 0) return fail_errno("dup");
    WEFT_TRY(map_all(e, h.file_bytes));
    e->c.epoch = h.epoch;
    e->slot    = weft_comm_shm_slot_at(&e->c, rank);
    if (e->slot < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d has no slot of %u", rank, h.world);
    WEFT_TRY(map_kept(e, kept));
    tell_processors(e);
    e->cache_bytes = last_cache();
    WEFT_TRY(weft_comm__shm_watch(e));
    WEFT_TRY(wait_for_all(e));
    weft_comm__shm_choose_waiting(e);
    return WEFT_OK;
}

void weft_comm_shm_hold(weft_comm_shm *w, bool on)
{
    atomic_store(&w->head->held, on);
}

bool weft_comm_shm_is_held(const weft_comm *c)
{
    return c && atomic_load_explicit(&shm_of((weft_comm *)(uintptr_t)c)->head->held,
                                     memory_order_relaxed);
}

static void distrust_held(weft_comm_shm_held *h)
{
    atomic_store(&h->step, -1);
    atomic_store(&h->computed_step, -1);
}

void weft_comm_shm_distrust(weft_comm_shm_slot *slot)
{
    distrust_held(&slot->state);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++) distrust_held(&slot->older[k]);
    for (int k = 0; k < WEFT_COMM_SHM_SNAPSHOT; k++) {
        atomic_store(&slot->snapshot[k].step, -1);
        /* the next one has memory and a table of its own */
        atomic_store(&slot->snapshot[k].bytes, 0);
        atomic_store(&slot->snapshot[k].table_bytes, 0);
    }
    atomic_store(&slot->arrived, -1);
    atomic_store(&slot->passed, -1);
    atomic_store(&slot->record, 0);
    atomic_store(&slot->clean_to, 0);
}

weft_comm_shm_slot *weft_comm_shm_slot_of(const weft_comm_shm *w, int slot)
{
    return &w->rank[slot].slot;
}

weft_status weft_comm_shm_map_slot(int fd, int slot, weft_comm_shm_slot **out)
{
    shm_head h;
    WEFT_TRY(weft_comm__shm_read_head(fd, &h));
    if (slot < 0 || slot >= (int)h.world)
        return WEFT_FAIL(WEFT_ERR_ARG, "slot %d of a job of %u ranks", slot, h.world);
    char *p = mmap(NULL, h.heap_at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return fail_errno("mmap");
    *out = &((shm_rank *)(void *)(p + ranks_at()))[slot].slot;
    return WEFT_OK;
}

weft_comm_shm_slot *weft_comm_shm_kept_slot(const weft_comm *c)
{
    return shm_of(c)->kept;
}

weft_comm_shm_slot *weft_comm_shm_kept_slot_of(const weft_comm *c, int slot)
{
    const shm_end *e = shm_of(c);
    if (!e->kept || slot < 0 || slot >= (int)e->head->world) return NULL;
    return &((shm_rank *)(void *)((char *)e->kept_base + ranks_at()))[slot].slot;
}

int weft_comm_shm_own_slot(const weft_comm *c)
{
    return shm_of(c)->slot;
}

int weft_comm_shm_slot_at(const weft_comm *c, int position)
{
    const shm_end *e = shm_of(c);
    if (position < 0 || position >= (int)e->head->world) return -1;
    uint32_t slot = e->rank[position].at_slot;
    return slot < e->head->world ? (int)slot : -1;
}

weft_status weft_comm_shm_join(int fd, int rank, double timeout_s, weft_comm **out)
{
    return weft_comm_shm_join_kept(fd, -1, rank, timeout_s, out);
}

weft_status weft_comm_shm_join_kept(int fd, int kept, int rank, double timeout_s,
                                    weft_comm **out)
{
    shm_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->fd = e->slab_fd = -1;
    e->c               = (weft_comm){.transport = "shm", .op = &ops, .impl = e};
    e->c.timeout_s     = timeout_s;
    pthread_mutex_init(&e->opening, NULL);
    weft_status st = join(e, fd, kept, rank);
    if (st != WEFT_OK)
        shm_destroy(&e->c);
    else
        *out = &e->c;
    return st;
}
