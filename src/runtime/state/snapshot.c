/* The threads of a snapshot.  In: a state, files.  Out: this rank's bytes in the files, synced.
 *
 *     free buffers --copy--> blocks in order --sum, write--> free buffers        one lock
 *                    state --> ^
 *
 * Blocks that can go to the file from where the state has them are not copied, but for the last
 * ones, as many as there are buffers for, where the device is not fast enough to write all before
 * the state is expected to change.  So the state may change when all but these are written, as it
 * may where all are copied and buffers are full.
 * Where there is a second state, the thread that copies fills it first: then the first may change.
 * The last thread that writes syncs and closes the files: then it is WRITTEN. */
#include "state/snapshot.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/turns.h"
#include "state/snapshot_block.h"
#include "state/staged_copy.h"

enum {
    MOST_WRITER = 3,
    /* buffers: one is filled while the others are written */
    LEAST_BLOCK = MOST_WRITER + 1
};
static const double SAFETY = 1.15, SAFETY_S = 0.05; /* of the pace; to copy the rest */
static const double TICK_S = 0.01;                  /* between two looks at the pace */
#define STAGING        ((int64_t)256 << 20)
#define STAGING_PINNED ((int64_t)64 << 20)
#define SYNC_EVERY                                                                       \
    ((int64_t)256 << 20) /* through the cache: so that no single sync is long */

/* A file as this rank writes it. */
typedef struct target {
    int     fd, direct; /* -1: not open; direct: past the cache */
    int64_t align;      /* of memory that goes past the cache */
    int     first;      /* number of its first block among those of all files */
    int     n_block;

    _Atomic int64_t cached; /* bytes that were written through the cache */
} target;

/* Memory of WEFT_STORE_BLOCK bytes, aligned. */
typedef struct staging {
    uint8_t    *p;
    weft_memory memory; /* where a device has allocated it */
} staging;

/* A block on its way to the file. */
typedef struct entry {
    weft_block    block;
    int           buffer; /* that has it; -1: the state does */
    struct entry *next;
} entry;

struct weft_snapshot {
    weft_snapshot_source      source;
    const weft_snapshot_file *file;
    int                       n_file;
    weft_snapshot_options     o;
    target                   *target;
    int                       n_block;
    weft_snapshot_block      *block;
    weft_block_copier         copier;
    weft_stream               stream;    /* of the copier; all zero: host code copies */
    bool                      pinned;    /* buffers are */
    weft_item_hasher          hasher;    /* of the copier; its file NULL: none */
    int                       next_file; /* of the copier, */
    int64_t                   next;      /* and the block */
    pthread_t                 thread[MOST_WRITER + 1];
    int                       n_thread;

    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    int             n_buffer, most_buffer; /* there are; may be */
    staging        *buffer;
    int            *free; /* stack */
    int             n_free;
    entry          *full, *last; /* queue, in the order of blocks */
    int             n_full;      /* of it */
    int             n_writing;   /* threads that write */
    int             n_in_place;  /* blocks in the state that are not written yet */
    bool            copied;      /* the state may change */
    bool            taken;       /* no block comes any more */
    _Atomic bool    stopped;     /* given up; read without the lock, too */
    bool            written, began, ready; /* ready: options.before is done */
    int64_t         bytes, in_place_bytes;
    double          begin_s, seconds; /* until it was written */
    weft_status     st;
    char            text[640];
};

static void wait_moved(weft_snapshot *s, double until_s)
{
    struct timespec t = {.tv_sec = (time_t)until_s};
    t.tv_nsec         = (long)((until_s - (double)t.tv_sec) * 1e9);
    pthread_cond_timedwait(&s->moved, &s->lock, &t);
}

/* Under lock. */
static void give_up(weft_snapshot *s, weft_status st, const char *text)
{
    if (s->st == WEFT_OK) {
        s->st = st;
        snprintf(s->text, sizeof s->text, "%s", text);
    }
    s->stopped = true;
    s->copied = s->taken = true;
    pthread_cond_broadcast(&s->moved);
}

