/* Who holds the job's token and sends what no agent sends is dropped and named, and the job goes
 * on: frames of no kind, of a wrong length, of a number that is not its sender's. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "support/test.h"

#include "../control/pair.h"
#include "launch/hosts_frame.h"

enum {
    LIMIT_S = 60
};

/* `weft run` of a job that does not end, and what it says. */
typedef struct running_job {
    char  at[32], log[300];
    pid_t pid;
} running_job;

static int find_free_port(void)
{
    struct sockaddr_in a    = {.sin_family = AF_INET};
    socklen_t          size = sizeof a;
    int                fd   = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr       = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void start_job(running_job *j, const char *folder)
{
    char output[320];
    snprintf(j->at, sizeof j->at, "127.0.0.1:%d", find_free_port());
    snprintf(j->log, sizeof j->log, "%s/log", folder);
    snprintf(output, sizeof output, "output=%s/run", folder);
    j->pid = fork();
    if (j->pid) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = open(j->log, O_WRONLY | O_CREAT, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execl(WEFT_TEST_COMMAND, "weft", "run", "--nproc-per-node", "1", "--nnodes", "1:2",
          "--rdzv", j->at, "--insecure-network", "model=tiny256", "data=include", "seq=8",
          "batch=2", "steps=1000000", "reduction=fixed", "init=random", "threads=1",
          "plan=off", "recover=on", "eval.every=0", "checkpoint.every=1000000", output,
          (char *)NULL);
    _exit(127);
}

static char *read_log(const running_job *j)
{
    static char text[65536];
    int         fd = open(j->log, O_RDONLY);
    ssize_t     n  = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

/* false: not in time, or the job has ended. */
static bool await_log(const running_job *j, const char *text)
{
    int how;
    for (double end_s = weft_clock_s() + LIMIT_S; weft_clock_s() < end_s; usleep(2000)) {
        if (strstr(read_log(j), text)) return true;
        if (waitpid(j->pid, &how, WNOHANG) == j->pid) return false;
    }
    return false;
}

/* An agent of the job that the caller speaks for.  The job's name is what a refusal says. */
static weft_control *open_agent(const running_job *j, int64_t *peer)
{
    weft_comm_token    token;
    weft_control_event e;
    weft_control_hello self = {.role = WEFT_CONTROL_AGENT, .host = "stranger"};
    assert_ok(weft_comm_token_find(&(weft_comm_token_options){.insecure = true}, &token));
    for (double end_s = weft_clock_s() + LIMIT_S; weft_clock_s() < end_s; usleep(2000)) {
        weft_control *c =
            open_plane(&(weft_control_options){.token = &token, .self = self});
        assert_ok(weft_control_connect(c, j->at, weft_clock_s(), peer));
        while (!await_event(c, NULL, 5, &e)) continue;
        if (e.kind == WEFT_CONTROL_OPENED) return c;
        const char *job = strstr(e.text, "other job: '");
        if (job) snprintf(self.job, sizeof self.job, "%.16s", job + 12);
        weft_control_close(c);
    }
    fail_msg("no connection to the job: %s", read_log(j));
    return NULL;
}

typedef struct garbage {
    const char *name, *says;
    uint32_t    kind;
    bool        introduced; /* after its number */
    uint64_t    from;
    size_t      n; /* bytes of it */
} garbage;

static const garbage table[] = {
    {"no kind", "8 bytes of kind 99 that are no frame", 99, false, 5, 8},
    {"no number", "0 bytes of kind 16 that are no frame", FRAME_WHO, false, 0, 0},
    {"number 0", "8 bytes of kind 16 that are no frame", FRAME_WHO, false, 0, 8},
    {"half a number", "4 bytes of kind 18 that are no frame", FRAME_USE, true, 5, 4},
    {"half a key", "20 bytes of kind 19 that are no frame", FRAME_KEY, true, 5, 20},
    {"no message", "40 bytes of kind 17 that are no frame", FRAME_MESSAGE, true, 5, 40},
    {"another's", "a frame in the name of another agent", FRAME_WHO, true, 9, 8},
};

static void send_garbage(const running_job *j, const garbage *g)
{
    uint8_t            bytes[64] = {0};
    uint64_t           id        = 5;
    int64_t            peer;
    weft_control_event e;
    char               line[160];
    weft_control      *c = open_agent(j, &peer);
    memset(bytes + sizeof id, 0xee, sizeof bytes - sizeof id);
    if (g->introduced) assert_ok(weft_control_send(c, peer, FRAME_WHO, &id, sizeof id));
    memcpy(bytes, &g->from, sizeof g->from);
    assert_ok(weft_control_send(c, peer, g->kind, bytes, g->n));
    do assert_true(await_event(c, NULL, LIMIT_S, &e));
    while (e.kind == WEFT_CONTROL_FRAME);
    if (e.kind != WEFT_CONTROL_CLOSED) fail_msg("%s: it was not dropped", g->name);
    snprintf(line, sizeof line, "dropped: %s", g->says);
    if (!await_log(j, line)) fail_msg("%s: not named in: %s", g->name, read_log(j));
    assert_non_null(strstr(read_log(j), "agent of stranger (127.0.0.1:"));
    weft_control_close(c);
}

/* The build of a hello is what weft --version prints. */
static void check_build(const running_job *j)
{
    char  line[160] = "other build: ";
    FILE *f         = popen(WEFT_TEST_COMMAND " --version", "r");
    assert_non_null(f);
    assert_non_null(fgets(line + 8, sizeof line - 8, f)); /* "weft 0.1.0 .." */
    pclose(f);
    memcpy(line, "other build: ", 13);
    line[strcspn(line, "\n")] = 0;
    if (!strstr(read_log(j), line)) fail_msg("no '%s' in: %s", line, read_log(j));
}

static void garbage_is_dropped(void **state)
{
    (void)state;
    running_job j;
    char        folder[] = "/tmp/weft-garbage-XXXXXX", command[64];
    int         how;
    assert_non_null(mkdtemp(folder));
    start_job(&j, folder);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) send_garbage(&j, &table[k]);
    check_build(&j);
    kill(j.pid, SIGINT);
    assert_int_equal(waitpid(j.pid, &how, 0), j.pid);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 130)
        fail_msg("the job ended with %x: %s", (unsigned)how, read_log(&j));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(garbage_is_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
