/* What agents of several hosts send each other, and its bytes. */
#ifndef WEFT_MEMBER_HOSTS_MESSAGE_H
#define WEFT_MEMBER_HOSTS_MESSAGE_H

#include "member/view.h"

typedef enum hosts_message_kind {
    HOSTS_ALIVE = 1, /* flags, text: why the job is saved */
    HOSTS_ASK,       /* for the newest view */
    HOSTS_TAKE,      /* bytes: a view that stands */
    HOSTS_JOIN,      /* host: it wants to be in the next view; flags, percent */
    HOSTS_WANT,    /* text: the next view is needed; id: of a host that is silent, or 0 */
    HOSTS_COLLECT, /* stop your ranks, and report */
    HOSTS_REPORT,  /* arrived, passed (-1: its ranks left nothing), n_rank, flags */
    HOSTS_PROBE,   /* id: when did you hear of it? */
    HOSTS_HEARD,   /* id, age_ms */
    HOSTS_LEAVE,   /* id, flags: that host is to leave */
    HOSTS_VOTE,    /* bytes: of the register of a majority */
    HOSTS_PREPARE, /* bytes: the view that this candidate is to prepare for */
    HOSTS_TOGETHER, /* bytes: no majority is there, and these hosts save together and end */
    HOSTS_N_MESSAGE
} hosts_message_kind;

enum {
    HOSTS_SAVING   = 1,   /* ALIVE */
    HOSTS_READY    = 2,   /* ALIVE: all ranks run in the epoch */
    HOSTS_DONE     = 4,   /* ALIVE: its ranks have done their work */
    HOSTS_TERM     = 8,   /* LEAVE: by a signal; REPORT: it leaves by one */
    HOSTS_LEAVING  = 16,  /* REPORT */
    HOSTS_INT      = 32,  /* ALIVE: SAVING by SIGINT */
    HOSTS_PREPARED = 64,  /* JOIN: its ranks are prepared for the view after this epoch */
    HOSTS_AT_ONCE  = 128, /* LEAVE: the others do not prepare for it */
    HOSTS_FEW      = 8,   /* ALIVE: SAVING as hosts are too few */
    HOSTS_IDLE     = 1,   /* LEAVE: its ranks are of no use */
    HOSTS_UNUSED   = 2 /* JOIN: an answer to PREPARE: it would have no rank, and waits */
};

typedef struct hosts_message {
    hosts_message_kind kind;
    uint32_t           epoch; /* of the sender's newest view */
    unsigned           flags;
    uint64_t           id;
    int64_t            arrived, passed;
    int                n_rank;
    int                percent; /* of the state that its ranks have learned */
    uint32_t           age_ms;
    char               text[WEFT_MEMBER_REASON];
    weft_member_host   host;
    const uint8_t     *bytes;
    size_t             n;
} hosts_message;

/* How many bytes; 0: they do not fit. */
size_t weft_member__encode_message(const hosts_message *m, void *bytes, size_t cap);
/* false: these bytes are no message.  m->bytes points into them. */
bool weft_member__decode_message(const void *bytes, size_t n, hosts_message *m);

#endif
