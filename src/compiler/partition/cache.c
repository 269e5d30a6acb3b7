#include "partition/partition_priv.h"

weft_status weft_partition__open_cache(weft_partition_cache **c)
{
    weft_arena *a = NULL;
    if (*c) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    weft_partition_cache *x = WEFT_ARENA_NEW(a, weft_partition_cache);
    if (!x) {
        weft_status st = weft_arena_status(a);
        weft_arena_destroy(a);
        return st;
    }
    x->arena = a;
    *c       = x;
    return WEFT_OK;
}

void weft_partition_cache_destroy(weft_partition_cache *c)
{
    if (!c) return;
    weft_local_graph_destroy(c->local);
    weft_arena_destroy(c->arena);
}
