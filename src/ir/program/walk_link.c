/* Who meets whom: every send, receive and collective of every program gets its channel or
 * meeting. */
#include <string.h>

#include "base/hash.h"
#include "program/walk_priv.h"

/* A table from keys (runs of bytes) to numbers 0, 1, 2, ... */
typedef struct entry {
    const void *key;
    size_t      n;
    uint64_t    hash;
    int         id;
} entry;

typedef struct table {
    weft_arena *arena;
    entry      *e;
    size_t      n_slot, n_used;
} table;

static weft_status table_init(table *t, weft_arena *a, int at_most)
{
    *t = (table){.arena = a, .n_slot = 16};
    while (t->n_slot < 2 * (size_t)at_most + 2) t->n_slot *= 2;
    t->e = WEFT_ARENA_ARRAY(a, entry, t->n_slot);
    return weft_arena_status(a);
}

/* The key's number; a new key gets n_next.  The key is copied. */
static weft_status table_put(table *t, const void *key, size_t n, int n_next, int *id)
{
    uint64_t h = weft_hash_xxh64(key, n, 0);
    size_t   i = (size_t)h & (t->n_slot - 1);
    for (; t->e[i].key; i = (i + 1) & (t->n_slot - 1))
        if (t->e[i].hash == h && t->e[i].n == n && !memcmp(t->e[i].key, key, n)) {
            *id = t->e[i].id;
            return WEFT_OK;
        }
    t->e[i] = (entry){weft_arena_memdup(t->arena, key, n), n, h, n_next};
    *id     = n_next;
    return weft_arena_status(t->arena);
}

typedef struct linker {
    weft_program__walk *w;
    table               channels, meetings;
    int32_t            *key; /* room for the largest group's */
    int                 cap_key;
} linker;

static weft_status one_stream(const weft_program *p, const weft_instr *i, int *side,
                              int stream)
{
    if (*side >= 0 && *side != stream)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "rank %d, %s '%s': tag %d is used from two streams, so its order is "
            "open; give each stream its own tag",
            p->rank, weft_instr_kind_name(i->kind), i->name, i->tag);
    *side = stream;
    return WEFT_OK;
}

static weft_status link_message(linker *k, const weft_program *p, int stream, int n_fire,
                                const weft_instr *i, int *link)
{
    weft_program__walk *w    = k->w;
    bool                send = i->kind == WEFT_INSTR_SEND;
    int32_t key[3] = {send ? p->rank : i->peer, send ? i->peer : p->rank, i->tag};
    if (i->peer < 0 || i->peer >= w->n_program || i->peer == p->rank)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "rank %d, %s '%s': there is no other rank %d of %d", p->rank,
                         weft_instr_kind_name(i->kind), i->name, i->peer, w->n_program);
    WEFT_TRY(table_put(&k->channels, key, sizeof key, w->n_channel, link));
    if (*link == w->n_channel) {
        void *v = w->channel;
        WEFT_TRY(weft_arena_grow(w->arena, &v, &w->cap_channel, w->n_channel + 1,
                                 sizeof *w->channel));
        w->channel                 = v;
        w->channel[w->n_channel++] = (weft_program__channel){
            .from = key[0], .to = key[1], .tag = key[2], .credits = -1, .side = {-1, -1}};
    }
    weft_program__channel *c = &w->channel[*link];
    WEFT_TRY(one_stream(p, i, &c->side[!send], stream));
    if (c->credits >= 0 && c->credits != i->credits)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "rank %d, %s '%s': %d credits, but another end of tag %d from rank %d to "
            "rank %d has %d",
            p->rank, weft_instr_kind_name(i->kind), i->name, i->credits, i->tag, c->from,
            c->to, c->credits);
    c->credits = i->credits;
    if (send) c->n_msg += n_fire;
    return WEFT_OK;
}

