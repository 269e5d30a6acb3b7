/* The state of one agent's part of the agreement, shared by the files that change it. */
#ifndef WEFT_MEMBER_HOSTS_PRIV_H
#define WEFT_MEMBER_HOSTS_PRIV_H

#include "member/hosts.h"
#include "member/hosts_message.h"

enum {
    HOSTS_MAX_CANDIDATE = 64,
    HOSTS_MAX_CONTACT   = 32
};

#define HOSTS_ALIVE_S    0.1  /* between keep-alive messages */
#define HOSTS_REPEAT_S   0.2  /* between messages that may be lost */
#define HOSTS_SUSPECT    0.8  /* of failure_timeout_s */
#define HOSTS_SMALL_S    3.0  /* that the smaller side of a cut waits */
#define HOSTS_TERM_S     2.0  /* signals to several hosts within it mean the job */
#define HOSTS_JOIN_S     0.5  /* after the newest candidate came: others may follow */
#define HOSTS_COLLECT_S  60.0 /* for a host that is there to stop or kill its ranks */
#define HOSTS_REGISTER_S 60.0 /* for a register that does not answer */
#define HOSTS_CONFIRM_S  5.0 /* for a host that leaves: that another one knows the view */
#define HOSTS_WATCH      0.25 /* of failure_timeout_s: between reads of a shared register */

typedef enum hosts_state {
    HOSTS_CANDIDATE, /* in no view */
    HOSTS_MEMBER,
    HOSTS_OUTSIDE, /* it leaves, and the next view is decided: another host has to know it */
    HOSTS_OVER
} hosts_state;

/* A host of the view, at its position. */
typedef struct hosts_peer {
    double  heard_s, probed_s, term_s;
    bool    gone; /* its process has ended */
    bool    cut;  /* it is left out: another host does not hear it, or it does not stop */
    bool    lost; /* gone, cut or silent for too long */
    bool    ready, done, leaving, by_term;
    bool    idle;    /* leaving, for that reason alone; of this host */
    bool    at_once; /* leaving, and the others do not prepare for it */
    bool    reported;
    int64_t arrived, passed;
    int     n_rank;
} hosts_peer;

typedef struct hosts_candidate {
    weft_member_host host;
    double           heard_s;
    /* Epochs of the view that these are of; 0: never.  asked: to prepare for the next one;
     * prepared: it is; late: it was asked, and is not waited for any more, since late_s */
    uint32_t asked, prepared, late;
    double   late_s;
    int      learned; /* percent of the state; 0: none */
    uint32_t unused;  /* it would have no rank in the next view */
} hosts_candidate;

/* The way to the next view. */
typedef struct hosts_change {
    bool    wanted;
    char    reason[WEFT_MEMBER_REASON];
    bool    leads; /* this agent collects, since led_s */
    double  led_s, collect_s, want_s, retry_s;
    bool    stopping, stopped; /* ranks of this host */
    int64_t arrived, passed;   /* once stopped */
} hosts_change;

/* Reads of a shared register, one at a time. */
typedef enum hosts_read {
    HOSTS_READ_NONE,
    HOSTS_READ_FIND, /* a candidate: is there a view, and is its run alive? */
    HOSTS_READ_WATCH /* a member: is there one without it? */
} hosts_read;

typedef struct hosts_watch {
    hosts_read asked;
    double     next_s; /* a member's next one */
    bool       fails;  /* the last one had no answer */
    /* a candidate: the keep-alive number of its last read; the run that it knows is to be taken
     * over if the next read finds the same one */
    uint64_t beat;
    bool     takes;
} hosts_watch;

typedef struct hosts_queue {
    int                n, first, cap;
    weft_hosts_action *action; /* bytes: an offset while in the queue */
    size_t             n_byte, byte_cap;
    uint8_t           *byte;
} hosts_queue;

