/* How a job runs: micro_batch, lanes and the plan.  One decision for weft train, weft run and
 * --print-plan.
 * In: the job's keys, the number of ranks, the checkpoint to resume from.  Out: the job with its
 * micro_batch and lanes, and a plan (none for one rank).
 *
 * (1) A resume keeps the checkpoint's micro_batch and lanes.  Where the job gives others, or
 *     where the ranks cannot work with these, the keys that --allow names are taken from the job
 *     or chosen anew; the change is logged and goes into the checkpoint's history.
 * (2) Without --allow such a resume is refused, but under reduction: fixed.  A remedy is named only
 *     after it was tried here.
 * (3) A pipeline with one micro-batch a step is never run where one rank is predicted to be
 *     faster, or less than 10 %
 *     slower (choose.c): the ranks are data parallel instead, or refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"
#include "session/cut.h"
#include "session/session.h"
#include "session/plans_priv.h"

enum {
    FEW         = 8,       /* of which each number is tried */
    MAX_COMMAND = 400,     /* characters of a command that an error repeats */
    MAX_TEXT    = 64 << 20 /* bytes of a plan or an error that rank 0 sends */
};

typedef struct decision {
    weft_job      job; /* with micro_batch, lanes and recompute as they will be */
    weft_plan    *plan;
    weft_training training; /* that the plan was made for, where it was built here */
    weft_strategy strategy; /* of the job's keys, where these make the plan */
    bool          chosen;   /* the plan is the planner's */
    double        step_s;   /* predicted; 0: nothing predicts it */
    /* An error of micro_batch and lanes: the ranks cannot work with them, or they are not the
     * checkpoint's. */
    bool ranks_fail, differs;
    /* it works, but one rank is faster: a pipeline has too few micro-batches */
    bool idle;
    char info[800], warn[1100], cut[400]; /* for the log */
} decision;

static void drop_decision(decision *d)
{
    weft_plan_destroy(d->plan);
    weft_training_fini(&d->training);
    d->plan = NULL;
}

/* ---- one attempt ---- */

static bool is_alone(const weft_session *s, const weft_job *j)
{
    const weft_strategy *y = &j->strategy;
    return s->now->n_rank <= 1 && !j->plan_file && !y->dp && !y->tp && !y->cp && !y->ep &&
           y->pp == 1;
}

/* More data-parallel ranks than the checkpoint has lanes: plan.c's remedy is for a job that
 * begins. */
static weft_status check_lanes(const weft_session *s, decision *d)
{
    int dp = d->strategy.dp ? d->strategy.dp : 1;
    if (!s->resume || d->job.plan_file || dp <= d->job.lanes) return WEFT_OK;
    d->ranks_fail = true;
    return WEFT_FAIL(WEFT_ERR_ARG, "dp=%d is more than the job's %lld lane%s", dp,
                     (long long)d->job.lanes, d->job.lanes > 1 ? "s" : "");
}

/* Standby replicas are updated where gradients arrive, on the device. */
static weft_status check_offload(const weft_strategy *y, int offload)
{
    int at, world = weft_strategy_world(y);
    if (!offload || y->copies < 2 || world < 2) return WEFT_OK;
    if (weft_strategy_sharers(y, 0, &at) > 1 && y->standby < 1) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "copies=%d with offload=optimizer: %d ranks would hold standby "
                     "replicas, which are not offloaded; take dp=%d (its replicas are "
                     "copies), offload=none or copies=1",
                     y->copies, world, y->copies);
}

/* With standby replicas where copies would be on too few of the hosts. */
static weft_status make_plan(const weft_session *s, const weft_training *t, decision *d)
{
    int *count = WEFT_ARENA_ARRAY(s->now->arena, int, s->now->n_rank + 1);
    WEFT_TRY(weft_arena_status(s->now->arena));
    int n_host = weft_session__count_by_host(s, count);
    if (!d->job.plan_file) weft_strategy_spread(&d->strategy, n_host, count);
    WEFT_TRY(weft_session__plan_make(t, &d->job, s->now->n_rank, &d->strategy, &d->plan));
    if (d->job.plan_file) weft_strategy_spread(&d->plan->strategy, n_host, count);
    return check_offload(&d->plan->strategy, d->plan->strategy.offload);
}

