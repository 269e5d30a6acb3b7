/* What lies in the shared file, and a rank's end of it.
 *
 *     head | rank records | heap: directory entries, groups, rings | slab 0 | slab 1 | ...
 *
 * Everything is found by offset.  Offsets, sizes and numbers that a peer wrote are checked before
 * use. */
#ifndef WEFT_COMM_SHM_PRIV_H
#define WEFT_COMM_SHM_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "comm/shm.h"

enum {
    SHM_LINE     = 64,
    SHM_PAGE     = 4096,
    SHM_HUGE     = 2 << 20,
    SHM_BUCKET   = 1024,
    SHM_MAX_RANK = 1024,
    SHM_TOLD     = 0xffff,    /* the words say about whom */
    SHM_CPU_WORD = 16,        /* 1024 processors */
    SHM_PIECE    = 256 << 10, /* a long loop looks up this often */
};

/* A counter that others sleep on.  Who changes it wakes them if there are any. */
typedef struct shm_word {
    _Atomic uint32_t v;
    _Atomic uint32_t n_asleep;
} shm_word;

typedef enum shm_state {
    SHM_ABSENT,
    SHM_HERE,
    SHM_LEFT,
    SHM_DEAD,
} shm_state;

typedef struct shm_rank {
    _Alignas(SHM_LINE) pthread_mutex_t alive; /* robust; held by the rank's watcher */
    _Alignas(SHM_LINE) shm_word state;        /* shm_state */
    _Atomic uint32_t   epoch;
    uint32_t           at_slot; /* whose slab the rank has; beyond ranks: no rank's */
    weft_comm_shm_slot slot;    /* for the launcher */
    uint64_t           cpu[SHM_CPU_WORD];
    char               why[256]; /* what this rank says in a verdict that it gave */
    weft_comm_notes    notes;    /* of this rank, for all */
} shm_rank;

typedef struct shm_head {
    uint64_t magic;
    uint32_t version, world;
    uint32_t n_rank; /* of the epoch: the first of the world's */
    uint32_t epoch;  /* that all of it is for; 0: epochs follow each other in it */
    uint64_t file_bytes, heap_at, slab_at, slab_bytes;
    /* who is to blame, for all operations up to an epoch: epoch + 1 : 32 | about (or SHM_TOLD) :
     * 16 | by : 16 */
    _Alignas(SHM_LINE) _Atomic uint64_t verdict;
    shm_word alarm; /* moves with every verdict and every change of a rank's state */
    _Atomic uint32_t held; /* deadlines of waits do not come: weft_comm_shm_hold() */
    _Alignas(SHM_LINE) pthread_mutex_t lock; /* of the directory; robust */
    uint64_t heap_used;
    uint64_t heap_free;          /* offset of the first shm_block */
    uint64_t bucket[SHM_BUCKET]; /* offsets of shm_entry */
} shm_head;

/* The directory: what ranks open under equal keys is one thing. */
typedef struct shm_entry {
    uint64_t next, hash;
    uint64_t body; /* offset */
    uint32_t n_key;
    int32_t  key[];
} shm_entry;

/* Memory of the heap that is free. */
typedef struct shm_block {
    uint64_t next, bytes;
} shm_block;

/* Sorted, none over another. */
typedef struct shm_ranges {
    weft_comm_shm_range *range;
    int                  n, cap;
} shm_ranges;

/* A rank's end. */
typedef struct shm_end {
    weft_comm c;
    int       slot; /* whose slab is the own one */
    int       fd;
    int       slab_fd; /* the file with the slabs: fd, or one that outlives epochs */
    char     *base;    /* the file */
    weft_comm_shm_slot *kept;   /* this rank's in slab_fd, where that is another file, */
    size_t          kept_bytes; /* which is mapped for so many bytes from kept_base on */
    void           *kept_base;
    shm_head       *head;
    shm_rank       *rank;
    int             spin;
    bool            crowded;     /* more ranks than processors */
    int64_t         cache_bytes; /* the last level */
    pthread_t       watcher;
    bool            watching;
    shm_word        stop;
    shm_ranges      used;       /* of the own slab */
    _Atomic int64_t made_bytes; /* of pages in it */
    _Atomic int64_t made_ns;    /* that it took */
    _Atomic bool    stopped;    /* weft_comm_drop */
    void           *opened;     /* channels and groups, freed at the end */
    pthread_mutex_t opening;
} shm_end;

static inline shm_end *shm_of(const weft_comm *c)
{
    return c->impl;
}

