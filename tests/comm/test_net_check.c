/* A rank of ours and a peer that was let in and does what no rank does, over a real connection:
 * the rank ends with one line that names the peer, or is not touched; it never crashes, waits for
 * ever or writes where it must not. */
#include "comm/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "comm/net_priv.h"
#include "comm/net_tcp.h"
#include "comm/net_legs.h"

enum {
    TAG = 3
};

/* ---- the peer ---- */

/* This process's connection to a rank, over which it sends. */
static int find_line(const net_end *e, int to)
{
    struct sockaddr_in want;
    int                any = -1;
    memcpy(&want, e->peer[to].address, sizeof want);
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at;
        socklen_t          n = sizeof at;
        if (getpeername(fd, (struct sockaddr *)&at, &n) || at.sin_family != AF_INET)
            continue;
        if (at.sin_port == want.sin_port) return fd;
        any = fd;
    }
    return any; /* one connection for both directions */
}

static weft_status send_bytes(int fd, const void *p, size_t n)
{
    for (const char *at = p; n;) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            usleep(100);
            continue;
        }
        if (k <= 0) return WEFT_FAIL(WEFT_ERR_PEER, "it hangs up");
        at += k;
        n -= (size_t)k;
    }
    return WEFT_OK;
}

/* A head with whatever it says, right in its sum, and `there` bytes after it. */
static weft_status send_head(net_end *e, int fd, net_kind kind, net_head h, size_t there)
{
    static char data[1 << 16];
    if (!data[0]) memset(data, 0x66, sizeof data);
    weft_comm__net_finish_head(e, !e->c.rank, &h, kind);
    WEFT_TRY(send_bytes(fd, &h, sizeof h));
    return send_bytes(fd, data, there);
}

typedef struct attack {
    const char *name;
    /* what the honest rank says after "rank 1 failed: it sent rank 0 " */
    const char *says;
    weft_status (*run)(net_end *e, int fd);
} attack;

static const attack *current;
static int64_t       message_bytes;

/* Rank 0 receives a message of rank 1; its frame is used again afterwards. */
static __attribute__((noinline)) weft_status receive(rank_state *r, weft_comm_channel *ch)
{
    char x[64];
    memset(x, 0, sizeof x);
    return weft_comm_recv(r->c, ch, x, message_bytes);
}

static __attribute__((noinline)) int look_at_stack(void)
{
    volatile char x[2048];
    int           sum = 0;
    memset((void *)(uintptr_t)x, 1, sizeof x);
    usleep(100000);
    for (size_t i = 0; i < sizeof x; i++) sum += x[i];
    return sum;
}

