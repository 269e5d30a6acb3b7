/* Metrics of a run for Prometheus: over HTTP (--metrics), or as a file that is replaced every two
 * seconds (--metrics-file). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/exporter.h"
#include "launch/http.h"
#include "launch/launch_priv.h"

static const double FILE_S = 2;

struct weft_launch__export {
    weft_http          *http;                /* NULL: not asked for */
    double              written_s;           /* the file; 0: not yet */
    bool                warned;              /* it could not be written */
    char                host[64], name[512]; /* labels */
    weft_exporter_rank *rank;
};

static int count_hosts(const weft_launch__run *l)
{
    if (l->hosts) return weft_launch__hosts_view(l)->n_host;
    return l->o->n_node > 1 ? l->o->n_node : 1;
}

/* The label of what runs: the output folder; of a program the folder of its logs, else its name and
 * first argument ("python train.py"). */
static void name_run(const weft_launch_options *o, char *out, size_t n)
{
    const char *first = o->program && o->program[0] ? o->program[1] : NULL;
    if (o->output && *o->output)
        snprintf(out, n, "%s", o->output);
    else if (o->program && o->log_dir)
        snprintf(out, n, "%s", o->log_dir);
    else if (o->program)
        snprintf(out, n, "%s%s%s", o->program[0], first ? " " : "", first ? first : "");
    else
        snprintf(out, n, "weft");
}

static void print_page(void *arg, weft_text *t)
{
    weft_launch__run    *l      = arg;
    weft_launch__export *x      = l->export;
    const char          *folder = l->o->output ? l->o->output : "";
    weft_exporter_job    j      = {.job    = x->name,
                                   .host   = x->host,
                                   .folder = folder,
                                   .now_s  = weft_clock_wall_s(),
                                   .n_host = count_hosts(l),
                                   .n_rank = weft_launch__agent_count(l),
                                   .first  = l->first,
                                   .rank   = x->rank};
    for (int k = 0; k < weft_launch__agent_count(l); k++) {
        int r      = weft_launch__slot_at(l, k);
        x->rank[k] = (weft_exporter_rank){
            .alive = l->c[r].pid && l->c[r].killed_s <= 0,
            .step  = atomic_load(&weft_comm_shm_slot_of(l->shm, r)->step)};
    }
    const weft_exporter_counts *counts =
        l->restart ? weft_launch__restart_counts(l) : l->o->counts;
    j.is_program = l->o->program != NULL;
    j.n_restart  = l->restart ? weft_launch__restart_number(l) : l->o->restart;
    if (counts) j.n_cause = counts->n, j.cause = counts->of;
    weft_launch__agent_export(l, &j);
    weft_exporter_print(&j, t);
}

/* Before a job runs a file that cannot be made is a wrong name; later that is a warning. */
static weft_status check_file(const char *file)
{
    char        temp[4200];
    struct stat is;
    if (!file) return WEFT_OK;
    snprintf(temp, sizeof temp, "%s.tmp", file);
    bool  folder = !stat(file, &is) && S_ISDIR(is.st_mode);
    FILE *f      = folder ? NULL : fopen(temp, "we");
    if (!f)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "--metrics-file %s: %s; name a file in a folder that can be "
                         "written",
                         file, strerror(folder ? EISDIR : errno));
    fclose(f);
    (void)unlink(temp);
    return WEFT_OK;
}

weft_status weft_launch__export_open(weft_launch__run *l)
{
    if (!l->o->metrics && !l->o->metrics_file) return WEFT_OK;
    WEFT_TRY(check_file(l->o->metrics_file));
    weft_launch__export *x = calloc(1, sizeof *x);
    if (x) x->rank = calloc((size_t)l->n, sizeof *x->rank);
    l->export = x;
    if (!x || !x->rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    gethostname(x->host, sizeof x->host - 1);
    name_run(l->o, x->name, sizeof x->name);
    if (!l->o->metrics) return WEFT_OK;
    WEFT_TRY(weft_http_open(l->o->metrics, print_page, l, &x->http));
    weft_launch__say(l, -1, "info", "metrics at port %d of %s", weft_http_port(x->http),
                     l->o->metrics);
    return WEFT_OK;
}

void weft_launch__export_close(weft_launch__run *l)
{
    weft_launch__export *x = l->export;
    if (!x) return;
    weft_http_close(x->http);
    free(x->rank);
    free(x);
    l->export = NULL;
}

int weft_launch__export_fd(const weft_launch__run *l)
{
    return l->export && l->export->http ? weft_http_fd(l->export->http) : -1;
}

int weft_launch__export_wait_ms(const weft_launch__run *l)
{
    return l->export && l->o->metrics_file ? (int)(1e3 * FILE_S) : -1;
}

/* A reader sees the old file or the new one. */
static bool replace_file(const char *path, const weft_text *t)
{
    char temp[4200];
    snprintf(temp, sizeof temp, "%s.tmp", path);
    FILE *f = fopen(temp, "we");
    if (!f) return false;
    bool fine = fwrite(t->s, 1, t->n, f) == t->n;
    if (fclose(f) == 0 && fine && rename(temp, path) == 0) return true;
    (void)unlink(temp);
    return false;
}

static void write_file(weft_launch__run *l, double now_s)
{
    weft_launch__export *x = l->export;
    weft_text            t = {0};
    x->written_s           = now_s;
    print_page(l, &t);
    bool fine = weft_text_status(&t) == WEFT_OK && replace_file(l->o->metrics_file, &t);
    if (!fine && !x->warned)
        weft_launch__say(l, -1, "warn", "%s cannot be written", l->o->metrics_file);
    x->warned = !fine;
    weft_text_fini(&t);
}

void weft_launch__export_tick(weft_launch__run *l)
{
    weft_launch__export *x = l->export;
    if (!x) return;
    double now_s = weft_clock_s();
    if (x->http) weft_http_serve(x->http, now_s);
    if (l->o->metrics_file && (x->written_s <= 0 || now_s - x->written_s >= FILE_S))
        write_file(l, now_s);
}
