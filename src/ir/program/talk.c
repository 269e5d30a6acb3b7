#include "program/talk.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

/* ---- what must be equal of a call ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    return weft_hash_xxh64(&x, sizeof x, h);
}

/* As weft_program_walk compares them: a gather's shares are the kind's own. */
static int64_t count_of(const weft_instr *i, int t)
{
    bool gathers = i->coll == WEFT_ALL_GATHER && weft_instr_unit(i, t);
    return weft_shape_count(gathers ? &i->out[t].type.shape : &i->in[t].type.shape);
}

static bool moves_rows(const weft_instr *i)
{
    return i->coll == WEFT_SEND_ROWS || i->coll == WEFT_RETURN_ROWS;
}

static uint64_t hash_collective(const weft_program *p, const weft_instr *i)
{
    const weft_group *g = &p->group[i->group];
    uint64_t          h = mix(1, (uint64_t)i->coll);
    if (i->coll == WEFT_BARRIER) return h;
    h = mix(mix(h, (uint64_t)i->n_in), (uint64_t)i->in[0].type.dtype);
    h = mix(h, (uint64_t)i->lanes);
    for (int k = 0; i->lanes && g->share && k < g->n_rank; k++)
        h = mix(h, (uint64_t)g->share[k]);
    if (moves_rows(i)) {
        h = mix(h, (uint64_t)i->in[0].type.shape.d[1]);
        return mix(h, (uint64_t)i->in[1].type.shape.d[1]);
    }
    for (int t = 0; t < i->n_in; t++)
        h = mix(mix(h, (uint64_t)weft_instr_unit(i, t)), (uint64_t)count_of(i, t));
    return h;
}

static uint64_t hash_call(const weft_program *p, const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_COLLECTIVE) return hash_collective(p, i);
    return mix(mix(2, (uint64_t)weft_instr_bytes(i)), (uint64_t)i->credits);
}

/* ---- lines ---- */

typedef struct builder {
    weft_talk  *t;
    weft_arena *arena;
    int         cap, n_slot; /* of lines, of the table by keys */
    int        *slot;        /* a line and 1, or 0 */
} builder;

static weft_talk_line line_of(const weft_program *p, const weft_instr *i,
                              weft_arena *arena)
{
    weft_talk_line l = {.tag = i->tag, .message = i->kind != WEFT_INSTR_COLLECTIVE};
    if (l.message) {
        bool     send = i->kind == WEFT_INSTR_SEND;
        int32_t *end  = WEFT_ARENA_ARRAY(arena, int32_t, 2);
        if (!end) return l;
        end[0]   = send ? p->rank : i->peer;
        end[1]   = send ? i->peer : p->rank;
        l.n_rank = 2;
        l.rank   = end;
        l.place  = !send;
    } else {
        l.n_rank = p->group[i->group].n_rank;
        l.rank   = p->group[i->group].rank;
        while (l.place < l.n_rank && l.rank[l.place] != p->rank) l.place++;
    }
    l.key = weft_hash_xxh64(l.rank, sizeof *l.rank * (size_t)l.n_rank,
                            mix(l.message, (uint64_t)l.tag));
    return l;
}

static weft_status put_line(builder *b, const weft_instr *i, int32_t stream, int *out)
{
    weft_talk     *t = b->t;
    weft_talk_line l = line_of(t->program, i, b->arena);
    WEFT_TRY(weft_arena_status(b->arena));
    size_t at = (size_t)l.key & (size_t)(b->n_slot - 1);
    for (; b->slot[at]; at = (at + 1) & (size_t)(b->n_slot - 1))
        if (t->line[b->slot[at] - 1].key == l.key) {
            *out = b->slot[at] - 1;
            return WEFT_OK;
        }
    void *v = t->line;
    WEFT_TRY(weft_arena_grow(b->arena, &v, &b->cap, t->n_line + 1, sizeof *t->line));
    t->line            = v;
    l.stream           = stream;
    l.first            = -1;
    t->line[t->n_line] = l;
    b->slot[at]        = ++t->n_line;
    *out               = t->n_line - 1;
    return WEFT_OK;
}

static weft_status find_lines(builder *b)
{
    const weft_program *p = b->t->program;
    int                 n = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int k = 0; k < p->actor[a].n_instr; k++, n++) {
            const weft_instr *i = &p->actor[a].instr[k];
            b->t->instr_line[n] = -1;
            if (!weft_instr_is_comm(i)) continue;
            WEFT_TRY(put_line(b, i, p->actor[a].stream, &b->t->instr_line[n]));
            b->t->instr_hash[n] = hash_call(p, i);
        }
    return WEFT_OK;
}

/* ---- calls in order ---- */

/* Where a walk through a stream's calls is: the instruction, and its number. */
typedef struct place {
    const weft_instr *instr;
    int               number;
    int               firing, in_actor;
} place;

static bool next_call(const weft_talk *t, int32_t s, place *x)
{
    const weft_program *p = t->program;
    for (; x->firing < p->stream[s].n_firing; x->firing++, x->in_actor = 0) {
        int32_t           actor = p->stream[s].firing[x->firing].actor;
        const weft_actor *a     = &p->actor[actor];
        while (x->in_actor < a->n_instr) {
            x->number = t->actor_at[actor] + x->in_actor;
            x->instr  = &a->instr[x->in_actor++];
            if (t->instr_line[x->number] >= 0) return true;
        }
    }
    return false;
}

static uint64_t start_of(const weft_talk_line *l)
{
    return mix(l->key, 0);
}

