/* (1) Each rank gets a colour: what its program does, what it runs on, over which links it talks.
 * (2) Colours are refined by those of the groups it is in and of its peers until no more come.
 * (3) One program a colour is left; it talks to colours instead of ranks.  Two groups of one rank
 *     may become the same set of colours, two peers the same colour: tags tell them apart. */
#include "sim/fold.h"

#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "sim/sim_priv.h"

typedef struct member {
    int      n_peer, n_group;
    int      stage_ranks; /* ranks of its stage */
    int32_t *there;       /* peers of the program that it is like */
    int32_t *peer;        /* its own: ranks */
    int     *group;       /* numbers of groups of the whole job */
} member;

typedef struct fold {
    const weft_world   *w;
    const weft_cluster *c;
    weft_arena         *a;
    member             *m;
    uint64_t           *colour, *next, *sorted;
    int                 n_group;
    uint64_t           *group_key; /* by set of ranks, sorted; its place is its number */
    uint64_t           *group_role, *group_colour;
    weft_sim_folded    *f;
    int64_t             tag_span;
} fold;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t mix_double(uint64_t a, double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return mix(a, b);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts n values and drops doubles; how many are left. */
static int unique(uint64_t *x, int n)
{
    int k = 0;
    qsort(x, (size_t)n, sizeof *x, by_value);
    for (int i = 0; i < n; i++)
        if (!i || x[i] != x[i - 1]) x[k++] = x[i];
    return k;
}

static int number_of(const uint64_t *sorted, int n, uint64_t x)
{
    const uint64_t *at = bsearch(&x, sorted, (size_t)n, sizeof x, by_value);
    return (int)(at - sorted);
}

/* ---- roles: what a rank sees of the cluster ---- */

static uint64_t path_role(const fold *f, const weft_path *p)
{
    uint64_t h = mix((uint64_t)p->level, p->link ? (uint64_t)(p->link - f->c->link) : 0);
    return mix_double(mix_double(mix_double(h, p->alpha_s), p->Bps), p->busy_Bps);
}

static uint64_t group_role(const fold *f, const weft_group_shape *g)
{
    const int n[] = {g->n,        g->n_node,     g->n_island,
                     g->per_node, g->per_island, g->least_per_island};
    uint64_t  h   = mix_double(0, g->speed);
    for (size_t i = 0; i < WEFT_COUNT(n); i++) h = mix(h, (uint64_t)n[i]);
    return mix(mix(h, path_role(f, &g->inner)), path_role(f, &g->outer));
}

/* Kind of device and node, its health.  What it gets of its node's ports is in the roles of paths
 * and groups. */
static weft_status device_role(const fold *f, int rank, uint64_t *out)
{
    weft_group_shape one;
    int              place, node = weft_cluster_node(f->c, rank, &place), kind = 0;
    WEFT_TRY(weft_cluster_group_stride(f->c, rank, 1, 1, &one));
    while (kind + 1 < f->c->n_node && node >= f->c->node[kind + 1].first_node) kind++;
    *out = mix(mix_double(0, one.speed), (uint64_t)kind);
    return WEFT_OK;
}

/* ---- groups of the whole job ---- */

static uint64_t set_of(const fold *f, int rank, const weft_group *g)
{
    uint64_t sum = 0;
    if (g->n_rank == f->w->n) return 1; /* all of them */
    for (int k = 0; k < g->n_rank; k++)
        sum += mix(7, (uint64_t)weft_world_other(f->w, rank, g->rank[k]));
    return mix(sum, (uint64_t)g->n_rank);
}

static weft_status read_group(fold *f, int rank, const weft_group *g, int at, int *ranks)
{
    weft_group_shape s;
    if (f->group_role[at] || !f->c) return WEFT_OK;
    for (int k = 0; k < g->n_rank; k++)
        ranks[k] = weft_world_other(f->w, rank, g->rank[k]);
    WEFT_TRY(weft_cost_group_shape(f->c, 0, f->w->n, ranks, g->n_rank, &s));
    f->group_role[at] = group_role(f, &s) | 1;
    return WEFT_OK;
}

static weft_status read_groups(fold *f)
{
    const weft_world *w = f->w;
    int               n = 0, most = 1;
    for (int r = 0; r < w->n; r++) n += w->like[r]->n_group;
    f->group_key = WEFT_ARENA_ARRAY(f->a, uint64_t, n + 1);
    uint64_t *of = WEFT_ARENA_ARRAY(f->a, uint64_t, n + 1);
    WEFT_TRY(weft_arena_status(f->a));
    n = 0;
    for (int r = 0; r < w->n; r++)
        for (int k = 0; k < w->like[r]->n_group; k++) {
            of[n++] = set_of(f, r, &w->like[r]->group[k]);
            if (w->like[r]->group[k].n_rank > most) most = w->like[r]->group[k].n_rank;
        }
    memcpy(f->group_key, of, sizeof *of * (size_t)n);
    f->n_group      = unique(f->group_key, n);
    f->group_role   = WEFT_ARENA_ARRAY(f->a, uint64_t, f->n_group + 1);
    f->group_colour = WEFT_ARENA_ARRAY(f->a, uint64_t, f->n_group + 1);
    int *ranks      = WEFT_ARENA_ARRAY(f->a, int, most);
    WEFT_TRY(weft_arena_status(f->a));
    n = 0;
    for (int r = 0; r < w->n; r++) {
        member *m  = &f->m[r];
        m->n_group = w->like[r]->n_group;
        m->group   = WEFT_ARENA_ARRAY(f->a, int, m->n_group + 1);
        if (!m->group) return weft_arena_status(f->a);
        for (int k = 0; k < m->n_group; k++) {
            m->group[k] = number_of(f->group_key, f->n_group, of[n++]);
            WEFT_TRY(read_group(f, r, &w->like[r]->group[k], m->group[k], ranks));
        }
    }
    return WEFT_OK;
}

/* ---- colours ---- */

/* Ranks share programs: likeness and peers of one are found once. */
static weft_status read_program(fold *f, int r)
{
    const weft_program *p = f->w->like[r];
    member             *m = &f->m[r];
    int                 k;
    for (k = 0; f->w->like[k] != p; k++) {
    }
    if (k < r) {
        m->n_peer      = f->m[k].n_peer;
        m->stage_ranks = f->m[k].stage_ranks;
        m->there       = f->m[k].there;
        f->next[r]     = f->next[k];
    } else {
        WEFT_TRY(weft_program_peers(p, f->a, &m->there, &m->n_peer));
        m->stage_ranks = weft_program_stage_ranks(p);
        f->next[r]     = weft_program_likeness(p);
    }
    m->peer = WEFT_ARENA_ARRAY(f->a, int32_t, m->n_peer + 1);
    if (!m->peer) return weft_arena_status(f->a);
    for (k = 0; k < m->n_peer; k++) {
        m->peer[k] = weft_world_other(f->w, r, m->there[k]);
        if (m->peer[k] < 0 || m->peer[k] >= f->w->n)
            return WEFT_FAIL(WEFT_ERR_ARG, "rank %d talks to rank %d of %d", r,
                             m->peer[k], f->w->n);
    }
    return WEFT_OK;
}

static weft_status read_ranks(fold *f)
{
    for (int r = 0; r < f->w->n; r++) {
        uint64_t role;
        WEFT_TRY(read_program(f, r));
        f->colour[r] = f->next[r];
        if (!f->c) continue;
        WEFT_TRY(device_role(f, r, &role));
        f->colour[r] = mix(f->colour[r], role);
        if (weft_sim__crowded(f->c)) f->colour[r] = mix(f->colour[r], (uint64_t)r);
        for (int k = 0; k < f->m[r].n_peer; k++) {
            weft_path p;
            WEFT_TRY(weft_cost_message_path(f->c, f->m[r].stage_ranks, r, f->m[r].peer[k],
                                            &p));
            f->colour[r] = mix(f->colour[r], path_role(f, &p));
        }
    }
    return WEFT_OK;
}

/* Where rank stands in the list of its peer; -1: nowhere. */
static int place_at(const fold *f, int peer, int rank)
{
    for (int k = 0; k < f->m[peer].n_peer; k++)
        if (f->m[peer].peer[k] == rank) return k;
    return -1;
}

static void colour_groups(fold *f)
{
    memcpy(f->group_colour, f->group_role, sizeof(uint64_t) * (size_t)f->n_group);
    for (int r = 0; r < f->w->n; r++)
        for (int k = 0; k < f->m[r].n_group; k++)
            f->group_colour[f->m[r].group[k]] += mix(f->colour[r], (uint64_t)k);
}

static int count_colours(fold *f)
{
    memcpy(f->sorted, f->colour, sizeof(uint64_t) * (size_t)f->w->n);
    return unique(f->sorted, f->w->n);
}

/* Until no more colours come; how many there are. */
static int refine(fold *f)
{
    int n = count_colours(f);
    for (;;) {
        colour_groups(f);
        for (int r = 0; r < f->w->n; r++) {
            const member *m = &f->m[r];
            uint64_t      x = f->colour[r];
            for (int k = 0; k < m->n_group; k++) x = mix(x, f->group_colour[m->group[k]]);
            for (int k = 0; k < m->n_peer; k++)
                x = mix(mix(x, f->colour[m->peer[k]]),
                        (uint64_t)place_at(f, m->peer[k], r));
            f->next[r] = x;
        }
        memcpy(f->colour, f->next, sizeof(uint64_t) * (size_t)f->w->n);
        int more = count_colours(f);
        if (more == n) break;
        n = more;
    }
    colour_groups(f);
    return n;
}

/* A class that talks to itself is no rank's message: such jobs stay as they are. */
static bool talks_to_itself(const fold *f)
{
    for (int r = 0; r < f->w->n; r++)
        for (int k = 0; k < f->m[r].n_peer; k++)
            if (f->colour[r] == f->colour[f->m[r].peer[k]]) return true;
    return false;
}

/* Classes are numbered by their lowest ranks. */
static weft_status number_classes(fold *f, int n)
{
    weft_sim_folded *x  = f->f;
    int             *of = WEFT_ARENA_ARRAY(f->a, int, n + 1);
    x->class_of         = WEFT_ARENA_ARRAY(x->arena, int, f->w->n);
    x->n_rank           = WEFT_ARENA_ARRAY(x->arena, int, n);
    x->program          = WEFT_ARENA_ARRAY(x->arena, weft_program *, n);
    WEFT_TRY(weft_arena_status(f->a));
    WEFT_TRY(weft_arena_status(x->arena));
    for (int k = 0; k < n; k++) of[k] = -1;
    for (int r = 0; r < f->w->n; r++) {
        int k = number_of(f->sorted, n, f->colour[r]);
        if (of[k] < 0) {
            of[k] = x->n_class++;
            WEFT_TRY(weft_world_program(f->w, r, x->arena, &x->program[of[k]]));
        }
        x->class_of[r] = of[k];
        x->n_rank[of[k]]++;
    }
    return WEFT_OK;
}

/* ---- one program a class ---- */

static int by_int(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void fold_group(const fold *f, weft_group *g)
{
    int n    = 0;
    g->share = NULL; /* times are known by now */
    for (int k = 0; k < g->n_rank; k++) g->rank[k] = f->f->class_of[g->rank[k]];
    qsort(g->rank, (size_t)g->n_rank, sizeof *g->rank, by_int);
    for (int k = 0; k < g->n_rank; k++)
        if (!k || g->rank[k] != g->rank[k - 1]) g->rank[n++] = g->rank[k];
    g->n_rank = n;
}

static weft_status fold_instr(const fold *f, int rank, const uint64_t *group, int n_group,
                              weft_instr *i)
{
    int64_t kind = 0;
    if (i->kind == WEFT_INSTR_COLLECTIVE) {
        kind = number_of(group, n_group, f->group_colour[f->m[rank].group[i->group]]);
    } else if (i->kind == WEFT_INSTR_SEND || i->kind == WEFT_INSTR_RECV) {
        int from = i->kind == WEFT_INSTR_SEND ? rank : i->peer;
        kind     = place_at(f, from, from == rank ? i->peer : rank);
        if (kind < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "rank %d receives '%s' of rank %d, which sends it nothing",
                             rank, i->name, from);
        i->peer = f->f->class_of[i->peer];
    } else {
        return WEFT_OK;
    }
    if (i->tag + kind * f->tag_span > INT32_MAX)
        return WEFT_FAIL(WEFT_ERR_ARG, "tags up to %lld leave no room to fold ranks",
                         (long long)f->tag_span);
    i->tag = (int32_t)(i->tag + kind * f->tag_span);
    return WEFT_OK;
}

static weft_status fold_programs(fold *f, weft_program ***out)
{
    weft_sim_folded *x     = f->f;
    uint64_t        *group = WEFT_ARENA_ARRAY(f->a, uint64_t, f->n_group + 1);
    *out                   = WEFT_ARENA_ARRAY(f->a, weft_program *, x->n_class);
    WEFT_TRY(weft_arena_status(f->a));
    memcpy(group, f->group_colour, sizeof *group * (size_t)f->n_group);
    int n_group = unique(group, f->n_group);
    for (int k = 0; k < x->n_class; k++) {
        int           rank = x->program[k]->rank;
        weft_program *p;
        WEFT_TRY(weft_world_program(f->w, rank, f->a, &p));
        for (int g = 0; g < p->n_group; g++) fold_group(f, &p->group[g]);
        for (int a = 0; a < p->n_actor; a++)
            for (int m = 0; m < p->actor[a].n_instr; m++)
                WEFT_TRY(fold_instr(f, rank, group, n_group, &p->actor[a].instr[m]));
        p->rank   = k;
        p->world  = x->n_class;
        (*out)[k] = p;
    }
    return WEFT_OK;
}

/* ---- the call ---- */

static void find_span(fold *f)
{
    const weft_program *last = NULL;
    for (int r = 0; r < f->w->n; last = f->w->like[r++])
        for (int a = 0; f->w->like[r] != last && a < f->w->like[r]->n_actor; a++)
            for (int m = 0; m < f->w->like[r]->actor[a].n_instr; m++) {
                const weft_instr *i = &f->w->like[r]->actor[a].instr[m];
                if (i->tag >= f->tag_span) f->tag_span = (int64_t)i->tag + 1;
            }
}

static weft_status set_out(fold *f)
{
    int n = f->w->n;
    if (f->c && weft_cluster_count(f->c) < n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s has %d device%s, but there are %d ranks", f->c->name,
                         weft_cluster_count(f->c),
                         weft_cluster_count(f->c) > 1 ? "s" : "", n);
    f->m      = WEFT_ARENA_ARRAY(f->a, member, n);
    f->colour = WEFT_ARENA_ARRAY(f->a, uint64_t, n);
    f->next   = WEFT_ARENA_ARRAY(f->a, uint64_t, n);
    f->sorted = WEFT_ARENA_ARRAY(f->a, uint64_t, n);
    WEFT_TRY(weft_arena_status(f->a));
    find_span(f);
    WEFT_TRY(read_ranks(f));
    return read_groups(f);
}

weft_status weft_sim_fold(const weft_world *w, const weft_cluster *c,
                          const weft_sim_options *o, weft_sim_folded **out)
{
    fold           f    = {.w = w, .c = c};
    weft_arena    *keep = NULL;
    weft_program **p    = NULL;
    weft_status    st   = WEFT_OK;
    WEFT_GO(weft_arena_create(&f.a));
    WEFT_GO(weft_arena_create(&keep));
    f.f = WEFT_ARENA_NEW(keep, weft_sim_folded);
    WEFT_GO(weft_arena_status(keep));
    f.f->arena = keep;
    WEFT_GO(set_out(&f));
    int n = refine(&f);
    if (talks_to_itself(&f)) {
        for (int r = 0; r < w->n; r++) f.colour[r] = (uint64_t)r;
        n = refine(&f);
    }
    WEFT_GO(number_classes(&f, n));
    WEFT_GO(fold_programs(&f, &p));
    WEFT_GO(weft_sim__run((const weft_program *const *)f.f->program,
                          (const weft_program *const *)p, n, c, o, &f.f->timeline));
    *out = f.f;
    keep = NULL;
out:
    weft_arena_destroy(f.a);
    weft_arena_destroy(keep);
    return st;
}

void weft_sim_folded_destroy(weft_sim_folded *f)
{
    if (!f) return;
    weft_timeline_destroy(f->timeline);
    weft_arena_destroy(f->arena);
}

weft_status weft_sim_folded_expand(const weft_sim_folded *f, const weft_world *w,
                                   weft_timeline **out)
{
    weft_timeline *t  = NULL;
    weft_status    st = WEFT_OK;
    weft_program **p  = WEFT_ARENA_ARRAY(f->arena, weft_program *, w->n);
    WEFT_TRY(weft_arena_status(f->arena));
    for (int r = 0; r < w->n; r++) WEFT_TRY(weft_world_program(w, r, f->arena, &p[r]));
    WEFT_TRY(weft_timeline_create(f->timeline->name, (const weft_program *const *)p, w->n,
                                  &t));
    for (int r = 0; r < w->n; r++)
        for (int k = 0; k < f->timeline->n_slice; k++) {
            weft_slice x = f->timeline->slice[k];
            if (x.program != f->class_of[r]) continue;
            x.program = r;
            WEFT_GO(weft_timeline_add(t, &x));
        }
    t->n_step  = f->timeline->n_step;
    t->total_s = f->timeline->total_s;
    t->step_s  = f->timeline->step_s;
    *out       = t;
    return WEFT_OK;
out:
    weft_timeline_destroy(t);
    return st;
}

weft_status weft_sim_folded_traffic(const weft_sim_folded *f, const weft_cluster *c,
                                    int k, double *level)
{
    const weft_program *p = f->program[k];
    for (int a = 0; a < p->n_actor; a++) {
        int s = (int)p->actor[a].stream, n = 0;
        for (int i = 0; i < p->stream[s].n_firing; i++)
            n += p->stream[s].firing[i].actor == a;
        for (int m = 0; m < p->actor[a].n_instr; m++) {
            double one[WEFT_COST_LEVELS] = {0};
            WEFT_TRY(weft_cost_traffic(p, &p->actor[a].instr[m], c, one));
            for (int l = 0; l < WEFT_COST_LEVELS; l++)
                level[l] += one[l] * n * f->n_rank[k];
        }
    }
    return WEFT_OK;
}