/* The plan of the job's keys or file; without any, all ranks are data parallel. */
static weft_status follow_keys(const weft_session *s, decision *d)
{
    weft_job *j = &d->job;
    if (is_alone(s, j)) {
        weft_job_default_cut(j);
        return weft_job_check_cut(j, 1);
    }
    WEFT_TRY(weft_session__plan_open(j, s->now->n_rank, &d->strategy, &d->plan));
    WEFT_TRY(check_lanes(s, d));
    weft_compile_spec    spec = weft_job_spec(j);
    const weft_training *t    = &s->training;
    if (!t->graph || !weft_training_is_for(t, &spec)) {
        WEFT_TRY(weft_compile_training(&spec, &d->training));
        t = &d->training;
    }
    return make_plan(s, t, d);
}

static weft_status refuse_sequential(const weft_session *s, const weft_session__choice *c,
                                     decision *d)
{
    const weft_job *j = &d->job;
    d->ranks_fail     = true;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%d ranks would compute sequentially, as a step is one micro-batch "
        "for each pipeline (batch %lld, micro_batch %lld, lanes %lld): %.3g s a step "
        "predicted, %.3g s on one rank",
        s->now->n_rank, (long long)j->batch, (long long)j->micro_batch,
        (long long)j->lanes, c->step_s, c->alone_s);
}

/* The planner's fastest plan is a pipeline whose ranks take turns: data parallel ranks work at
 * the same time, where the batch, micro_batch and lanes allow them. */
static weft_status replace_sequential(const weft_session *s, const weft_job *given,
                                      const weft_session__choice *c, decision *d)
{
    decision e = {.job = *given};
    if (follow_keys(s, &e) != WEFT_OK) {
        drop_decision(&e);
        return refuse_sequential(s, c, d);
    }
    drop_decision(d);
    *d        = e;
    d->step_s = c->step_s; /* at least */
    snprintf(d->info, sizeof d->info,
             "plan: %d ranks data parallel: the plan predicted to be faster, %s, is a "
             "pipeline with one micro-batch, no better than one rank (%.3g s)",
             s->now->n_rank, c->line, c->alone_s);
    return WEFT_OK;
}

static weft_status choose_plan(const weft_session *s, const weft_job *given, decision *d)
{
    weft_session__choice c     = {0};
    const char          *where = d->job.cluster; /* may differ from those it runs on */
    WEFT_TRY(weft_session__choose_cut(s, &d->job, d->cut, sizeof d->cut));
    weft_status st = weft_session__plan_choose(&d->job, s->now->n_rank, s->now->local,
                                               s->now->n_core, &c);
    if (st == WEFT_ERR_NOFIT)
        snprintf(d->warn, sizeof d->warn, "no plan, so data parallel: %s",
                 weft_error_text());
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG) /* the keys have the better message */
        return follow_keys(s, d);
    WEFT_TRY(st);
    d->plan     = c.plan;
    d->training = c.training;
    d->chosen   = true;
    d->step_s   = c.step_s;
    WEFT_TRY(weft_session__take_cut(&d->job, d->plan));
    weft_compile_spec spec = weft_job_spec(&d->job);
    if (weft_training_is_for(&s->training, &spec) ||
        !weft_training_is_for(&d->training, &spec))
        weft_training_fini(&d->training);
    snprintf(d->info, sizeof d->info,
             "plan%s%s: %s; --print-plan shows it, plan=FILE keeps it, plan=off is data "
             "parallel",
             where ? " for the machines of " : "", where ? where : "", c.line);
    if (c.for_cpus[0])
        snprintf(d->warn, sizeof d->warn,
                 "the plan is one for this host's CPUs, as %s: weft cluster calibrate "
                 "--only gpus measures GPUs, cluster=FILE describes them",
                 c.for_cpus);
    if (c.sequential) return replace_sequential(s, given, &c, d);
    d->idle = c.idle;
    if (c.idle)
        snprintf(d->warn, sizeof d->warn,
                 "a pipeline of %d stages has too few micro-batches (batch %lld, "
                 "micro_batch %lld, lanes %lld): %.3g s a step predicted, %.3g s on one "
                 "rank",
                 d->plan->strategy.pp, (long long)d->job.batch,
                 (long long)d->job.micro_batch, (long long)d->job.lanes, c.step_s,
                 c.alone_s);
    return WEFT_OK;
}

