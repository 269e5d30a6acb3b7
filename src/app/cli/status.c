/* weft status */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/io.h"
#include "ckpt/ckpt.h"
#include "cli/find_agent.h"
#include "cli/request.h"
#include "launch/environment.h"
#include "launch/living.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_status = {
    .name    = "status",
    .usage   = "[JOB|DIR] [options]",
    .about   = "how a job is doing: step, plan, members, predicted and measured step, "
               "checkpoint",
    .more    = "DIR is the output folder of the job (out), or the JOB file names it.\n"
               "A job that has ended says how.  Where rank 0's process is gone or silent,\n"
               "the other agents are asked: the job recovers or waits for hosts, or all\n"
               "are gone and it was killed.  Agents of other hosts are asked with the\n"
               "job's token (--token-file).",
    .example = "weft status out --json",
    .run     = run,
};

enum {
    N_EVENT = 4 /* the last ones are shown */
};

static const double STALE_S   = 5;   /* a job that runs is heard of every second */
static const double UNKNOWN_S = 600; /* for how long a job that may run is followed */

/* What status.json says, and what can be seen from here. */
typedef struct job_status {
    const char     *state, *host, *plan, *reason;
    char            waiting[120]; /* of a job that runs: for what; "": it does not */
    bool            gone;         /* rank 0's process is, which was on this host */
    weft_cli_agents agents;       /* of a job that says it runs */
    double          time, loss, step_s, predicted_s, tokens_per_s;
    int64_t         pid, pid_start, step, steps, ranks;
    int64_t         agent; /* 0: there is none */
    double          age_s;
    /* of the newest whole checkpoint; step -1: there is none */
    int64_t checkpoint_step;
    double  checkpoint_age_s;
} job_status;

static double wall_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Is it the process that wrote the file, and not another one with its number?  One that was not
 * waited for is gone. */
static bool is_there(int64_t pid, int64_t start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strrchr(text, ')');
    if (at && at[1] && strchr("ZX", at[2])) return false;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at && strtoll(at, NULL, 10) == start;
}

static bool is_here(const job_status *j)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    return !strcmp(host, j->host);
}

static void find_waiting(const char *dir, job_status *j)
{
    weft_text why = {0};
    if (weft_cli_find_waiting(dir, &why))
        snprintf(j->waiting, sizeof j->waiting, "%s",
                 why.n ? why.s : "waiting for what is lost");
    weft_text_fini(&why);
}

/* As an agent sees it.  Rank 0's process may be gone and its agent not have noticed yet. */
static const char *combine_states(const job_status *j)
{
    const char *state = j->agents.state;
    if (!strcmp(state, "running") || !strcmp(state, "changing"))
        return j->gone ? "recovering" : state;
    return !strcmp(state, "ending") && !j->gone ? "running" : state;
}

/* Does a job that says so run?  Rank 0's process may be lost, and the job go on without it. */
static void find_state(const char *dir, const weft_cli_remote *remote, job_status *j)
{
    bool here = is_here(j);
    if (strcmp(j->state, "running") != 0) return;
    j->gone = here && !is_there(j->pid, j->pid_start);
    weft_cli_ask_agents(dir, here ? j->agent : 0,
                        j->gone || j->age_s > STALE_S ? remote : NULL, &j->agents);
    if (j->agents.found)
        j->state = combine_states(j);
    else if (j->gone)
        j->state = *j->agents.unreachable ? "unknown" : "killed";
    else
        find_waiting(dir, j);
    if (!strcmp(j->state, "waiting"))
        snprintf(j->waiting, sizeof j->waiting, "%s", j->agents.why);
}

/* null is no number. */
static weft_status get_real(const weft_doc *d, const char *key, double *out)
{
    const weft_node *n = weft_node_get(weft_doc_root(d), key);
    *out               = NAN;
    if (!n || n->kind == WEFT_NODE_NULL) return WEFT_OK;
    return weft_doc_get_double(d, weft_doc_root(d), key, out);
}

