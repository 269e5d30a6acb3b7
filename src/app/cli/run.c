/* weft run: a job on several ranks */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "comm/rdzv.h"
#include "job/job.h"
#include "launch/join.h"
#include "launch/launch.h"
#include "session/say.h"
#include "weft/session.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_run = {
    .name  = "run",
    .usage = "--nproc-per-node N [JOB [KEY=VALUE ...]] [options]",
    .about = "start ranks on this host, or on several, and run a job on them",
    .more =
        "Each rank is a process with its share of the cores.  What a rank says comes "
        "out\n"
        "behind '[rank 3] ', errors last with the first cause on top.  Started without\n"
        "--nproc-per-node by torchrun, srun or mpirun, it is one of their ranks.\n"
        "On several hosts the same command is given on each, with its own --node-rank; "
        "the\n"
        "ranks meet at --rdzv, a free port of node 0, and talk over TCP, within a "
        "host over shared memory.  Several hosts need a token (weft token), the same on "
        "each: --token-file,\n"
        "else WEFT_TOKEN_FILE, else the file that weft token made.\n"
        "A rank for which others wait longer than --timeout ends the job.  Saving may "
        "take longer:\n"
        "only a single write or sync may not, beyond --io-timeout.  SIGINT and SIGTERM "
        "go "
        "to all\n"
        "ranks, which finish the step and save; when none of them makes progress for "
        "--timeout\n"
        "and 5 s, those that are left are killed and named.\n"
        "A second signal kills at once.\n"
        "--check runs collectives between the ranks instead of a job.",
    .example = "weft run --nproc-per-node 2 job.yaml micro_batch=4",
    .run     = run,
};

#define LEAST_TIMEOUT_S 0.1

typedef struct settings {
    bool                    check, json, fresh, quiet, print_plan;
    int64_t                 n_rank, n_node, node, port;
    double                  seconds, timeout_s, io_timeout_s;
    const char             *log_dir, *trace, *rdzv, *addr, *cluster, *allow;
    const char             *command; /* as it was given */
    weft_comm_token_options token;
} settings;

/* ---- --check: every collective, against what it must give ---- */

enum {
    N_CHECK = 100003
};

static weft_status check_once(weft_comm *c, weft_comm_group *g, float *in, float *out)
{
    int n = c->world;
    for (int k = 0; k < N_CHECK; k++) in[k] = (float)(c->rank + k % 1000);
    WEFT_TRY(
        weft_comm_collective(c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, in, out, N_CHECK));
    for (int k = 0; k < N_CHECK; k++)
        if (out[k] != (float)(n * (n - 1) / 2 + n * (k % 1000)))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "rank %d: all_reduce is wrong at %d",
                             c->rank, k);
    int part = N_CHECK / n;
    WEFT_TRY(
        weft_comm_collective(c, g, WEFT_ALL_TO_ALL, WEFT_DTYPE_F32, in, out, part * n));
    for (int k = 0; k < part * n; k++)
        if (out[k] != (float)(k / part + (c->rank * part + k % part) % 1000))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "rank %d: all_to_all is wrong at %d",
                             c->rank, k);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F32, in, out, part));
    for (int k = 0; k < part * n; k++)
        if (out[k] != (float)(k / part + k % part % 1000))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "rank %d: all_gather is wrong at %d",
                             c->rank, k);
    return WEFT_OK;
}

static weft_status check_all(weft_comm *c, const settings *s, int64_t *rounds)
{
    weft_comm_group *g;
    weft_status      st   = WEFT_OK;
    int32_t         *rank = malloc(sizeof *rank * (size_t)c->world);
    float *in = malloc(sizeof *in * N_CHECK), *out = malloc(sizeof *out * N_CHECK);
    double end = weft_clock_s() + s->seconds;
    float  go  = 1;
    if (!rank || !in || !out) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    for (int i = 0; i < c->world; i++) rank[i] = i;
    WEFT_GO(weft_comm_open_group(c, c->world, rank, 0, &g));
    for (*rounds = 0; go > 0; ++*rounds) {
        WEFT_GO(check_once(c, g, in, out));
        go = weft_clock_s() < end; /* rank 0's clock counts */
        WEFT_GO(weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_F32, &go, &go, 1));
    }