/* With the keys that j gives; d->plan is the caller's where it works. */
static weft_status decide_once(const weft_session *s, const weft_job *j, decision *d)
{
    *d             = (decision){.job = *j};
    weft_status st = weft_job_is_open(j) && s->now->n_rank > 1 ? choose_plan(s, j, d)
                                                               : follow_keys(s, d);
    if (st != WEFT_OK) drop_decision(d);
    return st;
}

/* ---- micro_batch and lanes of a resume ---- */

/* What j gives other than the checkpoint has it, as WEFT_JOB_ALLOW bits. */
static unsigned find_changes(const weft_session *s, const weft_job *j)
{
    unsigned bits = 0;
    if (j->given_micro_batch && j->micro_batch != s->checkpoint.micro_batch)
        bits |= WEFT_JOB_ALLOW_MICRO_BATCH;
    if (j->given_lanes && j->lanes != s->checkpoint.lanes) bits |= WEFT_JOB_ALLOW_LANES;
    return bits;
}

/* What j leaves out is the checkpoint's, but for the keys in `open`. */
static void keep_cut(const weft_session *s, unsigned open, weft_job *j)
{
    if (!j->given_micro_batch && !(open & WEFT_JOB_ALLOW_MICRO_BATCH)) {
        j->micro_batch       = s->checkpoint.micro_batch;
        j->given_micro_batch = true;
    }
    if (!j->given_lanes && !(open & WEFT_JOB_ALLOW_LANES)) {
        j->lanes       = s->checkpoint.lanes;
        j->given_lanes = true;
    }
    weft_job_default_cut(j);
}

/* A plan file gives micro_batch and lanes too. */
static weft_status read_given(weft_job *j)
{
    weft_plan *p;
    if (!j->plan_file) return WEFT_OK;
    WEFT_TRY(weft_plan_load(j->plan_file, &p));
    if (!j->given_micro_batch) j->micro_batch = p->of.micro_batch;
    if (!j->given_lanes) j->lanes = p->of.lanes;
    j->given_micro_batch = j->given_lanes = true;
    weft_plan_destroy(p);
    return WEFT_OK;
}

static weft_status refuse_changes(const weft_session *s, const weft_job *j, unsigned bits)
{
    char lanes[80] = "", micro[80] = "";
    if (bits & WEFT_JOB_ALLOW_LANES)
        snprintf(lanes, sizeof lanes, "lanes is %lld there and %lld here",
                 (long long)s->checkpoint.lanes, (long long)j->lanes);
    if (bits & WEFT_JOB_ALLOW_MICRO_BATCH)
        snprintf(micro, sizeof micro, "micro_batch is %lld there and %lld here",
                 (long long)s->checkpoint.micro_batch, (long long)j->micro_batch);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s is of another job: %s%s%s",
                     weft_ckpt_path(s->resume), micro, *lanes && *micro ? ", " : "",
                     lanes);
}

/* With the checkpoint's micro_batch and lanes where the job gives none, but for the keys in
 * `open`. */
static weft_status decide_kept(const weft_session *s, const weft_job *given,
                               unsigned open, decision *d)
{
    weft_job j = *given;
    WEFT_TRY(read_given(&j));
    keep_cut(s, open, &j);
    return decide_once(s, &j, d);
}

/* Is `a`, which changes more keys than `b` or others, worth it? */
static bool is_better(const decision *a, const decision *b)
{
    if (a->idle != b->idle) return b->idle;
    return a->step_s > 0 && b->step_s > 0 && a->step_s < 0.95 * b->step_s;
}

