/* What else was tried and why it lost; how sure the numbers are. */
#include <math.h>
#include <string.h>

#include "report/report_priv.h"

/* ---- runners-up ---- */

static void put_choice(const weft_report__view *v, int i, double wide)
{
    const weft_search_choice *x = &v->r->result->choice[i];
    weft_text                *t = v->t;
    weft_text_add(t, "<tr%s><td class=\"r\">%d</td><td><code>", i ? "" : " class=\"win\"",
                  i + 1);
    weft_search_print_choice(x, t);
    weft_text_add(t, "</code>");
    weft_text_add(t, "<div class=\"why\">");
    weft_report__put(t, i ? x->why : "the plan");
    weft_text_add(t, "</div></td><td class=\"r\">");
    weft_report__seconds(t, x->score.step_s);
    weft_text_add(
        t,
        "</td><td style=\"width:26%%\"><div class=\"bar%s\" title=\"90 %%: %.4g "
        "to %.4g s\"><i style=\"width:%.2f%%\"></i><u "
        "style=\"left:%.2f%%;width:%.2f%%\"></u></div></td><td "
        "class=\"r\">%.1f GB</td></tr>\n",
        i ? " lost" : "", x->lo, x->hi, 100 * x->score.step_s / wide, 100 * x->lo / wide,
        100 * (x->hi - x->lo) / wide, x->score.mem_bytes / 1e9);
}

/* A candidate that was checked, or tried to be. */
static void put_tried(const weft_report__view *v, int i, double wide)
{
    const weft_planner_tried *x = v->r->answer->tried[i];
    weft_text                *t = v->t;
    weft_text_add(t, "<tr%s><td class=\"r\">%d</td><td><code>", i ? "" : " class=\"win\"",
                  i + 1);
    weft_search_print_choice(&x->choice, t);
    weft_text_add(t, "</code><div class=\"why\">");
    weft_report__put(t, i ? x->why : "the plan");
    if (x->choice.strategy.overlap_param_gather) weft_text_add(t, "<br>");
    weft_planner_print_later(x, t);
    weft_text_add(t, "</div></td><td class=\"r\">");
    if (x->step_s > 0) {
        weft_report__seconds(t, x->step_s);
        weft_text_add(
            t,
            "</td><td style=\"width:26%%\"><div class=\"bar%s\" title=\"by rows "
            "%.4g s\"><i style=\"width:%.2f%%\"></i></div></td>",
            i ? " lost" : "", x->choice.score.step_s, 100 * x->step_s / wide);
    } else {
        weft_text_add(t, "%s</td><td></td>",
                      x->end == WEFT_PLANNER_TOO_FULL ? "too full" : "none");
    }
    if (x->mem_bytes)
        weft_text_add(t, "<td class=\"r\">%.1f GB</td></tr>\n",
                      1e-9 * (double)x->mem_bytes);
    else
        weft_text_add(t, "<td></td></tr>\n");
}

static void put_all_tried(const weft_report__view *v)
{
    const weft_planner_answer *a    = v->r->answer;
    double                     wide = 0;
    for (int i = 0; i < a->n_tried; i++) wide = fmax(wide, a->tried[i]->step_s);
    for (int i = 0; i < a->n_tried; i++) put_tried(v, i, wide);
}

void weft_report__runners(const weft_report__view *v)
{
    const weft_search_result *r    = v->r->result;
    double                    wide = 0;
    weft_text                *t    = v->t;
    for (int i = 0; i < r->n; i++) wide = fmax(wide, r->choice[i].hi);
    weft_text_add(t, "<section id=\"runners\">\n<h2>Runners-up, and why each lost</h2>\n"
                     "<p class=\"note\">Each is the best of its kind of mesh. ");
    weft_text_add(
        t, v->checked ? "Bars are seconds of a simulated step, memory is that of the "
                        "programs.</p>\n"
                      : "Bars are seconds of a step, thin lines their 90 %% intervals, "
                        "which for plans of one model on one cluster move "
                        "together.</p>\n");
    weft_text_add(t, "<div class=\"tablewrap\"><table class=\"list stacked\"><thead><tr>"
                     "<th></th><th>plan</th><th>step</th><th></th><th>memory</th></tr>"
                     "</thead><tbody>\n");
    if (v->checked)
        put_all_tried(v);
    else
        for (int i = 0; i < r->n; i++) put_choice(v, i, wide);
    weft_text_add(t, "</tbody></table></div>\n</section>\n");
}

/* ---- constants ---- */

/* A word about where a kind's constants are from: false where nobody measured. */
static bool fitted(const weft_cost_constants *c, weft_cost_family f, const char *name,
                   const char **source)
{
    int kind = weft_cost_kind_of(c, f, name);
    if (!kind && f == WEFT_COST_LINK) /* as engine/engine.c names links of clusters */
        kind = weft_cost_kind_of(c, f,
                                 !strncmp(name, "ib-", 3)    ? "ib "
                                 : !strncmp(name, "eth-", 4) ? "ethernet"
                                                             : name);
    *source = kind > 0 ? weft_cost_kind_source(c, f, kind)
                       : "nothing is known of this kind: the defaults";
    return kind > 0 && strncmp(*source, "assumed", 7) != 0;
}

typedef struct tally {
    const weft_report__view *v;
    bool                     print; /* rows; else the names of what is not sure */
    int                      n_low;
} tally;

static const char WARNING[] = "<div class=\"warning\"><b>Low confidence.</b> Nobody "
                              "measured, and so defaults or the nearest kind: ";
static const char UNTIMED[] =
    "<div class=\"warning\"><b>Never timed.</b> Seconds are what "
    "data sheets and efficiencies allow: ";