/* weft_comm_set_epoch only changes the end; peers that judge this rank look here. */
static inline void shm_tell_epoch(shm_end *e)
{
    _Atomic uint32_t *told = &e->rank[e->c.rank].epoch;
    if (atomic_load_explicit(told, memory_order_relaxed) != e->c.epoch)
        atomic_store(told, e->c.epoch);
}

/* ---- shm_wait.c ---- */

typedef enum shm_waited {
    SHM_MOVED,
    SHM_ALARM,
    SHM_LATE,
} shm_waited;

enum {
    SHM_SPIN   = 1000, /* pauses */
    SHM_YIELDS = 20,   /* at least */
};
#define SHM_YIELD_S 50e-6      /* for who has a core to himself yields for nothing */
#define SHM_LONG_S  1e-3       /* of one yield: others use the processor */
#define SHM_ALL     UINT32_MAX /* a mask: any change counts */
/* *w has moved when a bit of mask is no longer as in seen. */
static inline bool shm_moved(const shm_word *w, uint32_t seen, uint32_t mask)
{
    return ((atomic_load_explicit(&w->v, memory_order_acquire) ^ seen) & mask) != 0;
}
/* Three ways to wait, the first two only for a while: true when *w has moved. */
bool weft_comm__shm_spin(const shm_word *w, uint32_t seen, uint32_t mask, int pauses);
bool weft_comm__shm_yield(const shm_word *w, uint32_t seen, uint32_t mask);
typedef struct shm_yields {
    int    n;
    double now_s, enough_s;
} shm_yields;
/* One of them; false: they were enough.  Where others use the processor one takes a slice of each
 * of them, and costs this rank its own as well (sched_yield of Linux 6.18): who sleeps instead is
 * woken when it is its turn. */
bool weft_comm__shm_give_way(shm_yields *y);
/* Sleeps until *w has moved, the alarm is no longer alarm, or the deadline.
 * *deadline_s is set at the first call of an operation, from 0. */
shm_waited weft_comm__shm_sleep(shm_end *e, shm_word *w, uint32_t seen, uint32_t mask,
                                uint32_t alarm, double *deadline_s);
void       weft_comm__shm_wake(shm_word *w); /* after a change of w->v */
void       weft_comm__shm_choose_waiting(shm_end *e);
/* WEFT_ERR_PEER if somebody gave up or died in this end's epoch. */
weft_status weft_comm__shm_check(const shm_end *e);
bool        weft_comm__shm_gone(
           const shm_end *e,
           /* left or dead, and no older than this end's epoch: of a newer one a successor may
            * come */
           int rank);
void weft_comm__shm_condemn(shm_head *head, shm_rank *rank, uint32_t epoch, int about,
                            int by, const char *why);
weft_status weft_comm__shm_watch(shm_end *e);
void        weft_comm__shm_unwatch(shm_end *e);

/* ---- shm_heap.c ---- */

weft_status weft_comm__shm_lock(shm_end *e); /* the directory */
void        weft_comm__shm_unlock(shm_end *e);
/* While it is locked: finds or makes what lies under key; made is told by *fresh, and the body is
 * then all zero. */
weft_status weft_comm__shm_find_entry(shm_end *e, const int32_t *key, int n_key,
                                      int64_t body_bytes, void **body, bool *fresh);
/* The reverse, when the last member has closed it: the memory serves the next of its size. */
void        weft_comm__shm_remove_entry(shm_end *e, const int32_t *key, int n_key,
                                        int64_t body_bytes);
weft_status weft_comm__shm_heap_alloc(shm_end *e, int64_t bytes, uint64_t *at);
void        weft_comm__shm_heap_free(shm_end *e, uint64_t at, int64_t bytes);
/* What lies at an offset that peers can write: NULL if it cannot be. */
void *weft_comm__shm_heap_at(const shm_end *e, uint64_t at, uint64_t bytes);
/* Pages of [p, p + bytes) are there afterwards, or WEFT_ERR_MEM. */
weft_status weft_comm__shm_populate(void *p, int64_t bytes);
/* Private memory that lives as long as the end, or until it is discarded. */
void       *weft_comm__shm_keep(shm_end *e, size_t bytes);
void        weft_comm__shm_discard(shm_end *e, void *p);
weft_status weft_comm__shm_init_mutex(pthread_mutex_t *m);
/* offset in the file of p, if bytes from there on lie in slabs; else -1 */
int64_t weft_comm__shm_offset(const shm_end *e, const void *p, int64_t bytes);
/* An offset that a peer gave: NULL unless it lies in slabs. */
char *weft_comm__shm_slab(const shm_end *e, int64_t offset, int64_t bytes);

/* ---- shm_channel.c, shm_group.c, shm_collective.c, shm_rows.c ---- */

