/* A step in time: the plan's schedule with the stages' own seconds, drawn stage by stage.
 * (1) Pieces of work come in the order of the schedule's generator, each as soon as what it waits for is there.
 * (2) What the score counts behind the pipeline (exposed sums of gradients, optimizer, fixed) is drawn behind it.
 * (3) A step of very many pieces shows its first and its last part. */
#include <math.h>
#include <string.h>

#include "program/schedule.h"
#include "report/report_priv.h"

typedef enum shade {
    FORWARD,
    BACKWARD,
    WGRAD, /* the part of the backward pass that nobody waits for */
    AGAIN,
    WIRES,
    BETWEEN,
    GRADS,
    OPTIMIZER,
    FIXED,
    N_SHADE
} shade;

static const struct {
    const char *fill, *legend, *about;
} shades[N_SHADE] = {{"forward", "b-forward", "forward"},
                     {"backward", "b-backward", "backward"},
                     {"weights", "b-wgrad", "backward, weights' part"},
                     {"again", "b-again", "forward again"},
                     {"wires", "b-wires", "waiting for wires in a layer"},
                     {"between", "b-between", "messages between stages"},
                     {"grads", "b-grads", "gradients and weights of replicas"},
                     {"optimizer", "b-optimizer", "optimizer"},
                     {"fixed", "b-fixed", "fixed: host, data, logs"}};

enum {
    MOST_ROWS   = 16,
    MOST_PIECES = 420, /* of a row, drawn whole */
    MOST_WORK   = 400000,
    UNITS       = 10000 /* of a drawing's width */
};

typedef struct slice {
    shade  kind;
    double start, end;
} slice;

typedef struct row {
    int    n, cap;
    slice *slice;
    double busy_s;
} row;

typedef struct drawing {
    const weft_report__view *v;
    int                      pp, chunks, n_micro;
    row                     *row;
    double                   pipe_s, total_s;
    bool                     has[N_SHADE];
} drawing;

/* ---- virtual time ---- */

static weft_status push(drawing *d, int s, shade kind, double start, double seconds)
{
    row *r = &d->row[s];
    if (!(seconds > 0)) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(d->v->a, (void **)&r->slice, &r->cap, r->n + 1,
                             sizeof *r->slice));
    r->slice[r->n++] = (slice){kind, start, start + seconds};
    r->busy_s += seconds;
    d->has[kind] = true;
    return WEFT_OK;
}

/* A piece of work of stage s from start on; its end.  A micro-batch's seconds are dealt to its pieces. */
static weft_status piece(drawing *d, int s, weft_work_kind k, double start, double *end)
{
    const weft_cost_stage    *g = &d->v->stage[s];
    const weft_search_choice *x = d->v->x;
    double both = g->fwd_s + g->bwd_s, wires = both > 0 ? g->comm_s / both : 0;
    double hop = x->score.p2p_s / x->point.n_micro / 2 / d->chunks;
    double again =
        k == WEFT_WORK_BACKWARD || k == WEFT_WORK_BACKWARD_INPUT ? g->again_s : 0;
    double own  = k == WEFT_WORK_FORWARD    ? g->fwd_s
                  : k == WEFT_WORK_BACKWARD ? g->bwd_s - again
                                            : (g->bwd_s - g->again_s) / 2;
    shade  kind = k == WEFT_WORK_FORWARD           ? FORWARD
                  : k == WEFT_WORK_BACKWARD_WEIGHT ? WGRAD
                                                   : BACKWARD;
    again /= d->chunks;
    own /= d->chunks;
    if (k == WEFT_WORK_BACKWARD_WEIGHT) hop = 0;
    *end = start;
    WEFT_TRY(push(d, s, AGAIN, *end, again));
    *end += again;
    WEFT_TRY(push(d, s, kind, *end, own * (1 - wires)));
    *end += own * (1 - wires);
    WEFT_TRY(push(d, s, WIRES, *end, own * wires));
    *end += own * wires;
    WEFT_TRY(push(d, s, BETWEEN, *end, hop));
    *end += hop;
    return WEFT_OK;
}

