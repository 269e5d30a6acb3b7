/* Replicas of unlike kinds of devices with lanes of the batch by their speed (weft_cost_deal):
 * who has how many, and the step of a point that is dealt so. */
#include <limits.h>
#include <math.h>

#include "base/lanes.h"
#include "cost/score_priv.h"

enum {
    MOST = 64 /* lanes of replicas whose number is no power of two */
};

int weft_cost_most_micro(int replicas, int lanes, int micro)
{
    int mine = (lanes + replicas - 1) / replicas, more = micro % lanes;
    return mine * (micro / lanes) + (mine < more ? mine : more);
}

int weft_cost_lanes(int replicas, int micro, double sum_bytes, double room_bytes)
{
    int n = (int)weft_lanes_default(replicas, INT_MAX);
    for (int held = 1; n < MOST && 2 * n <= micro && held * sum_bytes <= room_bytes;
         held++) {
        if (weft_cost_most_micro(replicas, 2 * n, micro) >=
            weft_cost_most_micro(replicas, n, micro))
            break;
        n *= 2;
    }
    return n;
}

int weft_cost_deal_lanes(const weft_cost_deal *d)
{
    int n = 0;
    for (int k = 0; k < d->n; k++) n += d->lanes[k];
    return n;
}

int weft_cost_deal_share(const weft_cost_deal *d, int i, int *kind)
{
    int k = 0;
    while (k + 1 < d->n && i >= d->replicas[k]) i -= d->replicas[k++];
    if (kind) *kind = k;
    return d->lanes[k] / d->replicas[k] + (i < d->lanes[k] % d->replicas[k]);
}

void weft_cost_deal_count(weft_cost_deal *d)
{
    int at   = 0;
    d->terms = 1;
    for (int k = 0; k < d->n; k++) {
        d->open[k] = 1;
        for (int i = 0; i < d->replicas[k]; i++) {
            int share = d->lanes[k] / d->replicas[k] + (i < d->lanes[k] % d->replicas[k]);
            int level[WEFT_LANES_MAX_TERM], n = weft_lanes_terms(at, at + share, level);
            for (int j = 0; j < n; j++) /* those before, and its own levels */
                if (j + level[j] + 1 > d->open[k]) d->open[k] = j + level[j] + 1;
            if (n > d->terms) d->terms = n;
            at += share;
        }
    }
}

/* Has every replica one subtree of the lanes, all alike? */
static bool is_plain(const weft_cost_deal *d)
{
    for (int k = 0; k < d->n; k++)
        if (d->lanes[k] % d->replicas[k] ||
            d->lanes[k] / d->replicas[k] != d->lanes[0] / d->replicas[0])
            return false;
    return d->terms < 2;
}

static double own_seconds(const weft_cost_score *s)
{
    return s->step_s - s->dp_s - s->optimizer_s;
}

/* Each kind with its share by itself; sums wait for the last, and take a term more on the way
 * there for each that a replica brings. */
void weft_cost__score_deal(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out)
{
    const weft_cost_deal *d    = &p->deal;
    weft_cost_score       full = {0}, s;
    double                sum = 0, set = 0;
    int                   kinds = 0;
    for (int k = 0; k < d->n; k++) kinds |= 1 << d->kind[k];
    for (int k = 0; k < d->n; k++) {
        weft_cost_point q = *p;
        q.reach           = kinds;
        q.only_dp         = d->replicas[k];
        q.deal.n          = 0;
        q.only            = d->kind[k] + 1;
        q.kinds           = NULL;
        q.lanes           = (d->lanes[k] + d->replicas[k] - 1) / d->replicas[k];
        q.open            = d->open[k];
        q.terms           = is_plain(d) ? 0 : d->terms;
        q.n_micro         = q.lanes * d->per_lane;
        weft_cost_score_point(t, &q, &s);
        sum = fmax(sum, s.dp_s);
        set = fmax(set, s.optimizer_s);
        if (!k || s.mem_bytes - s.mem_limit > full.mem_bytes - full.mem_limit) full = s;
        if (!k || own_seconds(&s) > own_seconds(out)) *out = s;
    }
    double own        = own_seconds(out);
    out->dp_s         = t->programs ? sum : sum * (d->terms + 1) / 2;
    out->optimizer_s  = set;
    out->step_s       = own + out->dp_s + out->optimizer_s;
    out->mem_bytes    = full.mem_bytes;
    out->mem_limit    = full.mem_limit;
    out->late_bytes   = full.late_bytes;
    out->tightest     = full.tightest;
    out->weight_bytes = full.weight_bytes;
    out->state_bytes  = full.state_bytes;
    out->keep_bytes   = full.keep_bytes;
    out->work_bytes   = full.work_bytes;
    out->engine_bytes = full.engine_bytes;
}
