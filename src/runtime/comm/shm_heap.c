/* Memory in the shared file: the directory with the heap behind it, and the slab of a rank.
 *
 * The directory is filled under a robust lock; an entry is linked in by its last store, so a rank
 * that dies while it holds the lock leaves nothing half done.  What all members have closed goes
 * to a list of free blocks, its pages to the system. */
#include "comm/shm_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    MAX_HOP     = 1 << 20, /* along a list that peers can write */
    SMALL_BLOCK = 1 << 20, /* larger ones hold data, which nobody expects to be zero */
};

weft_status weft_comm__shm_init_mutex(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    int                 rc = pthread_mutexattr_init(&a);
    if (!rc) rc = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (!rc) rc = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (!rc) rc = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    if (rc) return WEFT_FAIL(WEFT_ERR_INTERNAL, "shared mutex: %s", strerror(rc));
    return WEFT_OK;
}

/* ---- directory ---- */

weft_status weft_comm__shm_lock(shm_end *e)
{
    double          s = weft_clock_s() + e->c.timeout_s;
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec         = (long)((s - (double)t.tv_sec) * 1e9);
    int rc            = pthread_mutex_clocklock(&e->head->lock, CLOCK_MONOTONIC, &t);
    if (rc == EOWNERDEAD) rc = pthread_mutex_consistent(&e->head->lock);
    if (rc == ETIMEDOUT)
        return WEFT_FAIL(
            WEFT_ERR_PEER,
            "a rank is silent: rank %d waited %g s for the directory of channels",
            e->c.rank, e->c.timeout_s);
    if (rc) return WEFT_FAIL(WEFT_ERR_INTERNAL, "shared mutex: %s", strerror(rc));
    return WEFT_OK;
}

void weft_comm__shm_unlock(shm_end *e)
{
    pthread_mutex_unlock(&e->head->lock);
}

void *weft_comm__shm_heap_at(const shm_end *e, uint64_t at, uint64_t bytes)
{
    const shm_head *h = e->head;
    if (at < h->heap_at || at > h->slab_at || bytes > h->slab_at - at || at % SHM_LINE)
        return NULL;
    return e->base + at;
}

