/* Between hosts: ranks that are killed, stopped or leave, messages that are not ours. */
#include "comm/kill.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>

#include "base/hash.h"
#include "base/progress.h"
#include "comm/net_priv.h"
#include "comm/net_tcp.h"
#include "support/test.h"

enum {
    N_KILL = WEFT_TEST_SANITIZED ? 4 : 8,
};

/* ---- accounts ---- */

/* The last rank gets more than the others: its link says so, when all has arrived. */
static weft_status count_links(rank_state *r)
{
    static char        some[1 << 20];
    weft_comm_link     link[MAX_RANK];
    weft_comm_channel *ch[MAX_RANK];
    weft_comm_group   *g;
    int                last = r->n - 1, n;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int k = 0; k < last; k++)
        if (r->rank == last || r->rank == k)
            WEFT_TRY(
                weft_comm_open_channel(r->c, r->rank == last ? k : last,
                                       r->rank == last ? WEFT_COMM_RECV : WEFT_COMM_SEND,
                                       1, sizeof some, 0, &ch[k]));
    for (int k = 0; k < last; k++) {
        if (r->rank == k) WEFT_TRY(weft_comm_send(r->c, ch[k], some, sizeof some));
        if (r->rank == last) WEFT_TRY(weft_comm_recv(r->c, ch[k], some, sizeof some));
    }
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_F32, NULL, NULL, 0));
    n = weft_comm_list_links(r->c, link, MAX_RANK);
    for (int k = 0; k < n; k++) {
        bool long_one = r->rank != last && link[k].rank == last;
        if (link[k].rank < 0 || link[k].rank >= r->n || link[k].rank == r->rank ||
            link[k].busy_s < 0 || (link[k].bytes >= (int64_t)sizeof some) != long_one)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "to rank %d: %lld bytes", link[k].rank,
                             (long long)link[k].bytes);
        if (long_one) r->count++;
    }
    return weft_comm_list_links(r->c, link, 0) ? WEFT_FAIL(WEFT_ERR_INTERNAL, "too many")
                                               : WEFT_OK;
}

static void links_have_accounts(void **state)
{
    (void)state;
    run_ranks(TCP, 3, 60, count_links);
    all_ok(TCP, 3);
    for (int k = 0; k < 3; k++) assert_int_equal(rank[k].count, k < 2);
}

/* ---- death ---- */

static weft_status work_for_ever(rank_state *r)
{
    weft_comm_group   *g;
    weft_comm_channel *to, *from;
    static float       own[1 << 19];
    int                next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(r->c, next, WEFT_COMM_SEND, 1, 70000, 2, &to));
    WEFT_TRY(weft_comm_open_channel(r->c, prev, WEFT_COMM_RECV, 1, 70000, 2, &from));
    for (int i = 0;; i++) {
        static const int64_t count[] = {1, 1024, 65536, 1 << 19};
        int64_t              n = count[i % 4], bytes = i % 2 ? 70000 : 4096;
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, own, own, n));
        WEFT_TRY(weft_comm_send(r->c, to, own, bytes));
        WEFT_TRY(weft_comm_recv(r->c, from, own, bytes));
        memset(own, 0, sizeof own);
        r->count++;
    }
}

static void the_killed_are_named(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++) {
        double noticed[N_KILL];
        srand(1);
        for (int i = 0; i < N_KILL; i++)
            noticed[i] = kill_one((transport)over, 2 + i % 4, work_for_ever, 10);
        say_noticed(transport_name[over], noticed, N_KILL);
    }
}

static void the_stopped_are_named(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++)
        for (int n = 3; n <= 4; n++) {
            stop_one((transport)over, n, work_for_ever);
            for (int k = 0; k < n; k++)
                if (k != 1 && !strstr(rank[k].text, "rank 1 is silent"))
                    fail_msg("%s", rank[k].text);
        }
}

