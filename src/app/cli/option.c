/* Options by table: one reader and one help page for every subcommand. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/suggest.h"

enum {
    MOST_REAL = 1000000 /* seconds, temperatures: what is larger is a mistake */
};

int weft_cli_usage(const weft_cli_command *c, const char *fmt, ...)
{
    char    words[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    (void)WEFT_FAIL(WEFT_ERR_ARG, "%s", words); /* one line, whatever was typed */
    fprintf(stderr, "weft %s: error: %s (weft %s --help)\n", c->name, weft_error_text(),
            c->name);
    return WEFT_EXIT_USAGE;
}

int weft_cli_fail(const weft_cli_command *c, weft_status st)
{
    fprintf(stderr, "weft %s: error: %s\n", c->name, weft_error_text());
    return st == WEFT_ERR_ARG ? WEFT_EXIT_USAGE : WEFT_EXIT_FAILED;
}

static void print_help(const weft_cli_command *c, const weft_cli_option *o, int n)
{
    printf("usage: weft %s %s\n\n%s\n", c->name, c->usage, c->about);
    if (c->more) printf("\n%s\n", c->more);
    printf("\noptions:\n");
    for (int i = 0; i < n; i++) {
        char left[64], letter[8] = "    ";
        if (o[i].letter) snprintf(letter, sizeof letter, "-%c, ", o[i].letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o[i].name, o[i].arg ? " " : "",
                 o[i].arg ? o[i].arg : "");
        printf("  %-26s %s\n", left, o[i].help);
    }
    printf("  -h, --help                 this page\n\nexample:\n  %s\n", c->example);
}

/* Equal but for '-' and '_'. */
static bool same_name(const char *name, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((word[i] == '_' ? '-' : word[i]) != name[i]) return false;
    return name[n] == 0;
}

static const weft_cli_option *find(const weft_cli_option *o, int n, const char *word,
                                   size_t len)
{
    for (int i = 0; i < n; i++)
        if (same_name(o[i].name, word, len)) return &o[i];
    return NULL;
}

static int unknown(const weft_cli_command *c, const weft_cli_option *o, int n,
                   const char *word)
{
    const char *names[64];
    char        bare[128];
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (int i = 0; i < n && i < 64; i++) names[i] = o[i].name;
    const char *near = weft_suggest(bare, names, n < 64 ? n : 64);
    if (near)
        return weft_cli_usage(c, "unknown option --%s, did you mean --%s?", bare, near);
    if (!strcmp(c->name, "train") && !strcmp(bare, "nproc-per-node"))
        return weft_cli_usage(c, "unknown option --%s; weft run starts several ranks",
                              bare);
    if (strstr(c->usage, "KEY=VALUE"))
        return weft_cli_usage(
            c, "unknown option --%s; a job's keys are given as %s=VALUE", bare, bare);
    return weft_cli_usage(c, "unknown option --%s", bare);
}

/* "4", "2:4" */
static bool read_span(const char *text, weft_cli_span *out)
{
    char *end;
    errno     = 0;
    out->min  = strtoll(text, &end, 10);
    bool good = end > text && *text != '-';
    if (!(out->is_one = *end != ':')) {
        const char *second = end + 1;
        out->max           = strtoll(second, &end, 10);
        good               = good && end > second && *second != '-';
    } else {
        out->max = out->min;
    }
    return good && !*end && !errno;
}

static int store(const weft_cli_command *c, const weft_cli_option *o, const char *value)
{
    char  *end;
    double real;
    errno = 0;
    switch (o->kind) {
    case WEFT_CLI_FLAG: *(bool *)o->out = true; return -1;
    case WEFT_CLI_TEXT: *(const char **)o->out = value; return -1;
    case WEFT_CLI_INT: {
        long long x = strtoll(value, &end, 10);
        if (*end || end == value || errno || x < 0)
            return weft_cli_usage(c, "--%s: '%s' is not a whole number from 0", o->name,
                                  value);
        *(int64_t *)o->out = x;
        return -1;
    }
    case WEFT_CLI_SPAN:
        if (!read_span(value, o->out))
            return weft_cli_usage(c, "--%s: '%s' is not a whole number from 0", o->name,
                                  value);
        return -1;
    case WEFT_CLI_REAL:
        if (!weft_text_read_double(value, &real) || !(real >= 0 && real <= MOST_REAL))
            return weft_cli_usage(c, "--%s: '%s' is not a number from 0 to %d", o->name,
                                  value, MOST_REAL);
        *(double *)o->out = real;
        return -1;
    }
    return -1;
}

int weft_cli_parse(const weft_cli_command *c, const weft_cli_option *o, int n_option,
                   int argc, char **argv, int *n_word)
{
    bool words_only = false;
    *n_word         = 0;
    for (int i = 0; i < argc; i++) {
        const char            *w = argv[i];
        const weft_cli_option *x = NULL;
        const char            *value;
        if (words_only || w[0] != '-' || !w[1]) {
            argv[(*n_word)++] = argv[i];
            continue;
        }
        if (!strcmp(w, "--")) {
            words_only = true;
            continue;
        }
        if (!strcmp(w, "--help") || !strcmp(w, "-h")) {
            print_help(c, o, n_option);
            return WEFT_EXIT_OK;
        }
        if (w[1] == '-') {
            size_t len = strcspn(w + 2, "=");
            x          = find(o, n_option, w + 2, len);
            if (!x) return unknown(c, o, n_option, w);
            value = w[2 + len] == '=' ? w + 3 + len : NULL;
        } else {
            for (int k = 0; k < n_option; k++)
                if (o[k].letter == w[1]) x = &o[k];
            if (!x) return weft_cli_usage(c, "unknown option %s", w);
            value = w[2] ? w + 2 : NULL;
        }
        if (x->kind == WEFT_CLI_FLAG && value)
            return weft_cli_usage(c, "--%s takes no value", x->name);
        if (x->kind != WEFT_CLI_FLAG && !value) {
            if (i + 1 == argc) return weft_cli_usage(c, "--%s needs %s", x->name, x->arg);
            value = argv[++i];
        }
        int code = store(c, x, value);
        if (code >= 0) return code;
    }
    return -1;
}

int weft_cli_put(const weft_cli_command *c, weft_text *t, const char *path)
{
    weft_status st = weft_text_status(t);
    if (st == WEFT_OK && t->n && t->s[t->n - 1] != '\n') weft_text_put(t, "\n", 1);
    if (st == WEFT_OK && path) st = weft_io_replace_file(path, t->s, t->n);
    if (st == WEFT_OK && !path && t->n &&
        (fwrite(t->s, 1, t->n, stdout) != t->n || fflush(stdout)))
        st = WEFT_FAIL(WEFT_ERR_IO, "cannot write to standard output: %s",
                       strerror(errno));
    weft_text_fini(t);
    return st == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail(c, st);
}
