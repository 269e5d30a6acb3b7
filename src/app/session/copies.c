/* After a lost rank all copies of each part of the state are the same: asked for by campaigns of
 * faults ($WEFT_CHECK_COPIES), as it reads all of the state. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "session/session_priv.h"

/* A tensor of a rank: which part of it, and its bytes; 0: it has none. */
typedef struct copy_digest {
    uint64_t part, bytes;
} copy_digest;

static uint64_t hash_part(const weft_part *p)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    for (int d = 0; d < p->shape.n; d++) {
        weft_hash_add(&h, &p->shape.d[d], sizeof p->shape.d[d]);
        weft_hash_add(&h, p->run[d], sizeof *p->run[d] * (size_t)p->n[d]);
    }
    return weft_hash_value(&h) | 1;
}

static weft_status find_digest(const weft_state *s, int i, copy_digest *out)
{
    const weft_state_tensor *t = weft_state_at(s, i);
    const weft_memory       *m = weft_state_memory(s);
    *out                       = (copy_digest){0};
    if (!t->part || t->on_host) return WEFT_OK;
    size_t n      = (size_t)(weft_part_count(t->part) * weft_dtype_bytes(t->dtype));
    void  *number = malloc(n + 1);
    if (!number) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to compare %s", t->name);
    weft_status st = weft_device_read(number, m, t->offset, (int64_t)n);
    *out           = (copy_digest){hash_part(t->part), weft_hash_xxh64(number, n, 0)};
    free(number);
    return st;
}

/* all: of each rank its n digests. */
static weft_status compare_digests(const weft_session *s, const copy_digest *all, int n)
{
    for (int i = 0; i < n; i++)
        for (int r = 1; r < s->now->comm->world; r++)
            for (int k = 0; k < r; k++) {
                const copy_digest *a = &all[(int64_t)k * n + i],
                                  *b = &all[(int64_t)r * n + i];
                if (a->part && a->part == b->part && a->bytes != b->bytes)
                    return WEFT_FAIL(
                        WEFT_ERR_INTERNAL,
                        "after step %lld ranks %d and %d have different copies of %s",
                        (long long)s->r.steps, k, r, weft_state_at(s->state, i)->name);
            }
    return WEFT_OK;
}

weft_status weft_session__compare_copies(weft_session *s)
{
    weft_generation *g = s->now;
    if (!getenv("WEFT_CHECK_COPIES") || !g->continues) return WEFT_OK;
    int          n   = weft_state_count(s->state);
    copy_digest *own = WEFT_ARENA_ARRAY(g->arena, copy_digest, n + 1);
    copy_digest *all =
        WEFT_ARENA_ARRAY(g->arena, copy_digest, (int64_t)n * g->comm->world + 1);
    WEFT_TRY(weft_arena_status(g->arena));
    for (int i = 0; i < n; i++) WEFT_TRY(find_digest(s->state, i, &own[i]));
    WEFT_TRY(weft_session__gather(s, own, (size_t)n * sizeof *own, all));
    return weft_session__outcome(s, compare_digests(s, all, n));
}
