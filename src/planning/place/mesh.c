/* The mesh of a plan as a job, and what of an older placement stays. */
#include <stdlib.h>

#include "place/place.h"

weft_place_job weft_place_mesh_job(const weft_place_mesh *m)
{
    static const struct {
        const char        *name;
        weft_place_pattern pattern;
        bool               even;
    } axis[WEFT_PLACE_N_MESH] = {{"pp", WEFT_PLACE_CHAIN, false}, /* cuts follow speed */
                                 {"dp", WEFT_PLACE_RING, true},
                                 {"ep", WEFT_PLACE_ALL, true},
                                 {"cp", WEFT_PLACE_RING, true},
                                 {"tp", WEFT_PLACE_RING, true}};
    weft_place_job j          = {.n_axis = WEFT_PLACE_N_MESH};
    for (int i = 0; i < WEFT_PLACE_N_MESH; i++)
        j.axis[i] = (weft_place_axis){.name    = axis[i].name,
                                      .size    = m->size[i],
                                      .pattern = axis[i].pattern,
                                      .bytes   = m->bytes[i],
                                      .even    = axis[i].even};
    return j;
}

/* ---- inheriting ---- */

typedef struct replica {
    int at, n_lost;
} replica;

static int by_loss(const void *a, const void *b)
{
    const replica *x = a, *y = b;
    if (x->n_lost != y->n_lost) return x->n_lost < y->n_lost ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    const replica *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void mark_usable(const weft_cluster *c, bool *usable)
{
    weft_device_run r;
    for (int at = 0; weft_cluster_next_run(c, &at, &r);)
        for (int d = r.first; d < r.first + r.n; d++) usable[d] = !r.cordoned;
}

/* In a stage: ranks of one replica. */
static int per_replica(const weft_place_mesh *m)
{
    return m->size[WEFT_PLACE_EP] * m->size[WEFT_PLACE_CP] * m->size[WEFT_PLACE_TP];
}

/* Which of the old replicas stay, in their order: the first `keep` of x. */
static void choose_replicas(const weft_place_mesh *was, const int *was_device,
                            const bool *usable, int n_device, int keep, replica *x)
{
    int n = per_replica(was), dp = was->size[WEFT_PLACE_DP];
    for (int i = 0; i < dp; i++) x[i].at = i;
    for (int r = 0; r < was->size[WEFT_PLACE_PP] * dp * n; r++) {
        int d = was_device[r];
        x[r / n % dp].n_lost += d < 0 || d >= n_device || !usable[d];
    }
    qsort(x, (size_t)dp, sizeof *x, by_loss);
    qsort(x, (size_t)keep, sizeof *x, by_place);
}

weft_status weft_place_inherit(const weft_place_mesh *was, const int *was_device,
                               const weft_place_mesh *now, const weft_cluster *c,
                               int *device, bool *same)
{
    int n = per_replica(now), pp = now->size[WEFT_PLACE_PP], all = weft_cluster_count(c);
    int dp = now->size[WEFT_PLACE_DP], old = was->size[WEFT_PLACE_DP];
    int keep = old < dp ? old : dp;
    *same    = true;
    for (int i = 0; i < WEFT_PLACE_N_MESH; i++)
        if (i != WEFT_PLACE_DP && was->size[i] != now->size[i]) *same = false;
    for (int r = 0; r < pp * dp * n; r++) device[r] = -1;
    if (!*same) return WEFT_OK;
    replica *x      = calloc((size_t)old, sizeof *x);
    bool    *usable = calloc((size_t)all + 1, sizeof *usable);
    if (x && usable) {
        mark_usable(c, usable);
        choose_replicas(was, was_device, usable, all, keep, x);
        for (int s = 0; s < pp; s++)
            for (int k = 0; k < keep; k++)
                for (int i = 0; i < n; i++)
                    device[(s * dp + k) * n + i] =
                        was_device[(s * old + x[k].at) * n + i];
    }
    bool ok = x && usable;
    free(x);
    free(usable);
    return ok ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "no memory for a placement");
}
