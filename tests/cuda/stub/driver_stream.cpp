/* Streams, events and graphs of the stub driver. */
#include <string.h>

#include "stub/enter.h"

using namespace stub;

API int cuStreamCreate(void **s, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    *s = *streams.insert(new stream).first;
    return OK;
}

API int cuStreamDestroy_v2(void *s)
{
    ENTER();
    if (!streams.count((stream *)s)) return INVALID_HANDLE;
    reach r;
    drain((stream *)s, ((stream *)s)->given);
    streams.erase((stream *)s);
    delete (stream *)s;
    return OK;
}

API int cuStreamSynchronize(void *s)
{
    ENTER();
    NEED_CONTEXT;
    stream *t = (stream *)s;
    if (!streams.count(t)) return INVALID_HANDLE;
    if (t->in) {
        t->in->valid = false;
        return UNSUPPORTED;
    }
    reach r;
    drain(t, t->given);
    return OK;
}

API int cuEventCreate(void **e, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    *e = *events.insert(new event).first;
    return OK;
}

API int cuEventDestroy_v2(void *e)
{
    ENTER();
    if (!events.erase((event *)e)) return INVALID_HANDLE;
    delete (event *)e;
    return OK;
}

API int cuEventRecord(void *e, void *s)
{
    ENTER();
    NEED_CONTEXT;
    event  *x = (event *)e;
    stream *t = (stream *)s;
    if (!events.count(x) || !streams.count(t)) return INVALID_HANDLE;
    if (t->in) {
        x->capture = t->in->number;
        x->on      = t;
        x->seen    = t->in->seen[t];
        return OK;
    }
    x->capture = 0;
    x->on      = t;
    x->at      = t->given + 1;
    operation o;
    o.what = operation::RECORD;
    o.e    = x;
    return give(t, std::move(o));
}

/* External records of a capture are operations of its graph; the event is outside of it. */
API int cuEventRecordWithFlags(void *e, void *s, unsigned flags)
{
    stream *t = (stream *)s;
    if (!(flags & 1)) return cuEventRecord(e, s);
    ENTER();
    NEED_CONTEXT;
    if (!events.count((event *)e) || !streams.count(t)) return INVALID_HANDLE;
    if (!t->in) return INVALID_VALUE;
    operation o;
    o.what = operation::RECORD;
    o.e    = (event *)e;
    return give(t, std::move(o));
}

API int cuStreamWaitEvent(void *s, void *e, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    event  *x = (event *)e;
    stream *t = (stream *)s;
    if (!events.count(x) || !streams.count(t)) return INVALID_HANDLE;
    if (x->capture) {
        auto c = captures.find(x->capture);
        if (c == captures.end()) return INVALID_VALUE; /* of a capture that ended */
        if (t->in && t->in != c->second) return ISOLATION;
        t->in = c->second;
        for (auto &seen : x->seen)
            if (t->in->seen[t][seen.first] < seen.second)
                t->in->seen[t][seen.first] = seen.second;
        return OK;
    }
    if (t->in && x->on) {
        t->in->valid = false;
        return ISOLATION;
    }
    if (!x->on) return OK;
    operation o;
    o.what = operation::WAIT;
    o.on   = x->on;
    o.at   = x->at;
    return give(t, std::move(o));
}

static int wait_for_event(event *x, bool patient)
{
    if (!events.count(x)) return INVALID_HANDLE;
    if (x->capture) return UNSUPPORTED;
    reach r;
    if (!x->on || !streams.count(x->on)) return OK;
    return drain(x->on, x->at, patient) ? OK : NOT_READY;
}

API int cuEventQuery(void *e)
{
    ENTER();
    return wait_for_event((event *)e, false);
}

API int cuEventSynchronize(void *e)
{
    ENTER();
    return wait_for_event((event *)e, true);
}

API int cuEventElapsedTime(float *ms, void *a, void *b)
{
    ENTER();
    if (!events.count((event *)a) || !events.count((event *)b)) return INVALID_HANDLE;
    *ms = (float)(1e3 * (((event *)b)->time_s - ((event *)a)->time_s));
    return OK;
}

API int cuStreamWriteValue32_v2(void *s, ptr p, uint32_t value, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    operation o;
    o.what  = operation::FILL;
    o.word  = true;
    o.to    = (char *)(uintptr_t)p;
    o.value = (int)value;
    return give((stream *)s, std::move(o));
}

struct awaited_word {
    uint32_t *p, value;
    unsigned  how;
};

static int look_at_word(void *args)
{
    const awaited_word *w = (const awaited_word *)args;
    uint32_t            x = __atomic_load_n(w->p, __ATOMIC_ACQUIRE);
    if (w->how == 2) return !(x & w->value);
    return !(w->how == 1 ? x == w->value : (int32_t)(x - w->value) >= 0);
}

API int cuStreamWaitValue32_v2(void *s, ptr p, uint32_t value, unsigned how)
{
    ENTER();
    NEED_CONTEXT;
    if (how > 2 ||
        (!is_in(device, (char *)(uintptr_t)p) && !is_in(pinned, (char *)(uintptr_t)p)))
        return INVALID_VALUE;
    awaited_word w = {(uint32_t *)(uintptr_t)p, value, how};
    operation    o;
    o.what = operation::POLL;
    o.poll = look_at_word;
    o.data.assign((const char *)&w, (const char *)(&w + 1));
    return give((stream *)s, std::move(o));
}

/* ---- graphs ---- */

API int cuStreamBeginCapture_v2(void *s, int)
{
    ENTER();
    NEED_CONTEXT;
    stream *t = (stream *)s;
    if (t->in) return UNSUPPORTED;
    capture *c          = new capture;
    c->number           = ++n_capture;
    c->origin           = t;
    captures[n_capture] = c;
    t->in               = c;
    return OK;
}

API int cuStreamEndCapture(void *s, void **g)
{
    ENTER();
    capture *c    = ((stream *)s)->in;
    int      code = OK;
    *g            = nullptr;
    if (!c || c->origin != s) return UNSUPPORTED;
    for (auto &last : c->last)
        if (c->seen[c->origin][last.first] < last.second) code = UNJOINED;
    if (!c->valid) code = INVALIDATED;
    for (stream *t : streams)
        if (t->in == c) t->in = nullptr;
    if (!code) {
        graph *x = new graph;
        x->work  = std::move(c->work);
        graphs.insert(x);
        *g = x;
    }
    captures.erase(c->number);
    delete c;
    return code;
}

API int cuGraphInstantiateWithFlags(void **exec, void *g, unsigned long long)
{
    ENTER(std::to_string(((graph *)g)->work.size()));
    *exec = *graphs.insert(new graph(*(graph *)g)).first;
    return OK;
}

API int cuGraphLaunch(void *exec, void *s)
{
    ENTER(std::to_string(((graph *)exec)->work.size()));
    NEED_CONTEXT;
    operation o;
    o.what = operation::GRAPH;
    o.g    = (graph *)exec;
    return give((stream *)s, std::move(o));
}

static int free_graph(void *g)
{
    if (!graphs.erase((graph *)g)) return INVALID_HANDLE;
    delete (graph *)g;
    return OK;
}

/* Never asked: attribute 127 says that there are no tensor maps. */
API int cuGraphDestroy(void *g)
{
    ENTER();
    return free_graph(g);
}

API int cuGraphExecDestroy(void *g)
{
    ENTER();
    reach r;
    drain_all();
    return free_graph(g);
}
