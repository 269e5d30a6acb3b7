/* What would help, and what people would do without a search: the same search, one thing changed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_priv.h"

enum {
    MOST_CHANGES = 24,
    MOST_POINTS = 2000000 /* of the first search: beyond, asking ten times more is slow */
};

typedef struct change {
    char        name[96];
    const char *about;
    double      step_s; /* of a batch as large as the plan's; 0: no plan */
    char        why[240];
} change;

typedef struct changes {
    const weft_report__view *v;
    double                   now_s; /* the fastest by the search's count */
    int                      n;
    change                   list[MOST_CHANGES];
} changes;

/* times: the batch's size over that of the plan. */
static void ask(changes *z, const weft_search_problem *q, double times, const char *name,
                const char *about)
{
    weft_search_result *r = NULL;
    change             *c = &z->list[z->n];
    if (z->n == MOST_CHANGES) return;
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->about = about;
    if (weft_search_run(q, &r) == WEFT_OK)
        c->step_s = r->choice[0].score.step_s / times;
    else
        snprintf(c->why, sizeof c->why, "%s", weft_error_text());
    weft_search_destroy(r);
    z->n++;
}

/* ---- what would help ---- */

static void drop_constraints(changes *z)
{
    static const char *const name[] = {"tp",     "cp",        "ep",      "pp",
                                       "dp",     "sp",        "zero",    "micro_batch",
                                       "chunks", "recompute", "schedule"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        weft_search_problem q = *z->v->r->problem;
        char                text[64];
        if (!weft_search_release(&q.constraints, name[i])) continue;
        q.n_best = 1;
        snprintf(text, sizeof text, "without the constraint on %s", name[i]);
        ask(z, &q, 1, text, "the best plan that is then free to choose it");
    }
}

typedef enum part {
    NETWORK,
    LINKS,
    MEMORY,
    N_PART
} part;

static void double_part(changes *z, part what, const char *name, const char *about)
{
    weft_search_machines m = *z->v->r->problem->machines;
    weft_search_problem  q = *z->v->r->problem;
    for (int i = 0; i < m.n; i++) {
        weft_search_machine *k = &m.kind[i];
        k->device.rate         = k->rate;
        if (what == NETWORK) {
            k->fabric.out.Bps *= 2;
            k->fabric.port_Bps *= 2;
            k->fabric.ports_Bps *= 2;
        }
        if (what == LINKS) {
            k->fabric.in.Bps *= 2;
            k->fabric.in.Bps_2 *= 2;
            k->fabric.in.Bps_4 *= 2;
        }
        if (what == MEMORY) k->device.mem_bytes *= 2;
    }
    q.machines = &m;
    q.n_best   = 1;
    ask(z, &q, 1, name, about);
}

static void find_helps(changes *z)
{
    weft_search_problem q    = *z->v->r->problem;
    bool                rows = z->v->r->is_rows; /* of this cluster's wires */
    drop_constraints(z);
    if (!rows && weft_cluster_n_node(z->v->r->cluster) > 1)
        double_part(z, NETWORK, "a network twice as fast", "between nodes");
    if (!rows && q.machines->kind[0].fabric.domain > 1)
        double_part(z, LINKS, "links in a node twice as fast", "between its devices");
    double_part(z, MEMORY, "devices with twice the memory",
                "less recomputation, fewer cuts");
    q.n_best = 1;
    q.batch *= 2;
    if (weft_search_given(&q.constraints, WEFT_KEY_dp) < 0)
        ask(z, &q, 2, "a batch twice as large",
            "for as many samples; it changes how the model learns");
}

static int by_step(const void *a, const void *b)
{
    const change *x = a, *y = b;
    return (x->step_s > y->step_s) - (x->step_s < y->step_s);
}

