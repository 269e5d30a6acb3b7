/* status.json: what a running job says of itself, for `weft status`.  In: the session.  Out: a file
 * in the output folder, replaced as a whole about once a second by rank 0.
 *
 * It is no result of the job: it is not synced, and a job goes on where it cannot be written.  It
 * outlives the process: whoever reads it finds out by pid whether that is still there. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "session/plans_priv.h"

enum {
    N_MEDIAN = 64 /* steps that the measured time is the median of */
};
static const double EVERY_S = 1;

/* A rank as the others see it. */
typedef struct member {
    char    host[64];
    int64_t pid, memory_bytes;
    double  work; /* floating-point operations of a step */
} member;

static double wall_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* When this process began, in ticks since the machine did: a pid may be another process's later. */
static long long find_start(void)
{
    char  text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at    = strrchr(text, ')');
    long long   start = 0;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) start = strtoll(at, NULL, 10);
    return start;
}

static void print_members(const member *all, int n, weft_text *t)
{
    weft_text_add(t, "[");
    for (int r = 0; r < n; r++) {
        weft_text_add(t, "%s{\"rank\": %d, \"host\": ", r ? ", " : "", r);
        weft_text_put_quoted(t, all[r].host);
        weft_text_add(t, ", \"pid\": %lld, \"memory_bytes\": %lld}",
                      (long long)all[r].pid, (long long)all[r].memory_bytes);
    }
    weft_text_add(t, "]");
}

static double count_work(const weft_session *s)
{
    const weft_program *p    = s->now->made.program;
    double              work = 0;
    for (int k = 0; p && k < p->n_stream; k++)
        for (int i = 0; i < p->stream[k].n_firing; i++) {
            const weft_actor *a = &p->actor[p->stream[k].firing[i].actor];
            for (int n = 0; n < a->n_instr; n++) work += weft_instr_flops(&a->instr[n]);
        }
    return work;
}

/* Of all ranks, for lines about hosts. */
static weft_status keep_hosts(weft_generation *g, const member *all, int n)
{
    const char **name = WEFT_ARENA_ARRAY(g->arena, const char *, n);
    for (int r = 0; name && r < n; r++)
        name[r] = weft_arena_strdup(g->arena, all[r].host);
    g->host_name = name;
    return weft_arena_status(g->arena);
}

/* Those with equal work are compared. */
static weft_status begin_slow(weft_session *s, const member *all, int n)
{
    double *work = calloc((size_t)n, sizeof *work);
    if (!work) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int r = 0; r < n; r++) work[r] = all[r].work;
    weft_status st = weft_slow_begin(&s->times.slow, n, work);
    free(work);
    return st;
}

/* A rank that takes longer than others with the same work, once it does. */
void weft_session__name_slow(weft_session *s)
{
    int rank;
    while (weft_session__writes(s) && weft_slow_next(&s->times.slow, &rank)) {
        const weft_slow_rank *x = &s->times.slow.rank[rank];
        weft_say_warn(
            &s->say,
            "rank %d is slow: busy at least %.3g ms of a step, ranks with the same work "
            "%.3g ms",
            rank, 1e3 * (double)x->low_s, 1e3 * (double)x->other_s);
        weft_session__report(
            s, "slow", "continue",
            "rank %d is busy at least %.3g ms of a step, ranks with the same work "
            "%.3g ms",
            rank, 1e3 * (double)x->low_s, 1e3 * (double)x->other_s);
        weft_session__note_slow(s);
    }
}

static void print_slow(const weft_session *s, weft_text *t)
{
    const weft_slow *x = &s->times.slow;
    int              n = 0;
    weft_text_add(t, ", \"slow_ranks\": [");
    for (int r = 0; r < x->n; r++)
        if (x->rank[r].slow) weft_text_add(t, "%s%d", n++ ? ", " : "", r);
    weft_text_add(t, "]");
}

