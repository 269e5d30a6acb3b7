#include "cli/sim_events.h"

#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "goodput/goodput.h"
#include "planner/planner.h"
#include "planner/replan.h"

enum {
    MAX_INCIDENT = 65536,
    SEVERAL      = 3 /* hosts: two of them miss the same one */
};

/* Of --failure-timeout, where a second agent has not heard of a host either (member/hosts.h). */
static const double SUSPECT = 0.8;

weft_cli_sim_events weft_cli_events_default(void)
{
    return (weft_cli_sim_events){.failure_timeout_s = 10,
                                 .pause_s           = 0.7,
                                 .join_s            = 5,
                                 .restart_s         = 60,
                                 .checkpoint_s      = 600,
                                 .copies            = 2};
}

void weft_cli_events_options(weft_cli_sim_events *e, weft_cli_option *row)
{
    const weft_cli_option list[WEFT_CLI_N_EVENTS] = {
        {"events", 0, WEFT_CLI_TEXT, &e->file, "FILE",
         "a trace of hosts (ms,add|remove|replace,host): the goodput of the job"},
        {"incidents", 0, WEFT_CLI_TEXT, &e->incidents, "FILE",
         "incidents.jsonl of a run: its median pause instead of --pause"},
        {"step", 0, WEFT_CLI_REAL, &e->step_s, "S",
         "an undisturbed step of all hosts, as measured, instead of the planner's"},
        {"failure-timeout", 0, WEFT_CLI_REAL, &e->failure_timeout_s, "S",
         "until a host that is silent is missed (10; 0.8 of it by 3 hosts or more)"},
        {"pause", 0, WEFT_CLI_REAL, &e->pause_s, "S", "of a change of the view (0.7)"},
        {"join", 0, WEFT_CLI_REAL, &e->join_s, "S",
         "a host prepares so long while the others train (5)"},
        {"restart", 0, WEFT_CLI_REAL, &e->restart_s, "S", "from a checkpoint (60)"},
        {"notice", 0, WEFT_CLI_REAL, &e->notice_s, "S", "of a host that goes (none)"},
        {"checkpoint-every", 0, WEFT_CLI_REAL, &e->checkpoint_s, "S", "(600)"},
        {"copies", 0, WEFT_CLI_INT, &e->copies, "N", "of each region of state (2)"},
    };
    memcpy(row, list, sizeof list);
}

/* ---- measured pauses ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The pause of a line: to the next committed step, less that step.  Left out where the job did not
 * go on. */
static weft_status read_incident(const char *file, const char *line, size_t n, double *s,
                                 int *n_s)
{
    weft_doc   *d  = NULL;
    double      ms = -1, step_ms = 0;
    weft_status st = weft_doc_parse_json(file, line, n, &d);
    if (st == WEFT_OK) {
        const weft_node *m = weft_node_get(weft_doc_root(d), "ms");
        if (m && weft_node_get(m, "total")) st = weft_doc_get_double(d, m, "total", &ms);
        if (st == WEFT_OK && m && weft_node_get(m, "step"))
            st = weft_doc_get_double(d, m, "step", &step_ms);
    }
    if (st == WEFT_OK && ms >= 0 && *n_s < MAX_INCIDENT)
        s[(*n_s)++] = 1e-3 * (ms - step_ms);
    weft_doc_destroy(d);
    return st;
}

static weft_status read_pause(const char *file, double *pause_s)
{
    char       *text = NULL;
    size_t      n;
    int         n_s = 0;
    double     *s   = malloc(sizeof *s * MAX_INCIDENT);
    weft_status st  = WEFT_OK;
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for incidents");
    WEFT_GO(weft_io_read_as(file, WEFT_IO_PIPES | WEFT_IO_LARGE, &text, &n));
    for (char *at = text, *end = text + n, *nl; at < end; at = nl + 1) {
        nl = memchr(at, '\n', (size_t)(end - at));
        if (!nl) nl = end;
        if (nl > at) WEFT_GO(read_incident(file, at, (size_t)(nl - at), s, &n_s));
    }
    if (!n_s) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no incident with a pause", file));
    qsort(s, (size_t)n_s, sizeof *s, by_size);
    *pause_s = s[n_s / 2];
out:
    free(text);
    free(s);
    return st;
}

/* ---- steps on so many hosts ---- */

typedef struct host_steps {
    double *step_s; /* [n] */
    int     n_host, least;
} host_steps;

static weft_status count_hosts(const weft_cluster *c, int *n_host, int *per_host)
{
    if (c->n_node != 1 || c->node[0].n_device < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "--events: hosts of one kind are needed, as in "
                                       "--cluster \"30 x (4 x a100-80g)\"");
    *n_host   = c->node[0].count;
    *per_host = c->node[0].n_device;
    return WEFT_OK;
}

