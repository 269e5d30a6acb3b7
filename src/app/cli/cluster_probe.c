/* weft cluster discover, weft cluster calibrate: the subcommands that touch this machine */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/cluster_gpus.h"
#include "comm/rdzv.h"
#include "comm/shm.h"
#include "probe/probe.h"
#include "launch/join.h"
#include "session/sweep.h"
#include "trace/trace.h"

static int discover(int argc, char **argv);
static int calibrate(int argc, char **argv);

const weft_cli_command weft_cli_cluster_discover = {
    .name  = "cluster discover",
    .usage = "[options]",
    .about = "what is here: GPUs (NVML) or processors (hwloc, /proc), memory",
    .more =
        "Numbers are those on the box; where weft cluster calibrate has measured this\n"
        "host, its numbers are taken from the cache.  Of GPUs, lines follow for the "
        "driver, each\nGPU (capability, free memory, NVLinks, peer access) and NVIDIA's "
        "libraries as jobs find\nthem (cublasLt, cuDNN, NCCL).",
    .example = "weft cluster discover -o cluster.yaml",
    .run     = discover,
};

const weft_cli_command weft_cli_cluster_calibrate = {
    .name  = "cluster calibrate",
    .usage = "[options]",
    .about = "measure this host: instructions by size, memory, messages, GPUs",
    .more =
        "Measures with N processes at once (cores are shared out among them) and keeps "
        "the\nresult in the user's cache, where weft cluster discover --ranks N finds "
        "it.  Some 10 s on an\nidle host with few ranks, a minute with sixteen.\n"
        "On several hosts the same command is given on each, with its own --node-rank: "
        "the network\nbetween them is measured too.  Hosts that were calibrated before "
        "are not measured again, and\nall are taken to be like node 0.\n"
        "NVIDIA GPUs are measured after that, half a minute for each kind, where the "
        "driver and\ncublasLt are found; the cluster is then one of GPUs, with the "
        "processors beside them.\n"
        "With libweft_cuda.so steps of small models are run on the first GPU and their\n"
        "instructions timed in their place, with the gap between launches and the rest "
        "of a step;\nweft plan, check and sim predict our own engine by them.\n"
        "--from TRACE corrects a cluster's constants by what weft train --trace "
        "measured\ninstead; --cluster says which (else the cache, else what is "
        "discovered).",
    .example = "weft cluster calibrate --ranks 2 -o cluster.yaml",
    .run     = calibrate,
};

static weft_status here(int n_host, int n_rank, bool fresh, weft_cluster **out)
{
    char path[1024];
    WEFT_TRY(weft_probe_cache_path(n_host, n_rank, path, sizeof path));
    if (weft_io_exists(path) && !fresh) return weft_cluster_load(path, NULL, out);
    return n_host * n_rank > 1 ? weft_probe_divided(n_host, n_rank, 0, out)
                               : weft_probe_discover(out);
}

static int put(const weft_cli_command *cmd, weft_cluster *c, const char *out)
{
    weft_text   t  = {0};
    weft_status st = out ? weft_cluster_print(c, &t) : weft_cluster_describe(c, &t);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? weft_cli_put(cmd, &t, out) : weft_cli_fail(cmd, st);
}

/* The cluster, and what no cluster file has: driver, free memory, libraries. */
static int put_found(const weft_cli_command *cmd, weft_cluster *c)
{
    weft_text   t  = {0};
    weft_status st = weft_cluster_describe(c, &t);
    weft_cluster_destroy(c);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    weft_cli_describe_gpus(&t);
    return weft_cli_put(cmd, &t, NULL);
}

