/* Parameters that are kept in parts and gathered once a step, beside the first forward pass.
 *
 * In: a program whose comm stream begins with one actor that gathers them.  Out: an actor for each
 * collective, in the same order; the compute stream is cut where a result is first used:
 *
 *     compute   forward.to.9 | forward.to.21 | forward   ...   update
 *     comm      gather.0  gather.1  gather.2 ...               | the next step's gather.0
 *
 * The update writes what they read and is behind all that uses what they write: the next step's
 * gathers wait for it. */
#include <stdlib.h>
#include <string.h>

#include "partition/partition_priv.h"

enum {
    GATHER_TAG = 1 << 19 /* on another stream than other collectives of the group */
};

/* A gather, and its first user: instruction `at` of an actor. */
typedef struct wanted {
    int by, actor, at;
} wanted;

/* What was cut off from the front of an actor: it ends at instruction `end`. */
typedef struct front {
    int actor, end, piece;
} front;

typedef struct once {
    weft_program        *p;
    int                  n, n_front;
    wanted              *w; /* by actor and place */
    front               *front;
    weft_partition__more more;
} once;

static bool reads(const weft_instr *x, const weft_instr *gather)
{
    for (int i = 0; i < x->n_in; i++)
        for (int t = 0; t < gather->n_out; t++)
            if (x->in[i].buffer >= 0 && x->in[i].buffer == gather->out[t].buffer)
                return true;
    return false;
}

/* The last actor of a step that does something. */
static int last_actor(const weft_program *p)
{
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    int                n = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing - 1;
    while (n > 0 && !p->actor[f[n].actor].n_instr) n--;
    return f[n].actor;
}

static void find_user(const weft_program *p, const weft_instr *gather, wanted *w)
{
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    int                n = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing;
    *w                   = (wanted){.actor = last_actor(p)}; /* where nobody wants it */
    for (int k = 0; k < n; k++) {
        const weft_actor *a = &p->actor[f[k].actor];
        for (int i = 0; i < a->n_instr; i++)
            if (reads(&a->instr[i], gather)) {
                *w = (wanted){.actor = f[k].actor, .at = i};
                return;
            }
    }
}

static int by_place(const void *a, const void *b)
{
    const wanted *x = a, *y = b;
    if (x->actor != y->actor) return x->actor < y->actor ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->by < y->by ? -1 : 1;
}

static weft_status make_gathers(once *k, int actor)
{
    for (int i = 0; i < k->n; i++) {
        weft_instr  call = k->p->actor[actor].instr[i];
        const char *name = weft_arena_printf(k->p->arena, "gather.%d", i);
        WEFT_TRY(weft_arena_status(k->p->arena));
        find_user(k->p, &call, &k->w[i]);
        call.tag += GATHER_TAG;
        WEFT_TRY(weft_partition__more_actor(
            &k->more, name, weft_partition__stream(k->p, WEFT_STREAM_COMM), &call, 1,
            &k->w[i].by));
    }
    qsort(k->w, (size_t)k->n, sizeof *k->w, by_place);
    return WEFT_OK;
}

/* The actor itself keeps what is behind its last cut. */
static weft_status make_fronts(once *k)
{
    int begin = 0; /* of what is left of the actor */
    for (int i = 0; i < k->n; i++) {
        const wanted *w = &k->w[i];
        front         f = {.actor = w->actor, .end = w->at};
        if (i && w[-1].actor != w->actor) begin = 0;
        if (w->at == begin) continue;
        const char *name =
            weft_arena_printf(k->p->arena, "%s.to.%d", k->p->actor[w->actor].name, w->at);
        WEFT_TRY(weft_arena_status(k->p->arena));
        WEFT_TRY(weft_partition__more_actor(
            &k->more, name, weft_partition__stream(k->p, WEFT_STREAM_COMPUTE),
            k->p->actor[w->actor].instr, w->at - begin, &f.piece));
        weft_actor *a = &k->p->actor[w->actor];
        a->instr += w->at - begin;
        a->n_instr -= w->at - begin;
        begin                  = w->at;
        k->front[k->n_front++] = f;
    }
    return WEFT_OK;
}

