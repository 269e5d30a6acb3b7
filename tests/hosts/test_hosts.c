/* weft run and weft cluster calibrate on several hosts, weft token: no token, no run; no stranger
 * in it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

static char dir[64], token[128], other[128];

typedef struct process {
    pid_t pid;
    int   code;
    char  out[128], err[128], text[65536], said[65536]; /* text: of err */
} process;

static void slurp(const char *path, char *to, size_t n)
{
    FILE *f = fopen(path, "r");
    to[0]   = 0;
    if (!f) return;
    to[fread(to, 1, n - 1, f)] = 0;
    fclose(f);
}

/* Starts weft; env: NAME=VALUE ..., NULL, then its words. */
static void start(process *p, const char *const *env, const char *const *word)
{
    static int number;
    *p = (process){0};
    snprintf(p->out, sizeof p->out, "%s/%d.out", dir, ++number);
    snprintf(p->err, sizeof p->err, "%s/%d.err", dir, number);
    fflush(NULL);
    p->pid = fork();
    if (p->pid) return;
    const char *argv[32] = {WEFT_TEST_COMMAND};
    for (int i = 0; word[i]; i++) argv[1 + i] = word[i];
    for (int i = 0; env && env[i]; i++) putenv((char *)(uintptr_t)env[i]);
    dup2(open(p->out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(p->err, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int finish(process *p)
{
    int how;
    waitpid(p->pid, &how, 0);
    slurp(p->err, p->text, sizeof p->text);
    slurp(p->out, p->said, sizeof p->said);
    p->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    return p->code;
}

#define ENV(...)   ((const char *const[]){__VA_ARGS__, NULL})
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void says(const process *p, const char *words)
{
    if (!strstr(p->text, words)) fail_msg("'%s' is not in: %s", words, p->text);
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family      = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          n = sizeof a;
    int                s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, n), 0);
    getsockname(s, (struct sockaddr *)&a, &n);
    close(s);
    return ntohs(a.sin_port);
}

static const char *place(void)
{
    static char at[64];
    snprintf(at, sizeof at, "127.0.0.1:%d", free_port());
    return at;
}

static int set_up(void **state)
{
    (void)state;
    process p;
    strcpy(dir, "/tmp/weft-hosts-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(token, sizeof token, "%s/token", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    unsetenv("WEFT_TOKEN_FILE");
    unsetenv("WEFT_INSECURE_NETWORK");
    setenv("XDG_CONFIG_HOME", dir, 1); /* no token there */
    start(&p, NULL, WORDS("token", token));
    if (finish(&p)) return -1;
    start(&p, NULL, WORDS("token", other));
    return finish(&p);
}

static int tear_down(void **state)
{
    (void)state;
    char rm[128];
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    return system(rm);
}

static void the_token_command_makes_one_file(void **state)
{
    (void)state;
    process     p;
    struct stat s;
    char        path[160], text[256];
    snprintf(path, sizeof path, "%s/weft/token", dir);
    start(&p, NULL, WORDS("token"));
    assert_int_equal(finish(&p), 0);
    says(&p, "copy the file to the same place on all hosts");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
    snprintf(text, sizeof text, "%s\n", path);
    assert_string_equal(p.said, text);
    slurp(path, text, sizeof text);
    text[64] = 0;
    assert_null(strstr(p.text, text)); /* the token itself is printed nowhere */
    start(&p, NULL, WORDS("token"));
    assert_int_equal(finish(&p), 2);
    says(&p, "never overwritten");
    start(&p, NULL, WORDS("token", "a", "b"));
    assert_int_equal(finish(&p), 2);
    unlink(path);
}

static void without_a_token_nothing_starts(void **state)
{
    (void)state;
    process p;
    /* on this tree's commit before, each of these waited for the other host at an open port */
    start(&p, NULL,
          WORDS("run", "--nnodes", "2", "--node-rank", "0", "--rdzv", place(),
                "--nproc-per-node", "1", "--timeout", "2", "--check"));
    assert_int_equal(finish(&p), 2);
    says(&p, "weft run: error: connections between hosts need a token");
    says(&p, "'weft token'");
    says(&p, "--insecure-network");
    assert_ptr_equal(strchr(p.text, '\n'), p.text + strlen(p.text) - 1); /* one line */
    start(&p, NULL,
          WORDS("cluster", "calibrate", "--nnodes", "2", "--node-rank", "0", "--rdzv",
                place()));
    assert_int_equal(finish(&p), 2);
    says(&p, "need a token");
    start(&p,
          ENV("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
              "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"),
          WORDS("run", "--check", "--timeout", "2"));
    assert_int_equal(finish(&p), 2);
    says(&p, "need a token");
    /* one host needs none */
    start(&p, NULL, WORDS("run", "--nproc-per-node", "2", "--check"));
    assert_int_equal(finish(&p), 0);
    assert_string_equal(p.text, "");
}

static void a_file_for_others_to_read_is_refused(void **state)
{
    (void)state;
    process p;
    char    file[160], option[200];
    snprintf(file, sizeof file, "%s/open", dir);
    snprintf(option, sizeof option, "WEFT_TOKEN_FILE=%s", file);
    start(&p, NULL, WORDS("token", file));
    assert_int_equal(finish(&p), 0);
    assert_int_equal(chmod(file, 0640), 0);
    start(&p, ENV(option),
          WORDS("run", "--nnodes", "2", "--node-rank", "0", "--rdzv", place(),
                "--nproc-per-node", "1", "--check"));
    assert_int_equal(finish(&p), 2);
    says(&p, "chmod 600");
    start(&p, NULL,
          WORDS("run", "--nnodes", "2", "--node-rank", "0", "--rdzv", place(),
                "--nproc-per-node", "1", "--check", "--token-file", token,
                "--insecure-network"));
    assert_int_equal(finish(&p), 2);
    says(&p, "contradict");
}

/* A launcher on each of two hosts. */
static void run_pair(process *a, process *b, const char *a_file, const char *b_file,
                     const char *timeout)
{
    const char *at  = place();
    process    *p[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const char *file   = i ? b_file : a_file;
        const char *word[] = {"run",
                              "--nnodes",
                              "2",
                              "--node-rank",
                              i ? "1" : "0",
                              "--rdzv",
                              at,
                              "--nproc-per-node",
                              "2",
                              "--check",
                              "--json",
                              "--timeout",
                              timeout,
                              file ? "--token-file" : "--insecure-network",
                              file,
                              NULL};
        start(p[i], NULL, word);
    }
    finish(a);
    finish(b);
}

static void one_token_two_tokens_none(void **state)
{
    (void)state;
    static process a, b;
    run_pair(&a, &b, token, token, "30");
    assert_int_equal(a.code, 0);
    assert_int_equal(b.code, 0);
    assert_string_equal(a.text, "");
    assert_non_null(strstr(a.said, "{\"ranks\": 4, \"transport\": \"shm+tcp\""));
    run_pair(&a, &b, token, other, "5");
    assert_int_equal(a.code, 1);
    assert_int_equal(b.code, 2);
    says(&b, "it has another token; rank 0 and all others need the same token file");
    says(&a, "turned away");
    run_pair(&a, &b, NULL, other, "5");
    assert_int_equal(b.code, 2);
    says(&b, "it was started with --insecure-network");
    says(&a, "WARN --insecure-network: everybody who can reach the ports of this run");
    run_pair(&a, &b, NULL, NULL, "30");
    assert_int_equal(a.code, 0);
    assert_int_equal(b.code, 0);
}

/* -q hides log lines, not warnings. */
static void quiet_runs_warn(void **state)
{
    (void)state;
    static process p[2];
    const char    *at = place();
    for (int i = 0; i < 2; i++)
        start(&p[i], ENV("WEFT_INSECURE_NETWORK=1"),
              WORDS("run", "--nnodes", "2", "--node-rank", i ? "1" : "0", "--rdzv", at,
                    "--nproc-per-node", "1", "--check", "-q", "--timeout", "30"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(finish(&p[i]), 0);
        says(&p[i], "WARN --insecure-network: everybody");
    }
}

static pid_t only_child(pid_t p)
{
    char path[64];
    int  child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)p, (int)p);
    for (int i = 0; i < 500 && !child; i++, usleep(20000)) {
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%d", &child) != 1) child = 0;
        if (f) fclose(f);
    }
    return child;
}

/* The other host sees that the rank does not answer; its own launcher must see it, too. */
static void all_ranks_of_a_host_are_stopped(void **state)
{
    (void)state;
    static process p[2];
    const char    *at = place();
    for (int i = 0; i < 2; i++)
        start(&p[i], NULL,
              WORDS("run", "--nnodes", "2", "--node-rank", i ? "1" : "0", "--rdzv", at,
                    "--nproc-per-node", "1", "--check", "--seconds", "60", "--timeout",
                    "2", "--token-file", token));
    pid_t rank = only_child(p[1].pid);
    usleep(1500000); /* they have met */
    double t0 = weft_clock_s();
    assert_true(rank > 0 && !kill(rank, SIGSTOP));
    assert_int_equal(finish(&p[0]), 1);
    assert_int_equal(finish(&p[1]), 1);
    assert_true(weft_clock_s() - t0 < 40);
    says(&p[1], "[rank 1] error: it was stopped (SIGSTOP), and was killed");
}

/* ---- at the port of a run that waits ---- */

static bool answers(const char *host, int port, int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int                s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_aton(host, &a.sin_addr);
    bool ok = !connect(s, (struct sockaddr *)&a, sizeof a);
    if (ok && fd)
        *fd = s;
    else
        close(s);
    return ok;
}

/* Is the text in the command line or the variables of p or its children? */
static bool shows(pid_t p, const char *text)
{
    static const char *const file[] = {"cmdline", "environ"};
    char                     path[64], bytes[65536];
    bool                     found = false;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)p, file[i]);
        FILE  *f = fopen(path, "r");
        size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        if (f) fclose(f);
        found = found || memmem(bytes, n, text, strlen(text));
    }
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)p, (int)p);
    FILE *f = fopen(path, "r");
    int   child;
    while (f && fscanf(f, "%d", &child) == 1) found = shows(child, text) || found;
    if (f) fclose(f);
    return found;
}

