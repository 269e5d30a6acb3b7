/* weft trace: timelines beside each other */
#include "trace/trace.h"

#include <string.h>

#include "base/io.h"
#include "cli/cli.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_trace = {
    .name    = "trace",
    .usage   = "diff PREDICTED MEASURED [options]",
    .about   = "predicted and measured timelines side by side, by kind of instruction "
               "and class",
    .more    = "PREDICTED is what weft sim -o wrote, MEASURED what weft train --trace "
               "wrote; any "
               "two do.\nTimes are of one step and over all ranks.",
    .example = "weft trace diff predicted.json measured.json",
    .run     = run,
};

static int run(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_trace;
    const char             *out = NULL, *overlay = NULL;
    int                     n_word;
    weft_trace             *p = NULL, *m = NULL;
    weft_text               t = {0}, both = {0};
    weft_status             st       = WEFT_OK;
    const weft_cli_option   option[] = {
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "write it there"},
          {"overlay", 0, WEFT_CLI_TEXT, &overlay, "FILE",
           "both last steps over each other, two tracks a class, for Perfetto"},
    };
    int code = weft_cli_parse(cmd, option, WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 3 || strcmp(argv[0], "diff"))
        return weft_cli_usage(cmd, "expected diff and two traces");
    WEFT_GO(weft_trace_load(argv[1], &p));
    WEFT_GO(weft_trace_load(argv[2], &m));
    WEFT_GO(weft_trace_diff(p, m, &t));
    if (overlay) WEFT_GO(weft_trace_overlay(p, m, &both));
    if (overlay) WEFT_GO(weft_io_replace_file(overlay, both.s, both.n));
out:
    weft_text_fini(&both);
    weft_trace_destroy(p);
    weft_trace_destroy(m);
    return st == WEFT_OK ? weft_cli_put(cmd, &t, out) : weft_cli_fail(cmd, st);
}