static int discover(int argc, char **argv)
{
    const weft_cli_command *cmd   = &weft_cli_cluster_discover;
    const char             *out   = NULL;
    int64_t                 ranks = 1, hosts = 1;
    bool                    fresh = false;
    int                     n_word;
    weft_cluster           *c;
    const weft_cli_option   option[] = {
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "the cluster, as YAML"},
          {"ranks", 0, WEFT_CLI_INT, &ranks, "N",
           "as calibrated with N processes, else shared out among them (1)"},
          {"nnodes", 0, WEFT_CLI_INT, &hosts, "N",
           "as calibrated on N hosts, else like this one (1)"},
          {"fresh", 0, WEFT_CLI_FLAG, &fresh, NULL, "look again, leave the cache alone"},
    };
    int code = weft_cli_parse(cmd, option, WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(cmd, "unexpected '%s'", argv[0]);
    char        path[1024];
    weft_status st = weft_probe_gpu_cache_path(path, sizeof path);
    if (st == WEFT_OK && ranks == 1 && hosts == 1 && !fresh && weft_io_exists(path))
        st = weft_cluster_load(path, NULL, &c);
    else if (st == WEFT_OK)
        st = here((int)hosts, (int)ranks, fresh, &c);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    return out ? put(cmd, c, out) : put_found(cmd, c);
}

/* ---- calibrate ---- */

#define PATIENCE_S 900 /* ranks wait while others measure, on a busy machine for long */

static int n_core(void)
{
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) ? 1 : CPU_COUNT(&all);
}

typedef struct measuring {
    weft_arena        *a;
    weft_comm         *c;
    weft_comm_group   *all, *apart; /* apart: those with cores of their own */
    weft_pool         *pool;
    int                n, fit; /* ranks; how many of them have cores of their own */
    weft_probe_numbers x;
    weft_timing       *timing[3];
    int                n_timing[3];
} measuring;

/* Its share of the cores, as weft run gives it. */
static void pin(int r, int n)
{
    cpu_set_t all, own;
    int       cpu[CPU_SETSIZE], n_cpu = 0;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &all)) cpu[n_cpu++] = i;
    if (n > n_cpu) return;
    CPU_ZERO(&own);
    for (int i = r * n_cpu / n; i < (r + 1) * n_cpu / n; i++)
        CPU_SET((size_t)cpu[i], &own);
    sched_setaffinity(0, sizeof own, &own);
}

