/* Timelines: collecting slices, adding them up, writing them for people and for Perfetto. */
#include "program/timeline.h"

#include <stdio.h>

#include "program/work.h"

weft_status weft_timeline_create(const char *name, const weft_program *const *p, int n,
                                 weft_timeline **out)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_timeline *t = WEFT_ARENA_NEW(a, weft_timeline);
    if (t) {
        t->arena     = a;
        t->n_program = n;
        t->program   = weft_arena_memdup(a, p, sizeof *p * (size_t)n);
        t->name      = weft_arena_strdup(a, name);
    }
    weft_status st = weft_arena_status(a);
    if (st != WEFT_OK)
        weft_arena_destroy(a);
    else
        *out = t;
    return st;
}

void weft_timeline_destroy(weft_timeline *t)
{
    if (t) weft_arena_destroy(t->arena);
}

weft_status weft_timeline_add(weft_timeline *t, const weft_slice *s)
{
    void *v = t->slice;
    WEFT_TRY(weft_arena_grow(t->arena, &v, &t->cap_slice, t->n_slice + 1, sizeof *s));
    t->slice               = v;
    t->slice[t->n_slice++] = *s;
    return WEFT_OK;
}

/* The end of the last slice of steps 0..step. */
static double end_of_step(const weft_timeline *t, int step)
{
    double end = 0;
    for (int i = 0; i < t->n_slice; i++)
        if (t->slice[i].step <= step && t->slice[i].end_s > end) end = t->slice[i].end_s;
    return end;
}

void weft_timeline_finish(weft_timeline *t, int n_step)
{
    t->n_step  = n_step;
    t->total_s = end_of_step(t, n_step);
    t->step_s  = t->total_s;
    if (n_step > 1) t->step_s = (t->total_s - end_of_step(t, 0)) / (n_step - 1);
}

double weft_timeline_idle_s(const weft_timeline *t, int program, weft_stream_kind k)
{
    double busy = 0;
    for (int i = 0; i < t->n_slice; i++)
        if (t->slice[i].program == program &&
            t->program[program]->stream[t->slice[i].stream].kind == k)
            busy += t->slice[i].end_s - t->slice[i].start_s;
    return busy < t->total_s ? t->total_s - busy : 0; /* a sum may round past it */
}

typedef struct share {
    int    n; /* firings */
    double busy_s;
} share;

/* Adds the slices up by actor; first[p] is where program p's actors begin. */
static weft_status add_up(const weft_timeline *t, weft_arena *a, int **first, share **out)
{
    int n  = 0;
    *first = WEFT_ARENA_ARRAY(a, int, t->n_program);
    WEFT_TRY(weft_arena_status(a));
    for (int p = 0; p < t->n_program; n += t->program[p++]->n_actor) (*first)[p] = n;
    *out = WEFT_ARENA_ARRAY(a, share, n);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *s = &t->slice[i];
        share            *x = &(*out)[(*first)[s->program] + s->actor];
        x->n += s->instr == 0;
        x->busy_s += s->end_s - s->start_s;
    }
    return WEFT_OK;
}

static void print_stream(const weft_timeline *t, int p, int s, const share *of,
                         weft_text *out)
{
    const weft_program *g    = t->program[p];
    double              idle = t->total_s;
    for (int a = 0; a < g->n_actor; a++)
        if ((int)g->actor[a].stream == s) idle -= of[a].busy_s;
    if (idle < 0) idle = 0; /* a sum may round past the end */
    weft_text_add(out, "  rank %d %s: idle %.6f s (%.1f %%)\n", g->rank,
                  g->stream[s].name, idle,
                  t->total_s > 0 ? 100 * idle / t->total_s : 0.0);
    for (int a = 0; a < g->n_actor; a++)
        if ((int)g->actor[a].stream == s && of[a].n)
            weft_text_add(out, "    %-24s %6d firings %12.6f s\n", g->actor[a].name,
                          of[a].n, of[a].busy_s);
}

