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

/* Of all holders. */
static int64_t count_bytes(const weft_holders *h, int tensor)
{
    int64_t n = 0;
    if (!h || tensor < 0) return 0;
    const weft_held_tensor *t = &h->tensor[tensor];
    for (int k = 0; k < t->n_holder; k++)
        n += t->holder[k].n_rank * part_bytes(t, &t->holder[k]);
    return n;
}

/* How much more memory a tensor takes afterwards. */
typedef struct tensor_growth {
    int64_t bytes;
    int     tensor;
} tensor_growth;

static int compare_growth(const void *a, const void *b)
{
    const tensor_growth *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->tensor - y->tensor;
}

/* Adds what each rank gets of a tensor; true: one gets more than `most` now. */
static bool add_bytes(const weft_holders *h, int tensor, int64_t most, int64_t *rank)
{
    bool over = false;
    if (!h) return false;
    const weft_held_tensor *t = &h->tensor[tensor];
    for (int k = 0; k < t->n_holder; k++)
        for (int i = 0; i < t->holder[k].n_rank; i++) {
            int r = t->holder[k].rank[i];
            rank[r] += part_bytes(t, &t->holder[k]);
            over = over || rank[r] > most;
        }
    return over;
}

/* of[]: all tensors in their order.  rank[]: room for the bytes of each. */
static void split_tensors(const weft_holders *new, const weft_holders *standby,
                          const tensor_growth *of, int64_t most, int64_t *rank,
                          weft_move_batches *b)
{
    bool full = false; /* one tensor is more than `most` */
    for (int i = 0; i < new->n_tensor; i++) {
        b->tensor[i] = of[i].tensor;
        bool over    = add_bytes(new, of[i].tensor, most, rank);
        over         = add_bytes(standby, of[i].tensor, most, rank) || over;
        if (i > b->first[b->n] && (over || full)) { /* it begins the next one */
            b->first[++b->n] = i;
            for (int r = 0; r < new->n_rank; r++) rank[r] = 0;
            over = add_bytes(new, of[i].tensor, most, rank);
            over = add_bytes(standby, of[i].tensor, most, rank) || over;
        }
        full = over;
    }
    if (new->n_tensor) b->first[++b->n] = new->n_tensor;
}

weft_status weft_move_batches_make(const weft_holders *old, const weft_holders *new,
                                   const weft_holders *standby, int64_t most,
                                   weft_move_batches *out)
{
    size_t            n    = (size_t) new->n_tensor;
    tensor_growth    *of   = calloc(n + 1, sizeof *of);
    int64_t          *rank = calloc((size_t) new->n_rank + 1, sizeof *rank);
    weft_move_batches b    = {.first  = calloc(n + 2, sizeof *b.first),
                              .tensor = calloc(n + 1, sizeof *b.tensor)};
    bool              good = of && rank && b.first && b.tensor;
    for (int i = 0; good && i < new->n_tensor; i++) {
        int was = weft_holders_find(old, new->tensor[i].name, i);
        of[i]   = (tensor_growth){
              count_bytes(new, i) + count_bytes(standby, i) - count_bytes(old, was), i};
    }
    if (good) {
        qsort(of, n, sizeof *of, compare_growth);
        split_tensors(new, standby, of, most, rank, &b);
        *out = b;
    } else {
        weft_move_batches_fini(&b);
    }
    free(of);
    free(rank);
    return good ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}
