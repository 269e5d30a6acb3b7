/* Collectives beside compute.
 *
 * In: a program of one stage whose compute stream does everything in turn.  Out: its collectives
 * on the comm stream, in the same order on all ranks; the compute stream goes on until the first
 * instruction that touches what a collective reads or writes:
 *
 *     compute   forward.0 | forward.1       | forward.2
 *     comm                  gather, gather  ^ wanted here
 *
 * What may run beside what is found in the memory plan alone, so nothing is assumed about graphs
 * or operators; weft_program_verify checks the outcome as it checks every program. */
#include "partition/partition_priv.h"

/* A run of collectives one behind the other. */
typedef struct call {
    int actor, at, n; /* instructions at .. at + n - 1 */
    int end;          /* the first instruction behind that must wait for them */
    int by;           /* the actor of the comm stream */
} call;

typedef struct ahead {
    weft_program     *p;
    weft_arena       *tmp;
    int               n_call, cap_call;
    call             *call;
    int               n_old;
    const weft_actor *old; /* the actors as they were */
    int *first, *n_piece;  /* of each of them: the actors that its pieces became */
    weft_partition__more more;
} ahead;

static bool is_call(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE;
}

/* ---- what touches what ---- */

static bool meet(const weft_program *p, const weft_operand *a, const weft_operand *b)
{
    if (a->buffer < 0 || b->buffer < 0) return false;
    const weft_buffer *x = &p->buffer[a->buffer], *y = &p->buffer[b->buffer];
    return x->slab == y->slab && x->offset < y->offset + y->bytes * y->n_slot &&
           y->offset < x->offset + x->bytes * x->n_slot;
}

static bool any_meet(const weft_program *p, int n, const weft_operand *a, int m,
                     const weft_operand *b)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (meet(p, &a[i], &b[j])) return true;
    return false;
}

static bool must_wait(const weft_program *p, const weft_instr *x, const weft_instr *c)
{
    if (x->kind == WEFT_INSTR_COMMIT) return true; /* for all that is before it */
    return any_meet(p, x->n_in, x->in, c->n_out, c->out) ||
           any_meet(p, x->n_out, x->out, c->n_out, c->out) ||
           any_meet(p, x->n_out, x->out, c->n_in, c->in);
}

static int find_end(const weft_program *p, const weft_actor *a, int at, int n)
{
    for (int i = at + n; i < a->n_instr; i++)
        for (int k = at; k < at + n; k++)
            if (must_wait(p, &a->instr[i], &a->instr[k])) return i;
    return a->n_instr;
}

/* ---- finding them ---- */

static weft_status find_calls(ahead *k, double *hidden)
{
    for (int a = 0; a < k->n_old; a++) {
        const weft_actor *x = &k->old[a];
        for (int i = 0; i < x->n_instr; i++) {
            if (k->p->stream[x->stream].kind != WEFT_STREAM_COMPUTE ||
                !is_call(&x->instr[i]))
                continue;
            call c = {.actor = a, .at = i, .n = 1};
            while (c.at + c.n < x->n_instr && is_call(&x->instr[c.at + c.n])) c.n++;
            c.end = find_end(k->p, x, c.at, c.n);
            for (int n = c.at + c.n; n < c.end; n++)
                if (!is_call(&x->instr[n])) *hidden += weft_instr_flops(&x->instr[n]);
            WEFT_TRY(weft_arena_grow(k->tmp, (void **)&k->call, &k->cap_call,
                                     k->n_call + 1, sizeof *k->call));
            k->call[k->n_call++] = c;
            i += c.n - 1;
        }
    }
    return WEFT_OK;
}

/* ---- pieces ---- */

/* A piece that does nothing: where an actor begins or ends with a collective. */
static weft_status add_mark(ahead *k, const char *name, int *out)
{
    weft_instr mark = weft_partition__bare(WEFT_INSTR_MARK, name);
    return weft_partition__more_actor(
        &k->more, name, weft_partition__stream(k->p, WEFT_STREAM_COMPUTE), &mark, 1, out);
}

static const char *named(ahead *k, const weft_actor *a, const char *what, int n)
{
    const char *s = weft_arena_printf(k->p->arena, "%s.%s%d", a->name, what, n);
    return s ? s : a->name;
}

static bool is_cut(const ahead *k, int actor, int at)
{
    for (int i = 0; i < k->n_call; i++) {
        const call *c = &k->call[i];
        if (c->actor == actor && (c->at == at || c->at + c->n == at || c->end == at))
            return true;
    }
    return false;
}

static bool has_calls(const ahead *k, int actor)
{
    for (int i = 0; i < k->n_call; i++)
        if (k->call[i].actor == actor) return true;
    return false;
}