weft_status weft_timeline_print(const weft_timeline *t, weft_text *out)
{
    weft_arena *tmp   = NULL;
    int        *first = NULL;
    share      *of    = NULL;
    weft_status st;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(add_up(t, tmp, &first, &of));
    weft_text_add(out, "%s: %d step%s in %.6f s, %.6f s a step\n", t->name, t->n_step,
                  t->n_step == 1 ? "" : "s", t->total_s, t->step_s);
    for (int p = 0; p < t->n_program; p++)
        for (int s = 0; s < t->program[p]->n_stream; s++)
            if (t->program[p]->stream[s].n_firing)
                print_stream(t, p, s, of + first[p], out);
    st = weft_text_status(out);
out:
    weft_arena_destroy(tmp);
    return st;
}

/* ---- Perfetto ---- */

static void json_name(weft_text *t, const char *what, int pid, int tid, const char *name)
{
    weft_text_add(
        t,
        "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what,
        pid, tid);
    weft_text_put_quoted(t, name);
    weft_text_add(t, "}},\n");
}

static void json_tracks(const weft_timeline *t, weft_text *out)
{
    for (int p = 0; p < t->n_program; p++) {
        char name[128];
        snprintf(name, sizeof name, "%s rank %d", t->name, t->program[p]->rank);
        json_name(out, "process_name", t->program[p]->rank, 0, name);
        for (int s = 0; s < t->program[p]->n_stream; s++)
            if (t->program[p]->stream[s].n_firing)
                json_name(out, "thread_name", t->program[p]->rank, s,
                          t->program[p]->stream[s].name);
    }
}

static const char *category(const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_COMPUTE) return weft_op_get(i->op)->name;
    if (i->kind == WEFT_INSTR_COLLECTIVE) return weft_collective_name(i->coll);
    return weft_instr_kind_name(i->kind);
}

/* Its kind of work and sizes, so that a trace can be learned from. */
static void json_work(const weft_instr *i, weft_text *out)
{
    weft_workload w;
    weft_instr_work(i, &w);
    if (!w.n) return;
    weft_text_add(out, ",\"work\":\"%s\",\"size\":[", w.kind);
    for (int k = 0; k < w.n; k++) {
        if (k) weft_text_add(out, ",");
        weft_text_put_double(out, w.size[k]);
    }
    weft_text_add(out, "]");
}

/* Who meets: how many, and the first of them, so that members can be laid beside each other. */
static void json_group(const weft_program *p, const weft_instr *i, weft_text *out)
{
    if (i->kind != WEFT_INSTR_COLLECTIVE) return;
    const weft_group *g = &p->group[i->group];
    weft_text_add(out, ",\"ranks\":%d,\"first\":%d,\"given\":", g->n_rank,
                  (int)g->rank[0]);
    weft_text_put_double(out, weft_instr_given(i, g));
}

void weft_timeline_json_begin(weft_text *out)
{
    weft_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
}

void weft_timeline_json_events(const weft_timeline *t, double shift_s, weft_text *out)
{
    json_tracks(t, out);
    for (int k = 0; k < t->n_slice; k++) {
        const weft_slice   *s = &t->slice[k];
        const weft_program *p = t->program[s->program];
        const weft_instr   *i = &p->actor[s->actor].instr[s->instr];
        weft_text_add(out, "{\"ph\":\"X\",\"name\":");
        weft_text_put_quoted(out, i->name);
        weft_text_add(out, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", category(i),
                      p->rank, (int)s->stream);
        weft_text_put_double(out, (s->start_s + shift_s) * 1e6);
        weft_text_add(out, ",\"dur\":");
        weft_text_put_double(out, (s->end_s - s->start_s) * 1e6);
        weft_text_add(out, ",\"args\":{\"actor\":");
        weft_text_put_quoted(out, p->actor[s->actor].name);
        weft_text_add(out, ",\"micro\":%d,\"step\":%d,\"flops\":", s->micro, s->step);
        weft_text_put_double(out, weft_instr_flops(i));
        weft_text_add(out, ",\"bytes\":");
        weft_text_put_double(out, weft_instr_bytes(i));
        json_work(i, out);
        json_group(p, i, out);
        weft_text_add(out, "}},\n");
    }
}

void weft_timeline_json_end(weft_text *out)
{
    /* a last event without a comma behind it closes the list */
    weft_text_add(
        out, "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"tid\":0,\"args\":{}}\n]}\n");
}

weft_status weft_timeline_json(const weft_timeline *t, weft_text *out)
{
    weft_timeline_json_begin(out);
    weft_timeline_json_events(t, 0, out);
    weft_timeline_json_end(out);
    return weft_text_status(out);
}
