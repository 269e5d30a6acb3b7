/* What the seconds of a step and the bytes of a device are made of. */
#include <math.h>

#include "report/report_priv.h"

enum {
    MOST_ROWS = 24
};

/* ---- seconds ---- */

/* What the simulator saw the busiest rank do. */
static void put_simulated(const weft_report__view *v)
{
    const weft_plan_time *x = &v->r->answer->tried[0]->time;
    const struct {
        const char *color, *name;
        double      s;
    } part[]     = {{"compute", "compute", x->compute_s},
                    {"optimizer", "update", x->update_s},
                    {"wires", "waiting for sums and gathers", x->comm_s},
                    {"idle", "idle, waiting for others", x->idle_s}};
    weft_text *t = v->t;
    weft_text_add(t, "<h3>Simulated, the busiest rank: ");
    weft_report__seconds(t, v->step_s);
    weft_text_add(t, "</h3>\n<div class=\"stack\">");
    for (int i = 0; i < 4; i++)
        weft_report__stacked(t, part[i].color, part[i].name, part[i].s, v->step_s);
    weft_text_add(t, "</div>\n<div class=\"legend\">");
    for (int i = 0; i < 4; i++) {
        if (part[i].s < 5e-5 * v->step_s) continue;
        weft_text_add(t, "<span><i class=\"b-%s\"></i>%s ", part[i].color, part[i].name);
        weft_report__seconds(t, part[i].s);
        weft_text_add(t, ", %.1f %%</span>", 100 * part[i].s / v->step_s);
    }
    weft_text_add(t, "</div>\n<h3>By rows, as the search counts: ");
    weft_report__seconds(t, v->x->score.step_s);
    weft_text_add(t, "</h3>\n");
}

void weft_report__breakdown(const weft_report__view *v)
{
    static const char *const color[WEFT_COST_N_TIME] = {"compute", "again",     "wires",
                                                        "host",    "between",   "idle",
                                                        "grads",   "optimizer", "fixed"};
    weft_cost_part           part[WEFT_COST_N_TIME];
    double                   all = v->x->score.step_s;
    weft_text               *t   = v->t;
    weft_cost_time_parts(&v->x->score, part);
    weft_text_add(t, "<section id=\"breakdown\">\n<h2>What the step is made of</h2>\n<p "
                     "class=\"note\">Along the slowest stage, which sets the pace; "
                     "waiting counts only where nothing hides it.</p>\n");
    if (v->checked) put_simulated(v);
    weft_text_add(t, "<div class=\"stack\">");
    for (int i = 0; i < WEFT_COST_N_TIME; i++)
        weft_report__stacked(t, color[i], part[i].name, part[i].x, all);
    weft_text_add(t, "</div>\n<table class=\"parts\"><tbody>\n");
    for (int i = 0; i < WEFT_COST_N_TIME; i++) {
        if (part[i].x < 5e-5 * all) continue;
        weft_text_add(t, "<tr><td><i class=\"b-%s\"></i>%s</td><td class=\"r\">",
                      color[i], part[i].name);
        weft_report__seconds(t, part[i].x);
        weft_text_add(t, "</td><td class=\"r\">%.1f %%</td></tr>\n",
                      100 * part[i].x / all);
    }
    weft_text_add(t, "</tbody></table>\n</section>\n");
}

/* ---- bytes ---- */

typedef struct bytes {
    const char *color, *name;
    double      x;
} bytes;

enum {
    N_BYTES = 6
};

static void parts_of(const weft_cost_stage *g, bytes out[N_BYTES])
{
    out[0] = (bytes){"weights", "weights", g->weight_bytes};
    out[1] = (bytes){"grads", "gradients", g->grad_bytes};
    out[2] = (bytes){"optimizer", "optimizer state", g->state_bytes};
    out[3] = (bytes){"keep", "activations", g->keep_bytes};
    out[4] = (bytes){"work", "working", g->work_bytes};
    out[5] = (bytes){"fixed", "engine: allocator, framework", g->engine_bytes};
}

