/* One agreed view of a job, and the communicator of a rank in it.
 *
 *     weft_comm_net_open(&options, &listener);           where there are several hosts
 *     ..its address and everybody's: a rendezvous (rdzv.h), or whoever made the membership
 *     weft_comm_create(&membership, listener, 60, &c);   returns when all ranks are there
 *
 * A communicator lives as long as its membership: with the next one, of a later epoch, it is
 * dropped (weft_comm_drop) and another is created. */
#ifndef WEFT_COMM_MEMBERSHIP_H
#define WEFT_COMM_MEMBERSHIP_H

#include <stdbool.h>

#include "comm/auth.h"
#include "comm/comm.h"

typedef struct weft_membership {
    uint32_t epoch;
    int      rank, world;
    int      local_rank, local_world; /* among the ranks of this host */
    int slot; /* of this host: its place, with cores or a GPU, also where ranks change */
    /* That there may be in later memberships, on all hosts and on this one; 0: as many as now. */
    int max_world, max_local;
    /* Not 0: its ranks save what they hold of the newest step, and end: others may go on without
     * them, so nothing but a checkpoint is written, of the last epoch that all had agreed on, which
     * is so many before this one. */
    int  saves_only;
    bool takes_over; /* an earlier run's, which may still be about to end */
    int  shm_fd; /* memory of this host's ranks (shm.h); -1: this rank is alone on it */
    /* With its epoch: slabs are in kept_fd, which outlives it. */
    bool has_kept;
    int  kept_fd;
    /* Where there are several hosts: a key that only the ranks of this membership have, and the
     * address of each (weft_comm_net_address).  Borrowed. */
    weft_comm_key      key;
    const void *const *address;
    const int64_t     *address_bytes;
} weft_membership;

/* What a rank tells its agent (the `weft run` of its host). */
typedef enum weft_membership_news {
    WEFT_MEMBERSHIP_LEFT, /* it lost a peer, has left the epoch and awaits the next one */
    WEFT_MEMBERSHIP_CONNECTED, /* all ranks of the epoch are there */
    WEFT_MEMBERSHIP_BUILT,     /* its program and its memory are there */
    WEFT_MEMBERSHIP_READY,     /* it has its state: steps follow */
    WEFT_MEMBERSHIP_COMMITTED, /* a step is done */
    /* `step` ranks are of use, fewer than there are; or, with a text, those before, as this one
     * cannot be one of those that there are, and why */
    WEFT_MEMBERSHIP_WANTS,
    WEFT_MEMBERSHIP_SCALE, /* `step` ranks from the next step on: all ranks leave now */
    WEFT_MEMBERSHIP_BACK,  /* no rank held all of the state: it went back, before READY */
    WEFT_MEMBERSHIP_LEARNS, /* before that: it has `step` percent of the state */
    WEFT_MEMBERSHIP_PREPARED, /* it has done what it can before it is in the next membership */
    /* this rank has computed other bits than when it ran a step again; text: which, and how */
    WEFT_MEMBERSHIP_CORDON,
    /* a rank stays slow: text as weft_launch_slow_parse() reads it (launch/level.h) */
    WEFT_MEMBERSHIP_SLOW,
    /* a better plan for the same ranks is there; text: what is predicted */
    WEFT_MEMBERSHIP_REPLAN,
    /* text: predicted steps of other numbers of ranks, as parts of one now: "3:1.3 5:0.8" */
    WEFT_MEMBERSHIP_STEPS,
    WEFT_MEMBERSHIP_FINISHED, /* all is written: a rank that is lost now has nothing left to do */
    WEFT_N_MEMBERSHIP_NEWS
} weft_membership_news;

/* What a rank has seen that people should know. */
typedef struct weft_membership_incident {
    const char *cause, *decided; /* "disk", "continue" */
    int64_t     step;            /* the last one that was committed */
    const char *text;
} weft_membership_incident;

/* New ranks of a membership to come learn the state from those that stay, while these train
 * (session/lesson.h): where they meet, and what they prove. */
typedef struct weft_membership_lesson {
    uint32_t epoch; /* of the membership to come */
    int      first; /* the first rank of it that learns, and all after it; 0: none does */
    char     at[280];
    weft_comm_key key; /* of these ranks' own */
} weft_membership_lesson;