typedef struct clock {
    double *fwd, *bwd; /* ends, [stage along the model][micro]; < 0: not yet */
    double *now;       /* of each rank */
    int    *at;        /* its next piece */
} clock;

/* When what w waits for is there; < 0: not yet. */
static double ready(const drawing *d, const clock *c, int rank, const weft_work *w)
{
    int     n = d->n_micro, stage = w->chunk * d->pp + rank, last = d->pp * d->chunks - 1;
    int64_t at = (int64_t)stage * n + w->micro;
    if (w->kind == WEFT_WORK_FORWARD) return stage ? c->fwd[at - n] : 0;
    if (w->kind == WEFT_WORK_BACKWARD_WEIGHT) return c->bwd[at];
    if (c->fwd[at] < 0) return -1;
    return stage == last ? c->fwd[at] : c->bwd[at + n];
}

static weft_status advance(drawing *d, clock *c, const weft_schedule *z, int rank,
                           bool *moved)
{
    while (c->at[rank] < z->n_work[rank]) {
        const weft_work *w  = &z->work[rank][c->at[rank]];
        int64_t          at = (int64_t)(w->chunk * d->pp + rank) * d->n_micro + w->micro;
        double           t  = ready(d, c, rank, w), end;
        if (t < 0) return WEFT_OK;
        WEFT_TRY(piece(d, rank, w->kind, fmax(t, c->now[rank]), &end));
        c->now[rank] = end;
        if (w->kind == WEFT_WORK_FORWARD)
            c->fwd[at] = end;
        else if (w->kind != WEFT_WORK_BACKWARD_WEIGHT)
            c->bwd[at] = end;
        d->pipe_s = fmax(d->pipe_s, end);
        c->at[rank]++;
        *moved = true;
    }
    return WEFT_OK;
}

static weft_status play(drawing *d, const weft_schedule *z)
{
    int         n     = d->pp * d->chunks * d->n_micro;
    weft_arena *a     = d->v->a;
    clock       c     = {.fwd = WEFT_ARENA_ARRAY(a, double, n),
                         .bwd = WEFT_ARENA_ARRAY(a, double, n),
                         .now = WEFT_ARENA_ARRAY(a, double, d->pp),
                         .at  = WEFT_ARENA_ARRAY(a, int, d->pp)};
    bool        moved = true;
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++) c.fwd[i] = c.bwd[i] = -1;
    while (moved) {
        moved = false;
        for (int r = 0; r < d->pp; r++) WEFT_TRY(advance(d, &c, z, r, &moved));
    }
    return WEFT_OK;
}

/* Behind the pipeline, as the score counts it. */
static weft_status tail(drawing *d)
{
    const weft_cost_score *s = &d->v->x->score;
    for (int i = 0; i < d->pp; i++) {
        const weft_cost_stage *g = &d->v->stage[i];
        double                 t = d->pipe_s;
        WEFT_TRY(push(d, i, GRADS, t, g->dp_s));
        t += s->dp_s;
        WEFT_TRY(push(d, i, OPTIMIZER, t, g->optimizer_s));
        t += s->optimizer_s;
        WEFT_TRY(push(d, i, FIXED, t, s->fixed_s));
    }
    d->total_s = d->pipe_s + s->dp_s + s->optimizer_s + s->fixed_s;
    return WEFT_OK;
}