static uint64_t round_to_line(int64_t bytes)
{
    return ((uint64_t)bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

/* A free block of this size, all zero where it is small; false: none. */
static bool reuse_block(shm_end *e, uint64_t need, uint64_t *at)
{
    uint64_t *from = &e->head->heap_free;
    for (int hop = 0; *from && hop < MAX_HOP; hop++) {
        shm_block *b = weft_comm__shm_heap_at(e, *from, sizeof *b);
        if (!b) return false;
        if (b->bytes == need) {
            *at = *from;
            __atomic_store_n(from, b->next, __ATOMIC_RELEASE);
            memset(b, 0, need <= SMALL_BLOCK ? need : sizeof *b);
            return true;
        }
        from = &b->next;
    }
    return false;
}

void weft_comm__shm_heap_free(shm_end *e, uint64_t at, int64_t bytes)
{
    uint64_t   need = round_to_line(bytes);
    shm_block *b    = weft_comm__shm_heap_at(e, at, need);
    if (!b || need < sizeof *b) return;
    uint64_t lo = (at + SHM_LINE + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    uint64_t hi = (at + need) / SHM_PAGE * SHM_PAGE;
    if (hi > lo) /* all but the page that says so */
        fallocate(e->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)lo,
                  (off_t)(hi - lo));
    *b = (shm_block){e->head->heap_free, need};
    __atomic_store_n(&e->head->heap_free, at, __ATOMIC_RELEASE);
}

weft_status weft_comm__shm_heap_alloc(shm_end *e, int64_t bytes, uint64_t *at)
{
    shm_head *h    = e->head;
    uint64_t  need = round_to_line(bytes);
    if (reuse_block(e, need, at)) return WEFT_OK;
    if (h->heap_used < h->heap_at || h->heap_used > h->slab_at ||
        need > h->slab_at - h->heap_used)
        return WEFT_FAIL(WEFT_ERR_MEM, "no room for %lld bytes of channels and groups",
                         (long long)bytes);
    *at = h->heap_used;
    h->heap_used += need;
    return WEFT_OK;
}

static weft_status damaged_directory(void)
{
    return WEFT_FAIL(WEFT_ERR_PEER, "the directory of channels is damaged");
}

/* *from: the word that leads to the entry, or to 0: there is none. */
static weft_status find_key(shm_end *e, const int32_t *key, int n_key, uint64_t **from)
{
    size_t   key_bytes = sizeof *key * (size_t)n_key;
    uint64_t hash      = weft_hash_xxh64(key, key_bytes, 0);
    *from              = &e->head->bucket[hash % SHM_BUCKET];
    for (int hop = 0; **from; hop++) {
        shm_entry *x = weft_comm__shm_heap_at(e, **from, sizeof *x + key_bytes);
        if (!x || hop == MAX_HOP) return damaged_directory();
        if (x->hash == hash && x->n_key == (uint32_t)n_key &&
            !memcmp(x->key, key, key_bytes))
            return WEFT_OK;
        *from = &x->next;
    }
    return WEFT_OK;
}

weft_status weft_comm__shm_find_entry(shm_end *e, const int32_t *key, int n_key,
                                      int64_t body_bytes, void **body, bool *fresh)
{
    size_t key_bytes = sizeof *key * (size_t)n_key, all = sizeof(shm_entry) + key_bytes;
    uint64_t *from, at, b;
    WEFT_TRY(find_key(e, key, n_key, &from));
    *fresh = !*from;
    if (*from) {
        const shm_entry *x = (const shm_entry *)(const void *)(e->base + *from);
        *body              = weft_comm__shm_heap_at(e, x->body, (uint64_t)body_bytes);
        return *body ? WEFT_OK : damaged_directory();
    }
    WEFT_TRY(weft_comm__shm_heap_alloc(e, (int64_t)all, &at));
    WEFT_TRY(weft_comm__shm_heap_alloc(e, body_bytes, &b));
    WEFT_TRY(weft_comm__shm_populate(e->base + at, (int64_t)all));
    WEFT_TRY(weft_comm__shm_populate(e->base + b, body_bytes));
    shm_entry *x = (shm_entry *)(void *)(e->base + at);
    *x           = (shm_entry){
                  .hash = weft_hash_xxh64(key, key_bytes, 0), .body = b, .n_key = (uint32_t)n_key};
    memcpy(x->key, key, key_bytes);
    *body = e->base + b;
    __atomic_store_n(from, at, __ATOMIC_RELEASE);
    return WEFT_OK;
}

void weft_comm__shm_remove_entry(shm_end *e, const int32_t *key, int n_key,
                                 int64_t body_bytes)
{
    uint64_t *from, at;
    if (find_key(e, key, n_key, &from) != WEFT_OK || !*from) return;
    at                 = *from;
    const shm_entry *x = (const shm_entry *)(const void *)(e->base + at);
    uint64_t         b = x->body;
    __atomic_store_n(from, x->next, __ATOMIC_RELEASE);
    weft_comm__shm_heap_free(e, b, body_bytes);
    weft_comm__shm_heap_free(e, at,
                             (int64_t)(sizeof(shm_entry) + sizeof *key * (size_t)n_key));
}

typedef struct kept {
    void *next;
    _Alignas(SHM_LINE) char p[];
} kept;

void *weft_comm__shm_keep(shm_end *e, size_t bytes)
{
    size_t all = (sizeof(kept) + bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
    kept  *k   = aligned_alloc(SHM_LINE, all);
    if (!k) return NULL;
    memset(k, 0, all);
    pthread_mutex_lock(&e->opening);
    k->next   = e->opened;
    e->opened = k;
    pthread_mutex_unlock(&e->opening);
    return k->p;
}

void weft_comm__shm_discard(shm_end *e, void *p)
{
    if (!p) return;
    kept *k = (kept *)(void *)((char *)p - offsetof(kept, p));
    pthread_mutex_lock(&e->opening);
    void **at = &e->opened;
    while (*at && *at != k) at = &((kept *)*at)->next;
    if (*at) *at = k->next;
    pthread_mutex_unlock(&e->opening);
    free(k);
}

/* ---- pages ---- */

weft_status weft_comm__shm_populate(void *p, int64_t bytes)
{
    uintptr_t lo = (uintptr_t)p / SHM_PAGE * SHM_PAGE;
    uintptr_t hi = ((uintptr_t)p + (uintptr_t)bytes + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    if (!bytes || !madvise((void *)lo, hi - lo, MADV_POPULATE_WRITE)) return WEFT_OK;
    if (errno != EINVAL)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld shared bytes: %s",
                         (long long)bytes, strerror(errno));
    for (uintptr_t a = lo; a < hi; a += SHM_PAGE) /* a kernel before 5.14 */
        atomic_fetch_add((_Atomic char *)a, 0);
    return WEFT_OK;
}

/* Large pages: one page of each 2 MB is made (and missed in time where there is no memory), then
 * collapsed. shmem's own setting is usually "never"; this call works all the same. */
weft_status weft_comm__shm_make_pages(int fd, int64_t offset, char *p, int64_t bytes)
{
    int64_t huge = bytes / SHM_HUGE * SHM_HUGE;
    for (int64_t at = 0; at < huge; at += SHM_HUGE)
        if (fallocate(fd, 0, (off_t)(offset + at), SHM_PAGE))
            return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld shared bytes: %s",
                             (long long)bytes, strerror(errno));
    for (int64_t at = 0; at < huge; at += SHM_HUGE)
        atomic_fetch_add((_Atomic char *)(void *)(p + at), 0);
    if (huge) (void)madvise(p, (size_t)huge, MADV_COLLAPSE); /* or else small ones */
    return weft_comm__shm_populate(p, bytes);
}

/* ---- the own slab ---- */

static int64_t own_at(const shm_end *e)
{
    return (int64_t)(e->head->slab_at + e->head->slab_bytes * (uint64_t)e->slot);
}

/* Whole pages. */
static int64_t round_pages(int64_t bytes)
{
    return bytes <= 0 ? SHM_PAGE : (bytes + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
}

/* First fit in a slab of `room` bytes, of which `used` are taken: the place before
 * used->range[*i]. */
static int64_t find_room(const shm_ranges *used, int64_t room, int64_t bytes, int *i)
{
    int64_t align = bytes >= SHM_HUGE ? SHM_HUGE : SHM_PAGE, at = 0;
    for (*i = 0; *i < used->n; (*i)++) {
        at = (at + align - 1) / align * align;
        if (at + bytes <= used->range[*i].at) return at;
        at = used->range[*i].at + used->range[*i].bytes;
    }
    at = (at + align - 1) / align * align;
    return at + bytes <= room ? at : -1;
}

static weft_status add_range(shm_ranges *r, int i, int64_t at, int64_t bytes)
{
    if (r->n == r->cap) {
        int                  cap  = r->cap ? 2 * r->cap : 16;
        weft_comm_shm_range *more = realloc(r->range, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        r->range = more;
        r->cap   = cap;
    }
    memmove(r->range + i + 1, r->range + i, sizeof *r->range * (size_t)(r->n - i));
    r->range[i] = (weft_comm_shm_range){at, bytes};
    r->n++;
    return WEFT_OK;
}

/* Where a range at an offset comes among the others; false: it is over one of them. */
static bool find_place(const shm_ranges *r, int64_t at, int64_t bytes, int *i)
{
    *i = 0;
    while (*i < r->n && r->range[*i].at < at) (*i)++;
    return (*i == 0 || r->range[*i - 1].at + r->range[*i - 1].bytes <= at) &&
           (*i == r->n || r->range[*i].at >= at + bytes);
}

/* Pages that were made before and never given to anyone. */
static bool take_clean(shm_end *e, int64_t at, int64_t bytes)
{
    if (at < atomic_load(&e->kept->clean_from) ||
        at + bytes > atomic_load(&e->kept->clean_to))
        return false;
    atomic_store(&e->kept->clean_from, at + bytes);
    return true;
}

/* Bytes of [at, end) of the file that have pages. */
static int64_t count_pages(int fd, int64_t at, int64_t end)
{
    int64_t n = 0;
    while (at < end) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0 || data >= end) break;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0 || hole > end) hole = (off_t)end;
        n += hole - data;
        at = hole;
    }
    return n;
}

/* Whole large pages as such, what is left of the range as small ones. */
static weft_status make_range(shm_end *e, int64_t from, int64_t to)
{
    int64_t lo      = from / SHM_PAGE * SHM_PAGE;
    int64_t hi      = (to + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    int64_t huge_lo = (from + SHM_HUGE - 1) / SHM_HUGE * SHM_HUGE;
    int64_t huge_hi = to / SHM_HUGE * SHM_HUGE;
    int64_t before  = count_pages(e->slab_fd, lo, hi);
    double  begin_s = weft_clock_s();
    if (from >= to) return WEFT_OK;
    if (huge_lo >= huge_hi) huge_lo = huge_hi = hi;
    if (huge_lo < huge_hi)
        WEFT_TRY(weft_comm__shm_make_pages(e->slab_fd, huge_lo, e->base + huge_lo,
                                           huge_hi - huge_lo));
    if (lo < huge_lo) WEFT_TRY(weft_comm__shm_populate(e->base + lo, huge_lo - lo));
    if (huge_hi < hi) WEFT_TRY(weft_comm__shm_populate(e->base + huge_hi, hi - huge_hi));
    e->made_ns += (int64_t)(1e9 * (weft_clock_s() - begin_s));
    e->made_bytes += count_pages(e->slab_fd, lo, hi) - before;
    return WEFT_OK;
}

/* Pages where there are none; others stay as they are. */
static weft_status fill_holes(shm_end *e, int64_t at, int64_t end)
{
    for (int64_t from = at; from < end;) {
        off_t hole = lseek(e->slab_fd, (off_t)from, SEEK_HOLE);
        if (hole < 0 || hole >= end) break;
        off_t data = lseek(e->slab_fd, hole, SEEK_DATA);
        if (data < 0 || data > end) data = (off_t)end;
        WEFT_TRY(make_range(e, hole, data));
        from = data;
    }
    return weft_comm__shm_populate(e->base + at, end - at);
}

/* Pages.  What the slab has there of an earlier epoch is used again: making pages takes longer than
 * clearing them, and that takes longer than not to. */
static weft_status make_pages(shm_end *e, char *p, int64_t bytes, bool zeroed)
{
    off_t at = (off_t)(p - e->base);
    if (e->kept && take_clean(e, at - own_at(e), bytes))
        return weft_comm__shm_populate(p, bytes);
    if (e->kept && !zeroed) return fill_holes(e, at, at + bytes);
    if (e->kept && lseek(e->slab_fd, at, SEEK_HOLE) >= at + bytes) {
        memset(p, 0, (size_t)bytes);
        return WEFT_OK;
    }
    /* what a rank of this number that died may have left there */
    fallocate(e->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, bytes);
    return make_range(e, at, at + bytes);
}

weft_status weft_comm_shm_adopt(weft_comm *c, int64_t offset, int64_t bytes, void **out)
{
    shm_end *e    = shm_of(c);
    int64_t  room = (int64_t)e->head->slab_bytes;
    int      i    = 0;
    bool     fits = e->kept && offset >= 0 && bytes >= 1 && offset % SHM_PAGE == 0 &&
                bytes <= room && offset <= room - bytes;
    if (!fits || !find_place(&e->used, offset, round_pages(bytes), &i))
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d: bytes %lld to %lld are not in its slab",
                         c->rank, (long long)offset, (long long)(offset + bytes));
    pthread_mutex_lock(&e->opening);
    weft_status st = add_range(&e->used, i, offset, round_pages(bytes));
    pthread_mutex_unlock(&e->opening);
    *out = e->base + own_at(e) + offset;
    return st;
}

/* A place in the own slab, without pages; *round: its bytes, whole pages. */
static weft_status take_room(weft_comm *c, int64_t bytes, int64_t *round, char **out)
{
    shm_end *e = shm_of(c);
    *round     = round_pages(bytes);
    int         i;
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&e->opening);
    int64_t at = find_room(&e->used, (int64_t)e->head->slab_bytes, *round, &i);
    if (at < 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "rank %d: no room for %lld bytes in its slab",
                          c->rank, (long long)bytes));
    WEFT_GO(add_range(&e->used, i, at, *round));
    *out = e->base + own_at(e) + at;