static weft_status meet(measuring *m)
{
    return weft_comm_collective(m->c, m->all, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

/* The mean over the ranks that measured: cores of a host are not all alike. */
static weft_status average(measuring *m)
{
    int     k = 0;
    double *s, *sum;
    double  lists[1] = {0}, most[1];
    for (int l = 0; l < 2; l++) k += m->n_timing[l];
    lists[0] = m->c->rank < m->fit ? k : 0;
    WEFT_TRY(weft_comm_collective(m->c, m->all, WEFT_ALL_REDUCE, WEFT_DTYPE_F64, lists,
                                  most, 1));
    k   = (int)(most[0] / m->fit);
    s   = WEFT_ARENA_ARRAY(m->a, double, k + 1);
    sum = WEFT_ARENA_ARRAY(m->a, double, k + 1);
    WEFT_TRY(weft_arena_status(m->a));
    for (int l = 0, at = 0; l < 2; l++)
        for (int i = 0; i < m->n_timing[l]; i++) s[at++] = m->timing[l][i].s;
    WEFT_TRY(
        weft_comm_collective(m->c, m->all, WEFT_ALL_REDUCE, WEFT_DTYPE_F64, s, sum, k));
    for (int l = 0, at = 0; l < 2; l++)
        for (int i = 0; i < m->n_timing[l]; i++) m->timing[l][i].s = sum[at++] / m->fit;
    return WEFT_OK;
}

static weft_status meet_apart(void *arg, bool *enough)
{
    measuring  *m  = arg;
    double      in = *enough, sum;
    weft_status st = weft_comm_collective(m->c, m->apart, WEFT_ALL_REDUCE, WEFT_DTYPE_F64,
                                          &in, &sum, 1);
    *enough        = sum > 0;
    return st;
}

static weft_status measure_device(measuring *m)
{
    weft_sweep_peers peers = {meet_apart, m};
    bool             no    = false;
    WEFT_TRY(weft_probe_device(m->pool, weft_pool_threads(m->pool), &m->x));
    WEFT_TRY(meet_apart(m, &no));
    WEFT_TRY(weft_probe_streams(m->pool, m->a, &m->timing[0], &m->n_timing[0]));
    return weft_sweep_run(m->pool, &peers, m->a, &m->timing[1], &m->n_timing[1]);
}

static weft_status measure_everything(measuring *m)
{
    if (m->c->rank < m->fit) WEFT_TRY(measure_device(m));
    WEFT_TRY(meet(m));
    WEFT_TRY(average(m));
    if (m->n < 2) return WEFT_OK;
    WEFT_TRY(weft_probe_link(m->c, &m->x));
    WEFT_TRY(weft_probe_links(m->c, m->fit, m->a, &m->timing[2], &m->n_timing[2]));
    m->x.n_oversubscription = m->n;
    return weft_probe_oversubscription(m->c, m->pool, m->fit, m->x.oversubscription);
}

static weft_status keep(const measuring *m, const char *file)
{
    weft_cluster *plain = NULL, *made = NULL;
    weft_text     t    = {0};
    int           most = 0, n = 0;
    weft_status   st;
    for (int l = 0; l < 3; l++) most += m->n_timing[l];
    weft_timing *all = WEFT_ARENA_ARRAY(m->a, weft_timing, most + 1);
    WEFT_GO(weft_arena_status(m->a));
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < m->n_timing[l]; i++) all[n++] = m->timing[l][i];
    WEFT_GO(weft_probe_cluster(&m->x, m->n, &plain));
    WEFT_GO(weft_cluster_learn(plain, all, n, &made));
    WEFT_GO(weft_cluster_print(made, &t));
    WEFT_GO(weft_io_replace_file(file, t.s, t.n));
out:
    weft_text_fini(&t);
    weft_cluster_destroy(made);
    weft_cluster_destroy(plain);
    return st;
}

/* One of n processes that measure at once; rank 0 keeps the result. */
static weft_status measure(const weft_comm_shm *w, int r, int n, int threads,
                           const char *file)
{
    measuring   m = {.n = n};
    int32_t     rank[WEFT_PROBE_RANKS];
    weft_status st;
    int         cores = n_core();
    if (!threads) threads = cores / n > 0 ? cores / n : 1;
    m.fit = cores / threads < 1 ? 1 : cores / threads < n ? cores / threads : n;
    for (int i = 0; i < n; i++) rank[i] = i;
    pin(r, n);
    WEFT_GO(weft_arena_create(&m.a));
    WEFT_GO(weft_comm_shm_join(weft_comm_shm_fd(w), r, PATIENCE_S, &m.c));
    WEFT_GO(weft_comm_open_group(m.c, n, rank, 989, &m.all));
    if (r < m.fit) WEFT_GO(weft_comm_open_group(m.c, m.fit, rank, 988, &m.apart));
    WEFT_GO(weft_pool_create(threads, 0, &m.pool));
    WEFT_GO(measure_everything(&m));
    if (!r) WEFT_GO(keep(&m, file));
    WEFT_GO(meet(&m));
out:
    weft_pool_destroy(m.pool);
    weft_comm_destroy(m.c);
    weft_arena_destroy(m.a);
    return st;
}

static int measure_all(const weft_cli_command *cmd, int n, int threads, const char *file)
{
    weft_comm_shm *w;
    pid_t          pid[64];
    int            how, code = -1;
    weft_status    st = weft_comm_shm_create(n, &w);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pid[r] = fork();
        if (!pid[r]) {
            st = measure(w, r, n, threads, file);
            _exit(st == WEFT_OK ? 0 : weft_cli_fail(cmd, st));
        }
        if (pid[r] < 0) weft_comm_shm_report(w, r, "fork failed");
    }
    for (int r = 0; r < n; r++)
        if (pid[r] < 0 || waitpid(pid[r], &how, 0) < 0 || how) code = WEFT_EXIT_FAILED;
    weft_comm_shm_destroy(w);
    return code;
}