/* As the checkpoint has it; where that does not work, or leaves ranks idle, the fastest of what the
 * allowed keys make possible, and of equal ones the one that changes the fewest. */
static weft_status decide_resume(const weft_session *s, const weft_job *given,
                                 unsigned allow, decision *d)
{
    static const unsigned open[] = {WEFT_JOB_ALLOW_LANES, WEFT_JOB_ALLOW_MICRO_BATCH,
                                    WEFT_JOB_ALLOW_ALL};
    weft_job              j      = *given;
    decision              other;
    WEFT_TRY(read_given(&j));
    unsigned changes = find_changes(s, &j);
    *d               = (decision){.differs = true};
    /* growth may have changed both: bits are the plan's */
    if (weft_job_is_invariant(given) && changes & ~allow)
        return refuse_changes(s, &j, changes);
    weft_status st = decide_kept(s, given, 0, d);
    if (!allow || (st == WEFT_OK ? !d->idle : st != WEFT_ERR_ARG)) return st;
    bool works = st == WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT(open); i++) {
        if (open[i] & ~allow || decide_kept(s, given, open[i], &other) != WEFT_OK)
            continue;
        bool take = !works || is_better(&other, d);
        drop_decision(take ? d : &other);
        if (take) *d = other;
        works = true;
    }
    return works ? WEFT_OK : decide_kept(s, given, 0, d); /* none helps: its error */
}

/* ---- what would work ---- */

static void open_cut(weft_job *j)
{
    j->given_micro_batch = j->given_lanes = false;
    weft_job_default_cut(j);
}

/* " --allow lanes,micro_batch" with the keys that d changes; "": none. */
static const char *name_changes(const weft_session *s, const decision *d)
{
    bool lanes = d->job.lanes != s->checkpoint.lanes;
    if (d->job.micro_batch == s->checkpoint.micro_batch)
        return lanes ? " --allow lanes" : "";
    return lanes ? " --allow lanes,micro_batch" : " --allow micro_batch";
}

/* opened: the job's own micro_batch and lanes do not work. */
static void put_remedy(const weft_session *s, const decision *d, bool opened,
                       weft_text *t)
{
    const char *command  = s->o->command, *allow;
    char        keys[80] = "";
    if (opened)
        snprintf(keys, sizeof keys, " micro_batch=%lld lanes=%lld",
                 (long long)d->job.micro_batch, (long long)d->job.lanes);
    if (!s->resume) {
        weft_text_add(t, ";%s lets them share a step", keys);
        return;
    }
    if (!command || strlen(command) > MAX_COMMAND) command = "the same command with";
    allow = name_changes(s, d);
    weft_text_add(t, "; %s%s%s goes on with micro_batch %lld and lanes %lld%s", command,
                  keys, allow, (long long)d->job.micro_batch, (long long)d->job.lanes,
                  *allow ? " (bits differ from there on)" : "");
}

/* Is there a micro_batch and a number of lanes that work?  *opened: not with those that the job
 * gives. */
static bool find_remedy(const weft_session *s, const weft_job *given, decision *d,
                        bool *opened)
{
    weft_job j = *given;
    *opened    = false;
    if (s->resume && decide_resume(s, &j, WEFT_JOB_ALLOW_ALL, d) == WEFT_OK) return true;
    if ((!j.given_micro_batch && !j.given_lanes) || j.plan_file) return false;
    *opened = true;
    open_cut(&j);
    if (s->resume) return decide_resume(s, &j, WEFT_JOB_ALLOW_ALL, d) == WEFT_OK;
    if (decide_once(s, &j, d) == WEFT_OK && !d->idle) return true;
    drop_decision(d); /* a pipeline whose ranks would wait: one lane a rank */
    j.lanes       = weft_lanes_default(s->now->n_rank, j.batch);
    j.given_lanes = true;
    weft_job_default_cut(&j);
    return decide_once(s, &j, d) == WEFT_OK;
}

