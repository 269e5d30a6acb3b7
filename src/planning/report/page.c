/* The page: its frame, the headline, and the sections in their order. */
#include <math.h>
#include <string.h>

#include "report/report_priv.h"

/* ---- head ---- */

static void put_brand(weft_text *t)
{
    weft_text_add(
        t, "<div class=\"brand\"><svg viewBox=\"0 0 24 24\" aria-hidden=\"true\" "
           "fill=\"none\" stroke-width=\"3\" stroke-linecap=\"round\">"
           "<path stroke=\"#4f7fe6\" d=\"M3 7h4M11 7h10M3 17h10M17 17h4M3 12h18\"/>"
           "<path stroke=\"#ee8b3c\" d=\"M8 3v6M8 15v6M16 3v6M16 15v6M8 9v1M16 14v1\"/>"
           "</svg>weft plan</div>\n");
}

static void put_kinds_used(const weft_report__view *v, weft_text *t)
{
    const weft_search_machines   *m                       = v->r->problem->machines;
    int64_t                       n[WEFT_COST_MAX_DEVICE] = {0};
    const char                   *glue                    = "";
    const weft_planner_placement *p                       = v->r->place;
    for (int i = 0; i < p->p.n_rank; i++)
        for (int k = 0; k < m->n; k++)
            if (p->job.kind[p->p.device[i]] >> k & 1) n[k]++;
    for (int k = 0; k < m->n; k++) {
        if (!n[k]) continue;
        weft_text_add(t, "%s", glue);
        weft_report__count(t, n[k]);
        weft_text_add(t, " × ");
        weft_report__put(t, m->kind[k].device.name);
        if (m->kind[k].speed < 1)
            weft_text_add(t, " (at %.0f %% speed)", 100 * m->kind[k].speed);
        glue = " + ";
    }
}

static void put_chip(weft_text *t, const char *name, const char *value, bool pinned)
{
    weft_text_add(t, "<li class=\"chip%s\">%s <b>%s</b></li>\n", pinned ? " pinned" : "",
                  name, value);
}

static void put_degree(weft_text *t, const char *name, const char *about, int n,
                       bool pinned)
{
    weft_text_add(t, "<li class=\"chip%s\" title=\"%s\">%s <b>%d</b></li>\n",
                  pinned ? " pinned" : "", about, name, n);
}

static bool is_given(const weft_search_constraints *p, weft_strategy_key key)
{
    return p->given >> key & 1;
}

static void put_chips(const weft_report__view *v)
{
    static const char *const       schedule[] = {"1F1B", "GPipe", "zero bubble"};
    const weft_search_constraints *pin        = &v->r->problem->constraints;
    const weft_cost_variant       *x          = &v->x->variant;
    const weft_cost_point         *p          = &v->x->point;
    weft_text                     *t          = v->t;
    weft_text_add(t, "<ul class=\"chips\">\n");
    put_degree(t, "tensor", "tp: devices that share each layer", x->tp,
               is_given(pin, WEFT_KEY_tp));
    if (x->cp > 1 || is_given(pin, WEFT_KEY_cp))
        put_degree(t, "context", "cp: devices that share each sequence", x->cp,
                   is_given(pin, WEFT_KEY_cp));
    if (x->ep > 1 || is_given(pin, WEFT_KEY_ep))
        put_degree(t, "experts", "ep: devices that share the experts", x->ep,
                   is_given(pin, WEFT_KEY_ep));
    put_degree(t, "stages", "pp: stages of the pipeline", p->pp,
               is_given(pin, WEFT_KEY_pp));
    put_degree(t, "replicas", "dp: copies of the model", p->dp,
               is_given(pin, WEFT_KEY_dp));
    put_degree(t, "micro-batch", "samples that go through a stage at once",
               x->micro_batch, pin->micro_batch >= 0);
    put_degree(t, "micro-batches", "of a replica in a step", p->n_micro, false);
    put_degree(t, "ZeRO",
               "0: states whole on each replica, 1: shared, 2: gradients "
               "too, 3: weights too",
               p->zero, is_given(pin, WEFT_KEY_zero));
    if (x->tp > 1 || is_given(pin, WEFT_KEY_sp))
        put_chip(t, "sequence parallel", x->sp ? "yes" : "no",
                 is_given(pin, WEFT_KEY_sp));
    put_chip(t, "recompute", weft_cost_recompute_name((int)x->recompute),
             is_given(pin, WEFT_KEY_recompute));
    if (p->pp > 1)
        put_chip(t, "schedule", p->chunks > 1 ? "interleaved" : schedule[p->schedule],
                 is_given(pin, WEFT_KEY_schedule));
    if (p->chunks > 1)
        put_degree(t, "chunks", "stretches of layers that a stage has", p->chunks,
                   is_given(pin, WEFT_KEY_chunks));
    weft_text_add(t, "</ul>\n");
}