static weft_status meet_hostile(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    net_end           *e = r->c->impl;
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_SEND : WEFT_COMM_RECV, TAG, 64, 2, &ch));
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    if (!r->rank) {
        weft_status st = receive(r, ch);
        if (st != WEFT_OK) return st;
        if (look_at_stack() != 2048)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "the stack was written to");
        return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
    }
    int fd = r->over == TCP ? find_line(e, 0) : -1;
    usleep(50000);
    pthread_mutex_lock(&e->lock); /* nothing else is sent meanwhile */
    weft_status st = current->run(e, fd);
    for (int i = 0; i < 5000 && !rank[0].ended; i++) {
        if (r->over != TCP) e->link->progress(e); /* it sends by and by */
        usleep(1000);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* A process is gone without a line: it crashed. */
static void run_attack(transport over, const attack *a)
{
    current = a;
    run_ranks(over, 2, 8, meet_hostile);
    if (!rank[0].ended) fail_msg("%s: rank 0 is gone without a word", a->name);
    char want[200];
    snprintf(want, sizeof want, "rank 1 failed: it sent rank 0 %s", a->says);
    if (rank[0].st != WEFT_ERR_PEER || !strstr(rank[0].text, want))
        fail_msg("%s: expected '%s', rank 0 says '%s'", a->name, want, rank[0].text);
}

/* ---- pieces ---- */

static net_head piece(int64_t at, uint32_t bytes)
{
    return (net_head){.port = TAG, .at = at, .length = message_bytes, .bytes = bytes};
}

/* 3 of 4 bytes, then 1 of 3 at the same place, then the other 2 when the receiver has gone on. */
static weft_status stale(net_end *e, int fd)
{
    WEFT_TRY(send_head(e, fd, NET_DATA, piece(0, 3), 3));
    usleep(20000);
    WEFT_TRY(send_head(e, fd, NET_DATA, piece(0, 3), 1));
    usleep(50000);
    return send_bytes(fd, "ff", 2);
}

static weft_status overlapping(net_end *e, int fd)
{
    WEFT_TRY(send_head(e, fd, NET_DATA, piece(0, 3), 3));
    return send_head(e, fd, NET_DATA, piece(2, 2), 2);
}

static weft_status with_gap(net_end *e, int fd)
{
    return send_head(e, fd, NET_DATA, piece(1, 3), 3);
}

static weft_status sent_twice(net_end *e, int fd)
{
    WEFT_TRY(send_head(e, fd, NET_DATA, piece(0, 2), 2));
    return send_head(e, fd, NET_DATA, piece(0, 2), 2);
}

static weft_status outside(net_end *e, int fd)
{
    return send_head(e, fd, NET_DATA, piece(2, 3), 3);
}

static weft_status empty_piece(net_end *e, int fd)
{
    return send_head(e, fd, NET_DATA, piece(0, 0), 0);
}

static weft_status too_many(net_end *e, int fd)
{
    net_head h = piece(0, 4);
    for (h.seq = 1; h.seq < 4; h.seq++) WEFT_TRY(send_head(e, fd, NET_DATA, h, 4));
    return WEFT_OK;
}

static weft_status too_long(net_end *e, int fd)
{
    return send_head(e, fd, NET_DATA,
                     (net_head){.port = TAG, .seq = 1, .length = 65, .bytes = 65}, 65);
}

static void messages_are_complete_when_each_byte_came_once(void **state)
{
    static const attack a[] = {
        {"stale piece", "a piece of a message that had come already", stale},
        {"overlap", "a piece of a message that had come already", overlapping},
        {"gap", "a piece that does not follow the last one", with_gap},
        {"twice", "a piece of a message that had come already", sent_twice},
        {"outside", "a piece outside its message", outside},
        {"empty", "an empty piece of a message", empty_piece},
        {"no credit", "a message that there is no credit for", too_many},
        {"too long", "a message larger than its channel", too_long},
    };
    (void)state;
    message_bytes = 4;
    for (size_t i = 0; i < WEFT_COUNT(a); i++) run_attack(TCP, &a[i]);
}

/* Over a link that reorders, pieces come in any order within a window, each once; the bookkeeping
 * is by piece. */
static void pieces_may_overtake_each_other_once(void **state)
{
    static const net_link link = {.piece = NET_SHORT, .overtakes = true};
    enum {
        N = 3000
    };
    net_end  e   = {.link = &link};
    net_post p   = {.length = (int64_t)N * NET_SHORT - 100};
    int     *row = malloc(sizeof *row * N);
    (void)state;
    srand(3);
    for (int i = 0; i < N; i++) row[i] = i;
    for (int i = 0; i < N; i++) { /* within runs of 250, fewer than NET_AHEAD */
        int k = i / 250 * 250 + rand() % 250, x = row[i];
        row[i] = row[k];
        row[k] = x;
    }
    for (int i = 0; i < N; i++) {
        net_head h = {.length = p.length, .at = (int64_t)row[i] * NET_SHORT};
        h.bytes    = row[i] == N - 1 ? NET_SHORT - 100 : NET_SHORT;
        assert_false(p.done);
        assert_null(weft_comm__net_check_piece(&e, &p, &h));
        weft_comm__net_mark(&e, &p, h.at, h.bytes);
        assert_non_null(weft_comm__net_check_piece(&e, &p, &h)); /* twice */
        h.at += 64;
        assert_non_null(weft_comm__net_check_piece(&e, &p, &h)); /* cut elsewhere */
        h.at    = p.first + (int64_t)NET_AHEAD * NET_SHORT;
        h.bytes = NET_SHORT;
        assert_non_null(weft_comm__net_check_piece(&e, &p, &h)); /* too far */
    }
    assert_true(p.done && p.first == p.length);
    free(row);
}

/* ---- heads ---- */

static weft_status ready_with_bytes(net_end *e, int fd)
{
    return send_head(e, fd, NET_READY, (net_head){.port = TAG, .bytes = 100}, 100);
}

static weft_status unknown_kind(net_end *e, int fd)
{
    return send_head(e, fd, (net_kind)99, (net_head){0}, 0);
}

static weft_status far_away(net_end *e, int fd)
{
    return send_head(e, fd, NET_ABORT, (net_head){.at = INT64_MAX, .bytes = 100}, 100);
}

static weft_status long_reason(net_end *e, int fd)
{
    return send_head(e, fd, NET_ABORT, (net_head){.bytes = 60000}, 60000);
}

static weft_status no_such_rank(net_end *e, int fd)
{
    return send_head(e, fd, NET_ANSWER, (net_head){.at = INT64_C(1) << 40}, 0);
}

static weft_status note_of_nothing(net_end *e, int fd)
{
    return send_head(e, fd, NET_NOTE, (net_head){.port = INT64_C(1) << 40, .seq = 1}, 0);
}

static weft_status many_credits(net_end *e, int fd)
{
    return send_head(e, fd, NET_OPEN, (net_head){.port = 9, .seq = UINT32_MAX}, 0);
}

static weft_status negative_channel(net_end *e, int fd)
{
    return send_head(e, fd, NET_OPEN, (net_head){.port = 9, .length = -1}, 0);
}

static weft_status ack_of_nothing(net_end *e, int fd)
{
    return send_head(e, fd, NET_ACK, (net_head){.port = 77, .seq = 5}, 0);
}

static weft_status as_another(net_end *e, int fd)
{
    net_end other = *e;
    other.c.rank  = 2;
    return send_head(&other, fd, NET_BYE, (net_head){0}, 0);
}

static void heads_are_checked_before_use(void **state)
{
    static const attack a[] = {
        {"ready with bytes", "a READY with a payload", ready_with_bytes},
        {"kind 99", "a message of no known kind", unknown_kind},
        {"abort far away", "a size where there is none", far_away},
        {"long reason", "a reason that is too long", long_reason},
        {"answer", "the name of a rank that there is not", no_such_rank},
        {"note", "a note that is none", note_of_nothing},
        {"credits", "numbers of a channel out of range", many_credits},
        {"negative", "numbers of a channel out of range", negative_channel},
        {"ack", "an acknowledgement of what was not sent", ack_of_nothing},
    };
    (void)state;
    message_bytes = 4;
    for (size_t i = 0; i < WEFT_COUNT(a); i++) run_attack(TCP, &a[i]);
    current = &(attack){"another", "", as_another}; /* of a rank that there is not */
    run_ranks(TCP, 2, 8, meet_hostile);
    assert_true(rank[0].ended && rank[0].st == WEFT_ERR_PEER);
}

/* ---- over UCX, which takes whole messages ---- */

static void no_matter(net_parcel *p)
{
    (void)p;
}

static weft_status send_parcel(net_end *e, net_kind kind, net_head h)
{
    static char       data[NET_SHORT];
    static net_parcel p[4];
    static int        n;
    p[n] = (net_parcel){.e = e, .head = h, .data = data, .sent = no_matter};
    weft_comm__net_finish_head(e, !e->c.rank, &p[n].head, kind);
    e->link->send(e, 0, &p[n++]);
    return WEFT_OK;
}

static weft_status ucx_ready(net_end *e, int fd)
{
    (void)fd;
    return send_parcel(e, NET_READY, (net_head){.port = TAG, .bytes = 100});
}

static weft_status ucx_part(net_end *e, int fd)
{
    (void)fd;
    return send_parcel(e, NET_DATA, piece(1, 3));
}

static weft_status ucx_twice(net_end *e, int fd)
{
    (void)fd;
    WEFT_TRY(send_parcel(e, NET_DATA, piece(0, 4)));
    return send_parcel(e, NET_DATA, piece(0, 4)); /* by now there is no credit for it */
}

static void messages_over_ucx_are_checked(void **state)
{
    static const attack a[] = {
        {"ready", "a READY with a payload", ucx_ready},
        {"part", "a piece that is cut in another place", ucx_part},
        {"twice", "a ", ucx_twice}, /* message without credit, or piece that came */
    };
    (void)state;
    message_bytes = 4;
    if (N_TRANSPORT <= UCX) skip();
    for (size_t i = 0; i < WEFT_COUNT(a); i++) run_attack(UCX, &a[i]);
}

/* ---- what a peer makes us hold ---- */

static weft_status flood(net_end *e, int fd, net_kind kind, net_head h, int n,
                         size_t there)
{
    for (int i = 0; i < n; i++, h.seq++)
        if (send_head(e, fd, kind, h, there) != WEFT_OK) break; /* it hangs up */
    return WEFT_OK;
}

static weft_status many_ready(net_end *e, int fd)
{
    return flood(e, fd, NET_READY, (net_head){.port = TAG}, NET_MOST_READY + 1000, 0);
}

static weft_status many_ports(net_end *e, int fd)
{
    net_head h = {.port = 1000};
    for (int i = 0; i < NET_MOST_PORTS + 1000; i++, h.port++)
        if (send_head(e, fd, NET_READY, h, 0) != WEFT_OK) break;
    return WEFT_OK;
}

static weft_status many_data(net_end *e, int fd)
{
    net_head h = {.port = NET_IS_GROUP | 8, .length = 5000, .bytes = 5000};
    return flood(e, fd, NET_DATA, h, 2000, 5000);
}

static weft_status many_questions(net_end *e, int fd)
{
    return flood(e, fd, NET_ASK, (net_head){.port = NET_IS_GROUP | 8},
                 NET_MOST_QUEUED + 100000, 0);
}

static weft_status hold_less(rank_state *r)
{
    net_end *e   = r->c->impl;
    e->most_held = 64 << 20;
    return meet_hostile(r);
}

static void a_peer_makes_us_hold_only_so_much(void **state)
{
    static const attack a[] = {
        {"ready", "more than this rank keeps for one", many_ready},
        {"ports", "messages for too many channels", many_ports},
        {"data", "more than this rank keeps for one", many_data},
        {"questions", "questions, and reads no answer", many_questions},
    };
    (void)state;
    message_bytes = 4;
    for (size_t i = 0; i < WEFT_COUNT(a); i++) {
        current = &a[i];
        run_ranks(TCP, 2, 30, hold_less);
        if (!rank[0].ended || rank[0].st != WEFT_ERR_PEER ||
            !strstr(rank[0].text, a[i].says))
            fail_msg("%s: expected '%s', rank 0 says '%s'", a[i].name, a[i].says,
                     rank[0].text);
    }
}

/* ---- strangers ---- */

enum {
    N_FILE     = 64,
    N_STRANGER = 80,
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void visit_all(const net_end *e, int to, int *fd)
{
    for (int i = 0; i < N_STRANGER; i++) {
        int why;
        fd[i] = weft_comm__tcp_connect(e->peer[to].address, e->peer[to].address_bytes,
                                       true, &why);
    }
}

/* Rank 0 has few descriptors, and strangers come for all of them. */
static weft_status few_descriptors(rank_state *r)
{
    weft_comm_group *g;
    net_end         *e = r->c->impl;
    int              fd[N_STRANGER];
    float            x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    if (r->rank) {
        visit_all(e, 0, fd);
        usleep(200000);
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
        kill(getpid(), SIGSTOP);
        return WEFT_OK;
    }
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
    double      begin = cpu_s();
    weft_status st =
        weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
    r->note_s = cpu_s() - begin;
    return st;
}

/* n descriptors are taken for something else: none is left for whoever comes. */
static weft_status no_descriptor(rank_state *r)
{
    if (!r->rank) {
        struct rlimit l = {N_FILE, N_FILE};
        setrlimit(RLIMIT_NOFILE, &l);
        while (open("/dev/null", O_RDONLY) >= 0) {
        }
    }
    return few_descriptors(r);
}

static weft_status some_descriptors(rank_state *r)
{
    struct rlimit l = {N_FILE, N_FILE};
    if (!r->rank) setrlimit(RLIMIT_NOFILE, &l);
    return few_descriptors(r);
}

static void the_deadline_holds_without_descriptors(void **state)
{
    static const rank_fn work[] = {some_descriptors, no_descriptor};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(work); i++) {
        start_ranks(TCP, 2, 2, work[i]);
        double t0 = weft_clock_s();
        while (!rank[0].ended && weft_clock_s() - t0 < 20) usleep(10000);
        kill(rank[1].pid, SIGKILL);
        if (!rank[0].ended) kill(rank[0].pid, SIGKILL);
        end_ranks(TCP, 2);
        if (!rank[0].ended) fail_msg("%d: rank 0 is still there after 20 s", (int)i);
        if (!strstr(rank[0].text, "rank 1 is silent")) fail_msg("%s", rank[0].text);
        if (rank[0].note_s > 1) fail_msg("it was busy for %g s", rank[0].note_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_complete_when_each_byte_came_once),
        cmocka_unit_test(pieces_may_overtake_each_other_once),
        cmocka_unit_test(heads_are_checked_before_use),
        cmocka_unit_test(messages_over_ucx_are_checked),
        cmocka_unit_test(a_peer_makes_us_hold_only_so_much),
        cmocka_unit_test(the_deadline_holds_without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
