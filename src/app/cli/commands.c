/* The subcommands of weft. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "job/job.h"

const weft_cli_command *const weft_cli_commands[] = {
    /* in the order of help */
    &weft_cli_train,  &weft_cli_run,      &weft_cli_status,
    &weft_cli_events, &weft_cli_scale,    &weft_cli_drain,
    &weft_cli_doctor, &weft_cli_sample,   &weft_cli_bench,
    &weft_cli_data,   &weft_cli_ckpt,     &weft_cli_graph,
    &weft_cli_lower,  &weft_cli_sim,      &weft_cli_cluster,
    &weft_cli_trace,  &weft_cli_estimate, &weft_cli_check,
    &weft_cli_plan,   &weft_cli_token,    NULL, /* ends the list */
};

const weft_cli_command *const weft_cli_cluster_more[] = {
    &weft_cli_cluster_discover, &weft_cli_cluster_calibrate, NULL, /* ends the list */
};

const char *const weft_cli_about = "Trains serial models.";
const char *const weft_cli_help_about =
    "this page; help COMMAND; help job: the keys of a job file";

/* --markdown: the table of docs/job.md. */
static void help_job(bool markdown)
{
    weft_text t = {0};
    if (markdown) {
        weft_job_print_keys_md(&t);
    } else {
        weft_text_add(
            &t,
            "Keys of a job file (YAML or JSON), and of key=value words after it:\n\n");
        weft_job_print_keys(&t);
    }
    fputs(t.s, stdout);
    weft_text_fini(&t);
}

bool weft_cli_help_topic(const char *name, int argc, char **argv)
{
    if (strcmp(name, "job") != 0) return false;
    help_job(argc > 0 && !strcmp(argv[0], "--markdown"));
    return true;
}