static weft_status make(drawing *d)
{
    static const char *const name[] = {"1f1b", "gpipe", "zb-h1"};
    const weft_cost_point   *p      = &d->v->x->point;
    weft_schedule           *z      = NULL;
    weft_schedule_shape      of;
    d->pp      = p->pp;
    d->chunks  = p->chunks;
    d->n_micro = p->n_micro;
    while ((int64_t)d->pp * d->chunks * d->n_micro > MOST_WORK / 2 &&
           d->n_micro > 4 * d->pp)
        d->n_micro -= d->pp;
    of     = (weft_schedule_shape){d->pp, d->chunks, d->n_micro};
    d->row = WEFT_ARENA_ARRAY(d->v->a, row, d->pp);
    WEFT_TRY(weft_arena_status(d->v->a));
    WEFT_TRY(
        weft_schedule_make(d->chunks > 1 ? "interleaved" : name[p->schedule], &of, &z));
    weft_status st = play(d, z);
    weft_schedule_destroy(z);
    return st == WEFT_OK ? tail(d) : st;
}

/* ---- drawing ---- */

typedef struct window {
    double from, to;
} window;

static int windows(const drawing *d, window *w)
{
    int most = 0;
    for (int s = 0; s < d->pp; s++) {
        int n = 2 * d->chunks * d->n_micro;
        most  = n > most ? n : most;
    }
    w[0] = (window){0, d->total_s};
    if (most <= MOST_PIECES) return 1;
    double part = d->total_s * MOST_PIECES / 2 / most;
    w[0].to     = part;
    w[1]        = (window){d->total_s - part, d->total_s};
    return 2;
}

static void put_lane(const drawing *d, int s, const window *w, int n_window)
{
    weft_text *t = d->v->t;
    for (int i = 0; i < n_window; i++) {
        double scale = UNITS / (w[i].to - w[i].from);
        weft_text_add(t,
                      "<svg style=\"flex:1 1 0\" viewBox=\"0 0 %d 10\" "
                      "preserveAspectRatio=\"none\" data-from=\"%.9g\" data-to=\"%.9g\">",
                      UNITS, w[i].from, w[i].to);
        for (int k = 0; k < N_SHADE; k++) {
            bool   open = false;
            double sum  = 0;
            int    at = 0, count = 0;
            for (int j = 0; j < d->row[s].n; j++) {
                const slice *x = &d->row[s].slice[j];
                if ((int)x->kind != k) continue;
                sum += x->end - x->start;
                count++;
                if (x->end <= w[i].from || x->start >= w[i].to) continue;
                int from = (int)lround(fmax(0, x->start - w[i].from) * scale);
                int to   = (int)lround((fmin(x->end, w[i].to) - w[i].from) * scale);
                if (to <= from) to = from + 1;
                if (!open) weft_text_add(t, "<path class=\"f-%s\" d=\"", shades[k].fill);
                weft_text_add(t, "%c%d %dh%dv10h-%dz", open ? 'm' : 'M', from - at, 0,
                              to - from, to - from);
                at   = from;
                open = true;
            }
            if (!open) continue;
            weft_text_add(t, "\"><title>stage %d, %s: ", s, shades[k].about);
            weft_report__seconds(t, sum);
            if (count > 1) {
                weft_text_add(t, " in %d pieces of ", count);
                weft_report__seconds(t, sum / count);
            }
            weft_text_add(t, "</title></path>");
        }
        weft_text_add(t, "</svg>");
    }
}

static void put_axis(const drawing *d, const window *w, int n_window)
{
    weft_text *t = d->v->t;
    weft_text_add(t, "<div class=\"row axis\"><div class=\"name\"></div><div "
                     "class=\"lane\">");
    for (int i = 0; i < n_window; i++) {
        double wide = w[i].to - w[i].from, step = pow(10, floor(log10(wide / 4)));
        while (wide / step > 5) step *= wide / step > 10 ? 5 : 2;
        weft_text_add(t, "<div style=\"flex:1 1 0\">");
        for (double x = ceil(w[i].from / step) * step; x < w[i].to - 0.06 * wide;
             x += step) {
            double at = 100 * (x - w[i].from) / wide;
            if (i && at < 5) continue;
            weft_text_add(t, "<span style=\"left:%.2f%%\">", at);
            if (x > 0)
                weft_report__seconds(t, x);
            else
                weft_text_add(t, "0");
            weft_text_add(t, "</span>");
        }
        if (i == n_window - 1) {
            weft_text_add(t, "<span class=\"last\" style=\"left:100%%\">");
            weft_report__seconds(t, w[i].to);
            weft_text_add(t, "</span>");
        }
        weft_text_add(t, "</div>");
    }
    weft_text_add(t, "</div><div class=\"what\"></div></div>\n");
}

