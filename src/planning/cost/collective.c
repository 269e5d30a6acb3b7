/* Collectives by the algorithms that comm uses or will use, S bytes given by each of n ranks, L =
 *   ceil(log2 n): all_reduce       halving and doubling      2 L alpha + 2 (n-1)/n S beta
 *   reduce_scatter   halving                     L alpha +   (n-1)/n S beta
 *   all_gather       doubling                    L alpha +   (n-1)   S beta
 *   all_to_all       direct exchange         (n-1) alpha +   (n-1)/n S beta
 *   send_rows, return_rows   the same, tokens being dealt evenly: S is what a rank has at home
 *   broadcast        scatter and gather        2 L alpha + 2 (n-1)/n S beta
 *   barrier          doubling                    L alpha */
#include <math.h>

#include "cost/cost.h"
#include "cost/cost_priv.h"

double weft_cost__collective(weft_collective k, int n, double bytes, double alpha,
                             double beta)
{
    if (n < 2) return 0;
    double steps = ceil(log2(n)), share = (double)(n - 1) / n * bytes * beta;
    switch (k) {
    case WEFT_BROADCAST:
    case WEFT_ALL_REDUCE: return 2 * steps * alpha + 2 * share;
    case WEFT_REDUCE_SCATTER: return steps * alpha + share;
    case WEFT_ALL_GATHER: return steps * alpha + (n - 1) * bytes * beta;
    case WEFT_SEND_ROWS: /* to all experts alike */
    case WEFT_RETURN_ROWS:
    case WEFT_ALL_TO_ALL: return (n - 1) * alpha + share;
    case WEFT_BARRIER: return steps * alpha;
    case WEFT_SHIFT: return alpha + bytes * beta;
    }
    return 0;
}

double weft_cost_collective(weft_collective k, int n, double bytes, double alpha,
                            double beta)
{
    return weft_cost__collective(k, n, bytes, alpha, beta);
}