out:
    free(rank);
    free(in);
    free(out);
    return st;
}

/* ---- what a rank does ---- */

static int check_rank(weft_comm *c, const settings *s)
{
    weft_text   t = {0};
    int64_t     rounds;
    weft_status st = check_all(c, s, &rounds);
    if (st == WEFT_ERR_PEER) {
        weft_cli_fail(&weft_cli_run, st);
        return WEFT_LAUNCH_PEER;
    }
    if (st != WEFT_OK) {
        weft_comm_abort(c, weft_error_text());
        return weft_cli_fail(&weft_cli_run, st);
    }
    if (c->rank) return WEFT_EXIT_OK;
    weft_text_add(&t,
                  s->json ? "{\"ranks\": %d, \"transport\": \"%s\", \"rounds\": %lld, "
                            "\"ok\": true}"
                          : "%d ranks over %s: %lld rounds of collectives, all right",
                  c->world, c->transport, (long long)rounds);
    return weft_cli_put(&weft_cli_run, &t, NULL);
}

/* One rank of a job: weft train with the ranks beside it. */
static int train_rank(weft_comm *comm, int local, const settings *s, int n_word,
                      char **word)
{
    char *argv[300];
    int   n = 0;
    if (n_word > 256) return weft_cli_usage(&weft_cli_run, "more than 256 words");
    while (n < n_word) argv[n] = word[n], n++;
    if (s->json) argv[n++] = "--json";
    if (s->fresh) argv[n++] = "--fresh";
    if (s->quiet) argv[n++] = "--quiet";
    if (s->allow) argv[n++] = "--allow", argv[n++] = (char *)(uintptr_t)s->allow;
    if (s->trace) argv[n++] = "--trace", argv[n++] = (char *)(uintptr_t)s->trace;
    if (s->cluster) argv[n++] = "--cluster", argv[n++] = (char *)(uintptr_t)s->cluster;
    weft_session_options o = {.comm         = comm->world > 1 ? comm : NULL,
                              .local_ranks  = local,
                              .io_timeout_s = s->io_timeout_s,
                              .command      = s->command};
    return weft_cli_train_rank(&weft_cli_run, &o, n, argv);
}

void weft_cli_log(bool warning, const char *text)
{
    if (warning)
        weft_say_warn(&(weft_say){0}, "%s", text);
    else
        weft_say_info(&(weft_say){0}, "%s", text);
}

void weft_cli_log_warning(bool warning, const char *text)
{
    if (warning) weft_cli_log(true, text);
}

static int be_rank(const weft_launch_environment *p, const settings *s, int argc,
                   char **argv)
{
    weft_comm               *c;
    weft_launch_join_options o  = {.timeout_s = s->timeout_s,
                                   .token     = s->token,
                                   .log = s->quiet ? weft_cli_log_warning : weft_cli_log};
    weft_status              st = weft_launch_join(p, &o, &c);
    if (st != WEFT_OK) {
        int code = weft_cli_fail(&weft_cli_run, st);
        return st == WEFT_ERR_PEER ? WEFT_LAUNCH_PEER : code;
    }
    int code = s->check ? check_rank(c, s) : train_rank(c, p->local_world, s, argc, argv);
    if (code == WEFT_EXIT_USAGE && p->local_world == p->world)
        weft_comm_abort(c, *weft_error_text() ? weft_error_text()
                                              : "its command is wrong"); /* others wait */
    weft_comm_destroy(c);
    return code;
}