static weft_status read_status(const weft_doc *d, job_status *j)
{
    const weft_node *root = weft_doc_root(d);
    if (root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: no map", weft_doc_file(d));
    WEFT_TRY(weft_doc_get_string(d, root, "state", &j->state));
    WEFT_TRY(weft_doc_get_string(d, root, "host", &j->host));
    WEFT_TRY(weft_doc_get_string(d, root, "plan", &j->plan));
    WEFT_TRY(weft_doc_get_string(d, root, "reason", &j->reason));
    WEFT_TRY(weft_doc_get_int(d, root, "pid", &j->pid));
    WEFT_TRY(weft_doc_get_int(d, root, "pid_start", &j->pid_start));
    WEFT_TRY(weft_doc_get_int(d, root, "step", &j->step));
    WEFT_TRY(weft_doc_get_int(d, root, "steps", &j->steps));
    WEFT_TRY(weft_doc_get_int(d, root, "ranks", &j->ranks));
    if (weft_node_get(root, "agent"))
        WEFT_TRY(weft_doc_get_int(d, root, "agent", &j->agent));
    WEFT_TRY(get_real(d, "time", &j->time));
    WEFT_TRY(get_real(d, "loss", &j->loss));
    WEFT_TRY(get_real(d, "step_s", &j->step_s));
    WEFT_TRY(get_real(d, "predicted_step_s", &j->predicted_s));
    WEFT_TRY(get_real(d, "tokens_per_s", &j->tokens_per_s));
    if (!j->state || !j->host || !j->plan || !j->reason || !isfinite(j->time))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: it is no status of a job", weft_doc_file(d));
    j->age_s = wall_clock_s() - j->time;
    return WEFT_OK;
}

/* The newest checkpoint whose manifest and lengths are right. */
static void find_checkpoint(const char *dir, job_status *j)
{
    char            place[4200], path[4352];
    weft_ckpt_info *list = NULL;
    struct stat     info;
    int             n  = 0;
    j->checkpoint_step = -1;
    snprintf(place, sizeof place, "%s/checkpoints", dir);
    if (!weft_io_exists(place) || weft_ckpt_list(place, false, &list, &n) != WEFT_OK)
        return;
    for (int i = 0; i < n && j->checkpoint_step < 0; i++) {
        snprintf(path, sizeof path, "%s/MANIFEST-%08lld", place, (long long)list[i].step);
        if (list[i].status != WEFT_OK || stat(path, &info) != 0) continue;
        j->checkpoint_step  = list[i].step;
        j->checkpoint_age_s = wall_clock_s() - (double)info.st_mtim.tv_sec -
                              1e-9 * (double)info.st_mtim.tv_nsec;
    }
    free(list);
}

/* 754 -> "12 min 34 s" */
static const char *age_text(double s, char *buf, size_t n)
{
    long long t = s > 0 ? (long long)s : 0;
    if (t >= 3600)
        snprintf(buf, n, "%lld h %lld min", t / 3600, t / 60 % 60);
    else if (t >= 60)
        snprintf(buf, n, "%lld min %lld s", t / 60, t % 60);
    else
        snprintf(buf, n, "%lld s", t);
    return buf;
}

/* What has changed since when, and who decides what follows. */
static void print_change(const weft_cli_agents *a, weft_text *t)
{
    char age[64];
    if (!a->found || !strcmp(a->state, "running")) return;
    if (a->since_s > 0)
        weft_text_add(t, "since       %s ago%s%s\n",
                      age_text(wall_clock_s() - a->since_s, age, sizeof age),
                      strcmp(a->state, "waiting") != 0 && *a->why ? ": " : "",
                      strcmp(a->state, "waiting") != 0 ? a->why : "");
    if (*a->lost) weft_text_add(t, "lost        %s\n", a->lost);
    if (*a->leader) weft_text_add(t, "leader      %s at %s\n", a->leader, a->leader_at);
}

static void print_state(const job_status *j, weft_text *t)
{
    char age[64];
    weft_text_add(t, "state       %s", *j->waiting ? j->waiting : j->state);
    if (*j->reason) weft_text_add(t, " (%s)", j->reason);
    weft_text_add(t, ", process %lld on %s%s, last heard of %s ago\n", (long long)j->pid,
                  j->host, j->gone ? " is gone" : "",
                  age_text(j->age_s, age, sizeof age));
    if (!strcmp(j->state, "unknown"))
        weft_text_add(t, "unreachable %s\n", j->agents.unreachable);
    print_change(&j->agents, t);
    if (j->agents.found && *j->agents.joining)
        weft_text_add(t, "joining     %s\n", j->agents.joining);
}

static void print_step(const job_status *j, weft_text *t)
{
    weft_text_add(t, "step        %lld of %lld", (long long)j->step, (long long)j->steps);
    if (isfinite(j->loss)) weft_text_add(t, ", loss %.4g", j->loss);
    weft_text_add(t, "\nstep time   ");
    if (isfinite(j->step_s))
        weft_text_add(t, "%.4g s measured, %.4g tokens/s", j->step_s, j->tokens_per_s);
    else
        weft_text_add(t, "no step yet");
    if (isfinite(j->predicted_s))
        weft_text_add(t, ", %.4g s predicted\n", j->predicted_s);
    else
        weft_text_add(t, ", none predicted\n");
}

static void print_member(const weft_doc *d, const weft_node *m, weft_text *t)
{
    int64_t     rank = 0, pid = 0, bytes = 0;
    const char *host = "";
    if (m->kind != WEFT_NODE_MAP || weft_doc_get_int(d, m, "rank", &rank) != WEFT_OK ||
        weft_doc_get_int(d, m, "pid", &pid) != WEFT_OK ||
        weft_doc_get_int(d, m, "memory_bytes", &bytes) != WEFT_OK ||
        weft_doc_get_string(d, m, "host", &host) != WEFT_OK)
        return;
    weft_text_add(t, "rank %-6lld process %lld on %s, %.4g MB\n", (long long)rank,
                  (long long)pid, host, 1e-6 * (double)bytes);
}

static void print_agent(const weft_doc *d, const weft_node *m, weft_text *t)
{
    int64_t     ranks = 0;
    const char *host = "", *address = "";
    if (m->kind != WEFT_NODE_MAP || weft_doc_get_int(d, m, "ranks", &ranks) != WEFT_OK ||
        weft_doc_get_string(d, m, "host", &host) != WEFT_OK ||
        weft_doc_get_string(d, m, "address", &address) != WEFT_OK)
        return;
    weft_text_add(t, "agent       %s at %s, %lld rank%s\n", host, address,
                  (long long)ranks, ranks == 1 ? "" : "s");
}

/* Of each part of the state, in the memory of so many. */
static void print_copies(const weft_doc *d, weft_text *t)
{
    int64_t n = 0;
    if (!weft_node_get(weft_doc_root(d), "copies") ||
        weft_doc_get_int(d, weft_doc_root(d), "copies", &n) != WEFT_OK)
        return;
    if (n < 2)
        weft_text_add(t,
                      "copies      1: some of the state has no other copy in memory\n");
    else
        weft_text_add(t, "copies      %lld of each part of the state\n", (long long)n);
}

static void print_slow(const weft_node *slow, weft_text *t)
{
    if (!slow || slow->kind != WEFT_NODE_LIST || !slow->u.list.n) return;
    weft_text_add(t, "slow        rank%s", slow->u.list.n > 1 ? "s" : "");
    for (int i = 0; i < slow->u.list.n; i++)
        if (slow->u.list.node[i]->kind == WEFT_NODE_INT)
            weft_text_add(t, " %lld", (long long)slow->u.list.node[i]->u.i);
    weft_text_add(t, ": busy for longer than ranks with the same work\n");
}

/* The agents of the newest view that has committed a step; text: for people. */
static void put_agents(const char *dir, bool text, weft_text *t)
{
    weft_doc *d = NULL;
    if (!weft_launch_find_last_view(dir, &d)) return;
    const weft_node *root = weft_doc_root(d), *list = weft_node_get(root, "agents");
    int64_t          epoch = 0;
    (void)weft_doc_get_int(d, root, "epoch", &epoch);
    if (!text) {
        weft_text_add(t, ", \"epoch\": %lld", (long long)epoch);
        if (list) weft_text_add(t, ", \"agents\": "), weft_node_print_json(list, t);
    } else if (!list) {
        weft_text_add(t, "view        %lld\n", (long long)epoch);
    } else if (list->kind == WEFT_NODE_LIST) {
        weft_text_add(t, "view        %lld: %d host%s\n", (long long)epoch,
                      list->u.list.n, list->u.list.n == 1 ? "" : "s");
        for (int i = 0; i < list->u.list.n; i++) print_agent(d, list->u.list.node[i], t);
    }
    weft_doc_destroy(d);
}

static void print_lines(const weft_doc *d, const job_status *j, weft_text *t)
{
    const weft_node *m = weft_node_get(weft_doc_root(d), "members");
    char             age[64];
    print_state(j, t);
    print_step(j, t);
    if (j->checkpoint_step >= 0)
        weft_text_add(t, "checkpoint  of step %lld, %s old\n",
                      (long long)j->checkpoint_step,
                      age_text(j->checkpoint_age_s, age, sizeof age));
    else
        weft_text_add(t, "checkpoint  none\n");
    weft_text_add(t, "plan        %s, %lld rank%s\n", j->plan, (long long)j->ranks,
                  j->ranks == 1 ? "" : "s");
    print_copies(d, t);
    for (int i = 0; m && m->kind == WEFT_NODE_LIST && i < m->u.list.n; i++)
        print_member(d, m->u.list.node[i], t);
    print_slow(weft_node_get(weft_doc_root(d), "slow_ranks"), t);
}

static void print_agents_json(const weft_cli_agents *a, weft_text *t)
{
    if (*a->unreachable) weft_text_put_string_member(t, "unreachable", a->unreachable);
    if (a->found && *a->joining) weft_text_put_string_member(t, "joining", a->joining);
    if (!a->found || !strcmp(a->state, "running")) return;
    if (a->since_s > 0) weft_text_put_member(t, "since", a->since_s);
    weft_text_put_string_member(t, "why", a->why);
    if (*a->lost) weft_text_put_string_member(t, "lost", a->lost);
    if (!*a->leader) return;
    weft_text_put_string_member(t, "leader", a->leader);
    weft_text_put_string_member(t, "leader_at", a->leader_at);
}

/* What the job wrote, with what can be seen from here at the end; state is what it is now. */
static void print_json(const weft_doc *d, const job_status *j, weft_text *t)
{
    const weft_node *root = weft_doc_root(d);
    weft_text_add(t, "{\"state\": \"%s\"", j->state);
    if (*j->waiting) {
        weft_text_put_string_member(t, "waiting", j->waiting);
    }
    print_agents_json(&j->agents, t);
    for (int i = 0; i < root->u.list.n; i++) {
        const weft_node *n = root->u.list.node[i];
        if (!strcmp(n->key, "state")) continue;
        weft_text_add(t, ", ");
        weft_text_put_quoted(t, n->key);
        weft_text_add(t, ": ");
        weft_node_print_json(n, t);
    }
    weft_text_add(t, ", \"age_s\": %.3f, \"checkpoint_step\": ", j->age_s);
    if (j->checkpoint_step >= 0)
        weft_text_add(t, "%lld, \"checkpoint_age_s\": %.3f}",
                      (long long)j->checkpoint_step, j->checkpoint_age_s);
    else
        weft_text_add(t, "null, \"checkpoint_age_s\": null}");
}

/* There is no status.json. */
static weft_status refuse_folder(const char *dir, const char *path)
{
    char log[4352], other[4352], host[64];
    weft_launch_host_name(host, sizeof host);
    snprintf(log, sizeof log, "%s/rank0.log", dir);
    snprintf(other, sizeof other, "%s/%s-0.log", dir, host);
    if (weft_io_exists(log) || weft_io_exists(other))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: a folder of logs (--log-dir), not the output of a job; of a "
            "program (weft run -- PROGRAM) steps are not known: weft events %s "
            "shows its incidents, --metrics its ranks",
            dir, dir);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: no job has run there (DIR is the output folder of a job)",
                     path);
}

