/* weft: finds the subcommand and hands the rest over.  Which there are, commands.c says, or
 * commands_plan.c in the command of the compile wing alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "base/suggest.h"
#include "cli/build.h"
#include "cli/cli.h"
#include "cli/weft_build.h"

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
    fprintf(f, "\nexit codes: 0 done, 1 failed, 2 wrong usage or bad input, 76 another "
               "rank failed (ranks of\ntorchrun, srun, mpirun), 130 and 143 stopped by "
               "SIGINT and SIGTERM, 128 + N a rank was ended by\nsignal N\n");
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
    (void)WEFT_FAIL(WEFT_ERR_ARG, "unknown command '%.200s'%s%s%s", name,
                    near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    fprintf(stderr, "weft: error: %s (weft help)\n", weft_error_text());
    return WEFT_EXIT_USAGE;
}

/* A file that is opened later must not become standard output or error, or results would hold log
 * lines. What was closed is opened the wrong way round, so that its use still fails. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            (void)!open("/", O_RDONLY);
    }
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "version") || !strcmp(name, "--version") || !strcmp(name, "-V")) {
        bool json = argc > 2 && !strcmp(argv[2], "--json");
        if (json)
            printf("{\"version\": \"%s\", \"commit\": \"%s\"}\n", WEFT_VERSION,
                   weft_cli_commit());
        else
            printf("weft %s\n", weft_cli_build());
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

int main(int argc, char **argv)
{
    open_standard_streams();
    weft_cli_set_commit(WEFT_BUILD);
    signal(SIGXFSZ, SIG_IGN); /* a file beyond ulimit -f is an error with a message */
    int code = run_command(argc, argv);
    errno    = 0;
    if ((fflush(stdout) || ferror(stdout)) && code == WEFT_EXIT_OK) {
        fprintf(stderr, "weft: error: cannot write to standard output%s%s\n",
                errno ? ": " : "", errno ? strerror(errno) : "");
        code = WEFT_EXIT_FAILED;
    }
    return code;
}