out:
    pthread_mutex_unlock(&e->opening);
    return st;
}

static weft_status alloc_pages(weft_comm *c, int64_t bytes, bool zeroed, void **out)
{
    int64_t round;
    char   *p;
    WEFT_TRY(take_room(c, bytes, &round, &p));
    /* may take seconds: others go on */
    weft_status st = make_pages(shm_of(c), p, round, zeroed);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_comm_shm_free(c, p);
    return st;
}

weft_status weft_comm_shm_alloc(weft_comm *c, int64_t bytes, void **out)
{
    return alloc_pages(c, bytes, true, out);
}

weft_status weft_comm_shm_alloc_used(weft_comm *c, int64_t bytes, void **out)
{
    return alloc_pages(c, bytes, false, out);
}

weft_status weft_comm_shm_reserve(weft_comm *c, int64_t bytes, void **out)
{
    shm_end *e = shm_of(c);
    int64_t  round;
    char    *p;
    WEFT_TRY(take_room(c, bytes, &round, &p));
    off_t at = (off_t)(p - e->base);
    if (!e->kept || !take_clean(e, at - own_at(e), round))
        fallocate(e->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, round);
    *out = p;
    return WEFT_OK;
}

weft_status weft_comm_shm_make_pages(weft_comm *c, void *p, int64_t bytes)
{
    shm_end *e    = shm_of(c);
    int64_t  from = (char *)p - e->base;
    return bytes <= 0 ? WEFT_OK : make_range(e, from, from + bytes);
}

