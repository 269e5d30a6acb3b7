/* A request of weft train or weft run: made of arguments, carried out, its result printed. */
#include "cli/request.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch.h"
#include "session/device.h"
#include "session/say.h"
#include "session/session.h"

enum {
    MAX_WORD = 256
};

/* ---- arguments ---- */

/* Words with '=' are assignments, the one without is the file. */
int weft_cli_take_words(const weft_cli_command *c, int n_word, char **word,
                        const char *cluster, weft_arena *a, weft_launch_request *q)
{
    const char **assign = WEFT_ARENA_ARRAY(a, const char *, n_word + 1);
    if (n_word == 0) return weft_cli_usage(c, "expected a job file");
    if (n_word > MAX_WORD) return weft_cli_usage(c, "more than %d words", MAX_WORD);
    if (weft_arena_status(a) != WEFT_OK) return weft_cli_fail(c, WEFT_ERR_MEM);
    for (int i = 0; i < n_word; i++) {
        if (strchr(word[i], '='))
            assign[q->n_assign++] = word[i];
        else if (q->file)
            return weft_cli_usage(c,
                                  "two job files, %s and %s; assignments look "
                                  "like key=value",
                                  q->file, word[i]);
        else
            q->file = word[i];
    }
    if (cluster) assign[q->n_assign++] = weft_arena_printf(a, "cluster=%s", cluster);
    q->assign = assign;
    return weft_arena_status(a) == WEFT_OK ? -1 : weft_cli_fail(c, WEFT_ERR_MEM);
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

weft_status weft_cli_load_job(const weft_launch_request *q, weft_job **out)
{
    return weft_job_load(q->file, q->n_assign, q->assign, out);
}

weft_status weft_cli_find_output(const char *word, char *dir, size_t n)
{
    struct stat s;
    weft_job   *job = NULL;
    if (!word || stat(word, &s) || !S_ISREG(s.st_mode)) {
        snprintf(dir, n, "%s", word ? word : "out");
        return WEFT_OK;
    }
    WEFT_TRY(weft_job_load(word, 0, NULL, &job));
    snprintf(dir, n, "%s", job->output);
    weft_job_destroy(job);
    return WEFT_OK;
}

/* ---- signals ---- */

static volatile sig_atomic_t caught, n_interrupt, term_s;

enum {
    /* SIGTERMs within this are one: of a batch system and of the launcher */
    ONE_SIGNAL_S = 2
};

/* The process ends when the handler returns. */
static void end_at_once(int sig)
{
    signal(sig, SIG_DFL);
    raise(sig);
}

/* SIGUSR1 announces that SIGTERM will follow: it asks to stop, and never ends at once. */
static void on_signal(int sig)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (sig == SIGINT && n_interrupt++) end_at_once(sig);
    if (sig == SIGTERM && term_s && now.tv_sec + 1 - term_s > ONE_SIGNAL_S)
        end_at_once(sig);
    if (sig == SIGTERM && !term_s) term_s = (sig_atomic_t)(now.tv_sec + 1);
    if (sig != SIGUSR1)
        caught = sig;
    else if (!caught)
        caught = SIGTERM;
}

static int stop(void *arg)
{
    (void)arg;
    return caught;
}

/* The agent says which signal it was. */
static void on_order(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    on_signal(info->si_value.sival_int);
}

/* A rank of an agent listens to that alone: a batch system signals both, and what it means, the
 * job's end or that of this host, is the agent's to find out. */
