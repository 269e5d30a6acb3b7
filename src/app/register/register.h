/* A write-once register: for each epoch one value, and the first that is proposed stands.
 *
 *     weft_register *r;
 *     WEFT_TRY(weft_register_open("file:/shared/run1", &options, &r));
 *     WEFT_TRY(weft_register_propose(r, 7, view, n));       starts; gives no outcome yet
 *     poll(weft_register_fd(r)), then
 *     while (weft_register_next(r, &o)) ..                  o.bytes: the value that stands
 *     weft_register_close(r);
 *
 * Where it is: the memory of the only agent (weft_register_open_memory), a folder that all hosts
 * see (file:DIR), the memory of a majority of the last view's agents (majority.h),
 * etcd (etcd://host:port,../NAME; etcds:// with TLS).
 *
 * (1) For each epoch at most one value is ever given with STANDS, to all callers in all processes.
 * (2) It is one of the values that were proposed for that epoch, whole.
 * (3) No call waits for a disk, another host or a lock: outcomes come from next, and fd becomes
 *     readable when there may be one.  What has no outcome after limit_s is UNKNOWN: it may stand
 *     or not, and can be proposed again.
 * (4) Who proposes epoch e has seen what stands at e - 1.
 * (5) One thread calls. */
#ifndef WEFT_REGISTER_REGISTER_H
#define WEFT_REGISTER_REGISTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    WEFT_REGISTER_MOST  = 256 << 10, /* bytes of a value */
    WEFT_REGISTER_QUEUE = 16         /* calls without an outcome, at most */
};
#define WEFT_REGISTER_NEWEST UINT32_MAX /* the highest epoch that is decided */

typedef struct weft_register weft_register;

typedef struct weft_register_options {
    /* Names the job: a register that holds views of another one is refused. */
    const char *job;
    double      limit_s; /* of one call; 0: 5 s */
    /* etcd: name of the user and the file with the password, NULL: WEFT_ETCD_USER,
     * WEFT_ETCD_PASSWORD_FILE, or none */
    const char *user, *password_file;
    /* etcds: certificates that are trusted, NULL: WEFT_ETCD_CA_FILE, or the system's; own
     * certificate and key, NULL: WEFT_ETCD_CERT_FILE, WEFT_ETCD_KEY_FILE, or none */
    const char *ca_file, *cert_file, *key_file;
} weft_register_options;

typedef enum weft_register_result {
    WEFT_REGISTER_STANDS, /* bytes; epoch is greater than asked where the caller was overtaken */
    WEFT_REGISTER_EMPTY,   /* read: nothing was decided so far */
    WEFT_REGISTER_UNKNOWN, /* why: the register was not reached */
} weft_register_result;

typedef struct weft_register_outcome {
    weft_register_result result;
    uint32_t             epoch;
    uint64_t       beat;  /* look: the keep-alive number that was written last; 0: none */
    const uint8_t *bytes; /* until the next call */
    size_t         n;
    char           why[300]; /* one line with the remedy */
} weft_register_outcome;

/* By its text.  Waits, up to limit_s: the register is reached, found to be exclusive, and this
 * job's.  WEFT_ERR_ARG: one line that says what to do. */
weft_status weft_register_open(const char *where, const weft_register_options *o,
                               weft_register **out);
weft_status weft_register_open_memory(weft_register **out);
/* Accepts NULL.  A call that is under way goes on and has no outcome. */
void weft_register_close(weft_register *r);

/* epoch: from 1, below NEWEST.  Copies the bytes.  WEFT_ERR_ARG: no such epoch, too many bytes, too
 * many calls under way. */
weft_status weft_register_propose(weft_register *r, uint32_t epoch, const void *bytes,
                                  size_t n);
/* What stands for an epoch, or for the NEWEST one. */
weft_status weft_register_read(weft_register *r, uint32_t epoch);
/* Reads the NEWEST one.  beat not 0: writes this keep-alive number, which is not one that was
 * written before: two reads with different numbers mean that the job is alive.  Nothing is decided
 * by it. */
weft_status weft_register_look(weft_register *r, uint64_t beat);
/* false: no outcome so far.  Outcomes come in the order of calls. */
bool weft_register_next(weft_register *r, weft_register_outcome *out);
/* Readable when next may give an outcome; -1: outcomes are there at once, or come by messages. */
int weft_register_fd(const weft_register *r);

#endif
