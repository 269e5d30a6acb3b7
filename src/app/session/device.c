#include "session/device.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "job/job.h"
#include "plugin/plugin.h"
#include "probe/found.h"

#define FIND_S 60.0 /* for a driver to say which GPUs there are */

/* Ranks of this host before local_rank that are not on the CPU. */
static int count_before(const weft_session_device *o, int local_rank)
{
    weft_job_device d;
    int             n = 0;
    for (int i = 0; i < local_rank; i++)
        if (weft_job_parse_device("", o->list, i, o->local_world, &d) == WEFT_OK &&
            strcmp(d.name, "cpu") != 0)
            n++;
    return n;
}

/* GPU r for the r-th local rank that has one, unless the job names it.  Ranks may share GPUs only
 * where it says so. */
static weft_status pick_gpu(const weft_session_device *o, const weft_job_device *d,
                            int *number)
{
    const weft_plugin *p;
    int                n_gpu, n_rank = o->local_world > 0 ? o->local_world : 1;
    WEFT_TRY(weft_plugin_open("cuda", &p));
    WEFT_TRY(p->count(&n_gpu));
    int own = n_rank > 1 ? count_before(o, o->local_rank) : 0;
    if (n_rank > 1) n_rank = count_before(o, n_rank);
    bool one_for_all = d->number >= 0 && !strchr(o->list, ',');
    *number          = d->number >= 0 ? d->number : own;
    if (o->share_gpu) {
        if (d->number < 0 && n_gpu) *number = own % n_gpu;
        return WEFT_OK;
    }
    if ((one_for_all && n_rank > 1) || (d->number < 0 && n_gpu && n_rank > n_gpu))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: %d ranks on this host and %d GPU%s: start fewer ranks, or "
                         "set share_gpu=true to let ranks share a GPU",
                         o->where ? o->where : "device", n_rank, one_for_all ? 1 : n_gpu,
                         one_for_all || n_gpu == 1 ? "" : "s");
    return WEFT_OK;
}

/* Two entries of the list that name one GPU. */
static weft_status check_shared(const weft_session_device *o)
{
    weft_job_device a, b;
    if (o->share_gpu || !strchr(o->list, ',')) return WEFT_OK;
    for (int i = 0; i < o->local_world; i++)
        for (int k = 0; k < i; k++) {
            WEFT_TRY(weft_job_parse_device("", o->list, i, o->local_world, &a));
            WEFT_TRY(weft_job_parse_device("", o->list, k, o->local_world, &b));
            if (strcmp(a.name, "cuda") != 0 || strcmp(b.name, "cuda") != 0) continue;
            if ((a.number < 0 ? count_before(o, i) : a.number) ==
                (b.number < 0 ? count_before(o, k) : b.number))
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "%s: device %s gives local ranks %d and %d one GPU: set "
                                 "share_gpu=true to let them share it",
                                 o->where ? o->where : "device", o->list, k, i);
        }
    return WEFT_OK;
}

/* The error of this thread, and whether it is one: without a GPU it is as expected. */
static void note_no_gpu(weft_session_no_gpu *o)
{
    if (!o) return;
    snprintf(o->text, sizeof o->text, "%s", weft_error_text());
    o->there = weft_probe_count_gpus() > 0;
}

weft_status weft_session_open_device(const weft_session_device *o, weft_device **out)
{
    const char     *list = o->list ? o->list : "cpu";
    weft_job_device d;
    int             number = 0, n_rank = o->local_world > 0 ? o->local_world : 1;
    WEFT_TRY(weft_device_check_default());
    WEFT_TRY(weft_job_parse_device(o->where ? o->where : "device", list, o->local_rank,
                                   n_rank, &d));
    bool may_fail = !strcmp(d.name, "auto");
    *out          = weft_device_default();
    if (!strcmp(d.name, "cpu")) return WEFT_OK;
    weft_status st = check_shared(o);
    if (st == WEFT_OK) st = pick_gpu(o, &d, &number);
    if (st == WEFT_OK) st = weft_plugin_open_device("cuda", number, out);
    if (st == WEFT_OK || !may_fail) return st;
    note_no_gpu(o->no_gpu);
    *out = weft_device_default();
    return WEFT_OK;
}

static bool finds_gpus(const weft_session_device *o)
{
    weft_session_device rank   = *o;
    weft_device        *d      = NULL;
    int                 number = 0;
    weft_job_device     cuda   = {.name = "cuda", .number = -1};
    for (int r = 0; r < o->local_world; r++) {
        rank.local_rank = r;
        if (pick_gpu(&rank, &cuda, &number) != WEFT_OK) {
            note_no_gpu(o->no_gpu);
            return false;
        }
    }
    rank.local_rank = 0;
    return weft_session_open_device(&rank, &d) == WEFT_OK && d != weft_device_default();
}

/* Of a child, within that time; then it is killed. */
static bool ends_with_0(pid_t child, double limit_s)
{
    int    how   = 1;
    double until = weft_clock_s() + limit_s;
    pid_t  p;
    while (!(p = waitpid(child, &how, WNOHANG)) || (p < 0 && errno == EINTR)) {
        if (weft_clock_s() > until) {
            kill(child, SIGKILL); /* in a driver that hangs it ends later, if ever */
            return false;
        }
        usleep(1000);
    }
    return p == child && WIFEXITED(how) && !WEXITSTATUS(how);
}

/* What the child has found. */
static void read_no_gpu(int fd, weft_session_no_gpu *o)
{
    if (read(fd, o, sizeof *o) == (ssize_t)sizeof *o) return;
    *o = (weft_session_no_gpu){.there = true, .text = "the driver does not answer"};
}

const char *weft_session_resolve_auto(const weft_session_device *o)
{
    weft_session_no_gpu none     = {.there = false};
    weft_session_device in_child = *o;
    int                 end[2];
    if (pipe2(end, O_CLOEXEC)) return "cpu";
    in_child.no_gpu = &none; /* less than a pipe holds */
    pid_t child     = fork();
    if (!child) {
        bool found = finds_gpus(&in_child);
        _exit(!found && write(end[1], &none, sizeof none) < 0 ? 2 : found ? 0 : 1);
    }
    close(end[1]);
    bool found = child > 0 && ends_with_0(child, FIND_S);
    if (!found && o->no_gpu) read_no_gpu(end[0], o->no_gpu);
    close(end[0]);
    return found ? "cuda" : "cpu";
}

/* The first rank of this host that is not on the CPU. */
static int find_first(const weft_session_device *o)
{
    int r = 0;
    while (r + 1 < o->local_world && !count_before(o, r + 1)) r++;
    return r;
}

void weft_session_warm_device(const weft_session_device *o)
{
    const weft_plugin *p;
    weft_device       *d = NULL;
    int                n_gpu;
    char               text[512];
    if (weft_plugin_open("cuda", &p) != WEFT_OK || p->count(&n_gpu) != WEFT_OK) return;
    weft_session_device rank = *o;
    rank.local_rank          = find_first(o); /* which of those it will be is not known */
    if (n_gpu == 1 || o->local_world <= 1)
        (void)weft_session_open_device(&rank, &d);
    else
        (void)p->describe(text, sizeof text);
}

void weft_session_close_device(weft_device *d)
{
    weft_plugin_close_device(d);
}

weft_status weft_session_find_libraries(char *text, size_t n)
{
    const weft_plugin *p;
    WEFT_TRY(weft_plugin_open("cuda", &p));
    return p->describe(text, n);
}