static int from_trace(const weft_cli_command *cmd, const char *trace, const char *cluster,
                      int n_rank, const char *out)
{
    weft_trace       *m = NULL;
    weft_cluster     *c = NULL, *next = NULL;
    weft_trace_fitted f;
    weft_status       st;
    WEFT_GO(weft_trace_load(trace, &m));
    WEFT_GO(cluster ? weft_cluster_load(cluster, NULL, &c)
                    : here(1, m->n_rank > n_rank ? m->n_rank : n_rank, false, &c));
    WEFT_GO(weft_trace_fit(m, c, &next, &f));
    fprintf(
        stderr,
        "%d kinds of instructions: %.3f ms measured, %.3f predicted before (error %.1f "
        "%%), %.3f now (%.1f %%)\n",
        f.n_compute + f.n_comm, 1e3 * f.sum_measured, 1e3 * f.sum_before,
        100 * f.error_before, 1e3 * f.sum_after, 100 * f.error_after);
out:
    weft_trace_destroy(m);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? put(cmd, next, out) : weft_cli_fail(cmd, st);
}

/* ---- several hosts ---- */

typedef struct hosts {
    int64_t                 n, me;
    const char             *rdzv;
    weft_comm_token_options token;
} hosts;

/* Node 0's cluster, as text, to all. */
static weft_status share_text(weft_comm *c, weft_comm_group *g, weft_text *t)
{
    int64_t n = (int64_t)t->n;
    WEFT_TRY(weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_I64, &n, &n, 1));
    if (n < 1 || n > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_PEER, "node 0 sends a cluster of %lld bytes",
                         (long long)n);
    if (c->rank) weft_text_add(t, "%*s", (int)n, "");
    WEFT_TRY(weft_text_status(t));
    return weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_U8, t->s, t->s, n);
}

static weft_status same_ranks(weft_comm *c, weft_comm_group *g, int64_t ranks)
{
    int64_t first = ranks;
    WEFT_TRY(
        weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_I64, &first, &first, 1));
    if (first == ranks) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "node 0 has --ranks %lld, node %d has %lld",
                     (long long)first, c->rank, (long long)ranks);
}

/* Hosts with calibrations of their own, in host: those of all, in file. */
static weft_status measure_between(const hosts *h, int64_t ranks, const char *host,
                                   const char *file)
{
    weft_comm               *c = NULL;
    weft_comm_group         *g;
    weft_cluster            *one = NULL, *all = NULL;
    weft_text                t = {0};
    int32_t                  node[1024];
    weft_probe_wire          w;
    weft_status              st;
    weft_launch_environment  p    = {.rank        = (int)h->me,
                                     .world       = (int)h->n,
                                     .local_world = 1,
                                     .shm_fd      = -1,
                                     .line_fd     = -1,
                                     .rdzv_fd     = -1,
                                     .flight_fd   = -1,
                                     .by          = "weft cluster calibrate"};
    weft_launch_join_options join = {
        .timeout_s = PATIENCE_S, .token = h->token, .log = weft_cli_log};
    snprintf(p.rdzv, sizeof p.rdzv, "%s", h->rdzv);
    for (int i = 0; i < p.world; i++) node[i] = i;
    WEFT_GO(weft_cluster_load(host, NULL, &one));
    WEFT_GO(weft_launch_join(&p, &join, &c));
    WEFT_GO(weft_comm_open_group(c, p.world, node, 987, &g));
    WEFT_GO(same_ranks(c, g, ranks));
    WEFT_GO(weft_probe_between(c, &w));
    fprintf(stderr, "between hosts: %.1f us, %.4g MB/s\n", 1e6 * w.alpha_s, 1e-6 * w.Bps);
    WEFT_GO(weft_probe_hosts(one, p.world, &w, &all));
    if (!p.rank) WEFT_GO(weft_cluster_print(all, &t));
    WEFT_GO(share_text(c, g, &t));
    WEFT_GO(weft_io_replace_file(file, t.s, t.n));
out:
    weft_comm_destroy(c);
    weft_text_fini(&t);
    weft_cluster_destroy(one);
    weft_cluster_destroy(all);
    return st;
}

