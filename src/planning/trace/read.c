/* The trace event format, as far as we write it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "trace/trace.h"

static weft_status read_work(const weft_doc *d, const weft_node *args,
                             weft_trace_event *e)
{
    const char      *work  = "";
    int64_t          ranks = 0, first = 0;
    const weft_node *l = weft_node_get(args, "size");
    e->work            = (weft_workload){.n = 0};
    WEFT_TRY(weft_doc_get_string(d, args, "work", &work));
    WEFT_TRY(weft_doc_get_int(d, args, "ranks", &ranks));
    WEFT_TRY(weft_doc_get_int(d, args, "first", &first));
    WEFT_TRY(weft_doc_get_double(d, args, "given", &e->given));
    e->ranks = (int)(ranks & 0xffffff);
    e->first = (int)(first & 0xffffff);
    if (!work[0] || !l || l->kind != WEFT_NODE_LIST) return WEFT_OK;
    snprintf(e->work.kind, sizeof e->work.kind, "%s", work);
    for (int i = 0; i < l->u.list.n && i < WEFT_WORK_SIZES; i++) {
        const weft_node *v = l->u.list.node[i];
        if (v->kind == WEFT_NODE_INT)
            e->work.size[e->work.n++] = (double)v->u.i;
        else if (v->kind == WEFT_NODE_FLOAT)
            e->work.size[e->work.n++] = v->u.f;
    }
    return WEFT_OK;
}

static weft_status read_event(const weft_doc *d, const weft_node *n, weft_trace *t,
                              weft_trace_event *e)
{
    const weft_node *args = weft_node_get(n, "args");
    const char      *name = "", *kind = "", *actor = "";
    int64_t          rank = 0, stream = 0, micro = 0, step = 0;
    double           ts = 0, dur = 0;
    e->flops = e->bytes = -1;
    WEFT_TRY(weft_doc_get_string(d, n, "name", &name));
    WEFT_TRY(weft_doc_get_string(d, n, "cat", &kind));
    WEFT_TRY(weft_doc_get_int(d, n, "pid", &rank));
    WEFT_TRY(weft_doc_get_int(d, n, "tid", &stream));
    WEFT_TRY(weft_doc_get_double(d, n, "ts", &ts));
    WEFT_TRY(weft_doc_get_double(d, n, "dur", &dur));
    if (args && args->kind == WEFT_NODE_MAP) {
        WEFT_TRY(weft_doc_get_string(d, args, "actor", &actor));
        WEFT_TRY(weft_doc_get_int(d, args, "micro", &micro));
        WEFT_TRY(weft_doc_get_int(d, args, "step", &step));
        WEFT_TRY(weft_doc_get_double(d, args, "flops", &e->flops));
        WEFT_TRY(weft_doc_get_double(d, args, "bytes", &e->bytes));
        WEFT_TRY(read_work(d, args, e));
    }
    e->name    = weft_arena_strdup(t->arena, name);
    e->kind    = weft_arena_strdup(t->arena, kind);
    e->actor   = weft_arena_strdup(t->arena, actor);
    e->rank    = (int)(rank & 0xffffff);
    e->stream  = (int)(stream & 0xffff);
    e->micro   = (int)micro;
    e->step    = (int)(step & 0xffffff);
    e->start_s = 1e-6 * ts;
    e->dur_s   = dur > 0 ? 1e-6 * dur : 0;
    return weft_arena_status(t->arena);
}

static weft_status read_all(const weft_doc *d, weft_trace *t)
{
    const weft_node *root = weft_doc_root(d), *l = NULL;
    if (root && root->kind == WEFT_NODE_MAP) l = weft_node_get(root, "traceEvents");
    if (!l || l->kind != WEFT_NODE_LIST)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: no traceEvents; expected what weft train "
                         "--trace or weft sim -o writes",
                         t->file);
    t->event = WEFT_ARENA_ARRAY(t->arena, weft_trace_event, l->u.list.n + 1);
    WEFT_TRY(weft_arena_status(t->arena));
    for (int i = 0; i < l->u.list.n; i++) {
        const weft_node *n  = l->u.list.node[i];
        const char      *ph = NULL;
        if (n->kind != WEFT_NODE_MAP)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: expected an event", t->file, n->line);
        WEFT_TRY(weft_doc_get_string(d, n, "ph", &ph));
        if (!ph || strcmp(ph, "X")) continue;
        weft_trace_event *e = &t->event[t->n_event];
        WEFT_TRY(read_event(d, n, t, e));
        if (e->step >= t->n_step) t->n_step = e->step + 1;
        if (e->rank >= t->n_rank) t->n_rank = e->rank + 1;
        t->n_event++;
    }
    if (!t->n_event)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a trace of no instructions", t->file);
    return WEFT_OK;
}

/* ---- whole steps ---- */

typedef struct lane { /* a stream of a rank in a step */
    int rank, stream, step, n;
} lane;

