/* The lists are those of program/schedule.h, written down as rules for the next work of a rank:
 *     forward    while fewer than it runs ahead are under way        b: backwards done
 *     weight     of zb-h1, where more than its rank are put off
 *     backward   else
 * A rank sends beside its works, one message after another.  Of many micro-batches some more than
 * fill the pipeline are played: from there on a step grows by the same for each round of pp of
 * them. */
#include <math.h>

#include "cost/pipe_priv.h"

enum {
    SLOTS  = 4096, /* messages at once: stages times micro-batches */
    ROUNDS = 4     /* of pp micro-batches that are played */
};

typedef struct player {
    double free_s, wire_s; /* when its works, its messages are done */
    int    f, b, w;        /* works done, over its chunks */
} player;

typedef struct play {
    const weft_cost__pipe *x;
    int                    m; /* micro-batches that are played */
    double *down, *up;        /* [stage][micro]: when messages arrive; < 0: not yet */
    player  rank[WEFT_COST__STAGES];
} play;

static int group_size(const play *z, int g)
{
    int n = z->m / z->x->pp;
    if (!n) n = 1;
    return g + 1 < n ? z->x->pp : z->m - g * z->x->pp;
}

static int n_group(const play *z)
{
    int n = z->m / z->x->pp;
    return n ? n : 1;
}

/* The k-th forward or backward of a rank with chunks: its chunk and micro-batch. */
static void find(const play *z, int k, bool forward, int *chunk, int *micro)
{
    int pp = z->x->pp, v = z->x->chunks, g = k / (pp * v);
    *chunk = 0;
    *micro = k;
    if (v < 2) return;
    if (g >= n_group(z)) g = n_group(z) - 1;
    int in = k - g * pp * v, size = group_size(z, g);
    *chunk = forward ? in / size : v - 1 - in / size;
    *micro = g * pp + in % size;
}

/* Forwards that a rank runs ahead of its backwards. */
static int ahead(const play *z, int r)
{
    const weft_cost__pipe *x = z->x;
    if (x->all_first) return z->m;
    if (x->chunks < 2) return x->pp - 1 - r;
    return 2 * (x->pp - 1 - r) + (x->chunks - 1) * group_size(z, n_group(z) - 1);
}

static void send(play *z, player *q, int stage, int micro, bool forward)
{
    const weft_cost__pipe *x    = z->x;
    int                    to   = forward ? stage + 1 : stage - 1;
    double                 s    = forward ? x->stage[stage].next_s : x->stage[to].from_s;
    double                 from = fmax(q->free_s, q->wire_s);
    q->wire_s                   = from + s;
    (forward ? z->down : z->up)[to * z->m + micro] = from + s;
}

/* The next work of rank r, if what it needs is there. */
static bool step(play *z, int r)
{
    const weft_cost__pipe *x = z->x;
    player                *q = &z->rank[r];
    int  n = z->m * x->chunks, last = x->pp * x->chunks - 1, chunk, micro;
    bool weight  = x->split && q->w < (q->b < n ? q->b - r : n);
    bool forward = !weight && q->f < n && q->f <= ahead(z, r) + q->b;
    if (weight) {
        q->free_s += x->stage[r].weight_s;
        q->w++;
        return true;
    }
    if (!forward && q->b == n) return false;
    find(z, forward ? q->f : q->b, forward, &chunk, &micro);
    int    stage = chunk * x->pp + r;
    bool   end   = forward ? stage == 0 : stage == last;
    double there = end ? 0 : (forward ? z->down : z->up)[stage * z->m + micro];
    if (there < 0) return false;
    q->free_s = fmax(q->free_s, there) +
                (forward ? x->stage[stage].fwd_s : x->stage[stage].back_s);
    if (forward ? stage < last : stage > 0) send(z, q, stage, micro, forward);
    *(forward ? &q->f : &q->b) += 1;
    return true;
}

static double seconds_of(const weft_cost__pipe *x, int m)
{
    double down[SLOTS], up[SLOTS], end = 0;
    play   z    = {.x = x, .m = m, .down = down, .up = up};
    bool   more = true;
    for (int i = 0; i < x->pp * x->chunks * m; i++) down[i] = up[i] = -1;
    for (int r = 0; r < x->pp; r++) z.rank[r] = (player){.free_s = x->after_s[r]};
    while (more) {
        more = false;
        for (int r = 0; r < x->pp; r++)
            while (step(&z, r)) more = true;
    }
    for (int r = 0; r < x->pp; r++) end = fmax(end, z.rank[r].free_s + x->before_s[r]);
    /* the ranks between the ends may still be at work while these exchange what is tied */
    double first = z.rank[0].free_s + x->before_s[0];
    double last  = z.rank[x->pp - 1].free_s + x->before_s[x->pp - 1];
    end          = fmax(end, fmax(first, last) + x->tied_s);
    return end + x->meet_s;
}

/* The works of a micro-batch on the busiest rank. */
static double busiest(const weft_cost__pipe *x)
{
    double most = 0;
    for (int r = 0; r < x->pp; r++) {
        double sum = 0;
        for (int i = r; i < x->pp * x->chunks; i += x->pp)
            sum += x->stage[i].fwd_s + x->stage[i].back_s +
                   (x->split ? x->stage[i].weight_s : 0);
        most = fmax(most, sum);
    }
    return most;
}

double weft_cost__pipe_seconds(const weft_cost__pipe *x)
{
    int m = x->n_micro, n = x->pp * x->chunks, few = ROUNDS * x->pp + m % x->pp;
    while (few > x->pp && few * n > SLOTS) few -= x->pp;
    if (m <= few && m * n <= SLOTS) return seconds_of(x, m);
    if (few * n > SLOTS || few <= x->pp) few = SLOTS / n; /* very long pipelines */
    int    back = few > x->pp ? x->pp : 1;
    double t = seconds_of(x, few), before = seconds_of(x, few - back);
    /* a pipeline that is not full yet grows by less than it will */
    return t + (m - few) * fmax((t - before) / back, busiest(x));
}
