/* The last steps of two traces in one file for Perfetto: a process for each rank, in it two tracks
 * for each class of instructions, predicted above measured, from the same start. */
#include "trace/trace_priv.h"

static bool is_last(const weft_trace *t, const weft_trace_event *e)
{
    return e->step == t->n_step - 1;
}

static double find_start(const weft_trace *t)
{
    double start = 0;
    bool   any   = false;
    for (int i = 0; i < t->n_event; i++) {
        const weft_trace_event *e = &t->event[i];
        if (!is_last(t, e) || (any && e->start_s >= start)) continue;
        start = e->start_s;
        any   = true;
    }
    return start;
}

static void put_tracks(int n_rank, weft_text *out)
{
    static const char *const side[] = {"predicted", "measured"};
    for (int r = 0; r < n_rank; r++) {
        weft_text_add(out,
                      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
                      "\"args\":{\"name\":\"rank %d\"}},\n",
                      r, r);
        for (int k = 0; k < 2 * WEFT_N_CLASS; k++)
            weft_text_add(out,
                          "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                          "\"args\":{\"name\":\"%s, %s\"}},\n",
                          r, k, weft_class_name((weft_class)(k / 2)), side[k % 2]);
    }
}

static void put_events(const weft_trace *t, int side, weft_text *out)
{
    double start = find_start(t);
    for (int i = 0; i < t->n_event; i++) {
        const weft_trace_event *e = &t->event[i];
        if (!is_last(t, e)) continue;
        weft_text_add(out, "{\"ph\":\"X\",\"name\":");
        weft_text_put_quoted(out, e->name);
        weft_text_add(out, ",\"cat\":");
        weft_text_put_quoted(out, e->kind);
        weft_text_add(out, ",\"pid\":%d,\"tid\":%d,\"ts\":", e->rank,
                      2 * (int)weft_trace__class_of(e->kind) + side);
        weft_text_put_double(out, 1e6 * (e->start_s + e->wait_s - start));
        weft_text_add(out, ",\"dur\":");
        weft_text_put_double(out, 1e6 * e->dur_s);
        weft_text_add(out, ",\"args\":{\"actor\":");
        weft_text_put_quoted(out, e->actor);
        weft_text_add(out, ",\"micro\":%d}},\n", e->micro);
    }
}

weft_status weft_trace_overlay(const weft_trace *predicted, const weft_trace *measured,
                               weft_text *out)
{
    int n = predicted->n_rank > measured->n_rank ? predicted->n_rank : measured->n_rank;
    weft_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    put_tracks(n, out);
    put_events(predicted, 0, out);
    put_events(measured, 1, out);
    weft_text_add(
        out, "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"tid\":0,\"args\":{}}\n]}\n");
    return weft_text_status(out);
}
