/* The trace event format, as far as we write it. */
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "trace/trace.h"

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
    double           first = 0, last = 0;
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
        if (!t->n_event || e->start_s < first) first = e->start_s;
        if (!t->n_event || e->start_s + e->dur_s > last) last = e->start_s + e->dur_s;
        if (e->step >= t->n_step) t->n_step = e->step + 1;
        if (e->rank >= t->n_rank) t->n_rank = e->rank + 1;
        t->n_event++;
    }
    if (!t->n_event)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a trace of no instructions", t->file);
    t->step_s = (last - first) / t->n_step;
    return WEFT_OK;
}

/* Steps are counted from the first one traced. */
static void shift_steps(weft_trace *t)
{
    int low = t->event[0].step;
    for (int i = 0; i < t->n_event; i++)
        if (t->event[i].step < low) low = t->event[i].step;
    for (int i = 0; i < t->n_event; i++) t->event[i].step -= low;
    t->step_s *= (double)t->n_step / (t->n_step - low);
    t->n_step -= low;
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
    shift_steps(t);
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
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st = weft_trace_parse(path, text, n, out);
    free(text);
    return st;
}

void weft_trace_destroy(weft_trace *t)
{
    if (t) weft_arena_destroy(t->arena);
}
