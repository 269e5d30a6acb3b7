/* Are these lists a schedule?  Counts and orders of each rank, then all lists run together
 * against the
 * dependencies of a pipeline: forward of stage k waits for forward of k - 1, backward of k for
 * backward of k + 1. */
#include "program/schedule.h"

typedef struct tally {
    const weft_schedule *s;
    int                 *done; /* [rank][chunk][kind]: micro-batches so far */
} tally;

static int *count(const tally *t, int rank, int chunk, weft_work_kind k)
{
    return &t->done[(rank * t->s->of.n_chunk + chunk) * (int)WEFT_N_WORK + (int)k];
}

static weft_status bad(const weft_schedule *s, int rank, const weft_work *w,
                       const char *what)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "schedule %s, rank %d: %s of chunk %d, micro-batch %d, %s", s->name,
                     rank, w->kind < WEFT_N_WORK ? weft_work_kind_name(w->kind) : "work",
                     w->chunk, w->micro, what);
}

/* The kinds that a piece of work follows on its own stage; WEFT_N_WORK: none. */
static weft_work_kind before(weft_work_kind k)
{
    if (k == WEFT_WORK_FORWARD) return WEFT_N_WORK;
    return k == WEFT_WORK_BACKWARD_WEIGHT ? WEFT_WORK_BACKWARD_INPUT : WEFT_WORK_FORWARD;
}

static weft_status check_order(const tally *t, int rank, const weft_work *w)
{
    const weft_schedule *s = t->s;
    if (w->kind >= WEFT_N_WORK || w->chunk < 0 || w->chunk >= s->of.n_chunk ||
        w->micro < 0 || w->micro >= s->of.n_micro)
        return bad(s, rank, w, "is not there");
    int           *n = count(t, rank, w->chunk, w->kind);
    weft_work_kind b = before(w->kind);
    if (*n != w->micro)
        return bad(s, rank, w, "is out of turn: micro-batches go from left to right");
    if (b != WEFT_N_WORK && *count(t, rank, w->chunk, b) <= w->micro)
        return bad(s, rank, w, "comes before what it needs");
    if (w->kind == WEFT_WORK_BACKWARD &&
        *count(t, rank, w->chunk, WEFT_WORK_BACKWARD_INPUT))
        return bad(s, rank, w, "is done already, in parts");
    ++*n;
    return WEFT_OK;
}

static weft_status check_counts(const tally *t, int rank, int chunk)
{
    const weft_schedule *s   = t->s;
    int                  n   = s->of.n_micro;
    int                  fwd = *count(t, rank, chunk, WEFT_WORK_FORWARD),
        whole                = *count(t, rank, chunk, WEFT_WORK_BACKWARD),
        in                   = *count(t, rank, chunk, WEFT_WORK_BACKWARD_INPUT),
        wt                   = *count(t, rank, chunk, WEFT_WORK_BACKWARD_WEIGHT);
    if (fwd == n && ((whole == n && !in && !wt) || (!whole && in == n && wt == n)))
        return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "schedule %s, rank %d, chunk %d: %d forwards and %d backwards (%d and %d in "
        "parts) for %d micro-batches",
        s->name, rank, chunk, fwd, whole, in, wt, n);
}

/* Has the neighbour that w waits for done its part? */
static bool ready(const tally *t, int rank, const weft_work *w)
{
    const weft_schedule *s    = t->s;
    int                  p    = s->of.n_rank;
    bool                 up   = w->kind == WEFT_WORK_FORWARD;
    int                  from = w->chunk * p + rank + (up ? -1 : 1);
    if (w->kind == WEFT_WORK_BACKWARD_WEIGHT || from < 0 || from >= p * s->of.n_chunk)
        return true;
    int r = from % p, c = from / p;
    if (up) return *count(t, r, c, WEFT_WORK_FORWARD) > w->micro;
    return *count(t, r, c, WEFT_WORK_BACKWARD) > w->micro ||
           *count(t, r, c, WEFT_WORK_BACKWARD_INPUT) > w->micro;
}

static weft_status run_together(tally *t, int *at)
{
    const weft_schedule *s     = t->s;
    bool                 moved = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < s->of.n_rank; r++)
            for (; at[r] < s->n_work[r] && ready(t, r, &s->work[r][at[r]]); at[r]++) {
                const weft_work *w = &s->work[r][at[r]];
                ++*count(t, r, w->chunk, w->kind);
                moved = true;
            }
    }
    for (int r = 0; r < s->of.n_rank; r++)
        if (at[r] < s->n_work[r])
            return bad(s, r, &s->work[r][at[r]],
                       "waits for ever: the lists of the ranks wait for each other");
    return WEFT_OK;
}

static weft_status check(tally *t, weft_arena *a)
{
    const weft_schedule *s  = t->s;
    int                  n  = s->of.n_rank * s->of.n_chunk * (int)WEFT_N_WORK;
    int                 *at = WEFT_ARENA_ARRAY(a, int, s->of.n_rank);
    t->done                 = WEFT_ARENA_ARRAY(a, int, n);
    WEFT_TRY(weft_arena_status(a));
    for (int r = 0; r < s->of.n_rank; r++) {
        for (int i = 0; i < s->n_work[r]; i++)
            WEFT_TRY(check_order(t, r, &s->work[r][i]));
        for (int c = 0; c < s->of.n_chunk; c++) WEFT_TRY(check_counts(t, r, c));
    }
    for (int i = 0; i < n; i++) t->done[i] = 0;
    return run_together(t, at);
}

weft_status weft_schedule_verify(const weft_schedule *s)
{
    tally       t  = {.s = s};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(check(&t, a));
out:
    weft_arena_destroy(a);
    return st;
}
