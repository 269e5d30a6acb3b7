/* Independent instructions of one kernel that the kernel takes as one call (weft_kernel_many).
 *
 * In: a run of instructions that goes to the device at once.  Out: its tasks, in an order that
 * gives the same results.  An instruction joins the latest task of its kernel where it touches
 * nothing that the task and those after it write, and writes nothing that they read; so updates
 * that alternate with conversions of what they updated become two tasks. */
#include "exec/exec_priv.h"

/* Bytes that an instruction reads or writes. */
typedef struct span {
    uintptr_t lo, hi;
    bool      written;
} span;

typedef struct spans {
    int   n;
    span *span;
} spans;

/* A task to be: instructions of the run, by their number in it. */
typedef struct unit {
    int first, last, n;
} unit;

typedef struct grouping {
    weft_exec__variant *v;
    int                 from, n; /* the run */
    spans              *spans;   /* of each instruction */
    int                *next;    /* of the same unit; -1 none */
    unit               *unit;
    int                 n_unit;
} grouping;

static bool takes_many(const weft_exec__instr *x)
{
    return x->i->kind == WEFT_INSTR_COMPUTE && x->kernel && x->kernel->many;
}

/* ---- what instructions touch ---- */

static span span_of(const weft_view *v, bool written)
{
    int64_t   size = weft_dtype_bytes(v->dtype), last = 0;
    uintptr_t p = (uintptr_t)v->p;
    if (!p || !weft_shape_count(&v->shape)) return (span){p, p, written};
    for (int d = 0; d < v->shape.n; d++) last += (v->shape.d[d] - 1) * v->stride[d];
    return (span){p, p + (uintptr_t)((last + 1) * size), written};
}

static weft_status find_spans(const weft_exec__instr *x, weft_arena *arena, spans *out)
{
    out->span = WEFT_ARENA_ARRAY(arena, span, x->call.n_in + x->call.n_out);
    if (!out->span) return weft_arena_status(arena);
    for (int k = 0; k < x->call.n_in; k++)
        out->span[out->n++] = span_of(&x->call.in[k], false);
    for (int k = 0; k < x->call.n_out; k++)
        out->span[out->n++] = span_of(&x->call.out[k], true);
    return WEFT_OK;
}

static bool touch(const spans *a, const spans *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            const span *x = &a->span[i], *y = &b->span[k];
            if ((x->written || y->written) && x->lo < y->hi && y->lo < x->hi) return true;
        }
    return false;
}

static bool touches_unit(const grouping *g, int i, const unit *u)
{
    for (int k = u->first; k >= 0; k = g->next[k])
        if (touch(&g->spans[i], &g->spans[k])) return true;
    return false;
}

/* ---- units ---- */

/* The latest unit that instruction i can join; NULL: none. */
static unit *find_unit(const grouping *g, int i)
{
    const weft_exec__instr *x = &g->v->instr[g->from + i];
    for (int u = g->n_unit - 1; u >= 0 && takes_many(x); u--) {
        const weft_exec__instr *y = &g->v->instr[g->from + g->unit[u].first];
        if (touches_unit(g, i, &g->unit[u])) return NULL;
        if (takes_many(y) && y->kernel == x->kernel) return &g->unit[u];
    }
    return NULL;
}

static void place_instr(grouping *g, int i)
{
    unit *u    = find_unit(g, i);
    g->next[i] = -1;
    if (!u) {
        g->unit[g->n_unit++] = (unit){i, i, 1};
        return;
    }
    g->next[u->last] = i;
    u->last          = i;
    u->n++;
}

/* The calls of a unit as its first instruction has them, and their scratch. */
static weft_status make_group(const grouping *g, const unit *u, weft_arena *arena)
{
    weft_exec__instr        *x = &g->v->instr[g->from + u->first];
    const weft_kernel_call **call =
        WEFT_ARENA_ARRAY(arena, const weft_kernel_call *, u->n);
    x->group = WEFT_ARENA_NEW(arena, weft_exec__group);
    WEFT_TRY(weft_arena_status(arena));
    *x->group = (weft_exec__group){.call = call};
    for (int k = u->first; k >= 0; k = g->next[k])
        call[x->group->n++] = &g->v->instr[g->from + k].call;
    if (!x->kernel->many->scratch) return WEFT_OK;
    weft_pool *pool = x->s->ctx.pool;
    int64_t    bytes =
        (int64_t)x->kernel->many->scratch(call, u->n, pool ? weft_pool_threads(pool) : 1);
    if (bytes > x->s->scratch_bytes) x->s->scratch_bytes = bytes;
    return WEFT_OK;
}

static weft_status group_run(grouping *g, weft_arena *arena, weft_arena *keep)
{
    g->spans = WEFT_ARENA_ARRAY(arena, spans, g->n);
    g->next  = WEFT_ARENA_ARRAY(arena, int, g->n);
    g->unit  = WEFT_ARENA_ARRAY(arena, unit, g->n);
    WEFT_TRY(weft_arena_status(arena));
    for (int i = 0; i < g->n; i++) {
        WEFT_TRY(find_spans(&g->v->instr[g->from + i], arena, &g->spans[i]));
        place_instr(g, i);
    }
    for (int u = 0; u < g->n_unit; u++) {
        const unit *x = &g->unit[u];
        if (x->n > 1) WEFT_TRY(make_group(g, x, keep));
        g->v->grouped[g->from + u] = g->v->task[g->from + x->first];
    }
    return WEFT_OK;
}

/* ---- */

static bool has_many(const weft_exec__variant *v, int from, int n)
{
    int k = 0;
    for (int i = from; i < from + n; i++) k += takes_many(&v->instr[i]);
    return k > 1;
}

weft_status weft_exec__group_run(weft_exec__variant *v, int from, int n, weft_arena *keep,
                                 int *n_task)
{
    grouping    g  = {.v = v, .from = from, .n = n};
    weft_status st = WEFT_OK;
    weft_arena *arena;
    *n_task = n;
    for (int i = from; i < from + n; i++) v->grouped[i] = v->task[i];
    if (!has_many(v, from, n)) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&arena));
    st      = group_run(&g, arena, keep);
    *n_task = g.n_unit;
    weft_arena_destroy(arena);
    return st;
}
