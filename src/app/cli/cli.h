/* The command: words of the command line in, text out.
 *
 * A subcommand is a weft_cli_command: its name, help and options as data, and one function.
 * (1) Standard output carries the result and nothing else; words to people go to standard error.
 * (2) Options may stand anywhere; "-" and "_" in their names are the same; "--x=1" is "--x 1".
 * (3) Exit codes: 0 ok, 1 failed, 2 usage or bad input, 130 and 143 stopped by SIGINT, SIGTERM;
 *     all of
 *     them: docs/command.md.  A result that standard output does not take is a failure. */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include <stdbool.h>

#include "base/text.h"

enum {
    WEFT_EXIT_OK     = 0,
    WEFT_EXIT_FAILED = 1,
    WEFT_EXIT_USAGE  = 2
};

typedef enum weft_cli_kind {
    WEFT_CLI_FLAG, /* bool *   */
    WEFT_CLI_INT,  /* int64_t * */
    WEFT_CLI_REAL, /* double *, from 0 to 1000000 */
    WEFT_CLI_TEXT, /* const char ** */
    WEFT_CLI_SPAN, /* weft_cli_span *: "N" or "MIN:MAX" */
} weft_cli_kind;

typedef struct weft_cli_span {
    int64_t min, max;
    bool    is_one; /* N */
} weft_cli_span;

typedef struct weft_cli_option {
    const char   *name;   /* "micro-batch" */
    char          letter; /* 'o' for -o, or 0 */
    weft_cli_kind kind;
    void         *out;
    const char   *arg; /* "N", "FILE" */
    const char   *help;
} weft_cli_option;

typedef struct weft_cli_command {
    const char *name;  /* "train", "data inspect" */
    const char *usage; /* what follows the name: "JOB [KEY=VALUE ...]" */
    const char *about; /* one line */
    const char *more;  /* paragraphs for --help, or NULL */
    const char *example;
    int (*run)(int argc, char **argv);
} weft_cli_command;

/* Reads argv into the options; what is left are positionals, in order, *n_word of them, moved to
 * the front of argv.  Gives -1 to go on, else an exit code (--help: 0, a mistake: 2, said). */
int weft_cli_parse(const weft_cli_command *c, const weft_cli_option *o, int n_option,
                   int argc, char **argv, int *n_word);

/* Says "weft train: error: ..." with weft_error_text() and gives the exit code of st. */
int weft_cli_fail(const weft_cli_command *c, weft_status st);
/* The same for usage: words of our own, code 2. */
int weft_cli_usage(const weft_cli_command *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes t (and a newline where it lacks one) to path, or to standard output when path is NULL;
 * takes t.  Gives an exit code. */
int weft_cli_put(const weft_cli_command *c, weft_text *t, const char *path);

/* What a command is made of: commands.c for weft, commands_plan.c for weft-plan. */
extern const weft_cli_command *const weft_cli_commands[]; /* up to NULL */
/* Subcommands of weft cluster beside show and kinds, up to NULL. */
extern const weft_cli_command *const weft_cli_cluster_more[];
extern const char *const weft_cli_about, *const weft_cli_help_about;
/* `weft help NAME` where NAME is no subcommand; false when it is no topic either. */
bool weft_cli_help_topic(const char *name, int argc, char **argv);

/* Log lines of a rendezvous (weft_launch_join_options.log). */
void weft_cli_log(bool warning, const char *text);

extern const weft_cli_command weft_cli_train, weft_cli_sample, weft_cli_bench,
    weft_cli_data, weft_cli_ckpt, weft_cli_graph, weft_cli_lower, weft_cli_sim,
    weft_cli_run, weft_cli_bench_comm, weft_cli_cluster, weft_cli_trace,
    weft_cli_cluster_discover, weft_cli_cluster_calibrate, weft_cli_estimate,
    weft_cli_check, weft_cli_plan, weft_cli_token, weft_cli_status, weft_cli_events,
    weft_cli_scale, weft_cli_drain, weft_cli_doctor;

/* status.c: does the job whose output folder this is still run, as far as can be seen from here? */
bool weft_cli_job_is_running(const char *dir);
/* An agent of this host of the job that runs with this output folder. */
typedef struct weft_launch_agent weft_launch_agent;
weft_status weft_cli_find_agent(const char *dir, weft_launch_agent *out);
/* events.c: the last events of the job, as lines or as objects with commas between. */
typedef struct weft_doc weft_doc;
void weft_cli_put_last_events(const char *dir, int most, bool json, weft_text *t);
/* Does the job wait for what is lost?  why: for what. */
bool weft_cli_find_waiting(const char *dir, weft_text *why);

#endif
