/* Between hosts: ranks that are killed, stopped or leave, messages that are not ours, meetings that fail. */
#include "comm/kill.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>

#include "base/hash.h"
#include "comm/net_priv.h"
#include "comm/net_tcp.h"

enum {
    N_KILL = WEFT_TEST_SANITIZED ? 4 : 8,
};

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
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32, own,
                                      own, n));
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
    return weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
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

/* What was sent before leaving arrives, also when the receiver comes late and has something to say itself. */
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
    weft_comm__net_finish_head(e, &h, kind);
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
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
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

/* A stream: who says one wrong word is not listened to any more. */
static weft_status damaged_greetings(rank_state *r)
{
    weft_comm_group *g;
    net_end         *e = r->c->impl;
    int              fd[N_BIT], why;
    float            refused = 0;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    for (int bit = 0; r->rank && bit < N_BIT; bit++) {
        net_head      h = damaged_head(e, NET_HELLO, bit);
        struct pollfd p = {.events = POLLOUT};
        p.fd = fd[bit] = weft_comm__tcp_connect(e->peer[0].address,
                                                e->peer[0].address_bytes, true, &why);
        if (poll(&p, 1, 5000) != 1 || send(p.fd, &h, sizeof h, MSG_NOSIGNAL) != sizeof h)
            return WEFT_FAIL(WEFT_ERR_IO, "a stranger cannot get in");
    }
    for (int i = 0; i < 5000 && refused < N_BIT; i++) {
        WEFT_TRY(add_one(r, g));
        refused = r->rank ? 0 : (float)e->n_refused;
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32,
                                      &refused, &refused, 1));
    }
    for (int bit = 0; r->rank && bit < N_BIT; bit++) close(fd[bit]);
    if (refused != N_BIT) return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d refused", (int)refused);
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
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32, &x,
                                      &x, 1));
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

/* ---- who comes late ---- */

/* In turn one comes late, to what the others have sent unasked, in part or not at all; the thread has kept it. */
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
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_COMM_ALL_GATHER, WEFT_DTYPE_F32, x, y, n));
        for (int64_t k = 0; k < n * r->n; k++)
            if (y[k] != (float)(k / n + 1 + k % n % 7))
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "gathered %lld", (long long)n);
        if (r->rank == (i + 1) % r->n) usleep(60000);
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32, x, x, n));
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

/* ---- the meeting ---- */

typedef struct visitor {
    int               rank, world;
    double            timeout_s;
    weft_status       st;
    char              text[256];
    weft_comm_meeting m;
    char              at[32];
} visitor;

static void *visit(void *arg)
{
    visitor               *v = arg;
    char                   mine[64];
    weft_comm_rdzv_options o = {.at        = v->at,
                                .rank      = v->rank,
                                .world     = v->world,
                                .timeout_s = v->timeout_s,
                                .listen_fd = v->rank ? 0 : door};
    int n = snprintf(mine, sizeof mine, "rank %d of %d", v->rank, v->world);
    v->st = weft_comm_rdzv_meet(&o, mine, n, &v->m);
    snprintf(v->text, sizeof v->text, "%s", v->st == WEFT_OK ? "" : weft_error_text());
    return NULL;
}

static void open_door(char *at, size_t n)
{
    struct sockaddr_in a;
    socklen_t          len = sizeof a;
    assert_true((door = socket(AF_INET, SOCK_STREAM, 0)) > 0 && !listen(door, 64));
    getsockname(door, (struct sockaddr *)&a, &len);
    snprintf(at, n, "127.0.0.1:%d", ntohs(a.sin_port));
}