/* By default an elastic job keeps its bits (reduction: invariant). */
static weft_reduction find_reduction(const weft_cli_spec *spec)
{
    return spec->spec.reduction == WEFT_REDUCTION_AUTO ? WEFT_REDUCTION_INVARIANT
                                                       : spec->spec.reduction;
}

static const char *find_dtype(const weft_cli_spec *spec, const weft_cluster *c)
{
    return spec->dtype ? spec->dtype : weft_cli_usual_dtype(c);
}

/* The plan that the job starts with, on all hosts. */
static weft_status plan_start(const weft_cli_spec *spec, const weft_cluster *c,
                              int n_rank, weft_plan **out)
{
    weft_planner_answer *a = NULL;
    weft_planner_request q = {.cluster   = c,
                              .spec      = spec->spec,
                              .world     = n_rank,
                              .keep_bits = true,
                              .fast      = true,
                              .with_plan = true};
    q.spec.reduction       = find_reduction(spec);
    if (!spec->micro_batch) q.spec.micro_batch = 0;
    if (!spec->lanes) q.spec.lanes = 0;
    weft_search_open(&q.constraints);
    weft_status st = weft_planner_plan(&q, &a);
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG) { /* some of them stay idle */
        q.world = 0;
        st      = weft_planner_plan(&q, &a);
    }
    WEFT_TRY(st);
    *out    = a->plan;
    a->plan = NULL;
    weft_planner_destroy(a);
    return WEFT_OK;
}

/* Fewer hosts go on as a running job does (planner/replan.h): micro_batch, lanes, tp, cp and ep
 * stay.  A job that does not fit n hosts has no step there. */
static weft_status fill_steps(weft_replanner *r, const weft_plan *start, int per_host,
                              host_steps *h)
{
    int        *ranks = malloc(sizeof *ranks * (size_t)h->n_host);
    weft_status st    = WEFT_OK;
    if (!ranks) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d hosts", h->n_host);
    for (int n = 0; n < h->n_host; n++) ranks[n] = per_host;
    for (int n = h->n_host; n >= 1; n--) {
        weft_replan_answer  a = {0};
        weft_replan_request q = {
            .was = start, .n_rank = n * per_host, .n_host = n, .host_ranks = ranks};
        st           = weft_replanner_decide(r, &q, &a);
        h->step_s[n] = st == WEFT_OK ? a.step_s : 0;
        weft_replan_answer_fini(&a);
        if (st != WEFT_OK || h->step_s[n] <= 0) break; /* nor does it fit fewer */
        h->least = n;
    }
    free(ranks);
    return st == WEFT_ERR_ARG || st == WEFT_ERR_NOFIT ? WEFT_OK : st;
}

/* More hosts are faster in proportion: there is no plan to price. */
static weft_status take_step(double step_s, int most, host_steps *h)
{
    h->n_host = most;
    h->least  = 1;
    h->step_s = calloc((size_t)most + 1, sizeof *h->step_s);
    if (!h->step_s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d hosts", most);
    for (int n = 1; n <= most; n++) h->step_s[n] = step_s * most / n;
    return WEFT_OK;
}

static weft_status plan_steps(const weft_cli_spec *spec, const weft_cluster *c, int most,
                              host_steps *h)
{
    weft_training     t        = {0};
    weft_plan        *start    = NULL;
    weft_replanner   *r        = NULL;
    weft_compile_spec of       = spec->spec;
    weft_status       st       = WEFT_OK;
    int               per_host = 0;
    WEFT_TRY(count_hosts(c, &h->n_host, &per_host));
    if (h->n_host > most) h->n_host = most;
    h->step_s = calloc((size_t)h->n_host + 1, sizeof *h->step_s);
    if (!h->step_s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d hosts", h->n_host);
    WEFT_GO(plan_start(spec, c, h->n_host * per_host, &start));
    of.micro_batch = start->of.micro_batch;
    of.lanes       = start->of.lanes;
    of.recompute   = (weft_strategy_recompute)start->strategy.recompute;
    of.dtype       = find_dtype(spec, c);
    of.reduction   = find_reduction(spec);
    if (weft_cluster_is_cuda(c)) weft_compile_for_cuda(&of);
    WEFT_GO(weft_compile_training(&of, &t));
    WEFT_GO(weft_replanner_create(&(weft_replan_job){.training = &t, .cluster = c}, &r));
    WEFT_GO(fill_steps(r, start, per_host, h));
    if (!h->least)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_NOFIT, "the job does not fit %d hosts", h->n_host));
out:
    weft_replanner_destroy(r);
    weft_plan_destroy(start);
    weft_training_fini(&t);
    return st;
}

/* ---- what comes out ---- */