static void catch_orders(void)
{
    struct sigaction a = {.sa_sigaction = on_order, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigset_t         mask; /* it starts with all of them blocked */
    sigemptyset(&a.sa_mask);
    sigaction(WEFT_LAUNCH_ORDER, &a, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, WEFT_LAUNCH_ORDER);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
}

/* The first signal asks to stop; a second one of the kind ends the process at once. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
}

/* ---- results ---- */

static void print_json(const weft_session_result *r, weft_text *t)
{
    weft_text_add(t, "{\"steps\": %lld", (long long)r->steps);
    weft_text_put_member(t, "loss", r->loss);
    weft_text_put_member(t, "grad_norm", r->grad_norm);
    if (!isnan(r->eval_loss)) weft_text_put_member(t, "eval_loss", r->eval_loss);
    weft_text_put_member(t, "tokens_per_s", r->tokens_per_s);
    weft_text_put_member(t, "step_ms_median", r->step_ms_median);
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

/* ---- what is asked for ---- */

weft_session_options weft_cli_session_options(const weft_launch_request *q)
{
    return (weft_session_options){.fresh        = q->fresh,
                                  .quiet        = q->quiet,
                                  .allow        = q->allow,
                                  .command      = q->command,
                                  .trace        = q->trace,
                                  .io_timeout_s = q->io_timeout_s,
                                  .min_rank     = (int)q->min_rank,
                                  .min_host     = (int)q->min_host,
                                  .replay       = q->replay};
}

int weft_cli_print_plan(const weft_cli_command *c, const weft_launch_request *q,
                        const weft_job *job, int world, int local)
{
    weft_session_options o  = weft_cli_session_options(q);
    weft_text            t  = {0};
    weft_status          st = weft_session_print_plan(job, &o, world, local, &t);
    if (st == WEFT_OK) return weft_cli_put(c, &t, NULL);
    weft_text_fini(&t);
    return weft_cli_fail(c, st);
}

static int print_result(const weft_cli_command *c, const weft_launch_request *q,
                        const weft_session_result *r)
{
    weft_text t = {0};
    if (q->json)
        print_json(r, &t);
    else
        print_text(r, &t);
    return weft_cli_put(c, &t, NULL);
}

/* The result is printed when it is known, and not when this process ends. */
typedef struct result_printer {
    const weft_cli_command    *c;
    const weft_launch_request *q;
    bool                       printed;
    int                        code;
} result_printer;

static void print_finished(void *arg, const weft_session_result *r)
{
    result_printer *p = arg;
    p->printed        = true;
    p->code           = print_result(p->c, p->q, r);
}

int weft_cli_train_job(const weft_cli_command *c, const weft_launch_request *q,
                       const weft_job *job, const weft_membership_source *member)
{
    static const char *const planner[] = {"weft", "run", NULL}; /* carry_out() in run.c */
    weft_session_options     o         = weft_cli_session_options(q);
    weft_session_result      r;
    result_printer           p = {.c = c, .q = q};
    o.finished                 = print_finished;
    o.finished_arg             = &p;
    o.progress                 = !q->quiet && isatty(STDERR_FILENO);
    o.stop                     = stop;
    o.member                   = member;
    o.planner   = q->replay ? NULL : planner; /* plans are the recorded ones */
    o.timeout_s = q->timeout_s;
    if (getenv("WEFT_LINE_FD"))
        catch_orders();
    else
        catch_signals();
    weft_status st = weft_session_run(job, &o, &r);
    if (st != WEFT_OK) {
        int code = weft_cli_fail(c, st);
        return member && st == WEFT_ERR_PEER ? WEFT_LAUNCH_PEER : code;
    }
    int code = p.code;
    if (!p.printed && !r.rank) code = print_result(c, q, &r);
    return r.stopped ? 128 + r.stopped : code;
}

void weft_cli_log(bool warning, const char *text)
{
    if (warning)
        weft_say_warn(&(weft_say){0}, "%s", text);
    else
        weft_say_info(&(weft_say){0}, "%s", text);
}

weft_status weft_cli_resolve_device(weft_launch_request *q, int n_rank, weft_arena *a)
{
    weft_job    *job = NULL;
    const char **assign;
    if (q->check || weft_cli_load_job(q, &job) != WEFT_OK) return WEFT_OK;
    bool is_auto = !strcmp(job->device, "auto") && strcmp(job->recover, "off") != 0;
    weft_session_no_gpu       none = {.there = false};
    const weft_session_device of   = {.list        = "auto",
                                      .share_gpu   = job->share_gpu,
                                      .local_world = n_rank,
                                      .no_gpu      = &none};
    weft_job_destroy(job);
    if (!is_auto) return WEFT_OK;
    assign = WEFT_ARENA_ARRAY(a, const char *, q->n_assign + 1);
    if (!assign) return weft_arena_status(a);
    for (int i = 0; i < q->n_assign; i++) assign[i] = q->assign[i];
    assign[q->n_assign++] =
        weft_arena_printf(a, "device=%s", weft_session_resolve_auto(&of));
    q->assign = assign;
    if (none.text[0] && (none.there || !q->quiet))
        weft_cli_log(none.there,
                     weft_arena_printf(a, "device=auto takes the CPU: %s", none.text));
    return weft_arena_status(a);
}