static void put_head(const weft_report__view *v)
{
    const weft_report *r = v->r;
    weft_text         *t = v->t;
    put_brand(t);
    if (r->untimed && *r->untimed) {
        weft_text_add(t, "<div class=\"warning\">");
        weft_report__put(t, r->untimed);
        weft_text_add(t, ".</div>\n");
    }
    weft_text_add(t, "<h1>");
    weft_report__put(t, r->model);
    weft_text_add(t, " on ");
    put_kinds_used(v, t);
    weft_text_add(t, "</h1>\n<div class=\"soft\">cluster <code>");
    weft_report__put(t, r->where);
    weft_text_add(t, "</code> · batch ");
    weft_report__count(t, r->problem->batch);
    weft_text_add(t, " ");
    weft_report__put(t, r->problem->model.unit);
    if (r->seq > 0) {
        weft_text_add(t, " of ");
        weft_report__count(t, r->seq);
        weft_text_add(t, " tokens");
    }
    weft_text_add(t, " · ");
    weft_report__put(t, r->precision);
    weft_text_add(t, " · engine ");
    weft_report__put(t, r->engine);
    weft_text_add(t, "</div>\n");
    put_chips(v);
}

/* ---- cards ---- */

/* Step, its interval and the bound on one line. */
static void put_span(const weft_report__view *v)
{
    double low = v->bound_s > 0 ? fmin(v->lo, v->bound_s) : v->lo, high = v->hi;
    double pad  = 0.08 * (high - low);
    double from = fmax(0, low - pad), wide = high + pad - from;
    if (!(wide > 0)) return;
    weft_text *t = v->t;
#define AT(s) (300 * ((s)-from) / wide)
    weft_text_add(t,
                  "<svg class=\"span\" viewBox=\"0 0 300 30\" role=\"img\" "
                  "aria-label=\"the interval\"><line x1=\"0\" x2=\"300\" y1=\"15\" "
                  "y2=\"15\"/><line class=\"in\" x1=\"%.1f\" x2=\"%.1f\" y1=\"15\" "
                  "y2=\"15\"/>",
                  AT(v->lo), AT(v->hi));
    if (v->bound_s > 0) {
        weft_text_add(t,
                      "<line class=\"bound\" x1=\"%.1f\" x2=\"%.1f\" y1=\"6\" "
                      "y2=\"24\"><title>by fast estimates none of the %s is below ",
                      AT(v->bound_s), AT(v->bound_s),
                      weft_search_bound_of(v->r->problem));
        weft_report__seconds(t, v->bound_s);
        weft_text_add(t, "</title></line>");
    }
    weft_text_add(t, "<circle cx=\"%.1f\" cy=\"15\" r=\"6\"/></svg>\n", AT(v->step_s));
#undef AT
}

/* None is printed where the simulated step is below the fast estimates' bound. */
static void put_bound(const weft_report__view *v)
{
    weft_text *t = v->t;
    if (!(v->bound_s > 0)) {
        weft_text_add(t, "; shorter than fast estimates of all %s",
                      weft_search_bound_of(v->r->problem));
        return;
    }
    weft_text_add(t, "; by fast estimates none of the %s is below ",
                  weft_search_bound_of(v->r->problem));
    weft_report__seconds(t, v->bound_s);
    if (v->checked) {
        weft_text_add(t, ", simulated steps may be; this one's fast estimate is ");
        weft_report__seconds(t, v->x->score.step_s);
    } else {
        weft_text_add(t, " (gap %.2f %%)", 100 * (v->step_s / v->bound_s - 1));
    }
}

