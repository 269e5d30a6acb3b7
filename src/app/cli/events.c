/* weft events */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/io.h"
#include "cli/remote.h"
#include "cli/request.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_events = {
    .name    = "events",
    .usage   = "[JOB|DIR] [options]",
    .about   = "what has happened to a job: ranks that were lost, other incidents, views",
    .more    = "DIR is the output folder of the job (out), or the JOB file names it.\n"
               "Events are lines of incidents.jsonl and views.jsonl there, which jobs with "
               "recover: on\n"
               "write, in the order of their time.",
    .example = "weft events -f out",
    .run     = run,
};

enum {
    N_FILE   = 2,
    MAX_LINE = 1 << 16
};

/* One of the files, as far as it was read. */
typedef struct event_file {
    const char *name;
    long long   at; /* bytes */
} event_file;

typedef struct event {
    double time_s;
    char  *line; /* as it is in the file */
    bool   view;
    int    at; /* lines of one time: in the order in which they were written */
} event;

typedef struct event_list {
    event *of;
    int    n, cap;
} event_list;

static void empty_list(event_list *l)
{
    for (int k = 0; k < l->n; k++) free(l->of[k].line);
    free(l->of);
    *l = (event_list){0};
}

/* ---- lines ---- */

static weft_status read_time(const char *path, const char *line, size_t n, double *time_s)
{
    weft_doc   *d  = NULL;
    weft_status st = weft_doc_parse_json(path, line, n, &d);
    if (st == WEFT_OK && weft_doc_root(d)->kind != WEFT_NODE_MAP)
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: a line is no map", path);
    if (st == WEFT_OK && !weft_node_get(weft_doc_root(d), "time"))
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: a line has no time", path);
    if (st == WEFT_OK) st = weft_doc_get_double(d, weft_doc_root(d), "time", time_s);
    weft_doc_destroy(d);
    return st;
}

static weft_status add_event(event_list *l, const char *path, const char *line, size_t n,
                             bool view)
{
    double time_s = 0;
    WEFT_TRY(read_time(path, line, n, &time_s));
    if (l->n == l->cap) {
        int    cap = l->cap ? 2 * l->cap : 64;
        event *of  = realloc(l->of, sizeof *of * (size_t)cap);
        if (!of) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        l->of  = of;
        l->cap = cap;
    }
    char *copy = strndup(line, n);
    if (!copy) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->of[l->n++] = (event){time_s, copy, view, l->n};
    return WEFT_OK;
}

/* Whole lines only: the last one may still be written. */
static weft_status take_lines(event_list *l, const char *path, event_file *f,
                              const char *text, size_t n, bool view)
{
    size_t from = (size_t)f->at;
    if (from > n) from = 0; /* another job's file by now */
    for (const char *end; from < n && (end = memchr(text + from, '\n', n - from));) {
        size_t length = (size_t)(end - text) - from;
        if (length > MAX_LINE)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: a line of %zu bytes", path, length);
        if (length) WEFT_TRY(add_event(l, path, text + from, length, view));
        from += length + 1;
    }
    f->at = (long long)from;
    return WEFT_OK;
}

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return x->at - y->at;
}

/* What is new. */
static weft_status read_events(const char *dir, event_file *f, int n_file, event_list *l)
{
    for (int k = 0; k < n_file; k++) {
        char   path[4352], *text = NULL;
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, f[k].name);
        if (!weft_io_exists(path)) continue;
        WEFT_TRY(weft_io_read_file(path, &text, &n));
        weft_status st = take_lines(l, path, &f[k], text, n, k == 1);
        free(text);
        if (st != WEFT_OK) return st;
    }
    if (l->n) qsort(l->of, (size_t)l->n, sizeof *l->of, by_time);
    return WEFT_OK;
}

/* ---- for people ---- */

static const char *get_text(const weft_doc *d, const char *key)
{
    const char      *s = NULL;
    const weft_node *n = weft_node_get(weft_doc_root(d), key);
    if (!n || weft_doc_get_string(d, weft_doc_root(d), key, &s) != WEFT_OK || !s)
        return "";
    return s;
}