static weft_status link_collective(linker *k, const weft_program *p, int stream,
                                   const weft_instr *i, int *link, int *place)
{
    weft_program__walk *w    = k->w;
    const weft_group   *g    = &p->group[i->group];
    int                 me   = -1;
    void               *room = k->key;
    WEFT_TRY(
        weft_arena_grow(w->arena, &room, &k->cap_key, g->n_rank + 1, sizeof *k->key));
    int32_t *key = k->key = room;
    for (int m = 0; m < g->n_rank; m++) {
        if (g->rank[m] >= w->n_program)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "rank %d, collective '%s': there is no rank %d of %d",
                             p->rank, i->name, g->rank[m], w->n_program);
        if (g->rank[m] == p->rank) me = m;
        key[m] = g->rank[m];
    }
    key[g->n_rank] = i->tag;
    *place         = me;
    WEFT_TRY(table_put(&k->meetings, key, sizeof *key * (size_t)(g->n_rank + 1),
                       w->n_meeting, link));
    if (*link == w->n_meeting) {
        void *v = w->meeting;
        WEFT_TRY(weft_arena_grow(w->arena, &v, &w->cap_meeting, w->n_meeting + 1,
                                 sizeof *w->meeting));
        w->meeting                 = v;
        weft_program__meeting *new = &w->meeting[w->n_meeting++];
        *new                       = (weft_program__meeting){.group = g, .tag = i->tag};
        new->side                  = WEFT_ARENA_ARRAY(w->arena, int, g->n_rank);
        new->here                  = WEFT_ARENA_ARRAY(w->arena, bool, g->n_rank);
        WEFT_TRY(weft_arena_status(w->arena));
        for (int m = 0; m < g->n_rank; m++) new->side[m] = -1;
    }
    return one_stream(p, i, &w->meeting[*link].side[me], stream);
}

static int count_firings(const weft_program *p, int32_t actor)
{
    int s = (int)p->actor[actor].stream, n = 0;
    for (int i = 0; i < p->stream[s].n_firing; i++)
        n += p->stream[s].firing[i].actor == actor;
    return n;
}

static weft_status link_program(linker *k, int at)
{
    weft_program__walk *w = k->w;
    const weft_program *p = w->program[at];
    for (int a = 0; a < p->n_actor; a++) {
        const weft_actor *actor  = &p->actor[a];
        int               n_fire = -1, stream = -1;
        for (int n = 0; n < actor->n_instr; n++) {
            const weft_instr *i = &actor->instr[n];
            if (!weft_instr_is_comm(i)) continue;
            if (n_fire < 0) {
                n_fire = count_firings(p, a);
                stream = w->stream_at[at * WEFT_MAX_STREAM + (int)actor->stream];
            }
            if (!n_fire) break;
            int *link = &w->link[at][w->instr_at[at][a] + n];
            WEFT_TRY(i->kind == WEFT_INSTR_COLLECTIVE
                         ? link_collective(k, p, stream, i, link,
                                           link - w->link[at] + w->place[at])
                         : link_message(k, p, stream, n_fire, i, link));
        }
    }
    return WEFT_OK;
}

static weft_status channel_rings(weft_program__walk *w, weft_program__channel *c)
{
    int64_t cap = c->n_msg * w->o->n_step;
    if (cap > c->credits) cap = c->credits;
    if (cap < 1) cap = 1;
    c->cap    = (int)cap;
    c->arrive = WEFT_ARENA_ARRAY(w->arena, double, cap);
    c->freed  = WEFT_ARENA_ARRAY(w->arena, double, cap);
    c->bytes  = WEFT_ARENA_ARRAY(w->arena, double, cap);
    return weft_arena_status(w->arena);
}

weft_status weft_program__link(weft_program__walk *w)
{
    linker k      = {.w = w};
    int    n_comm = 0;
    for (int i = 0; i < w->n_program; i++)
        for (int a = 0; a < w->program[i]->n_actor; a++)
            for (int n = 0; n < w->program[i]->actor[a].n_instr; n++)
                n_comm += weft_instr_is_comm(&w->program[i]->actor[a].instr[n]);
    WEFT_TRY(table_init(&k.channels, w->arena, n_comm));
    WEFT_TRY(table_init(&k.meetings, w->arena, n_comm));
    for (int i = 0; i < w->n_program; i++) WEFT_TRY(link_program(&k, i));
    for (int i = 0; i < w->n_channel; i++) WEFT_TRY(channel_rings(w, &w->channel[i]));
    return WEFT_OK;
}
