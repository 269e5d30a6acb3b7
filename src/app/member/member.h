/* Who is in a job on one host: its agent's decisions.  Pure: events in, actions out; no clock, no
 * process, no socket (tests/member/test_member.c runs it under a seeded simulator).
 *
 *     weft_member *m;
 *     WEFT_TRY(weft_member_create(4, &limits, &m));       the first view is decided
 *     weft_member_tell(m, &event);                        a rank ended, left, is ready; a tick
 *     while (weft_member_next(m, &action)) ..             what the agent has to do, in order
 *     weft_member_destroy(m);
 *
 * A slot is the place of one rank: its process, its memory, its cores or its GPU.  A view lists its
 * slots in the order of ranks; slots are numbered for the whole job.  A slot whose process was lost
 * gets another process, and all slots get the next view at once: survivors leave the old epoch when
 * they notice, and a rank that comes late is waited for by the others, which connect.
 *
 *     slot   ABSENT -START-> INVITED -ready-> RUNNING -left-> WAITING -VIEW-> INVITED
 *            ABSENT -START-> PREPARING -prepared-> PREPARED -VIEW-> INVITED
 *            any of them -ended-> ABSENT
 *
 * The number of slots in a view may change (weft_member_resize): the first n of an order of all
 * slots are in it, and a process of a slot beyond them has nothing left to do: that it ends is no
 * loss.  Where a slot that is new in a view is lost before all are ready, the next view has those
 * that were there before.  A slot that is cordoned is last in the order from the next number of
 * slots on, and in no view after that; the last slot of the view takes its rank.
 *
 * (1) One view for each epoch, decided once by a write-once register; epochs rise by one.
 * (2) Every slot of a view has a process when the view is decided.
 * (3) It comes to an end: a slot that is lost too often, a step that ends the processes of two
 *     slots (crashes, want of memory), also of several hosts, and views that commit no step end
 *     the job.  After END nothing is started. */
#ifndef WEFT_MEMBER_MEMBER_H
#define WEFT_MEMBER_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct weft_member weft_member;

typedef struct weft_member_limits {
    int     max_loss;    /* of one slot ... */
    int64_t within_step; /* ... in so many steps: it is not replaced any more */
    int     max_view;    /* one after another without a committed step */
    /* For the others to leave an epoch that one has left: without progress; of a core, as one that
     * uses more of it makes no progress; on the clock, 0: as long as it takes. */
    double late_s, work_s, most_s;
    int    max_slot; /* that a view may have; 0: as many as the first */
    /* Views are those of several hosts (hosts.h): WANT asks for the next one, weft_member_enter()
     * gives it. */
    bool outside;
} weft_member_limits;

/* 3 losses in 10 steps, 16 views; 5 s without progress, 60 s of a core, no limit on the clock. */
weft_member_limits weft_member_default_limits(void);

/* Why the process of a slot is gone. */
typedef enum weft_member_cause {
    WEFT_MEMBER_DONE, /* it has done its work */
    WEFT_MEMBER_FAILED, /* an error of its own, which it has reported: another one has it, too */
    WEFT_MEMBER_LOST,    /* killed, or ended without a word */
    WEFT_MEMBER_CRASHED, /* SIGSEGV and the like: by its own fault */
    WEFT_MEMBER_OOM,     /* killed for want of memory: perhaps by what it ran */
} weft_member_cause;

typedef enum weft_member_event_kind {
    WEFT_MEMBER_ENDED,       /* slot, cause, step */
    WEFT_MEMBER_LEFT,        /* slot, epoch: it waits for the next view */
    WEFT_MEMBER_READY,       /* slot, epoch */
    WEFT_MEMBER_ALIVE,       /* slot: it works on files */
    WEFT_MEMBER_WORKS,       /* slot, used_s: it uses a core, or waits for one */
    WEFT_MEMBER_IS_PREPARED, /* slot: it has done what it can before it is in a view */
    WEFT_MEMBER_STOP,        /* the job is to end: no rank is replaced any more */
    WEFT_MEMBER_TICK,        /* time has passed */
} weft_member_event_kind;

typedef struct weft_member_event {
    weft_member_event_kind kind;
    int                    slot;
    uint32_t               epoch;
    weft_member_cause      cause;
    int64_t step;   /* the last one that is known to be committed; ENDED, LEFT */
    bool    spared; /* ENDED: its slot gets a process however often it was lost */
    double  used_s; /* WORKS: seconds of a core since the last one */
    double  now_s;
} weft_member_event;