/* Programs are priced by the cluster's own numbers. */
static bool is_rows(const weft_report__view *v)
{
    return v->r->is_rows;
}

/* Was work timed on this kind of devices, messages on this kind of links?  The other is -1. */
static bool timed(const weft_cluster *c, int device, int link)
{
    for (int i = 0; i < c->n_timing; i++)
        if (device >= 0 ? c->timing[i].device == device : c->timing[i].link == link)
            return true;
    return false;
}

/* Where a number is from, and how far it is to be trusted. */
typedef struct origin {
    bool        sure;
    const char *badge, *source, *data; /* data: what its data sheet says besides; NULL */
} origin;

static origin of_constants(const tally *z, weft_cost_family f, const char *name,
                           const char *data)
{
    origin o = {.data = data};
    o.sure   = fitted(z->v->r->constants, f, name, &o.source);
    o.badge  = o.sure ? "fitted or measured" : "low confidence";
    return o;
}

static origin of_cluster(bool was_timed, const char *data)
{
    return (origin){.sure   = was_timed,
                    .badge  = was_timed ? "measured" : "not timed",
                    .source = data && *data ? data : "no source is said"};
}

static origin of_ourselves(const weft_report__view *v)
{
    return (origin){
        .sure  = true,
        .badge = "our own",
        .source =
            v->checked
                ? "programs were simulated instruction by instruction, and their "
                  "memory is exact; so far it runs on processors, never yet on GPUs"
                : "rows are sums of the prices of programs' instructions; so far it "
                  "runs on processors, never yet on GPUs"};
}

static void put_kind(tally *z, const char *what, const char *name, origin o)
{
    weft_text *t = z->v->t;
    if (!z->print) {
        if (o.sure) return;
        weft_text_add(t, "%s", z->n_low++ ? ", " : is_rows(z->v) ? UNTIMED : WARNING);
        weft_text_add(t, "%s ", what);
        weft_report__put(t, name);
        return;
    }
    weft_text_add(t, "<tr><td>%s <b>", what);
    weft_report__put(t, name);
    weft_text_add(t, "</b></td><td><span class=\"badge %s\">%s</span></td><td>",
                  o.sure ? "good" : "low", o.badge);
    weft_report__put(t, o.source);
    if (o.data && *o.data) {
        weft_text_add(t, "<div class=\"why\">data sheet: ");
        weft_report__put(t, o.data);
        weft_text_add(t, "</div>");
    }
    weft_text_add(t, "</td></tr>\n");
}

static void put_device(tally *z, const char *name, int device)
{
    const weft_cluster *c = z->v->r->cluster;
    put_kind(z, "device", name,
             is_rows(z->v)
                 ? of_cluster(timed(c, device, -1), c->device[device].source)
                 : of_constants(z, WEFT_COST_DEVICE, name, c->device[device].source));
}

static void put_link(tally *z, const char *what, int link)
{
    const weft_cluster   *c = z->v->r->cluster;
    const weft_link_kind *l = &c->link[link];
    put_kind(z, what, l->name,
             is_rows(z->v) ? of_cluster(timed(c, -1, link), l->source)
                           : of_constants(z, WEFT_COST_LINK, l->name, l->source));
}

static void put_all(tally *z)
{
    const weft_report  *r    = z->v->r;
    const weft_cluster *c    = r->cluster;
    unsigned            used = 0;
    for (int s = 0; s < z->v->x->point.pp; s++) used |= z->v->x->point.kinds[s];
    for (int k = 0; k < r->problem->machines->n; k++) {
        const weft_search_machine *m     = &r->problem->machines->kind[k];
        const weft_host_kind      *h     = &c->node[m->node];
        bool                       twice = false;
        for (int i = 0; i < k; i++)
            twice =
                twice || (used >> i & 1 && r->problem->machines->kind[i].node == m->node);
        if (!(used >> k & 1) || twice) continue;
        put_device(z, m->device.name, h->device);
        if (h->link >= 0 && z->v->n_used > 1) put_link(z, "link", h->link);
        if (h->net >= 0 && weft_cluster_n_node(c) > 1) put_link(z, "network", h->net);
    }
    put_kind(z, "engine", r->engine,
             is_rows(z->v) ? of_ourselves(z->v)
                           : of_constants(z, WEFT_COST_ENGINE, r->engine, NULL));
}

void weft_report__warn(const weft_report__view *v)
{
    tally z = {.v = v};
    put_all(&z);
    if (z.n_low)
        weft_text_add(v->t, "; see <a href=\"#sure\">how sure this is</a>.</div>\n");
}

void weft_report__sure(const weft_report__view *v)
{
    tally      z = {.v = v, .print = true};
    weft_text *t = v->t;
    weft_text_add(
        t,
        "<section id=\"sure\">\n<h2>How sure this is</h2>\n<p "
        "class=\"note\">Seconds come from peaks and bandwidths of data "
        "sheets and from constants of devices, links and engines, never of "
        "models. The interval is where nine of ten measured steps of other "
        "engines lay that had no part in the fit; it is wider where no step of the "
        "engine was measured on a device, and up to twice the step where the engine is "
        "our own and never ran on the devices.</p>\n<div class=\"tablewrap\"><table "
        "class=\"list "
        "stacked\">"
        "<thead><tr><th>of</th><th></th><th>its constants</th></tr></thead>"
        "<tbody>\n");
    put_all(&z);
    weft_text_add(t, "</tbody></table></div>\n<p class=\"note\"><code>weft cluster "
                     "calibrate</code> measures this machine and replaces them.</p>\n"
                     "</section>\n");
}