static weft_status one_goes(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 1) {
        usleep(30000);
        if (r->n == 4) _exit(3);
        return WEFT_OK;
    }
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static void exits_and_leaves_are_noticed(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++) {
        double t0 = weft_clock_s();
        run_ranks((transport)over, 4, 60, one_goes);
        for (int k = 0; k < 4; k++)
            if (k != 1 && !strstr(rank[k].text, "rank 1 died: its "))
                fail_msg("rank %d: %s", k, rank[k].text);
        run_ranks((transport)over, 2, 60, one_goes);
        assert_non_null(strstr(rank[0].text, "rank 1 is silent: it is gone"));
        assert_true(weft_clock_s() - t0 < 20);
    }
}

/* What was sent before leaving arrives, also when the receiver comes late and has something to
 * say itself. */
static weft_status send_and_leave(rank_state *r)
{
    weft_comm_channel *ch, *back;
    static char        x[300000];
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND, 1, sizeof x, 3, &ch));
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_SEND : WEFT_COMM_RECV, 2, 8, 1, &back));
    memset(x, 7, sizeof x);
    for (int i = 0; !r->rank && i < 3; i++)
        WEFT_TRY(weft_comm_send(r->c, ch, x, i == 1 ? (int64_t)sizeof x : 100));
    if (!r->rank) return WEFT_OK;
    usleep(200000);
    weft_comm_send(r->c, back, x, 8); /* nobody will take it */
    for (int i = 0; i < 3; i++) {
        memset(x, 0, sizeof x);
        int64_t bytes = i == 1 ? (int64_t)sizeof x : 100;
        WEFT_TRY(weft_comm_recv(r->c, ch, x, bytes));
        for (int64_t k = 0; k < bytes; k++)
            if (x[k] != 7) return WEFT_FAIL(WEFT_ERR_NUMERIC, "byte %d", (int)k);
    }
    return WEFT_OK;
}

static void the_last_words_arrive(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++)
        for (int i = 0; i < 4; i++) {
            run_ranks((transport)over, 2, 20, send_and_leave);
            all_ok((transport)over, 2);
        }
}

/* ---- what is not ours ---- */

enum {
    N_BIT = 8 * sizeof(net_head)
};

static void no_matter(net_parcel *p)
{
    (void)p;
}

/* A head of rank 1's, but for one bit; -1: whole. */
static net_head damaged_head(const net_end *e, net_kind kind, int bit)
{
    net_head h = {.port = 5};
    weft_comm__net_finish_head(e, 0, &h, kind);
    if (bit >= 0) ((unsigned char *)&h)[bit / 8] ^= (unsigned char)(1u << bit % 8);
    return h;
}

static void send_damaged(net_end *e, int bit)
{
    static net_parcel p[N_BIT];
    p[bit] =
        (net_parcel){.e = e, .sent = no_matter, .head = damaged_head(e, NET_ABORT, bit)};
    pthread_mutex_lock(&e->lock);
    e->link->send(e, 0, &p[bit]);
    pthread_mutex_unlock(&e->lock);
}

/* Of the field by which a link cuts messages nothing can be damaged. */
static bool is_size(int bit)
{
    return bit / 32 == (int)offsetof(net_head, bytes) / 4;
}

static weft_status add_one(rank_state *r, weft_comm_group *g)
{
    float x = 1;
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
    return x == 2 ? WEFT_OK : WEFT_FAIL(WEFT_ERR_NUMERIC, "%g", (double)x);
}

static weft_status damaged_messages(rank_state *r)
{
    weft_comm_group *g;
    net_end         *e = r->c->impl;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    for (int i = 0; i < 3; i++) {
        for (int bit = 0; r->rank && bit < N_BIT; bit++)
            if (!is_size(bit)) send_damaged(e, bit);
        WEFT_TRY(add_one(r, g));
    }
    if (!r->rank && e->n_refused != 3 * (N_BIT - 32))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d refused", (int)e->n_refused);
    return WEFT_OK;
}

/* A connection as rank 1 makes it, but for one bit of what it sends in the hello; bits of both
 * messages. */