int64_t weft_comm_shm_count_made(const weft_comm *c)
{
    return shm_of(c)->made_bytes;
}

double weft_comm_shm_made_s(const weft_comm *c)
{
    return (double)shm_of(c)->made_ns * 1e-9;
}

/* ---- for the next epoch ---- */

static weft_status add_kept(shm_ranges *r, int64_t room, weft_comm_shm_range x)
{
    int i;
    if (x.bytes < 1 || x.at < 0 || x.bytes > room || x.at > room - x.bytes ||
        !find_place(r, x.at, round_pages(x.bytes), &i))
        return WEFT_OK; /* nor will it be adopted */
    return add_range(r, i, x.at, round_pages(x.bytes));
}

weft_status weft_comm_shm_foresee(const weft_comm *c, const weft_comm_shm_range *keep,
                                  int n_keep, const int64_t *want, int n_want,
                                  weft_comm_shm_range *out)
{
    int64_t     room = (int64_t)shm_of(c)->head->slab_bytes;
    shm_ranges  used = {0};
    weft_status st   = WEFT_OK;
    for (int k = 0; k < n_keep; k++) WEFT_GO(add_kept(&used, room, keep[k]));
    for (int k = 0; k < n_want; k++) {
        int i;
        out[k].bytes = round_pages(want[k]);
        out[k].at    = find_room(&used, room, out[k].bytes, &i);
        if (out[k].at >= 0) WEFT_GO(add_range(&used, i, out[k].at, out[k].bytes));
    }
out:
    free(used.range);
    return st;
}

