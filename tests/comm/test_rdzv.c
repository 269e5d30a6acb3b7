/* The rendezvous: who has the token gets everybody's bytes; strangers get nothing, delay nothing
 * and end nothing. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net.h"
#include "comm/rdzv_priv.h"

enum {
    MAX_RANK = 8
};

static const weft_comm_token token       = {.key = {{1, 2, 3}}},
                             other_token = {.key = {{3, 2, 1}}};

/* ---- ranks as threads ---- */

typedef struct visitor {
    int                    rank, world;
    double                 timeout_s;
    const weft_comm_token *token; /* NULL: the usual one */
    const void            *mine;  /* NULL: "rank 1 of 2" */
    int64_t                bytes;
    bool                   checked; /* rank 0 looks at addresses */
    weft_status            st;
    double                 took_s;
    char                   text[1024];
    weft_comm_rdzv_table   t;
    char                   at[64];
    int                    door; /* rank 0: it listens there already; 0: at `at` */
    uint32_t               epoch;
    const _Atomic bool    *over; /* the membership is; NULL: never */
    pthread_t              thread;
} visitor;

static _Atomic int n_logged;
static char        last_log[1024];

static void keep_log(bool warning, const char *text)
{
    if (!warning) return;
    n_logged++;
    snprintf(last_log, sizeof last_log, "%s", text);
}

static bool is_over(void *arg)
{
    return *((const visitor *)arg)->over;
}

static void *visit(void *arg)
{
    visitor               *v = arg;
    char                   mine[64];
    weft_comm_rdzv_options o = {.at        = v->at,
                                .rank      = v->rank,
                                .world     = v->world,
                                .timeout_s = v->timeout_s,
                                .token     = v->token ? v->token : &token,
                                .check = v->checked ? weft_comm_net_check_address : NULL,
                                .log   = v->rank ? NULL : keep_log,
                                .listen_fd = v->rank ? 0 : v->door,
                                .epoch     = v->epoch,
                                .is_over   = v->over ? is_over : NULL,
                                .arg       = v};
    int    n  = snprintf(mine, sizeof mine, "rank %d of %d", v->rank, v->world);
    double t0 = weft_clock_s();
    v->st =
        weft_comm_rdzv_run(&o, v->mine ? v->mine : mine, v->mine ? v->bytes : n, &v->t);
    v->took_s = weft_clock_s() - t0;
    snprintf(v->text, sizeof v->text, "%s", v->st == WEFT_OK ? "" : weft_error_text());
    return NULL;
}

static int listen_here(char *at, size_t n)
{
    struct sockaddr_in a   = {.sin_family      = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len = sizeof a;
    int                s   = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s > 0 && !bind(s, (struct sockaddr *)&a, len) && !listen(s, 512));
    getsockname(s, (struct sockaddr *)&a, &len);
    snprintf(at, n, "127.0.0.1:%d", ntohs(a.sin_port));
    return s;
}

static void begin(visitor *v)
{
    pthread_create(&v->thread, NULL, visit, v);
}

static void end(visitor *v)
{
    pthread_join(v->thread, NULL);
}

static void succeeds(visitor *v)
{
    end(v);
    if (v->st != WEFT_OK) fail_msg("rank %d: %s", v->rank, v->text);
    weft_comm_rdzv_table_fini(&v->t);
}

static void fails(visitor *v, weft_status st, const char *words)
{
    end(v);
    assert_int_equal(v->st, st);
    if (!strstr(v->text, words)) fail_msg("'%s' is not in: %s", words, v->text);
}

/* Rank 0 of n, at work; the others' place in v. */
static void open_host(visitor *v, int n, double timeout_s)
{
    n_logged  = 0;
    v[0]      = (visitor){.world = n, .timeout_s = timeout_s};
    v[0].door = listen_here(v[0].at, sizeof v[0].at);
    for (int i = 1; i < n; i++) {
        v[i] = (visitor){.rank = i, .world = n, .timeout_s = timeout_s};
        memcpy(v[i].at, v[0].at, sizeof v[0].at);
    }
    begin(&v[0]);
}