static int damage_hello(const net_end *e, int bit)
{
    enum {
        FIRST = WEFT_COMM__AUTH_FIRST * 8
    };
    tcp_hello       hello;
    weft_comm_auth *a = &hello.auth;
    int             why, fd;
    char            bytes[WEFT_COMM__AUTH_SECOND] = {0};
    const net_peer *to                            = &e->peer[0];
    size_t          n;
    fd              = weft_comm__tcp_connect(to->address, to->address_bytes, true, &why);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (fd < 0 || weft_comm__tcp_hello_start(e, 0, &hello) != WEFT_OK ||
        poll(&p, 1, 5000) != 1)
        return -1;
    for (int message = 0; message < 2; message++) {
        int         at  = message ? bit - FIRST : bit;
        const void *out = weft_comm_auth_output(a, &n);
        memcpy(bytes, out, n);
        if (at >= 0 && at < (int)n * 8) bytes[at / 8] ^= (char)(1 << at % 8);
        if (send(fd, bytes, message ? WEFT_COMM__AUTH_THIRD : n, MSG_NOSIGNAL) < 0) break;
        weft_comm_auth_sent(a, n);
        p.events = POLLIN;
        ssize_t k =
            message || poll(&p, 1, 5000) != 1 ? 0 : recv(fd, bytes, sizeof bytes, 0);
        if (k <= 0) break;
        weft_comm_auth_feed(a, bytes, (size_t)k);
    }
    return fd;
}

/* A stream: who says one wrong word is not listened to any more. */
static weft_status damaged_greetings(rank_state *r)
{
    enum {
        N_HELLO = 24
    };
    weft_comm_group *g;
    net_end         *e = r->c->impl;
    int              fd[N_HELLO];
    float            refused = 0;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    for (int i = 0; r->rank && i < N_HELLO; i++) {
        fd[i] = damage_hello(e, i * 31);
        if (fd[i] < 0) return WEFT_FAIL(WEFT_ERR_IO, "a stranger cannot get in");
    }
    for (int i = 0; i < 5000 && refused < N_HELLO; i++) {
        WEFT_TRY(add_one(r, g));
        refused = r->rank ? 0 : (float)e->n_refused;
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &refused,
                                      &refused, 1));
    }
    for (int i = 0; r->rank && i < N_HELLO; i++) close(fd[i]);
    if (refused != N_HELLO)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d refused", (int)refused);
    if (r->rank) send_damaged(e, 3);
    for (int i = 0; i < 1000; i++) {
        WEFT_TRY(add_one(r, g));
        usleep(1000);
    }
    return WEFT_OK;
}

static void damaged_heads_are_refused(void **state)
{
    (void)state;
    run_ranks(TCP, 2, 20, damaged_greetings);
    for (int k = 0; k < 2; k++)
        if (rank[k].st != WEFT_ERR_PEER) fail_msg("rank %d: %s", k, rank[k].text);
    if (!strstr(rank[0].text,
                "rank 1 died: its connection to rank 0 broke (not our words)"))
        fail_msg("%s", rank[0].text);
    if (N_TRANSPORT <= UCX) skip();
    run_ranks(UCX, 2, 20, damaged_messages);
    all_ok(UCX, 2);
}

/* Ports on which this process listens. */
static int own_ports(int *port, int most)
{
    char  line[512];
    int   n = 0;
    FILE *f = fopen("/proc/self/net/tcp", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned      at, state;
        unsigned long inode;
        if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &at, &state,
                   &inode) != 3 ||
            state != 10)
            continue;
        char want[64], is[64];
        snprintf(want, sizeof want, "socket:[%lu]", inode);
        for (int fd = 0; fd < 256; fd++) {
            char    path[64];
            ssize_t k;
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            k = readlink(path, is, sizeof is - 1);
            if (k < 0) continue;
            is[k] = 0;
            if (!strcmp(is, want) && n < most && fd != door) {
                port[n++] = (int)at;
                break;
            }
        }
    }
    if (f) fclose(f);
    return n;
}