struct weft_hosts {
    weft_hosts_options o;
    weft_register     *store;
    bool               is_majority; /* and the store is ours */
    hosts_state        state;
    /* Seconds that this agent was awake; clock_s: the last TICK's */
    double            now_s, clock_s;
    bool              has_clock;
    weft_member_view *view, *scratch;
    uint8_t          *view_bytes;
    size_t            n_view_bytes;
    int               self; /* position in the view, -1: not in it */
    hosts_peer        peer[WEFT_MEMBER_MAX_HOST];
    hosts_change      change;
    int               n_candidate;
    double            candidate_s; /* when the newest one came */
    hosts_candidate   candidate[HOSTS_MAX_CANDIDATE];
    double            prepare_s; /* leader: since when those that were asked prepare */
    double            repeat_s;  /* when they are asked again */
    double            end_s;     /* when candidates hear again that the job has ended */
    /* To prepare for: a candidate; the leader, with the hosts that stay; epoch 0: none */
    weft_member_view *expected;
    bool              prepared; /* for that */
    int               learned;  /* a candidate: percent of the state, for that */
    bool              unused, says_unused; /* a candidate would have no rank in it */
    double            ahead_s; /* leader: since when those that stay prepare */
    int               n_contact;
    uint64_t          contact[HOSTS_MAX_CONTACT];
    int               n_asked;     /* proposals without an outcome */
    uint32_t          found_epoch; /* to be proposed; 0: none */
    bool              finds;       /* the newest view of the register is wanted */
    bool              follows; /* the run to be proposed follows one of the register */
    hosts_watch       watch;
    double            unknown_s; /* since when the register does not answer; 0: it does */
    double            alive_s, join_s, below_s, member_s, out_s;
    bool              saving, interrupts; /* by SIGINT */
    bool              few;                /* saving, as hosts are too few */
    char              save_why[WEFT_MEMBER_REASON];
    int               n_idle_view; /* since a step was committed */
    bool              has_step;    /* one was committed in this view */
    bool              has_run;     /* a view had hosts enough for ranks to start */
    hosts_queue       queue;
};

/* hosts.c */
weft_hosts_action *weft_member__add_action(weft_hosts *h, weft_hosts_action_kind kind,
                                           const char *why);
void               weft_member__send_host(weft_hosts *h, uint64_t to, hosts_message *m);
void               weft_member__send_view(weft_hosts *h, uint64_t to);
void weft_member__end_hosts(weft_hosts *h, weft_hosts_action_kind kind, const char *why);
/* ALONE, of a member whose ranks have stopped: they hold what others may not. */
void weft_member__end_alone(weft_hosts *h, const char *why);
/* The same with the hosts of h->scratch, which becomes the view. */
void weft_member__end_together(weft_hosts *h, const char *why);
void weft_member__save_all(weft_hosts *h, const char *why, bool interrupts);
/* Takes a view that stands where it is newer.  spread: this agent decided it, and sends it. */
bool weft_member__adopt_view(weft_hosts *h, const void *bytes, size_t n, bool spread);

/* hosts_change.c */
int  weft_member__acting_leader(const weft_hosts *h); /* its position */
void weft_member__want_change(weft_hosts *h, const char *reason);
void weft_member__stop_ranks(weft_hosts *h);
bool weft_member__sees_majority(const weft_hosts *h); /* of the view's hosts */
void weft_member__describe_few(const weft_hosts *h, int n_here, char *why, size_t size);
void weft_member__send_report(weft_hosts *h, uint64_t to);
void weft_member__move_change(weft_hosts *h);
void weft_member__propose_found(weft_hosts *h);
/* The first epoch of a run that follows the view of that one. */
uint32_t weft_member__next_run(const weft_hosts *h, uint32_t epoch);
void     weft_member__poll_register(weft_hosts *h);
void     weft_member__watch_register(weft_hosts *h); /* a member reads it */

/* hosts_watch.c */
void weft_member__watch_peers(weft_hosts *h);
void weft_member__hear_message(weft_hosts *h, uint64_t from, const hosts_message *m);

/* hosts_join.c */
void weft_member__drop_candidate(weft_hosts *h, uint64_t id);
void weft_member__drop_silent(weft_hosts *h); /* candidates */
void weft_member__hear_join(weft_hosts *h, uint64_t from, const hosts_message *m);
void weft_member__judge_candidates(weft_hosts *h); /* the leader: do some join? */
/* Those that join in the next view; n_lost: hosts that it lacks. */
void weft_member__add_candidates(weft_hosts *h, weft_member_view *next, int n_lost);
/* The leader: have the hosts that stay prepared for the next view, or are they late? */
bool weft_member__prepare_members(weft_hosts *h, double limit_s);
/* All have done their work: it hears that the job has ended. */
void weft_member__end_candidates(weft_hosts *h);
/* A candidate: to ask for a place; what it is to prepare for. */
void weft_member__ask_to_join(weft_hosts *h);
void weft_member__hear_prepare(weft_hosts *h, uint64_t from, const hosts_message *m);
void weft_member__note_prepared(weft_hosts *h, uint32_t epoch);
void weft_member__note_learned(weft_hosts *h, uint32_t epoch, int percent);
void weft_member__note_unused(weft_hosts *h, uint32_t epoch);

#endif
