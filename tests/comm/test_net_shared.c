/* Several threads of a rank use its end at once, over a line that is slower than they are. */
#include "comm/ranks.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>

#include "comm/net_priv.h"
#include "support/test.h"

enum {
    CHUNK = 4096,     /* bytes that the slow line takes in CHUNK_S */
    LARGE = 24 << 20, /* 0.3 s of it */
    QUEUE = 64 << 10, /* bytes in the sockets of the slow line */
    OTHER = 1 << 20,
};

/* Less than a caller that waits looks for more before it sleeps. */
static const double CHUNK_S = 50e-6;

/* ---- a slow line from rank 1 to rank 0 ---- */

static struct sockaddr_in6 real_peer;

static bool pass_bytes(int from, int to, bool slowly)
{
    char    b[CHUNK];
    double  until = weft_clock_s() + CHUNK_S;
    ssize_t k     = read(from, b, sizeof b);
    for (ssize_t at = 0, w; at < k; at += w)
        if ((w = write(to, b + at, (size_t)(k - at))) <= 0) return false;
    while (slowly && weft_clock_s() < until) sched_yield();
    return k > 0;
}

static void *pass_slowly(void *arg)
{
    int size = QUEUE, s = accept((int)(intptr_t)arg, NULL, NULL);
    int t = socket(real_peer.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(t, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (s < 0 || connect(t, (struct sockaddr *)&real_peer, sizeof real_peer)) return NULL;
    struct pollfd p[2] = {{.fd = s, .events = POLLIN}, {.fd = t, .events = POLLIN}};
    while (poll(p, 2, -1) > 0)
        for (int i = 0; i < 2; i++)
            if (p[i].revents && !pass_bytes(p[i].fd, p[!i].fd, !i)) return NULL;
    return NULL;
}

static void slow_down(const weft_comm_rdzv_table *t, int r)
{
    struct sockaddr_in a    = {.sin_family      = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          size = sizeof a;
    int                few  = QUEUE;
    pthread_t          thread;
    if (r != 1) return;
    char *address = (char *)(uintptr_t)t->part[0] + 8; /* after the card */
    int   gate    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(gate, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    memcpy(&real_peer, address, sizeof real_peer);
    assert_int_equal(bind(gate, (struct sockaddr *)&a, size) | listen(gate, 4), 0);
    getsockname(gate, (struct sockaddr *)&a, &size);
    memset(address, 0, sizeof real_peer);
    memcpy(address, &a, sizeof a);
    assert_int_equal(pthread_create(&thread, NULL, pass_slowly, (void *)(intptr_t)gate),
                     0);
    pthread_detach(thread);
}

static void run_slowly(rank_fn fn)
{
    before_connect = slow_down;
    run_ranks(TCP, 2, 30, fn);
    before_connect = NULL;
    all_ok(TCP, 2);
}

/* ---- two callers ---- */

/* One message over a channel, by a thread of its own. */
typedef struct transfer {
    weft_comm         *c;
    weft_comm_channel *ch;
    bool               sends;
    int64_t            bytes;
    char              *p;
    weft_status        st;
    double             begun_s, done_s;
    pthread_t          thread;
} transfer;

static char large[LARGE], other[OTHER];

static void *carry_out(void *arg)
{
    transfer *t = arg;
    t->begun_s  = weft_clock_s();
    t->st       = t->sends ? weft_comm_send(t->c, t->ch, t->p, t->bytes)
                           : weft_comm_recv(t->c, t->ch, t->p, t->bytes);
    t->done_s   = weft_clock_s();
    return NULL;
}

static weft_status start_transfer(const rank_state *r, int tag, bool sends, int64_t bytes,
                                  char *p, transfer *t)
{
    *t = (transfer){.c = r->c, .sends = sends, .bytes = bytes, .p = p};
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, sends ? WEFT_COMM_SEND : WEFT_COMM_RECV, tag, bytes, 0, &t->ch));
    if (pthread_create(&t->thread, NULL, carry_out, t))
        return WEFT_FAIL(WEFT_ERR_MEM, "no thread");
    return WEFT_OK;
}

static weft_status end_transfer(transfer *t)
{
    pthread_join(t->thread, NULL);
    return t->st;
}

/* Did it end in the first half of the large one? */
static weft_status compare_ends(const transfer *all, const transfer *t)
{
    double half = (all->begun_s + all->done_s) / 2;
    if (t->done_s < half) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%.3f s late: the large one took %.3f s",
                     t->done_s - half, all->done_s - all->begun_s);
}

/* A large message to rank 0 and, while it is on its way, another one to rank `to`. */
static weft_status carry_both(rank_state *r, int to, int64_t bytes)
{
    transfer all, t;
    WEFT_TRY(start_transfer(r, 1, r->rank == 1, LARGE, large, &all));
    usleep(20000);
    WEFT_TRY(start_transfer(r, 2, r->rank != to, bytes, other, &t));
    WEFT_TRY(end_transfer(&t));
    WEFT_TRY(end_transfer(&all));
    return r->rank ? WEFT_OK : compare_ends(&all, &t);
}

/* The thread that receives the large one always has something to do. */
static weft_status receive_both(rank_state *r)
{
    return carry_both(r, 0, 8);
}

/* The word that it may come goes the way of the large one, and so does the one that it has come. */
static weft_status send_against(rank_state *r)
{
    return carry_both(r, 1, OTHER);
}

static void a_short_message_is_not_kept_waiting(void **state)
{
    (void)state;
    run_slowly(receive_both);
}

static void answers_go_before_data(void **state)
{
    (void)state;
    run_slowly(send_against);
}

/* ---- ahead of the receiver ---- */

/* Three large messages to one who comes late: NET_UNASKED of them are there when it does, and not
 * much more. */
static weft_status send_ahead(rank_state *r)
{
    enum {
        N     = 3,
        BYTES = 4 << 20
    };
    weft_comm_channel *ch;
    weft_comm_link     link;
    int64_t            least = NET_UNASKED + (N - 1) * NET_SHORT;
    int                side  = r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND;
    WEFT_TRY(
        weft_comm_open_channel(r->c, !r->rank, (weft_comm_side)side, 1, BYTES, N, &ch));
    if (r->rank) usleep(700000);
    for (int i = 0; i < N; i++) {
        if (!r->rank) memset(large, i + 1, BYTES);
        WEFT_TRY(r->rank ? weft_comm_recv(r->c, ch, large, BYTES)
                         : weft_comm_send(r->c, ch, large, BYTES));
        for (int64_t k = 0; r->rank && k < BYTES; k++)
            if (large[k] != i + 1) return WEFT_FAIL(WEFT_ERR_NUMERIC, "message %d", i);
    }
    if (r->rank) return WEFT_OK;
    usleep(400000);
    if (weft_comm_list_links(r->c, &link, 1) != 1 || link.bytes < least ||
        link.bytes > least + 2 * NET_SHORT)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%lld bytes, not %lld", (long long)link.bytes,
                         (long long)least);
    return weft_comm_close_channel(r->c, ch);
}

static void much_is_sent_ahead(void **state)
{
    (void)state;
    run_ranks(TCP, 2, 30, send_ahead);
    all_ok(TCP, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(a_short_message_is_not_kept_waiting),
        test_plain(answers_go_before_data),
        cmocka_unit_test(much_is_sent_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