/* ---- strangers ---- */

static int port_of(const char *at)
{
    return atoi(strrchr(at, ':') + 1);
}

static int connect_from(const char *host, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int                s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_aton(host, &a.sin_addr);
    if (!connect(s, (struct sockaddr *)&a, sizeof a)) return s;
    close(s);
    return -1;
}

static int knock(const visitor *v)
{
    int s = connect_from("127.0.0.1", port_of(v->at));
    assert_true(s >= 0);
    return s;
}

/* Bytes that come within three seconds or until it is closed. */
static ssize_t hear(int s, void *p, size_t n)
{
    size_t        got = 0;
    struct pollfd q   = {.fd = s, .events = POLLIN};
    while (got < n && poll(&q, 1, 3000) == 1) {
        ssize_t k = recv(s, (char *)p + got, n - got, 0);
        if (k <= 0) break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

/* ---- the ordinary case ---- */

static void all_get_everybodys(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANK; n++) {
        visitor v[MAX_RANK];
        open_host(v, n, 20);
        for (int i = 1; i < n; i++) begin(&v[i]);
        for (int i = 0; i < n; i++) {
            end(&v[i]);
            if (v[i].st != WEFT_OK) fail_msg("%s", v[i].text);
        }
        for (int i = 0; i < n; i++) {
            assert_memory_equal(&v[i].t.membership, &v[0].t.membership,
                                sizeof(weft_comm_key));
            for (int k = 0; k < n; k++) {
                char want[64];
                int  len = snprintf(want, sizeof want, "rank %d of %d", k, n);
                assert_int_equal(v[i].t.bytes[k], len);
                assert_memory_equal(v[i].t.part[k], want, (size_t)len);
            }
        }
        for (int i = 0; i < n; i++) weft_comm_rdzv_table_fini(&v[i].t);
        close(v[0].door);
    }
}

/* The same token, two runs: two keys. */
static void each_run_has_its_own_key(void **state)
{
    (void)state;
    weft_comm_key was     = {{0}};
    double        least_s = 20;
    for (int i = 0; i < 20; i++) {
        visitor v[2];
        open_host(v, 2, 20);
        begin(&v[1]);
        end(&v[0]);
        assert_memory_not_equal(&v[0].t.membership, &was, sizeof was);
        was = v[0].t.membership;
        weft_comm_rdzv_table_fini(&v[0].t);
        succeeds(&v[1]);
        least_s = fmin(least_s, fmax(v[0].took_s, v[1].took_s));
        close(v[0].door);
    }
    assert_true(least_s < 0.03); /* none waits for delayed acknowledgements, 40 ms */
}

static void who_does_not_come_is_named_to_all(void **state)
{
    (void)state;
    visitor v[3];
    open_host(v, 3, 1.5);
    begin(&v[1]);
    for (int i = 0; i < 2; i++)
        fails(&v[i], WEFT_ERR_PEER, "rank 2 timed out: it did not come to 127.0.0.1:");
    close(v[0].door);
    visitor alone = {.rank = 1, .world = 2, .timeout_s = 0.2, .at = "127.0.0.1:1"};
    visit(&alone);
    assert_non_null(strstr(alone.text, "rank 0 timed out"));
    static const char *const bad[] = {"", "x", "x:", ":3", "x:0", "x:70000", "x:3y"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        assert_int_equal(weft_comm_rdzv_check(bad[i]), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_rdzv_check("[::1]:29400"), WEFT_OK);
}

/* S5: a guest with the token and another world is refused with a line; rank 0 goes on, and the
 * right one gets in. */
static void a_wrong_guest_ends_nothing(void **state)
{
    (void)state;
    visitor v[2], wrong;
    open_host(v, 2, 20);
    wrong       = v[1];
    wrong.world = 3;
    begin(&wrong);
    fails(&wrong, WEFT_ERR_ARG,
          "rank 1 was started for 3 ranks, rank 0 for 2; give all the same numbers of "
          "hosts "
          "and of ranks");
    wrong      = v[1];
    wrong.rank = 2;
    begin(&wrong);
    fails(&wrong, WEFT_ERR_ARG, "two processes");
    begin(&v[1]);
    succeeds(&v[0]);
    succeeds(&v[1]);
    assert_int_equal(n_logged, 2);
    close(v[0].door);
    /* at the deadline rank 0 names it */
    open_host(v, 2, 2);
    wrong       = v[1];
    wrong.world = 3;
    begin(&wrong);
    end(&wrong);
    fails(&v[0], WEFT_ERR_PEER, "(refused: rank 1 was started for 3 ranks");
    close(v[0].door);
}

static void of_two_with_one_rank_the_first_stays(void **state)
{
    (void)state;
    visitor v[3], second;
    open_host(v, 3, 20);
    v[1].timeout_s = 4; /* the one that comes when all is over waits so long */
    second         = v[1];
    begin(&v[1]);
    begin(&second);
    begin(&v[2]);
    succeeds(&v[0]);
    succeeds(&v[2]);
    end(&v[1]);
    end(&second);
    assert_true((v[1].st == WEFT_OK) != (second.st == WEFT_OK));
    visitor *refused = v[1].st == WEFT_OK ? &second : &v[1];
    /* refused, or it came when the rendezvous was over */
    assert_true(strstr(refused->text, "two processes") || refused->st == WEFT_ERR_PEER);
    weft_comm_rdzv_table_fini(&v[1].t);
    weft_comm_rdzv_table_fini(&second.t);
    close(v[0].door);
}

/* A rank that comes, dies and is started again takes its own place. */
static void a_rank_that_left_may_come_again(void **state)
{
    (void)state;
    visitor v[3];
    open_host(v, 3, 20);
    v[1].timeout_s = 0.4; /* gives up 5 s later, or is killed */
    pid_t p        = fork();
    if (!p) {
        visit(&v[1]);
        _exit(0);
    }
    usleep(600000);
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
    v[1].timeout_s = 20;
    begin(&v[1]);
    begin(&v[2]);
    for (int i = 0; i < 3; i++) succeeds(&v[i]);
    close(v[0].door);
}

/* ---- strangers at rank 0 ---- */

/* S1: the protocol of before, by which anybody became a rank; and ours, without the token. */
static void nobody_gets_in_without_the_token(void **state)
{
    (void)state;
    visitor v[2], wrong;
    char    junk[200];
    open_host(v, 2, 20);
    struct {
        uint64_t magic;
        int32_t  rank, world;
        int64_t  bytes;
        uint32_t sum, crc;
    } old = {UINT64_C(0x317a647274666577), 1, 2, 0, 0, 0};
    char back[256];
    int  s = knock(v);
    for (int i = 0; i < 3; i++) send(s, &old, sizeof old, MSG_NOSIGNAL);
    assert_int_equal(hear(s, back, sizeof back), 0); /* not a byte about the job */
    close(s);
    for (int i = 0; i < 20; i++) {
        s = knock(v);
        for (size_t k = 0; k < sizeof junk; k++) junk[k] = (char)rand();
        send(s, junk, (size_t)(i * 10 + 1), MSG_NOSIGNAL);
        close(s);
    }
    wrong       = v[1];
    wrong.token = &other_token;
    begin(&wrong);
    fails(&wrong, WEFT_ERR_ARG, "it has another token");
    /* who says what it has no token for */
    weft_comm_auth  a;
    weft_comm_key   key;
    weft_comm_claim claim = weft_comm__rdzv_claim(0);
    size_t          n;
    assert_int_equal(weft_comm__rdzv_key(&other_token, &key), WEFT_OK);
    weft_comm_auth_start(&a, WEFT_COMM_INITIATOR, &key, false, &claim);
    s = knock(v);
    send(s, weft_comm_auth_output(&a, &n), WEFT_COMM__AUTH_FIRST, MSG_NOSIGNAL);
    assert_int_equal(hear(s, back, WEFT_COMM__AUTH_SECOND), WEFT_COMM__AUTH_SECOND);
    send(s, junk, sizeof junk, MSG_NOSIGNAL);
    assert_int_equal(hear(s, back, sizeof back), 0);
    close(s);
    begin(&v[1]);
    succeeds(&v[0]);
    succeeds(&v[1]);
    assert_in_range(n_logged, 1, 8); /* not a line for each */
    close(v[0].door);
}

static void modes_that_differ_are_named_on_both_sides(void **state)
{
    (void)state;
    visitor         v[2];
    weft_comm_token open = {.insecure = true};
    assert_int_equal(weft_comm_key_public(&open.key), WEFT_OK);
    open_host(v, 2, 2);
    v[1].token = &open;
    begin(&v[1]);
    fails(&v[1], WEFT_ERR_ARG, "it has a token, ");
    fails(&v[0], WEFT_ERR_PEER, "it was started with --insecure-network");
    assert_non_null(
        strstr(last_log, "turned away a connection from 127.0.0.1: it was started"));
    close(v[0].door);
}

/* S6: silent connections, some hundred of them, cost nothing. */
static void silent_connections_delay_nobody(void **state)
{
    (void)state;
    static const int count[] = {15, 40, 200};
    for (size_t i = 0; i < WEFT_COUNT(count); i++) {
        visitor v[2];
        int     s[200];
        open_host(v, 2, 20);
        for (int k = 0; k < count[i]; k++) s[k] = knock(v);
        usleep(50000);
        begin(&v[1]);
        succeeds(&v[1]);
        succeeds(&v[0]);
        if (v[1].took_s > 8) fail_msg("%d connections: %g s", count[i], v[1].took_s);
        for (int k = 0; k < count[i]; k++) close(s[k]);
        close(v[0].door);
    }
}

/* S6: its deadline holds while somebody connects all the time, says half of something, or byte by
 * byte. */
static void the_deadline_holds_whatever_strangers_do(void **state)
{
    (void)state;
    visitor v[2];
    int     s[256], n = 0;
    double  t0 = weft_clock_s();
    open_host(v, 2, 2);
    int slow = knock(v);
    while (weft_clock_s() - t0 < 2.6 && n < (int)WEFT_COUNT(s)) {
        int one = connect_from("127.0.0.1", port_of(v->at));
        if (one >= 0) s[n++] = one;
        send(one, "weftauth", 8, MSG_NOSIGNAL);
        send(slow, "w", 1, MSG_NOSIGNAL);
        usleep(20000);
        if (n && rand() % 2) close(s[--n]);
    }
    fails(&v[0], WEFT_ERR_PEER, "rank 1 timed out: it did not come");
    assert_non_null(strstr(v[0].text, "turned away"));
    if (v[0].took_s > 6) fail_msg("%g s", v[0].took_s);
    while (n) close(s[--n]);
    close(slow);
    close(v[0].door);
}

/* No descriptors: strangers are closed for a guest's sake, nothing spins, and the deadline holds.
 */
static void without_descriptors_it_waits_and_ends(void **state)
{
    (void)state;
    visitor v[2];
    v[0]      = (visitor){.world = 2, .timeout_s = 4};
    v[0].door = listen_here(v[0].at, sizeof v[0].at);
    v[1]      = (visitor){.rank = 1, .world = 2, .timeout_s = 10};
    memcpy(v[1].at, v[0].at, sizeof v[0].at);
    for (int guest = 0; guest < 2; guest++) {
        pid_t p = fork();
        if (!p) {
            int used = open("/dev/null", O_RDONLY);
            setrlimit(RLIMIT_NOFILE,
                      &(struct rlimit){(rlim_t)used + 6, (rlim_t)used + 6});
            visit(&v[0]);
            struct rusage u;
            getrusage(RUSAGE_SELF, &u);
            double cpu_s = (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec;
            if (v[0].took_s > 6 || (!guest && cpu_s >= 2)) _exit(3);
            _exit(v[0].st == WEFT_OK ? 0 : 1);
        }
        int s[60], how;
        for (int k = 0; k < 60; k++) s[k] = knock(v);
        if (guest) {
            begin(&v[1]);
            succeeds(&v[1]);
        }
        waitpid(p, &how, 0);
        assert_int_equal(WEXITSTATUS(how), guest ? 0 : 1);
        for (int k = 0; k < 60; k++) close(s[k]);
    }
    close(v[0].door);
}

/* ---- a stranger as rank 0 ---- */

typedef struct impostor {
    int     door;
    ssize_t heard;
    char    bytes[512];
    int     how; /* it answers */
} impostor;

static void *pretend(void *arg)
{
    impostor *x                       = arg;
    int       s                       = accept(x->door, NULL, NULL);
    x->heard                          = hear(s, x->bytes, WEFT_COMM__AUTH_FIRST);
    char back[WEFT_COMM__AUTH_SECOND] = {0};
    for (size_t k = 0; k < sizeof back; k++) back[k] = (char)rand();
    if (x->how > 0) memcpy(back, x->bytes, 16); /* our magic, version and mode */
    if (x->how > 1) memcpy(back + 16, x->bytes + 32, 32);
    send(s, back, sizeof back, MSG_NOSIGNAL);
    x->heard += hear(s, x->bytes + x->heard, sizeof x->bytes - (size_t)x->heard);
    close(s);
    return NULL;
}

static void a_guest_tells_a_stranger_nothing(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        visitor   v = {.rank = 1, .world = 2, .timeout_s = 20};
        impostor  x = {.how = how};
        pthread_t t;
        x.door = listen_here(v.at, sizeof v.at);
        pthread_create(&t, NULL, pretend, &x);
        begin(&v);
        fails(&v, WEFT_ERR_ARG, "or a stranger listens there");
        assert_non_null(
            strstr(v.text, how ? "another token" : "does not speak weft's protocol"));
        pthread_join(t, NULL);
        assert_int_equal(x.heard,
                         WEFT_COMM__AUTH_FIRST); /* a nonce: no rank, no address */
        assert_null(memmem(x.bytes, (size_t)x.heard, "rank 1", 6));
        close(x.door);
    }
}

/* ---- where it listens, and what guests say where they are ---- */

static bool answers(const char *host, int port)
{
    int s = connect_from(host, port);
    if (s >= 0) close(s);
    return s >= 0;
}

/* S7 */
static void it_listens_where_it_was_told_to(void **state)
{
    (void)state;
    char           at[64], all[64];
    rdzv_listeners d;
    int            port, s = listen_here(at, sizeof at);
    port = port_of(at);
    assert_int_equal(weft_comm__rdzv_listen(at, &d), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "Address already in use"));
    close(s);
    assert_int_equal(weft_comm__rdzv_listen(at, &d), WEFT_OK);
    assert_int_equal(d.n, 1);
    assert_true(d.loopback);
    assert_true(answers("127.0.0.1", port));
    assert_false(answers("127.0.0.2", port));
    weft_comm__rdzv_close(&d);
    snprintf(all, sizeof all, "0.0.0.0:%d", port); /* only who writes so gets all */
    assert_int_equal(weft_comm__rdzv_listen(all, &d), WEFT_OK);
    assert_true(answers("127.0.0.2", port));
    weft_comm__rdzv_close(&d);
    assert_int_equal(weft_comm__rdzv_listen("192.0.2.7:29400", &d), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "does not have the address 192.0.2.7"));
    snprintf(all, sizeof all, "localhost:%d", port);
    assert_int_equal(weft_comm__rdzv_listen(all, &d), WEFT_OK);
    assert_true(d.loopback && !weft_comm__rdzv_is_name(all));
    assert_false(answers("127.0.0.2", port));
    weft_comm__rdzv_close(&d);
}

