#include "pace.h"

enum {
    MOST_VAIN = 3
};
static const double SPUN_PART = 0.15, SPUN_LEAST_S = 1e-3;
/* Shorter sleeps are not worth their lateness. */
static const double LEAST_SLEEP_S = 0.5e-3;
static const double AT_ONCE_S     = 50e-6; /* a wait for what is over */

weft_cuda_pace *weft_cuda_pace_of(weft_cuda_pace *all, int64_t capture)
{
    weft_cuda_pace *oldest = &all[0];
    for (int i = 0; i < WEFT_CUDA_MAX_PACE; i++) {
        if (all[i].capture == capture) return &all[i];
        if (all[i].capture < oldest->capture) oldest = &all[i];
    }
    *oldest = (weft_cuda_pace){.capture = capture};
    return oldest;
}

static double find_shortest(const weft_cuda_pace *p)
{
    double least = p->took_s[0];
    for (int i = 1; i < WEFT_CUDA_PACE_RUNS; i++)
        if (p->took_s[i] < least) least = p->took_s[i];
    return least;
}

double weft_cuda_pace_wake(const weft_cuda_pace *p, double begin_s)
{
    if (p->n < WEFT_CUDA_PACE_RUNS || p->n_vain >= MOST_VAIN) return 0;
    double least = find_shortest(p);
    double spun  = SPUN_PART * least > SPUN_LEAST_S ? SPUN_PART * least : SPUN_LEAST_S;
    return least - spun >= LEAST_SLEEP_S ? begin_s + least - spun : 0;
}

void weft_cuda_pace_note(weft_cuda_pace *p, const weft_cuda_wait *w)
{
    double took = w->done_s - w->begin_s, waited = w->done_s - w->asked_s;
    if (w->wake_s > 0) {
        bool vain = waited > 0.7 * find_shortest(p);
        p->n_vain = vain ? p->n_vain + 1 : 0;
        if (vain) return; /* the sleep is part of what it took */
        if (waited < AT_ONCE_S) took = 0.9 * (w->wake_s - w->begin_s);
    }
    p->took_s[p->n++ % WEFT_CUDA_PACE_RUNS] = took;
}
