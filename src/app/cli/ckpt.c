/* weft ckpt ls | verify */
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "ckpt/state.h"
#include "cli/cli.h"

static const weft_cli_command ls_command = {
    .name  = "ckpt ls",
    .usage = "DIR [options]",
    .about = "the checkpoints of a folder, newest first: step, bytes, files, what is "
             "wrong, and what --allow changed",
    .more =
        "DIR is a folder of checkpoints, or an output folder of weft train that has one.",
    .example = "weft ckpt ls out/checkpoints --json",
};

static const weft_cli_command verify_command = {
    .name  = "ckpt verify",
    .usage = "DIR [options]",
    .about = "reads every block of every checkpoint against its checksum; exit code 1 if "
             "one is damaged",
    .more =
        "DIR is a folder of checkpoints, or an output folder of weft train that has one.",
    .example = "weft ckpt verify out/checkpoints",
};

/* What resumes changed of the job on the way to this checkpoint.  Nothing where state.json cannot
 * be read: it may be another program's. */
static void print_history(const char *dir, const weft_ckpt_info *i, bool json,
                          weft_text *t)
{
    char            path[4352], *text;
    size_t          n;
    weft_ckpt_state s = {0};
    snprintf(path, sizeof path, "%s/%s/state.json", dir, i->dir);
    if (!weft_io_exists(path) || weft_io_read_file(path, &text, &n) != WEFT_OK) return;
    weft_status st = weft_ckpt_state_parse(path, text, n, &s);
    free(text);
    if (st != WEFT_OK) return;
    if (json && s.n_history) {
        weft_text_add(t, ", \"history\": ");
        weft_ckpt_state_print_history(&s, t);
    }
    for (int k = 0; k < s.n_history && !json; k++)
        weft_text_add(t, "%12sfrom step %lld on: %s %lld (was %lld)\n", "",
                      (long long)s.history[k].step + 1, s.history[k].key,
                      (long long)s.history[k].to, (long long)s.history[k].from);
    weft_ckpt_state_fini(&s);
}

static void print_row(const char *dir, const weft_ckpt_info *i, bool deep, bool json,
                      weft_text *t)
{
    bool ok = i->status == WEFT_OK;
    if (!json) {
        weft_text_add(t, "%10lld  %14lld bytes  %2d files  %s%s%s\n", (long long)i->step,
                      (long long)i->bytes, i->n_file, i->dir,
                      ok ? (deep ? "  ok" : "") : "  DAMAGED: ", ok ? "" : i->why);
        if (ok) print_history(dir, i, json, t);
        return;
    }
    weft_text_add(t, "{\"step\": %lld, \"bytes\": %lld, \"files\": %d, \"dir\": ",
                  (long long)i->step, (long long)i->bytes, i->n_file);
    weft_text_put_quoted(t, i->dir);
    weft_text_add(t, ", \"ok\": %s", ok ? "true" : "false");
    if (!ok) {
        weft_text_put_string_member(t, "why", i->why);
    }
    if (ok) print_history(dir, i, json, t);
    weft_text_add(t, "}");
}

static int list(const weft_cli_command *c, bool deep, int argc, char **argv)
{
    bool                  json   = false;
    int                   n_word = 0, n = 0, n_bad = 0;
    weft_ckpt_info       *info = NULL;
    char                  dir[4096];
    weft_text             t        = {0};
    const weft_cli_option option[] = {
        {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON: a list"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(c, "expected one folder");

    snprintf(dir, sizeof dir, "%s/checkpoints", argv[0]);
    if (!weft_io_exists(dir)) snprintf(dir, sizeof dir, "%s", argv[0]);
    if (!weft_io_exists(dir)) return weft_cli_usage(c, "%s: no such folder", dir);
    weft_status st = weft_ckpt_list(dir, deep, &info, &n);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (json) weft_text_add(&t, "[");
    for (int i = 0; i < n; i++) {
        if (json && i) weft_text_add(&t, ", ");
        print_row(dir, &info[i], deep, json, &t);
        n_bad += info[i].status != WEFT_OK;
    }
    if (json) weft_text_add(&t, "]");
    free(info);
    code = weft_cli_put(c, &t, NULL);
    if (!n && !json && !deep)
        fprintf(stderr, "weft %s: no checkpoint in %s\n", c->name, dir);
    if (code == WEFT_EXIT_OK && deep && (n_bad || !n)) {
        fprintf(stderr,
                n ? "weft %s: error: %s: %d of %d checkpoints damaged\n"
                  : "weft %s: error: %s: no checkpoint\n",
                c->name, dir, n_bad, n);
        return n ? WEFT_EXIT_FAILED : WEFT_EXIT_USAGE;
    }
    return code;
}

static int run(int argc, char **argv);

const weft_cli_command weft_cli_ckpt = {
    .name    = "ckpt",
    .usage   = "ls DIR | verify DIR",
    .about   = "list checkpoints, verify them",
    .more    = "weft ckpt ls --help and weft ckpt verify --help say more.",
    .example = "weft ckpt verify out",
    .run     = run,
};

static int run(int argc, char **argv)
{
    int n_word = 0;
    if (argc > 0 && !strcmp(argv[0], "ls"))
        return list(&ls_command, false, argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "verify"))
        return list(&verify_command, true, argc - 1, argv + 1);
    int code = weft_cli_parse(&weft_cli_ckpt, NULL, 0, argc, argv, &n_word);
    return code >= 0 ? code : weft_cli_usage(&weft_cli_ckpt, "expected ls or verify");
}
