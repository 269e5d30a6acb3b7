/* weft train: runs a job */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "comm/comm.h"
#include "job/job.h"
#include "launch/launch.h"
#include "session/session.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_train = {
    .name  = "train",
    .usage = "JOB [KEY=VALUE ...] [options]",
    .about =
        "train a model as a job file says; resumes where checkpoints of the same job are",
    .more    = "JOB is YAML or JSON; KEY=VALUE words win over it, dots reach into maps.  "
               "The keys:\n"
               "weft help job.  A job that says nothing about ranks is planned for: where "
               "weft cluster\n"
               "calibrate measured this host with several, they are started if that is "
               "faster.\n"
               "SIGINT and SIGTERM finish the step, write a checkpoint and "
               "exit with\n"
               "130 and 143.",
    .example = "weft train job.yaml optimizer.lr=3e-4 steps=1000 --json",
    .run     = run,
};

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
    caught = sig;
}

static int stop(void *arg)
{
    (void)arg;
    return caught;
}

/* The first signal asks to stop; a second one of the kind ends the process at once. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal,
                          .sa_flags   = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

static void put_number(weft_text *t, const char *key, double x)
{
    weft_text_add(t, ", \"%s\": ", key);
    if (isfinite(x))
        weft_text_put_double(t, x);
    else
        weft_text_add(t, "null");
}

static void print_json(const weft_session_result *r, weft_text *t)
{
    weft_text_add(t, "{\"steps\": %lld", (long long)r->steps);
    put_number(t, "loss", r->loss);
    put_number(t, "grad_norm", r->grad_norm);
    if (!isnan(r->eval_loss)) put_number(t, "eval_loss", r->eval_loss);
    put_number(t, "tokens_per_s", r->tokens_per_s);
    put_number(t, "step_ms_median", r->step_ms_median);
    weft_text_add(t, ", \"mem_peak_bytes\": %lld, \"mem_table_bytes\": %lld",
                  (long long)r->mem_peak_bytes, (long long)r->mem_table_bytes);
    weft_text_add(t, ", \"weights_xxh64\": \"%016llx\"",
                  (unsigned long long)r->weights_xxh64);
    if (r->mem_most_bytes > r->mem_peak_bytes)
        weft_text_add(t, ", \"mem_most_bytes\": %lld", (long long)r->mem_most_bytes);
    weft_text_add(t, ", \"resumed_from\": %lld, \"output\": ", (long long)r->first_step);
    weft_text_put_quoted(t, r->output);
    weft_text_add(t, ", \"damaged_checkpoints\": [");
    for (int i = 0; i < r->n_damaged && i < WEFT_SESSION_MAX_DAMAGED; i++)
        weft_text_add(t, "%s%lld", i ? ", " : "", (long long)r->damaged_step[i]);
    weft_text_add(t, "]");
    if (r->stopped) weft_text_add(t, ", \"stopped_by_signal\": %d", r->stopped);
    weft_text_add(t, "}");
}

static void print_text(const weft_session_result *r, weft_text *t)
{
    weft_text_add(t, "steps          %lld\nloss           ", (long long)r->steps);
    weft_text_put_double(t, r->loss);
    if (!isnan(r->eval_loss)) {
        weft_text_add(t, "\neval_loss      ");
        weft_text_put_double(t, r->eval_loss);
    }
    weft_text_add(t, "\ntokens_per_s   ");
    weft_text_put_double(t, r->tokens_per_s);
    weft_text_add(t, "\nweights_xxh64  %016llx\noutput         %s\n",
                  (unsigned long long)r->weights_xxh64, r->output);
}

/* Words with '=' are assignments, the one without is the file. */
static int split_words(const weft_cli_command *c, char **word, int n, const char **file,
                       const char **assign, int *n_assign)
{
    *file     = NULL;
    *n_assign = 0;
    for (int i = 0; i < n; i++) {
        if (strchr(word[i], '='))
            assign[(*n_assign)++] = word[i];
        else if (*file)
            return weft_cli_usage(c,
                                  "two job files, %s and %s; assignments look "
                                  "like key=value",
                                  *file, word[i]);
        else
            *file = word[i];
    }
    return -1;
}

static bool is_allow(const char *word, size_t n)
{
    return n == strlen("--allow") && !strncmp(word, "--allow", n);
}

/* A word as a shell reads it back. */
static void put_word(const char *word, weft_text *t)
{
    static const char special[] = " \t\n'\"\\$&|;<>()*?[]{}#`!~";
    if (*word && !word[strcspn(word, special)]) {
        weft_text_add(t, " %s", word);
        return;
    }
    weft_text_add(t, " '");
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            weft_text_add(t, "'\\''");
        else
            weft_text_put(t, p, 1);
    weft_text_add(t, "'");
}

void weft_cli_put_command(const char *name, int argc, char **argv, weft_text *t)
{
    weft_text_add(t, "weft %s", name);
    for (int i = 0; i < argc; i++) {
        bool allow = is_allow(argv[i], strcspn(argv[i], "="));
        if (allow && !strchr(argv[i], '=')) i++; /* its value, too */
        if (!allow && strcmp(argv[i], "--print-plan")) put_word(argv[i], t);
    }
}

