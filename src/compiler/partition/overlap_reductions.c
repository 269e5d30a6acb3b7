/* Gradient sums, or messages with gradients, beside the backward pass.
 *
 * In: a program whose compute stream ends with an actor of collectives, each in place on an
 * accumulator, and an update; or with an update that has such collectives.  Those that are not in
 * place (ZeRO's) are moved where their results have room of their own, and stay elsewhere.
 * Out: the collectives in buckets, each an actor of the comm stream that fires when the piece of
 * the backward pass that finishes its accumulators has fired for the last time:
 *
 *     compute   ... backward.a | backward.b | backward.c |            update
 *     comm                       reduce.0     reduce.1     reduce.2 |
 *
 * The sums are the same ones, taken by the same tree: bits do not change.
 *
 * Messages with finished gradients (standby.c) are moved in the same way; they write nothing. */
#include <stdlib.h>
#include <string.h>

#include "partition/standby_priv.h"
#include "program/coalesce.h"

enum {
    BUCKET_TAG = 1 << 20 /* on another stream than other collectives of the group */
};

/* A collective of the reduce actor, and the last instruction that writes its accumulator before. */
typedef struct sum {
    weft_instr call; /* of this tensor alone */
    int        instr;
    int32_t    buffer;
    int64_t    bytes;
    int        at; /* place of the writer's last firing in the compute stream's list */
    int        writer, last; /* actor, instruction; merges are looked through */
} sum;

typedef struct bucket {
    int first, n; /* of sums */
    int actor;
} bucket;

typedef struct cut {
    int actor, end; /* instructions below end belong to the piece */
    int piece;      /* the actor that runs them */
    int bucket;     /* what it finishes */
    /* the merge actor after it, and its share for the bucket; -1 none */
    int merge, part;
} cut;

typedef struct overlap {
    weft_program        *p;
    weft_arena          *tmp;
    const weft_graph    *g; /* NULL: every rank has whole values */
    const weft_sharding *s;
    int64_t              room; /* bytes a bucket should have */
    bool                 shares;
    bool                 sends; /* messages, not sums */
    int                  reduce, at;
    int                  n_sum, n_bucket, n_cut;
    sum                 *sum;
    bucket              *bucket;
    cut                 *cut;
    int                 *of; /* buffer -> bucket, -1 none */
    weft_partition__more more;
} overlap;

/* ---- what can be moved ---- */

static bool only(const weft_actor *a, weft_instr_kind kind)
{
    for (int i = 0; i < a->n_instr; i++)
        if (a->instr[i].kind != kind) return false;
    return a->n_instr > 0;
}

static bool in_place(const weft_instr *i, int t)
{
    return i->coll == WEFT_ALL_REDUCE && i->in[t].buffer == i->out[t].buffer;
}

/* Does nobody else use its memory, at any time? */
static bool alone(const weft_program *p, int32_t buffer)
{
    const weft_buffer *x = &p->buffer[buffer];
    for (int i = 0; i < p->n_buffer; i++) {
        const weft_buffer *y = &p->buffer[i];
        if (i != buffer && y->slab == x->slab &&
            y->offset < x->offset + x->bytes * x->n_slot &&
            x->offset < y->offset + y->bytes * y->n_slot)
            return false;
    }
    return true;
}

/* Can the sum of tensor t begin as soon as its operand is complete?  In place, or to the owners'
 * own room. */
static bool can_begin(const weft_program *p, const weft_instr *i, int t, bool shares)
{
    return in_place(i, t) ||
           (shares && i->coll == WEFT_REDUCE_SCATTER && alone(p, i->out[t].buffer));
}

/* ---- sums inside the update ---- */

static bool uses(const weft_instr *i, int32_t buffer)
{
    for (int k = 0; k < i->n_in; k++)
        if (i->in[k].buffer == buffer) return true;
    for (int k = 0; k < i->n_out; k++)
        if (i->out[k].buffer == buffer) return true;
    return false;
}

/* Does instruction n of an update sum an accumulator, tensor t, which nobody there has used
 * before? */
