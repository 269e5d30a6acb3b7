/* A step in time, drawn stage by stage: as it was simulated, or else the schedule played with the
 * stages' seconds. A step of very many pieces shows its first and its last part. */
#include <math.h>
#include <string.h>

#include "report/timeline_priv.h"

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
    MOST_PIECES = 320,   /* of a row, drawn whole */
    END_PIECES  = 90,    /* of more than that, at each end */
    UNITS       = 10000, /* of a drawing's width */
    NEAR        = 3      /* of these */
};

weft_status weft_report__push(weft_report__drawing *d, int s, weft_report__shade kind,
                              double start, double seconds)
{
    weft_report__row *r = &d->row[s];
    if (!(seconds > 0)) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(d->v->a, (void **)&r->slice, &r->cap, r->n + 1,
                             sizeof *r->slice));
    r->slice[r->n++] = (weft_report__slice){kind, start, start + seconds};
    r->busy_s += seconds;
    d->has[kind] = true;
    return WEFT_OK;
}

/* ---- drawing ---- */

typedef struct window {
    double from, to;
} window;

static int windows(const weft_report__drawing *d, window *w)
{
    int most = d->most_pieces;
    w[0]     = (window){0, d->total_s};
    if (most <= MOST_PIECES) return 1;
    double part = d->total_s * END_PIECES / most;
    w[0].to     = part;
    w[1]        = (window){d->total_s - part, d->total_s};
    return 2;
}

/* A rectangle of a path, in units; at: where the one before began. */
static void put_piece(weft_text *t, bool first, int at, int from, int to)
{
    weft_text_add(t, "%c%d 0h%dv10h-%dz", first ? 'M' : 'm', from - at, to - from,
                  to - from);
}

static void put_title(const weft_report__drawing *d, int s, int kind)
{
    double     sum   = 0;
    int        count = 0;
    weft_text *t     = d->v->t;
    for (int j = 0; j < d->row[s].n; j++) {
        const weft_report__slice *x = &d->row[s].slice[j];
        if ((int)x->kind != kind) continue;
        sum += x->end - x->start;
        count++;
    }
    weft_text_add(t, "<title>stage %d, %s: ", s, shades[kind].about);
    weft_report__seconds(t, sum);
    if (count > 1) {
        weft_text_add(t, " in %d pieces of ", count);
        weft_report__seconds(t, sum / count);
    }
    weft_text_add(t, "</title>");
}

/* Of one shade within a window: pieces closer than the eye can tell are one. */
static void put_shade(const weft_report__drawing *d, int s, int kind, const window *w)
{
    double     scale = UNITS / (w->to - w->from);
    int        at = 0, from = 0, to = -1;
    bool       first = true;
    weft_text *t     = d->v->t;
    for (int j = 0; j <= d->row[s].n; j++) {
        const weft_report__slice *x = j < d->row[s].n ? &d->row[s].slice[j] : NULL;
        if (x && ((int)x->kind != kind || x->end <= w->from || x->start >= w->to))
            continue;
        int lo = x ? (int)lround(fmax(0, x->start - w->from) * scale) : 0;
        int hi = x ? (int)lround((fmin(x->end, w->to) - w->from) * scale) : 0;
        if (hi <= lo) hi = lo + 1;
        if (x && to >= 0 && lo - to <= NEAR) {
            to = hi;
            continue;
        }
        if (to >= 0) {
            if (first) weft_text_add(t, "<path class=\"f-%s\" d=\"", shades[kind].fill);
            put_piece(t, first, at, from, to);
            at    = from;
            first = false;
        }
        from = lo;
        to   = hi;
    }
    if (first) return;
    weft_text_add(t, "\">");
    put_title(d, s, kind);
    weft_text_add(t, "</path>");
}

static void put_lane(const weft_report__drawing *d, int s, const window *w, int n_window)
{
    for (int i = 0; i < n_window; i++) {
        weft_text_add(d->v->t,
                      "<svg style=\"flex:1 1 0\" viewBox=\"0 0 %d 10\" "
                      "preserveAspectRatio=\"none\" data-from=\"%.9g\" data-to=\"%.9g\">",
                      UNITS, w[i].from, w[i].to);
        for (int k = 0; k < N_SHADE; k++) put_shade(d, s, k, &w[i]);
        weft_text_add(d->v->t, "</svg>");
    }
}

static void put_axis(const weft_report__drawing *d, const window *w, int n_window)
{
    weft_text *t = d->v->t;
    weft_text_add(t, "<div class=\"row axis\"><div class=\"name\"></div><div "
                     "class=\"lane\">");
    for (int i = 0; i < n_window; i++) {
        double wide = w[i].to - w[i].from, step = pow(10, floor(log10(wide / 4)));
        while (wide / step > 5) step *= wide / step > 10 ? 5 : 2;
        weft_text_add(t, "<div style=\"flex:1 1 0\">");
        for (double x = ceil(w[i].from / step) * step; x < w[i].to - 0.13 * wide;
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

static void put_rows(const weft_report__drawing *d, const window *w, int n_window)
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

static void put_legend(const weft_report__drawing *d)
{
    weft_text_add(d->v->t, "<div class=\"legend\">");
    for (int k = 0; k < N_SHADE; k++)
        if (d->has[k])
            weft_text_add(d->v->t, "<span><i class=\"%s\"></i>%s</span>",
                          shades[k].legend, shades[k].about);
    weft_text_add(d->v->t, "<span><i class=\"b-idle\"></i>idle</span></div>\n");
}

static void put_notes(const weft_report__drawing *d, int n_window)
{
    weft_text *t = d->v->t;
    if (d->simulated) {
        weft_text_add(t, "<p class=\"note\">As the simulator ran the programs of the "
                         "ranks: of each stage one rank, its compute stream. Messages "
                         "and sums that run beside it are not drawn.");
    } else {
        weft_text_add(t, "<p class=\"note\">Drawn from the schedule and the stages' own "
                         "seconds: ");
        weft_report__seconds(t, d->total_s);
        weft_text_add(t, "; the prediction above is ");
        weft_report__seconds(t, d->v->x->score.step_s);
        weft_text_add(t, ". Gradient sums that hide behind the backward pass are not "
                         "drawn, only what is waited for.");
    }
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
    weft_report__drawing d = {.v = v};
    window               w[2];
    weft_text_add(v->t, "<section id=\"timeline\">\n<h2>A step in time</h2>\n");
    weft_status st =
        v->r->timeline ? weft_report__replay(&d, v->r->timeline) : weft_report__play(&d);
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