static void put_helps(changes *z)
{
    double     now = z->now_s, most = 0.05;
    int        none = 0;
    weft_text *t    = z->v->t;
    qsort(z->list, (size_t)z->n, sizeof *z->list, by_step);
    for (int i = 0; i < z->n; i++)
        if (z->list[i].step_s > 0) most = fmax(most, now / z->list[i].step_s - 1);
    weft_text_add(t, "<section id=\"help\">\n<h2>What would help</h2>\n<p "
                     "class=\"note\">The search again with one thing changed: samples a "
                     "second gained over the plan.</p>\n<div class=\"tablewrap\"><table "
                     "class=\"list stacked\"><tbody>\n");
    for (int i = 0; i < z->n; i++) {
        const change *c    = &z->list[i];
        double        gain = c->step_s > 0 ? now / c->step_s - 1 : 0;
        if (gain < 0.005) {
            none++;
            continue;
        }
        weft_text_add(
            t,
            "<tr><td>%s<div class=\"why\">%s</div></td><td "
            "class=\"r\"><b>+%.1f %%</b></td><td style=\"width:40%%\"><div "
            "class=\"bar gain\"><i style=\"width:%.2f%%\"></i></div></td></tr>\n",
            c->name, c->about, 100 * gain, 100 * gain / most);
    }
    weft_text_add(t, "</tbody></table></div>\n");
    if (none) {
        const char *glue = "<p class=\"note\">Would gain less than half a percent: ";
        for (int i = 0; i < z->n; i++) {
            const change *c = &z->list[i];
            if (c->step_s > 0 && now / c->step_s - 1 >= 0.005) continue;
            weft_text_add(t, "%s%s", glue, c->name);
            glue = "; ";
        }
        weft_text_add(t, ".</p>\n");
    }
    weft_text_add(t, "</section>\n");
}

/* ---- by hand ---- */

static void find_ways(changes *z)
{
    static const struct {
        const char *name, *about;
        int         tp, zero;
    } way[] = {{"data parallel alone", "a whole model on each device", 1, 0},
               {"fully sharded data parallel", "weights gathered layer by layer", 1, 3},
               {"tensor parallel in the node, data parallel beside it",
                "as much as fits a node, no stages", 0, -1}};
    const weft_search_problem *p = z->v->r->problem;
    for (size_t i = 0; i < WEFT_COUNT(way); i++) {
        weft_search_problem q = *p;
        weft_search_open(&q.constraints);
        q.n_best = 1;
        int tp   = way[i].tp ? way[i].tp : p->machines->kind[0].fabric.domain;
        weft_search_fix(&q.constraints, WEFT_KEY_tp, tp);
        weft_search_fix(&q.constraints, WEFT_KEY_pp, 1);
        weft_search_fix(&q.constraints, WEFT_KEY_cp, 1);
        if (way[i].zero >= 0) weft_search_fix(&q.constraints, WEFT_KEY_zero, way[i].zero);
        if (!way[i].tp && tp < 2) continue;
        ask(z, &q, 1, way[i].name, way[i].about);
    }
}

static void put_ways(const changes *z)
{
    double     now = z->v->x->score.step_s, most = now; /* by rows, as the others are */
    weft_text *t = z->v->t;
    for (int i = 0; i < z->n; i++) most = fmax(most, z->list[i].step_s);
    weft_text_add(t, "<section id=\"hand\">\n<h2>Beside what one would try by hand</h2>\n"
                     "<div class=\"tablewrap\"><table class=\"list stacked\"><tbody>\n"
                     "<tr class=\"win\"><td>the plan</td><td class=\"r\">");
    weft_report__seconds(t, now);
    weft_text_add(t,
                  "</td><td style=\"width:40%%\"><div class=\"bar\"><i "
                  "style=\"width:%.2f%%\"></i></div></td></tr>\n",
                  100 * now / most);
    for (int i = 0; i < z->n; i++) {
        const change *c = &z->list[i];
        weft_text_add(t, "<tr><td>%s<div class=\"why\">", c->name);
        weft_report__put(t, c->step_s > 0 ? c->about : c->why);
        weft_text_add(t, "</div></td><td class=\"r\">");
        if (c->step_s > 0) {
            weft_report__seconds(t, c->step_s);
            weft_text_add(t,
                          "<br>%.2f ×</td><td><div class=\"bar lost\"><i "
                          "style=\"width:%.2f%%\"></i></div></td></tr>\n",
                          c->step_s / now, 100 * c->step_s / most);
        } else {
            weft_text_add(t, "none</td><td></td></tr>\n");
        }
    }
    weft_text_add(t, "</tbody></table></div>\n</section>\n");
}

weft_status weft_report__changes(const weft_report__view *v)
{
    changes *z = weft_arena_alloc(v->a, sizeof *z);
    if (!z) return weft_arena_status(v->a);
    if (v->r->result->n_scored > MOST_POINTS) return WEFT_OK;
    *z = (changes){.v = v, .now_s = v->x->score.step_s};
    for (int i = 0; i < v->r->result->n; i++)
        z->now_s = fmin(z->now_s, v->r->result->choice[i].score.step_s);
    find_helps(z);
    put_helps(z);
    z->n = 0;
    if (v->n_used > 1) {
        find_ways(z);
        put_ways(z);
    }
    return WEFT_OK;
}
