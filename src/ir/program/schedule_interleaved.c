/* Interleaved 1F1B (Narayanan et al. 2021): a rank has v chunks, so that filling and draining
 * cost a chunk's time instead of a stage's: idle (P-1)/(vM+P-1) where P divides M.
 *
 * Micro-batches go in groups of P, the last one with what is left over: a group through all
 * chunks of a rank, then the next group.  Forwards go through the chunks upwards, backwards
 * downwards; the warm-up is what fills the pipe up to the last chunk of the largest group. */
#include "program/schedule_priv.h"

static int n_group(const weft_schedule *s)
{
    int n = s->of.n_micro / s->of.n_rank;
    return n ? n : 1;
}

/* Micro-batches of group g. */
static int size_of(const weft_schedule *s, int g)
{
    return g + 1 < n_group(s) ? s->of.n_rank : s->of.n_micro - g * s->of.n_rank;
}

/* The k-th forward (up) or backward of a rank: which chunk, which micro-batch. */
static void at(const weft_schedule *s, int k, bool up, int *chunk, int *micro)
{
    int p = s->of.n_rank, v = s->of.n_chunk, g = k / (p * v);
    if (g >= n_group(s)) g = n_group(s) - 1;
    int in = k - g * p * v, size = size_of(s, g);
    *chunk = up ? in / size : v - 1 - in / size;
    *micro = g * p + in % size;
}

static void put(weft_schedule *s, int rank, int k, bool up)
{
    int chunk, micro;
    at(s, k, up, &chunk, &micro);
    weft_schedule__put(s, rank, up ? WEFT_WORK_FORWARD : WEFT_WORK_BACKWARD, chunk,
                       micro);
}

void weft_schedule__interleaved(weft_schedule *s, int rank)
{
    int p = s->of.n_rank, v = s->of.n_chunk, n = s->of.n_micro * v;
    int warm = (p - 1 - rank) * (v > 1 ? 2 : 1) + (v - 1) * size_of(s, n_group(s) - 1);
    if (warm > n) warm = n;
    for (int k = 0; k < warm; k++) put(s, rank, k, true);
    for (int k = 0; k < n; k++) {
        if (warm + k < n) put(s, rank, warm + k, true);
        put(s, rank, k, false);
    }
}
