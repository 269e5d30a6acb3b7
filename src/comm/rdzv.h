/* A meeting over TCP: every rank brings some bytes and goes away with everybody's.
 *
 *     weft_comm_rdzv_options o = {.at = "10.0.0.1:29400", .rank = r, .world = n, .timeout_s = 60};
 *     weft_comm_rdzv_meet(&o, mine, bytes, &m);       rank 0 listens, the others come to it
 *
 * Strangers that say something else are sent away.  Where a rank does not come in time, all that came
 * are told so in the same words. */
#ifndef WEFT_COMM_RDZV_H
#define WEFT_COMM_RDZV_H

#include "base/status.h"

typedef struct weft_comm_rdzv_options {
    const char *at; /* host:port, [ipv6]:port */
    int         rank, world;
    double      timeout_s;
    int         listen_fd; /* rank 0: a socket that listens already, or 0 */
    void (*waits)(
        const char *text); /* told once, after 3 s, who is waited for; or NULL */
} weft_comm_rdzv_options;

/* What all brought: part[r], bytes[r]. */
typedef struct weft_comm_meeting {
    uint64_t     job; /* a number drawn by rank 0 */
    int          world;
    const void **part;
    int64_t     *bytes;
    void        *memory;
} weft_comm_meeting;

weft_status weft_comm_rdzv_meet(const weft_comm_rdzv_options *o, const void *mine,
                                int64_t bytes, weft_comm_meeting *out);
void        weft_comm_meeting_fini(weft_comm_meeting *m);

/* The network device over which `at` is reached, or by which rank 0 has it; "" where that cannot be told.
 * Waits for nobody. */
void weft_comm_rdzv_device(const char *at, char *name, size_t n);

/* WEFT_ERR_ARG where at is no host:port. */
weft_status weft_comm_rdzv_check(const char *at);

#endif