static int check_hosts(const weft_cli_command *cmd, const hosts *h)
{
    if (h->n < 1 || h->n > 1024) return weft_cli_usage(cmd, "--nnodes: from 1 to 1024");
    if (h->me < 0 || h->me >= h->n)
        return weft_cli_usage(cmd, "--node-rank: from 0 to --nnodes less 1");
    if (h->n > 1 && !h->rdzv)
        return weft_cli_usage(cmd,
                              "--nnodes: --rdzv host:port says where the hosts meet");
    if (h->rdzv && weft_comm_rdzv_check(h->rdzv) != WEFT_OK)
        return weft_cli_fail(cmd, WEFT_ERR_ARG);
    if (h->n > 1) {
        weft_comm_token token;
        weft_status     st = weft_comm_token_find(&h->token, &token);
        weft_comm_token_wipe(&token);
        if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    }
    return -1;
}

/* This host, unless it is known and others wait. */
static int measure_here(const weft_cli_command *cmd, int ranks, int threads, bool known,
                        const char *path)
{
    if (known) {
        fprintf(stderr, "this host was measured before: %s\n", path);
        return -1;
    }
    fprintf(stderr, "measuring with %d process%s, up to a minute: %s\n", ranks,
            ranks > 1 ? "es" : "", path);
    return measure_all(cmd, ranks, threads, path);
}

/* ---- the words ---- */

typedef struct words {
    int64_t     ranks, threads;
    hosts       h;
    const char *only, *list, *tune, *cluster;
    double      tune_limit_s;
} words;

/* Are times added to a cluster that is there? */
static bool adds_times(const words *w)
{
    return w->only && (*w->only == 'i' || *w->only == 'h');
}

static int check_words(const weft_cli_command *cmd, const words *w)
{
    if (w->threads < 0 || w->threads > 1024)
        return weft_cli_usage(cmd, "--threads: from 0 to 1024");
    if (w->ranks < 1 || w->ranks > 64)
        return weft_cli_usage(cmd, "--ranks: from 1 to 64");
    if (w->only && strcmp(w->only, "gpus") && strcmp(w->only, "cpus") &&
        strcmp(w->only, "instructions") && strcmp(w->only, "host"))
        return weft_cli_usage(cmd, "--only: gpus, cpus, instructions or host, not '%s'",
                              w->only);
    if (w->only && *w->only != 'c' && w->h.n > 1)
        return weft_cli_usage(cmd, "--only %s: of one host, without --nnodes", w->only);
    if (adds_times(w) && !w->cluster)
        return weft_cli_usage(
            cmd, "--only instructions, --only host: --cluster FILE says what they "
                 "are added to");
    if (w->tune_limit_s > 0 && !w->tune)
        return weft_cli_usage(cmd,
                              "--tune-limit: --tune FILE says that there is a choice");
    if (w->tune && w->only && *w->only == 'c')
        return weft_cli_usage(cmd, "--tune is of GPUs, --only cpus leaves them out");
    return check_hosts(cmd, &w->h);
}

/* Where this host's processors are kept, and those of all hosts. */
static weft_status name_files(const words *w, char *path, char *between, size_t size)
{
    WEFT_TRY(weft_probe_cache_path(1, (int)w->ranks, path, size));
    WEFT_TRY(weft_probe_cache_path((int)w->h.n, (int)w->ranks, between, size));
    size_t n = strlen(path);
    if (w->threads && n > 5 && n + 16 < size) /* apart from the usual share */
        snprintf(path + n - 5, size - n + 5, "-t%d.yaml", (int)w->threads);
    return WEFT_OK;
}

