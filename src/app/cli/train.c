/* weft train: runs a job */
#include "cli/request.h"
#include "launch/living.h"
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
               "SIGINT, SIGTERM and SIGUSR1 finish the step, write a checkpoint and "
               "exit with\n"
               "130 and 143.",
    .example = "weft train job.yaml optimizer.lr=3e-4 steps=1000 --json",
    .run     = run,
};

typedef struct train_options {
    weft_launch_request request;
    const char         *cluster;
    bool                print_job, print_plan;
} train_options;

static int print_job(const weft_job *job)
{
    weft_text t = {0};
    weft_job_print(job, &t);
    return weft_cli_put(&weft_cli_train, &t, NULL);
}

/* On one rank in this process, or on as many as are faster. */
static int run_job(const train_options *o, const weft_job *job, weft_arena *a)
{
    const weft_cli_command    *c      = &weft_cli_train;
    const weft_launch_request *q      = &o->request;
    weft_session_options       asked  = weft_cli_session_options(q);
    int                        n_rank = 1;
    if (o->print_job) return print_job(job);
    weft_status st = weft_session_count_ranks(job, &asked, &n_rank);
    if (st == WEFT_ERR_ARG) /* machines that are none, data that is not there */
        return weft_cli_fail(c, st);
    if (st != WEFT_OK) n_rank = 1; /* the run says it */
    if (o->print_plan) return weft_cli_print_plan(c, q, job, n_rank > 1 ? n_rank : 0, 0);
    if (n_rank > 1) return weft_cli_start_ranks(n_rank, q, a);
    st = weft_launch_refuse_living(
        &(weft_launch_options){.request = q, .output = job->output});
    return st == WEFT_OK ? weft_cli_train_job(c, q, job, NULL) : weft_cli_fail(c, st);
}

static int carry_out(train_options *o, weft_arena *a, int n_word, char **word)
{
    weft_job *job = NULL;
    int       code =
        weft_cli_take_words(&weft_cli_train, n_word, word, o->cluster, a, &o->request);
    if (code >= 0) return code;
    weft_status st = weft_cli_load_job(&o->request, &job);
    code = st == WEFT_OK ? run_job(o, job, a) : weft_cli_fail(&weft_cli_train, st);
    weft_job_destroy(job);
    return code;
}

static int run(int argc, char **argv)
{
    weft_text             command  = {0};
    weft_arena           *arena    = NULL;
    train_options         o        = {.request = {.timeout_s    = WEFT_CLI_TIMEOUT_S,
                                                  .io_timeout_s = WEFT_CLI_IO_TIMEOUT_S}};
    weft_launch_request  *q        = &o.request;
    int                   n_word   = 0;
    const weft_cli_option option[] = {
        {"cluster", 0, WEFT_CLI_TEXT, &o.cluster, "CLUSTER",
         "machines to plan for, as the key cluster"},
        {"fresh", 0, WEFT_CLI_FLAG, &q->fresh, NULL,
         "start anew beside the checkpoints there are"},
        {"allow", 0, WEFT_CLI_TEXT, &q->allow, "KEYS",
         "let a resume change lanes, micro_batch; bits differ from there on"},
        {"trace", 0, WEFT_CLI_TEXT, &q->trace, "FILE",
         "timeline of the last step, for Perfetto"},
        {"print-job", 0, WEFT_CLI_FLAG, &o.print_job, NULL,
         "only print the resolved job"},
        {"print-plan", 0, WEFT_CLI_FLAG, &o.print_plan, NULL,
         "only print the plan that this command runs, as JSON for plan="},
        {"quiet", 'q', WEFT_CLI_FLAG, &q->quiet, NULL,
         "no progress, no log lines but warnings"},
        {"json", 0, WEFT_CLI_FLAG, &q->json, NULL, "the result as one line of JSON"},
    };
    weft_cli_put_command("train", argc, argv, &command);
    q->command = command.s;
    int code   = weft_cli_parse(&weft_cli_train, option, (int)WEFT_COUNT(option), argc,
                                argv, &n_word);
    if (code < 0) {
        weft_status st = weft_arena_create(&arena);
        code           = st == WEFT_OK ? carry_out(&o, arena, n_word, argv)
                                       : weft_cli_fail(&weft_cli_train, st);
    }
    weft_arena_destroy(arena);
    weft_text_fini(&command);
    return code;
}
