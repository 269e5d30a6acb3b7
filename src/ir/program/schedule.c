/* The table of schedules, and what can be asked of any list. */
#include "program/schedule_priv.h"

#include <string.h>

typedef struct row {
    const char       *name;
    weft_schedule__fn fill;
    bool              chunks; /* takes more than one a rank */
} row;

static const row rows[] = {
    {"gpipe", weft_schedule__gpipe, false},
    {"1f1b", weft_schedule__1f1b, false},
    {"interleaved", weft_schedule__interleaved, true},
    {"zb-h1", weft_schedule__zb_h1, false},
};

const char *weft_schedule_name(int i)
{
    return i >= 0 && i < (int)WEFT_COUNT(rows) ? rows[i].name : NULL;
}

const char *weft_work_kind_name(weft_work_kind k)
{
    static const char *const name[] = {"forward", "backward", "backward_input",
                                       "backward_weight"};
    return k < WEFT_N_WORK ? name[k] : "?";
}

void weft_schedule__put(weft_schedule *s, int rank, weft_work_kind kind, int chunk,
                        int micro)
{
    s->work[rank][s->n_work[rank]++] =
        (weft_work){.kind = kind, .chunk = chunk, .micro = micro};
}

static weft_status check_shape(const row *r, const weft_schedule_shape *of)
{
    if (of->n_rank < 1 || of->n_chunk < 1 || of->n_micro < 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "schedule %s: %d ranks, %d chunks a rank, %d micro-batches; each is "
            "at least 1",
            r->name, of->n_rank, of->n_chunk, of->n_micro);
    if (of->n_chunk > 1 && !r->chunks)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "schedule %s has one chunk a rank, not %d; interleaved takes more", r->name,
            of->n_chunk);
    return WEFT_OK;
}

static weft_status make(const row *r, const weft_schedule_shape *of, weft_arena *a,
                        weft_schedule **out)
{
    weft_schedule *s = WEFT_ARENA_NEW(a, weft_schedule);
    int            n = (int)WEFT_N_WORK * of->n_chunk * of->n_micro;
    WEFT_TRY(weft_arena_status(a));
    *s        = (weft_schedule){.arena = a, .name = r->name, .of = *of};
    s->n_work = WEFT_ARENA_ARRAY(a, int, of->n_rank);
    s->work   = WEFT_ARENA_ARRAY(a, weft_work *, of->n_rank);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < of->n_rank; k++) s->work[k] = WEFT_ARENA_ARRAY(a, weft_work, n);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < of->n_rank; k++) r->fill(s, k);
    *out = s;
    return WEFT_OK;
}

weft_status weft_schedule_make(const char *name, const weft_schedule_shape *of,
                               weft_schedule **out)
{
    const row  *r  = NULL;
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++)
        if (!strcmp(rows[i].name, name)) r = &rows[i];
    if (!r)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "unknown schedule '%s': gpipe, 1f1b, interleaved or zb-h1",
                         name);
    WEFT_TRY(check_shape(r, of));
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(make(r, of, a, out));
    a = NULL;
out:
    weft_arena_destroy(a);
    return st;
}

void weft_schedule_destroy(weft_schedule *s)
{
    if (s) weft_arena_destroy(s->arena);
}

bool weft_schedule_splits(const weft_schedule *s)
{
    for (int r = 0; r < s->of.n_rank; r++)
        for (int i = 0; i < s->n_work[r]; i++)
            if (s->work[r][i].kind == WEFT_WORK_BACKWARD_WEIGHT) return true;
    return false;
}

static bool same(const weft_work *a, weft_work b)
{
    return a->kind == b.kind && a->chunk == b.chunk;
}

/* Micro-batches come from left to right, so those begun and not over are neighbours: as many
 * slots. */
int weft_schedule_slots(const weft_schedule *s, int rank, weft_work from, weft_work to)
{
    int n = 0, most = 1;
    for (int i = 0; i < s->n_work[rank]; i++) {
        if (same(&s->work[rank][i], from)) n++;
        if (n > most) most = n;
        if (same(&s->work[rank][i], to)) n--;
    }
    return most;
}

weft_status weft_schedule_print(const weft_schedule *s, weft_text *t)
{
    static const char letter[] = "FBIW";
    weft_text_add(t, "schedule %s ranks %d chunks %d micro %d\n", s->name, s->of.n_rank,
                  s->of.n_chunk, s->of.n_micro);
    for (int r = 0; r < s->of.n_rank; r++) {
        weft_text_add(t, "rank %d:", r);
        for (int i = 0; i < s->n_work[r]; i++) {
            const weft_work *w = &s->work[r][i];
            weft_text_add(t, " %c%d", letter[w->kind], w->micro);
            if (s->of.n_chunk > 1) weft_text_add(t, ".%d", w->chunk);
        }
        weft_text_add(t, "\n");
    }
    return weft_text_status(t);
}
