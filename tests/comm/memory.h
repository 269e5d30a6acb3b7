/* Memory of ranks in tests of comm: their own, or slabs where there are some. */
#ifndef TEST_COMM_MEMORY_H
#define TEST_COMM_MEMORY_H

#include "comm/ranks.h"

#include <stdlib.h>

typedef enum memory {
    PRIVATE,
    SLAB,
    MIXED, /* odd ranks in slabs */
    N_MEMORY,
} memory;

static memory where;

/* Kinds of memory that there are over a transport. */
static memory n_memory(int over)
{
    return has_slabs((transport)over) ? N_MEMORY : SLAB;
}

static weft_status get(rank_state *r, int64_t bytes, void **out)
{
    weft_comm *shared = weft_comm_shared_end(r->c);
    bool       slab   = where == SLAB || (where == MIXED && r->rank % 2);
    if (slab && shared) return weft_comm_shm_alloc(shared, bytes + 1, out);
    *out = calloc(1, (size_t)bytes + 1);
    return *out ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "test");
}

static void put(rank_state *r, void *p)
{
    int64_t    at;
    weft_comm *shared = weft_comm_shared_end(r->c);
    if (shared && weft_comm_shm_find(shared, p, &at) >= 0)
        weft_comm_shm_free(shared, p);
    else
        free(p);
}

#endif
