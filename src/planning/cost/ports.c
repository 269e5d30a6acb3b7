/* See ports.h. */
#include "cost/ports.h"

#include <math.h>

typedef struct interval {
    int64_t first, end;
} interval;

static interval intersect(interval a, interval b)
{
    return (interval){a.first > b.first ? a.first : b.first,
                      a.end < b.end ? a.end : b.end};
}

static int64_t count_ranks(interval a)
{
    return a.end > a.first ? a.end - a.first : 0;
}

int weft_cost_count_crossing(weft_rank_range node, weft_rank_range island,
                             weft_rank_range stage, int64_t move)
{
    interval on_node = intersect((interval){node.first, (int64_t)node.first + node.n},
                                 (interval){stage.first, (int64_t)stage.first + stage.n});
    interval stays   = {island.first - move, island.first + island.n - move};
    return (int)(count_ranks(on_node) - count_ranks(intersect(on_node, stays)));
}

enum {
    MAX_AXIS = 8
};

/* A group as a grid: rank = first + sum of index[k] * stride[k], index[k] < size[k]. */
typedef struct grid {
    int n_axis, stride[MAX_AXIS], size[MAX_AXIS];
} grid;

/* False: the ranks are no grid. */
static bool find_grid(const int32_t *rank, int n, grid *g)
{
    int block = 1;
    g->n_axis = 0;
    while (block < n && g->n_axis < MAX_AXIS) {
        int stride = rank[block] - rank[0], size = 1;
        while (block * size < n && rank[block * size] - rank[0] == stride * size) size++;
        if (stride < 1 || n % (block * size)) return false;
        g->stride[g->n_axis] = stride;
        g->size[g->n_axis++] = size;
        block *= size;
    }
    return block == n;
}

/* The first rank of the group that contains `rank`. */
static int first_member(const grid *g, int origin, int rank)
{
    int first = rank;
    for (int k = 0; k < g->n_axis; k++) {
        int span = g->stride[k] * g->size[k], at = (rank - origin) % span;
        if (at < 0) at += span;
        first -= at / g->stride[k] * g->stride[k];
    }
    return first;
}

int weft_cost_count_members(const weft_cluster *c, int origin, int world,
                            const int32_t *group, int n, int rank)
{
    weft_rank_range node  = weft_cluster_node_ranks(c, rank);
    int             end   = node.first + node.n < world ? node.first + node.n : world;
    int             reach = group[n - 1] - group[0], count = 0;
    grid            g;
    if (!find_grid(group, n, &g)) return end - node.first;
    for (int r = node.first; r < end; r++) {
        int             first  = first_member(&g, origin, r);
        weft_rank_range island = weft_cluster_island_ranks(c, first);
        count += first + reach >= island.first + island.n;
    }
    return count;
}

double weft_cost_port_share(double one_Bps, double all_Bps, int n)
{
    return fmin(one_Bps, all_Bps / (n > 1 ? n : 1));
}
