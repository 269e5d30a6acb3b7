#include "state/move.h"

#include <stdlib.h>
#include <string.h>

void weft_move_list_fini(weft_move_list *l)
{
    free(l->move);
    *l = (weft_move_list){0};
}

static weft_status add_move(weft_move_list *l, const weft_move *m)
{
    if (l->n == l->cap) {
        int        cap  = l->cap ? 2 * l->cap : 8;
        weft_move *more = realloc(l->move, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        l->move = more;
        l->cap  = cap;
    }
    l->move[l->n++] = *m;
    return WEFT_OK;
}

/* ---- one region ---- */

/* Boxes that nobody was found for yet. */
typedef struct box_list {
    int          n, cap;
    weft_region *box;
} box_list;

static weft_status add_box(box_list *l, const weft_region *r)
{
    if (l->n == l->cap) {
        int          cap  = l->cap ? 2 * l->cap : 8;
        weft_region *more = realloc(l->box, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        l->box = more;
        l->cap = cap;
    }
    l->box[l->n++] = *r;
    return WEFT_OK;
}

/* What of `all` is not in `taken`, which is inside it: for each dimension what is before and what
 * is after it. */
static weft_status add_rest(box_list *l, const weft_region *all, const weft_region *taken)
{
    weft_region core = *all; /* shrinks to taken, dimension by dimension */
    for (int d = 0; d < all->global.n; d++) {
        int64_t     end = core.offset[d] + core.extent[d];
        int64_t     cut = taken->offset[d] + taken->extent[d];
        weft_region x   = core;
        x.extent[d]     = taken->offset[d] - core.offset[d];
        if (x.extent[d] > 0) WEFT_TRY(add_box(l, &x));
        x           = core;
        x.offset[d] = cut;
        x.extent[d] = end - cut;
        if (x.extent[d] > 0) WEFT_TRY(add_box(l, &x));
        core.offset[d] = taken->offset[d];
        core.extent[d] = taken->extent[d];
    }
    return WEFT_OK;
}

/* The search for holders of one region of a tensor. */
typedef struct holder_search {
    const weft_held_tensor *tensor;
    const int32_t          *host; /* of each rank, or NULL */
    weft_move               move; /* all but from and region */
    unsigned        turn; /* which holder is tried first, and which of its ranks */
    box_list        open; /* still without a holder */
    weft_move_list *out;
} holder_search;

/* Gives a holder's rank what it has of the open boxes. */
static weft_status take_from(holder_search *s, const weft_part *part, int from)
{
    int64_t n_box = weft_part_boxes(part);
    for (int64_t k = 0; k < n_box && s->open.n; k++) {
        weft_region held = weft_part_box(part, k), common;
        for (int i = 0; i < s->open.n;) {
            weft_region box = s->open.box[i];
            if (!weft_region_intersect(&box, &held, &common)) {
                i++;
                continue;
            }
            s->open.box[i] = s->open.box[--s->open.n];
            WEFT_TRY(add_rest(&s->open, &box, &common));
            s->move.from   = from;
            s->move.region = common;
            WEFT_TRY(add_move(s->out, &s->move));
        }
    }
    return WEFT_OK;
}

static bool is_member(const weft_holder *h, int rank)
{
    for (int k = 0; k < h->n_rank; k++)
        if (h->rank[k] == rank) return true;
    return false;
}

/* A holder's rank on the host of the one that needs it, in turn; -1: there is none. */
static int find_near(const holder_search *s, const weft_holder *h)
{
    int n = 0;
    for (int k = 0; k < h->n_rank; k++) n += s->host[h->rank[k]] == s->host[s->move.to];
    for (int k = 0, at = n ? (int)(s->turn % (unsigned)n) : 0; n && k < h->n_rank; k++)
        if (s->host[h->rank[k]] == s->host[s->move.to] && !at--) return h->rank[k];
    return -1;
}

/* From the rank itself first, then from its host, then from the others, each time from a different
 * one. */
static weft_status find_holders(holder_search *s)
{
    const weft_held_tensor *t = s->tensor;
    for (int i = 0; i < t->n_holder; i++)
        if (is_member(&t->holder[i], s->move.to))
            WEFT_TRY(take_from(s, t->holder[i].part, s->move.to));
    for (int i = 0; i < t->n_holder && s->host && s->open.n; i++) {
        const weft_holder *h =
            &t->holder[(s->turn + (unsigned)i) % (unsigned)t->n_holder];
        int near = find_near(s, h);
        if (near >= 0) WEFT_TRY(take_from(s, h->part, near));
    }
    for (int i = 0; i < t->n_holder && s->open.n; i++) {
        const weft_holder *h =
            &t->holder[(s->turn + (unsigned)i) % (unsigned)t->n_holder];
        WEFT_TRY(take_from(s, h->part, h->rank[s->turn % (unsigned)h->n_rank]));
    }
    if (!s->open.n) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "no rank holds all that rank %d needs of %s",
                     s->move.to, t->name);
}

static weft_status move_region(const weft_holders *h, const weft_move *move,
                               const weft_region *r, unsigned turn, weft_move_list *l)
{
    holder_search s = {.tensor = &h->tensor[move->tensor],
                       .host   = h->host,
                       .move   = *move,
                       .turn   = turn,
                       .out    = l};
    if (weft_region_count(r) == 0) return WEFT_OK;
    weft_status st = add_box(&s.open, r);
    if (st == WEFT_OK) st = find_holders(&s);
    free(s.open.box);
    return st;
}

weft_status weft_move_add_region(const weft_holders *h, int tensor, const weft_region *r,
                                 int to, unsigned turn, weft_move_list *l)
{
    weft_move m = {.tensor = tensor, .target = tensor, .to = to};
    return move_region(h, &m, r, turn, l);
}

/* ---- two tables ---- */

static bool parts_meet(const weft_part *a, const weft_part *b)
{
    for (int d = 0; d < a->shape.n; d++) {
        bool meet = false;
        for (int i = 0; i < a->n[d] && !meet; i++)
            for (int k = 0; k < b->n[d] && !meet; k++)
                meet = a->run[d][i].lo < b->run[d][k].hi &&
                       b->run[d][k].lo < a->run[d][i].hi;
        if (!meet) return false;
    }
    return true;
}

/* The moves of a part to m's rank; only those from `rank` where that is another one and not -1. */
static weft_status plan_part(const weft_holders *old, const weft_move *m,
                             const weft_part *part, int rank, weft_move_list *l)
{
    int     before = l->n, kept = l->n;
    int64_t n_box = weft_part_boxes(part);
    for (int64_t k = 0; k < n_box; k++) {
        weft_region box = weft_part_box(part, k);
        WEFT_TRY(move_region(old, m, &box, (unsigned)(m->to + m->tensor), l));
    }
    if (rank < 0 || rank == m->to) return WEFT_OK;
    for (int i = before; i < l->n; i++)
        if (l->move[i].from == rank) l->move[kept++] = l->move[i];
    l->n = kept;
    return WEFT_OK;
}

static weft_status check_same_tensor(const weft_held_tensor *a, const weft_held_tensor *b)
{
    char x[128], y[128];
    if (a->dtype == b->dtype && weft_shape_equal(&a->shape, &b->shape)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s is %s[%s] in one state and %s[%s] in the other",
                     a->name, weft_dtype_name(a->dtype),
                     weft_shape_text(&a->shape, x, sizeof x), weft_dtype_name(b->dtype),
                     weft_shape_text(&b->shape, y, sizeof y));
}

/* Who holds an equal part; NULL: no rank. */
static const weft_holder *find_equal(const weft_held_tensor *t, const weft_part *part)
{
    for (int i = 0; i < t->n_holder; i++)
        if (weft_part_equal(t->holder[i].part, part)) return &t->holder[i];
    return NULL;
}

/* For ranks in ascending order, *at from 0 on: is it one of the holder's? */
static bool has_next_rank(const weft_holder *h, int rank, int *at)
{
    while (h && *at < h->n_rank && h->rank[*at] < rank) ++*at;
    return h && *at < h->n_rank && h->rank[*at] == rank;
}

/* A part that its rank has already. */
static weft_status keep_part(const weft_move *m, const weft_part *part, weft_move_list *l)
{
    weft_move own   = *m;
    int64_t   n_box = weft_part_boxes(part);
    own.from        = m->to;
    for (int64_t k = 0; k < n_box; k++) {
        own.region = weft_part_box(part, k);
        WEFT_TRY(add_move(l, &own));
    }
    return WEFT_OK;
}

/* Whose moves: from and to a rank, or only to it; rank -1: all. */
typedef struct move_scope {
    int  rank;
    bool only_to;
} move_scope;

/* The moves of one tensor: `tensor` of old to `target` of new. */
static weft_status plan_tensor(const weft_holders *old, int tensor,
                               const weft_holders *new, int target,
                               const move_scope *scope, weft_move_list *l)
{
    int                     rank = scope->rank;
    const weft_held_tensor *t    = &new->tensor[target];
    const weft_part        *own  = NULL;
    if (rank >= 0 && !scope->only_to) own = weft_holders_part(old, tensor, rank);
    WEFT_TRY(check_same_tensor(&old->tensor[tensor], t));
    for (int i = 0; i < t->n_holder; i++) {
        const weft_holder *h     = &t->holder[i];
        const weft_holder *same  = find_equal(&old->tensor[tensor], h->part);
        bool               sends = own && parts_meet(own, h->part);
        for (int k = 0, at = 0; k < h->n_rank; k++) {
            weft_move m    = {.tensor = tensor, .target = target, .to = h->rank[k]};
            bool      mine = rank < 0 || m.to == rank;
            if (!mine && !sends) continue;
            if (!has_next_rank(same, m.to, &at))
                WEFT_TRY(plan_part(old, &m, h->part, rank, l));
            else if (mine)
                WEFT_TRY(keep_part(&m, h->part, l));
        }
    }
    return WEFT_OK;
}

static weft_status plan_moves(const weft_holders *old, const weft_holders *new,
                              const move_scope *scope, weft_move_list *l)
{
    for (int i = 0; i < new->n_tensor; i++) {
        int t = weft_holders_find(old, new->tensor[i].name, i);
        if (t >= 0) WEFT_TRY(plan_tensor(old, t, new, i, scope, l));
    }
    return WEFT_OK;
}

weft_status weft_move_plan(const weft_holders *old, const weft_holders *new, int rank,
                           weft_move_list *l)
{
    return plan_moves(old, new, &(move_scope){.rank = rank}, l);
}

weft_status weft_move_plan_to(const weft_holders *old, const weft_holders *new, int rank,
                              weft_move_list *l)
{
    return plan_moves(old, new, &(move_scope){.rank = rank, .only_to = true}, l);
}

/* Do all ranks that shall have a part of the tensor hold it? */
static bool all_stays(const weft_held_tensor *was, const weft_held_tensor *t)
{
    if (was->dtype != t->dtype || !weft_shape_equal(&was->shape, &t->shape)) return false;
    for (int i = 0; i < t->n_holder; i++) {
        const weft_holder *h = &t->holder[i], *same = find_equal(was, h->part);
        for (int k = 0, at = 0; k < h->n_rank; k++)
            if (!has_next_rank(same, h->rank[k], &at)) return false;
    }
    return true;
}

bool weft_move_is_none(const weft_holders *old, const weft_holders *new)
{
    for (int i = 0; i < new->n_tensor; i++) {
        int t = weft_holders_find(old, new->tensor[i].name, i);
        if (t >= 0 && !all_stays(&old->tensor[t], &new->tensor[i])) return false;
    }
    return true;
}
