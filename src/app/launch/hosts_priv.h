/* An agent of several hosts, shared by the files that open it and run it. */
#ifndef WEFT_LAUNCH_HOSTS_PRIV_H
#define WEFT_LAUNCH_HOSTS_PRIV_H

#include "launch/hosts_frame.h"
#include "launch/launch_priv.h"
#include "launch/living.h"
#include "member/hosts.h"
#include "register/register.h"

enum {
    MAX_LINK    = 4 * WEFT_MEMBER_MAX_HOST,
    MAX_CONTACT = WEFT_LAUNCH_MAX_RDZV + WEFT_LAUNCH_LIVING
};

#define ASK_S 0.2 /* between requests for the key of a view, and for a brief */

/* A connection to another agent. */
typedef struct host_link {
    int64_t  peer;
    uint64_t id; /* 0: it has not said it yet */
    bool     open;
} host_link;

/* When ranks were stopped for the next view (0: they were not), and until when each host of this
 * one was heard of. */
typedef struct host_stop {
    double wall_s, at_s;
    double seen_s[WEFT_MEMBER_MAX_HOST];
} host_stop;

/* From when ranks were stopped until they run in another view; since_s 0: they run. */
typedef struct host_change {
    double since_s;             /* in seconds since 1970 */
    char   why[200], lost[400]; /* lost: hosts, with their addresses */
} host_change;

/* This host is to join, and its ranks prepare for the view of an epoch (hosts_prepare.c). */
typedef struct host_prepare {
    uint64_t  from; /* the agent that asks for it; 0: none does */
    uint32_t  epoch;
    int       world, first, local; /* ranks of that view, and of this host in it */
    char      hosts[1024];         /* how many each host has, as text */
    bool      briefed; /* brief is there; of no bytes: nothing can be prepared */
    weft_text brief;
    bool      started;  /* ranks prepare for that, or are to */
    bool      reported; /* that they are prepared, or cannot be */
    double    ask_s, limit_s;
    /* New ranks learn the state: where they meet; learned: percent that was reported, -1: none. */
    host_lesson lesson;
    char        lesson_at[280];
    int         learned;
} host_prepare;

/* Ranks of this host prepare for a view to come in which it stays, as host_prepare says
 * (hosts_ahead.c). */
typedef struct host_ahead {
    uint64_t from; /* the agent that asks for it; 0: none does */
    uint32_t epoch;
    bool     begun; /* ranks know of it */
    bool     reported;
    double   limit_s; /* then they are in the view as they are */
} host_ahead;

/* This agent has hosts prepare for a view to come. */
typedef struct host_asking {
    bool              on;
    weft_member_view *view;
    int               n_scale; /* ranks, of weft scale; 0: the agreement asks for it */
    bool              has[WEFT_MEMBER_MAX_HOST]; /* of the newest view: it has prepared */
    double            repeat_s, limit_s;
    host_lesson       lesson; /* for that view */
} host_asking;

/* Where the job may be found. */
typedef struct host_contact {
    char    at[WEFT_MEMBER_NAME];
    int64_t peer;     /* 0: no connection */
    bool    of_run;   /* of the run that has last written the output */
    double  next_s;   /* when it is tried again */
    char    why[120]; /* the last connection's end; "": there was none */
} host_contact;

/* An agent that is in no view yet (hosts_search.c). */
typedef struct host_search {
    int          n_listed; /* addresses of --rdzv; 0: a register */
    char         listed[WEFT_LAUNCH_MAX_RDZV][WEFT_MEMBER_NAME];
    bool         begins; /* where no agent of a run answers: here */
    bool         lives;  /* one does, at the start */
    int          n;
    host_contact contact[MAX_CONTACT];
    double       begun_s, gone_s;
    bool         waits;    /* for a place in the job, as the log says */
    char         run[700]; /* the run that lives, as a text */
} host_search;

struct weft_launch__hosts {
    weft_control     *control;
    weft_register    *store; /* --rdzv file: or etcd://; NULL: a majority of agents */
    int               epoll; /* both of them */
    weft_hosts       *agreement;
    weft_member_view *was; /* the last view that this host was in; epoch 0: none */
    weft_member_host  self;
    int         rdzv_fd; /* where ranks of a view meet whose first host is this one */
    int         n_link;
    host_link   link[MAX_LINK];
    host_search search;
    double      tick_s;
    bool        found, entered; /* the job began here; this host was in a view once */
    bool        started;        /* ranks were, once */
    uint32_t  stop_epoch; /* ranks are to stop in it, and STOPPED is not told; 0: none */
    host_stop stop;
    host_change  change;
    uint32_t     ready_epoch; /* in which READY was reported */
    uint32_t     use_epoch; /* the next view has only n_use ranks of this host; 0: all */
    int          n_use;
    bool         idles;      /* none of them: it leaves, and waits for another view */
    bool         scaled_out; /* weft scale has left it no rank */
    int          n_scaled;   /* ranks of this host, by weft scale; 0: all */
    int64_t      step;       /* the last one that was reported */
    double       drain_s;    /* when this host was asked to leave; 0: it was not */
    double       done_s;     /* when its ranks had done their work; 0: they have not */
    uint64_t     drained;    /* the host that weft drain waits for; 0: none */
    bool         over, left; /* no further view; as it was asked to */
    bool         saves;      /* over, and its ranks save in a view of their own */
    bool         together;   /* with those of other hosts that are over, too */
    uint32_t     agreed;     /* saves: of the last view that all had agreed on */
    bool         ended; /* the job's work is done, or saved: this launcher ends with it */
    bool         enters; /* the newest view, as soon as its key is there */
    double       key_s;  /* when that is asked for again */
    host_key     key;
    host_prepare prepare;
    host_ahead   ahead;
    host_asking  asking;
    /* why this host is to leave and stay away; "": it is not */
    char cordon[200];
    char why[1200];
};

