/* weft token: the secret by which the ranks of several hosts know each other */
#include <stdio.h>

#include "cli/cli.h"
#include "comm/token.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_token = {
    .name    = "token",
    .usage   = "[FILE]",
    .about   = "make the token that runs on several hosts need",
    .more    = "Writes 32 random bytes, as text, to FILE, which only you can read, and "
               "prints its name; without\n"
               "FILE to weft/token in the folder for configuration (XDG_CONFIG_HOME, else "
               "~/.config), where weft\n"
               "run finds it.  Copy the file to all hosts.  A token is never overwritten.  "
               "Any process that has it can join\n"
               "your runs: make a new one if others may have read it.  docs/security.md "
               "tells what it protects.",
    .example = "weft token && scp -p ~/.config/weft/token host1:.config/weft/token",
    .run     = run,
};

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_token;
    int                     n_word;
    char                    path[4096];
    weft_text               t    = {0};
    const char             *file = path;
    int                     code = weft_cli_parse(c, NULL, 0, argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word > 1) return weft_cli_usage(c, "unexpected '%s'", argv[1]);
    weft_status st = WEFT_OK;
    if (n_word)
        file = argv[0];
    else
        st = weft_comm_token_default(path, sizeof path);
    if (st == WEFT_OK) st = weft_comm_token_create(file);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (n_word)
        fprintf(stderr, "copy the file to all hosts, mode 0600, and name it there with "
                        "--token-file or WEFT_TOKEN_FILE\n");
    else
        fprintf(stderr,
                "copy the file to the same place on all hosts, mode 0600 (scp -p)\n");
    weft_text_add(&t, "%s", file);
    return weft_cli_put(c, &t, NULL);
}
