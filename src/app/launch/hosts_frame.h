/* Frames between agents of several hosts: what each kind has in it, and whether bytes are one.
 *
 *     host_frame f;
 *     if (!weft_launch__read_frame(kind, data, bytes, &f)) ..its sender is dropped, and named
 *
 * Each begins with the number of the agent that sends it.  Numbers are as in this machine's memory:
 * agents of one job have one wire version (control/hello.h) and one byte order. */
#ifndef WEFT_LAUNCH_HOSTS_FRAME_H
#define WEFT_LAUNCH_HOSTS_FRAME_H

#include "comm/auth.h"

enum {
    FRAME_WHO       = 16, /* the number of the agent, once a connection */
    FRAME_MESSAGE   = 17, /* the same, and bytes of the agreement */
    FRAME_USE       = 18, /* the same, and host_use */
    FRAME_KEY       = 19, /* the same, and host_key */
    FRAME_ASK       = 20, /* the same, and the epoch whose key is asked for */
    FRAME_SCALE     = 21, /* the same: the job is to have so many ranks */
    FRAME_ASK_BRIEF = 22, /* the same, and the epoch that is prepared for */
    FRAME_BRIEF = 23, /* the same, lesson, and what its ranks need to know, or nothing */
    FRAME_STAYS = 24, /* the same: a new rank failed, and so many ranks go on */
    FRAME_LEAVE_OUT = 25, /* the same: the host of that rank goes on without it */
    FRAME_CRASH     = 26, /* the same, and which process was ended by what it ran */
    /* the same, lesson, and the view that its ranks prepare for */
    FRAME_PREPARE_VIEW  = 27,
    FRAME_VIEW_PREPARED = 28, /* the same: they have, for a view of so many ranks */
    FRAME_LAST          = FRAME_VIEW_PREPARED
};

/* A number of ranks of all hosts, in a view; or a rank of it. */
typedef struct host_use {
    uint32_t epoch;
    int32_t  n_rank;
} host_use;

/* What ranks of a view prove to each other.  Its first host draws it, and gives it to the others
 * over control connections; it is in no register, and a host that is not in the view has none. */
typedef struct host_key {
    uint32_t      epoch; /* 0: none */
    weft_comm_key key;
} host_key;

/* A process that was ended by what it ran. */
typedef struct host_crash {
    int64_t step;
    int32_t slot, oom;
} host_crash;

/* In a view to come the ranks from `first` on learn the state from those before them, while these
 * train; 0: none does.  The key is of these ranks' connections; like that of a view it is drawn by
 * the agent that has hosts prepare, and no register holds it. */
typedef struct host_lesson {
    int32_t       first;
    weft_comm_key key;
} host_lesson;

typedef struct host_frame {
    uint32_t kind;
    uint64_t from;
    union {
        host_use   use; /* USE, SCALE, STAYS, LEAVE_OUT, VIEW_PREPARED */
        host_key   key;
        host_crash crash;
        uint32_t   epoch; /* ASK, ASK_BRIEF, BRIEF */
    };
    host_lesson    lesson; /* BRIEF, PREPARE_VIEW */
    const uint8_t *bytes;  /* MESSAGE, BRIEF, PREPARE_VIEW: in the frame */
    size_t         n;
} host_frame;

/* false: it is none.  A brief, a view and a message of the agreement that can be read are looked at
 * by who takes them. */
bool weft_launch__read_frame(uint32_t kind, const void *data, size_t n, host_frame *out);

#endif
