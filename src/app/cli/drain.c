/* weft drain: a host leaves a running job */
#include <stdio.h>
#include <string.h>

#include "cli/remote.h"
#include "launch/control.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_drain = {
    .name  = "drain",
    .usage = "HOST [DIR] [options]",
    .about = "take a host out of a job that weft run --nnodes MIN:MAX has started",
    .more =
        "DIR is the output folder of the job (out).  HOST is a host's name, as weft "
        "status shows\n"
        "it, or the address of its agent.  The job finishes its step, the other hosts "
        "go\n"
        "on, and weft run ends on HOST with exit code 0.  Returns when the others have "
        "decided so.",
    .example = "weft drain node7 out",
    .run     = run,
};

static int run(int argc, char **argv)
{
    const weft_cli_command *c         = &weft_cli_drain;
    double                  timeout_s = 600;
    int                     n_word    = 0;
    char                    text[256];
    weft_launch_agent       agent;
    weft_cli_remote         remote   = {0};
    weft_control_request    request  = {.ask = WEFT_CONTROL_DRAIN};
    weft_text               t        = {0};
    const weft_cli_option   option[] = {
          {"timeout", 0, WEFT_CLI_REAL, &timeout_s, "S", "how long to wait for it (600)"},
          WEFT_CLI_REMOTE_OPTIONS(remote),
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word < 1 || n_word > 2)
        return weft_cli_usage(c, "expected the name of a host, and perhaps a folder");
    if (!*argv[0] || strlen(argv[0]) >= sizeof request.host)
        return weft_cli_usage(c, "'%s' is no name of a host", argv[0]);
    if (remote.at && n_word > 1)
        return weft_cli_usage(c, "--at names the job: no folder beside it");
    snprintf(request.host, sizeof request.host, "%s", argv[0]);
    if (remote.at) return weft_cli_ask(c, &remote, &request, timeout_s);
    weft_status st = weft_cli_find_agent(n_word > 1 ? argv[1] : "out", &agent);
    if (st == WEFT_OK)
        st = weft_launch_drain(&agent, argv[0], timeout_s, text, sizeof text);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    weft_text_add(&t, "%s", text);
    return weft_cli_put(c, &t, NULL);
}
