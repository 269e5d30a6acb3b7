/* Registers in etcd: the conformance test on a real cluster of three, which loses its leader; TLS,
 * user and password.  Where there is no etcd: only what needs none. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "register/conformance.h"

enum {
    N_SERVER = 3
};

static char  folder[] = "/tmp/weft-etcd-XXXXXX";
static pid_t server[N_SERVER];
static int   port[2 * N_SERVER]; /* of clients, then of peers */
static char  where[200];

static bool has_etcd(void)
{
    return system("command -v etcd >/dev/null 2>&1") == 0;
}

/* Ports that are free now. */
static void find_ports(void)
{
    int fd[2 * N_SERVER];
    for (int k = 0; k < 2 * N_SERVER; k++) {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr   = {.s_addr = htonl(INADDR_LOOPBACK)}};
        socklen_t          n = sizeof a;
        fd[k]                = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd[k] >= 0 && !bind(fd[k], (struct sockaddr *)&a, n));
        assert_false(getsockname(fd[k], (struct sockaddr *)&a, &n));
        port[k] = ntohs(a.sin_port);
    }
    for (int k = 0; k < 2 * N_SERVER; k++) close(fd[k]);
}

static void start_server(int k)
{
    char name[16], data[100], client[64], peer[64], all[300];
    snprintf(name, sizeof name, "e%d", k);
    snprintf(data, sizeof data, "%s/%s", folder, name);
    snprintf(client, sizeof client, "http://127.0.0.1:%d", port[k]);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", port[N_SERVER + k]);
    snprintf(all, sizeof all,
             "e0=http://127.0.0.1:%d,e1=http://127.0.0.1:%d,e2=http://127.0.0.1:%d",
             port[3], port[4], port[5]);
    server[k] = fork();
    assert_true(server[k] >= 0);
    if (server[k]) return;
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        _exit(1);
    execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls",
           client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
           "--initial-advertise-peer-urls", peer, "--initial-cluster", all,
           "--heartbeat-interval", "50", "--election-timeout", "500", (char *)NULL);
    _exit(1);
}

static void stop_server(int k)
{
    if (server[k] <= 0) return;
    kill(server[k], SIGKILL);
    waitpid(server[k], NULL, 0);
    server[k] = 0;
}

static int start_cluster(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    if (!has_etcd()) return 0;
    find_ports();
    snprintf(where, sizeof where, "etcd://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/",
             port[0], port[1], port[2]);
    for (int k = 0; k < N_SERVER; k++) start_server(k);
    return 0;
}

static int stop_cluster(void **state)
{
    (void)state;
    for (int k = 0; k < N_SERVER; k++) stop_server(k);
    return weft_io_remove_tree(folder) != WEFT_OK;
}

/* Until the cluster is there. */
static weft_register *open_register(const char *name, const char *job)
{
    weft_register *r;
    char           text[300];
    double         from_s = weft_clock_s();
    snprintf(text, sizeof text, "%s%s", where, name);
    while (weft_register_open(text, &(weft_register_options){.job = job}, &r) !=
           WEFT_OK) {
        if (weft_clock_s() - from_s > 60) fail_msg("%s", weft_error_text());
        usleep(100000);
    }
    return r;
}

static void etcd_conforms(void **state)
{
    (void)state;
    if (!has_etcd()) skip();
    shared_register s = {.first  = open_register("a", "run"),
                         .second = open_register("a", "run")};
    check_register(&s);
    weft_register_close(s.first);
    weft_register_close(s.second);
    weft_register *r = open_register("b", "run"); /* another name is another register */
    assert_int_equal(read_epoch(NULL, r, WEFT_REGISTER_NEWEST).result,
                     WEFT_REGISTER_EMPTY);
    weft_register_close(r);
}

/* Proposes until it is known what stands: a lost leader is waited for. */
static weft_register_outcome propose_until(weft_register *r, uint32_t epoch,
                                           const char *value)
{
    double from_s = weft_clock_s();
    for (;;) {
        weft_register_outcome o = propose(NULL, r, epoch, value);
        if (o.result == WEFT_REGISTER_STANDS) return o;
        assert_non_null(strstr(o.why, "etcd"));
        if (weft_clock_s() - from_s > 60) fail_msg("%s", o.why);
    }
}

/* Which server leads, by what its metrics say. */
static int find_leader(void)
{
    for (int k = 0; k < N_SERVER; k++) {
        char command[300];
        snprintf(command, sizeof command,
                 "no_proxy=127.0.0.1 python3 -c 'import urllib.request as u, sys\n"
                 "page = u.urlopen(\"http://127.0.0.1:%d/metrics\", timeout=9).read()\n"
                 "sys.exit(b\"etcd_server_is_leader 1\" not in page)' 2>/dev/null",
                 port[k]);
        if (server[k] > 0 && system(command) == 0) return k;
    }
    return 0;
}

/* One server of three is killed, the leader where that can be found out, in the middle of
 * proposals: what stood stands, and new values are decided. */
