/* weft cluster discover, weft cluster calibrate: the subcommands that touch this machine */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "comm/shm.h"
#include "probe/probe.h"
#include "trace/trace.h"

static int discover(int argc, char **argv);
static int calibrate(int argc, char **argv);

const weft_cli_command weft_cli_cluster_discover = {
    .name  = "cluster discover",
    .usage = "[options]",
    .about = "what is here: GPUs (NVML) or processors (hwloc, /proc), memory",
    .more =
        "Numbers are those on the box; where weft cluster calibrate has measured this\n"
        "host, its numbers are taken from the cache.",
    .example = "weft cluster discover -o cluster.yaml",
    .run     = discover,
};

const weft_cli_command weft_cli_cluster_calibrate = {
    .name  = "cluster calibrate",
    .usage = "[options]",
    .about = "measure this host: products by size, memory, starts, messages",
    .more =
        "Measures with N processes at once (cores are shared out among them) and keeps "
        "the\nresult in the user's cache, where weft cluster discover finds it.\n"
        "--from TRACE corrects a cluster's constants by what weft train --trace "
        "measured\ninstead; --cluster says which (else the cache, else what is "
        "discovered).",
    .example = "weft cluster calibrate --ranks 2 -o cluster.yaml",
    .run     = calibrate,
};

static weft_status here(int n_rank, bool fresh, weft_cluster **out)
{
    char path[1024];
    WEFT_TRY(weft_probe_cache_path(n_rank, path, sizeof path));
    return weft_io_exists(path) && !fresh ? weft_cluster_load(path, NULL, out)
                                          : weft_probe_discover(out);
}

static int put(const weft_cli_command *cmd, weft_cluster *c, const char *out)
{
    weft_text   t  = {0};
    weft_status st = out ? weft_cluster_print(c, &t) : weft_cluster_describe(c, &t);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? weft_cli_put(cmd, &t, out) : weft_cli_fail(cmd, st);
}

static int discover(int argc, char **argv)
{
    const weft_cli_command *cmd   = &weft_cli_cluster_discover;
    const char             *out   = NULL;
    int64_t                 ranks = 1;
    bool                    fresh = false;
    int                     n_word;
    weft_cluster           *c;
    const weft_cli_option   option[] = {
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "the cluster, as YAML"},
          {"ranks", 0, WEFT_CLI_INT, &ranks, "N", "as calibrated with N processes (1)"},
          {"fresh", 0, WEFT_CLI_FLAG, &fresh, NULL, "look again, leave the cache alone"},
    };
    int code = weft_cli_parse(cmd, option, 3, argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(cmd, "unexpected '%s'", argv[0]);
    weft_status st = here((int)ranks, fresh, &c);
    return st == WEFT_OK ? put(cmd, c, out) : weft_cli_fail(cmd, st);
}

/* ---- calibrate ---- */

static int n_core(void)
{
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) ? 1 : CPU_COUNT(&all);
}

/* One of n processes that measure at once; rank 0 keeps the result. */
static weft_status measure(const weft_comm_shm *w, int r, int n, const char *file)
{
    weft_comm         *c       = NULL;
    weft_pool         *pool    = NULL;
    weft_cluster      *made    = NULL;
    weft_probe_numbers x       = {0};
    weft_text          t       = {0};
    int                threads = n_core() / n > 0 ? n_core() / n : 1;
    weft_status        st;
    WEFT_GO(weft_comm_shm_join(weft_comm_shm_fd(w), r, 120, &c));
    WEFT_GO(weft_pool_create(threads, 0, &pool));
    WEFT_GO(weft_probe_device(pool, threads, &x));
    WEFT_GO(weft_probe_link(c, &x));
    if (r) goto out;
    WEFT_GO(weft_probe_cluster(&x, n, &made));
    WEFT_GO(weft_cluster_print(made, &t));
    WEFT_GO(weft_io_replace_file(file, t.s, t.n));
out:
    weft_text_fini(&t);
    weft_cluster_destroy(made);
    weft_pool_destroy(pool);
    weft_comm_destroy(c);
    return st;
}

static int measure_all(const weft_cli_command *cmd, int n, const char *file)
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
            st = measure(w, r, n, file);
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
                    : here(m->n_rank > n_rank ? m->n_rank : n_rank, false, &c));
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

static int calibrate(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_cluster_calibrate;
    const char             *out = NULL, *trace = NULL, *cluster = NULL;
    int64_t                 ranks = 1;
    char                    path[1024];
    int                     n_word;
    weft_cluster           *c;
    const weft_cli_option   option[] = {
          {"ranks", 0, WEFT_CLI_INT, &ranks, "N", "processes that measure at once (1)"},
          {"from", 0, WEFT_CLI_TEXT, &trace, "TRACE", "correct constants by this trace"},
          {"cluster", 0, WEFT_CLI_TEXT, &cluster, "CLUSTER", "what --from corrects"},
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "the cluster, as YAML"},
    };
    int code = weft_cli_parse(cmd, option, 4, argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(cmd, "unexpected '%s'", argv[0]);
    if (ranks < 1 || ranks > 64) return weft_cli_usage(cmd, "--ranks: from 1 to 64");
    if (trace) return from_trace(cmd, trace, cluster, (int)ranks, out);
    weft_status st = weft_probe_cache_path((int)ranks, path, sizeof path);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    code = measure_all(cmd, (int)ranks, path);
    if (code >= 0) return code;
    st = weft_cluster_load(path, NULL, &c);
    return st == WEFT_OK ? put(cmd, c, out) : weft_cli_fail(cmd, st);
}
