/* weft run: a job on several ranks */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/remote.h"
#include "cli/build.h"
#include "cli/rdzv.h"
#include "cli/request.h"
#include "comm/rdzv.h"
#include "launch/join.h"
#include "launch/launch.h"
#include "launch/living.h"
#include "launch/spare.h"
#include "launch/supervise.h"
#include "session/device.h"
#include "session/replay.h"
#include "session/session.h"
#include "session/say.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_run = {
    .name  = "run",
    .usage = "--nproc-per-node N [JOB [KEY=VALUE ...] | [SIZES] -- PROGRAM ...] "
             "[options]",
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
        "only a single write or sync may not, beyond --io-timeout.  With recover: on a "
        "rank\n"
        "that is stopped, silent or hangs is replaced after --failure-timeout.  SIGINT, "
        "SIGTERM and "
        "SIGUSR1\n"
        "go to all ranks, which finish the step and save (exit code 130 or 143); when "
        "none of them\n"
        "makes progress for --timeout and 5 s, or --grace is over, those that are left "
        "are killed\n"
        "and named.  A second signal kills at once, but for SIGUSR1 and SIGTERMs within "
        "2 s, as\n"
        "batch systems send them: sbatch --signal=USR1@120 saves before the time limit.\n"
        "--check runs collectives between the ranks instead of a job.\n"
        "Behind -- stands any program that torchrun can start: it gets the same "
        "variables\n"
        "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...).  A rank that "
        "fails ends\n"
        "the others, and all start again, at most --max-restarts times, to go on from "
        "their own\n"
        "checkpoint; exit code 1 where they still fail.  With --nnodes N or MIN:MAX the "
        "agents of\n"
        "all hosts do so together, also when a host is lost, joins or leaves.  Sizes "
        "before --\n"
        "(dp=MIN:MAX tp=2 pp=2) say which ranks run: dp follows their number, and all "
        "sizes are\n"
        "variables of the program (WEFT_DP, WEFT_TP, ...).",
    .example = "weft run --nproc-per-node 2 job.yaml micro_batch=4",
    .run     = run,
};

#define LEAST_TIMEOUT_S 0.1

typedef struct run_options {
    weft_launch_request       request;
    weft_cli_span             ranks; /* of this host */
    weft_cli_span             nodes; /* hosts */
    int64_t                   n_rank, n_node, node, port;
    bool                      print_plan, encrypt;
    double                    grace_s; /* after a signal; 0: no limit */
    double                    failure_timeout_s;
    const char               *on_stop; /* "replace", "wait"; NULL: after the timeout */
    const char               *metrics, *metrics_file, *on_incident;
    const char               *control, *reader_file;
    weft_control_certificates tls;
    const char               *log; /* "json"; NULL: text */
    const char               *log_dir, *rdzv, *local_addr, *addr, *cluster;
    weft_comm_token_options   token;
    char *const              *argv;    /* as it was given, up to NULL */
    char *const              *program; /* what follows --, up to NULL; NULL: nothing */
    int64_t                   max_restarts;   /* of the program */
    double                    hang_timeout_s; /* the same; 0: off */
    weft_launch_sizes         sizes;
    bool                      has_sizes;
} run_options;

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

static void log_first_round(const weft_comm *c, const weft_launch_request *q)
{
    if (q->check_s > 0 && !q->quiet && !c->rank)
        weft_say_info(&(weft_say){0},
                      "%d ranks over %s: first round of collectives right, %g s to go",
                      c->world, c->transport, q->check_s);
}