/* The hello of before, with which anybody became rank 1 (S1), or ended the job by another world
 * (S5). */
static void send_old_hello(int s, int world)
{
    struct {
        uint64_t magic;
        int32_t  rank, world;
        int64_t  bytes;
        uint32_t sum, crc;
    } h = {UINT64_C(0x317a647274666577), 1, world, 0, 0, 0};
    for (int i = 0; i < 3; i++) send(s, &h, sizeof h, MSG_NOSIGNAL);
}

static void strangers_at_a_run_that_waits(void **state)
{
    (void)state;
    static process a, b;
    char           at[64], secret[128], file[200];
    int            port = free_port(), s[40], n = 0;
    snprintf(at, sizeof at, "127.0.0.1:%d", port);
    snprintf(file, sizeof file, "WEFT_TOKEN_FILE=%s", token);
    start(&a, ENV(file),
          WORDS("run", "--nnodes", "2", "--node-rank", "0", "--rdzv", at,
                "--nproc-per-node", "1", "--check", "--json", "--timeout", "40"));
    double t0 = weft_clock_s();
    while (!answers("127.0.0.1", port, &s[0]) && weft_clock_s() - t0 < 30) usleep(20000);
    n = 1;
    assert_false(answers("127.0.0.2", port, NULL)); /* S7 */
    while (n < 40 && answers("127.0.0.1", port, &s[n]))
        n++; /* S6: all but a few are silent */
    assert_int_equal(n, 40);
    send_old_hello(s[1], 2);
    send_old_hello(s[2], 3);
    send(s[3], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    usleep(300000);
    assert_int_equal(waitpid(a.pid, NULL, WNOHANG), 0); /* it still waits */
    slurp(token, secret, sizeof secret);
    secret[64] = 0;
    assert_false(shows(a.pid, secret));
    start(&b, ENV(file),
          WORDS("run", "--nnodes", "2", "--node-rank", "1", "--rdzv", at,
                "--nproc-per-node", "1", "--check", "--json", "--timeout", "40"));
    assert_int_equal(finish(&b), 0);
    assert_int_equal(finish(&a), 0);
    assert_non_null(strstr(a.said, "\"ranks\": 2, \"transport\": \"tcp\""));
    assert_null(strstr(a.text, secret));
    for (int i = 0; i < n; i++) close(s[i]);
}

static void an_address_of_another_host_is_refused(void **state)
{
    (void)state;
    process p;
    start(&p, NULL,
          WORDS("run", "--nnodes", "2", "--node-rank", "0", "--rdzv", "192.0.2.1:29400",
                "--nproc-per-node", "1", "--check", "--timeout", "20", "--token-file",
                token));
    assert_int_equal(finish(&p), 2);
    says(&p, "this host does not have the address 192.0.2.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_command_makes_one_file),
        cmocka_unit_test(without_a_token_nothing_starts),
        cmocka_unit_test(a_file_for_others_to_read_is_refused),
        cmocka_unit_test(one_token_two_tokens_none),
        cmocka_unit_test(quiet_runs_warn),
        cmocka_unit_test(all_ranks_of_a_host_are_stopped),
        cmocka_unit_test(strangers_at_a_run_that_waits),
        cmocka_unit_test(an_address_of_another_host_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