/* The words that train and run both know. */
static int start_ranks(int n, int n_word, char **word, const weft_session_options *o,
                       bool json, const char *cluster)
{
    char *argv[300];
    int   k = 0;
    while (k < n_word) argv[k] = word[k], k++;
    if (json) argv[k++] = "--json";
    if (o->fresh) argv[k++] = "--fresh";
    if (o->quiet) argv[k++] = "--quiet";
    if (o->allow) argv[k++] = "--allow", argv[k++] = (char *)(uintptr_t)o->allow;
    if (o->trace) argv[k++] = "--trace", argv[k++] = (char *)(uintptr_t)o->trace;
    if (cluster) argv[k++] = "--cluster", argv[k++] = (char *)(uintptr_t)cluster;
    return weft_cli_run_ranks(n, k, argv);
}

static int run(int argc, char **argv)
{
    weft_text t = {0};
    weft_cli_put_command("train", argc, argv, &t);
    int code = weft_cli_train_rank(&weft_cli_train,
                                   &(weft_session_options){.command = t.s}, argc, argv);
    weft_text_fini(&t);
    return code;
}

int weft_cli_train_rank(const weft_cli_command *c, const weft_session_options *from,
                        int argc, char **argv)
{
    weft_session_options  o    = *from;
    weft_comm            *comm = from->comm;
    weft_session_result   r;
    weft_job             *job = NULL;
    weft_text             t   = {0};
    const char           *file, *cluster = NULL, *assign[258];
    char                  words[1100];
    bool                  json = false, print_job = false, print_plan = false;
    int                   n_word = 0, n_assign = 0, n_rank = 1;
    const weft_cli_option option[] = {
        {"cluster", 0, WEFT_CLI_TEXT, &cluster, "CLUSTER",
         "machines to plan for, as the key cluster"},
        {"fresh", 0, WEFT_CLI_FLAG, &o.fresh, NULL,
         "start anew beside the checkpoints there are"},
        {"allow", 0, WEFT_CLI_TEXT, &o.allow, "KEYS",
         "let a resume change lanes, micro_batch; bits differ from there on"},
        {"trace", 0, WEFT_CLI_TEXT, &o.trace, "FILE",
         "timeline of the last step, for Perfetto"},
        {"print-job", 0, WEFT_CLI_FLAG, &print_job, NULL, "only print the resolved job"},
        {"print-plan", 0, WEFT_CLI_FLAG, &print_plan, NULL,
         "only print the plan that this command runs, as JSON for plan="},
        {"quiet", 'q', WEFT_CLI_FLAG, &o.quiet, NULL,
         "no progress, no log lines but warnings"},
        {"json", 0, WEFT_CLI_FLAG, &json, NULL, "the result as one line of JSON"},
    };
    o.progress = isatty(STDERR_FILENO) != 0;
    o.stop     = stop;
    int code   = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word == 0) return weft_cli_usage(c, "expected a job file");
    if (n_word > 256) return weft_cli_usage(c, "more than 256 words");
    code = split_words(c, argv, n_word, &file, assign, &n_assign);
    if (code >= 0) return code;

    if (cluster) {
        snprintf(words, sizeof words, "cluster=%s", cluster);
        assign[n_assign++] = words;
    }
    weft_status st = weft_job_load(file, n_assign, assign, &job);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (print_job) {
        weft_job_print(job, &t);
        weft_job_destroy(job);
        return weft_cli_put(c, &t, NULL);
    }
    if (c == &weft_cli_train) st = weft_session_count_ranks(job, &o, &n_rank);
    if (st == WEFT_ERR_ARG) { /* machines that are none, data that is not there */
        weft_job_destroy(job);
        return weft_cli_fail(c, st);
    }
    if (print_plan) {
        int n  = comm ? comm->world : n_rank > 1 ? n_rank : 0;
        o.comm = NULL;
        st     = weft_session_print_plan(job, &o, n, o.local_ranks, &t);
        weft_job_destroy(job);
        return st == WEFT_OK ? weft_cli_put(c, &t, NULL) : weft_cli_fail(c, st);
    }
    if (!comm && st == WEFT_OK && n_rank > 1) {
        weft_job_destroy(job);
        return start_ranks(n_rank, n_word, argv, &o, json, cluster);
    }
    catch_signals();
    if (o.quiet) o.progress = false;
    st = weft_session_run(job, &o, &r);
    weft_job_destroy(job);
    if (st != WEFT_OK) {
        code = weft_cli_fail(c, st);
        return comm && st == WEFT_ERR_PEER ? WEFT_LAUNCH_PEER : code;
    }
    if (comm && comm->rank) return r.stopped ? 128 + r.stopped : WEFT_EXIT_OK;
    if (json)
        print_json(&r, &t);
    else
        print_text(&r, &t);
    code = weft_cli_put(c, &t, NULL);
    return r.stopped ? 128 + r.stopped : code;
}