/* With so many ranks, n_local of them on each host. */
static weft_status decide_fewer(const weft_session *s, const weft_job *given, int n_rank,
                                int n_local, decision *d)
{
    weft_session    few   = *s;
    weft_generation fewer = *s->now;
    weft_job        j     = *given;
    fewer.n_rank          = n_rank;
    fewer.local           = n_local;
    few.now               = &fewer;
    if (s->resume) keep_cut(s, 0, &j);
    return decide_once(&few, &j, d);
}

static bool has_hosts(const weft_session *s)
{
    return s->now->local > 0 && s->now->local < s->now->n_rank;
}

/* Hosts, or ranks of one, that work as the job is: one less, or where these are many a half;
 * 0: none do. */
static int find_fewer(const weft_session *s, const weft_job *given, decision *d)
{
    int unit = has_hosts(s) ? s->now->local : 1;
    int n    = (s->now->n_rank + unit - 1) / unit;
    while (n > 1) {
        n              = n > FEW ? n / 2 : n - 1;
        weft_status st = decide_fewer(s, given, n * unit, has_hosts(s) ? unit : n, d);
        if (st == WEFT_OK && !d->idle) return n;
        drop_decision(d);
    }
    return 0;
}

/* Ranks on this host that work with the micro_batch and lanes there are: as many as lanes, or
 * fewer. */
static int find_fewer_ranks(const weft_session *s, const weft_job *given)
{
    decision d;
    weft_job j = *given;
    if (s->resume) keep_cut(s, 0, &j);
    for (int n = j.given_lanes ? (int)j.lanes : 1; n > 1; n /= 2) {
        if (n >= s->now->n_rank || decide_fewer(s, given, n, n, &d) != WEFT_OK) continue;
        drop_decision(&d);
        return n;
    }
    return 1;
}

/* "; --nnodes 1:2 works as it is" */
static void put_fewer(const weft_session *s, const weft_job *given, weft_text *t)
{
    bool     hosts = has_hosts(s);
    int      min   = hosts ? s->o->min_host : s->o->min_rank, n;
    decision d;
    n = hosts ? find_fewer(s, given, &d) : find_fewer_ranks(s, given);
    if (hosts && n) drop_decision(&d);
    if (!n) return;
    weft_text_add(t, "; --%s ", hosts ? "nnodes" : "nproc-per-node");
    if (min > 0 && min < n) weft_text_add(t, "%d:", min);
    weft_text_add(t, "%d works as it is", n);
}

/* Adds to the error what works instead, as far as it was tried. */
static weft_status add_remedies(const weft_session *s, const weft_job *given,
                                const decision *failed, weft_status st)
{
    decision    d;
    weft_text   t = {0};
    bool        opened;
    const char *where = s->resume ? weft_ckpt_path(s->resume) : "";
    char       *error = strdup(weft_error_text());
    if (!error) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    bool works = find_remedy(s, given, &d, &opened);
    if (!works && !failed->ranks_fail &&
        !failed->differs) { /* it is about something else */
        st = WEFT_FAIL(st, "%s", error);
        free(error);
        return st;
    }
    if (s->resume && strncmp(error, where, strlen(where)))
        weft_text_add(&t, "%s: ", where);
    weft_text_add(&t, "%s", error);
    free(error);
    if (works) put_remedy(s, &d, opened, &t);
    if (works) drop_decision(&d);
    if (failed->differs && !(works && !*name_changes(s, &d)))
        weft_text_add(&t, "; micro_batch=%lld lanes=%lld are the checkpoint's",
                      (long long)s->checkpoint.micro_batch,
                      (long long)s->checkpoint.lanes);
    if (s->now->n_rank > 1 && failed->ranks_fail && weft_job_is_open(given))
        put_fewer(s, given, &t);
    if (s->resume) weft_text_add(&t, "; --fresh starts anew beside it");
    st = WEFT_FAIL(st, "%s", t.s ? t.s : "");
    weft_text_fini(&t);
    return st;
}

/* ---- decided once, for all ranks ---- */