static void put_rows(const drawing *d, const window *w, int n_window)
{
    weft_text *t = d->v->t;
    int        n = d->pp < MOST_ROWS ? d->pp : MOST_ROWS;
    weft_text_add(t, "<div class=\"time\">\n");
    for (int i = 0; i < n; i++) {
        int    s    = weft_report__pick(d->pp, MOST_ROWS, i);
        double idle = d->total_s > 0 ? 1 - d->row[s].busy_s / d->total_s : 0;
        weft_text_add(t,
                      "<div class=\"row\"><div class=\"name\">stage %d <span>%d layer%s"
                      "</span></div><div class=\"lane%s\">",
                      s, d->v->stage[s].n_layer, d->v->stage[s].n_layer == 1 ? "" : "s",
                      n < 3 ? " few" : "");
        put_lane(d, s, w, n_window);
        weft_text_add(t, "</div><div class=\"what\">idle %.1f %%</div></div>\n",
                      100 * fmax(0, idle));
    }
    put_axis(d, w, n_window);
    weft_text_add(t, "</div>\n");
}

static void put_legend(const drawing *d)
{
    weft_text_add(d->v->t, "<div class=\"legend\">");
    for (int k = 0; k < N_SHADE; k++)
        if (d->has[k])
            weft_text_add(d->v->t, "<span><i class=\"%s\"></i>%s</span>",
                          shades[k].legend, shades[k].about);
    weft_text_add(d->v->t, "<span><i class=\"b-idle\"></i>idle</span></div>\n");
}

static void put_notes(const drawing *d, int n_window)
{
    weft_text *t = d->v->t;
    weft_text_add(t, "<p class=\"note\">Drawn from the schedule and the stages' own "
                     "seconds: ");
    weft_report__seconds(t, d->total_s);
    weft_text_add(t, "; the prediction above is ");
    weft_report__seconds(t, d->v->x->score.step_s);
    weft_text_add(t, ". Gradient sums that hide behind the backward pass are not drawn, "
                     "only what is waited for.");
    if (d->n_micro < d->v->x->point.n_micro)
        weft_text_add(t, " Drawn with %d of %d micro-batches.", d->n_micro,
                      d->v->x->point.n_micro);
    if (n_window > 1)
        weft_text_add(t, " The middle of the step, which looks like the rest, is left "
                         "out.");
    if (d->pp > MOST_ROWS)
        weft_text_add(t, " %d of %d stages are shown.", MOST_ROWS, d->pp);
    weft_text_add(t, "</p>\n");
}

weft_status weft_report__timeline(const weft_report__view *v)
{
    drawing d = {.v = v};
    window  w[2];
    weft_text_add(v->t, "<section id=\"timeline\">\n<h2>A step in time</h2>\n");
    weft_status st = make(&d);
    if (st == WEFT_ERR_MEM) return st;
    if (st != WEFT_OK) {
        weft_text_add(v->t, "<p class=\"note\">Not drawn: ");
        weft_report__put(v->t, weft_error_text());
        weft_text_add(v->t, "</p>\n</section>\n");
        return WEFT_OK;
    }
    int n = windows(&d, w);
    put_legend(&d);
    put_rows(&d, w, n);
    put_notes(&d, n);
    weft_text_add(v->t, "</section>\n");
    return WEFT_OK;
}
