/* Processes of one host as ranks, over shared memory.
 *
 *     weft_comm_shm_create(4, &w);             the launcher; ranks inherit weft_comm_shm_fd(w)
 *     weft_comm_shm_join(fd, rank, 60, &c);    each rank; returns when all are there
 *     weft_comm_shm_alloc(c, bytes, &p);       memory that peers can reach
 *
 * All memory is one sparse memfd: control words, rings, and a slab for each rank, mapped whole by
 * everyone; it is gone when the last process is.  Collectives over memory from
 * weft_comm_shm_alloc move each byte once, straight between slabs; other memory is staged block
 * by block.  Where all members of an all_reduce or all_gather give the same out, the result is
 * written once, for all to read in place (then two results should
 * be used in turn: the next call may start to write while a slow member still reads).
 *
 * A rank that dies is noticed by a watcher asleep on its peers' robust mutexes, before the kernel
 * tears down its memory; a rank that stops is noticed by the deadline. */
#ifndef WEFT_COMM_SHM_H
#define WEFT_COMM_SHM_H

#include <stdatomic.h>

#include "base/progress.h"
#include "comm/comm.h"

typedef struct weft_comm_shm weft_comm_shm;

/* What the launcher holds.  While it lives, slabs outlive their ranks. */
weft_status weft_comm_shm_create(int world, weft_comm_shm **out);
void        weft_comm_shm_destroy(weft_comm_shm *w);  /* accepts NULL */
int         weft_comm_shm_fd(const weft_comm_shm *w); /* close-on-exec; borrowed */
/* Before a rank joins: this memory is for one epoch, and a rank that is lost before it came is lost
 * in it. */
void weft_comm_shm_set_epoch(weft_comm_shm *w, uint32_t epoch);
/* The same: ranks 0 to n - 1 are those of the epoch, at most as many as it was created for, and
 * rank r has the slab of slot[r]; slot: all of them, those that no rank has last.  Else all ranks
 * are, each with the slot of its number. */
void weft_comm_shm_set_slots(weft_comm_shm *w, int n, const int *slot);
/* The pages of a slab that nobody needs any more are given back. */
void weft_comm_shm_clear_slab(weft_comm_shm *w, int slot);
/* The launcher's word that a rank is no more ("killed by signal 9"): ends all that waits in its
 * epoch. */
void weft_comm_shm_report(weft_comm_shm *w, int rank, const char *how);

/* While it is on, no wait of a rank times out: a peer is stopped on purpose. */
void weft_comm_shm_hold(weft_comm_shm *w, bool on);
bool weft_comm_shm_is_held(const weft_comm *c); /* in a rank; false for NULL */

/* A state in a slab that outlives ranks: where it is, and what says what it holds (state/table.h),
 * both as offsets in the slab. */
typedef struct weft_comm_shm_held {
    _Atomic int64_t at, bytes, table_at, table_bytes;
    /* all of it is after that one; -1: of none, as while it is updated */
    _Atomic int64_t  step;
    _Atomic uint64_t layout; /* a hash */
    /* What its rank computes of it itself, without what ranks gather after the commit point, is
     * after that one; -1: of none.  Its table; of 0 bytes: the rank computes all of it. */
    _Atomic int64_t computed_step, computed_at, computed_bytes;
} weft_comm_shm_held;

enum {
    /* layouts of moves that were broken off one after another */
    WEFT_COMM_SHM_OLDER    = 15,
    WEFT_COMM_SHM_OWN      = 2,
    WEFT_COMM_SHM_SNAPSHOT = 2 * WEFT_COMM_SHM_OWN
};

/* What a rank tells its launcher, and the process that takes its place, without a message; it
 * outlives the rank. */
typedef struct weft_comm_shm_slot {
    weft_progress_record progress; /* moves while the rank makes progress */
    _Atomic int64_t      step;     /* the last one that its ranks have committed */
    /* Its state, where slabs outlive ranks; and those of other layouts that it is moved from, until
     * all ranks have theirs. */
    weft_comm_shm_held state, older[WEFT_COMM_SHM_OLDER];
    /* Of a rank whose state is in memory that goes with its process (a GPU's): copies of it after
     * two steps, of which one is whole while the other is made; then the same of a rank of another
     * host, for which this one keeps them. */
    weft_comm_shm_held snapshot[WEFT_COMM_SHM_SNAPSHOT];
    /* The newest steps at whose commit point it has been with all that its updates need, and that
     * it has passed; the bits of the gradient norm of the first. */
    _Atomic int64_t  arrived, passed;
    _Atomic uint32_t norm;
    /* 1 + where in the slab it has what the process after it needs beside the state (its size
     * stands in it); 0: it has nothing.  One word: another record takes its place at once. */
    _Atomic int64_t record;
    /* Bytes of the slab that have pages of zeros, made before a rank has this slot: those that it
     * allocates there first are not cleared once more. */
    _Atomic int64_t clean_from, clean_to;
} weft_comm_shm_slot;

/* What the rank has written is not trusted: its memory is that of a new one. */
void weft_comm_shm_distrust(weft_comm_shm_slot *slot);

/* The launcher's view, and the same in the rank, which stays mapped as long as the process lives.
 * WEFT_ERR_ARG: fd is no such memory. */