/* Texts of *j are the document's, and the agents'. */
static weft_status load_status(const char *dir, const weft_cli_remote *remote,
                               weft_doc **d, job_status *j)
{
    char   path[4352], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/status.json", dir);
    if (!weft_io_exists(path)) return refuse_folder(dir, path);
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st = weft_doc_parse_json(path, text, n, d);
    if (st == WEFT_OK) st = read_status(*d, j);
    free(text);
    if (st == WEFT_OK) find_state(dir, remote, j);
    return st;
}

static void free_status(weft_doc *d, job_status *j)
{
    weft_cli_agents_fini(&j->agents);
    weft_doc_destroy(d);
}

/* Has it an end? */
static bool may_run(const job_status *j)
{
    static const char *const ends[] = {"finished", "stopped", "failed", "killed"};
    for (size_t k = 0; k < WEFT_COUNT(ends); k++)
        if (!strcmp(j->state, ends[k])) return false;
    return strcmp(j->state, "unknown") != 0 || j->age_s < UNKNOWN_S;
}

weft_status weft_cli_find_agent(const char *dir, weft_launch_agent *out)
{
    weft_doc   *d  = NULL;
    job_status  j  = {0};
    weft_status st = load_status(dir, NULL, &d, &j);
    if (st == WEFT_OK && !may_run(&j))
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: the job does not run: it is %s", dir, j.state);
    else if (st == WEFT_OK && !j.agent)
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "%s: the job's ranks are not replaced: start it by weft run with "
                       "recover=on",
                       dir);
    else if (st == WEFT_OK && !j.agents.found)
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "%s: no agent of the job answers on this host%s%s; --at HOST:PORT "
                       "asks one of another host",
                       dir, *j.agents.unreachable ? ": " : "", j.agents.unreachable);
    if (st == WEFT_OK) *out = j.agents.agent;
    free_status(d, &j);
    return st;
}

