#include "state/holders.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_NUMBERS = 1 << 26, /* in which a rank describes its parts */
    MOST_BOXES   = 1 << 16  /* of a part: moves go box by box */
};

/* ---- replicas ---- */

/* Positions of like[] that have the value k, in a. */
static const int *list_equal(weft_arena *a, const int *like, int n, int k, int *count)
{
    *count = 0;
    for (int j = k; j < n; j++) *count += like[j] == k;
    int *list = WEFT_ARENA_ARRAY(a, int, *count + 1), at = 0;
    for (int j = k; j < n && list; j++)
        if (like[j] == k) list[at++] = j;
    return list;
}

/* The holders of tensor i out of each rank's part. */
static weft_status find_replicas(weft_holders *h, int i, const weft_part *const *part)
{
    weft_held_tensor *t    = &h->tensor[i];
    int              *like = malloc(sizeof *like * (size_t)(h->n_rank + 1)), n = 0;
    if (!like) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int k = 0; k < h->n_rank;
         k++) { /* the lowest rank with an equal part; -1: none */
        like[k] = -1;
        if (!part[k] || weft_part_count(part[k]) == 0) continue;
        for (int j = 0; j < k && like[k] < 0; j++)
            if (like[j] == j && weft_part_equal(part[j], part[k])) like[k] = j;
        if (like[k] >= 0) continue;
        like[k] = k;
        n++;
    }
    t->holder = WEFT_ARENA_ARRAY(h->arena, weft_holder, n + 1);
    for (int k = 0; k < h->n_rank && t->holder; k++) {
        if (like[k] != k) continue;
        weft_holder *x = &t->holder[t->n_holder++];
        x->rank        = list_equal(h->arena, like, h->n_rank, k, &x->n_rank);
        x->part        = weft_part_copy(part[k], h->arena);
    }
    free(like);
    return weft_arena_status(h->arena);
}

weft_status weft_holders_create(int n_tensor, const weft_state_tensor *list, int n_rank,
                                const weft_part *const *part, weft_holders **out)
{
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    weft_holders *h = WEFT_ARENA_NEW(a, weft_holders);
    if (!h) WEFT_GO(weft_arena_status(a));
    *h = (weft_holders){.arena    = a,
                        .n_rank   = n_rank,
                        .n_tensor = n_tensor,
                        .tensor   = WEFT_ARENA_ARRAY(a, weft_held_tensor, n_tensor + 1)};
    WEFT_GO(weft_arena_status(a));
    for (int i = 0; i < n_tensor; i++) {
        h->tensor[i] = (weft_held_tensor){.name  = weft_arena_strdup(a, list[i].name),
                                          .dtype = list[i].dtype,
                                          .shape = list[i].shape};
        WEFT_GO(find_replicas(h, i, part + (int64_t)i * n_rank));
    }
    *out = h;
    a    = NULL;
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_holders_join(const weft_holders *const *of, int n, weft_holders **out)
{
    int                n_tensor = of[0]->n_tensor, n_rank = of[0]->n_rank;
    int                n_holder = n * n_rank;
    weft_state_tensor *list     = calloc((size_t)n_tensor + 1, sizeof *list);
    const weft_part  **part =
        calloc((size_t)n_tensor * (size_t)n_holder + 1, sizeof *part);
    weft_status st = list && part ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < n_tensor && st == WEFT_OK; i++) {
        const weft_held_tensor *t = &of[0]->tensor[i];
        list[i] =
            (weft_state_tensor){.name = t->name, .dtype = t->dtype, .shape = t->shape};
        for (int h = 0; h < n_holder; h++)
            part[(size_t)i * (size_t)n_holder + (size_t)h] =
                weft_holders_part(of[h / n_rank], i, h % n_rank);
    }
    if (st == WEFT_OK) st = weft_holders_create(n_tensor, list, n_holder, part, out);
    free(list);
    free(part);
    return st;
}

weft_status weft_holders_set_hosts(weft_holders *h, const int32_t *host)
{
    int32_t *copy = WEFT_ARENA_ARRAY(h->arena, int32_t, h->n_rank + 1);
    WEFT_TRY(weft_arena_status(h->arena));
    memcpy(copy, host, sizeof *host * (size_t)h->n_rank);
    h->host = copy;
    return WEFT_OK;
}

void weft_holders_destroy(weft_holders *h)
{
    if (h) weft_arena_destroy(h->arena);
}

int64_t weft_holders_bytes(const weft_holders *h)
{
    return h ? weft_arena_bytes(h->arena) : 0;
}

int weft_holders_find(const weft_holders *h, const char *name, int likely)
{
    if (likely < h->n_tensor && !strcmp(h->tensor[likely].name, name)) return likely;
    for (int i = 0; i < h->n_tensor; i++)
        if (!strcmp(h->tensor[i].name, name)) return i;
    return -1;
}