static void put_address(char *card, const void *a, size_t n)
{
    memset(card, 0, 8 + sizeof(struct sockaddr_in6));
    card[0] = 't';
    memcpy(card + 8, a, n);
}

/* S9: an address that is no place for rank 0 to connect to. */
static void addresses_of_guests_are_checked(void **state)
{
    (void)state;
    enum {
        CARD = 8 + sizeof(struct sockaddr_in6)
    };
    char                card[CARD + 1];
    struct sockaddr_un  un   = {.sun_family = AF_UNIX, .sun_path = "u.sock"};
    struct sockaddr_in  four = {.sin_family = AF_INET, .sin_port = htons(5000)};
    struct sockaddr_in6 six  = {.sin6_family = AF_INET6, .sin6_port = htons(5000)};
    inet_aton("10.1.2.3", &four.sin_addr);
    put_address(card, &four, sizeof four);
    assert_int_equal(weft_comm_net_check_address(card, CARD, false), WEFT_OK);
    for (int n = 0; n < CARD + 2; n++)
        if (n != CARD)
            assert_int_equal(weft_comm_net_check_address(card, n, true), WEFT_ERR_ARG);
    inet_aton("127.9.9.9", &four.sin_addr);
    put_address(card, &four, sizeof four);
    assert_int_equal(weft_comm_net_check_address(card, CARD, false), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_net_check_address(card, CARD, true), WEFT_OK);
    four.sin_port = 0;
    put_address(card, &four, sizeof four);
    assert_int_equal(weft_comm_net_check_address(card, CARD, true), WEFT_ERR_ARG);
    six.sin6_addr = in6addr_loopback;
    put_address(card, &six, sizeof six);
    assert_int_equal(weft_comm_net_check_address(card, CARD, false), WEFT_ERR_ARG);
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
    put_address(card, &six, sizeof six);
    assert_int_equal(weft_comm_net_check_address(card, CARD, false), WEFT_ERR_ARG);
    inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    put_address(card, &six, sizeof six);
    assert_int_equal(weft_comm_net_check_address(card, CARD, false), WEFT_OK);
    static const char *const many[] = {"0.0.0.0", "0.1.2.3", "224.0.0.1",
                                       "255.255.255.255"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct sockaddr_in x = {.sin_family = AF_INET, .sin_port = htons(5000)};
        inet_aton(many[i], &x.sin_addr);
        put_address(card, &x, sizeof x);
        assert_int_equal(weft_comm_net_check_address(card, CARD, true), WEFT_ERR_ARG);
    }
    static const char *const many6[] = {"::", "ff02::1", "::ffff:0.0.0.0",
                                        "::ffff:224.0.0.1"};
    for (size_t i = 0; i < sizeof many6 / sizeof *many6; i++) {
        inet_pton(AF_INET6, many6[i], &six.sin6_addr);
        put_address(card, &six, sizeof six);
        assert_int_equal(weft_comm_net_check_address(card, CARD, true), WEFT_ERR_ARG);
    }
    card[0] = 'u'; /* another link than rank 0's */
    assert_int_equal(weft_comm_net_check_address(card, CARD, true), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "set WEFT_NET alike"));
    /* at rank 0: it is refused with a line, and the right one gets in */
    visitor v[2], wrong;
    put_address(card, &un, sizeof four);
    v[0] = (visitor){
        .world = 2, .timeout_s = 20, .checked = true, .mine = card, .bytes = CARD};
    v[0].door = listen_here(v[0].at, sizeof v[0].at);
    v[1]      = v[0];
    v[1].rank = 1;
    wrong     = v[1];
    begin(&v[0]);
    begin(&wrong);
    fails(&wrong, WEFT_ERR_ARG, "an address of family 1, which is not IP");
    char good[CARD];
    four.sin_port = htons(5000);
    put_address(good, &four, sizeof four);
    v[1].mine = good;
    begin(&v[1]);
    succeeds(&v[0]);
    succeeds(&v[1]);
    close(v[0].door);
}