typedef enum weft_member_action_kind {
    WEFT_MEMBER_START, /* a process for the slot */
    WEFT_MEMBER_VIEW,  /* epoch: to all slots */
    WEFT_MEMBER_KILL,  /* the process of the slot does not answer */
    WEFT_MEMBER_WANT,  /* outside: the next view is needed, why */
    WEFT_MEMBER_END,   /* the job, why: "" where all is done */
} weft_member_action_kind;

typedef struct weft_member_action {
    weft_member_action_kind kind;
    int                     slot;
    uint32_t                epoch;
    char                    why[200];
} weft_member_action;

/* Actions of the first view are there at once, but for views from outside. */
weft_status weft_member_create(int n_slot, const weft_member_limits *limits,
                               weft_member **out);
void        weft_member_destroy(weft_member *m); /* accepts NULL */
void        weft_member_tell(weft_member *m, const weft_member_event *e);
/* false: nothing is to be done. */
bool weft_member_next(weft_member *m, weft_member_action *out);

/* limits.most_s from now on: other hosts wait as well, or none does any more. */
void weft_member_wait_at_most(weft_member *m, double most_s);
/* outside: the view of an epoch was decided, and n slots are in it. */
void weft_member_enter(weft_member *m, uint32_t epoch, int n);
/* The slot is the first to go, and the last one of the view takes its rank.  outside: the next view
 * with fewer slots is without it.  Else: the view that follows the end of its process, now, is. */
void weft_member_leave_out(weft_member *m, int slot);
/* outside: ranks are to leave, as one is lost; those that do not are killed. */
void weft_member_leave(weft_member *m, double now_s);
/* A process of a slot was ended by what it ran: CRASHED or OOM. */
typedef struct weft_member_crash {
    uint64_t          host; /* of several hosts; 0: this one */
    int               slot; /* there */
    weft_member_cause cause;
    int64_t           step; /* the last one that was known to be committed */
} weft_member_crash;

/* The last one here; false: there was none. */
bool weft_member_last_crash(const weft_member *m, weft_member_crash *out);
/* outside: one of another host. */
void weft_member_crash_elsewhere(weft_member *m, const weft_member_crash *crash);
/* outside: no slot is in the newest view any more, or none was. */
bool weft_member_is_stopped(const weft_member *m);

uint32_t weft_member_epoch(const weft_member *m);                /* of the newest view */
bool     weft_member_is_running(const weft_member *m, int slot); /* in it */
bool     weft_member_is_ready(const weft_member *m);             /* all slots run in it */
/* Does a rank that is lost now get another process?  Not when one has ended with its work done:
 * rank 0, or after a signal any. */
bool weft_member_replaces(const weft_member *m);
/* Is the slot's process lost too often if it is lost now, after that step? */
bool weft_member_is_too_often(const weft_member *m, int slot, int64_t step);
bool weft_member_is_over(const weft_member *m); /* END was decided */
int  weft_member_count(const weft_member *m);   /* slots of the newest view */
/* All slots in order, max_slot or as many as the first view has: those of the newest view by rank,
 * then the others. */
const int *weft_member_order(const weft_member *m);
int        weft_member_position(const weft_member *m, int slot); /* there */
bool       weft_member_is_in_view(const weft_member *m, int slot);
/* The slot is left out of views from the next resize on, which has at most as many as are left. */
void weft_member_cordon(weft_member *m, int slot);
int  weft_member_usable(const weft_member *m); /* slots that are not cordoned */
/* Processes for slots beyond the view, up to n: they prepare while the others train, and are in the
 * view of weft_member_resize().  Where weft_member_may_resize() holds.  outside: for the view of
 * weft_member_enter(), which ends those that are not in it. */
void weft_member_prepare(weft_member *m, int n);
/* Is a process of the slot beyond the view there, preparing or prepared? */
bool weft_member_is_preparing(const weft_member *m, int slot);
/* All slots from the view's last to n are prepared. */
bool weft_member_is_prepared(const weft_member *m, int n);
/* All are ready, none is to end, and no process of a slot beyond the view is left, but for those
 * that prepare. */
bool weft_member_may_resize(const weft_member *m);
/* The next view has n slots, from 1 to those that are usable; nothing happens where that may not
 * be. */
void weft_member_resize(weft_member *m, int n);
/* The next view has the same slots, where a resize may be. */
void weft_member_renew(weft_member *m);
/* The ranks of the newest view found that fewer of them are of use, or that updates are to be ended
 * by more of them: the next one has the first n, in the last order in which all were ready where
 * those were as many.  Also before they are ready; a process of a slot that is beyond the newest
 * view has nothing left to do there, and gets another one. */
void weft_member_recount(weft_member *m, uint32_t epoch, int n);
/* When a TICK is due; 0: never. */
double weft_member_deadline_s(const weft_member *m);

#endif
