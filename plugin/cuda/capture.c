/* Work of several streams as one graph of the driver's.  The first stream begins and ends the
 * capture; the others join it by an event at the beginning and are joined to it at the end, and so
 * are branches that were forked in it. */
#include <stdlib.h>

#include "base/clock.h"
#include "gpu.h"

enum {
    /* CU_STREAM_CAPTURE_MODE_RELAXED: other threads may allocate meanwhile */
    RELAXED      = 2,
    NO_TIMING    = 2, /* CU_EVENT_DISABLE_TIMING */
    NON_BLOCKING = 1  /* CU_STREAM_NON_BLOCKING */
};

/* Records that one event gets when the segment runs. */
typedef struct moved_event {
    struct moved_event *next;
    void               *event;
    int64_t             n;
} moved_event;

typedef struct cuda_graph {
    weft_cuda_handle exec;
    int64_t          capture;
    moved_event     *moved;
} cuda_graph;

static void free_moved(moved_event *m)
{
    while (m) {
        moved_event *next = m->next;
        free(m);
        m = next;
    }
}

weft_status weft_cuda_capture_moves(weft_cuda_gpu *g, void *event)
{
    for (moved_event *m = g->moved; m; m = m->next)
        if (m->event == event) {
            m->n++;
            return WEFT_OK;
        }
    moved_event *m = malloc(sizeof *m);
    if (!m) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *m       = (moved_event){g->moved, event, 1};
    g->moved = m;
    return WEFT_OK;
}

/* Stream `to` waits for what `from` has so far. */
static weft_status order_streams(weft_cuda_handle from, weft_cuda_handle to)
{
    weft_cuda_handle event = NULL;
    CU_TRY(EventCreate, &event, NO_TIMING);
    weft_status st =
        weft_cuda_check(weft_cuda_cu.EventRecord(event, from), "EventRecord");
    if (st == WEFT_OK)
        st = weft_cuda_check(weft_cuda_cu.StreamWaitEvent(to, event, 0),
                             "StreamWaitEvent");
    weft_cuda_cu.EventDestroy(event);
    return st;
}

/* ---- branches ---- */

weft_status weft_cuda_branch_open(weft_cuda_gpu *g, weft_cuda_branch *b)
{
    WEFT_TRY(weft_cuda_use(g));
    CU_TRY(StreamCreate, &b->stream, NON_BLOCKING);
    b->next   = g->branch;
    g->branch = b;
    return WEFT_OK;
}

void weft_cuda_branch_close(weft_cuda_gpu *g, weft_cuda_branch *b)
{
    if (!b->stream) return;
    for (weft_cuda_branch **at = &g->branch; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            break;
        }
    if (weft_cuda_use(g) == WEFT_OK) {
        weft_cuda_cu.StreamSynchronize(b->stream);
        weft_cuda_cu.StreamDestroy(b->stream);
    }
    *b = (weft_cuda_branch){0};
}

weft_status weft_cuda_branch_fork(weft_cuda_gpu *g, weft_cuda_branch *b,
                                  weft_cuda_handle from, weft_cuda_handle event)
{
    CU_TRY(EventRecord, event, from);
    CU_TRY(StreamWaitEvent, b->stream, event, 0);
    b->capture = g->capture;
    return WEFT_OK;
}

/* Slots that a branch has still in use are not known to the graph. */
static weft_status finish_branches(const weft_cuda_gpu *g)
{
    for (const weft_cuda_branch *b = g->branch; b; b = b->next)
        CU_TRY(StreamSynchronize, b->stream);
    return WEFT_OK;
}

static weft_status join_branches(const weft_cuda_gpu *g)
{
    for (const weft_cuda_branch *b = g->branch; b; b = b->next)
        if (b->capture == g->capture)
            WEFT_TRY(order_streams(b->stream, weft_cuda_stream_of(g->captured[0])));
    return WEFT_OK;
}

/* ---- captures ---- */