weft_comm_shm_slot *weft_comm_shm_slot_of(const weft_comm_shm *w, int slot);
weft_status         weft_comm_shm_map_slot(int fd, int slot, weft_comm_shm_slot **out);

/* Of memory that outlives epochs, without joining one: pages for the first bytes of a slot's slab,
 * where nothing is yet. */
weft_status weft_comm_shm_prepare_slab(int kept, int slot, int64_t bytes);

/* An epoch of this process alone, over the slab of a slot in that memory: for who has the slot and
 * is not in the job's epoch yet.  What it leaves in the slab is there for the job's. */
weft_status weft_comm_shm_join_alone(int kept, int slot, weft_comm **out);

/* Bytes of a slab from an offset on. */
typedef struct weft_comm_shm_range {
    int64_t at, bytes;
} weft_comm_shm_range;
/* Where the rank that has this rank's slab in the next epoch will have what it allocates, want[k]
 * bytes one after another, if it adopts the n_keep ranges first; at -1: there is no room. */
weft_status weft_comm_shm_foresee(const weft_comm *c, const weft_comm_shm_range *keep,
                                  int n_keep, const int64_t *want, int n_want,
                                  weft_comm_shm_range *out);
/* Pages where such a range has none, made in any thread while this epoch goes on: what is allocated
 * there later does not wait for them.  What is in the range stays as it is. */
weft_status weft_comm_shm_make_ahead(weft_comm *c, weft_comm_shm_range range);

/* Joins and waits for the others to do so.  fd is copied.  WEFT_ERR_ARG: fd is no such memory. */
weft_status weft_comm_shm_join(int fd, int rank, double timeout_s, weft_comm **out);
/* The same with slabs in `kept`, memory of as many ranks that all of them give and that outlives
 * epochs: what a rank frees there, or leaves, keeps its pages. */
weft_status weft_comm_shm_join_kept(int fd, int kept, int rank, double timeout_s,
                                    weft_comm **out);
/* This rank's, in the memory that outlives epochs; NULL: slabs go with the epoch. */
weft_comm_shm_slot *weft_comm_shm_kept_slot(const weft_comm *c);
/* The same of any slot, also of one that has no rank now; NULL: there is none of that number. */
weft_comm_shm_slot *weft_comm_shm_kept_slot_of(const weft_comm *c, int slot);
/* The number of the slot whose slab this rank has; and of all of them in the order of the ranks
 * that have them, those that none has last: -1, there are not so many. */
int weft_comm_shm_own_slot(const weft_comm *c);
int weft_comm_shm_slot_at(const weft_comm *c, int position);

/* Without a launcher of ours: position 0 of n processes of one host creates the memory, the
 * others get it over a socket named by key (no file; the name is gone with the socket).  *fd is
 * the caller's to close. */
weft_status weft_comm_shm_meet(const char *key, int me, int n, double timeout_s, int *fd);

/* Zeroed memory in this rank's slab, aligned to 4096 (2 MB and on large pages from 2 MB on),
 * touched. */
weft_status weft_comm_shm_alloc(weft_comm *c, int64_t bytes, void **out);
void        weft_comm_shm_free(weft_comm *c, void *p); /* p may be NULL */
/* The same with whatever is there, for who writes all of it before reading it. */
weft_status weft_comm_shm_alloc_used(weft_comm *c, int64_t bytes, void **out);
/* The same without pages: zeros until something is written, and pages are made for a range of it
 * at a time. */
weft_status weft_comm_shm_reserve(weft_comm *c, int64_t bytes, void **out);
weft_status weft_comm_shm_make_pages(weft_comm *c, void *p, int64_t bytes);
/* Pages that are wholly within a range of any slab are given back to the system: all is 0 there. */
void weft_comm_shm_give_back(weft_comm *c, void *p, int64_t bytes);
/* The same of all of a slot's slab from an offset on; of all that is free in this rank's slab. */
void weft_comm_shm_give_back_from(weft_comm *c, int slot, int64_t offset);
void weft_comm_shm_give_back_free(weft_comm *c);
/* Bytes of pages: of what is free in this rank's slab, which would be used again; of a range of any
 * slab; of all slabs. */
int64_t weft_comm_shm_count_free(weft_comm *c);
int64_t weft_comm_shm_count_range(weft_comm *c, const void *p, int64_t bytes);
int64_t weft_comm_shm_count_pages(const weft_comm *c);
/* ... that this end has made in its slab. */
int64_t weft_comm_shm_count_made(const weft_comm *c);
double  weft_comm_shm_made_s(const weft_comm *c); /* the time that it took */
/* What an earlier epoch has left in this rank's slab, as it is; before something else is allocated
 * there.  WEFT_ERR_ARG: it is not in the slab, or not free. */
weft_status weft_comm_shm_adopt(weft_comm *c, int64_t offset, int64_t bytes, void **out);
/* A place in a slab by slot and offset, to tell peers about it; -1: p is in no slab. */
int   weft_comm_shm_find(const weft_comm *c, const void *p, int64_t *offset);
void *weft_comm_shm_at(const weft_comm *c, int slot, int64_t offset);
/* The same, NULL: not so many bytes are in it. */
void *weft_comm_shm_reach(const weft_comm *c, int slot, int64_t offset, int64_t bytes);

#endif