weft_status weft_comm__shm_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                        int tag, uint32_t instance, int64_t bytes,
                                        int credits, weft_comm_channel **out);
weft_status weft_comm__shm_close_channel(weft_comm *c, weft_comm_channel *ch);
weft_status weft_comm__shm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes);
bool        weft_comm__shm_can_send(weft_comm *c, weft_comm_channel *ch);
weft_status weft_comm__shm_recv(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes);

/* What a member says on arrival.  Two of each, in turn: one is written while slow members read
 * the other. */
typedef struct shm_call {
    _Alignas(SHM_LINE) int32_t kind;
    int32_t  dtype;
    int64_t  count;
    int64_t  in, out; /* offsets in the file, or -1: private */
    int32_t  staged;
    int64_t  stride; /* of terms, with n_lane */
    int32_t  n_lane; /* 0: one term */
    uint32_t dealt;  /* weft_comm_dealt */
    int32_t  n_part; /* tensors, which lie where the member's stage says; 0: one */
} shm_call;

/* Where one of several tensors lies. */
typedef struct shm_part {
    int64_t in, out; /* offsets in the file */
} shm_part;

/* A member's place.  Its own line stays in its cache: others look there only to name the late. */
typedef struct shm_seat {
    shm_call call[2];
    _Alignas(SHM_LINE) uint32_t turn; /* of the next barrier */
    uint32_t arrived[2];              /* barriers arrived at, by turn & 1 */
    int32_t  cpu;                     /* where, the last time */
    uint32_t busy;                    /* arrived, and at work for all */
    uint32_t over;                    /* one was not passed: there will be no other */
} shm_seat;

/* A group in one epoch. */
typedef struct shm_round {
    uint32_t epoch;
    /* poisoned : 1 | turn : 15 | arrived : 16 */
    _Alignas(SHM_LINE) shm_word door;
    _Atomic uint32_t claim; /* the last turn with work : 16 | pieces of it taken : 16 */
    _Atomic uint32_t done;  /* pieces of it */
    _Alignas(SHM_LINE) shm_seat seat[];
} shm_round;

typedef struct shm_meeting {
    _Atomic uint64_t newest;   /* offset of shm_round */
    uint64_t         stage;    /* offset: per member two of SHM_STAGE */
    uint64_t         stage_at; /* of the memory in which it is */
    int32_t          n_closed; /* members that have closed it */
} shm_meeting;

enum {
    SHM_STAGE = 512 << 10,
};

struct weft_comm_group {
    weft_comm_group_head head; /* first */
    shm_end             *e;
    int                  n, me, tag;
    shm_meeting         *meeting;
    shm_round           *round;
    int                  staged; /* bytes of the own stage that are populated */
    char               **stage; /* [n]: of each member; slot k is SHM_STAGE * k further */
    const void         **in;    /* [n] */
    void               **out;   /* [n] */
    const shm_call     **call;  /* [n] */
    shm_call            *one;   /* [n]: of one of several tensors */
    void                *one_kept;
    int32_t             *rank, *key; /* key: in the directory */
};

weft_status weft_comm__shm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      uint32_t instance, weft_comm_group **out);
weft_status weft_comm__shm_close_group(weft_comm *c, weft_comm_group *g);
int         weft_comm__shm_missing(weft_comm *c, weft_comm_group *g);
/* The round of the end's epoch. */
weft_status weft_comm__shm_enter(weft_comm_group *g);
uint32_t    weft_comm__shm_turn(const weft_comm_group *g); /* of the next barrier */
weft_status weft_comm__shm_barrier(weft_comm_group *g, weft_collective what);

/* Work between the last arrival and the passing of a barrier: a piece for each member, done by
 * whoever is awake. */
typedef struct shm_work {
    bool (*ready)(void *job); /* asked of the last to arrive: is there work? */
    weft_status (*piece)(void *job, int first, int end); /* of members first .. end - 1 */
    void *job;
    bool  alone; /* too little to share: the last to arrive does it all */
} shm_work;
/* A barrier with work, which must be the same for all who say that it is ready.  *worked: it was
 * done. */
weft_status weft_comm__shm_barrier_work(weft_comm_group *g, weft_collective what,
                                        const shm_work *w, bool *worked);
weft_status weft_comm__shm_rows(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out,
                                const weft_comm_rows *r);
weft_status weft_comm__shm_run(weft_comm *c, const weft_comm_call *call);

/* The head of such memory, checked. */
weft_status weft_comm__shm_read_head(int fd, shm_head *out);
/* Pages for memory at that offset of the file, which is mapped at p. */
weft_status weft_comm__shm_make_pages(int fd, int64_t offset, char *p, int64_t bytes);

#endif