/* Streams of other threads (a snapshot's) go on meanwhile, and are not in it. */
static void mark_streams(weft_cuda_gpu *g, int64_t capture)
{
    for (int i = 0; i < g->n_captured; i++)
        ((weft_cuda_queue *)g->captured[i]->impl)->capture = capture;
    g->capture = capture;
}

static void drop_capture(weft_cuda_gpu *g)
{
    free_moved(g->moved);
    g->moved = NULL;
    mark_streams(g, 0);
}

weft_status weft_cuda_capture_begin(weft_device *d, weft_stream *const *s, int n)
{
    weft_cuda_gpu *g = weft_cuda_gpu_of(d);
    WEFT_TRY(weft_cuda_use(g));
    WEFT_TRY(finish_branches(g));
    CU_TRY(StreamBeginCapture, weft_cuda_stream_of(s[0]), RELAXED);
    g->n_captured = n;
    g->captured   = s;
    mark_streams(g, ++g->last_capture);
    weft_status st = WEFT_OK;
    for (int i = 1; i < n && st == WEFT_OK; i++)
        st = order_streams(weft_cuda_stream_of(s[0]), weft_cuda_stream_of(s[i]));
    if (st != WEFT_OK) {
        weft_cuda_handle graph = NULL;
        weft_cuda_cu.StreamEndCapture(weft_cuda_stream_of(s[0]), &graph);
        if (graph) weft_cuda_cu.GraphDestroy(graph);
        drop_capture(g);
    }
    return st;
}

weft_status weft_cuda_capture_end(weft_device *d, weft_captured *out)
{
    weft_cuda_gpu   *g     = weft_cuda_gpu_of(d);
    weft_cuda_handle graph = NULL;
    weft_status      st    = WEFT_OK;
    cuda_graph      *x     = calloc(1, sizeof *x);
    if (!x) st = WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 1; i < g->n_captured && st == WEFT_OK; i++)
        st = order_streams(weft_cuda_stream_of(g->captured[i]),
                           weft_cuda_stream_of(g->captured[0]));
    if (st == WEFT_OK) st = join_branches(g);
    int code = weft_cuda_cu.StreamEndCapture(weft_cuda_stream_of(g->captured[0]), &graph);
    if (st == WEFT_OK) st = weft_cuda_check(code, "StreamEndCapture");
    if (st == WEFT_OK)
        st = weft_cuda_check(weft_cuda_cu.GraphInstantiate(&x->exec, graph, 0),
                             "GraphInstantiate");
    if (graph) weft_cuda_cu.GraphDestroy(graph);
    if (st != WEFT_OK) {
        free(x);
        drop_capture(g);
        return st;
    }
    x->capture = g->capture;
    x->moved   = g->moved;
    for (moved_event *m = x->moved; m; m = m->next)
        weft_cuda_event_move_back(m->event, m->n);
    g->moved = NULL;
    mark_streams(g, 0);
    *out = (weft_captured){.device = d, .impl = x};
    return WEFT_OK;
}

weft_status weft_cuda_replay(weft_stream *s, const weft_captured *g)
{
    cuda_graph      *x = g->impl;
    weft_cuda_queue *q = s->impl;
    WEFT_TRY(weft_cuda_use(weft_cuda_gpu_of(g->device)));
    s->busy       = true;
    q->replayed   = x->capture;
    q->replayed_s = weft_clock_s();
    CU_TRY(GraphLaunch, x->exec, weft_cuda_stream_of(s));
    for (moved_event *m = x->moved; m; m = m->next)
        weft_cuda_event_move(m->event, x->capture, m->n);
    return WEFT_OK;
}

void weft_cuda_captured_free(weft_captured *g)
{
    cuda_graph *x = g->impl;
    if (x) {
        if (weft_cuda_use(weft_cuda_gpu_of(g->device)) == WEFT_OK)
            weft_cuda_cu.GraphExecDestroy(x->exec);
        free_moved(x->moved);
    }
    free(x);
    *g = (weft_captured){0};
}