/* ---- records, by bytes ---- */

/* Of a guest that has proven itself: every bit of its record counts. */
static void records_of_guests_are_their_own(void **state)
{
    (void)state;
    char record[sizeof(rdzv_hello) + 20 + WEFT_COMM_MAC_BYTES];
    for (int bit = -1; bit < (int)sizeof record * 8; bit++) {
        rdzv_guest      g;
        weft_comm_auth  a;
        weft_comm_key   key;
        weft_comm_claim claim = weft_comm__rdzv_claim(0);
        rdzv_hello      h     = {.rank = 1, .world = 2, .bytes = 20};
        size_t          n, most;
        assert_int_equal(weft_comm__rdzv_guest_init(&g, &token, 0), WEFT_OK);
        assert_int_equal(weft_comm__rdzv_key(&token, &key), WEFT_OK);
        weft_comm_auth_start(&a, WEFT_COMM_INITIATOR, &key, false, &claim);
        for (int m = 0; m < 2; m++) {
            memcpy(weft_comm__rdzv_guest_room(&g, &most), weft_comm_auth_output(&a, &n),
                   32);
            if (!m) memcpy(g.in, weft_comm_auth_output(&a, &n), n);
            weft_comm__rdzv_guest_took(&g, n);
            weft_comm_auth_sent(&a, n);
            const void *p = weft_comm_auth_output(&g.auth, &n);
            weft_comm_auth_feed(&a, p, n);
            weft_comm_auth_sent(&g.auth, n);
        }
        assert_int_equal(g.stage, RDZV_HELLO);
        memcpy(record, &h, sizeof h);
        memset(record + sizeof h, 'x', 20);
        weft_comm_auth_seal(&a, &h, sizeof h, record + sizeof h, 20,
                            (weft_comm_mac *)(void *)(record + sizeof h + 20));
        if (bit >= 0) record[bit / 8] ^= (char)(1 << bit % 8);
        for (size_t at = 0; at < sizeof record;) {
            char *to = weft_comm__rdzv_guest_room(&g, &most);
            if (!most) break;
            if (most > sizeof record - at) most = sizeof record - at;
            memcpy(to, record + at, most);
            weft_comm__rdzv_guest_took(&g, most);
            at += most;
        }
        if ((g.stage == RDZV_CAME) != (bit < 0))
            fail_msg("bit %d: stage %d", bit, g.stage);
        weft_comm__rdzv_guest_fini(&g);
        weft_comm_auth_fini(&a);
    }
}