/* An agent whose folder rank 0 does not write, as it is on another host. */
static bool describe_agent(const char *dir, bool json, weft_text *t)
{
    weft_cli_agents a;
    char            path[4352];
    snprintf(path, sizeof path, "%s/status.json", dir);
    if (weft_io_exists(path)) return false;
    weft_cli_ask_agents(dir, 0, NULL, &a);
    bool found = a.found;
    if (found && json) {
        weft_text_add(t, "{\"state\": \"%s\"", a.state);
        print_agents_json(&a, t);
        weft_text_add(t, "}");
    } else if (found) {
        weft_text_add(t, "state       %s; rank 0 of the job writes on another host\n",
                      a.state);
        print_change(&a, t);
    }
    weft_cli_agents_fini(&a);
    return found;
}

static weft_status describe_job(const char *dir, const weft_cli_remote *remote, bool json,
                                weft_text *t)
{
    weft_doc   *d  = NULL;
    job_status  j  = {0};
    weft_status st = WEFT_OK;
    if (describe_agent(dir, json, t)) return weft_text_status(t);
    WEFT_GO(load_status(dir, remote, &d, &j));
    find_checkpoint(dir, &j);
    if (json) {
        print_json(d, &j, t);
        t->n--; /* its end: agents and the last events come before it */
        put_agents(dir, false, t);
        weft_text_add(t, ", \"events\": [");
        weft_cli_put_last_events(dir, N_EVENT, true, t);
        weft_text_add(t, "]}");
    } else {
        print_lines(d, &j, t);
        put_agents(dir, true, t);
        weft_cli_put_last_events(dir, N_EVENT, false, t);
    }
    st = weft_text_status(t);
out:
    free_status(d, &j);
    return st;
}