static bool is_sum(const weft_program *p, const weft_actor *a, int n, int t, bool shares)
{
    const weft_instr *i = &a->instr[n];
    if (!can_begin(p, i, t, shares)) return false;
    if (p->buffer[i->in[t].buffer].slot_by != WEFT_SLOT_LANE) return false;
    for (int k = 0; k < n; k++)
        if (uses(&a->instr[k], i->in[t].buffer)) return false;
    return true;
}

static int count_sums(const weft_program *p, const weft_actor *a, int n, bool shares)
{
    int sums = 0;
    if (a->instr[n].kind != WEFT_INSTR_COLLECTIVE) return 0;
    for (int t = 0; t < a->instr[n].n_in; t++) sums += is_sum(p, a, n, t, shares);
    return sums;
}

/* The first update actor that has some, by its place in the list; -1 none. */
static int find_update(const weft_program *p, bool shares, int *n_sum)
{
    for (int at = 0; at < weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing; at++) {
        const weft_firing *f = &weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing[at];
        const weft_actor  *a = &p->actor[f->actor];
        if (f->micro >= 0 || only(a, WEFT_INSTR_COLLECTIVE)) continue;
        *n_sum = 0;
        for (int k = 0; k < a->n_instr; k++) *n_sum += count_sums(p, a, k, shares);
        if (*n_sum) return at;
    }
    return -1;
}

/* Instruction n of the update: its sums go to *sums, the rest of it stays. */
static weft_status take_sums(weft_program *p, const weft_actor *a, int n, bool shares,
                             weft_actor *sums, weft_actor *rest)
{
    const weft_instr *i = &a->instr[n], **of;
    int               m = 0, all = count_sums(p, a, n, shares);
    if (!all || all == i->n_in) {
        weft_actor *to           = all ? sums : rest;
        to->instr[to->n_instr++] = *i;
        return WEFT_OK;
    }
    weft_instr *left = WEFT_ARENA_ARRAY(p->arena, weft_instr, i->n_in);
    of               = WEFT_ARENA_ARRAY(p->arena, const weft_instr *, i->n_in);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int t = 0; t < i->n_in; t++) {
        weft_instr *to = &left[m];
        if (is_sum(p, a, n, t, shares))
            to = &sums->instr[sums->n_instr++];
        else
            of[m++] = to;
        WEFT_TRY(weft_instr_split(i, t, p->arena, to));
    }
    return weft_instr_join(of, m, p->arena, &rest->instr[rest->n_instr++]);
}

/* Its sums become an actor right before it. */
static weft_status part_sums(weft_program *p, bool shares)
{
    weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    int          n = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing, n_sum,
        at         = find_update(p, shares, &n_sum);
    if (at < 0) return WEFT_OK;
    weft_actor   was  = p->actor[f[at].actor], *a;
    weft_actor  *all  = WEFT_ARENA_ARRAY(p->arena, weft_actor, p->n_actor + 1);
    weft_firing *list = WEFT_ARENA_ARRAY(p->arena, weft_firing, n + 1);
    weft_actor   own  = {.name   = "reduce",
                         .stream = weft_partition__stream(p, WEFT_STREAM_COMPUTE)};
    own.instr         = WEFT_ARENA_ARRAY(p->arena, weft_instr, n_sum + 1);
    weft_instr *rest  = WEFT_ARENA_ARRAY(p->arena, weft_instr, was.n_instr + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 0; k < p->n_actor; k++) {
        all[k] = p->actor[k];
        if (!strcmp(all[k].name, own.name)) all[k].name = "reduce.first";
    }
    a          = &all[f[at].actor];
    a->instr   = rest;
    a->n_instr = 0;
    for (int k = 0; k < was.n_instr; k++)
        WEFT_TRY(take_sums(p, &was, k, shares, &own, a));
    WEFT_TRY(weft_partition__meet(p, own.instr, &own.n_instr));
    for (int k = 0; k < n; k++) list[k + (k >= at)] = f[k];
    list[at]                                              = f[at];
    list[at].actor                                        = p->n_actor;
    all[p->n_actor++]                                     = own;
    p->actor                                              = all;
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing   = list;
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing = n + 1;
    return WEFT_OK;
}