/* The membership that a rank is to be in, while others, or it, train. */
typedef struct weft_membership_expected {
    int rank, world, local_rank, local_world;
    int slot;    /* as in weft_membership */
    int kept_fd; /* as in weft_membership; borrowed */
    /* Ranks of each host; 0: there is one.  Borrowed. */
    int        n_host;
    const int *host_ranks;
    /* A file with what a rank that trains has given to `brief`; -1: there is none.  Borrowed. */
    int                    brief_fd;
    weft_membership_lesson lesson;
} weft_membership_expected;

/* The state came to where ranks of a membership need it. */
typedef struct weft_membership_move {
    int64_t bytes, sent; /* to where they were not; of those, between hosts */
    double  predicted_s, seconds;
    bool    back;       /* none held all of it: it came from a checkpoint or a snapshot */
    int     n_batch;    /* of tensors, one after another */
    int64_t peak_bytes; /* of pages of a host's slots then; 0: not known */
    int64_t made_bytes; /* of pages that were made for it and for work memory */
    int64_t learned;    /* that new ranks had got before, while the others trained */
} weft_membership_move;

/* What gives a rank its memberships, one after another: the environment of a launcher gives one,
 * an agent another one each time that a rank was lost. */
typedef struct weft_membership_source {
    /* Waits for the next membership.  *out borrows from the source until the next call; *listener
     * is for weft_comm_create(), which the caller calls.  world 0: the others go on without this
     * rank.  WEFT_ERR_PEER: there is no other. */
    weft_status (*await)(void *arg, weft_membership *out, weft_comm **listener);
    /* Before the first await: is this rank to prepare for one?  False where there is a membership
     * already.  NULL: never. */
    bool (*expected)(void *arg, weft_membership_expected *out);
    /* Asked between steps: is this rank to prepare for another number of ranks, in which it stays?
     * True once for each time that the agent asks for it; then brief_fd is the caller's.  NULL:
     * never. */
    bool (*resizes)(void *arg, weft_membership_expected *out);
    /* The ranks of a lesson, numbered for it, as a communicator of their own: returns when all are
     * there, in any thread.  WEFT_ERR_PEER: they did not come, or *over is the epoch of the lesson,
     * which ends every wait of the communicator, too.  NULL: never. */
    weft_status (*meet)(void *arg, const weft_membership_lesson *l, int rank, int world,
                        const _Atomic uint32_t *over, weft_comm **out);
    /* 1: there is a later one, which only has to be awaited; -1: there will be none; 0: neither.
     * NULL: never. */
    int (*invited)(void *arg);
    /* Asked between steps: is there a newer one?  NULL: never. */
    bool (*changed)(void *arg);
    /* Then: does a host leave, and its memory with it?  NULL: never. */
    bool (*drains)(void *arg);
    /* And: has it fewer ranks on this host?  A rank that has not heard of it yet says no.  NULL:
     * never. */
    bool (*shrinks)(void *arg);
    /* To the agent; step: the last one that was committed; text: with READY, the folder of the
     * job's output, with COMMITTED, the file of the plan in it, with LEFT, the error that it left
     * by, with CORDON, SLOW, REPLAN and STEPS as above, else NULL.  NULL: there is no agent, and a
     * lost peer is the end. */
    void (*tell)(void *arg, weft_membership_news news, int64_t step, const char *text);
    /* To the agent as well; NULL: there is none.  moved: by one rank, before READY; made: by each
     * rank of its own pages, after that and before READY. */
    void (*report)(void *arg, const weft_membership_incident *i);
    void (*moved)(void *arg, const weft_membership_move *m);
    void (*made)(void *arg, int64_t bytes);
    /* For ranks that prepare for a later membership: what they need to know of this one.  Before
     * READY, and when there is more to know; NULL: there is no agent. */
    void (*brief)(void *arg, const void *bytes, size_t n);
    void *arg;
} weft_membership_source;

/* Shared memory on one host; between several the network of `listener`, and shared memory inside
 * each.  listener: what weft_comm_net_open gave, NULL on one host; taken, also on failure. */
weft_status weft_comm_create(const weft_membership *m, weft_comm *listener,
                             double timeout_s, weft_comm **out);

#endif
