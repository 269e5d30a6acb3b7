/* Communication of tensors in device memory, in the order of the device's streams: what a plugin
 * offers beside the host's transports.
 *
 *     weft_device_comm *dc;
 *     weft_device_comm_open(backend, device, comm, &dc);              all ranks, in the same order
 *     if (weft_device_comm_joins(dc, n, rank)) ...                    the same answer everywhere
 *     dc->backend->open_group(dc, &spec, &group);                     its members, at create
 *     dc->backend->prepare(group, &call, &prepared);                  each by itself
 *     dc->backend->run(prepared, stream, 0);                          issues; captured like kernels
 *     ...
 *     weft_device_comm_check(dc);                                     after the stream was finished
 *
 * A backend ("peer", "nccl", "staged") is a table of functions, and promises what comm.h promises:
 * (1) nothing hangs: where a member does not come, or anybody gave up, everything that was issued
 *     comes to its end, what the backend had still to write is not written, and check() says why
 * (2) the sum's order: the tree over group position, with lanes and units as in comm.h; any fixed
 *     order where any_order is set
 * (3) run only issues: it allocates nothing, waits for nothing and reads no device memory
 * (4) each call writes a progress word of its group in the stream's order, when it begins and when
 *     it ends: the watcher knows which one is under way (weft_device_comm_watch) */
#ifndef WEFT_COMM_DEVICE_COMM_H
#define WEFT_COMM_DEVICE_COMM_H

#include <stdatomic.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "device/device.h"

typedef struct weft_device_comm  weft_device_comm;
typedef struct weft_device_group weft_device_group; /* the backend's */
typedef struct weft_device_call  weft_device_call;  /* the backend's */

enum {
    WEFT_DEVICE_HELLO_BYTES = 256
};
/* What a rank tells all others before anything is opened: where it runs, what it reaches.  All
 * zero: it does not take part (a rank on cpu). */
typedef struct weft_device_hello {
    char bytes[WEFT_DEVICE_HELLO_BYTES];
} weft_device_hello;

/* A group of ranks, or the two ends of a channel: the sender is position 0. */
typedef struct weft_device_group_spec {
    int            n, me; /* members, and which one this is */
    const int32_t *rank;
    int32_t        tag; /* of two groups with the same ranks, another one */
    /* the same members over the host: for bytes at open and close */
    weft_comm_group *meeting;
    /* device memory that calls of the group lie in */
    int                n_slab;
    const weft_memory *slab;
    /* of a group: bytes of its largest call at this member, about; memory is sized by it */
    int64_t largest;
    /* of a channel: its largest message, and how many may wait unreceived; bytes 0: a group */
    int64_t bytes;
    int     credits;
} weft_device_group_spec;

typedef struct weft_device_backend {
    const char *name; /* as WEFT_GPU_COMM names it */
    weft_status (*hello)(weft_device *d, weft_device_hello *out);
    /* Can ranks that told these work together?  n of them, none all zero. */
    bool (*joins)(const weft_device_hello *const *hello, int n);
    /* Why they cannot: a line about the first two that keep apart, called name[]; NULL: none. */
    void (*explain)(const weft_device_hello *const *hello, const int32_t *name, int n,
                    char *text, size_t bytes);
    /* Does it carry out calls of this kind and type?  messages: sends and receives. */
    bool (*takes)(weft_collective kind, weft_dtype t);
    bool messages;
    /* Calls of rows read their table on the host: run waits for what s has so far, and cannot be
     * captured. */
    bool reads_rows;

    /* Fills in *out, whose first fields are there; backend, device, comm and hello stay valid. */
    weft_status (*open)(weft_device_comm *dc);
    void (*close)(weft_device_comm *dc); /* all groups are closed */
    /* By all members, groups in the same order at all of them.  After an error of open the others
     * are told by the host's comm. */
    weft_status (*open_group)(weft_device_comm *dc, const weft_device_group_spec *spec,
                              weft_device_group **out);
    /* Streams are idle and graphs are gone.  broken: members may be anywhere, meet nobody. */
    void (*close_group)(weft_device_group *g, bool broken);

    /* Addresses of the call are the device's; its group is of no meaning.  Tables of rows are in
     * device memory, too.  Copied.  name: what errors call its value, valid until the group is
     * closed. */
    weft_status (*prepare)(weft_device_group *g, const weft_comm_call *call,
                           const char *name, weft_device_call **out);
    weft_status (*prepare_message)(weft_device_group *g, weft_comm_side side,
                                   const weft_memory *at, const char *name,
                                   weft_device_call **out);
    /* In the order of s; calls of a group are issued in the same order by all its members.
     * number: of a message, counted in its step and channel from 0. */
    weft_status (*run)(weft_device_call *call, weft_stream *s, int64_t number);
    void (*release)(weft_device_call *call); /* NULL is fine */

    /* Now and then, on a thread of its own: WEFT_ERR_PEER, somebody is late or a call failed. */
    weft_status (*look)(weft_device_comm *dc);
    /* On that thread, after the first error, again with every look around until the end is closed:
     * lets everything that waits come to its end. */
    void (*abort)(weft_device_comm *dc);
} weft_device_backend;