/* Ranks of a resume are used badly: names what --allow would change, if that is better. */
static void add_hint(const weft_session *s, decision *d)
{
    decision better;
    bool     opened;
    size_t   n = strlen(d->warn);
    if (!s->resume || !find_remedy(s, &s->job, &better, &opened)) return;
    if (!better.idle)
        snprintf(d->warn + n, sizeof d->warn - n,
                 ";%s%s goes on with micro_batch %lld and lanes %lld (bits differ from "
                 "there on)",
                 opened ? " micro_batch=0 lanes=0" : "", name_changes(s, &better),
                 (long long)better.job.micro_batch, (long long)better.job.lanes);
    drop_decision(&better);
}

/* More hosts, or ranks, than are of any use, of a job that leaves all to us: it is decided for
 * fewer, and the others wait.  st, with its text, where that is not so. */
static weft_status decide_for_some(const weft_session *s, weft_status st, decision *d)
{
    const weft_job *j     = &s->job;
    bool            hosts = has_hosts(s);
    int             min = hosts ? s->o->min_host : s->o->min_rank, n = 0;
    decision        e;
    if (s->resume || j->given_micro_batch || j->given_lanes || !weft_job_is_open(j) ||
        !weft_session__is_elastic(s))
        return st;
    char *error = strdup(weft_error_text());
    n           = find_fewer(s, j, &e);
    if (n >= min) {
        snprintf(e.warn, sizeof e.warn,
                 "--%s %d:%d: a batch of %lld has use for %d %s%s; others wait",
                 hosts ? "nnodes" : "nproc-per-node", min,
                 s->now->n_rank / (hosts ? s->now->local : 1), (long long)j->batch, n,
                 hosts ? "host" : "rank", n > 1 ? "s" : "");
        *d = e;
        st = WEFT_OK;
    } else {
        if (n) drop_decision(&e);
        st = WEFT_FAIL(st, "%s", error ? error : "out of memory");
    }
    free(error);
    return st;
}

static weft_status decide(const weft_session *s, decision *d)
{
    const weft_generation *g = s->now;
    unsigned               allow;
    WEFT_TRY(
        weft_job_check_copies(s->job.strategy.copies,
                              g->local > 0 ? (g->n_rank + g->local - 1) / g->local : 1));
    WEFT_TRY(weft_job_parse_allow(s->o->allow, &allow));
    if (!weft_job_is_invariant(&s->job))
        allow |= WEFT_JOB_ALLOW_LANES; /* bits are the plan's */
    weft_status st =
        s->resume ? decide_resume(s, &s->job, allow, d) : decide_once(s, &s->job, d);
    if (st == WEFT_OK && d->idle) add_hint(s, d);
    if (st == WEFT_ERR_ARG) st = decide_for_some(s, st, d);
    if (st != WEFT_ERR_ARG || (!s->resume && !d->ranks_fail)) return st;
    return add_remedies(s, &s->job, d, st);
}

/* What rank 0 sends before the text of its plan, or of its error. */
typedef struct outcome {
    int64_t status, n_text, micro_batch, lanes, chosen;
    double  step_s; /* predicted; 0: nothing predicts it */
} outcome;

/* Rank 0's numbers are checked like those of a file. */
static bool is_outcome(const outcome *o)
{
    if (o->n_text < 0 || o->n_text > MAX_TEXT) return false;
    if (o->status) return o->status > 0 && o->status <= WEFT_ERR_INTERNAL;
    return o->micro_batch > 0 && o->lanes > 0 && (o->n_text > 0) == (o->chosen != 0);
}

static weft_status share_text(weft_session *s, weft_text *t, int64_t n)
{
    char *text = malloc((size_t)n + 1);
    if (!text) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a plan");
    if (weft_session__writes(s) && n) memcpy(text, t->s, (size_t)n);
    weft_status st = weft_comm_broadcast_bytes(s->now->comm, s->now->group, text, n);
    t->n           = 0;
    if (st == WEFT_OK) weft_text_put(t, text, (size_t)n);
    free(text);
    return st == WEFT_OK ? weft_text_status(t) : st;
}