static void print_text(const weft_goodput_result *r, const weft_goodput_spec *s,
                       const host_steps *h, weft_text *t)
{
    double wall = r->wall_s;
    weft_text_add(t,
                  "goodput %.1f %%: %lld committed steps in %.2f h, %.4g s each on %d "
                  "hosts, %.4g on %d\n",
                  100 * r->effective_s / wall, (long long)r->n_committed, wall / 3600,
                  h->step_s[h->n_host], h->n_host, h->step_s[h->least], h->least);
    weft_text_add(t,
                  "  %d changes of the view, %d hosts lost without notice, %d times back "
                  "to a checkpoint\n",
                  r->n_view, r->n_lost, r->n_restart);
    weft_text_add(
        t,
        "  pauses %.2f %%, lost parts of steps %.2f %%, steps run again %.2f %%, "
        "too few hosts %.2f %%, hosts that were joining %.2f %%\n",
        100 * r->pause_s / wall, 100 * r->torn_s / wall, 100 * r->repeated_s / wall,
        100 * r->waiting_s / wall, 100 * r->idle_s / wall);
    weft_text_add(
        t,
        "  assumed: %d copies of state, %g s until a loss is noticed, "
        "%.3g s pause, %g s to join, %g s notice, checkpoints each %g s, %g s to "
        "restart from one\n",
        s->copies, s->detect_s, s->pause_s, s->join_s, s->notice_s, s->checkpoint_s,
        s->restart_s);
}

static void print_json(const weft_goodput_result *r, const weft_goodput_spec *s,
                       const host_steps *h, weft_text *t)
{
    weft_text_add(
        t,
        "{\"effective\": %.6g, \"wall_s\": %.6g, \"steps\": %lld, \"views\": %d, "
        "\"lost_hosts\": %d, \"restarts\": %d, \"pause_s\": %.6g, \"torn_s\": "
        "%.6g, \"repeated_s\": %.6g, \"waiting_s\": %.6g, \"joining_s\": %.6g, "
        "\"step_s\": [",
        r->effective_s / r->wall_s, r->wall_s, (long long)r->n_committed, r->n_view,
        r->n_lost, r->n_restart, r->pause_s, r->torn_s, r->repeated_s, r->waiting_s,
        r->idle_s);
    for (int n = 1; n <= h->n_host; n++)
        weft_text_add(t, "%s%.6g", n > 1 ? ", " : "", h->step_s[n]);
    weft_text_add(t, "], \"pause\": %.6g, \"copies\": %d}", s->pause_s, s->copies);
}

static weft_status simulate(const weft_cli_sim_events *e, const weft_cli_spec *spec,
                            const weft_cluster *c, bool json, weft_text *t)
{
    weft_goodput_trace  trace = {0};
    weft_goodput_result r;
    host_steps          h    = {0};
    char               *text = NULL;
    size_t              n;
    weft_status         st = WEFT_OK;
    weft_goodput_spec   s  = {.detect_s     = e->failure_timeout_s,
                              .pause_s      = e->pause_s,
                              .join_s       = e->join_s,
                              .restart_s    = e->restart_s,
                              .notice_s     = e->notice_s,
                              .checkpoint_s = e->checkpoint_s,
                              .copies       = (int)e->copies};
    WEFT_GO(weft_io_read_as(e->file, WEFT_IO_PIPES | WEFT_IO_LARGE, &text, &n));
    WEFT_GO(weft_goodput_parse(e->file, text, n, &trace));
    if (trace.most >= SEVERAL) s.detect_s *= SUSPECT;
    if (e->incidents) WEFT_GO(read_pause(e->incidents, &s.pause_s));
    WEFT_GO(e->step_s > 0 ? take_step(e->step_s, trace.most, &h)
                          : plan_steps(spec, c, trace.most, &h));
    s.step_s   = h.step_s;
    s.n_step_s = h.n_host + 1;
    WEFT_GO(weft_goodput_run(&trace, &s, &r));
    (json ? print_json : print_text)(&r, &s, &h, t);
out:
    weft_goodput_trace_fini(&trace);
    free(text);
    free(h.step_s);
    return st;
}

int weft_cli_events_run(const weft_cli_command *c, const weft_cli_sim_events *e,
                        const weft_cli_spec *spec, const char *cluster, bool json)
{
    weft_cluster *machines = NULL;
    weft_text     t        = {0};
    if (!cluster) return weft_cli_usage(c, "--events: --cluster says what the hosts are");
    if (e->copies < 1 || e->copies > 64)
        return weft_cli_usage(c, "--copies: from 1 to 64");
    if (!(e->checkpoint_s > 0)) return weft_cli_usage(c, "--checkpoint-every: above 0");
    weft_status st = weft_cluster_load(cluster, NULL, &machines);
    if (st == WEFT_OK) st = simulate(e, spec, machines, json, &t);
    weft_cluster_destroy(machines);
    if (st == WEFT_OK) return weft_cli_put(c, &t, NULL);
    weft_text_fini(&t);
    return weft_cli_fail(c, st);
}