static void meet(visitor *v, int n)
{
    pthread_t t[MAX_RANK];
    open_door(v[0].at, sizeof v[0].at);
    for (int i = 1; i < n; i++) memcpy(v[i].at, v[0].at, sizeof v[0].at);
    for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, visit, &v[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    close(door);
}

static void all_meet(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANK; n++) {
        visitor v[MAX_RANK] = {0};
        for (int i = 0; i < n; i++)
            v[i] = (visitor){.rank = i, .world = n, .timeout_s = 10};
        meet(v, n);
        for (int i = 0; i < n; i++) {
            if (v[i].st != WEFT_OK) fail_msg("%s", v[i].text);
            assert_int_equal(v[i].m.job, v[0].m.job);
            for (int k = 0; k < n; k++) {
                char want[64];
                int  len = snprintf(want, sizeof want, "rank %d of %d", k, n);
                assert_int_equal(v[i].m.bytes[k], len);
                assert_memory_equal(v[i].m.part[k], want, (size_t)len);
            }
        }
        for (int i = 0; i < n; i++) weft_comm_meeting_fini(&v[i].m);
    }
}

static void meetings_that_fail(void **state)
{
    (void)state;
    /* one does not come: all that came say so */
    visitor late[] = {{.rank = 0, .world = 3, .timeout_s = 0.4},
                      {.rank = 1, .world = 3, .timeout_s = 0.4}};
    meet(late, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(late[i].st, WEFT_ERR_PEER);
        assert_non_null(strstr(late[i].text, "rank 2 is silent: it has not come to 127"));
    }
    visitor other[] = {{.rank = 0, .world = 2, .timeout_s = 5},
                       {.rank = 1, .world = 3, .timeout_s = 5}};
    meet(other, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(other[i].st, WEFT_ERR_ARG);
        assert_string_equal(other[i].text,
                            "rank 1 was told that there are 3 ranks, rank 0 "
                            "that there are 2; give all the same numbers of hosts and of "
                            "ranks");
    }
    visitor twice[] = {{.rank = 0, .world = 3, .timeout_s = 0.5},
                       {.rank = 1, .world = 3, .timeout_s = 0.5},
                       {.rank = 1, .world = 3, .timeout_s = 0.5}};
    meet(twice, 3);
    assert_int_equal(twice[0].st, WEFT_ERR_PEER);
    assert_true(strstr(twice[1].text, "two processes") ||
                strstr(twice[2].text, "two proc"));
    visitor nobody = {.rank = 1, .world = 2, .timeout_s = 0.2, .at = "127.0.0.1:1"};
    visit(&nobody);
    assert_non_null(strstr(nobody.text, "rank 0 is silent"));
    static const char *const bad[] = {"", "x", "x:", ":3", "x:0", "x:70000", "x:3y"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        assert_int_equal(weft_comm_rdzv_check(bad[i]), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_rdzv_check("[::1]:29400"), WEFT_OK);
}

static void meetings_stand_strangers(void **state)
{
    (void)state;
    visitor   v[2] = {{.rank = 0, .world = 2, .timeout_s = 20},
                      {.rank = 1, .world = 2, .timeout_s = 20}};
    pthread_t t[2];
    char      junk[200];
    open_door(v[0].at, sizeof v[0].at);
    memcpy(v[1].at, v[0].at, sizeof v[0].at);
    pthread_create(&t[0], NULL, visit, &v[0]);
    for (int i = 0; i < 20; i++) {
        struct sockaddr_in a;
        socklen_t          len = sizeof a;
        getsockname(door, (struct sockaddr *)&a, &len);
        inet_aton("127.0.0.1", &a.sin_addr);
        int s = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof a), 0);
        for (size_t k = 0; k < sizeof junk; k++) junk[k] = (char)rand();
        send(s, junk, (size_t)(i * 10 + 1), MSG_NOSIGNAL);
        close(s);
    }
    pthread_create(&t[1], NULL, visit, &v[1]);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        if (v[i].st != WEFT_OK) fail_msg("%s", v[i].text);
        weft_comm_meeting_fini(&v[i].m);
    }
    close(door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_meet),
        cmocka_unit_test(meetings_that_fail),
        cmocka_unit_test(meetings_stand_strangers),
        cmocka_unit_test(the_killed_are_named),
        cmocka_unit_test(the_stopped_are_named),
        cmocka_unit_test(exits_and_leaves_are_noticed),
        cmocka_unit_test(the_last_words_arrive),
        cmocka_unit_test(damaged_heads_are_refused),
        cmocka_unit_test(strangers_are_sent_away),
        cmocka_unit_test(the_late_get_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
