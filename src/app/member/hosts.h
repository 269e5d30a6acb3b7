/* Which hosts are in a job: one agent's part of their agreement.  Pure: events in, actions out; no
 * clock, no socket (tests/member/test_hosts_sim.c runs agents under a seeded simulator).
 *
 *     weft_hosts *h;
 *     WEFT_TRY(weft_hosts_create(&options, &h));
 *     weft_hosts_tell(h, &event);                     a message, a lost connection, a tick
 *     while (weft_hosts_next(h, &action)) ..          all of them, before the next tell
 *     weft_hosts_destroy(h);
 *
 *     CANDIDATE -a view with this host-> MEMBER -a newer view without it-> LEFT or FENCED
 *                                              -no majority, no register-> ALONE
 *
 * A job begins with a view of one host: FOUND.  Others are candidates: CONTACT, or the shared
 * register, names agents to send to.  Where none of these answers for failure_timeout_s, and no
 * keep-alive number in the register says that they are alive, the run is taken over: the next view
 * is this host alone, and restarts from the newest checkpoint.  As soon as there are min_host of
 * them all are taken in; until then no rank is started (weft_hosts_is_enough).  Later ones join
 * when a step of the view was committed; those beyond max_host wait.
 *
 * A host that joins prepares first, while the others train: the leader sends it the view that is
 * to come (PREPARE), and asks for that view when it has PREPARED.  One that does not within
 * prepare_s is named, and not waited for.  In a view that is needed for another reason only those
 * are taken that have prepared, and, in the place of lost hosts, those that wait.  A host finds
 * while it prepares that the next plan has no rank for it (UNUSED): it waits, and is asked again in
 * the next view, or together with another host that comes.
 *
 * Hosts that stay prepare for a view in which others join or leave, too, where steps are run: the
 * leader is to see to it (PREPARE), and asks for the view when they have, or are late.
 *
 * The next view: a member asks for it (a rank or a host was lost, a host leaves or joins); the
 * leader, or the first host that is there, asks all hosts to stop their ranks (STOP_RANKS),
 * collects how far those came (STOPPED), and proposes hosts and first step to the register.  What
 * stands there is sent to all.
 *
 * (1) One view for each epoch: the register's.  Epochs of an agent rise.
 * (2) A host of the view before is in a view only if its ranks had stopped when it was proposed.
 * (3) first_step follows the rule of tests/model/vote.pml: no step that a rank has passed is run
 *     again; a step that all stopped hosts had arrived at is committed, as a lost one may have
 *     passed it.  Where state was lost ranks go back further.
 *     Hosts that are no majority and reach each other save together: the first of them, when all
 *     have stopped, sends a view that only they know and that no step is run in.  One that sees a
 *     majority itself is not in it.
 * (4) A host that learns of a newer view without it is FENCED.
 *     With a shared register each member reads it for one, every WATCH of failure_timeout_s.
 * (5) A host is lost when it was silent for failure_timeout_s, for 0.8 of it where a second agent
 *     has not heard of it either, or at once where its kernel says so (GONE).  Time that this
 *     agent did not run (a late TICK) does not count. */
#ifndef WEFT_MEMBER_HOSTS_H
#define WEFT_MEMBER_HOSTS_H

#include "base/status.h"
#include "member/view.h"
#include "register/register.h"

typedef struct weft_hosts weft_hosts;

enum {
    WEFT_HOSTS_MESSAGE_MOST = WEFT_MEMBER_VIEW_MOST + 128 /* bytes */
};

/* Why ranks are stopped here, where the reason is another host's. */
#define WEFT_HOSTS_ASKED "another host asks for it"

typedef struct weft_hosts_options {
    weft_member_host self;
    /* Reached by all hosts (file:, etcd://), borrowed; NULL: a majority of the last view's hosts
     * decides.  Its descriptor is to be polled: a TICK when it is readable. */
    weft_register *shared;
    int            min_host, max_host; /* --nnodes MIN:MAX */
    double         failure_timeout_s;
    /* As many hosts as there were are needed after one is lost, but for those that left; and no
     * host is waited for once ranks have run: SAVE at once. */
    bool keeps_count, never_waits;
    /* Ranks are of a program that starts again in each view: those of a host that has done its work
     * do not, and the other hosts go on without it where they are min_host. */
    bool   restarts;
    double wait_s;   /* for min_host hosts, then SAVE; for a first answer; 0: 60 s */
    int    max_view; /* one after another without a committed step; 0: 16 */
    /* The least epoch of the first view of a run that begins here, above those of earlier runs that
     * no register knows; 0: 1. */
    uint32_t first_epoch;
    /* For hosts that join, and then the others, to prepare; for the others when one leaves; 0: none
     * does. */
    double prepare_s, leave_s;
    /* This host was of no use in a view of so many hosts, and is not prepared for one; 0: none */
    int unused_of;
} weft_hosts_options;

