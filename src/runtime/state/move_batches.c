#include "state/move_batches.h"

#include <stdlib.h>

void weft_move_batches_fini(weft_move_batches *b)
{
    free(b->first);
    free(b->tensor);
    *b = (weft_move_batches){0};
}

int64_t weft_move_largest(const weft_holders *h)
{
    int64_t most = 0;
    for (int i = 0; i < h->n_tensor; i++) {
        const weft_held_tensor *t = &h->tensor[i];
        int64_t n = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        if (n > most) most = n;
    }
    return most;
}

static int64_t part_bytes(const weft_held_tensor *t, const weft_holder *h)
{
    return weft_part_count(h->part) * weft_dtype_bytes(t->dtype);
}

/* How much more memory each host needs for each tensor: growth[tensor * n + host]; and of the
 * next order: room[host], how much more it may have than now. */
typedef struct batch_order {
    int      n; /* hosts */
    int64_t *growth, *room;
    int     *tensor, n_tensor; /* those left to order */
} batch_order;

/* Adds sign times what holders have of a tensor, by host. */
static void count_bytes(const weft_holders *h, int tensor, const int32_t *host, int sign,
                        int64_t *of)
{
    if (!h || tensor < 0) return;
    const weft_held_tensor *t = &h->tensor[tensor];
    for (int k = 0; k < t->n_holder; k++)
        for (int i = 0; i < t->holder[k].n_rank; i++)
            of[host ? host[t->holder[k].rank[i]] : 0] +=
                sign * part_bytes(t, &t->holder[k]);
}

/* A host may have what it has before or after, whichever is more. */
static void count_growth(const weft_holders *old, const weft_move_targets *to,
                         const weft_move_hosts *hosts, batch_order *x)
{
    const weft_holders *new = to->own;
    const int32_t *host     = hosts ? hosts->new : NULL;
    for (int i = 0; i < new->n_tensor; i++) {
        int64_t *of  = x->growth + (size_t)i * (size_t)x->n;
        int      was = weft_holders_find(old, new->tensor[i].name, i);
        count_bytes(new, i, host, 1, of);
        for (int k = 0; k < to->n_standby; k++)
            count_bytes(to->standby[k], i, host, 1, of);
        count_bytes(old, was, hosts ? hosts->old : NULL, -1, of);
        for (int h = 0; h < x->n; h++) x->room[h] += of[h];
        x->tensor[x->n_tensor++] = i;
    }
    for (int h = 0; h < x->n; h++)
        if (x->room[h] < 0) x->room[h] = 0;
}

/* What the fullest host has above its bound after a tensor, or how far it is below; total: of all
 * hosts. */
static int64_t find_fullest(const batch_order *x, int tensor, int64_t *total)
{
    const int64_t *of   = x->growth + (size_t)tensor * (size_t)x->n;
    int64_t        most = INT64_MIN;
    *total              = 0;
    for (int h = 0; h < x->n; h++) {
        *total += of[h];
        if (of[h] - x->room[h] > most) most = of[h] - x->room[h];
    }
    return most;
}

/* Which of those left is next: after which the fullest host has least; of equals the one that makes
 * most room. */
static int take_next(batch_order *x)
{
    int     best  = 0;
    int64_t least = INT64_MAX, least_total = INT64_MAX, total;
    for (int k = 0; k < x->n_tensor; k++) {
        int64_t most = find_fullest(x, x->tensor[k], &total);
        if (most > least || (most == least && total > least_total)) continue;
        if (most == least && total == least_total && x->tensor[k] > x->tensor[best])
            continue;
        best        = k;
        least       = most;
        least_total = total;
    }
    int tensor      = x->tensor[best];
    x->tensor[best] = x->tensor[--x->n_tensor];
    for (int h = 0; h < x->n; h++)
        x->room[h] -= x->growth[(size_t)tensor * (size_t)x->n + (size_t)h];
    return tensor;
}

/* Adds what each rank gets of a tensor; true: one gets more than `most` now. */
static bool add_bytes(const weft_holders *h, int tensor, int64_t most, int64_t *rank)
{
    bool                    over = false;
    const weft_held_tensor *t    = &h->tensor[tensor];
    for (int k = 0; k < t->n_holder; k++)
        for (int i = 0; i < t->holder[k].n_rank; i++) {
            int r = t->holder[k].rank[i];
            rank[r] += part_bytes(t, &t->holder[k]);
            over = over || rank[r] > most;
        }
    return over;
}

static bool add_target(const weft_move_targets *to, int tensor, int64_t most,
                       int64_t *rank)
{
    bool over = add_bytes(to->own, tensor, most, rank);
    for (int k = 0; k < to->n_standby; k++)
        over = add_bytes(to->standby[k], tensor, most, rank) || over;
    return over;
}

/* The tensors of b are in their order.  rank[]: room for the bytes of each. */
static void split_tensors(const weft_move_targets *to, int64_t most, int64_t *rank,
                          weft_move_batches *b)
{
    const weft_holders *new = to->own;
    bool full               = false; /* one tensor is more than `most` */
    for (int i = 0; i < new->n_tensor; i++) {
        int  tensor = b->tensor[i];
        bool over   = add_target(to, tensor, most, rank);
        if (i > b->first[b->n] && (over || full)) { /* it begins the next one */
            b->first[++b->n] = i;
            for (int r = 0; r < new->n_rank; r++) rank[r] = 0;
            over = add_target(to, tensor, most, rank);
        }
        full = over;
    }
    if (new->n_tensor) b->first[++b->n] = new->n_tensor;
}

weft_status weft_move_batches_make(const weft_holders *old, const weft_move_targets *to,
                                   const weft_move_hosts *hosts, int64_t most,
                                   weft_move_batches *out)
{
    const weft_holders *new = to->own;
    size_t            n = (size_t) new->n_tensor, n_host = (size_t)(hosts ? hosts->n : 1);
    batch_order       x    = {.n      = (int)n_host,
                              .growth = calloc(n * n_host + 1, sizeof *x.growth),
                              .room   = calloc(n_host + 1, sizeof *x.room),
                              .tensor = calloc(n + 1, sizeof *x.tensor)};
    int64_t          *rank = calloc((size_t) new->n_rank + 1, sizeof *rank);
    weft_move_batches b    = {.first  = calloc(n + 2, sizeof *b.first),
                              .tensor = calloc(n + 1, sizeof *b.tensor)};
    bool good = x.growth && x.room && x.tensor && rank && b.first && b.tensor;
    if (good) {
        count_growth(old, to, hosts, &x);
        for (int i = 0; i < new->n_tensor; i++) b.tensor[i] = take_next(&x);
        split_tensors(to, most, rank, &b);
        *out = b;
    } else {
        weft_move_batches_fini(&b);
    }
    free(x.growth);
    free(x.room);
    free(x.tensor);
    free(rank);
    return good ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}
