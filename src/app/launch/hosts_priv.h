/* An agent of several hosts, shared by the files that open it and run it. */
#ifndef WEFT_LAUNCH_HOSTS_PRIV_H
#define WEFT_LAUNCH_HOSTS_PRIV_H

#include "comm/auth.h"
#include "launch/launch_priv.h"
#include "member/hosts.h"
#include "register/register.h"

enum {
    MAX_LINK = 4 * WEFT_MEMBER_MAX_HOST
};

/* A connection to another agent. */
typedef struct host_link {
    int64_t  peer;
    uint64_t id; /* 0: it has not said it yet */
    bool     open;
} host_link;

/* What ranks of a view prove to each other.  Its first host draws it, and gives it to the others
 * over control connections; it is in no register, and a host that is not in the view has none. */
typedef struct host_key {
    uint32_t      epoch; /* 0: none */
    weft_comm_key key;
} host_key;

struct weft_launch__hosts {
    weft_control     *control;
    weft_register    *store; /* --rdzv file: or etcd://; NULL: a majority of agents */
    int               epoll; /* both of them */
    weft_hosts       *agreement;
    weft_member_view *was; /* the last view that this host was in; epoch 0: none */
    weft_member_host  self;
    int       rdzv_fd; /* where ranks of a view meet whose first host is this one */
    int       n_link;
    host_link link[MAX_LINK];
    int64_t   contact; /* connection to --rdzv, of an agent that joins; 0: none */
    double    contact_s, begun_s, tick_s;
    bool      found, entered; /* the job began here; this host was in a view once */
    bool      started;        /* ranks were, once */
    bool      waits;          /* for a place in the job, as the log says */
    uint32_t  stop_epoch;  /* ranks are to stop in it, and STOPPED is not told; 0: none */
    uint32_t  ready_epoch; /* in which READY was reported */
    uint32_t  use_epoch;   /* the next view has only n_use ranks of this host; 0: all */
    int       n_use;
    int       n_scaled;   /* ranks of this host, by weft scale; 0: all */
    int64_t   step;       /* the last one that was reported */
    double    drain_s;    /* when this host was asked to leave; 0: it was not */
    double    done_s;     /* when its ranks had done their work; 0: they have not */
    uint64_t  drained;    /* the host that weft drain waits for; 0: none */
    bool      over, left; /* no further view; as it was asked to */
    bool      saves;      /* over, and its ranks save in a view of their own */
    bool      ended;  /* the job's work is done, or saved: this launcher ends with it */
    bool      enters; /* the newest view, as soon as its key is there */
    double    key_s;  /* when that is asked for again */
    host_key  key;
    /* why this host is to leave and stay away; "": it is not */
    char cordon[200];
    char why[300];
};

#endif
