/* The subcommands of weft-plan: the compile wing, which needs nothing but a C compiler. */
#include "cli/cli.h"

const weft_cli_command *const weft_cli_commands[] = {
    &weft_cli_graph,   &weft_cli_lower, &weft_cli_sim,
    &weft_cli_cluster, &weft_cli_trace, &weft_cli_estimate,
    &weft_cli_check,   &weft_cli_plan,  NULL, /* ends the list */
};

const weft_cli_command *const weft_cli_cluster_more[] = {
    NULL, /* ends the list */
};

const char *const weft_cli_about      = "Looks at models before they run.";
const char *const weft_cli_help_about = "this page; help COMMAND";

bool weft_cli_help_topic(const char *name, int argc, char **argv)
{
    (void)name, (void)argc, (void)argv;
    return false;
}