static void damaged_tables_are_refused(void **state)
{
    (void)state;
    uint8_t   nonce[WEFT_COMM_NONCE_BYTES] = {5};
    rdzv_part part[3]                      = {{"zero", 4}, {"", 0}, {"two", 3}};
    char     *text, *copy;
    int64_t   n;
    assert_int_equal(weft_comm__rdzv_table_print(nonce, 3, part, &text, &n), WEFT_OK);
    for (int64_t cut = 0; cut <= n; cut++) {
        weft_comm_rdzv_table t;
        copy = malloc((size_t)n);
        memcpy(copy, text, (size_t)n);
        weft_status st = weft_comm__rdzv_table_parse(copy, cut, 3, &token, &t);
        assert_int_equal(st, cut == n ? WEFT_OK : WEFT_ERR_PEER);
        if (st != WEFT_OK) continue;
        assert_memory_equal(t.part[2], "two", 3);
        weft_comm_rdzv_table_fini(&t);
    }
    static const int64_t wrong[] = {-1, 5, 1 << 20, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
        weft_comm_rdzv_table t;
        copy = malloc((size_t)n);
        memcpy(copy, text, (size_t)n);
        memcpy(copy + sizeof nonce, &wrong[i], sizeof wrong[i]);
        assert_int_equal(weft_comm__rdzv_table_parse(copy, n, 3, &token, &t),
                         WEFT_ERR_PEER);
    }
    free(text);
}

