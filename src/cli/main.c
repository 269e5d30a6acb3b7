/* weft: finds the subcommand and hands the rest over. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"
#include "session/job.h"
#include "weft/base.h"

static const weft_cli_command *const commands[] = {
    &weft_cli_data,
    &weft_cli_ckpt,
    &weft_cli_graph,
};

static int help(FILE *f)
{
    fprintf(f,
            "usage: weft COMMAND [ARGUMENTS]\n\n"
            "Trains serial models.  weft COMMAND --help says more, with an example.\n\n");
    for (size_t i = 0; i < WEFT_COUNT(commands); i++)
        fprintf(f, "  %-8s %s\n", commands[i]->name, commands[i]->about);
    fprintf(f, "  %-8s %s\n", "help",
            "this page; help COMMAND; help job: the keys of a job file");
    fprintf(f, "  %-8s %s\n", "version", "the version of weft");
    return WEFT_EXIT_OK;
}

/* --markdown: the table of docs/job.md. */
static int help_job(bool markdown)
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
    return WEFT_EXIT_OK;
}

static const weft_cli_command *find(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(commands); i++)
        if (!strcmp(commands[i]->name, name)) return commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[WEFT_COUNT(commands) + 2] = {"help", "version"};
    for (size_t i = 0; i < WEFT_COUNT(commands); i++) names[i + 2] = commands[i]->name;
    const char *near = weft_suggest(name, names, (int)WEFT_COUNT(names));
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
        printf("weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) return help(stdout);
    if (!strcmp(name, "help")) {
        if (argc < 3) return help(stdout);
        if (!strcmp(argv[2], "job"))
            return help_job(argc > 3 && !strcmp(argv[3], "--markdown"));
        const weft_cli_command *c = find(argv[2]);
        return c ? c->run(1, (char *[]){"--help", NULL}) : unknown(argv[2]);
    }
    const weft_cli_command *c = find(name);
    return c ? c->run(argc - 2, argv + 2) : unknown(name);
}