const weft_part *weft_holders_part(const weft_holders *h, int tensor, int rank)
{
    const weft_held_tensor *t = &h->tensor[tensor];
    for (int i = 0; i < t->n_holder; i++)
        for (int k = 0; k < t->holder[i].n_rank; k++)
            if (t->holder[i].rank[k] == rank) return t->holder[i].part;
    return NULL;
}

/* ---- exchange ---- */

/* Numbers that describe this rank's parts: for each tensor its dimensions (-1: nothing), for each
 * dimension its runs.  With out NULL only counted. */
static int64_t write_own(const weft_state *s, int32_t *out)
{
    int64_t n = 0;
#define PUT(x) (out ? (void)(out[n] = (int32_t)(x)) : (void)0, n++)
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_part *p = weft_state_at(s, i)->part;
        PUT(p ? p->shape.n : -1);
        for (int d = 0; p && d < p->shape.n; d++) {
            PUT(p->n[d]);
            for (int k = 0; k < p->n[d]; k++) PUT(p->run[d][k].lo), PUT(p->run[d][k].hi);
        }
    }
#undef PUT
    return n;
}

/* Numbers of another rank that are still to be read. */
typedef struct number_reader {
    const int32_t *in;
    int64_t        left;
    weft_arena    *arena;
} number_reader;

static bool read_number(number_reader *t, int64_t lo, int64_t hi, int32_t *out)
{
    if (t->left < 1 || *t->in < lo || *t->in > hi) return false;
    *out = *t->in++;
    t->left--;
    return true;
}

/* Runs of a dimension of a size: within it and ascending, and none is empty unless it is the only
 * one. */
static bool read_runs(number_reader *t, int64_t size, int *n, const weft_interval **out)
{
    int32_t n_run, lo, hi = 0;
    if (!read_number(t, 0, t->left / 2, &n_run)) return false;
    weft_interval *run = WEFT_ARENA_ARRAY(t->arena, weft_interval, n_run + 1);
    for (int k = 0; k < n_run && run; k++) {
        if (!read_number(t, hi, size, &lo) ||
            !read_number(t, (int64_t)lo + (n_run > 1), size, &hi))
            return false;
        run[k] = (weft_interval){lo, hi};
    }
    *n   = n_run;
    *out = run;
    return run != NULL;
}

/* *out NULL: nothing is held. */
static bool read_part(number_reader *t, const weft_shape *shape, const weft_part **out)
{
    int32_t n_dim;
    *out = NULL;
    if (!read_number(t, -1, shape->n, &n_dim)) return false;
    if (n_dim < 0) return true;
    weft_part *p = WEFT_ARENA_NEW(t->arena, weft_part);
    if (!p || n_dim != shape->n) return false;
    p->shape      = *shape;
    int64_t boxes = 1;
    for (int d = 0; d < shape->n; d++) {
        if (!read_runs(t, shape->d[d], &p->n[d], &p->run[d])) return false;
        boxes *= p->n[d];
        if (boxes > MOST_BOXES) return false;
    }
    *out = p;
    return true;
}

/* The parts of a rank, out of numbers that come from another process. */
static weft_status read_parts(const weft_state *s, int rank, int world, number_reader *t,
                              const weft_part **part)
{
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *x    = weft_state_at(s, i);
        bool                     good = read_part(t, &x->shape, &part[i * world + rank]);
        WEFT_TRY(weft_arena_status(t->arena));
        if (!good)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d failed: it sent a part of %s that cannot be", rank,
                             x->name);
    }
    return t->left ? WEFT_FAIL(WEFT_ERR_PEER,
                               "rank %d failed: it sent %lld numbers after its parts",
                               rank, (long long)t->left)
                   : WEFT_OK;
}

/* Parts are read, so equal numbers mean the same parts. */
static void share_parts(int n_tensor, int world, int from, int to, const weft_part **part)
{
    for (int i = 0; i < n_tensor; i++) part[i * world + to] = part[i * world + from];
}

/* Every rank's number of numbers; *most: the largest. */
static weft_status gather_sizes(weft_comm *comm, weft_comm_group *group, int32_t own,
                                int32_t *size, int32_t *most)
{
    WEFT_TRY(weft_comm_collective(comm, group, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &own,
                                  size, 1));
    *most = 0;
    for (int k = 0; k < comm->world; k++) {
        if (size[k] < 0 || size[k] > MOST_NUMBERS)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d failed: it sent %d as the size of its table", k,
                             size[k]);
        *most = size[k] > *most ? size[k] : *most;
    }
    return WEFT_OK;
}