/* Rank 0's decision, or its error, at all ranks. */
static weft_status share_decision(weft_session *s, weft_status st, decision *d)
{
    weft_text t = {0};
    outcome   o = {.status = st};
    if (weft_session__writes(s) && st == WEFT_OK) {
        o.micro_batch = d->job.micro_batch;
        o.lanes       = d->job.lanes;
        o.chosen      = d->chosen;
        o.step_s      = d->step_s;
        if (d->chosen) st = weft_plan_print(d->plan, &t);
        o.status = st;
    }
    if (weft_session__writes(s) && st != WEFT_OK) {
        t.n = 0;
        weft_text_add(&t, "%s", weft_error_text());
    }
    o.n_text = (int64_t)t.n;
    st       = weft_session__share(s, &o, sizeof o);
    if (st == WEFT_OK && !is_outcome(&o))
        st = WEFT_FAIL(WEFT_ERR_PEER, "rank 0 failed: it sent no decision that can be");
    if (st == WEFT_OK && o.n_text) st = share_text(s, &t, o.n_text);
    if (st == WEFT_OK && o.status)
        st = weft_session__refuse(s, WEFT_FAIL((weft_status)o.status, "%s",
                                               t.s ? t.s : "rank 0 gave no reason"));
    if (st == WEFT_OK && !weft_session__writes(s)) {
        *d = (decision){.job    = s->job,
                        .chosen = o.chosen != 0,
                        .step_s = o.step_s > 0 ? o.step_s : 0};

        d->job.micro_batch       = o.micro_batch;
        d->job.lanes             = o.lanes;
        d->job.given_micro_batch = d->job.given_lanes = true;
        st = o.chosen ? weft_plan_parse("the plan made here", t.s, t.n, &d->plan)
                      : follow_keys(s, d);
        if (st == WEFT_OK && o.chosen) st = weft_session__take_cut(&d->job, d->plan);
    }
    weft_text_fini(&t);
    return st;
}

/* Bucket sizes are no part of the search. */
static void set_bucket(const weft_session *s, weft_plan *p)
{
    const char *by  = s->now->comm ? s->now->comm->transport : "";
    bool        far = s->now->comm ? strstr(by, "tcp") || strstr(by, "ucx")
                                   : s->now->local > 0 && s->now->local < s->now->n_rank;
    if (s->job.strategy.bucket_bytes >= 0)
        p->strategy.bucket_bytes = s->job.strategy.bucket_bytes;
    else if (!p->strategy.bucket_bytes && far)
        p->strategy.bucket_bytes = WEFT_PLAN_BUCKET;
}

/* Plans, programs and evaluation of all generations are of it. */
weft_status weft_session__read_model(weft_session *s)
{
    if (s->model_source) return WEFT_OK;
    WEFT_TRY(weft_model_source_open(s->job.model, &s->model_source));
    s->job.source = s->model_source;
    return WEFT_OK;
}

weft_status weft_session__decide(weft_session *s)
{
    decision    d    = {.plan = NULL};
    weft_status st   = WEFT_OK;
    bool        open = weft_job_is_open(&s->job);
    WEFT_TRY(weft_session__find_seq(&s->job));
    WEFT_TRY(weft_session__outcome(s, weft_session__read_model(s)));
    if (open && s->now->group) WEFT_TRY(weft_session__count_cores(s, &s->now->n_core));
    if (!open || !s->now->group || weft_session__writes(s)) st = decide(s, &d);
    st = open && s->now->group ? share_decision(s, st, &d) : weft_session__outcome(s, st);
    if (st != WEFT_OK) drop_decision(&d);
    WEFT_TRY(st);
    if (d.warn[0]) weft_say_warn(&s->say, "%s", d.warn);
    s->now->predicted_s = d.step_s;
    if (d.cut[0] && !s->looks) weft_say_info(&s->say, "%s", d.cut);
    if (d.info[0] && !s->looks) weft_say_info(&s->say, "%s", d.info);
    s->job       = d.job;
    s->now->plan = d.plan;
    if (d.training.graph) {
        weft_training_fini(&s->training);
        s->training = d.training;
    }
    if (s->now->plan) set_bucket(s, s->now->plan);
    return WEFT_OK;
}