/* What the programs of a stage's ranks take, the most; 0: not known. */
static double exact(const weft_report__view *v, int s)
{
    const weft_plan *p    = v->checked ? v->r->answer->plan : NULL;
    double           most = 0;
    if (!p || !p->predicted.n_mem) return 0;
    int per = p->predicted.n_mem / v->x->point.pp;
    for (int r = s * per; r < (s + 1) * per; r++)
        most = fmax(most, (double)p->predicted.mem_bytes[r]);
    return most;
}

static void put_stage(const weft_report__view *v, int s, double wide)
{
    const weft_cost_stage *g = &v->stage[s];
    bytes                  part[N_BYTES];
    weft_text             *t = v->t;
    parts_of(g, part);
    weft_text_add(t, "<div class=\"row\"><div class=\"name\">stage %d <span>", s);
    weft_report__put(t, v->r->problem->machines->kind[g->mem_device].device.name);
    weft_text_add(t, "</span></div><div class=\"mem\"><div class=\"fill\">");
    for (int i = 0; i < N_BYTES; i++) {
        if (!(part[i].x > 0)) continue;
        weft_text_add(t,
                      "<i class=\"b-%s\" style=\"width:%.3f%%\" title=\"stage %d, %s: ",
                      part[i].color, 100 * part[i].x / wide, s, part[i].name);
        weft_report__bytes(t, part[i].x);
        weft_text_add(t, "\"></i>");
    }
    weft_text_add(t, "</div><u style=\"left:%.3f%%\" title=\"limit ",
                  100 * g->mem_limit / wide);
    weft_report__bytes(t, g->mem_limit);
    weft_text_add(t, "\"></u>");
    double known = exact(v, s);
    if (known > 0)
        weft_text_add(t,
                      "<b style=\"left:%.3f%%\" title=\"its programs take %.2f GB, "
                      "exactly\"></b>",
                      100 * known / wide, known / 1e9);
    weft_text_add(t, "</div><div class=\"what\">%.1f of %.1f GB</div></div>\n",
                  (known > 0 ? known : g->mem_bytes) / 1e9, g->mem_limit / 1e9);
}

void weft_report__memory(const weft_report__view *v)
{
    int        pp = v->x->point.pp, n = pp < MOST_ROWS ? pp : MOST_ROWS;
    double     wide     = 0;
    bool       tightest = false;
    bytes      part[N_BYTES], most[N_BYTES];
    weft_text *t = v->t;
    parts_of(&v->stage[0], most);
    for (int s = 0; s < pp; s++) {
        wide = fmax(wide, 1.03 * fmax(v->stage[s].mem_limit, v->stage[s].mem_bytes));
        wide = fmax(wide, 1.03 * exact(v, s));
        parts_of(&v->stage[s], part);
        for (int i = 0; i < N_BYTES; i++) most[i].x = fmax(most[i].x, part[i].x);
    }
    weft_text_add(t,
                  "<section id=\"memory\">\n<h2>Memory of a device</h2>\n<p "
                  "class=\"note\">At the fullest moment of a step, stage by stage; the "
                  "dashed line is what may be used.</p>\n<div class=\"legend\">");
    for (int i = 0; i < N_BYTES; i++)
        if (most[i].x > 0)
            weft_text_add(t, "<span><i class=\"b-%s\"></i>%s</span>", most[i].color,
                          most[i].name);
    if (exact(v, 0) > 0)
        weft_text_add(t, "<span><i class=\"exact\"></i>exactly, as the programs have "
                         "it</span>");
    weft_text_add(t, "</div>\n");
    for (int i = 0; i < n; i++) {
        int s = weft_report__pick(pp, MOST_ROWS, i);
        if (!tightest && s > v->x->score.tightest) { /* it is never left out */
            if (pp > MOST_ROWS &&
                (!i || weft_report__pick(pp, MOST_ROWS, i - 1) != v->x->score.tightest))
                put_stage(v, v->x->score.tightest, wide);
            tightest = true;
        }
        put_stage(v, s, wide);
    }
    if (pp > MOST_ROWS)
        weft_text_add(t, "<p class=\"note\">%d of %d stages are shown.</p>\n", MOST_ROWS,
                      pp);
    weft_text_add(t, "</section>\n");
}