/* Into a cluster that was measured before. */
static int add_instructions(const weft_cli_command *cmd, const words *w, const char *out)
{
    weft_cluster *c = NULL, *timed = NULL;
    weft_status   st = weft_cluster_load(w->cluster, NULL, &c);
    if (st == WEFT_OK)
        st = weft_cli_time_instructions(&(weft_cli_gpus){.list         = w->list,
                                                         .tune         = w->tune,
                                                         .tune_limit_s = w->tune_limit_s,
                                                         .host         = *w->only == 'h'},
                                        c, &timed);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? put(cmd, timed, out) : weft_cli_fail(cmd, st);
}

static int measure_words(const weft_cli_command *cmd, const words *w, const char *out)
{
    char          path[1024], between[1024];
    weft_cluster *c   = NULL;
    bool          cpu = !w->only || *w->only == 'c', several = w->h.n > 1;
    int           code = -1;
    weft_status   st   = name_files(w, path, between, sizeof path);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    if (cpu)
        code = measure_here(cmd, (int)w->ranks, (int)w->threads,
                            several && weft_io_exists(path), path);
    if (code >= 0) return code;
    if (several) st = measure_between(&w->h, w->ranks, path, between);
    if (!several && (!w->only || *w->only == 'g'))
        st = weft_cli_measure_gpus(&(weft_cli_gpus){.processors   = cpu ? path : NULL,
                                                    .list         = w->list,
                                                    .tune         = w->tune,
                                                    .tune_limit_s = w->tune_limit_s},
                                   &c);
    if (st == WEFT_OK && !c && !cpu) return WEFT_EXIT_FAILED;
    if (st == WEFT_OK && !c) st = weft_cluster_load(several ? between : path, NULL, &c);
    return st == WEFT_OK ? put(cmd, c, out) : weft_cli_fail(cmd, st);
}

static int calibrate(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_cluster_calibrate;
    const char             *out = NULL, *trace = NULL;
    words                   w = {.ranks = 1, .h = {.n = 1}};
    int                     n_word;
    const weft_cli_option   option[] = {
          {"ranks", 0, WEFT_CLI_INT, &w.ranks, "N", "processes that measure at once (1)"},
          {"threads", 0, WEFT_CLI_INT, &w.threads, "N", "of each (the cores shared out)"},
          {"nnodes", 0, WEFT_CLI_INT, &w.h.n, "N", "hosts (1)"},
          {"node-rank", 0, WEFT_CLI_INT, &w.h.me, "R", "which of them this is, from 0"},
          {"rdzv", 0, WEFT_CLI_TEXT, &w.h.rdzv, "HOST:PORT", "where they meet: node 0"},
          {"token-file", 0, WEFT_CLI_TEXT, &w.h.token.file, "FILE",
           "the token of several hosts (weft token)"},
          {"insecure-network", 0, WEFT_CLI_FLAG, &w.h.token.insecure, NULL,
           "without a token: everybody on the network can join"},
          {"only", 0, WEFT_CLI_TEXT, &w.only, "WHAT",
           "gpus, cpus; of a GPU that was measured before: instructions, host (all)"},
          {"list", 0, WEFT_CLI_TEXT, &w.list, "FILE", "all times of GPUs, as CSV"},
          {"tune", 0, WEFT_CLI_TEXT, &w.tune, "FILE",
           "choose algorithms of matmuls on GPUs first, and write their table"},
          {"tune-limit", 0, WEFT_CLI_REAL, &w.tune_limit_s, "S",
           "seconds after which no further model's matmuls are chosen (0: all are)"},
          {"from", 0, WEFT_CLI_TEXT, &trace, "TRACE", "correct constants by this trace"},
          {"cluster", 0, WEFT_CLI_TEXT, &w.cluster, "CLUSTER",
           "what --from corrects, what --only instructions and --only host add to"},
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "the cluster, as YAML"},
    };
    int code = weft_cli_parse(cmd, option, WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(cmd, "unexpected '%s'", argv[0]);
    if ((code = check_words(cmd, &w)) >= 0) return code;
    if (trace) return from_trace(cmd, trace, w.cluster, (int)w.ranks, out);
    if (adds_times(&w)) return add_instructions(cmd, &w, out);
    return measure_words(cmd, &w, out);
}