/* The actor of collectives, or of sends, that fires once, last of its kind. */
static bool find_reduce(overlap *k)
{
    weft_instr_kind     kind = k->sends ? WEFT_INSTR_SEND : WEFT_INSTR_COLLECTIVE;
    const weft_program *p    = k->p;
    k->reduce                = -1;
    for (int i = 0; i < weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing; i++) {
        const weft_firing *f = &weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing[i];
        const weft_actor  *a = &p->actor[f->actor];
        if (f->micro >= 0 || !only(a, kind)) continue;
        bool all = true;
        for (int x = 0; x < a->n_instr && !k->sends; x++)
            for (int t = 0; t < a->instr[x].n_in; t++)
                all = all && can_begin(p, &a->instr[x], t, k->shares);
        if (all) k->reduce = f->actor, k->at = i;
    }
    return k->reduce >= 0;
}

static int last_write(const weft_actor *a, int32_t buffer)
{
    for (int i = a->n_instr - 1; i >= 0; i--)
        for (int x = 0; x < a->instr[i].n_out; x++)
            if (a->instr[i].out[x].buffer == buffer) return i;
    return -1;
}

static bool find_writer(const overlap *k, sum *s)
{
    const weft_program *p = k->p;
    for (s->at = k->at - 1; s->at >= 0; s->at--) {
        s->writer = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing[s->at].actor;
        const weft_actor *a = &p->actor[s->writer];
        if (only(a, WEFT_INSTR_MERGE)) continue;
        s->last = last_write(a, s->buffer);
        if (s->last >= 0) return true;
    }
    return false;
}

static int by_end(const void *a, const void *b)
{
    const sum *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x->instr < y->instr ? -1 : 1;
}

/* What a bucket counts for the operand: the largest part of it that a rank has, since all ranks
 * must make the same buckets. */
static int64_t weigh(const overlap *k, const weft_operand *o)
{
    weft_vid   v = k->g ? weft_graph_find(k->g, k->p->buffer[o->buffer].name) : -1;
    weft_shape s = o->type.shape;
    if (v >= 0)
        s = weft_layout_local(&k->s->value[v], &k->s->mesh[0], &k->g->value[v].type.shape,
                              0);
    return weft_shape_count(&s) * weft_dtype_bytes(o->type.dtype);
}