static weft_status strangers(rank_state *r)
{
    weft_comm_group *g;
    int              port[8], n = own_ports(port, 8);
    float            x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    if (!n) return WEFT_FAIL(WEFT_ERR_INTERNAL, "it does not listen");
    for (int i = 0; i < 20 * n; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port   = htons((uint16_t)port[i % n])};
        char               junk[4096];
        for (size_t k = 0; k < sizeof junk; k++) junk[k] = (char)(rand() >> 7);
        inet_aton("127.0.0.1", &a.sin_addr);
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(s, (struct sockaddr *)&a, sizeof a))
            send(s, junk, (size_t)(1 + i * 97 % 4096), MSG_NOSIGNAL);
        x = 1;
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
        close(s);
        if (x != 2) return WEFT_FAIL(WEFT_ERR_NUMERIC, "%g", (double)x);
    }
    return WEFT_OK;
}

static void strangers_are_sent_away(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 20, strangers);
        all_ok((transport)over, 2);
    }
}

enum {
    N_SILENT = 200 /* more than a rank keeps */
};

static int silent[N_SILENT];

/* Connections to the next rank, before its peers have theirs, which send nothing or half of a
 * hello. */
static void crowd_in(const weft_comm_rdzv_table *t, int r)
{
    const char *card = t->part[(r + 1) % t->world];
    int64_t     skip = 8; /* of the card; the address follows */
    for (int i = 0; i < N_SILENT; i++) {
        int           why;
        struct pollfd p = {.events = POLLOUT};
        silent[i] = p.fd = weft_comm__tcp_connect(
            card + skip, t->bytes[(r + 1) % t->world] - skip, true, &why);
        if (p.fd >= 0 && i % 2 && poll(&p, 1, 2000) == 1)
            send(p.fd, "weftauth\1\0\0\0", 12, MSG_NOSIGNAL);
    }
}

/* They go within 5 s, and meanwhile the ranks work. */
static weft_status work_in_a_crowd(rank_state *r)
{
    weft_comm_group *g;
    net_end         *e = r->c->impl;
    float            x = 1, refused = 0;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int i = 0; i < 20000 && refused < (float)(N_SILENT * r->n); i++) {
        x = 1;
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
        if (x != (float)r->n) return WEFT_FAIL(WEFT_ERR_NUMERIC, "%g", (double)x);
        refused = (float)e->n_refused;
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &refused,
                                      &refused, 1));
        usleep(1000);
    }
    for (int i = 0; i < N_SILENT; i++) close(silent[i]);
    if (refused < (float)(N_SILENT * r->n))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%g of them are closed", (double)refused);
    return WEFT_OK;
}

static void peers_get_in_among_strangers(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        before_connect = crowd_in;
        run_ranks(TCP, n, 30, work_in_a_crowd);
        before_connect = NULL;
        all_ok(TCP, n);
    }
}

/* ---- who is turned away before a byte was sent ---- */

enum {
    N_TURNED = 5
};

static struct sockaddr_in6 real_peer;

/* Closes the first connections at once, as a rank does with the oldest of too many strangers; then
 * passes bytes on, both ways, until the test ends. */
static void *turn_away(void *arg)
{
    int gate = (int)(intptr_t)arg, n = 0;
    for (;;) {
        int s = accept(gate, NULL, NULL);
        if (s < 0) return NULL;
        if (n++ < N_TURNED) {
            close(s);
            continue;
        }
        int t = socket(real_peer.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(t, (struct sockaddr *)&real_peer, sizeof real_peer)) return NULL;
        struct pollfd p[2] = {{.fd = s, .events = POLLIN}, {.fd = t, .events = POLLIN}};
        while (poll(p, 2, -1) > 0)
            for (int i = 0; i < 2; i++) {
                char    b[4096];
                ssize_t k = p[i].revents ? read(p[i].fd, b, sizeof b) : -1;
                if (p[i].revents && k <= 0) return NULL;
                for (ssize_t at = 0, w; at < k; at += w)
                    if ((w = write(p[!i].fd, b + at, (size_t)(k - at))) <= 0) return NULL;
            }
    }
}