static void etcd_loses_its_leader(void **state)
{
    (void)state;
    if (!has_etcd()) skip();
    weft_register *r = open_register("c", "run"), *other = open_register("c", "run");
    for (uint32_t epoch = 1; epoch <= 5; epoch++)
        expect_standing(propose_until(r, epoch, "one"), epoch, "one");
    int leader = find_leader();
    assert_int_equal(weft_register_propose(other, 6, "two", 3), WEFT_OK);
    stop_server(leader);
    weft_register_outcome o = propose_until(r, 6, "one");
    char                  stood[3];
    assert_int_equal(o.n, 3);
    memcpy(stood, o.bytes, 3);
    (void)await(NULL, other); /* of the call that was under way: known or not */
    o = propose_until(other, 6, "three");
    assert_int_equal(o.n, 3);
    assert_memory_equal(o.bytes, stood, 3);
    for (uint32_t epoch = 1; epoch <= 5; epoch++)
        expect_standing(propose_until(other, epoch, "two"), epoch, "one");
    for (uint32_t epoch = 7; epoch <= 9; epoch++)
        expect_standing(propose_until(other, epoch, "two"), epoch, "two");
    weft_register_close(r);
    weft_register_close(other);
    start_server(leader);
}

/* ---- TLS, user and password: one server ---- */

static bool run_shell(const char *format, ...)
{
    char    command[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

static void start_guarded(const char *cert, const char *key)
{
    char url[64], peer[64], all[80], data[100];
    snprintf(url, sizeof url, "https://127.0.0.1:%d", port[0]);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", port[3]);
    snprintf(all, sizeof all, "g=%s", peer);
    snprintf(data, sizeof data, "%s/guarded", folder);
    server[0] = fork();
    assert_true(server[0] >= 0);
    if (server[0]) return;
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        _exit(1);
    execlp("etcd", "etcd", "--name", "g", "--data-dir", data, "--listen-client-urls", url,
           "--advertise-client-urls", url, "--listen-peer-urls", peer,
           "--initial-advertise-peer-urls", peer, "--initial-cluster", all, "--cert-file",
           cert, "--key-file", key, "--bcrypt-cost", "4", (char *)NULL);
    _exit(1);
}

static void expect_refused(const char *text, weft_register_options o, const char *why);

static void etcd_with_tls_and_user(void **state)
{
    (void)state;
    char cert[100], key[100], word[100], text[200];
    snprintf(cert, sizeof cert, "%s/cert.pem", folder);
    snprintf(key, sizeof key, "%s/key.pem", folder);
    snprintf(word, sizeof word, "%s/password", folder);
    if (!has_etcd() ||
        !run_shell("command -v openssl >/dev/null && command -v etcdctl >/dev/null"))
        skip();
    for (int k = 0; k < N_SERVER; k++) stop_server(k);
    find_ports();
    assert_true(
        run_shell("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
                  "-nodes -days 2 -subj /CN=weft -addext subjectAltName=IP:127.0.0.1 "
                  "-keyout %s -out %s 2>/dev/null && echo secret >%s",
                  key, cert, word));
    start_guarded(cert, key);
    assert_true(run_shell("export ETCDCTL_API=3 ETCDCTL_CACERT=%s "
                          "ETCDCTL_ENDPOINTS=https://127.0.0.1:%d; i=0; "
                          "until etcdctl user add root:secret; do i=$((i+1)); "
                          "[ $i -lt 99 ] || exit 1; sleep 0.2; done >/dev/null 2>&1; "
                          "etcdctl auth enable >/dev/null 2>&1",
                          cert, port[0]));
    weft_register_options o = {.job           = "run",
                               .limit_s       = 20,
                               .ca_file       = cert,
                               .user          = "root",
                               .password_file = word};
    weft_register        *r;
    snprintf(text, sizeof text, "etcds://127.0.0.1:%d/a", port[0]);
    if (weft_register_open(text, &o, &r) != WEFT_OK) fail_msg("%s", weft_error_text());
    expect_standing(propose(NULL, r, 1, "a"), 1, "a");
    expect_standing(propose(NULL, r, 1, "b"), 1, "a");
    weft_register_close(r);
    o.user = NULL;
    expect_refused(text, o, "user name is empty");
    o.user    = "root";
    o.ca_file = NULL;
    expect_refused(text, o, "certificate");
    o.ca_file = cert;
    assert_true(run_shell("echo wrong >%s", word));
    expect_refused(text, o, "authentication failed");
    stop_server(0);
}

static void expect_refused(const char *text, weft_register_options o, const char *why)
{
    weft_register *r = NULL;
    assert_int_equal(weft_register_open(text, &o, &r), WEFT_ERR_ARG);
    assert_null(r);
    assert_null(strchr(weft_error_text(), '\n'));
    if (!strstr(weft_error_text(), why))
        fail_msg("%s\nexpected: %s", weft_error_text(), why);
}

static void bad_places(void **state)
{
    (void)state;
    weft_register_options o = {.job = "run", .limit_s = 20};
    expect_refused("etcd://127.0.0.1:1/x", o, "is it running, and reached from here?");
    expect_refused("etcd://127.0.0.1", o, "expected etcd://host:port,host:port/NAME");
    expect_refused("etcd:///x", o, "names no host");
    expect_refused("etcd://a,,b/x", o, "1 to 8 hosts");
    o.user = "root";
    expect_refused("etcd://127.0.0.1:1/x", o, "WEFT_ETCD_PASSWORD_FILE");
    if (!has_etcd()) return;
    char text[300];
    weft_register_close(open_register("d", "run"));
    snprintf(text, sizeof text, "%sd", where);
    o = (weft_register_options){.job = "other", .limit_s = 20};
    expect_refused(text, o, "holds the views of job 'run', this is job 'other'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(etcd_conforms),
        cmocka_unit_test(etcd_loses_its_leader),
        cmocka_unit_test(bad_places),
        cmocka_unit_test(etcd_with_tls_and_user),
    };
    return cmocka_run_group_tests_name("etcd", tests, start_cluster, stop_cluster);
}