static weft_status find_sums(overlap *k, bool *all)
{
    const weft_actor *a = &k->p->actor[k->reduce];
    int               n = 0;
    for (int i = 0; i < a->n_instr; i++) n += a->instr[i].n_in;
    k->sum = WEFT_ARENA_ARRAY(k->tmp, sum, n + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    *all = false;
    for (int i = 0; i < a->n_instr; i++)
        for (int t = 0; t < a->instr[i].n_in; t++) {
            sum s   = {.instr = k->n_sum, .buffer = a->instr[i].in[t].buffer};
            s.bytes = weigh(k, &a->instr[i].in[t]);
            if (!find_writer(k, &s)) return WEFT_OK; /* made elsewhere */
            if (k->sends)
                s.call = a->instr[i];
            else
                WEFT_TRY(weft_instr_split(&a->instr[i], t, k->p->arena, &s.call));
            k->sum[k->n_sum++] = s;
        }
    qsort(k->sum, (size_t)k->n_sum, sizeof *k->sum, by_end);
    *all = true;
    return WEFT_OK;
}

/* ---- buckets and the pieces that finish them ---- */

static const char *name_of(const overlap *k)
{
    return k->sends ? WEFT_PARTITION__STANDBY : "reduce";
}

/* Of pieces: an actor may be cut for both. */
static const char *infix_of(const overlap *k)
{
    return k->sends ? WEFT_PARTITION__STANDBY "." : "";
}

/* Is it a message with what the one before has, to another rank? */
static bool is_same_buffer(const overlap *k, int i)
{
    return i > 0 && k->sum[i - 1].buffer == k->sum[i].buffer;
}

static weft_status make_buckets(overlap *k)
{
    k->bucket = WEFT_ARENA_ARRAY(k->tmp, bucket, k->n_sum + 1);
    k->of     = WEFT_ARENA_ARRAY(k->tmp, int, k->p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int i = 0; i < k->p->n_buffer; i++) k->of[i] = -1;
    for (int i = 0; i < k->n_sum;) {
        weft_coalesce_bucket fill = {.limit = k->room};
        bucket              *b    = &k->bucket[k->n_bucket];
        for (b->first = i;
             i < k->n_sum && (!weft_coalesce_is_complete(&fill) || is_same_buffer(k, i));
             i++) {
            weft_coalesce_add(&fill, k->sum[i].bytes);
            k->of[k->sum[i].buffer] = k->n_bucket;
            b->n++;
        }
        const char *name =
            weft_arena_printf(k->p->arena, "%s.%d", name_of(k), k->n_bucket);
        WEFT_TRY(weft_partition__more_actor(
            &k->more, name, weft_partition__stream(k->p, WEFT_STREAM_COMM), NULL, b->n,
            &b->actor));
        weft_actor *a = &k->p->actor[b->actor];
        for (int x = 0; x < b->n; x++) {
            a->instr[a->n_instr] = k->sum[b->first + x].call;
            a->instr[a->n_instr++].tag += k->sends ? 0 : BUCKET_TAG;
        }
        if (!k->sends) WEFT_TRY(weft_partition__meet(k->p, a->instr, &a->n_instr));
        k->n_bucket++;
    }
    return WEFT_OK;
}

/* The merge actor that fires right behind the actor, -1 none. */
static int merge_behind(const weft_program *p, int actor)
{
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    for (int i = 0; i + 1 < weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing; i++)
        if (f[i].actor == actor && only(&p->actor[f[i + 1].actor], WEFT_INSTR_MERGE))
            return f[i + 1].actor;
    return -1;
}

/* Takes the bucket's merges out of the merge actor into one of their own. */
static weft_status cut_merge(overlap *k, cut *c)
{
    c->part  = -1;
    c->merge = merge_behind(k->p, c->actor);
    if (c->merge < 0) return WEFT_OK;
    int kept = 0, n = k->p->actor[c->merge].n_instr;
    WEFT_TRY(weft_partition__more_actor(
        &k->more, weft_arena_printf(k->p->arena, "merge.%s%d", infix_of(k), c->bucket),
        weft_partition__stream(k->p, WEFT_STREAM_COMPUTE), NULL, n, &c->part));
    weft_actor *m = &k->p->actor[c->merge], *part = &k->p->actor[c->part];
    for (int i = 0; i < n; i++)
        if (k->of[m->instr[i].out[0].buffer] == c->bucket)
            part->instr[part->n_instr++] = m->instr[i];
        else
            m->instr[kept++] = m->instr[i];
    m->n_instr = kept;
    if (!part->n_instr) c->part = -1;
    return WEFT_OK;
}

/* A cut behind the last writer of each bucket but the last of its actor. */
static weft_status make_cuts(overlap *k)
{
    k->cut = WEFT_ARENA_ARRAY(k->tmp, cut, k->n_bucket + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int b = 0; b < k->n_bucket; b++) {
        const sum *s     = &k->sum[k->bucket[b].first + k->bucket[b].n - 1];
        int        begin = 0;
        for (int i = 0; i < k->n_cut; i++)
            if (k->cut[i].actor == s->writer) begin = k->cut[i].end;
        if (s->last + 1 <= begin) continue; /* an earlier piece finishes it too */
        cut c = {.actor = s->writer, .end = s->last + 1, .bucket = b};
        WEFT_TRY(cut_merge(k, &c));
        const char *name = k->p->actor[c.actor].name;
        WEFT_TRY(weft_partition__more_actor(
            &k->more, weft_arena_printf(k->p->arena, "%s.to.%s%d", name, infix_of(k), b),
            k->p->actor[c.actor].stream, NULL, c.end - begin, &c.piece));
        weft_actor *from = &k->p->actor[c.actor], *to = &k->p->actor[c.piece];
        for (int i = begin; i < c.end; i++) to->instr[to->n_instr++] = from->instr[i];
        k->cut[k->n_cut++] = c;
    }
    /* the actor itself keeps what is behind its last cut */
    for (int i = 0; i < k->n_cut; i++) {
        const cut *c    = &k->cut[i];
        bool       last = true;
        for (int x = i + 1; x < k->n_cut; x++) last = last && k->cut[x].actor != c->actor;
        weft_actor *a = &k->p->actor[c->actor];
        if (last) a->instr += c->end, a->n_instr -= c->end;
    }
    return WEFT_OK;
}

/* ---- lists and edges ---- */

/* Has it something to do?  Empty actors have left the list. */
static bool works(const weft_program *p, int actor)
{
    return p->actor[actor].n_instr > 0;
}

static bool fires(const weft_program *p, int actor)
{
    int s = (int)p->actor[actor].stream;
    for (int i = 0; i < p->stream[s].n_firing; i++)
        if (p->stream[s].firing[i].actor == actor) return true;
    return false;
}

/* The merge actor whose firings follow those of a cut actor, -1 none. */
static int merge_of(const overlap *k, int actor)
{
    for (int c = 0; c < k->n_cut; c++)
        if (k->cut[c].actor == actor && k->cut[c].merge >= 0) return k->cut[c].merge;
    return -1;
}

/* The firing of a cut actor becomes those of its pieces, each followed by its share of the
 * merges. */
static weft_status make_lists(overlap *k)
{
    weft_program *p = k->p;
    int           n = weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing, m = 0, j = 0;
    const weft_firing *f = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing;
    weft_firing       *list =
        WEFT_ARENA_ARRAY(p->arena, weft_firing, n * (2 * k->n_cut + 1) + 1);
    weft_firing *comm = WEFT_ARENA_ARRAY(
        p->arena, weft_firing,
        weft_program_stream(p, WEFT_STREAM_COMM)->n_firing + k->n_bucket + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < n; i++) {
        if (i == k->at) continue;
        int end = i + 1; /* the merges that follow */
        while (end < n && f[end].actor == merge_of(k, f[i].actor)) end++;
        for (int c = 0; c < k->n_cut; c++) {
            if (k->cut[c].actor != f[i].actor) continue;
            list[m]         = f[i];
            list[m++].actor = k->cut[c].piece;
            for (int x = i + 1; x < end && k->cut[c].part >= 0; x++) {
                list[m]         = f[x];
                list[m++].actor = k->cut[c].part;
            }
        }
        if (works(p, f[i].actor)) list[m++] = f[i];
    }
    for (; j < weft_program_stream(p, WEFT_STREAM_COMM)->n_firing; j++)
        comm[j] = weft_program_stream(p, WEFT_STREAM_COMM)->firing[j];
    for (int b = 0; b < k->n_bucket; b++)
        comm[j++] = (weft_firing){
            .actor = k->bucket[b].actor, .micro = -1, .lane_slot = f[k->at].lane_slot};
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing   = list;
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing = m;
    weft_program_stream(p, WEFT_STREAM_COMM)->firing      = comm;
    weft_program_stream(p, WEFT_STREAM_COMM)->n_firing    = j;
    return WEFT_OK;
}

/* Edges of a cut actor are its pieces' too. */
static weft_status spread_edges(overlap *k)
{
    int n = k->p->n_edge, kept = 0;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < k->n_cut; c++) {
            weft_edge e = k->p->edge[i];
            if (e.from == k->cut[c].actor) e.from = k->cut[c].piece;
            if (e.to == k->cut[c].actor) e.to = k->cut[c].piece;
            if (e.from != k->p->edge[i].from || e.to != k->p->edge[i].to)
                WEFT_TRY(weft_partition__more_edge(&k->more, e));
        }
    for (int i = 0; i < k->p->n_edge; i++)
        if (works(k->p, k->p->edge[i].from) && works(k->p, k->p->edge[i].to))
            k->p->edge[kept++] = k->p->edge[i];
    k->p->n_edge = kept;
    return WEFT_OK;
}