/* The plan for so many ranks, without them. */
static int print_plan(const settings *s, int n_word, char **word)
{
    char *argv[300];
    int   n = 0;
    if (n_word > 256) return weft_cli_usage(&weft_cli_run, "more than 256 words");
    while (n < n_word) argv[n] = word[n], n++;
    argv[n++] = "--print-plan";
    if (s->fresh) argv[n++] = "--fresh";
    if (s->quiet) argv[n++] = "--quiet";
    if (s->allow) argv[n++] = "--allow", argv[n++] = (char *)(uintptr_t)s->allow;
    weft_comm one = {.world = s->n_rank > 0 ? (int)(s->n_rank * s->n_node) : 0};
    if (s->cluster) argv[n++] = "--cluster", argv[n++] = (char *)(uintptr_t)s->cluster;
    weft_session_options o = {
        .comm = &one, .local_ranks = (int)s->n_rank, .command = s->command};
    return weft_cli_train_rank(&weft_cli_run, &o, n, argv);
}

static int start(const settings *s, int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_run;
    if (s->n_rank < 1 || s->n_rank > 1024)
        return weft_cli_usage(c, "--nproc-per-node: from 1 to 1024");
    if (s->n_node < 1 || s->n_node * s->n_rank > 1 << 20)
        return weft_cli_usage(c, "--nnodes: at least 1, and at most a million ranks");
    if (s->node >= s->n_node)
        return weft_cli_usage(c, "--node-rank: from 0 to --nnodes less 1");
    char at[280] = "";
    if (s->rdzv)
        snprintf(at, sizeof at, "%s", s->rdzv);
    else if (s->addr)
        snprintf(at, sizeof at, "%s:%lld", s->addr, (long long)s->port);
    if (s->n_node > 1 && !*at)
        return weft_cli_usage(c, "--nnodes: --rdzv host:port says where the hosts meet");
    if (s->n_node > 1 && s->node < 0)
        return weft_cli_usage(c, "--nnodes: --node-rank says which of them this is");
    if (*at && weft_comm_rdzv_check(at) != WEFT_OK) return weft_cli_fail(c, WEFT_ERR_ARG);
    if (s->n_node > 1) { /* one line now rather than one of each rank */
        weft_comm_token token;
        weft_status     found = weft_comm_token_find(&s->token, &token);
        weft_comm_token_wipe(&token);
        if (found != WEFT_OK) return weft_cli_fail(c, found);
    }
    char **again = calloc((size_t)argc + 3, sizeof *again);
    if (!again) return weft_cli_fail(c, WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    again[0] = "weft";
    again[1] = "run";
    for (int i = 0; i < argc; i++) again[2 + i] = argv[i];
    int         code;
    weft_status st =
        weft_launch((int)s->n_rank, again,
                    &(weft_launch_options){.log_dir   = s->log_dir,
                                           .timeout_s = s->timeout_s,
                                           .n_node    = (int)s->n_node,
                                           .node      = s->node < 0 ? 0 : (int)s->node,
                                           .rdzv      = *at ? at : NULL,
                                           .token     = s->token},
                    &code);
    free(again);
    return st == WEFT_OK ? code : weft_cli_fail(c, st);
}

int weft_cli_run_ranks(int n, int argc, char **argv)
{
    return start(&(settings){.n_rank = n, .n_node = 1}, argc, argv);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c        = &weft_cli_run;
    settings                s        = {.n_rank       = -1,
                                        .n_node       = 1,
                                        .node         = -1,
                                        .port         = 29400,
                                        .timeout_s    = 60,
                                        .io_timeout_s = 600};
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"nproc-per-node", 0, WEFT_CLI_INT, &s.n_rank, "N", "ranks to start here"},
          {"nnodes", 0, WEFT_CLI_INT, &s.n_node, "N", "hosts (1)"},
          {"node-rank", 0, WEFT_CLI_INT, &s.node, "R", "which of them this is, from 0"},
          {"rdzv", 0, WEFT_CLI_TEXT, &s.rdzv, "HOST:PORT", "where they meet: node 0"},
          {"rdzv-endpoint", 0, WEFT_CLI_TEXT, &s.rdzv, "HOST:PORT", "the same"},
          {"master-addr", 0, WEFT_CLI_TEXT, &s.addr, "HOST", "the same, in two words"},
          {"master-port", 0, WEFT_CLI_INT, &s.port, "PORT", "(29400)"},
          {"token-file", 0, WEFT_CLI_TEXT, &s.token.file, "FILE",
           "the token of runs on several hosts"},
          {"insecure-network", 0, WEFT_CLI_FLAG, &s.token.insecure, NULL,
           "several hosts without a token: everybody on the network can join"},
          {"check", 0, WEFT_CLI_FLAG, &s.check, NULL, "collectives instead of a job"},
          {"seconds", 0, WEFT_CLI_REAL, &s.seconds, "S", "how long to check (once)"},
          {"timeout", 0, WEFT_CLI_REAL, &s.timeout_s, "S",
           "how long to wait for a rank that does not answer (60)"},
          {"io-timeout", 0, WEFT_CLI_REAL, &s.io_timeout_s, "S",
           "how long one write or sync of a checkpoint may take (600)"},
          {"log-dir", 0, WEFT_CLI_TEXT, &s.log_dir, "DIR", "rank<r>.log for each rank"},
          {"trace", 0, WEFT_CLI_TEXT, &s.trace, "FILE",
           "timeline of the last step, for Perfetto"},
          {"cluster", 0, WEFT_CLI_TEXT, &s.cluster, "CLUSTER",
           "machines to plan for, as the key cluster"},
          {"print-plan", 0, WEFT_CLI_FLAG, &s.print_plan, NULL,
           "start nothing: print the plan that this command runs, as JSON for plan="},
          {"allow", 0, WEFT_CLI_TEXT, &s.allow, "KEYS",
           "let a resume change lanes, micro_batch; bits differ from there on"},
          {"fresh", 0, WEFT_CLI_FLAG, &s.fresh, NULL,
           "start anew beside the checkpoints there are"},
          {"quiet", 'q', WEFT_CLI_FLAG, &s.quiet, NULL,
           "no progress, no log lines but warnings"},
          {"json", 0, WEFT_CLI_FLAG, &s.json, NULL, "the result as one line of JSON"},
    };
    weft_text command = {0};
    char    **words   = malloc(sizeof *words * (size_t)(argc + 1));
    if (!words) return weft_cli_fail(c, WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    memcpy(words, argv, sizeof *words * (size_t)argc);
    weft_cli_put_command("run", argc, argv, &command);
    s.command = command.s;
    int code  = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, words, &n_word);
    weft_launch_environment p;
    unsigned                allow;
    if (code < 0 && s.timeout_s < LEAST_TIMEOUT_S)
        code =
            weft_cli_usage(c, "--timeout: from %.1f to 1000000 seconds", LEAST_TIMEOUT_S);
    if (code < 0 && s.io_timeout_s < LEAST_TIMEOUT_S)
        code = weft_cli_usage(c, "--io-timeout: from %.1f to 1000000 seconds",
                              LEAST_TIMEOUT_S);
    if (code < 0 && weft_job_parse_allow(s.allow, &allow) != WEFT_OK)
        code = weft_cli_fail(c, WEFT_ERR_ARG);
    if (code < 0 && s.print_plan) code = print_plan(&s, n_word, words);
    if (code < 0 && !s.check && !n_word) code = weft_cli_usage(c, "expected a job file");
    if (code < 0) {
        bool        ours = getenv("WEFT_RANK") != NULL; /* a rank sees the flag, too */
        weft_status st   = weft_launch_detect(&p);
        if (s.n_rank < 0 && st == WEFT_OK && !strcmp(p.by, "alone") && !s.quiet)
            fprintf(stderr, "weft run: one rank; --nproc-per-node N starts more\n");
        if (s.n_rank >= 0 && !ours)
            code = start(&s, argc, argv);
        else
            code = st == WEFT_OK ? be_rank(&p, &s, n_word, words) : weft_cli_fail(c, st);
    }
    free(words);
    weft_text_fini(&command);
    return code;
}