/* NAN: it has none. */
static double get_number(const weft_doc *d, const weft_node *map, const char *key)
{
    double x;
    if (!map || map->kind != WEFT_NODE_MAP || !weft_node_get(map, key) ||
        weft_doc_get_double(d, map, key, &x) != WEFT_OK)
        return NAN;
    return x;
}

static void put_when(double time_s, weft_text *t)
{
    char      when[32];
    time_t    at = (time_t)time_s;
    struct tm tm;
    localtime_r(&at, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    weft_text_add(t, "%s  ", when);
}

static void print_view(const weft_doc *d, weft_text *t)
{
    const weft_node *root  = weft_doc_root(d);
    double           ranks = get_number(d, root, "ranks");
    weft_text_add(t, "view %.0f: %.0f rank%s, from step %.0f on\n",
                  get_number(d, root, "epoch"), ranks, ranks == 1 ? "" : "s",
                  get_number(d, root, "first_step"));
}

/* Levels that were possible and cost more, or were not allowed. */
static void print_rejected(const weft_doc *d, weft_text *t)
{
    const weft_node *list = weft_node_get(weft_doc_root(d), "rejected");
    int              n    = 0;
    for (int k = 0; list && list->kind == WEFT_NODE_LIST && k < list->u.list.n; k++) {
        const weft_node *x    = list->u.list.node[k];
        double           cost = get_number(d, x, "cost_s");
        const char      *level;
        if (!isfinite(cost) || weft_doc_get_string(d, x, "level", &level) != WEFT_OK ||
            !level)
            continue;
        weft_text_add(t, "%s%s (%.3g s)", n++ ? ", " : "; rejected: ", level, cost);
    }
}

static void print_incident(const weft_doc *d, weft_text *t)
{
    const weft_node *root = weft_doc_root(d);
    double rank = get_number(d, root, "rank"), step = get_number(d, root, "step"),
           next         = get_number(d, root, "next_step"),
           ms           = get_number(d, weft_node_get(root, "ms"), "total");
    const char *decided = get_text(d, "decided"), *why = get_text(d, "why");
    if (rank >= 0 && strcmp(get_text(d, "noticed"), "report") != 0)
        weft_text_add(t, "rank %.0f: ", rank); /* a report says itself about whom it is */
    weft_text_add(t, "%s", get_text(d, "what"));
    if (step >= 0) weft_text_add(t, " after step %.0f", step);
    if (*get_text(d, "cause")) weft_text_add(t, " (%s)", get_text(d, "cause"));
    if (*decided) weft_text_add(t, "; decided: %s", decided);
    if (*why) weft_text_add(t, ", %s", why);
    if (isfinite(ms) && isfinite(next))
        weft_text_add(t, ", step %.0f was committed after %.3g s", next, 1e-3 * ms);
    print_rejected(d, t);
    weft_text_add(t, "\n");
}

static weft_status print_events(const event_list *l, bool json, weft_text *t)
{
    for (int k = 0; k < l->n; k++) {
        weft_doc *d = NULL;
        if (json) {
            weft_text_add(t, "%s\n", l->of[k].line);
            continue;
        }
        WEFT_TRY(weft_doc_parse_json("event", l->of[k].line, strlen(l->of[k].line), &d));
        put_when(l->of[k].time_s, t);
        if (l->of[k].view)
            print_view(d, t);
        else
            print_incident(d, t);
        weft_doc_destroy(d);
    }
    return weft_text_status(t);
}

void weft_cli_put_last_events(const char *dir, int most, bool json, weft_text *t)
{
    event_file f[N_FILE] = {{"incidents.jsonl", 0}, {"views.jsonl", 0}};
    event_list l         = {0};
    weft_text  lines     = {0};
    if (read_events(dir, f, N_FILE, &l) == WEFT_OK && l.n) {
        int        from = l.n > most ? l.n - most : 0;
        event_list last = {.of = l.of + from, .n = l.n - from};
        if (json)
            for (int k = 0; k < last.n; k++)
                weft_text_add(&lines, "%s%s", k ? ", " : "", last.of[k].line);
        else
            (void)print_events(&last, false, &lines);
    }
    weft_text_put(t, lines.s, lines.n);
    weft_text_fini(&lines);
    empty_list(&l);
}

/* What is waited for has a line when that begins, without the step that follows. */
bool weft_cli_find_waiting(const char *dir, weft_text *why)
{
    event_file f[N_FILE] = {{"incidents.jsonl", 0}};
    event_list l         = {0};
    weft_doc  *d         = NULL;
    bool       waits     = false;
    if (read_events(dir, f, 1, &l) == WEFT_OK && l.n) {
        int newest = 0;
        for (int k = 1; k < l.n; k++)
            if (l.of[k].at > l.of[newest].at) newest = k;
        const char *line = l.of[newest].line;
        waits = weft_doc_parse_json("event", line, strlen(line), &d) == WEFT_OK &&
                !strcmp(get_text(d, "decided"), "wait") &&
                !weft_node_get(weft_doc_root(d), "next_step");
        if (waits) weft_text_add(why, "%s", get_text(d, "why"));
        weft_doc_destroy(d);
    }
    empty_list(&l);
    return waits;
}

/* ---- the command ---- */

static weft_status check_folder(const char *dir)
{
    char path[4352];
    snprintf(path, sizeof path, "%s/status.json", dir);
    if (weft_io_exists(path)) return WEFT_OK;
    snprintf(path, sizeof path, "%s/incidents.jsonl", dir);
    if (weft_io_exists(path)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: no job has run there (DIR is the output folder of a job)", dir);
}

static int show_new(const char *dir, event_file *f, bool json, int *n)
{
    const weft_cli_command *c    = &weft_cli_events;
    event_list              l    = {0};
    weft_text               t    = {0};
    int                     code = WEFT_EXIT_OK;
    weft_status             st   = read_events(dir, f, N_FILE, &l);
    if (st == WEFT_OK) st = print_events(&l, json, &t);
    *n += l.n;
    if (st != WEFT_OK)
        code = weft_cli_fail(c, st);
    else if (t.n && (fwrite(t.s, 1, t.n, stdout) != t.n || fflush(stdout)))
        code = weft_cli_fail(
            c, WEFT_FAIL(WEFT_ERR_IO, "standard output: %s", strerror(errno)));
    weft_text_fini(&t);
    empty_list(&l);
    return code;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c    = &weft_cli_events;
    bool                    json = false, follow = false;
    int                     n_word = 0, n = 0;
    weft_cli_remote         remote    = {0};
    event_file              f[N_FILE] = {{"incidents.jsonl", 0}, {"views.jsonl", 0}};
    const weft_cli_option   option[]  = {
           {"follow", 'f', WEFT_CLI_FLAG, &follow, NULL,
            "go on with events as they come, until the job has ended"},
           {"json", 0, WEFT_CLI_FLAG, &json, NULL, "lines of JSON, as the job wrote them"},
           WEFT_CLI_REMOTE_OPTIONS(remote),
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word > 1) return weft_cli_usage(c, "expected one folder");
    if (remote.at && n_word)
        return weft_cli_usage(c, "--at names the job: no folder beside it");
    if (remote.at)
        return weft_cli_ask(c, &remote,
                            &(weft_control_request){.ask    = WEFT_CONTROL_EVENTS,
                                                    .json   = json,
                                                    .follow = follow},
                            follow ? 0 : WEFT_CLI_ANSWER_S);
    char        dir[4096];
    weft_status st = weft_cli_find_output(n_word ? argv[0] : NULL, dir, sizeof dir);
    if (st == WEFT_OK) st = check_folder(dir);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    for (bool more = true; more;) {
        more =
            follow && weft_cli_job_is_running(dir); /* before its last lines are read */
        code = show_new(dir, f, json, &n);
        if (code) return code;
        if (more) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    if (!n && !json) fprintf(stderr, "weft events: nothing has happened\n");
    return code;
}