static void note(weft_snapshot *s, weft_status st)
{
    if (st == WEFT_OK) return;
    pthread_mutex_lock(&s->lock);
    give_up(s, st, weft_error_text());
    pthread_mutex_unlock(&s->lock);
}

/* ---- copying ---- */

static bool alloc_buffer(weft_snapshot *s, staging *b)
{
    if (s->pinned) {
        if (weft_device_alloc(s->stream.device, WEFT_SPACE_PINNED, WEFT_STORE_BLOCK,
                              &b->memory) != WEFT_OK)
            return false;
        b->p = b->memory.address;
        return true;
    }
    /* pages: free() might keep blocks of this size */
    void *p = mmap(NULL, WEFT_STORE_BLOCK, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    b->p = p;
    return true;
}

static void free_buffer(staging *b)
{
    if (b->memory.address)
        weft_device_free(&b->memory);
    else
        munmap(b->p, WEFT_STORE_BLOCK);
}

/* Under lock: a buffer to fill; -1: all are full, and there may be no more of them. */
static int take_buffer(weft_snapshot *s)
{
    if (s->n_free) return s->free[--s->n_free];
    if (s->n_buffer == s->most_buffer) return -1;
    if (!alloc_buffer(s, &s->buffer[s->n_buffer])) {
        s->most_buffer = s->n_buffer;
        return -1;
    }
    return s->n_buffer++;
}

/* The same, waited for; -1: it was given up, or there is no memory for a single one. */
static int wait_buffer(weft_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    int i = take_buffer(s);
    while (i < 0 && s->n_buffer && !s->taken) {
        wait_moved(s, weft_clock_s() + 0.1);
        i = take_buffer(s);
    }
    pthread_mutex_unlock(&s->lock);
    return i;
}

static void free_entry(entry *e)
{
    if (!e) return;
    weft_block_fini(&e->block);
    free(e);
}

/* The next block of all files; false: there is none. */
static bool next_block(weft_snapshot *s, int *file, int64_t *number)
{
    for (; s->next_file < s->n_file; s->next_file++, s->next = 0) {
        if (s->next == s->target[s->next_file].n_block) continue;
        *file   = s->next_file;
        *number = s->next++;
        return true;
    }
    return false;
}

static int count_ranks(const weft_snapshot *s)
{
    return s->source.holders ? s->source.holders->n_rank : 1;
}

/* Is it one of the last ones, for which there are buffers?  Where several ranks write, each has
 * some of them. */
static bool is_late(const weft_snapshot *s, const weft_block *b)
{
    int left = s->n_block - (s->target[b->file].first + (int)b->number);
    return !s->o.copy && left <= (int64_t)s->most_buffer * count_ranks(s);
}

/* Under lock: at the pace so far, will the state be wanted before all is written? */
static bool is_urgent(const weft_snapshot *s)
{
    double all = (double)s->n_block * WEFT_STORE_BLOCK / count_ranks(s);
    double now = weft_clock_s() - s->begin_s, want = s->o.expect_s;
    if (want <= 0) return want == 0;
    if (now < 0.1 * want) return false; /* it is early to tell */
    return !s->bytes || SAFETY * now * all / (double)s->bytes + SAFETY_S > want;
}

/* For one of the last blocks: a buffer where there is one and it is urgent; else -1, when the
 * threads that write have nothing else to do. */
static int wait_turn(weft_snapshot *s)
{
    int i = -1;
    pthread_mutex_lock(&s->lock);
    while (i < 0 && !s->taken && s->n_full > MOST_WRITER) {
        if (is_urgent(s)) i = take_buffer(s);
        if (i < 0) wait_moved(s, weft_clock_s() + TICK_S);
    }
    pthread_mutex_unlock(&s->lock);
    return i;
}

/* Where a block is written from: the state, or a buffer. */
static weft_status place_block(weft_snapshot *s, entry *e)
{
    const target *t      = &s->target[e->block.file];
    bool          mapped = false;
    if (t->direct >= 0)
        WEFT_TRY(weft_block_map(&s->copier, t->align, &e->block, &mapped));
    if (!mapped)
        e->buffer = wait_buffer(s);
    else if (is_late(s, &e->block))
        e->buffer = wait_turn(s);
    if (e->buffer < 0 && !mapped)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for blocks of a checkpoint");
    if (e->buffer < 0) return WEFT_OK;
    return weft_block_copy(&s->copier, s->buffer[e->buffer].p, &e->block);
}

/* Under lock. */
static void add_entry(weft_snapshot *s, entry *e)
{
    *(s->full ? &s->last->next : &s->full) = e;
    s->last                                = e;
    s->n_full++;
    if (e->buffer < 0) s->n_in_place++;
}

/* Under lock: the block is in the file, or it is given up. */
static void end_entry(weft_snapshot *s, entry *e)
{
    if (e->buffer >= 0)
        s->free[s->n_free++] = e->buffer;
    else
        s->n_in_place--;
    if (s->taken && !s->n_in_place) s->copied = true;
    pthread_cond_broadcast(&s->moved);
}

/* A block, to the threads that write. */
static weft_status pass_block(weft_snapshot *s, int file, int64_t number)
{
    weft_status st = WEFT_OK;
    entry      *e  = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state");
    e->buffer = -1;
    st        = weft_block_find(&s->copier, file, number, &e->block);
    if (st == WEFT_OK && e->block.own) st = place_block(s, e);
    if (st == WEFT_OK && file == 0 && s->hasher.file)
        weft_item_hasher_add(&s->hasher, &e->block);
    pthread_mutex_lock(&s->lock);
    if (st == WEFT_OK && e->block.own > 0) {
        add_entry(s, e);
        pthread_cond_broadcast(&s->moved);
        e = NULL;
    } else if (e->buffer >= 0) {
        s->free[s->n_free++] = e->buffer;
    }
    pthread_mutex_unlock(&s->lock);
    free_entry(e);
    return st;
}

/* No block comes any more. */
static void end_copying(weft_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    s->taken = true;
    if (!s->n_in_place) s->copied = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void pass_blocks(weft_snapshot *s)
{
    int64_t     number;
    int         file;
    weft_status st = WEFT_OK;
    while (st == WEFT_OK && !s->stopped && next_block(s, &file, &number))
        st = pass_block(s, file, number);
    note(s, st);
    end_copying(s);
}

/* All of the state at once: what follows is read from the second one. */
static weft_status copy_state(weft_snapshot *s)
{
    weft_stream *stream = s->stream.device ? &s->stream : NULL;
    WEFT_TRY(weft_state_copy(s->source.state, s->o.copy, stream));
    if (stream) WEFT_TRY(weft_stream_wait(stream));
    s->source.state = s->o.copy;
    pthread_mutex_lock(&s->lock);
    s->copied = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    return WEFT_OK;
}

/* All of it into memory that stays. */
static weft_status keep_state(weft_snapshot *s)
{
    weft_state *keep;
    WEFT_TRY(s->o.find_keep(s->o.arg, &keep));
    return weft_state_copy_staged(s->source.state, keep,
                                  s->stream.device ? &s->stream : NULL, &s->stopped);
}

static void *copier_main(void *arg)
{
    weft_snapshot *s  = arg;
    weft_status    st = WEFT_OK;
    weft_turns_shorten();
    if (s->o.copy) st = copy_state(s);
    if (st == WEFT_OK && s->o.find_keep) st = keep_state(s);
    note(s, st);
    pass_blocks(s);
    return NULL;
}

/* ---- writing ---- */

static weft_status write_cached(target *t, const char *path, const weft_block *b)
{
    int64_t at = b->number * WEFT_STORE_BLOCK, before;
    for (int i = 0; i < b->n_run; i++)
        WEFT_TRY(weft_io_write_at(t->fd, path, b->p + b->run[i].lo,
                                  (size_t)(b->run[i].hi - b->run[i].lo),
                                  at + b->run[i].lo));
    before = atomic_fetch_add(&t->cached, b->own);
    if (before / SYNC_EVERY == (before + b->own) / SYNC_EVERY) return WEFT_OK;
    return weft_io_sync(t->fd, path);
}

static weft_status write_block(weft_snapshot *s, weft_block *b)
{
    target     *t    = &s->target[b->file];
    const char *path = s->file[b->file].path;
    int64_t     at   = b->number * WEFT_STORE_BLOCK;
    bool        all  = b->own == b->n;
    s->block[t->first + b->number] =
        (weft_snapshot_block){weft_block_sum(b), (uint32_t)b->own};
    if (all && t->direct >= 0 && b->n % WEFT_IO_ALIGN == 0)
        return weft_io_write_parts_at(t->direct, path, b->part, b->n_part, at);
    return write_cached(t, path, b);
}

/* Under lock: the oldest block, waited for; NULL: there will be none. */
static entry *next_full(weft_snapshot *s)
{
    while (s->st == WEFT_OK && (!s->ready || (!s->full && !s->taken)))
        wait_moved(s, weft_clock_s() + 1);
    if (!s->full || s->st != WEFT_OK) return NULL;
    entry *e = s->full;
    s->full  = e->next;
    s->n_full--;
    return e;
}

static weft_status sync_targets(weft_snapshot *s)
{
    for (int i = 0; i < s->n_file; i++) {
        target *t = &s->target[i];
        /* one sync is of the file, whichever descriptor wrote it */
        WEFT_TRY(weft_io_sync(t->fd, s->file[i].path));
        int fd = t->fd;
        t->fd  = -1;
        WEFT_TRY(weft_io_close(fd, s->file[i].path));
    }
    return WEFT_OK;
}

static void end_writing(weft_snapshot *s)
{
    bool last = --s->n_writing == 0;
    if (!last) return;
    bool fine = s->st == WEFT_OK;
    pthread_mutex_unlock(&s->lock);
    if (fine) note(s, sync_targets(s));
    pthread_mutex_lock(&s->lock);
    s->written = true;
    s->seconds = weft_clock_s() - s->begin_s;
    pthread_cond_broadcast(&s->moved);
}

static void *writer_main(void *arg)
{
    weft_snapshot *s = arg;
    weft_turns_shorten();
    pthread_mutex_lock(&s->lock);
    bool first = !s->began;
    s->began   = true;
    if (first) {
        pthread_mutex_unlock(&s->lock);
        if (s->o.before) note(s, s->o.before(s->o.arg));
        pthread_mutex_lock(&s->lock);
        s->ready = true;
        pthread_cond_broadcast(&s->moved);
    }
    for (entry *e; (e = next_full(s));) {
        pthread_mutex_unlock(&s->lock);
        weft_status st = write_block(s, &e->block);
        pthread_mutex_lock(&s->lock);
        if (st != WEFT_OK) give_up(s, st, weft_error_text());
        s->bytes += e->block.own;
        if (e->buffer < 0) s->in_place_bytes += e->block.own;
        end_entry(s, e);
        free_entry(e);
    }
    end_writing(s);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- start and end ---- */

static int count_blocks(const weft_snapshot_file *f)
{
    return (int)((weft_snapshot_file_bytes(f) + WEFT_STORE_BLOCK - 1) / WEFT_STORE_BLOCK);
}

int weft_snapshot_count(const weft_snapshot_file *file, int n_file)
{
    int n = 0;
    for (int i = 0; i < n_file; i++) n += count_blocks(&file[i]);
    return n;
}

static weft_status open_targets(weft_snapshot *s)
{
    int first = 0;
    for (int i = 0; i < s->n_file; i++) s->target[i] = (target){.fd = -1, .direct = -1};
    for (int i = 0; i < s->n_file; i++) {
        target *t  = &s->target[i];
        t->first   = first;
        t->n_block = count_blocks(&s->file[i]);
        first += t->n_block;
        WEFT_TRY(weft_io_open_write(s->file[i].path, false, &t->fd));
        WEFT_TRY(weft_io_open_direct(s->file[i].path, &t->direct));
        if (t->direct >= 0) t->align = weft_io_direct_align(t->direct);
    }
    return WEFT_OK;
}

/* Blocks of memory that only the device reaches need a stream and pinned buffers. */
static weft_status open_stream(weft_snapshot *s)
{
    const weft_memory *m = weft_state_memory(s->source.state);
    if (weft_memory_host(m) || !m->bytes) return WEFT_OK;
    const weft_memory *blocks = s->o.copy ? weft_state_memory(s->o.copy) : m;
    WEFT_TRY(m->device->stream_open(m->device, "checkpoint", &s->stream));
    s->copier.stream = &s->stream;
    s->pinned        = !weft_memory_host(blocks);
    return WEFT_OK;
}

static weft_status make_buffers(weft_snapshot *s)
{
    int64_t most = s->pinned ? STAGING_PINNED : STAGING;
    if (s->o.staging_bytes) most = s->o.staging_bytes;
    most /= WEFT_STORE_BLOCK;
    if (most > s->n_block) most = s->n_block;
    if (most < LEAST_BLOCK) most = LEAST_BLOCK;
    s->most_buffer = (int)most;
    s->buffer      = calloc((size_t)most, sizeof *s->buffer);
    s->free        = malloc(sizeof *s->free * (size_t)most);
    s->block       = calloc((size_t)s->n_block + 1, sizeof *s->block);
    if (s->buffer && s->free && s->block) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state");
}

static weft_status add_thread(weft_snapshot *s, void *(*run)(void *))
{
    sigset_t all, before;
    sigfillset(&all); /* signals are the caller's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&s->thread[s->n_thread], NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return WEFT_FAIL(WEFT_ERR_MEM, "no thread to write a checkpoint");
    s->n_thread++;
    return WEFT_OK;
}

/* Threads wait for the lock, so that none ends before the others are counted. */
static weft_status start_threads(weft_snapshot *s)
{
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&s->lock);
    int n = s->o.n_writer ? s->o.n_writer : MOST_WRITER;
    for (int i = 0; i < n && i < MOST_WRITER; i++) {
        weft_status made = add_thread(s, writer_main);
        if (made == WEFT_OK)
            s->n_writing++;
        else if (!s->n_thread)
            st = made; /* one that writes will do */
    }
    if (st == WEFT_OK) st = add_thread(s, copier_main);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void init_lock(weft_snapshot *s)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, &a);
    pthread_condattr_destroy(&a);
}

weft_status weft_snapshot_start(const weft_snapshot_source *source,
                                const weft_snapshot_file *file, int n_file,
                                const weft_snapshot_options *o, weft_snapshot **out)
{
    weft_status    st = WEFT_OK;
    weft_snapshot *s  = calloc(1, sizeof *s);
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state");
    s->source  = *source;
    s->file    = file;
    s->n_file  = n_file;
    s->n_block = weft_snapshot_count(file, n_file);
    s->begin_s = weft_clock_s();
    if (o) s->o = *o;
    init_lock(s);
    s->target = malloc(sizeof *s->target * (size_t)(n_file + 1));
    if (!s->target) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state"));
    WEFT_GO(open_targets(s));
    WEFT_GO(weft_block_copier_init(&s->copier, &s->source, file));
    WEFT_GO(open_stream(s));
    if (s->o.item_hash) weft_item_hasher_init(&s->hasher, &file[0], s->o.item_hash);
    WEFT_GO(make_buffers(s));
    WEFT_GO(start_threads(s));
    *out = s;
    s    = NULL;
out:
    weft_snapshot_close(s);
    return st;
}

bool weft_snapshot_wait(weft_snapshot *s, weft_snapshot_stage stage, double seconds)
{
    double      until = weft_clock_s() + seconds;
    const bool *flag  = stage == WEFT_SNAPSHOT_COPIED ? &s->copied : &s->written;
    pthread_mutex_lock(&s->lock);
    while (!*flag && weft_clock_s() < until) wait_moved(s, until);
    bool reached = *flag;
    pthread_mutex_unlock(&s->lock);
    return reached;
}

void weft_snapshot_cancel(weft_snapshot *s, const char *reason)
{
    pthread_mutex_lock(&s->lock);
    if (!s->written) give_up(s, WEFT_ERR_IO, reason);
    pthread_mutex_unlock(&s->lock);
}

weft_status weft_snapshot_status(weft_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    weft_status st = s->st;
    if (st != WEFT_OK) (void)WEFT_FAIL(st, "%s", s->text);
    pthread_mutex_unlock(&s->lock);
    return st;
}

const weft_snapshot_block *weft_snapshot_blocks(const weft_snapshot *s, int *n)
{
    *n = s->n_block;
    return s->block;
}

int64_t weft_snapshot_bytes(const weft_snapshot *s)
{
    return s->bytes;
}

int64_t weft_snapshot_in_place_bytes(const weft_snapshot *s)
{
    return s->in_place_bytes;
}

bool weft_snapshot_hashed(const weft_snapshot *s)
{
    return s->hasher.file && weft_item_hasher_is_done(&s->hasher);
}

double weft_snapshot_seconds(const weft_snapshot *s)
{
    return s->seconds;
}

void weft_snapshot_close(weft_snapshot *s)
{
    if (!s) return;
    weft_snapshot_cancel(s, "given up");
    for (int i = 0; i < s->n_thread; i++) pthread_join(s->thread[i], NULL);
    for (int i = 0; i < s->n_file && s->target; i++) {
        if (s->target[i].fd >= 0) close(s->target[i].fd);
        if (s->target[i].direct >= 0) close(s->target[i].direct);
    }
    if (s->stream.device) s->stream.device->stream_close(&s->stream);
    for (int i = 0; i < s->n_buffer; i++) free_buffer(&s->buffer[i]);
    weft_block_copier_fini(&s->copier);
    free(s->target);
    free(s->buffer);
    free(s->free);
    while (s->full) {
        entry *e = s->full;
        s->full  = e->next;
        free_entry(e);
    }
    free(s->block);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- the sums of all ranks ---- */

void weft_snapshot_add(weft_snapshot_total *total, const weft_snapshot_block *block,
                       int n)
{
    for (int i = 0; i < n; i++) {
        if (!block[i].bytes) continue;
        total[i].crc ^= block[i].crc;
        total[i].bytes += block[i].bytes;
        total[i].n_part++;
    }
}

/* crc(x xor y) = crc(x) xor crc(y) xor crc(0), all of one length. */
static weft_status sum_block(const weft_snapshot_file *f, int64_t number, int64_t n,
                             const weft_snapshot_total *total, uint32_t *out)
{
    *out = total->crc;
    if (total->bytes != n)
        return WEFT_FAIL(
            WEFT_ERR_INTERNAL, "%s: ranks wrote %lld bytes of block %lld, which has %lld",
            f->path, (long long)total->bytes, (long long)number, (long long)n);
    if (total->n_part % 2) return WEFT_OK;
    uint8_t *zero = calloc(1, (size_t)n);
    if (!zero) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for checksums");
    *out ^= weft_hash_crc32c(0, zero, (size_t)n);
    free(zero);
    return WEFT_OK;
}

weft_status weft_snapshot_sum(const weft_snapshot_file *file, int n_file,
                              const weft_snapshot_total *total, weft_store_sum *out)
{
    weft_status st = WEFT_OK;
    for (int i = 0; i < n_file; i++) out[i] = (weft_store_sum){0};
    for (int i = 0; i < n_file; i++) {
        weft_store_sum *sum = &out[i];
        sum->bytes          = weft_snapshot_file_bytes(&file[i]);
        sum->n_block        = count_blocks(&file[i]);
        sum->crc            = malloc(sizeof *sum->crc * (size_t)(sum->n_block + 1));
        if (!sum->crc) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for checksums"));
        for (int64_t k = 0; k < sum->n_block; k++) {
            int64_t left = sum->bytes - k * WEFT_STORE_BLOCK;
            int64_t n    = left < WEFT_STORE_BLOCK ? left : WEFT_STORE_BLOCK;
            WEFT_GO(sum_block(&file[i], k, n, total++, &sum->crc[k]));
        }
    }
out:
    for (int i = 0; i < n_file && st != WEFT_OK; i++) weft_store_sum_fini(&out[i]);
    return st;
}