static bool writes_any(const overlap *k, const weft_actor *a, int b)
{
    for (int i = 0; i < a->n_instr; i++)
        for (int x = 0; x < a->instr[i].n_out; x++)
            if (a->instr[i].out[x].buffer >= 0 && k->of[a->instr[i].out[x].buffer] == b)
                return true;
    return false;
}

/* A bucket waits for all that writes its accumulators; what comes behind the sums waits for all
 * buckets. */
static weft_status bucket_edges(overlap *k, int next)
{
    for (int b = 0; b < k->n_bucket; b++) {
        weft_edge e = {.to = k->bucket[b].actor, .credits = 1, .per_step = true};
        for (int a = 0; a < k->p->n_actor; a++) {
            if (k->p->stream[k->p->actor[a].stream].kind != WEFT_STREAM_COMPUTE ||
                a == next)
                continue;
            e.from = a;
            if (writes_any(k, &k->p->actor[a], b) && fires(k->p, a))
                WEFT_TRY(weft_partition__more_edge(&k->more, e));
        }
        e = (weft_edge){.from = e.to, .to = next, .credits = 1, .per_step = true};
        WEFT_TRY(weft_partition__more_edge(&k->more, e));
    }
    return WEFT_OK;
}

static weft_status rebuild(overlap *k)
{
    weft_program *p = k->p;
    int next = weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing[k->at + 1].actor, at;
    /* messages have to be there at the commit point */
    if (k->sends) weft_program_find_commit(p, &next, &at);
    WEFT_TRY(weft_partition__need_stream(p, WEFT_STREAM_COMM));
    WEFT_TRY(weft_partition__more_start(p, &k->more));
    WEFT_TRY(make_buckets(k));
    WEFT_TRY(make_cuts(k));
    WEFT_TRY(make_lists(k));
    p->actor[k->reduce].n_instr = 0;
    WEFT_TRY(spread_edges(k));
    return bucket_edges(k, next);
}