typedef enum weft_hosts_event_kind {
    WEFT_HOSTS_TICK, /* now_s: any clock that does not stand still; every 100 ms or more often */
    WEFT_HOSTS_MESSAGE, /* id, bytes, n: what SEND gave at agent id */
    WEFT_HOSTS_GONE, /* id: that agent's process has ended (connection reset, or closed) */
    /* epoch: this host alone is the first view of a run, of that epoch at least.  0 with a shared
     * register: where that has no view, else it joins the hosts of the newest one */
    WEFT_HOSTS_FOUND,
    WEFT_HOSTS_CONTACT, /* id: an agent that can be sent to, which may be a member */
    /* n_rank, text: the next view is needed: a rank was lost; n_rank can be had here */
    WEFT_HOSTS_CHANGE,
    /* epoch, arrived, passed, n_rank: no rank of this host is in the epoch any more.  arrived: the
     * step that all of them have brought to the vote, passed: the last that one has passed; -1:
     * they left nothing (no step yet, a crash) */
    WEFT_HOSTS_STOPPED,
    WEFT_HOSTS_READY, /* epoch: all ranks here run in it */
    WEFT_HOSTS_STEP,  /* passed: a step was committed */
    /* id: the host is to leave; this one or another; at_once: the others do not prepare for it */
    WEFT_HOSTS_DRAIN,
    /* ranks of this host are of no use in this view: it leaves where another one stays */
    WEFT_HOSTS_IDLE,
    WEFT_HOSTS_TERM, /* this host got a signal to end: it leaves; two within 2 s: the job ends */
    WEFT_HOSTS_SAVE_ALL, /* text: the job is to save and end; interrupts: as SIGINT means */
    WEFT_HOSTS_DONE,     /* the ranks of this host have done their work */
    /* epoch, percent: a candidate's ranks have so much of the state for that view */
    WEFT_HOSTS_LEARNS,
    /* epoch: this host is prepared for that view, or cannot be more so; of a leader: those that
     * stay are */
    WEFT_HOSTS_PREPARED,
    /* epoch: in that view this host would have no rank: it waits, as one beyond max_host */
    WEFT_HOSTS_UNUSED,
} weft_hosts_event_kind;

typedef struct weft_hosts_event {
    weft_hosts_event_kind kind;
    double                now_s;
    uint64_t              id;
    uint32_t              epoch;
    int64_t               arrived, passed;
    int                   n_rank, percent;
    bool                  interrupts, at_once;
    const char           *text;
    const void           *bytes;
    size_t                n;
} weft_hosts_event;

typedef enum weft_hosts_action_kind {
    WEFT_HOSTS_SEND, /* id, bytes, n; may be lost.  weft_hosts_find() has its address */
    WEFT_HOSTS_STOP_RANKS, /* epoch: of this host; then STOPPED, also where there are none */
    WEFT_HOSTS_VIEW,       /* weft_hosts_view() is new, and this host is in it */
    /* id: weft_hosts_expected() is new, then PREPARED.  Of a candidate: its ranks prepare, and
     * agent id knows for what; of a leader, id its own: those of hosts that are in both views */
    WEFT_HOSTS_PREPARE,
    WEFT_HOSTS_WARN, /* why: for the log */
    /* why, interrupts: all ranks save and end; views still change meanwhile */
    WEFT_HOSTS_SAVE,
    /* The last one of these is the last action.  why. */
    WEFT_HOSTS_LEFT,   /* as it was asked to: others go on without this host */
    WEFT_HOSTS_FENCED, /* others go on without this host: what it writes does not count */
    /* saves: this host cannot go on, and ends; together: so do all hosts of weft_hosts_view(),
     * which no register holds, and their ranks save as one */
    WEFT_HOSTS_ALONE,
} weft_hosts_action_kind;

typedef struct weft_hosts_action {
    weft_hosts_action_kind kind;
    uint64_t               id;
    uint32_t               epoch;
    const uint8_t         *bytes; /* until the next tell */
    size_t                 n;
    bool                   interrupts;
    bool                   few;   /* SAVE: fewer hosts than min_host are there */
    bool                   saves; /* ALONE: ranks here have stopped, and save first */
    bool                   together;
    char                   why[200];
} weft_hosts_action;

weft_status weft_hosts_create(const weft_hosts_options *o, weft_hosts **out);
void        weft_hosts_destroy(weft_hosts *h); /* accepts NULL */
void        weft_hosts_tell(weft_hosts *h, const weft_hosts_event *e);
/* false: nothing is to be done. */
bool weft_hosts_next(weft_hosts *h, weft_hosts_action *out);

/* The newest view that is known; epoch 0: none.  Of a candidate: one without it. */
const weft_member_view *weft_hosts_view(const weft_hosts *h);
/* The view that is prepared for, of a candidate or a leader; epoch 0: none. */
const weft_member_view *weft_hosts_expected(const weft_hosts *h);
bool                    weft_hosts_is_member(const weft_hosts *h); /* of that view */
bool weft_hosts_is_leader(const weft_hosts *h); /* the first that is there */
/* Has the view min_host hosts, and as many as it needs? */
bool weft_hosts_is_enough(const weft_hosts *h);
bool weft_hosts_is_ready(const weft_hosts *h); /* leader: do all hosts run in it? */
/* Have all other hosts of the view done their work, or are they gone?  And are those gone that
 * would join: they hear that the job has ended. */
bool weft_hosts_are_done(const weft_hosts *h);
/* Have the first n hosts of the view reported that they are done? */
bool weft_hosts_have_done(const weft_hosts *h, int n);
/* For how long nothing was heard of a host of the view. */
double weft_hosts_silence(const weft_hosts *h, int position);
/* A candidate that learns the state, the k-th of them; NULL: there are fewer.  *percent: of it. */
const weft_member_host *weft_hosts_learner(const weft_hosts *h, int k, int *percent);
/* A host of the view, or a candidate that this agent has heard of; NULL: neither. */
const weft_member_host *weft_hosts_find(const weft_hosts *h, uint64_t id);

/* Are they a message of the agreement? */
bool weft_hosts_is_message(const void *bytes, size_t n);

#endif
