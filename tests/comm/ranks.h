/* Ranks for tests of comm: the same body over every transport.
 *     local        threads over local.c
 *     throttle     the same behind throttle.c, as fast as it goes
 *     hosts        threads over hosts.c: two to a host, both ends local.c
 *     shm threads  threads, each with its own end of shared memory
 *     shm          processes, as in earnest
 *     tcp          processes as on several hosts, over sockets
 *     shm+tcp      processes as on several hosts, per_host on each: hosts.c over both
 *     ucx          the same over UCX's TCP; left out where UCX is not there
 * What a rank found out lies in memory that outlives its process. */
#ifndef TEST_COMM_RANKS_H
#define TEST_COMM_RANKS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/membership.h"
#include "comm/rdzv.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "comm/net.h"
#include "comm/throttle.h"

enum {
    MAX_RANK = 8
};

typedef enum transport {
    LOCAL,
    THROTTLE,
    HOSTS,
    SHM_THREADS,
    SHM,
    TCP,
    BOTH,
    UCX,
} transport;

/* ThreadSanitizer sees neither another process nor that two mappings are one memory. */
#ifdef __SANITIZE_THREAD__
#define N_TRANSPORT SHM_THREADS /* local, throttle and hosts */
#else
#define N_TRANSPORT n_transport()
#endif

static const char *const transport_name[] = {
    "local", "throttle", "hosts", "shm threads", "shm", "tcp", "shm+tcp", "ucx"};

typedef struct rank_state {
    weft_comm  *c;
    transport   over;
    int         n, rank;
    pid_t       pid;
    weft_status st;
    double      done_s; /* when the body ended */
    int         ended;
    char        text[256];
    double      note_s; /* the test's own */
    _Atomic int count;
} rank_state;

typedef weft_status (*rank_fn)(rank_state *r);

static rank_state                           *rank; /* MAX_RANK of them, shared */
static weft_comm_local                      *local_world;
static weft_comm_local                      *host_world[MAX_RANK / 2];
static weft_comm                            *throttled[MAX_RANK];
static weft_comm_shm                        *shm_world, *shm_host[MAX_RANK];
static int                                   per_host = 2;
static int                                   door; /* where ranks of several hosts meet */
static rank_fn                               body;
static double                                timeout_s;
__attribute__((unused)) static const int32_t everyone[MAX_RANK] = {0, 1, 2, 3,
                                                                   4, 5, 6, 7};

__attribute__((unused)) static bool has_slabs(transport over)
{
    return over == SHM || over == SHM_THREADS;
}

static bool between_hosts(transport over)
{
    return over == TCP || over == UCX || over == BOTH;
}

static bool is_process(transport over)
{
    return over == SHM || between_hosts(over);
}

/* Tried in another process: this one is going to fork. */
__attribute__((unused)) static int n_transport(void)
{
    static int n;
    if (!n && getenv("WEFT_NET")) n = UCX; /* it says what TCP is to be */
    if (n) return n;
    pid_t p = fork();
    if (!p) {
        weft_comm *c;
        _exit(weft_comm_net_open(&(weft_comm_net_options){.world = 1, .by = "ucx"}, &c) !=
              WEFT_OK);
    }
    int how = 1;
    waitpid(p, &how, 0);
    if (how) print_message("ucx: not here, left out\n");
    n = how ? UCX : UCX + 1;
    return n;
}

/* Called, where it is set, when a rank knows all addresses and has connected to none. */
__attribute__((unused)) static void (*before_connect)(const weft_comm_rdzv_table *t,
                                                      int                         rank);

/* Addresses by the rendezvous; hosts of per_host ranks where over is BOTH, of one elsewhere. */
static weft_status join_net(transport over, int r, int n, double timeout, weft_comm **out)
{
    const void          *mine;
    int64_t              bytes;
    weft_comm_rdzv_table t;
    weft_comm           *listener;
    weft_membership      m     = {.rank = r, .world = n, .local_world = 1, .shm_fd = -1};
    weft_comm_token      token = {.key = {{1, 2, 3}}};
    const char          *by    = getenv("WEFT_NET"); /* tls: all of it encrypted */
    char                 at[32];
    weft_status          st;
    struct sockaddr_in   a;
    socklen_t            len = sizeof a;
    getsockname(door, (struct sockaddr *)&a, &len);
    snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(a.sin_port));
    WEFT_TRY(weft_comm_net_open(&(weft_comm_net_options){.rank        = r,
                                                         .world       = n,
                                                         .local_world = n,
                                                         .timeout_s   = timeout,
                                                         .device      = "lo",
                                                         .by = over == UCX ? "ucx"
                                                               : by        ? by
                                                                           : "tcp"},
                                &listener));
    weft_comm_net_address(listener, &mine, &bytes);
    st =
        weft_comm_rdzv_run(&(weft_comm_rdzv_options){.at        = at,
                                                     .rank      = r,
                                                     .world     = n,
                                                     .timeout_s = timeout,
                                                     .token     = &token,
                                                     .check = weft_comm_net_check_address,
                                                     .listen_fd = door},
                           mine, bytes, &t);
    if (st != WEFT_OK) {
        weft_comm_destroy(listener);
        return st;
    }
    if (before_connect) before_connect(&t, r);
    if (over == BOTH) {
        int h         = r / per_host;
        m.local_rank  = r % per_host;
        m.local_world = n - h * per_host < per_host ? n - h * per_host : per_host;
        m.shm_fd      = weft_comm_shm_fd(shm_host[h]);
    }
    m.key           = t.membership;
    m.address       = t.part;
    m.address_bytes = t.bytes;
    st              = weft_comm_create(&m, listener, timeout, out);
    weft_comm_rdzv_table_fini(&t);
    return st;
}

