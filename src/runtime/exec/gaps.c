/* How long the device has nothing to do in steps that it replays: between two steps, and at the
 * commit point.
 *
 * Each segment records a time of the device's before its first work and after its last, in its
 * graph too.  A segment's times are read before it is given again, when it is over:
 *
 *     times of the updates before this one      before the updates are given
 *     times of what is before the commit point  after that, so that the reading is in no gap */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_priv.h"

enum {
    KEPT = 1024 /* gaps of each kind, the newest */
};

typedef struct gap_list {
    int64_t n;
    float   s[KEPT];
} gap_list;

struct weft_exec__gaps {
    weft_device *device;
    weft_event   first[2], last[2]; /* of the two segments */
    /* of the newest runs; 0: not known */
    double   updates_first_s, updates_last_s, commit_s;
    gap_list between, commit;
};

static weft_status open_times(weft_device *d, weft_event *e)
{
    WEFT_TRY(d->event_open(d, 1, e));
    e->times = true;
    return WEFT_OK;
}

weft_status weft_exec__open_gaps(weft_device *d, weft_arena *a, weft_exec__gaps **out)
{
    weft_exec__gaps *g = WEFT_ARENA_NEW(a, weft_exec__gaps);
    WEFT_TRY(weft_arena_status(a));
    *out      = g;
    g->device = d;
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(open_times(d, &g->first[k]));
        WEFT_TRY(open_times(d, &g->last[k]));
    }
    return WEFT_OK;
}

void weft_exec__close_gaps(weft_exec__gaps *g)
{
    for (int k = 0; g && k < 2; k++) {
        if (g->first[k].device) g->device->event_close(&g->first[k]);
        if (g->last[k].device) g->device->event_close(&g->last[k]);
    }
}

weft_status weft_exec__record_gap(weft_exec__gaps *g, weft_stream *s, int part, bool last)
{
    return g ? g->device->record(s, last ? &g->last[part] : &g->first[part]) : WEFT_OK;
}

static weft_status read_times(weft_exec__gaps *g, int part, double *first, double *last)
{
    WEFT_TRY(g->device->sync(&g->first[part], 1, first));
    return g->device->sync(&g->last[part], 1, last);
}

static void add_gap(gap_list *l, double from, double to)
{
    if (from > 0 && to > 0) l->s[l->n++ % KEPT] = (float)(to - from);
}

weft_status weft_exec__read_updates(weft_exec__gaps *g)
{
    if (!g) return WEFT_OK;
    WEFT_TRY(read_times(g, 1, &g->updates_first_s, &g->updates_last_s));
    add_gap(&g->commit, g->commit_s, g->updates_first_s);
    return WEFT_OK;
}

weft_status weft_exec__read_before_commit(weft_exec__gaps *g)
{
    double first;
    if (!g) return WEFT_OK;
    WEFT_TRY(read_times(g, 0, &first, &g->commit_s));
    add_gap(&g->between, g->updates_last_s, first);
    return WEFT_OK;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static weft_exec_gap sum_up(const gap_list *l)
{
    weft_exec_gap out = {.n = l->n < KEPT ? l->n : KEPT};
    float         s[KEPT];
    memcpy(s, l->s, sizeof *s * (size_t)out.n);
    qsort(s, (size_t)out.n, sizeof *s, by_size);
    for (int64_t i = 0; i < out.n; i++) out.mean_s += (double)s[i] / (double)out.n;
    if (out.n) out.median_s = (double)s[out.n / 2];
    if (out.n) out.most_s = (double)s[out.n - 1];
    return out;
}

void weft_exec__sum_gaps(const weft_exec__gaps *g, weft_exec_gap *between,
                         weft_exec_gap *commit)
{
    *between = *commit = (weft_exec_gap){0};
    if (!g) return;
    *between = sum_up(&g->between);
    *commit  = sum_up(&g->commit);
}