/* Finds what can be moved, and moves it. */
static weft_status overlap_with_backward(overlap *k)
{
    weft_status st = WEFT_OK;
    bool        all;
    if (!find_reduce(k) ||
        k->at + 1 >= weft_program_stream(k->p, WEFT_STREAM_COMPUTE)->n_firing)
        return WEFT_OK;
    WEFT_TRY(weft_arena_create(&k->tmp));
    WEFT_GO(find_sums(k, &all));
    if (all) WEFT_GO(rebuild(k));
out:
    weft_arena_destroy(k->tmp);
    return st;
}

static weft_status overlap_reductions(weft_program *p, const void *options)
{
    const weft_overlap_options *o = options;

    overlap k = {.p      = p,
                 .g      = o->sharding ? o->graph : NULL,
                 .s      = o->sharding,
                 .room   = o->bucket_bytes > 0 ? o->bucket_bytes : 1,
                 .shares = o->to_owners};
    if (!weft_program_stream(p, WEFT_STREAM_COMPUTE)) return WEFT_OK;
    WEFT_TRY(part_sums(p, o->to_owners));
    return overlap_with_backward(&k);
}

weft_status weft_partition__overlap_sends(weft_program *p, int64_t bucket_bytes)
{
    overlap k = {.p = p, .room = bucket_bytes > 0 ? bucket_bytes : 1, .sends = true};
    return overlap_with_backward(&k);
}

weft_status weft_pass_overlap_reductions(const weft_program         *in,
                                         const weft_overlap_options *o,
                                         weft_program              **out)
{
    return weft_partition__edit_copy(in, overlap_reductions, o, out);
}