bool weft_cli_job_is_running(const char *dir)
{
    weft_doc  *d       = NULL;
    job_status j       = {0};
    bool       running = load_status(dir, NULL, &d, &j) == WEFT_OK && may_run(&j);
    free_status(d, &j);
    return running;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c        = &weft_cli_status;
    bool                    json     = false;
    int                     n_word   = 0;
    weft_text               t        = {0};
    weft_cli_remote         remote   = {0};
    const weft_cli_option   option[] = {
          {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON"},
          WEFT_CLI_REMOTE_OPTIONS(remote),
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word > 1) return weft_cli_usage(c, "expected one folder");
    if (remote.at && n_word)
        return weft_cli_usage(c, "--at names the job: no folder beside it");
    if (remote.at)
        return weft_cli_ask(
            c, &remote, &(weft_control_request){.ask = WEFT_CONTROL_STATUS, .json = json},
            WEFT_CLI_ANSWER_S);
    char        dir[4096];
    weft_status st = weft_cli_find_output(n_word ? argv[0] : NULL, dir, sizeof dir);
    if (st == WEFT_OK) st = describe_job(dir, &remote, json, &t);
    if (st == WEFT_OK) return weft_cli_put(c, &t, NULL);
    weft_text_fini(&t);
    return weft_cli_fail(c, st);
}