/* Parts are sent as 32 bits. */
static weft_status check_sizes(const weft_state *s)
{
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *x = weft_state_at(s, i);
        for (int d = 0; d < x->shape.n; d++)
            if (x->shape.d[d] > INT32_MAX)
                return WEFT_FAIL(WEFT_ERR_ARG, "%s: a dimension of %lld is too large",
                                 x->name, (long long)x->shape.d[d]);
    }
    return WEFT_OK;
}

static weft_status gather_parts(const weft_state *s, weft_comm *comm,
                                weft_comm_group *group, weft_arena *tmp,
                                const weft_part **part)
{
    int32_t *size = WEFT_ARENA_ARRAY(tmp, int32_t, comm->world), most;
    WEFT_TRY(weft_arena_status(tmp));
    WEFT_TRY(gather_sizes(comm, group, (int32_t)write_own(s, NULL), size, &most));
    int32_t *own = WEFT_ARENA_ARRAY(tmp, int32_t, most + 1);
    int32_t *all = WEFT_ARENA_ARRAY(tmp, int32_t, (int64_t)most * comm->world + 1);
    WEFT_TRY(weft_arena_status(tmp));
    write_own(s, own);
    WEFT_TRY(weft_comm_collective(comm, group, WEFT_ALL_GATHER, WEFT_DTYPE_I32, own, all,
                                  most));
    for (int k = 0; k < comm->world; k++) {
        const int32_t *in = all + (int64_t)k * most;
        number_reader  t  = {in, size[k], tmp};
        if (k && size[k] == size[k - 1] &&
            !memcmp(in, in - most, sizeof *in * (size_t)size[k]))
            share_parts(weft_state_count(s), comm->world, k - 1, k, part);
        else
            WEFT_TRY(read_parts(s, k, comm->world, &t, part));
    }
    return WEFT_OK;
}

weft_status weft_holders_exchange(const weft_state *s, weft_comm *comm,
                                  weft_comm_group *group, weft_holders **out)
{
    int         world = comm ? comm->world : 1, n = weft_state_count(s);
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_GO(weft_arena_create(&tmp));
    const weft_part **part =
        WEFT_ARENA_ARRAY(tmp, const weft_part *, (int64_t)n *world + 1);
    WEFT_GO(weft_arena_status(tmp));
    if (comm) WEFT_GO(check_sizes(s));
    if (comm) WEFT_GO(gather_parts(s, comm, group, tmp, part));
    for (int i = 0; i < n && !comm; i++) part[i] = weft_state_at(s, i)->part;
    WEFT_GO(weft_holders_create(n, n ? weft_state_at(s, 0) : NULL, world, part, out));
out:
    weft_arena_destroy(tmp);
    return st;
}

/* ---- copies ---- */

static bool is_whole(const weft_held_tensor *t, const weft_part *p)
{
    return weft_part_count(p) == weft_shape_count(&t->shape);
}

/* Domains of x's ranks that are marked neither with `turn` nor with `whole`; they are from now on
 * with `turn`. */
static int count_domains(const weft_holder *x, const int *domain, int turn, int whole,
                         int *mark)
{
    int n = 0;
    for (int k = 0; k < x->n_rank; k++) {
        int *m = &mark[domain ? domain[x->rank[k]] : x->rank[k]];
        if (*m == turn || *m == whole) continue;
        *m = turn;
        n++;
    }
    return n;
}

/* Of one tensor, for each rank that has some of it: domains of who has all of it, and of who has
 * the same part.  *turn: above all marks, before and after. */
static void count_tensor(const weft_held_tensor *t, const int *domain, int *mark,
                         int *turn, int *least)
{
    int n_whole = 0, whole = (*turn)++;
    for (int i = 0; i < t->n_holder; i++)
        if (is_whole(t, t->holder[i].part))
            n_whole += count_domains(&t->holder[i], domain, whole, whole, mark);
    for (int i = 0; i < t->n_holder; i++) {
        const weft_holder *x = &t->holder[i];
        int                n = n_whole + count_domains(x, domain, *turn, whole, mark);
        ++*turn;
        for (int k = 0; k < x->n_rank; k++) {
            int *l = &least[x->rank[k]];
            if (!*l || n < *l) *l = n;
        }
    }
}

weft_status weft_holders_copies(const weft_holders *h, const int *domain, int *least)
{
    int  turn = 1;
    int *mark = calloc((size_t)h->n_rank + 1, sizeof *mark);
    if (!mark) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int r = 0; r < h->n_rank; r++) least[r] = 0;
    for (int i = 0; i < h->n_tensor; i++)
        count_tensor(&h->tensor[i], domain, mark, &turn, least);
    free(mark);
    return WEFT_OK;
}