static int by_lane(const void *a, const void *b)
{
    const lane *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Lanes of t with how many events each has; how many there are. */
static int count_lanes(const weft_trace *t, lane *l)
{
    int n = 0;
    for (int i = 0; i < t->n_event; i++) {
        const weft_trace_event *e = &t->event[i];
        l[i]                      = (lane){e->rank, e->stream, e->step, 1};
    }
    qsort(l, (size_t)t->n_event, sizeof *l, by_lane);
    for (int i = 0; i < t->n_event; i++)
        if (n && !by_lane(&l[n - 1], &l[i]))
            l[n - 1].n++;
        else
            l[n++] = l[i];
    return n;
}

/* The first step in which every stream did as much as in its fullest. */
static int first_whole(const lane *l, int n)
{
    int from = 0;
    for (int i = 0, end; i < n; i = end) {
        int most = 0;
        for (end = i; end < n && l[end].rank == l[i].rank && l[end].stream == l[i].stream;
             end++)
            if (l[end].n > most) most = l[end].n;
        int k = end;
        while (k > i && l[k - 1].n == most) k--;
        if (k < end && l[k].step > from) from = l[k].step;
    }
    return from;
}

/* Whole steps only, counted from the first of them. */
static weft_status keep_whole(weft_trace *t)
{
    lane  *l     = WEFT_ARENA_ARRAY(t->arena, lane, t->n_event);
    double begin = 0, end = 0;
    int    n = 0;
    WEFT_TRY(weft_arena_status(t->arena));
    int from = first_whole(l, count_lanes(t, l));
    for (int i = 0; i < t->n_event; i++) {
        weft_trace_event e = t->event[i];
        if (e.step < from) continue;
        if (!n || e.start_s < begin) begin = e.start_s;
        if (!n || e.start_s + e.dur_s > end) end = e.start_s + e.dur_s;
        e.step -= from;
        t->event[n++] = e;
    }
    t->n_event = n;
    t->n_step -= from;
    t->step_s = (end - begin) / t->n_step;
    return WEFT_OK;
}

/* ---- waiting ---- */

static int by_meeting(const void *a, const void *b)
{
    const weft_trace_event *x = *(const weft_trace_event *const *)a;
    const weft_trace_event *y = *(const weft_trace_event *const *)b;
    int                     c = strcmp(x->kind, y->kind);
    if (!c) c = strcmp(x->name, y->name);
    if (!c) c = strcmp(x->actor, y->actor);
    if (!c) c = (x->first > y->first) - (x->first < y->first);
    if (!c) c = (x->micro > y->micro) - (x->micro < y->micro);
    if (!c) c = (x->step > y->step) - (x->step < y->step);
    return c;
}

/* A collective begins when the last of its members has come; a receive only waits. */
static weft_status part_waiting(weft_trace *t)
{
    weft_trace_event **l = WEFT_ARENA_ARRAY(t->arena, weft_trace_event *, t->n_event);
    int                n = 0;
    WEFT_TRY(weft_arena_status(t->arena));
    for (int i = 0; i < t->n_event; i++) {
        weft_trace_event *e = &t->event[i];
        if (e->ranks > 1) l[n++] = e;
        if (!strcmp(e->kind, "recv")) e->wait_s = e->dur_s, e->dur_s = 0;
    }
    qsort(l, (size_t)n, sizeof(void *), by_meeting);
    for (int i = 0, end; i < n; i = end) {
        double last = l[i]->start_s;
        for (end = i; end < n && !by_meeting(&l[i], &l[end]); end++)
            if (l[end]->start_s > last) last = l[end]->start_s;
        for (int k = i; k < end && end - i == l[i]->ranks; k++) {
            double wait  = last - l[k]->start_s;
            l[k]->wait_s = wait < l[k]->dur_s ? wait : l[k]->dur_s;
            l[k]->dur_s -= l[k]->wait_s;
        }
    }
    return WEFT_OK;
}

weft_status weft_trace_parse(const char *file, const char *text, size_t n,
                             weft_trace **out)
{
    weft_doc   *d = NULL;
    weft_arena *a = NULL;
    weft_status st;
    WEFT_GO(weft_doc_parse_json(file, text, n, &d));
    WEFT_GO(weft_arena_create(&a));
    weft_trace *t = WEFT_ARENA_NEW(a, weft_trace);
    WEFT_GO(weft_arena_status(a));
    t->arena = a;
    t->file  = weft_arena_strdup(a, file);
    WEFT_GO(read_all(d, t));
    WEFT_GO(keep_whole(t));
    WEFT_GO(part_waiting(t));
    *out = t;
    a    = NULL;
out:
    weft_arena_destroy(a);
    weft_doc_destroy(d);
    return st;
}

weft_status weft_trace_load(const char *path, weft_trace **out)
{
    char  *text;
    size_t n;
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_PIPES | WEFT_IO_LARGE, &text, &n));
    weft_status st = weft_trace_parse(path, text, n, out);
    free(text);
    return st;
}

void weft_trace_destroy(weft_trace *t)
{
    if (t) weft_arena_destroy(t->arena);
}