/* One rank's end.  Zero what is not listed by open's comment; impl is the backend's. */
struct weft_device_comm {
    const weft_device_backend *backend;
    weft_device               *device;
    weft_comm                 *comm;
    const weft_device_hello   *hello; /* of all ranks */
    /* reduction: fixed.  The opener sets it, at all ranks alike, before groups are opened. */
    bool any_order;
    /* Milliseconds that a call waits for a peer; 0: comm's timeout_s.  Set between steps. */
    _Atomic int64_t limit_ms;
    _Atomic int64_t step; /* that is under way, for errors; 0: none is known */
    /* of device memory that opened groups hold at this rank */
    int64_t                   bytes;
    void                     *impl;
    struct weft_device_watch *watch; /* device_comm.c's */
};

/* Seconds that a call may wait for a peer. */
static inline double weft_device_comm_limit_s(const weft_device_comm *dc)
{
    int64_t ms = atomic_load_explicit(&dc->limit_ms, memory_order_relaxed);
    return ms > 0 ? 1e-3 * (double)ms : dc->comm->timeout_s;
}

/* Names of a group's calls by their number, which its progress word has.  Zeroed: none. */
typedef struct weft_device_names {
    int n, cap;
    struct weft_device_name {
        const char *op, *name;
    } * of;
} weft_device_names;

/* The next number.  name stays valid as long as the group; calls are prepared before one runs. */
weft_status weft_device_names_add(weft_device_names *names, weft_collective kind,
                                  const char *name, uint32_t *number);
weft_status weft_device_names_add_message(weft_device_names *names, weft_comm_side side,
                                          const char *name, uint32_t *number);
static inline void weft_device_names_fini(weft_device_names *names)
{
    free(names->of);
    *names = (weft_device_names){0};
}

/* A group as its rank's watcher sees it. */
typedef struct weft_device_watched {
    int                      n, me;
    const int32_t           *rank;
    int32_t                  tag;
    const weft_device_names *names;
    /* Is that member in the call?  NULL: members tell each other (weft_comm_note). */
    bool (*is_here)(const weft_device_group *g, int position);
    const weft_device_group *group;
    /* the watcher's own: what it saw last, since when, and when it looked */
    uint32_t seen;
    double   since_s, looked_s;
    bool     noted;
    int64_t  record; /* of the flight recorder */
} weft_device_watched;

/* With every look around.  word: 2 * number + 1 or + 2 of a call, which differs whenever something
 * moves; waits: this member is in that call and not through it.  After half of the limit the flight
 * recorder has the call, and the members know that this one is in it.  WEFT_ERR_PEER after all of
 * it: the line names the call, its step and the ranks that have not come. */
weft_status weft_device_comm_watch(weft_device_comm *dc, weft_device_watched *w,
                                   uint32_t word, bool waits);

/* By all ranks of c, also those without a device for it (backend and d NULL: *out is NULL there).
 * Blocks for the others' hello. */
weft_status weft_device_comm_open(const weft_device_backend *backend, weft_device *d,
                                  weft_comm *c, weft_device_comm **out);
void        weft_device_comm_close(weft_device_comm *dc); /* NULL is fine */
bool weft_device_comm_joins(const weft_device_comm *dc, int n, const int32_t *rank);
/* Why it does not join them, for people; gives text, perhaps "". */
const char *weft_device_comm_explain(const weft_device_comm *dc, int n,
                                     const int32_t *rank, char *text, size_t bytes);
/* What has ended communication, here or elsewhere: WEFT_ERR_PEER.  What streams hold after that
 * is of no use. */
weft_status weft_device_comm_check(weft_device_comm *dc);

#endif