/* begin[n]: the instruction that piece n of the actor begins with. */
static weft_status cut_actor(ahead *k, int actor, int *begin)
{
    const weft_actor *a = &k->old[actor];
    int               n = 0, at;
    k->first[actor]     = k->p->n_actor;
    if (is_call(&a->instr[0])) {
        begin[n] = -1;
        WEFT_TRY(add_mark(k, named(k, a, "begin", 0), &at));
        n++;
    }
    for (int i = 0; i < a->n_instr;) {
        int end = i + 1;
        if (is_call(&a->instr[i])) {
            i++;
            continue;
        }
        while (end < a->n_instr && !is_cut(k, actor, end)) end++;
        begin[n] = i;
        WEFT_TRY(
            weft_partition__more_actor(&k->more, named(k, a, "", n),
                                       weft_partition__stream(k->p, WEFT_STREAM_COMPUTE),
                                       &a->instr[i], end - i, &at));
        n++;
        i = end;
    }
    begin[n] = a->n_instr;
    WEFT_TRY(add_mark(k, named(k, a, "end", 0), &at));
    k->n_piece[actor] = n + 1;
    return WEFT_OK;
}

static weft_status add_edge(ahead *k, int from, int to)
{
    return weft_partition__more_edge(&k->more,
                                     (weft_edge){.from = from, .to = to, .credits = 1});
}

/* The last piece that begins before the calls, and the first that begins where they are wanted. */
static weft_status add_calls(ahead *k, int actor, const int *begin)
{
    const weft_actor *a = &k->old[actor];
    for (int i = 0; i < k->n_call; i++) {
        call *c      = &k->call[i];
        int   before = 0, behind = k->n_piece[actor] - 1;
        if (c->actor != actor) continue;
        for (int n = 0; n < k->n_piece[actor]; n++)
            if (begin[n] < c->at) before = n;
        for (int n = k->n_piece[actor] - 1; n >= 0 && begin[n] >= c->end; n--) behind = n;
        WEFT_TRY(
            weft_partition__more_actor(&k->more, named(k, a, "comm", i),
                                       weft_partition__stream(k->p, WEFT_STREAM_COMM),
                                       &a->instr[c->at], c->n, &c->by));
        WEFT_TRY(add_edge(k, k->first[actor] + before, c->by));
        WEFT_TRY(add_edge(k, c->by, k->first[actor] + behind));
    }
    return WEFT_OK;
}

static weft_status make_lists(ahead *k)
{
    weft_program      *p = k->p;
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    int n = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing, most = 0, m = 0, j = 0;
    for (int a = 0; a < k->n_old; a++)
        if (k->n_piece[a] > most) most = k->n_piece[a];
    weft_firing *list = WEFT_ARENA_ARRAY(p->arena, weft_firing, n * (most + 1) + 1);
    int          once = weft_program_stream(p, WEFT_STREAM_COMM)->n_firing;
    weft_firing *comm =
        WEFT_ARENA_ARRAY(p->arena, weft_firing, n * (k->n_call + 1) + once + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (; j < once; j++) comm[j] = weft_program_stream(p, WEFT_STREAM_COMM)->firing[j];
    for (int i = 0; i < n; i++) {
        int a = f[i].actor;
        if (!k->n_piece[a]) {
            list[m++] = f[i];
            continue;
        }
        for (int x = 0; x < k->n_piece[a]; x++) {
            list[m]         = f[i];
            list[m++].actor = k->first[a] + x;
        }
        for (int c = 0; c < k->n_call; c++)
            if (k->call[c].actor == a) {
                comm[j]         = f[i];
                comm[j++].actor = k->call[c].by;
            }
    }
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing   = list;
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing = m;
    weft_program_stream(p, WEFT_STREAM_COMM)->firing      = comm;
    weft_program_stream(p, WEFT_STREAM_COMM)->n_firing    = j;
    return WEFT_OK;
}

static weft_status rebuild(ahead *k)
{
    weft_program *p    = k->p;
    int           most = 0;
    for (int a = 0; a < k->n_old; a++)
        if (k->old[a].n_instr > most) most = k->old[a].n_instr;
    int *begin = WEFT_ARENA_ARRAY(k->tmp, int, most + 4);
    k->first   = WEFT_ARENA_ARRAY(k->tmp, int, k->n_old + 1);
    k->n_piece = WEFT_ARENA_ARRAY(k->tmp, int, k->n_old + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    WEFT_TRY(weft_partition__need_stream(p, WEFT_STREAM_COMM));
    WEFT_TRY(weft_partition__more_start(p, &k->more));
    for (int a = 0; a < k->n_old; a++) {
        if (!has_calls(k, a)) continue;
        WEFT_TRY(cut_actor(k, a, begin));
        WEFT_TRY(add_calls(k, a, begin));
    }
    WEFT_TRY(make_lists(k));
    for (int a = 0; a < k->n_old; a++)
        if (k->n_piece[a]) p->actor[a].n_instr = 0;
    return WEFT_OK;
}

static weft_status overlap_collectives(weft_program *p, const void *none)
{
    ahead       k      = {.p = p, .n_old = p->n_actor, .old = p->actor};
    double      hidden = 0;
    weft_status st     = WEFT_OK;
    (void)none;
    if (p->n_edge) return WEFT_OK; /* several streams already: a pipeline */
    WEFT_TRY(weft_arena_create(&k.tmp));
    WEFT_GO(find_calls(&k, &hidden));
    if (hidden > 0) WEFT_GO(rebuild(&k));
out:
    weft_arena_destroy(k.tmp);
    return st;
}

weft_status weft_pass_overlap_collectives(const weft_program *in, weft_program **out)
{
    return weft_partition__edit_copy(in, overlap_collectives, NULL, out);
}