static void put_step(const weft_report__view *v)
{
    weft_text *t = v->t;
    weft_text_add(t,
                  "<div class=\"card wide\"><div class=\"k\">a step takes%s%s</div>"
                  "<div class=\"v\">",
                  v->r->problem->best_case ? " at best" : "",
                  v->checked ? ", simulated" : "");
    weft_report__seconds(t, v->step_s);
    weft_text_add(t, "</div>");
    put_span(v);
    weft_text_add(t, "<div class=\"s\">90 %% interval ");
    weft_report__seconds(t, v->lo);
    weft_text_add(t, " to ");
    weft_report__seconds(t, v->hi);
    put_bound(v);
    weft_text_add(t, "; ");
    weft_report__count(t, v->r->result->n_scored);
    weft_text_add(t, " points worked out");
    if (v->checked) weft_text_add(t, ", %d simulated", v->r->answer->n_tried);
    weft_text_add(t, "</div></div>\n");
}

static void put_large(weft_text *t, double x)
{
    if (x >= 1e6)
        weft_text_add(t, "%.3g <small>million</small>", x / 1e6);
    else if (x >= 100)
        weft_report__count(t, (int64_t)llround(x));
    else
        weft_text_add(t, "%.3g", x);
}

static void put_rates(const weft_report__view *v)
{
    const weft_report *r = v->r;
    weft_text         *t = v->t;
    weft_planner_rates rates;
    weft_planner_rates_of(&(weft_planner_step){v->step_s, r->problem->batch, r->flops,
                                               r->seq, r->problem->model.unit,
                                               r->precision},
                          r->cluster, r->place, &rates);
    weft_text_add(t, "<div class=\"card\"><div class=\"k\">");
    weft_report__put(t, rates.unit);
    weft_text_add(t, " a second</div><div class=\"v\">");
    put_large(t, rates.per_s);
    weft_text_add(t, "</div><div class=\"s\">");
    put_large(t, rates.per_device_s);
    weft_text_add(t, " a device</div></div>\n");
    if (rates.mfu > 0) {
        double each = rates.flops_device_s;
        weft_text_add(t,
                      "<div class=\"card\" title=\"the model's own flops over what the "
                      "devices could do at their peak\"><div class=\"k\">MFU</div><div "
                      "class=\"v\">%.1f <small>%%</small></div><div class=\"meter\"><i "
                      "style=\"width:%.1f%%\"></i></div><div class=\"s\">%.3g %sFLOP/s a "
                      "device</div></div>\n",
                      100 * rates.mfu, fmin(100, 100 * rates.mfu),
                      each >= 1e12 ? each / 1e12 : each / 1e9, each >= 1e12 ? "T" : "G");
    }
}

/* Exact where programs were made, else by rows. */
static void put_full(const weft_report__view *v)
{
    const weft_cost_score    *s     = &v->x->score;
    const weft_planner_tried *x     = v->checked ? v->r->answer->tried[0] : NULL;
    double                    have  = x ? (double)x->mem_bytes : s->mem_bytes;
    double                    limit = x ? (double)x->mem_limit : s->mem_limit;
    weft_text                *t     = v->t;
    weft_text_add(t,
                  "<div class=\"card\"><div class=\"k\">fullest device</div><div "
                  "class=\"v\">%.1f <small>of %.1f GB</small></div><div "
                  "class=\"meter%s\"><i style=\"width:%.1f%%\"></i></div><div "
                  "class=\"s\">",
                  have / 1e9, limit / 1e9, have > 0.93 * limit ? " tight" : "",
                  fmin(100, 100 * have / limit));
    if (x)
        weft_text_add(t, "rank %d, exactly as its program has it</div></div>\n",
                      x->fullest);
    else
        weft_text_add(t,
                      "of stage %d; the limit is what the engine may use</div></div>\n",
                      s->tightest);
}