/* A rank of an older epoch gets nothing, from rank 0 of the next one either, at the same socket;
 * it leaves when it hears of the next one. */
static void epochs_do_not_mix(void **state)
{
    visitor      v[2], late;
    _Atomic bool over = false;
    (void)state;
    v[0]       = (visitor){.world = 2, .timeout_s = 20, .epoch = 8};
    v[0].door  = listen_here(v[0].at, sizeof v[0].at);
    v[1]       = v[0];
    v[1].rank  = 1;
    late       = v[1];
    late.epoch = 7;
    late.over  = &over;
    n_logged   = 0;
    begin(&late);
    begin(&v[0]);
    usleep(150000);
    begin(&v[1]);
    succeeds(&v[0]);
    succeeds(&v[1]);
    assert_int_equal(n_logged, 0);
    over = true;
    fails(&late, WEFT_ERR_PEER, "newer membership");
    assert_true(late.took_s < 10);
    over      = false; /* rank 0 leaves as well */
    v[0].over = &over;
    begin(&v[0]);
    usleep(50000);
    over = true;
    fails(&v[0], WEFT_ERR_PEER, "newer membership");
    close(v[0].door);
}

static void a_socket_near_a_peer(void **state)
{
    int  fd = -1;
    char at[64];
    (void)state;
    assert_int_equal(weft_comm_rdzv_listen_near("127.0.0.1:1", &fd, at, sizeof at),
                     WEFT_OK);
    assert_memory_equal(at, "127.0.0.1:", 10);
    int s = connect_from("127.0.0.1", port_of(at));
    assert_true(s >= 0);
    close(s);
    close(fd);
    assert_int_equal(weft_comm_rdzv_listen_own("127.0.0.2", &fd, at, sizeof at), WEFT_OK);
    assert_memory_equal(at, "127.0.0.2:", 10);
    close(fd);
    assert_int_equal(weft_comm_rdzv_listen_own(NULL, &fd, at, sizeof at), WEFT_OK);
    assert_true(strcmp(strrchr(at, ':'), ":0") != 0);
    close(fd);
    static const char *const wrong[] = {"198.51.100.7", "0.0.0.0", "::", "no such host"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(weft_comm_rdzv_listen_own(wrong[i], &fd, at, sizeof at),
                         WEFT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_do_not_mix),
        cmocka_unit_test(a_socket_near_a_peer),
        cmocka_unit_test(all_get_everybodys),
        cmocka_unit_test(each_run_has_its_own_key),
        cmocka_unit_test(who_does_not_come_is_named_to_all),
        cmocka_unit_test(a_wrong_guest_ends_nothing),
        cmocka_unit_test(of_two_with_one_rank_the_first_stays),
        cmocka_unit_test(a_rank_that_left_may_come_again),
        cmocka_unit_test(nobody_gets_in_without_the_token),
        cmocka_unit_test(modes_that_differ_are_named_on_both_sides),
        cmocka_unit_test(silent_connections_delay_nobody),
        cmocka_unit_test(the_deadline_holds_whatever_strangers_do),
        cmocka_unit_test(without_descriptors_it_waits_and_ends),
        cmocka_unit_test(a_guest_tells_a_stranger_nothing),
        cmocka_unit_test(it_listens_where_it_was_told_to),
        cmocka_unit_test(addresses_of_guests_are_checked),
        cmocka_unit_test(records_of_guests_are_their_own),
        cmocka_unit_test(damaged_tables_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
