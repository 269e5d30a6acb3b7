/* weft: finds the subcommand and hands the rest over.  Which there are, commands.c says, or
 * commands_plan.c in the command of the compile wing alone. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"
#include "weft/base.h"

static int help(FILE *f)
{
    fprintf(f,
            "usage: weft COMMAND [ARGUMENTS]\n\n"
            "%s  weft COMMAND --help says more, with an example.\n\n",
            weft_cli_about);
    for (int i = 0; weft_cli_commands[i]; i++)
        fprintf(f, "  %-8s %s\n", weft_cli_commands[i]->name,
                weft_cli_commands[i]->about);
    fprintf(f, "  %-8s %s\n", "help", weft_cli_help_about);
    fprintf(f, "  %-8s %s\n", "version", "the version of weft");
    return WEFT_EXIT_OK;
}

static const weft_cli_command *find(const char *name)
{
    for (int i = 0; weft_cli_commands[i]; i++)
        if (!strcmp(weft_cli_commands[i]->name, name)) return weft_cli_commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[64] = {"help", "version"};
    int         n         = 2;
    for (int i = 0; weft_cli_commands[i] && n < (int)WEFT_COUNT(names); i++)
        names[n++] = weft_cli_commands[i]->name;
    const char *near = weft_suggest(name, names, n);
    fprintf(stderr, "weft: error: unknown command '%s'%s%s%s (weft help)\n", name,
            near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return WEFT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "version") || !strcmp(name, "--version") || !strcmp(name, "-V")) {
        bool json = argc > 2 && !strcmp(argv[2], "--json");
        printf(json ? "{\"version\": \"%s\"}\n" : "weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) return help(stdout);
    if (!strcmp(name, "help")) {
        if (argc < 3 || !strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"))
            return help(stdout);
        if (weft_cli_help_topic(argv[2], argc - 3, argv + 3)) return WEFT_EXIT_OK;
        const weft_cli_command *c = find(argv[2]);
        return c ? c->run(1, (char *[]){"--help", NULL}) : unknown(argv[2]);
    }
    const weft_cli_command *c = find(name);
    return c ? c->run(argc - 2, argv + 2) : unknown(name);
}
