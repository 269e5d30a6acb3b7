/* Inside the rendezvous: addresses, and records by bytes without sockets. */
#ifndef WEFT_COMM_RDZV_PRIV_H
#define WEFT_COMM_RDZV_PRIV_H

#include <netdb.h>
#include <sys/socket.h>

#include "comm/auth.h"
#include "comm/rdzv.h"

enum {
    RDZV_HELLO_S = 5,  /* from connecting to the end of the guest's record */
    RDZV_SOON_S  = 3,  /* after which those who wait say so */
    RDZV_LOOK_MS = 50, /* between two questions whether the membership is over */
};

/* ---- rdzv_address.c ---- */

typedef struct rdzv_listeners {
    int  fd[8], n;
    bool loopback; /* all of them */
} rdzv_listeners;

weft_status weft_comm__rdzv_resolve(const char *at, struct addrinfo **out);
/* Sockets that listen, without blocking, at the addresses of `at` that this host has, and at no
 * other. */
weft_status weft_comm__rdzv_listen(const char *at, rdzv_listeners *out);
void        weft_comm__rdzv_close(rdzv_listeners *d);
/* Is the host in `at` a name, other than localhost? */
bool weft_comm__rdzv_is_name(const char *at);
bool weft_comm__rdzv_is_loopback(const struct sockaddr *a);
/* Its number, for people. */
void weft_comm__rdzv_print(const struct sockaddr *a, socklen_t len, char *out, size_t n);

/* ---- rdzv_record.c ---- */

/* A guest's record: this, its bytes, a MAC over both. */
typedef struct rdzv_hello {
    int32_t rank, world;
    int64_t bytes;
} rdzv_hello;

/* Rank 0's record: this, a table or a line of text, a MAC over both. */
typedef struct rdzv_answer {
    int32_t failed, spare; /* the weft_status, or 0 */
    int64_t bytes;
} rdzv_answer;

typedef enum rdzv_stage {
    RDZV_PROVES, /* the handshake */
    RDZV_HELLO,
    RDZV_BODY,
    RDZV_CAME,  /* all of the record is there and the guest's */
    RDZV_WRONG, /* to be closed */
} rdzv_stage;

/* A guest as rank 0 sees it: bytes in, bytes out.  Until it has proven that it has the token it
 * holds no memory but this. */
typedef struct rdzv_guest {
    rdzv_stage     stage;
    weft_comm_auth auth;
    rdzv_hello     hello; /* believed only when it came */
    char          *body;  /* hello.bytes, and the MAC */
    int64_t        n_in;  /* of what the stage reads */
    char           in[WEFT_COMM__AUTH_SECOND];
} rdzv_guest;

weft_status weft_comm__rdzv_guest_init(rdzv_guest *g, const weft_comm_token *token,
                                       uint32_t epoch);
void        weft_comm__rdzv_guest_fini(rdzv_guest *g);
/* Where the next bytes go and how many at most; 0: none are read now. */
char *weft_comm__rdzv_guest_room(rdzv_guest *g, size_t *most);
void  weft_comm__rdzv_guest_took(rdzv_guest *g, size_t bytes);
/* Why it is RDZV_WRONG, or will be if it goes now. */
const char *weft_comm__rdzv_guest_why(const rdzv_guest *g);

/* The key by which guests and rank 0 prove that they have the token, and what they connect for. */
weft_status     weft_comm__rdzv_key(const weft_comm_token *token, weft_comm_key *out);
weft_comm_claim weft_comm__rdzv_claim(uint32_t epoch);

typedef struct rdzv_part {
    const void *p;
    int64_t     bytes;
} rdzv_part;

/* nonce, sizes, bytes: free() it. */
weft_status weft_comm__rdzv_table_print(const uint8_t *nonce, int world,
                                        const rdzv_part *part, char **out, int64_t *n);
/* Takes text, which is malloc's, also on failure: WEFT_ERR_PEER where sizes and bytes do not fit.
 */
weft_status weft_comm__rdzv_table_parse(char *text, int64_t n, int world,
                                        const weft_comm_token *token,
                                        weft_comm_rdzv_table  *out);

/* ---- rdzv_host.c, rdzv_guest.c ---- */

weft_status weft_comm__rdzv_host(const weft_comm_rdzv_options *o, const void *mine,
                                 int64_t bytes, weft_comm_rdzv_table *out);
int         weft_comm__rdzv_ms_left(double deadline); /* for poll() */
/* What is written in pieces goes at once: else each waits for the other side's delayed
 * acknowledgement of the one before, 40 ms. */
void        weft_comm__rdzv_set_nodelay(int s);
bool        weft_comm__rdzv_is_over(const weft_comm_rdzv_options *o);
weft_status weft_comm__rdzv_fail_over(const weft_comm_rdzv_options *o);
void weft_comm__rdzv_log_wait(const weft_comm_rdzv_options *o, int rank, int others);

#endif
