/* Two traces of one job side by side. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace_priv.h"

typedef struct row {
    const char *kind;
    int         n[2]; /* predicted, measured */
    double      s[2];
} row;

static row *find(row *all, int *n, const char *kind)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(all[i].kind, kind)) return &all[i];
    all[*n] = (row){.kind = kind};
    return &all[(*n)++];
}

static int by_measured(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->s[1] != y->s[1]) return x->s[1] < y->s[1] ? 1 : -1;
    if (x->s[0] != y->s[0]) return x->s[0] < y->s[0] ? 1 : -1;
    return strcmp(x->kind, y->kind);
}

static void put_row(weft_text *t, const char *kind, const int *n, const double *s)
{
    weft_text_add(t, "%-24s %7d %7d %12.3f %12.3f ", kind, n[0], n[1], 1e3 * s[0],
                  1e3 * s[1]);
    if (s[1] > 0)
        weft_text_add(t, "%+8.1f %%\n", 100 * (s[0] / s[1] - 1));
    else
        weft_text_add(t, "%10s\n", "-");
}

weft_class weft_trace__class_of(const char *kind)
{
    weft_op op;
    return weft_op_find(kind, &op) ? weft_op_class(op) : WEFT_CLASS_OTHER;
}

/* The same by class, with all that no instruction takes as gaps. */
static void put_classes(const row *all, int n, const double idle[2], weft_text *t)
{
    row by[WEFT_N_CLASS] = {{0}};
    for (int i = 0; i < n; i++) {
        row *r = &by[weft_trace__class_of(all[i].kind)];
        for (int k = 0; k < 2; k++) {
            r->n[k] += all[i].n[k];
            r->s[k] += all[i].s[k];
        }
    }
    memcpy(by[WEFT_CLASS_GAPS].s, idle, sizeof by[0].s);
    weft_text_add(t, "%-24s %7s %7s %12s %12s %10s\n", "by class", "n", "n",
                  "predicted ms", "measured ms", "off");
    for (int c = 0; c < WEFT_N_CLASS; c++)
        if (by[c].s[0] > 0 || by[c].s[1] > 0)
            put_row(t, weft_class_name((weft_class)c), by[c].n, by[c].s);
}

weft_status weft_trace_diff(const weft_trace *predicted, const weft_trace *measured,
                            weft_text *t)
{
    const weft_trace *side[2] = {predicted, measured};
    weft_arena       *a;
    int               n = 0, sum_n[2] = {0}, none[2] = {0};
    double            sum[2] = {0};
    WEFT_TRY(weft_arena_create(&a));
    row        *all = WEFT_ARENA_ARRAY(a, row, predicted->n_event + measured->n_event);
    weft_status st  = weft_arena_status(a);
    if (st != WEFT_OK) goto out;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < side[k]->n_event; i++) {
            row *r = find(all, &n, side[k]->event[i].kind);
            r->n[k]++;
            r->s[k] += side[k]->event[i].dur_s / side[k]->n_step;
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            all[i].n[k] /= side[k]->n_step;
            sum[k] += all[i].s[k];
            sum_n[k] += all[i].n[k];
        }
    qsort(all, (size_t)n, sizeof *all, by_measured);
    weft_text_add(t, "%-24s %7s %7s %12s %12s %10s\n", "of one step", "n", "n",
                  "predicted ms", "measured ms", "off");
    for (int i = 0; i < n; i++) put_row(t, all[i].kind, all[i].n, all[i].s);
    put_row(t, "all instructions", sum_n, sum);
    double idle[2], all_s[2] = {predicted->step_s, measured->step_s};
    for (int k = 0; k < 2; k++) /* of one stream a rank; what overlaps is not idle */
        idle[k] = fmax(0, all_s[k] * side[k]->n_rank - sum[k]);
    put_row(t, "waiting, between them", none, idle);
    put_row(t, "from start to end", none, all_s);
    put_classes(all, n, idle, t);
    st = weft_text_status(t);
out:
    weft_arena_destroy(a);
    return st;
}