/* ---- without a run ---- */

/* A session that only looks: as if it had a generation of so many ranks. */
static weft_status open_look(const weft_job *j, const weft_session_options *o, int world,
                             int local, weft_session *s, weft_generation *g)
{
    *g             = (weft_generation){.n_rank = world, .local = local};
    weft_status st = weft_session__open(j, o, s);
    s->looks       = true;
    s->now         = g;
    if (st == WEFT_OK) st = weft_arena_create(&g->arena);
    return st == WEFT_OK ? weft_session__find_start(s) : st;
}

static void close_look(weft_session *s, weft_generation *g)
{
    weft_generation_close(s, g);
    (void)weft_session__close(s); /* nothing was written */
}

weft_status weft_session__kept_job(const weft_job *j, const weft_session_options *o,
                                   weft_job *out)
{
    weft_session    s;
    weft_generation g;
    weft_status     st = open_look(j, o, 1, 1, &s, &g);
    *out               = s.job;
    if (st == WEFT_OK && s.resume) keep_cut(&s, 0, out);
    close_look(&s, &g);
    return st;
}

/* One rank runs without a plan; this one says the same. */
static weft_status plan_alone(weft_session *s, weft_plan **out)
{
    weft_session__choice x = {0};
    weft_strategy        y = weft_strategy_default();
    WEFT_TRY(weft_generation__compile(s));
    weft_status st = weft_session__plan_alone(&s->job, &x);
    *out           = x.plan;
    x.plan         = NULL;
    weft_session__choice_fini(&x);
    if (st != WEFT_ERR_NOFIT && st != WEFT_ERR_ARG) return st;
    y.dp = 1;
    return weft_session__plan_make(&s->training, &s->job, 1, &y, out);
}

/* What a run would refuse for its data: the same lines. */
static weft_status check_inputs(weft_session *s)
{
    weft_compile_spec spec = weft_job_spec(&s->job);
    if (!s->training.graph) WEFT_TRY(weft_compile_training(&spec, &s->training));
    s->now->made.model = s->training.model;
    WEFT_TRY(weft_session__check_model(s));
    WEFT_TRY(weft_session__open_data(s, s->job.data, s->job.shuffle, &s->data));
    if (s->resume) WEFT_TRY(weft_session__check_data(s));
    return weft_session__eval_open_data(s);
}

weft_status weft_session_print_plan(const weft_job *j, const weft_session_options *o,
                                    int world, int local, weft_text *t)
{
    weft_session    s;
    weft_generation g;
    weft_status     st = open_look(j, o, world, local, &s, &g);
    if (st == WEFT_OK) st = weft_session__eval_check(&s);
    if (st == WEFT_OK) st = weft_session__expect_devices(j, world, local, &g.devices);
    if (st == WEFT_OK) weft_session__resolve_reduction(&s);
    if (st == WEFT_OK) st = weft_session__decide(&s);
    if (st == WEFT_OK) st = weft_session__note_cut(&s, j);
    if (st == WEFT_OK && !g.plan) st = plan_alone(&s, &g.plan);
    if (st == WEFT_OK) st = check_inputs(&s);
    if (st == WEFT_OK) {
        /* those of a GPU are named by its kind and by libraries, which are open with the device */
        weft_device *d    = NULL;
        bool         cuda = !strncmp(j->device, "cuda", 4),
             there        = !cuda || weft_session_open_device(
                                         &(weft_session_device){.list = "cuda"}, &d) == WEFT_OK;
        if (there && strcmp(j->device, "auto") != 0)
            g.plan->of.kernels = weft_session__kernel_set(j);
        st = weft_plan_print(g.plan, t);
        if (d) weft_session_close_device(d);
    }
    close_look(&s, &g);
    return st;
}