weft_status weft_comm_shm_make_ahead(weft_comm *c, weft_comm_shm_range x)
{
    shm_end *e    = shm_of(c);
    int64_t  room = (int64_t)e->head->slab_bytes;
    if (x.at < 0 || x.bytes < 0 || x.bytes > room || x.at > room - x.bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "bytes %lld to %lld are not in a slab",
                         (long long)x.at, (long long)(x.at + x.bytes));
    return fill_holes(e, own_at(e) + x.at, own_at(e) + x.at + x.bytes);
}

void weft_comm_shm_give_back(weft_comm *c, void *p, int64_t bytes)
{
    const shm_end *e  = shm_of(c);
    int64_t        at = weft_comm__shm_offset(e, p, bytes);
    int64_t        lo = (at + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    int64_t        hi = (at + bytes) / SHM_PAGE * SHM_PAGE;
    if (at >= 0 && lo < hi)
        fallocate(e->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)lo,
                  (off_t)(hi - lo));
}

void weft_comm_shm_give_back_from(weft_comm *c, int slot, int64_t offset)
{
    int64_t room = (int64_t)shm_of(c)->head->slab_bytes;
    char   *p    = weft_comm_shm_reach(c, slot, offset, room - offset);
    if (p) weft_comm_shm_give_back(c, p, room - offset);
}