static void put_fit(const weft_report__view *v)
{
    weft_text *t = v->t;
    put_full(v);
    weft_text_add(t,
                  "<div class=\"card\"><div class=\"k\">devices</div><div class=\"v\">");
    weft_report__count(t, v->n_used);
    weft_text_add(t, " <small>of ");
    weft_report__count(t, weft_cluster_count(v->r->cluster));
    int cordoned = weft_cluster_count(v->r->cluster) - weft_cluster_usable(v->r->cluster);
    weft_text_add(t, "</small></div><div class=\"s\">");
    if (cordoned) {
        weft_report__count(t, cordoned);
        weft_text_add(t, " cordoned, ");
    }
    weft_report__count(t, weft_cluster_usable(v->r->cluster) - v->n_used);
    weft_text_add(t, " idle</div></div>\n");
}

static void put_cards(const weft_report__view *v)
{
    weft_text_add(v->t, "<div class=\"cards\">\n");
    put_step(v);
    put_rates(v);
    put_fit(v);
    weft_text_add(v->t, "</div>\n");
    weft_report__warn(v);
}

/* ---- all of it ---- */

static void put_frame(const weft_report__view *v)
{
    weft_text *t = v->t;
    weft_text_add(t, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta "
                     "charset=\"utf-8\">\n<meta name=\"viewport\" "
                     "content=\"width=device-width, initial-scale=1\">\n<title>");
    weft_report__put(t, v->r->model);
    weft_text_add(t, ": weft plan</title>\n<style>\n");
    weft_text_put(t, weft_report_css, strlen(weft_report_css));
    weft_text_add(t, "</style>\n</head>\n<body>\n<main>\n<header>\n");
    put_head(v);
    weft_text_add(t, "</header>\n");
}

static void put_foot(const weft_report__view *v)
{
    weft_text *t = v->t;
    weft_text_add(t, "<footer>\n<p>The plan as constraints: <code>");
    weft_search_print_choice(v->x, t);
    weft_text_add(t, "</code></p>\n");
    if (v->r->command) {
        weft_text_add(t, "<p>This page: <code>");
        weft_report__put(t, v->r->command);
        weft_text_add(t, "</code></p>\n");
    }
    weft_text_add(t, "</footer>\n</main>\n<script>\n");
    weft_text_put(t, weft_report_js, strlen(weft_report_js));
    weft_text_add(t, "</script>\n</body>\n</html>\n");
}

weft_status weft_report_html(const weft_report *r, weft_text *out)
{
    weft_cost_stage  *stage;
    weft_place_run   *run;
    int               n_run;
    weft_report__view v = {
        .r = r, .x = &r->result->choice[0], .n_used = r->place->p.n_rank, .t = out};
    weft_status st = WEFT_OK;
    v.checked      = r->answer && r->answer->checked;
    v.step_s       = v.checked ? r->answer->step_s : v.x->score.step_s;
    v.lo           = v.checked ? r->answer->lo : v.x->lo;
    v.hi           = v.checked ? r->answer->hi : v.x->hi;
    v.bound_s      = r->answer ? r->answer->bound_s : r->result->bound_s;
    WEFT_TRY(weft_arena_create(&v.a));
    WEFT_GO(weft_planner_stages(r->problem, v.x, v.a, &stage));
    WEFT_GO(weft_place_runs(&r->place->job, r->cluster, &r->place->p, v.a, &run, &n_run));
    v.stage = stage;
    put_frame(&v);
    put_cards(&v);
    weft_report__topology(&v, run, n_run);
    WEFT_GO(weft_report__timeline(&v));
    weft_report__breakdown(&v);
    weft_report__memory(&v);
    weft_report__runners(&v);
    WEFT_GO(weft_report__changes(&v));
    weft_report__sure(&v);
    put_foot(&v);
    st = weft_text_status(out);
out:
    weft_arena_destroy(v.a);
    return st;
}