static weft_status check_all(weft_comm *c, const weft_launch_request *q, int64_t *rounds)
{
    weft_comm_group *g;
    weft_status      st   = WEFT_OK;
    int32_t         *rank = malloc(sizeof *rank * (size_t)c->world);
    float *in = malloc(sizeof *in * N_CHECK), *out = malloc(sizeof *out * N_CHECK);
    double end = weft_clock_s() + q->check_s;
    float  go  = 1;
    if (!rank || !in || !out) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    for (int i = 0; i < c->world; i++) rank[i] = i;
    WEFT_GO(weft_comm_open_group(c, c->world, rank, 0, &g));
    for (*rounds = 0; go > 0; ++*rounds) {
        WEFT_GO(check_once(c, g, in, out));
        if (!*rounds) log_first_round(c, q);
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

static int check_rank(weft_comm *c, const weft_launch_request *q)
{
    weft_text   t = {0};
    int64_t     rounds;
    weft_status st = check_all(c, q, &rounds);
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
                  q->json ? "{\"ranks\": %d, \"transport\": \"%s\", \"rounds\": %lld, "
                            "\"ok\": true}"
                          : "%d ranks over %s: %lld rounds of collectives, all right",
                  c->world, c->transport, (long long)rounds);
    return weft_cli_put(&weft_cli_run, &t, NULL);
}

static void log_warning(bool warning, const char *text)
{
    if (warning) weft_cli_log(true, text);
}

/* A rank that ends before it takes part: the others wait for it, so it comes and leaves, and those
 * of one host are told why. */
static void refuse_peers(const weft_launch_environment  *e,
                         const weft_launch_join_options *o)
{
    weft_comm *c;
    char      *error = strdup(weft_error_text());
    if (error && e->world > 1 && weft_launch_join(e, o, &c) == WEFT_OK) {
        if (e->local_world == e->world) weft_comm_abort(c, error);
        weft_comm_destroy(c);
    }
    free(error);
}

/* One rank of a job: what weft train does, with others. */
static int train_rank(const weft_launch_environment  *e,
                      const weft_launch_join_options *join, const weft_launch_request *q)
{
    const weft_cli_command *c      = &weft_cli_run;
    weft_launch_member     *member = NULL;
    weft_job               *job    = NULL;
    weft_status             st     = weft_launch_member_create(e, join, &member);
    if (st == WEFT_OK) st = weft_cli_load_job(q, &job);
    int code = st == WEFT_OK
                   ? weft_cli_train_job(c, q, job, weft_launch_member_source(member))
                   : weft_cli_fail(c, st);
    if (member && code && code != WEFT_LAUNCH_PEER && code < 128) /* no signal's */
        weft_launch_member_fail(member);
    if (!job && e->line_fd < 0) refuse_peers(e, join);
    weft_launch_member_destroy(member);
    weft_job_destroy(job);
    return code;
}

static int check_ranks(const weft_launch_environment  *e,
                       const weft_launch_join_options *join, const weft_launch_request *q)
{
    weft_comm  *c;
    weft_status st = weft_launch_join(e, join, &c);
    if (st != WEFT_OK) {
        int code = weft_cli_fail(&weft_cli_run, st);
        return st == WEFT_ERR_PEER ? WEFT_LAUNCH_PEER : code;
    }
    int code = check_rank(c, q);
    weft_comm_destroy(c);
    return code;
}

static int be_rank(const weft_launch_environment *e, const weft_launch_request *q,
                   const weft_comm_token_options *token)
{
    weft_launch_join_options join = {.timeout_s = q->timeout_s,
                                     .token     = *token,
                                     .log       = q->quiet ? log_warning : weft_cli_log};
    return q->check ? check_ranks(e, &join, q) : train_rank(e, &join, q);
}

/* What takes long and needs no rank; an error is the rank's to report, when it is one. */
static void warm_up(const weft_launch_request *q)
{
    weft_job *job = NULL;
    if (weft_cli_load_job(q, &job) == WEFT_OK)
        weft_session_warm_device(
            &(weft_session_device){.list        = job->device,
                                   .share_gpu   = job->share_gpu,
                                   .local_world = weft_launch_spare_world()});
    weft_job_destroy(job);
}

/* A rank that our launcher started: the request says what to do, variables which rank it is and
 * where its token is. */
static int carry_out(const weft_launch_request *q)
{
    weft_launch_environment e;
    if (weft_launch_is_spare()) {
        warm_up(q);
        if (!weft_launch_await_slot()) return 0;
    }
    weft_status st = weft_launch_detect(&e);
    if (st != WEFT_OK) return weft_cli_fail(&weft_cli_run, st);
    return be_rank(&e, q, &(weft_comm_token_options){0});
}

/* ---- what the command does ---- */

/* The plan for so many ranks, without them. */
static int print_plan(const run_options *o)
{
    weft_job   *job = NULL;
    weft_status st  = weft_cli_load_job(&o->request, &job);
    if (st != WEFT_OK) return weft_cli_fail(&weft_cli_run, st);
    int world = o->n_rank > 0 ? (int)(o->n_rank * o->n_node) : 0;
    int code =
        weft_cli_print_plan(&weft_cli_run, &o->request, job, world, (int)o->n_rank);
    weft_job_destroy(job);
    return code;
}

/* Where hosts meet; "": not given. */
static int find_rdzv(run_options *o, char at[WEFT_CLI_RDZV_MOST])
{
    const weft_cli_hosts h = {.rdzv       = o->rdzv,
                              .addr       = o->addr,
                              .port       = o->port,
                              .n_node     = o->n_node,
                              .is_span    = !o->nodes.is_one,
                              .is_program = o->program != NULL,
                              .is_check   = o->request.check};
    return weft_cli_find_rdzv(&weft_cli_run, &h, &o->node, at);
}

/* What the job says of its launch. */
typedef struct job_policy {
    weft_launch_policy on_rank_exit;
    char               output[1024], levels[64];
    bool               invariant;
    int                copies;
    bool *spares; /* by slots; a process without a GPU starts in milliseconds */
} job_policy;

static weft_status find_spares(const weft_job *j, int n, weft_arena *a, bool **out)
{
    weft_job_device d;
    *out = WEFT_ARENA_ARRAY(a, bool, n);
    WEFT_TRY(weft_arena_status(a));
    for (int r = 0; r < n; r++)
        (*out)[r] = weft_job_parse_device("", j->device, r, n, &d) == WEFT_OK &&
                    strcmp(d.name, "cpu") != 0;
    return WEFT_OK;
}

/* Options of a job that recovers, for one that does not. */
static void warn_of_ignored(const run_options *o)
{
    const char *name = o->on_stop       ? "--on-stop"
                       : o->on_incident ? "--on-incident"
                       : o->failure_timeout_s != WEFT_LAUNCH_FAILURE_TIMEOUT_S
                           ? "--failure-timeout"
                           : NULL;
    char        text[128];
    if (!name) return;
    snprintf(text, sizeof text, "%s is of no use here: the job has recover=off", name);
    weft_cli_log(true, text);
}

/* What a lost rank means, and the job's folder.  A job that cannot be read is the ranks' to
 * report. */
static weft_status find_policy(const run_options *o, weft_arena *a, job_policy *out)
{
    weft_job *job = NULL;
    *out = (job_policy){.on_rank_exit = WEFT_LAUNCH_END_ALL, .levels = "on", .copies = 1};
    if (o->request.check || weft_cli_load_job(&o->request, &job) != WEFT_OK)
        return WEFT_OK;
    snprintf(out->output, sizeof out->output, "%s", job->output ? job->output : "");
    snprintf(out->levels, sizeof out->levels, "%s", job->recover);
    out->invariant = weft_job_is_invariant(job);
    out->copies    = job->strategy.copies;
    if (strcmp(job->recover, "off") != 0) out->on_rank_exit = WEFT_LAUNCH_REPLACE;
    weft_status st = find_spares(job, (int)o->n_rank, a, &out->spares);
    weft_job_destroy(job);
    if (out->on_rank_exit == WEFT_LAUNCH_END_ALL) warn_of_ignored(o);
    return st;
}

/* The keys that all hosts must have: what ranks compare, and paths of the command line. */
static void print_keys(const weft_launch_request *q, weft_text *t)
{
    static const char *const path[] = {"output=", "model=", "data=", "eval"};
    weft_job                *job    = NULL;
    if (q->check || weft_cli_load_job(q, &job) != WEFT_OK) return;
    weft_job_print_common(job, t);
    weft_job_destroy(job);
    for (int i = 0; i < q->n_assign; i++)
        for (size_t k = 0; k < WEFT_COUNT(path); k++) {
            int n = (int)strcspn(q->assign[i], "=");
            if (!strncmp(q->assign[i], path[k], strlen(path[k])) && q->assign[i][n])
                weft_text_add(t, "the word %.*s= is %s\n", n, q->assign[i],
                              q->assign[i] + n + 1);
        }
}

static weft_detect_on_stop find_on_stop(const run_options *o)
{
    return !o->on_stop                      ? WEFT_DETECT_STOP_TIMEOUT
           : !strcmp(o->on_stop, "replace") ? WEFT_DETECT_STOP_REPLACE
                                            : WEFT_DETECT_STOP_WAIT;
}

/* MIN:MAX: hosts join and leave, and the first that comes listens. */
static int take_nodes(run_options *o)
{
    const weft_cli_command *c = &weft_cli_run;
    const weft_cli_span    *n = &o->nodes;
    o->n_node                 = n->max;
    if (n->is_one) return -1;
    o->request.min_host = (double)n->min;
    if (n->min < 1 || n->min > n->max)
        return weft_cli_usage(c, "--nnodes %lld:%lld: MIN is from 1 to MAX",
                              (long long)n->min, (long long)n->max);
    if (o->n_rank < 0)
        return weft_cli_usage(c,
                              "--nnodes MIN:MAX needs --nproc-per-node: ranks that srun, "
                              "mpirun or torchrun start one by one have no agent; start "
                              "one weft run on each host");
    return -1;
}

/* Ranks of all hosts of the recorded run are ranks of this one. */
static int count_replayed(run_options *o, weft_arena *a)
{
    const weft_cli_command *c = &weft_cli_run;
    weft_replay             r;
    int                     least, most;
    if (!o->request.replay) return -1;
    if (o->nodes.max > 1)
        return weft_cli_usage(
            c, "--replay: on one host, which has the ranks of all hosts of "
               "the recorded run; leave --nnodes out");
    weft_status st = weft_replay_load(o->request.replay, a, &r);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    weft_replay_count(&r, &least, &most);
    if (o->ranks.max < 0 && most) o->ranks = (weft_cli_span){least, most, false};
    return -1;
}

/* MIN:MAX begins with MAX ranks. */
static int take_ranks(run_options *o)
{
    const weft_cli_command *c = &weft_cli_run;
    const weft_cli_span    *r = &o->ranks;
    o->n_rank                 = r->max;
    if (r->is_one) return -1;
    o->request.min_rank = (double)r->min;
    if (r->min < 1 || r->min > r->max)
        return weft_cli_usage(c, "--nproc-per-node %lld:%lld: MIN is from 1 to MAX",
                              (long long)r->min, (long long)r->max);
    if (o->nodes.max > 1)
        return weft_cli_usage(c, "--nproc-per-node MIN:MAX: for one host");
    return -1;
}

static int check_numbers(const run_options *o)
{
    const weft_cli_command *c = &weft_cli_run;
    if (o->n_rank < 1 || o->n_rank > 1024)
        return weft_cli_usage(c, "--nproc-per-node: from 1 to 1024");
    if (o->n_node < 1 || o->n_node * o->n_rank > 1 << 20)
        return weft_cli_usage(c, "--nnodes: at least 1, and at most a million ranks");
    if (o->node >= o->n_node)
        return weft_cli_usage(c, "--node-rank: from 0 to --nnodes less 1");
    return -1;
}

/* Ranks whose number may change, or a register, of a job that does not recover, or that cannot be
 * read. */
static int refuse_span(const run_options *o)
{
    const weft_cli_command *c   = &weft_cli_run;
    weft_job               *job = NULL;
    weft_status             st  = weft_cli_load_job(&o->request, &job);
    weft_job_destroy(job);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (o->nodes.is_one && o->ranks.is_one)
        return weft_cli_usage(c, "--rdzv %s needs a job with recover=on", o->rdzv);
    return weft_cli_usage(c, "%s",
                          o->nodes.is_one
                              ? "--nproc-per-node MIN:MAX needs a job with recover=on"
                              : "--nnodes MIN:MAX needs a job with recover=on");
}

static int start(run_options *o, weft_arena *a)
{
    const weft_cli_command *c = &weft_cli_run;
    char                    at[WEFT_CLI_RDZV_MOST];
    int                     code = check_numbers(o);
    if (code < 0) code = find_rdzv(o, at);
    if (code >= 0) return code;
    if (weft_cli_resolve_device(&o->request, (int)o->n_rank, a) != WEFT_OK)
        return weft_cli_fail(c, WEFT_ERR_MEM);
    job_policy policy;
    if (find_policy(o, a, &policy) != WEFT_OK) return weft_cli_fail(c, WEFT_ERR_MEM);
    o->token.output = policy.output;
    if (o->n_node > 1) { /* one line now rather than one of each rank */
        weft_comm_token token;
        weft_status     found = weft_comm_token_find(&o->token, &token);
        weft_comm_token_wipe(&token);
        if (found != WEFT_OK) return weft_cli_fail(c, found);
    }
    weft_status         st       = weft_job_check_copies(policy.copies, (int)o->n_node);
    weft_launch_options l        = {.on_rank_exit      = policy.on_rank_exit,
                                    .levels            = policy.levels,
                                    .spares            = policy.spares,
                                    .output            = policy.output,
                                    .metrics           = o->metrics,
                                    .metrics_file      = o->metrics_file,
                                    .on_incident       = o->on_incident,
                                    .control           = o->control,
                                    .reader_file       = o->reader_file,
                                    .tls               = o->tls,
                                    .log_json          = o->log != NULL,
                                    .request           = &o->request,
                                    .log_dir           = o->log_dir,
                                    .timeout_s         = o->request.timeout_s,
                                    .stop_s            = o->grace_s,
                                    .failure_timeout_s = o->failure_timeout_s,
                                    .on_stop           = find_on_stop(o),
                                    .n_node            = (int)o->n_node,
                                    .node              = o->node < 0 ? 0 : (int)o->node,
                                    .rdzv              = *at ? at : NULL,
                                    .local_addr        = o->local_addr,
                                    .token             = o->token};
    bool                is_fixed = o->ranks.is_one && o->nodes.is_one &&
                    (!*at || (!weft_launch_is_register(at) && !strchr(at, ',')));
    l.min_node  = (int)o->nodes.min;
    l.invariant = policy.invariant;
    l.build     = weft_cli_build();
    if (!o->nodes.is_one && o->node < 0) l.node = -1;
    if (!is_fixed && l.on_rank_exit != WEFT_LAUNCH_REPLACE) return refuse_span(o);
    if (!o->ranks.is_one) l.min_rank = (int)o->ranks.min;
    if (st == WEFT_OK && (o->n_node < 2 || policy.on_rank_exit != WEFT_LAUNCH_REPLACE))
        st = weft_launch_refuse_living(&l); /* agents of several hosts join */
    weft_text keys = {0};
    if (o->n_node > 1) print_keys(&o->request, &keys);
    if (keys.n && weft_text_status(&keys) == WEFT_OK) l.keys = keys.s;
    if (st == WEFT_OK) st = weft_launch((int)o->n_rank, o->argv, &l, &code);
    weft_text_fini(&keys);
    return st == WEFT_OK ? code : weft_cli_fail(c, st);
}

/* A program of another engine, as torchrun would run it. */
static int supervise(run_options *o)
{
    const weft_cli_command *c = &weft_cli_run;
    char                    at[WEFT_CLI_RDZV_MOST];
    int                     code = check_numbers(o);
    if (code < 0) code = find_rdzv(o, at);
    if (code >= 0) return code;
    if (o->max_restarts > 1000)
        return weft_cli_usage(c, "--max-restarts: from 0 to 1000");
    weft_comm_token token;
    bool            agents =
        !o->nodes.is_one || (o->n_node > 1 && (o->max_restarts || o->has_sizes));
    weft_status found = agents ? weft_comm_token_find(&o->token, &token) : WEFT_OK;
    if (agents) weft_comm_token_wipe(&token);
    if (!agents && strchr(at, ','))
        return weft_cli_usage(c,
                              "--rdzv %s: a list is for agents (--nnodes MIN:MAX or "
                              "--max-restarts); give one host:port here",
                              at);
    if (found != WEFT_OK) return weft_cli_fail(c, found);
    int64_t n_rank = o->nodes.min * o->n_rank;
    if (o->has_sizes && n_rank < weft_launch_sizes_least(&o->sizes))
        return weft_cli_usage(c,
                              "%lld host%s of %lld ranks: the sizes need at least %d; "
                              "set --nproc-per-node and the MIN of --nnodes accordingly",
                              (long long)o->nodes.min, o->nodes.min == 1 ? "" : "s",
                              (long long)o->n_rank, weft_launch_sizes_least(&o->sizes));
    weft_launch_options l = {.program           = o->program,
                             .sizes             = o->has_sizes ? &o->sizes : NULL,
                             .max_restarts      = (int)o->max_restarts,
                             .hang_timeout_s    = o->hang_timeout_s,
                             .metrics           = o->metrics,
                             .metrics_file      = o->metrics_file,
                             .on_incident       = o->on_incident,
                             .log_json          = o->log != NULL,
                             .log_dir           = o->log_dir,
                             .grace_s           = o->grace_s,
                             .stop_s            = o->grace_s,
                             .n_node            = (int)o->n_node,
                             .node              = o->node < 0 ? 0 : (int)o->node,
                             .min_node          = (int)o->nodes.min,
                             .timeout_s         = o->request.timeout_s,
                             .failure_timeout_s = o->failure_timeout_s,
                             .reader_file       = o->reader_file,
                             .tls               = o->tls,
                             .token             = o->token,
                             .rdzv              = *at ? at : NULL};
    if (!o->nodes.is_one && o->node < 0) l.node = -1;
    weft_status st = weft_launch_supervise((int)o->n_rank, &l, &code);
    return st == WEFT_OK ? code : weft_cli_fail(c, st);
}

/* What a rank shows of its job to whoever lists processes. */
static char **make_argv(int n, char *const *word, weft_arena *a)
{
    char **argv = WEFT_ARENA_ARRAY(a, char *, n + 3);
    if (!argv) return NULL;
    argv[0] = "weft";
    argv[1] = "run";
    for (int i = 0; i < n; i++) argv[2 + i] = word[i];
    return argv;
}

int weft_cli_start_ranks(int n, const weft_launch_request *q, weft_arena *a)
{
    char **word = WEFT_ARENA_ARRAY(a, char *, q->n_assign + 1);
    int    k    = 0;
    if (!word) return weft_cli_fail(&weft_cli_run, weft_arena_status(a));
    if (q->file) word[k++] = (char *)(uintptr_t)q->file;
    for (int i = 0; i < q->n_assign; i++) word[k++] = (char *)(uintptr_t)q->assign[i];
    char **argv = make_argv(k, word, a);
    if (!argv) return weft_cli_fail(&weft_cli_run, weft_arena_status(a));
    return start(&(run_options){.request = *q,
                                .ranks   = {n, n, true},
                                .nodes   = {1, 1, true},
                                .n_rank  = n,
                                .n_node  = 1,
                                .argv    = argv},
                 a);
}

static int check_options(const run_options *o)
{
    const weft_cli_command *c = &weft_cli_run;
    unsigned                allow;
    if (o->request.timeout_s < LEAST_TIMEOUT_S)
        return weft_cli_usage(c, "--timeout: from %.1f to 1000000 seconds",
                              LEAST_TIMEOUT_S);
    if (o->request.io_timeout_s < LEAST_TIMEOUT_S)
        return weft_cli_usage(c, "--io-timeout: from %.1f to 1000000 seconds",
                              LEAST_TIMEOUT_S);
    if (o->failure_timeout_s < LEAST_TIMEOUT_S)
        return weft_cli_usage(c, "--failure-timeout: from %.1f to 1000000 seconds",
                              LEAST_TIMEOUT_S);
    if (o->on_stop && strcmp(o->on_stop, "replace") != 0 &&
        strcmp(o->on_stop, "wait") != 0)
        return weft_cli_usage(c, "--on-stop %s: replace or wait", o->on_stop);
    if (o->log && strcmp(o->log, "json") != 0)
        return weft_cli_usage(c, "--log %s: json", o->log);
    if (o->log) setenv("WEFT_LOG", "json", 1); /* for ranks */
    const char *net = getenv("WEFT_NET");
    if (o->encrypt && net && *net && strcmp(net, "tls") != 0)
        return weft_cli_usage(c, "--encrypt and WEFT_NET=%s contradict each other", net);
    if (o->encrypt) setenv("WEFT_NET", "tls", 1); /* for ranks */
    if (weft_job_parse_allow(o->request.allow, &allow) != WEFT_OK)
        return weft_cli_fail(c, WEFT_ERR_ARG);
    return -1;
}

/* The program after --; *argc: what precedes it.  NULL: there is none. */
static char *const *find_program(int *argc, char **argv)
{
    for (int i = 0; i < *argc; i++)
        if (!strcmp(argv[i], "--")) {
            char *const *program = i + 1 < *argc ? argv + i + 1 : NULL;
            *argc                = i;
            return program;
        }
    return NULL;
}

/* Its sizes; options that only a job has. */
static int check_program(run_options *o, int n_word, char **argv)
{
    const weft_cli_command *c = &weft_cli_run;
    if (n_word && weft_launch_sizes_parse(n_word, argv, &o->sizes) != WEFT_OK)
        return weft_cli_fail(c, WEFT_ERR_ARG);
    o->has_sizes = n_word > 0;
    if (o->request.check || o->print_plan || o->request.trace || o->request.replay ||
        o->cluster)
        return weft_cli_usage(
            c, "--check, --print-plan, --trace, --replay and --cluster are for jobs, "
               "not for a program after --");
    return -1;
}

/* Starts ranks, or is one of another launcher's. */
static int run_ranks(run_options *o, weft_arena *a)
{
    const weft_cli_command *c = &weft_cli_run;
    weft_launch_environment e;
    if (o->n_rank >= 0) return start(o, a);
    weft_status st = weft_launch_detect(&e);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (!strcmp(e.by, "alone") && !o->request.quiet)
        fprintf(stderr, "weft run: one rank; --nproc-per-node N starts more\n");
    return be_rank(&e, &o->request, &o->token);
}

static run_options default_options(void)
{
    return (run_options){.request           = {.timeout_s    = WEFT_CLI_TIMEOUT_S,
                                               .io_timeout_s = WEFT_CLI_IO_TIMEOUT_S},
                         .failure_timeout_s = WEFT_LAUNCH_FAILURE_TIMEOUT_S,
                         .ranks             = {-1, -1, true},
                         .n_rank            = -1,
                         .nodes             = {1, 1, true},
                         .n_node            = 1,
                         .node              = -1,
                         .port              = 29400};
}

static int parse_and_run(int argc, char **argv, weft_arena *a)
{
    const weft_cli_command *c        = &weft_cli_run;
    run_options             o        = default_options();
    weft_launch_request    *q        = &o.request;
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"nproc-per-node", 0, WEFT_CLI_SPAN, &o.ranks, "N|MIN:MAX",
           "ranks to start here; with recover: on, weft scale changes their number"},
          {"nnodes", 0, WEFT_CLI_SPAN, &o.nodes, "N|MIN:MAX",
           "hosts (1); MIN:MAX with recover: on: they join and leave while it runs"},
          {"node-rank", 0, WEFT_CLI_INT, &o.node, "R", "which of them this is, from 0"},
          {"rdzv", 0, WEFT_CLI_TEXT, &o.rdzv, "HOST:PORT[,...]|file:DIR|etcd://...",
           "where they meet: node 0; recover: on: one of a list, a folder of all, or etcd"},
          {"local-addr", 0, WEFT_CLI_TEXT, &o.local_addr, "ADDR",
           "this host's address for other hosts (that of the way to --rdzv)"},
          {"rdzv-endpoint", 0, WEFT_CLI_TEXT, &o.rdzv, "HOST:PORT", "the same"},
          {"master-addr", 0, WEFT_CLI_TEXT, &o.addr, "HOST", "the same, in two words"},
          {"master-port", 0, WEFT_CLI_INT, &o.port, "PORT", "(29400)"},
          {"token-file", 0, WEFT_CLI_TEXT, &o.token.file, "FILE",
           "the token of runs on several hosts"},
          {"insecure-network", 0, WEFT_CLI_FLAG, &o.token.insecure, NULL,
           "several hosts without a token: everybody on the network can join"},
          {"encrypt", 0, WEFT_CLI_FLAG, &o.encrypt, NULL,
           "several hosts: TLS on all connections between ranks"},
          {"check", 0, WEFT_CLI_FLAG, &q->check, NULL, "collectives instead of a job"},
          {"seconds", 0, WEFT_CLI_REAL, &q->check_s, "S", "how long to check (once)"},
          {"timeout", 0, WEFT_CLI_REAL, &q->timeout_s, "S",
           "how long to wait for a rank that does not answer (60)"},
          {"failure-timeout", 0, WEFT_CLI_REAL, &o.failure_timeout_s, "S",
           "recover: on: a rank that shows no progress is lost after it (10)"},
          {"on-stop", 0, WEFT_CLI_TEXT, &o.on_stop, "replace|wait",
           "recover: on: a rank stopped alone is lost at once, or never"},
          {"io-timeout", 0, WEFT_CLI_REAL, &q->io_timeout_s, "S",
           "how long one write or sync of a checkpoint may take (600)"},
          {"grace", 0, WEFT_CLI_REAL, &o.grace_s, "S",
           "how long ranks have to save and stop after a signal (no limit)"},
          {"max-restarts", 0, WEFT_CLI_INT, &o.max_restarts, "N",
           "of a program after --: how often it may start again (0)"},
          {"hang-timeout", 0, WEFT_CLI_REAL, &o.hang_timeout_s, "S",
           "the same: a rank without output and CPU time for so long hangs (off)"},
          {"metrics", 0, WEFT_CLI_TEXT, &o.metrics, "ADDR:PORT",
           "Prometheus text over read-only HTTP (off)"},
          {"metrics-file", 0, WEFT_CLI_TEXT, &o.metrics_file, "FILE",
           "the same as a file, replaced every 2 s, for node_exporter"},
          {"control", 0, WEFT_CLI_TEXT, &o.control, "ADDR:PORT",
           "weft status, events and scale --at it, from other hosts (off)"},
          {"read-token-file", 0, WEFT_CLI_TEXT, &o.reader_file, "FILE",
           "--control: a second token, for weft status and events alone"},
          WEFT_CLI_TLS_OPTIONS(o.tls),
          {"on-incident", 0, WEFT_CLI_TEXT, &o.on_incident, "CMD",
           "recover: on: run by sh for each incident, which it reads as JSON"},
          {"log", 0, WEFT_CLI_TEXT, &o.log, "json", "log lines as JSON"},
          {"log-dir", 0, WEFT_CLI_TEXT, &o.log_dir, "DIR", "rank<r>.log for each rank"},
          {"trace", 0, WEFT_CLI_TEXT, &q->trace, "FILE",
           "timeline of the last step, for Perfetto"},
          {"replay", 0, WEFT_CLI_TEXT, &q->replay, "FILE",
           "incidents.jsonl of a run: the same ranks and plans at the same steps"},
          {"cluster", 0, WEFT_CLI_TEXT, &o.cluster, "CLUSTER",
           "machines to plan for, as the key cluster"},
          {"print-plan", 0, WEFT_CLI_FLAG, &o.print_plan, NULL,
           "start nothing: print the plan that this command runs, as JSON for plan="},
          {"allow", 0, WEFT_CLI_TEXT, &q->allow, "KEYS",
           "let a resume change lanes, micro_batch; bits differ from there on"},
          {"fresh", 0, WEFT_CLI_FLAG, &q->fresh, NULL,
           "start anew beside the checkpoints there are"},
          {"quiet", 'q', WEFT_CLI_FLAG, &q->quiet, NULL,
           "no progress, no log lines but warnings"},
          {"json", 0, WEFT_CLI_FLAG, &q->json, NULL, "the result as one line of JSON"},
    };
    weft_text command = {0};
    char    **shown = make_argv(argc, argv, a); /* before options and words are sorted */
    o.program       = find_program(&argc, argv);
    if (!shown) return weft_cli_fail(c, weft_arena_status(a));
    o.argv = shown;
    weft_cli_put_command("run", argc, argv, &command);
    q->command = command.s;
    int code   = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code < 0) code = count_replayed(&o, a);
    if (code < 0) code = take_ranks(&o);
    if (code < 0) code = take_nodes(&o);
    if (code < 0) code = check_options(&o);
    if (code < 0 && o.program) code = check_program(&o, n_word, argv);
    if (code < 0 && o.program) code = supervise(&o);
    if (code < 0 && o.max_restarts)
        code = weft_cli_usage(
            c, "--max-restarts: of a program after --; a job has recover=on");
    if (code < 0 && o.hang_timeout_s != 0)
        code = weft_cli_usage(
            c, "--hang-timeout: of a program after --; a job finds hangs by itself");
    if (code < 0 && (!q->check || o.print_plan))
        code = weft_cli_take_words(c, n_word, argv, o.cluster, a, q);
    if (code < 0) code = o.print_plan ? print_plan(&o) : run_ranks(&o, a);
    weft_text_fini(&command);
    return code;
}

static int run(int argc, char **argv)
{
    weft_arena         *a = NULL;
    weft_launch_request q;
    bool                found = false;
    if (weft_session_is_planner())
        return weft_session_serve_plans() == WEFT_OK ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    weft_status st = weft_arena_create(&a);
    if (st == WEFT_OK) st = weft_launch_request_find(a, &q, &found);
    int code = st != WEFT_OK ? weft_cli_fail(&weft_cli_run, st)
               : found       ? carry_out(&q)
                             : parse_and_run(argc, argv, a);
    weft_arena_destroy(a);
    return code;
}
