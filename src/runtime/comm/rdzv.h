/* The rendezvous over TCP: every rank brings some bytes and gets everybody's, and a key that only
 * the ranks of this run have.
 *
 *     weft_comm_rdzv_options o = {
 *         .at = "10.0.0.1:29400", .rank = r, .world = n, .timeout_s = 60, .token = &token};
 *     weft_comm_rdzv_run(&o, mine, bytes, &table);    rank 0 listens, the others connect to it
 *
 * (1) Rank 0 listens at the address it was given and at no other.
 * (2) Both sides prove that they have the token (auth.h) before rank 0 looks at rank, world or
 *     any byte of a guest; what follows carries MACs in both directions.
 * (3) The deadline holds whatever strangers do: all connections are served in one poll loop, each
 *     with a limit of its own in time and memory, and none of them ends the rendezvous.
 * (4) Where a rank does not come in time, all that came get the same line. */
#ifndef WEFT_COMM_RDZV_H
#define WEFT_COMM_RDZV_H

#include "comm/token.h"

typedef struct weft_comm_rdzv_options {
    const char *at; /* host:port, [ipv6]:port */
    int         rank, world;
    uint32_t    epoch; /* of the membership: a rank of another one is refused */
    double      timeout_s;
    const weft_comm_token *token;     /* needed */
    int                    listen_fd; /* rank 0: a socket that listens already, or 0 */
    /* Rank 0: are these bytes of a guest well-formed?  loopback: it came from this machine.  Or
     * NULL. */
    weft_status (*check)(const void *part, int64_t bytes, bool loopback);
    /* Who is waited for, after 3 s, and, as warnings, whom rank 0 turned away; or NULL. */
    void (*log)(bool warning, const char *text);
    /* Asked 20 times a second: there is a newer membership, so this one is left with WEFT_ERR_PEER;
     * or NULL. */
    bool (*is_over)(void *arg);
    void *arg;
} weft_comm_rdzv_options;

/* What all brought: part[r], bytes[r]. */
typedef struct weft_comm_rdzv_table {
    /* of this run: derived from the token and a nonce of rank 0's, never sent */
    weft_comm_key membership;
    int           world;
    const void  **part;
    int64_t      *bytes;
    void         *memory;
} weft_comm_rdzv_table;

enum {
    WEFT_COMM_RDZV_MAX_BYTES = 1 << 16 /* that a rank may bring */
};

weft_status weft_comm_rdzv_run(const weft_comm_rdzv_options *o, const void *mine,
                               int64_t bytes, weft_comm_rdzv_table *out);
void        weft_comm_rdzv_table_fini(weft_comm_rdzv_table *t); /* wipes the key */

/* The network device over which `at` is reached, or by which rank 0 has it; "" where that is not
 * known, or `at` names all addresses.  Does not wait. */
void weft_comm_rdzv_device(const char *at, char *name, size_t n);

/* WEFT_ERR_ARG where at is no host:port. */
weft_status weft_comm_rdzv_check(const char *at);

/* A socket that listens at the address of this host by which `peer` (host:port) is reached, or
 * which it names, at a free port: for listen_fd of many rendezvous, one after another.  at: what
 * guests are told.  *fd is the caller's. */
weft_status weft_comm_rdzv_listen_near(const char *peer, int *fd, char *at, size_t n);
/* The same at an address of this host that is given; NULL: that of its default route, else of the
 * first network device that is up, else loopback.  WEFT_ERR_ARG: it is not this host's. */
weft_status weft_comm_rdzv_listen_own(const char *address, int *fd, char *at, size_t n);

#endif