static void count_calls(weft_talk *t)
{
    for (int k = 0; k < t->n_line; k++) t->line[k].digest = start_of(&t->line[k]);
    for (int s = 0; s < t->program->n_stream; s++) {
        place   x = {0};
        int64_t n = 0;
        while (next_call(t, s, &x)) {
            weft_talk_line *l = &t->line[t->instr_line[x.number]];
            if (l->first < 0) l->first = n;
            l->digest = mix(l->digest, t->instr_hash[x.number]);
            l->n_call++;
            n++;
        }
    }
}

weft_status weft_talk_make(const weft_program *p, weft_arena *a, weft_talk *out)
{
    int     n = weft_program_n_instr(p);
    builder b = {.t = out, .arena = a, .n_slot = 16};
    *out      = (weft_talk){.program    = p,
                            .actor_at   = WEFT_ARENA_ARRAY(a, int, p->n_actor + 1),
                            .instr_line = WEFT_ARENA_ARRAY(a, int, n + 1),
                            .instr_hash = WEFT_ARENA_ARRAY(a, uint64_t, n + 1)};
    while (b.n_slot < 2 * n) b.n_slot *= 2;
    b.slot = WEFT_ARENA_ARRAY(a, int, b.n_slot);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < p->n_actor; k++)
        out->actor_at[k + 1] = out->actor_at[k] + p->actor[k].n_instr;
    WEFT_TRY(find_lines(&b));
    count_calls(out);
    return WEFT_OK;
}

/* ---- comparing ---- */

/* Member 0 brings what all others take away; a rank that lacks the line leaves a rest. */
uint64_t weft_talk_weigh(const weft_talk_line *l)
{
    uint64_t x = mix(l->digest, l->key);
    if (!l->n_call) return 0;
    return l->place ? 0 - x : x * (uint64_t)(l->n_rank - 1);
}

uint64_t weft_talk_balance(const weft_talk *t)
{
    uint64_t sum = 0;
    for (int k = 0; k < t->n_line; k++) sum += weft_talk_weigh(&t->line[k]);
    return sum;
}

uint64_t weft_talk_prefix(const weft_talk *t, int line, int64_t n)
{
    const weft_talk_line *l = &t->line[line];
    uint64_t              h = start_of(l);
    place                 x = {0};
    while (n > 0 && next_call(t, l->stream, &x)) {
        if (t->instr_line[x.number] != line) continue;
        h = mix(h, t->instr_hash[x.number]);
        n--;
    }
    return h;
}

static void say_call(const weft_instr *i, char *text, size_t n)
{
    const char *name = i->name ? i->name : "";
    if (i->kind != WEFT_INSTR_COLLECTIVE) {
        snprintf(text, n, "%.0f bytes (%s; %d may wait)", weft_instr_bytes(i), name,
                 i->credits);
    } else if (i->coll == WEFT_BARRIER) {
        snprintf(text, n, "barrier (%s)", name);
    } else if (moves_rows(i)) {
        snprintf(text, n, "%s of rows of %lld, %lld bins (%s)",
                 weft_collective_name(i->coll), (long long)i->in[0].type.shape.d[1],
                 (long long)i->in[1].type.shape.d[1], name);
    } else {
        int64_t count = 0;
        char    more[64];
        for (int t = 0; t < i->n_in; t++) count += count_of(i, t);
        snprintf(more, sizeof more, ", %d tensors, unit %lld, %d lanes", i->n_in,
                 (long long)weft_instr_unit(i, 0), i->lanes);
        snprintf(text, n, "%s of %lld bytes of %s (%s%s)", weft_collective_name(i->coll),
                 (long long)(count * weft_dtype_bytes(i->in[0].type.dtype)),
                 weft_dtype_name(i->in[0].type.dtype), name,
                 i->n_in > 1 || i->unit || i->lanes ? more : "");
    }
}

void weft_talk_say(const weft_talk *t, int line, int64_t k, char *text, size_t n)
{
    place x = {0};
    *text   = 0;
    while (next_call(t, t->line[line].stream, &x))
        if (t->instr_line[x.number] == line && k-- == 0) {
            say_call(x.instr, text, n);
            return;
        }
}

/* ---- nothing but calls ---- */

static weft_instr strip_call(const weft_instr *i)
{
    return (weft_instr){.kind    = i->kind,
                        .name    = i->name,
                        .coll    = WEFT_BARRIER,
                        .group   = i->group,
                        .peer    = i->peer,
                        .tag     = i->tag,
                        .credits = i->credits,
                        .seconds = -1};
}

weft_status weft_talk_strip(const weft_program *p, weft_arena *a, weft_program *out)
{
    *out        = *p;
    out->arena  = NULL;
    out->n_slab = out->n_buffer = out->n_binding = 0;
    out->actor = WEFT_ARENA_ARRAY(a, weft_actor, p->n_actor);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < p->n_actor; k++) {
        const weft_actor *from = &p->actor[k];
        weft_actor       *to   = &out->actor[k];
        int               n    = 0;
        for (int i = 0; i < from->n_instr; i++) n += weft_instr_is_comm(&from->instr[i]);
        *to       = (weft_actor){.name = from->name, .stream = from->stream};
        to->instr = WEFT_ARENA_ARRAY(a, weft_instr, n);
        WEFT_TRY(weft_arena_status(a));
        for (int i = 0; i < from->n_instr; i++)
            if (weft_instr_is_comm(&from->instr[i]))
                to->instr[to->n_instr++] = strip_call(&from->instr[i]);
    }
    return WEFT_OK;
}
