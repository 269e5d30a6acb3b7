/* What weft train and weft run share: a request made of arguments, and what carries it out. */
#ifndef WEFT_CLI_REQUEST_H
#define WEFT_CLI_REQUEST_H

#include "cli/cli.h"
#include "comm/membership.h"
#include "job/job.h"
#include "launch/request.h"
#include "weft/session.h"

enum {
    WEFT_CLI_TIMEOUT_S    = 60,
    WEFT_CLI_IO_TIMEOUT_S = 600
};

/* Positionals of the command and --cluster (or NULL) as the job of q; texts are borrowed or in the
 * arena.  -1: go on, else an exit code. */
int weft_cli_take_words(const weft_cli_command *c, int n_word, char **word,
                        const char *cluster, weft_arena *a, weft_launch_request *q);

/* "weft run --nproc-per-node 2 job.yaml", quoted for a shell, without --allow and --print-plan. */
void weft_cli_put_command(const char *name, int argc, char **argv, weft_text *t);

weft_status weft_cli_load_job(const weft_launch_request *q, weft_job **out);
/* device: auto with recover: on becomes what n_rank ranks of this host will find, so that those
 * that replace them have it, too. */
weft_status weft_cli_resolve_device(weft_launch_request *q, int n_rank, weft_arena *a);
/* The output folder that a word means: of the job, where it is a job file; else the word.  NULL:
 * "out". */
weft_status          weft_cli_find_output(const char *word, char *dir, size_t n);
weft_session_options weft_cli_session_options(const weft_launch_request *q);

/* Prints the plan that the job runs with on world ranks (0: as its keys say), local of them on
 * each host (0: all).  Gives an exit code, as all of these. */
int weft_cli_print_plan(const weft_cli_command *c, const weft_launch_request *q,
                        const weft_job *job, int world, int local);

/* Trains, as one rank of those that member names (NULL: alone).  Rank 0 prints the result. */
int weft_cli_train_job(const weft_cli_command *c, const weft_launch_request *q,
                       const weft_job *job, const weft_membership_source *member);

/* Starts n ranks on this host that carry q out. */
int weft_cli_start_ranks(int n, const weft_launch_request *q, weft_arena *a);

#endif