void weft_comm_shm_give_back_free(weft_comm *c)
{
    shm_end *e  = shm_of(c);
    int64_t  at = 0, room = (int64_t)e->head->slab_bytes;
    char    *slab = e->base + own_at(e);
    if (e->kept && atomic_load(&e->kept->clean_from) < atomic_load(&e->kept->clean_to))
        return; /* made for what comes */
    pthread_mutex_lock(&e->opening);
    for (int i = 0; i <= e->used.n; i++) {
        int64_t end = i < e->used.n ? e->used.range[i].at : room;
        weft_comm_shm_give_back(c, slab + at, end - at);
        if (i < e->used.n) at = end + e->used.range[i].bytes;
    }
    pthread_mutex_unlock(&e->opening);
}

int64_t weft_comm_shm_count_free(weft_comm *c)
{
    shm_end *e = shm_of(c);
    int64_t  n = 0, at = 0, room = (int64_t)e->head->slab_bytes;
    pthread_mutex_lock(&e->opening);
    for (int i = 0; i <= e->used.n; i++) {
        int64_t end = i < e->used.n ? e->used.range[i].at : room;
        n += count_pages(e->slab_fd, own_at(e) + at, own_at(e) + end);
        if (i < e->used.n) at = end + e->used.range[i].bytes;
    }
    pthread_mutex_unlock(&e->opening);
    return n;
}

int64_t weft_comm_shm_count_range(weft_comm *c, const void *p, int64_t bytes)
{
    const shm_end *e  = shm_of(c);
    int64_t        at = weft_comm__shm_offset(e, p, bytes);
    return at < 0 ? 0 : count_pages(e->slab_fd, at, at + bytes);
}

int64_t weft_comm_shm_count_pages(const weft_comm *c)
{
    struct stat s;
    return fstat(shm_of(c)->slab_fd, &s) ? 0 : (int64_t)s.st_blocks * 512;
}

void weft_comm_shm_free(weft_comm *c, void *p)
{
    shm_end *e = shm_of(c);
    if (!p) return;
    int64_t at = (char *)p - e->base - own_at(e);
    pthread_mutex_lock(&e->opening);
    for (int i = 0; i < e->used.n; i++) {
        if (e->used.range[i].at != at) continue;
        if (!e->kept)
            fallocate(e->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(own_at(e) + at), e->used.range[i].bytes);
        e->used.n--;
        memmove(e->used.range + i, e->used.range + i + 1,
                sizeof *e->used.range * (size_t)(e->used.n - i));
        break;
    }
    pthread_mutex_unlock(&e->opening);
}

int64_t weft_comm__shm_offset(const shm_end *e, const void *p, int64_t bytes)
{
    uintptr_t lo = (uintptr_t)e->base + e->head->slab_at;
    uintptr_t hi = (uintptr_t)e->base + e->head->file_bytes;
    if ((uintptr_t)p < lo || (uintptr_t)p > hi || (uint64_t)bytes > hi - (uintptr_t)p)
        return -1;
    return (const char *)p - e->base;
}

char *weft_comm__shm_slab(const shm_end *e, int64_t offset, int64_t bytes)
{
    const shm_head *h = e->head;
    if (offset < (int64_t)h->slab_at || offset > (int64_t)h->file_bytes || bytes < 0 ||
        bytes > (int64_t)h->file_bytes - offset)
        return NULL;
    return e->base + offset;
}

int weft_comm_shm_find(const weft_comm *c, const void *p, int64_t *offset)
{
    const shm_end *e  = shm_of(c);
    int64_t        at = weft_comm__shm_offset(e, p, 1);
    if (at < 0) return -1;
    uint64_t in_slabs = (uint64_t)at - e->head->slab_at;
    *offset           = (int64_t)(in_slabs % e->head->slab_bytes);
    return (int)(in_slabs / e->head->slab_bytes);
}

void *weft_comm_shm_reach(const weft_comm *c, int slot, int64_t offset, int64_t bytes)
{
    const shm_end *e    = shm_of(c);
    int64_t        room = (int64_t)e->head->slab_bytes;
    if (slot < 0 || slot >= (int)e->head->world || offset < 0 || bytes < 1 ||
        bytes > room || offset > room - bytes)
        return NULL;
    return weft_comm_shm_at(c, slot, offset);
}

void *weft_comm_shm_at(const weft_comm *c, int slot, int64_t offset)
{
    const shm_end *e = shm_of(c);
    return e->base + e->head->slab_at + e->head->slab_bytes * (uint64_t)slot +
           (uint64_t)offset;
}
