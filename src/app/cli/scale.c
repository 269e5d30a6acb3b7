/* weft scale: a running job gets more or fewer ranks */
#include <stdlib.h>

#include "cli/remote.h"
#include "launch/control.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_scale = {
    .name  = "scale",
    .usage = "N [DIR] [options]",
    .about =
        "go on with N ranks: a job that weft run --nproc-per-node MIN:MAX, or --nnodes "
        "MIN:MAX, has started",
    .more =
        "DIR is the output folder of the job (out).  The job finishes its step, moves "
        "its\n"
        "state to the new ranks and goes on; every loss and weight stays what it would\n"
        "have been.  On several hosts N counts the ranks of all; those that came last "
        "are "
        "taken out\n"
        "first, and a host without ranks leaves (weft drain names one).  Returns when a "
        "step "
        "was\n"
        "committed with N ranks.",
    .example = "weft scale 4 out",
    .run     = run,
};

static int run(int argc, char **argv)
{
    const weft_cli_command *c         = &weft_cli_scale;
    double                  timeout_s = 600;
    int                     n_word    = 0;
    char                    text[256], *end;
    weft_launch_agent       agent;
    weft_cli_remote         remote   = {0};
    weft_text               t        = {0};
    const weft_cli_option   option[] = {
          {"timeout", 0, WEFT_CLI_REAL, &timeout_s, "S", "how long to wait for it (600)"},
          WEFT_CLI_REMOTE_OPTIONS(remote),
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word < 1 || n_word > 2)
        return weft_cli_usage(c, "expected a number of ranks, and perhaps a folder");
    long n = strtol(argv[0], &end, 10);
    if (*end || end == argv[0] || n < 1 || n > 1024)
        return weft_cli_usage(c, "'%s' is not a number of ranks from 1 to 1024", argv[0]);
    if (remote.at && n_word > 1)
        return weft_cli_usage(c, "--at names the job: no folder beside it");
    if (remote.at)
        return weft_cli_ask(c, &remote,
                            &(weft_control_request){.ask = WEFT_CONTROL_SCALE, .n = n},
                            timeout_s);
    weft_status st = weft_cli_find_agent(n_word > 1 ? argv[1] : "out", &agent);
    if (st == WEFT_OK)
        st = weft_launch_scale(&agent, (int)n, timeout_s, text, sizeof text);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    weft_text_add(&t, "%s", text);
    return weft_cli_put(c, &t, NULL);
}
