/* The control connection between the agent (`weft run`) and one of its ranks: a socket pair, and in
 * the rank a thread that reads it.
 *
 *     weft_line *l;
 *     WEFT_TRY(weft_line_open(fd, 0, &l));                    in a rank; takes fd
 *     WEFT_TRY(weft_line_await(l, 0, &view));              the newest view after epoch 0
 *     weft_line_send(l, &(weft_line_message){..});         to the agent
 *     weft_line_close(l);
 *
 * (1) A view comes with the memory of its epoch; only the newest view is kept.
 * (2) The end of the agent, or its word that the job ends, ends every wait. */
#ifndef WEFT_LAUNCH_LINE_H
#define WEFT_LAUNCH_LINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/membership.h"

typedef enum weft_line_kind {
    WEFT_LINE_VIEW, /* agent: all but step and at_s, with a descriptor; text: where hosts meet */
    WEFT_LINE_OVER, /* agent: over */
    WEFT_LINE_LEAVE, /* agent: epoch: ranks leave it after the step under way; local: a host goes */
    WEFT_LINE_END, /* agent: text says why */
    /* agent: world, first, local, mine of the view that this rank is to be in; text: ranks of each
     * host, "": there is one; lesson; with a descriptor: the brief of a rank that runs */
    WEFT_LINE_PREPARE,
    WEFT_LINE_LEFT,      /* rank: epoch, step, as are the others; text: why */
    WEFT_LINE_READY,     /* rank: at_s of all phases, move */
    WEFT_LINE_COMMITTED, /* rank: the first step of an epoch; text: its plan's file */
    WEFT_LINE_FAILED,    /* rank: it ends with an error of its own */
    WEFT_LINE_INCIDENT,  /* rank: cause, decided, step; text says what */
    WEFT_LINE_WANTS,  /* rank: world: so many ranks; text: why not those that there are */
    WEFT_LINE_LEARNS, /* rank: step: so many percent of the state, before it is prepared */
    WEFT_LINE_PREPARED, /* rank: it has done what it can before it is in that view */
    WEFT_LINE_SCALE,    /* rank: world: so many ranks after this step */
    WEFT_LINE_REPLAN,   /* rank: text: a better plan for the same ranks is there */
    WEFT_LINE_STEPS,    /* rank: text: predicted steps of other numbers of ranks */
    WEFT_LINE_SLOW,     /* rank: step, text: a rank stays slow */
    WEFT_LINE_CORDON,   /* rank: step, text: it has computed other bits the second time */
    WEFT_LINE_BRIEF, /* rank: with a descriptor: what new ranks need to know, to prepare */
    WEFT_LINE_FINISHED, /* rank: all is written */
    WEFT_N_LINE_KIND
} weft_line_kind;

/* When a rank was where, on the monotonic clock. */
typedef enum weft_line_phase {
    WEFT_LINE_AT_LEFT,      /* out of the epoch before; 0: it is new */
    WEFT_LINE_AT_VIEW,      /* has the view */
    WEFT_LINE_AT_CONNECTED, /* all are there */
    WEFT_LINE_AT_BUILT,
    WEFT_LINE_AT_READY,
    WEFT_N_LINE_PHASE
} weft_line_phase;

typedef struct weft_line_message {
    uint32_t magic; /* filled in when it is sent */
    int32_t  kind;  /* weft_line_kind */
    uint32_t epoch;
    uint32_t over; /* the newest epoch that lost a rank: all that waits in it ends */
    int32_t  world;
    int32_t  first, local; /* ranks of this host: how many, from which on */
    /* this rank among them, by number; not below local: it is not in the view */
    int32_t mine;
    int32_t most, most_local; /* that there may be, on all hosts and on this one */
    /* VIEW: ranks of this host save what they hold, and end; so many epochs after the last view */
    int32_t              saves;
    int32_t              restarts; /* VIEW: an earlier run was taken over */
    uint8_t              key[32];  /* VIEW of several hosts: what its ranks prove */
    int64_t              step;
    double               at_s[WEFT_N_LINE_PHASE];
    weft_membership_move move;
    /* PREPARE: may new ranks learn the state meanwhile? */
    weft_membership_lesson lesson;
    char                   text[1024];
    char                   cause[16], decided[16];
} weft_line_message;

/* Both ends.  Never waits: WEFT_ERR_IO, the other end is gone or does not read.  fd -1: none. */
weft_status weft_line_put(int line, const weft_line_message *m, int fd);
typedef enum weft_line_end {
    WEFT_LINE_OPEN,
    WEFT_LINE_GONE,    /* the other end is closed */
    WEFT_LINE_GARBAGE, /* it sent what is no message, and is not heard any more */
} weft_line_end;

/* false: there is none now, or *end says that none follows.  *fd: -1 or the caller's. */
bool weft_line_take(int line, weft_line_message *out, int *fd, weft_line_end *end);

typedef struct weft_line weft_line;

typedef struct weft_line_view {
    uint32_t epoch;
    int      world, first, local, mine, most, most_local;
    char     rdzv[280]; /* where the ranks of several hosts meet; "": there is one host */
    int      saves;     /* as in the message */
    bool     restarts;
    uint8_t  key[32];
    int      shm_fd; /* the line's, until the next call of await */
} weft_line_view;

/* What a rank prepares for, before it is in that view. */
typedef struct weft_line_next {
    int                    world, first, local, mine;
    char                   hosts[1024]; /* ranks of each host; "": there is one */
    int                    brief_fd;    /* -1: there is none */
    weft_membership_lesson lesson;
} weft_line_next;

/* stopped_s: an agent (the parent process) that is stopped alone for so long counts as gone, after
 * the step under way; 0: it is waited for. */
weft_status weft_line_open(int fd, double stopped_s, weft_line **out);
void        weft_line_close(weft_line *l); /* accepts NULL */
/* Waits for a view later than `after`.  WEFT_ERR_PEER: the job ends. */
weft_status weft_line_await(weft_line *l, uint32_t after, weft_line_view *out);
/* Waits for the first view, or for the word that one is to be prepared for: true, with that; its
 * descriptor is the line's. */
bool weft_line_is_to_prepare(weft_line *l, weft_line_next *out);
/* The same in a view, without waiting, and true once for each word; its descriptor is the
 * caller's. */
bool weft_line_take_next(weft_line *l, weft_line_next *out);
/* 1: there is a later one; -1: the job ends, and there will be none; 0: neither is known. */
int weft_line_has_view(weft_line *l, uint32_t after);
/* Is there a later one, or is that to be left? */
bool weft_line_has_newer(weft_line *l, uint32_t epoch);
/* Is that epoch left because a host goes, with its memory? */
bool weft_line_drains(weft_line *l, uint32_t epoch);
/* There is a later view, with fewer than n ranks here. */
bool weft_line_shrinks(weft_line *l, uint32_t epoch, int n);
/* The newest epoch that is over, as long as the line is open. */
const _Atomic uint32_t *weft_line_over(const weft_line *l);
void                    weft_line_send(weft_line *l, const weft_line_message *m);
/* The same with a descriptor, which the agent gets a copy of. */
void weft_line_send_fd(weft_line *l, const weft_line_message *m, int fd);

#endif