/* The piece of an actor that has its instruction `at`. */
static int piece_at(const once *k, int actor, int at)
{
    for (int i = 0; i < k->n_front; i++)
        if (k->front[i].actor == actor && at < k->front[i].end) return k->front[i].piece;
    return actor;
}

static weft_status make_lists(once *k, int gather)
{
    weft_program      *p = k->p;
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing,
                      *c = weft_program_stream(p, WEFT_STREAM_COMM)->firing;
    int n                = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing,
        n_comm = weft_program_stream(p, WEFT_STREAM_COMM)->n_firing, m = 0, j = 0,
        first         = p->n_actor - k->n_front - k->n;
    weft_firing *list = WEFT_ARENA_ARRAY(p->arena, weft_firing, n * (k->n_front + 1) + 1);
    weft_firing *comm = WEFT_ARENA_ARRAY(p->arena, weft_firing, n_comm + k->n + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < n; i++) {
        for (int x = 0; x < k->n_front; x++) {
            if (k->front[x].actor != f[i].actor) continue;
            list[m]         = f[i];
            list[m++].actor = k->front[x].piece;
        }
        list[m++] = f[i];
    }
    for (int i = 0; i < k->n; i++)
        comm[j++] = (weft_firing){.actor = first + i, .micro = -1};
    for (int i = 0; i < n_comm; i++)
        if (c[i].actor != gather) comm[j++] = c[i];
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing   = list;
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing = m;
    weft_program_stream(p, WEFT_STREAM_COMM)->firing      = comm;
    weft_program_stream(p, WEFT_STREAM_COMM)->n_firing    = j;
    p->actor[gather].n_instr                              = 0;
    return WEFT_OK;
}

/* Edges of an actor are its pieces' too. */
static weft_status spread_edges(once *k)
{
    int n = k->p->n_edge;
    for (int i = 0; i < n; i++)
        for (int x = 0; x < k->n_front; x++) {
            weft_edge e = k->p->edge[i];
            if (e.from == k->front[x].actor) e.from = k->front[x].piece;
            if (e.to == k->front[x].actor) e.to = k->front[x].piece;
            if (e.from != k->p->edge[i].from || e.to != k->p->edge[i].to)
                WEFT_TRY(weft_partition__more_edge(&k->more, e));
        }
    return WEFT_OK;
}

/* Users wait for gathers, the first gather for the update of the step before. */
static weft_status make_edges(once *k)
{
    weft_edge next = {.from = last_actor(k->p),
                      .to = weft_program_stream(k->p, WEFT_STREAM_COMM)->firing[0].actor,
                      .credits  = 1,
                      .per_step = true,
                      .delay    = 1};
    WEFT_TRY(spread_edges(k));
    for (int i = 0; i < k->n; i++) {
        weft_edge e = {.from     = k->w[i].by,
                       .to       = piece_at(k, k->w[i].actor, k->w[i].at),
                       .credits  = 1,
                       .per_step = true};
        WEFT_TRY(weft_partition__more_edge(&k->more, e));
    }
    return weft_partition__more_edge(&k->more, next);
}

static weft_status overlap_step_gathers(weft_program *p, const void *none)
{
    once                    k       = {.p = p};
    weft_arena             *tmp     = NULL;
    weft_status             st      = WEFT_OK;
    const weft_stream_spec *compute = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    const weft_stream_spec *comm    = weft_program_stream(p, WEFT_STREAM_COMM);
    (void)none;
    if (!compute || !comm || !compute->n_firing || !comm->n_firing) return WEFT_OK;
    int actor = comm->firing[0].actor;
    if (strcmp(p->actor[actor].name, WEFT_PARTITION__GATHER) != 0) return WEFT_OK;
    k.n = p->actor[actor].n_instr;
    WEFT_TRY(weft_arena_create(&tmp));
    k.w     = WEFT_ARENA_ARRAY(tmp, wanted, k.n + 1);
    k.front = WEFT_ARENA_ARRAY(tmp, front, k.n + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_partition__more_start(p, &k.more));
    WEFT_GO(make_gathers(&k, actor));
    WEFT_GO(make_fronts(&k));
    WEFT_GO(make_lists(&k, actor));
    WEFT_GO(make_edges(&k));
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_pass_overlap_step_gathers(const weft_program *in, weft_program **out)
{
    return weft_partition__edit_copy(in, overlap_step_gathers, NULL, out);
}