/* ---- hosts.c ---- */

/* open: only one that can be sent to. */
host_link *weft_launch__find_link(weft_launch__hosts *h, uint64_t id, bool open);
void       weft_launch__connect_host(weft_launch__hosts *h, uint64_t id);
void       weft_launch__send_frame(weft_launch__hosts *h, int64_t peer, uint32_t kind,
                                   const void *bytes, size_t n);
void       weft_launch__tell_hosts(weft_launch__hosts *h, weft_hosts_event e);
/* To all agents that can be sent to. */
void weft_launch__send_all(weft_launch__hosts *h, uint32_t kind, const void *bytes,
                           size_t n);
/* Ranks that save, and for which no further view comes, end, too. */
void weft_launch__end_here(weft_launch__run *l, bool left, const char *why);

/* Ranks of this host that the next view may have. */
int weft_launch__count_own(const weft_launch__run *l);

/* ---- hosts_search.c ---- */

/* Before it listens: who else is there? */
void weft_launch__search_open(weft_launch__run *l);
/* The least epoch of a run that begins here. */
uint32_t weft_launch__search_epoch(const weft_launch__run *l);
/* This host begins the job, or asks others to let it in. */
void weft_launch__search_begin(weft_launch__run *l);
void weft_launch__search_tick(weft_launch__run *l, double now_s);
/* A connection to one that was asked is over; refused: this host is not to ask again. */
void weft_launch__search_lost(weft_launch__run *l, const weft_control_event *e,
                              bool refused);
bool weft_launch__is_contact(weft_launch__hosts *h, int64_t peer);

/* ---- hosts_log.c ---- */

/* Why this host is in no view any more, as it was asked to; "": it was not asked. */
const char *weft_launch__name_leaving(const weft_launch__hosts *h);

/* Ranks are stopped for the next view: the time of the incidents of hosts that it lacks. */
void weft_launch__note_stopping(weft_launch__hosts *h);

/* ---- agent_state.c ---- */

/* Ranks are stopped, why; a new view is there, and was is still the one before. */
void weft_launch__change_begin(weft_launch__hosts *h, const char *why);
void weft_launch__change_enter(weft_launch__hosts *h, const weft_member_view *v);

/* ---- hosts_signal.c ---- */

/* What this host has to leave in may be over: it ends, and others find that it is lost. */
void weft_launch__check_grace(weft_launch__run *l, double now_s);

/* ---- hosts_prepare.c ---- */

void weft_launch__prepare_begin(weft_launch__run *l, uint64_t from);
/* A frame of any kind. */
void weft_launch__prepare_hear(weft_launch__run *l, const host_frame *f);
void weft_launch__prepare_tick(weft_launch__run *l, double now_s);
void weft_launch__prepare_close(weft_launch__hosts *h);

/* ---- hosts_crash.c ---- */

/* A frame of any kind. */
void weft_launch__crash_hear(weft_launch__run *l, const host_frame *f);

/* ---- hosts_scale.c ---- */

/* A view without the host that weft drain waits for is decided. */
void weft_launch__answer_drain(weft_launch__run *l);
void weft_launch__take_scale(weft_launch__run *l, const host_use *want);
/* The plan of the newest view has so many ranks. */
void weft_launch__take_use(weft_launch__run *l, const host_use *use);
void weft_launch__take_leave_out(weft_launch__run *l, const host_use *use);
/* The hosts prepare for so many ranks, then there are.  now: there are. */
void weft_launch__scale_ahead(weft_launch__run *l, int n);
void weft_launch__scale_now(weft_launch__run *l, int n);

/* ---- hosts_ahead.c ---- */

/* What ranks of this host, which is in that view, prepare for; true: it was that. */
bool weft_launch__expect_view(weft_launch__hosts *h, const weft_member_view *v);
/* The same of what new ranks learn; v: the view. */
bool weft_launch__expect_lesson(weft_launch__hosts *h, const weft_member_view *v,
                                const host_lesson *lesson);
/* Has hosts prepare for the view that is returned, the newest one as it is with the next epoch,
 * which the caller changes; NULL: out of memory. */
weft_member_view *weft_launch__ahead_ask(weft_launch__run *l, int n_scale);
/* The same for the view that the agreement expects. */
void weft_launch__ahead_expected(weft_launch__run *l);
/* A host has prepared. */
void weft_launch__ahead_done(weft_launch__run *l, uint64_t from, const host_use *done);
/* Ranks of this host do not prepare any more; new ones end. */
void weft_launch__ahead_end(weft_launch__run *l);
/* A new rank failed somewhere: all stays as it is. */
void weft_launch__take_stays(weft_launch__run *l, const host_use *stay);
/* A rank beyond the view has ended; false: it did not prepare for more ranks of this host. */
bool weft_launch__hosts_end_grow(weft_launch__run *l, int r, const char *what);
/* A frame of any kind. */
void weft_launch__ahead_hear(weft_launch__run *l, const host_frame *f);
void weft_launch__ahead_tick(weft_launch__run *l, double now_s);

#endif
