/* Which rank holds which part of every tensor of a state.
 *
 *     weft_holders *h;
 *     WEFT_TRY(weft_holders_exchange(state, comm, group, &h));     collective
 *     weft_holders_destroy(h);
 *
 * (1) Ranks that hold equal parts of a tensor are replicas: one entry, its ranks ascending.
 * (2) What a peer says of itself is checked before it is used: runs ascend within the shape and
 *     none is empty (tests/fuzz/fuzz_holders.c).
 * (3) Immutable once made. */
#ifndef WEFT_STATE_HOLDERS_H
#define WEFT_STATE_HOLDERS_H

#include "comm/comm.h"
#include "state/state.h"

/* A part, and who holds it; never empty. */
typedef struct weft_holder {
    const weft_part *part;
    int              n_rank;
    const int       *rank;
} weft_holder;

typedef struct weft_held_tensor {
    const char  *name;
    weft_dtype   dtype;
    weft_shape   shape;
    int          n_holder;
    weft_holder *holder; /* by its lowest rank */
} weft_held_tensor;

typedef struct weft_holders {
    weft_arena       *arena;
    int               n_rank, n_tensor;
    weft_held_tensor *tensor;
    const int32_t    *host; /* of each rank; NULL: it does not matter */
} weft_holders;

/* part[i * n_rank + k]: what rank k holds of tensor i of list, NULL or empty for nothing.  Copies
 * all it is given; the part of list itself does not matter. */
weft_status weft_holders_create(int n_tensor, const weft_state_tensor *list, int n_rank,
                                const weft_part *const *part, weft_holders **out);
/* Of all members of group; comm NULL: this rank alone. */
weft_status weft_holders_exchange(const weft_state *s, weft_comm *comm,
                                  weft_comm_group *group, weft_holders **out);
/* n tables of the same tensors and ranks as one: holder k * ranks + r is rank r of table k. */
weft_status weft_holders_join(const weft_holders *const *of, int n, weft_holders **out);
/* Before it is used: moves take what a rank of the same host holds before others. */
weft_status weft_holders_set_hosts(weft_holders *h, const int32_t *host);
void        weft_holders_destroy(weft_holders *h);     /* accepts NULL */
int64_t     weft_holders_bytes(const weft_holders *h); /* NULL is 0 */

/* For each rank the fewest domains that hold something which it holds, its own among them; 0: it
 * holds nothing.  domain: of each rank, below n_rank; NULL: each is one.  A part counts as held by
 * who has an equal one, or the whole tensor. */
weft_status weft_holders_copies(const weft_holders *h, const int *domain, int *least);

/* -1: no such tensor.  likely: where it is looked for first; tables list tensors in one order. */
int weft_holders_find(const weft_holders *h, const char *name, int likely);
/* NULL: nothing. */
const weft_part *weft_holders_part(const weft_holders *h, int tensor, int rank);

#endif