static weft_status join_hosts(int r, double timeout, weft_comm **out)
{
    weft_comm *near, *far;
    WEFT_TRY(weft_comm_local_join(host_world[r / 2], r % 2, timeout, &near));
    WEFT_TRY(weft_comm_local_join(local_world, r, timeout, &far));
    return weft_comm_hosts_create(near, far, out);
}

/* The end behind it is destroyed after all. */
static weft_status join_throttle(int r, double timeout, weft_comm **out)
{
    WEFT_TRY(weft_comm_local_join(local_world, r, timeout, &throttled[r]));
    return weft_comm_throttle(throttled[r], 1e15, 0, out);
}

static weft_status join_shm(int r, int n, double timeout, weft_comm **out)
{
    weft_membership m = {.rank        = r,
                         .world       = n,
                         .local_rank  = r,
                         .local_world = n,
                         .shm_fd      = weft_comm_shm_fd(shm_world)};
    return weft_comm_create(&m, NULL, timeout, out);
}

static void run_body(rank_state *r)
{
    r->st = WEFT_OK;
    if (between_hosts(r->over))
        r->st = join_net(r->over, r->rank, r->n, timeout_s + 10, &r->c);
    else if (r->over == THROTTLE)
        r->st = join_throttle(r->rank, timeout_s + 10, &r->c);
    else if (r->over == HOSTS)
        r->st = join_hosts(r->rank, timeout_s + 10, &r->c);
    else if (r->over != LOCAL)
        r->st = join_shm(r->rank, r->n, timeout_s + 10, &r->c);
    if (r->st == WEFT_OK) {
        r->c->timeout_s = timeout_s;
        r->st           = body(r);
    }
    snprintf(r->text, sizeof r->text, "%s", r->st == WEFT_OK ? "" : weft_error_text());
    r->done_s = weft_clock_s();
    r->ended  = 1;
    if (r->over != LOCAL) weft_comm_destroy(r->c);
}

static void *rank_main(void *arg)
{
    run_body(arg);
    return NULL;
}

static void start_ranks(transport over, int n, double timeout, rank_fn f)
{
    if (!rank)
        rank = mmap(NULL, sizeof *rank * MAX_RANK, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(rank, 0, sizeof *rank * MAX_RANK);
    body      = f;
    timeout_s = timeout;
    if (over == LOCAL || over == THROTTLE || over == HOSTS)
        assert_int_equal(weft_comm_local_create(n, &local_world), WEFT_OK);
    for (int h = 0; over == HOSTS && h < (n + 1) / 2; h++)
        assert_int_equal(weft_comm_local_create(n - 2 * h > 1 ? 2 : 1, &host_world[h]),
                         WEFT_OK);
    for (int h = 0; over == BOTH && h * per_host < n; h++) {
        int m = n - h * per_host < per_host ? n - h * per_host : per_host;
        assert_int_equal(weft_comm_shm_create(m, &shm_host[h]), WEFT_OK);
    }
    if (over == LOCAL || over == THROTTLE || over == HOSTS)
        ;
    else if (between_hosts(over))
        assert_true((door = socket(AF_INET, SOCK_STREAM, 0)) > 0 && !listen(door, 64));
    else
        assert_int_equal(weft_comm_shm_create(n, &shm_world), WEFT_OK);
    for (int i = 0; i < n; i++) {
        rank[i].over = over;
        rank[i].n    = n;
        rank[i].rank = i;
        if (over == LOCAL)
            assert_int_equal(weft_comm_local_join(local_world, i, timeout, &rank[i].c),
                             WEFT_OK);
    }
    for (int i = 0; is_process(over) && i < n; i++) {
        fflush(NULL);
        pid_t p = fork();
        assert_true(p >= 0);
        if (!p) {
            signal(SIGSEGV, SIG_DFL); /* not cmocka's */
            run_body(&rank[i]);
            _exit(0);
        }
        rank[i].pid = p;
    }
}

__attribute__((unused)) static void end_ranks(transport over, int n)
{
    if (is_process(over)) {
        for (int i = 0; i < n; i++) waitpid(rank[i].pid, NULL, 0);
    } else {
        pthread_t t[MAX_RANK];
        for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, rank_main, &rank[i]);
        for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    }
    for (int i = 0; over == LOCAL && i < n; i++) weft_comm_destroy(rank[i].c);
    for (int i = 0; over == THROTTLE && i < n; i++) weft_comm_destroy(throttled[i]);
    if (over == LOCAL || over == THROTTLE || over == HOSTS)
        weft_comm_local_destroy(local_world);
    for (int h = 0; over == HOSTS && h < (n + 1) / 2; h++)
        weft_comm_local_destroy(host_world[h]);
    if (has_slabs(over)) weft_comm_shm_destroy(shm_world);
    if (between_hosts(over)) close(door);
    for (int h = 0; over == BOTH && h * per_host < n; h++)
        weft_comm_shm_destroy(shm_host[h]);
}

__attribute__((unused)) static void run_ranks(transport over, int n, double timeout,
                                              rank_fn f)
{
    start_ranks(over, n, timeout, f);
    end_ranks(over, n);
}

__attribute__((unused)) static void all_ok(transport over, int n)
{
    for (int i = 0; i < n; i++)
        if (rank[i].st != WEFT_OK) print_message("rank %d: %s\n", i, rank[i].text);
    for (int i = 0; i < n; i++)
        if (rank[i].st != WEFT_OK || !rank[i].ended)
            fail_msg("%s, %d ranks, rank %d: %s", transport_name[over], n, i,
                     rank[i].ended ? rank[i].text : "did not end");
}

#endif