weft_status weft_session__open_status(weft_session *s)
{
    int    n   = s->now->comm ? s->now->comm->world : 1;
    member own = {
        .pid = getpid(), .memory_bytes = s->r.mem_peak_bytes, .work = count_work(s)};
    member   *all  = calloc((size_t)n, sizeof *all);
    weft_text plan = {0};
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    gethostname(own.host, sizeof own.host - 1);
    weft_status st      = weft_session__gather(s, &own, sizeof own, all);
    s->status.members.n = 0;
    if (st == WEFT_OK) print_members(all, n, &s->status.members);
    if (st == WEFT_OK) st = keep_hosts(s->now, all, n);
    if (st == WEFT_OK) st = begin_slow(s, all, n);
    if (st == WEFT_OK) st = weft_session__open_links(s);
    if (s->now->plan) weft_strategy_print(&s->now->plan->strategy, &plan);
    for (int r = 0; s->now->plan && s->now->plan->share && r < s->now->plan->strategy.dp;
         r++)
        weft_text_add(&plan, "%s%d", r ? "," : " batch_split=", s->now->plan->share[r]);
    snprintf(s->status.plan, sizeof s->status.plan, "%s", plan.s ? plan.s : "dp=1");
    s->status.n_rank      = n;
    s->status.n_copy      = weft_session__count_copies(s);
    s->status.writes      = weft_session__writes(s);
    s->status.predicted_s = s->now->predicted_s;
    weft_text_fini(&plan);
    free(all);
    weft_session__write_status(s, true);
    return st;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the newest steps; NAN: none yet. */
static double find_step_s(const weft_session *s)
{
    double  x[N_MEDIAN];
    int64_t n = s->times.n_step < N_MEDIAN ? s->times.n_step : N_MEDIAN;
    if (!s->times.step_s) return NAN;
    for (int64_t i = 0; i < n; i++)
        x[i] = s->times.step_s[(s->times.n_step - 1 - i) % WEFT_SESSION__MAX_TIMED];
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n ? x[n / 2] : NAN;
}

/* The newest checkpoint that this run knows of. */
static void print_saved(const weft_session *s, weft_text *t)
{
    char        path[4400];
    struct stat info;
    if (s->out.saved_step < 0 || !s->out.checkpoints) return;
    snprintf(path, sizeof path, "%s/MANIFEST-%08lld", s->out.checkpoints,
             (long long)s->out.saved_step);
    if (stat(path, &info)) return;
    weft_text_add(t, ", \"saved_step\": %lld", (long long)s->out.saved_step);
    weft_text_put_member(t, "saved_time",
                         (double)info.st_mtim.tv_sec +
                             1e-9 * (double)info.st_mtim.tv_nsec);
}

static void print_status(const weft_session *s, const char *state, const char *reason,
                         weft_text *t)
{
    double step_s = s->r.step_ms_median > 0 ? 1e-3 * s->r.step_ms_median : find_step_s(s);
    char   host[64] = "";
    gethostname(host, sizeof host - 1);
    weft_text_add(t, "{\"format\": 1, \"state\": \"%s\"", state);
    weft_text_put_member(t, "time", wall_clock_s());
    weft_text_put_string_member(t, "host", host);
    weft_text_add(t, ", \"pid\": %lld, \"pid_start\": %lld", (long long)getpid(),
                  find_start());
    if (weft_session__has_agent(s))
        weft_text_add(t, ", \"agent\": %lld", (long long)getppid());
    weft_text_add(t, ", \"step\": %lld, \"steps\": %lld", (long long)s->r.steps,
                  (long long)s->job.steps);
    weft_text_put_member(t, "loss", s->r.loss);
    weft_text_put_member(t, "step_s", step_s);
    weft_text_put_member(t, "predicted_step_s",
                         s->status.predicted_s > 0 ? s->status.predicted_s : NAN);
    weft_text_put_member(t, "tokens_per_s", (double)(s->job.batch * s->job.seq) / step_s);
    print_saved(s, t);
    print_slow(s, t);
    weft_text_add(t, ", \"ranks\": %d", s->status.n_rank);
    if (weft_session__has_agent(s))
        weft_text_add(t, ", \"copies\": %d", s->status.n_copy);
    weft_text_put_string_member(t, "plan", s->status.plan);
    weft_text_add(t, ", \"members\": %s, \"reason\": ",
                  s->status.members.s ? s->status.members.s : "[]");
    weft_text_put_quoted(t, reason);
    weft_text_add(t, "}\n");
}

static void replace_file(const weft_session *s, const weft_text *t)
{
    char path[4352], temp[4400];
    snprintf(path, sizeof path, "%s/status.json", s->out.folder);
    snprintf(temp, sizeof temp, "%s.tmp", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return;
    bool fine = write(fd, t->s, t->n) == (ssize_t)t->n;
    if (close(fd) != 0 || !fine || rename(temp, path) != 0) (void)unlink(temp);
}

static void write_now(weft_session *s, const char *state, const char *reason)
{
    weft_text t = {0};
    print_status(s, state, reason, &t);
    if (weft_text_status(&t) == WEFT_OK) replace_file(s, &t);
    weft_text_fini(&t);
    s->status.written_s = weft_clock_s();
}

void weft_session__write_status(weft_session *s, bool at_once)
{
    if (!s->status.writes) return;
    if (at_once || weft_clock_s() - s->status.written_s >= EVERY_S)
        write_now(s, "running", "");
}

void weft_session__end_status(weft_session *s, weft_status st)
{
    char reason[512] = "";
    if (!s->status.writes) return;
    if (st != WEFT_OK) snprintf(reason, sizeof reason, "%s", weft_error_text());
    if (st == WEFT_OK && s->r.stopped)
        snprintf(reason, sizeof reason, "signal %d", s->r.stopped);
    write_now(s,
              st != WEFT_OK  ? "failed"
              : s->r.stopped ? "stopped"
                             : "finished",
              reason);
    if (st != WEFT_OK) (void)WEFT_FAIL(st, "%s", reason);
}