/* Rank 1 reaches rank 0 only through such a door. */
static void put_door_between(const weft_comm_rdzv_table *t, int r)
{
    struct sockaddr_in a    = {.sin_family      = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          size = sizeof a;
    pthread_t          thread;
    if (r != 1) return;
    char *address = (char *)(uintptr_t)t->part[0] + 8; /* after the card */
    int   gate    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(&real_peer, address, sizeof real_peer);
    assert_int_equal(bind(gate, (struct sockaddr *)&a, size) | listen(gate, 64), 0);
    getsockname(gate, (struct sockaddr *)&a, &size);
    memset(address, 0, sizeof real_peer);
    memcpy(address, &a, sizeof a);
    assert_int_equal(pthread_create(&thread, NULL, turn_away, (void *)(intptr_t)gate), 0);
    pthread_detach(thread);
}

static weft_status sum_once(rank_state *r)
{
    weft_comm_group *g;
    float            x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
    return x == 2 ? WEFT_OK : WEFT_FAIL(WEFT_ERR_NUMERIC, "%g", (double)x);
}

static void who_is_turned_away_tries_again(void **state)
{
    (void)state;
    before_connect = put_door_between;
    run_ranks(TCP, 2, 30, sum_once);
    before_connect = NULL;
    all_ok(TCP, 2);
}

/* ---- who comes late ---- */

/* In turn one comes late, to what the others have sent unasked, in part or not at all; the thread
 * has kept it. */
static weft_status come_late(rank_state *r)
{
    static const int64_t count[] = {1000, 40000, 120000, 131072, 131073, 400000};
    static float         x[400000 * 4], y[400000 * 4];
    weft_comm_group     *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int i = 0; i < (int)WEFT_COUNT(count) * 2; i++) {
        int64_t n = count[i / 2];
        for (int64_t k = 0; k < n; k++) x[k] = (float)(r->rank + 1 + k % 7);
        if (r->rank == i % r->n) usleep(60000);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F32, x, y, n));
        for (int64_t k = 0; k < n * r->n; k++)
            if (y[k] != (float)(k / n + 1 + k % n % 7))
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "gathered %lld", (long long)n);
        if (r->rank == (i + 1) % r->n) usleep(60000);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, x, x, n));
        for (int64_t k = 0; k < n; k++)
            if (x[k] != (float)(r->n * (r->n + 1) / 2 + r->n * (k % 7)))
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "summed %lld", (long long)n);
    }
    return WEFT_OK;
}

static void the_late_get_all(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++)
        for (int n = 2; n <= 4; n++) {
            run_ranks((transport)over, n, 60, come_late);
            all_ok((transport)over, n);
        }
}

/* Those that wait for the last one show that they are alive. */
static weft_status wait_for_the_last(rank_state *r)
{
    static weft_progress_record record;
    weft_comm_group            *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    weft_progress_share(&record);
    uint64_t before = atomic_load(&record.beat);
    if (r->rank == r->n - 1) usleep(700000);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    uint64_t beats = atomic_load(&record.beat) - before;
    weft_progress_share(NULL);
    if (r->rank == r->n - 1 || beats >= 3) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d beats in 0.7 s of waiting", (int)beats);
}

static void who_waits_is_alive(void **state)
{
    (void)state;
    for (int over = TCP; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 60, wait_for_the_last);
        all_ok((transport)over, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_is_alive),
        cmocka_unit_test(links_have_accounts),
        test_plain(the_killed_are_named),
        test_sanitized(the_stopped_are_named),
        cmocka_unit_test(exits_and_leaves_are_noticed),
        test_plain(the_last_words_arrive),
        cmocka_unit_test(damaged_heads_are_refused),
        cmocka_unit_test(strangers_are_sent_away),
        test_plain(peers_get_in_among_strangers),
        cmocka_unit_test(who_is_turned_away_tries_again),
        test_sanitized(the_late_get_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
