/* Copies of shards: lanes over two axes.
 *
 *     dp=4 copies=2        copies 0: ranks 0 1        shards (of ZeRO) are cut over dp,
 *                          copies 1: ranks 2 3        ranks 0 and 2 have the same ones
 *
 * Places are counted as before, so ranks, samples and lanes stay where they were.  A sum over the
 * lanes goes along dp first, then along copies (reshard.c): the lanes' tree, hence the same bits.
 */
#include <string.h>

#include "shard/shard_priv.h"

int weft_shard_axis_before(int lane_axis, int axis)
{
    return axis > lane_axis ? axis - 1 : axis;
}

static weft_status split_mesh(weft_mesh *m, int axis, int copies)
{
    weft_mesh_axis was = m->axis[axis];
    if (was.size % copies)
        return WEFT_FAIL(WEFT_ERR_ARG, "copies=%d does not divide %s=%d", copies,
                         was.name, was.size);
    if (m->n_axis == WEFT_MAX_AXIS)
        return WEFT_FAIL(WEFT_ERR_ARG, "copies=%d needs an axis more, and %d are most",
                         copies, WEFT_MAX_AXIS);
    memmove(&m->axis[axis + 1], &m->axis[axis],
            sizeof *m->axis * (size_t)(m->n_axis - axis));
    m->n_axis++;
    m->axis[axis]          = (weft_mesh_axis){"copies", copies, was.link};
    m->axis[axis + 1].size = was.size / copies;
    return weft_mesh_verify(m);
}

weft_status weft_shard_split_lanes(weft_shard_options *o, int axis, int copies,
                                   weft_arena *a)
{
    size_t     n_mesh = (size_t)o->n_mesh, n_mark = (size_t)o->n_mark;
    weft_mesh *mesh = weft_arena_memdup(a, o->mesh, sizeof *mesh * n_mesh);
    weft_mark *mark =
        n_mark ? weft_arena_memdup(a, o->mark, sizeof *mark * n_mark) : NULL;
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < o->n_mesh; i++) WEFT_TRY(split_mesh(&mesh[i], axis, copies));
    for (int i = 0; i < o->n_mark; i++) {
        weft_layout *l   = &mark[i].layout;
        uint32_t     low = mark[i].never & ((1u << axis) - 1);
        for (int k = 0; k < l->n; k++)
            if (l->split[k].axis >= axis) l->split[k].axis++;
        /* never by the axis: by neither of the two */
        mark[i].never = low | (mark[i].never >> axis & 1) << axis |
                        mark[i].never >> axis << (axis + 1);
    }
    o->mesh  = mesh;
    o->mark  = mark;
    o->lanes = 3u << axis;
    return WEFT_OK;
}
