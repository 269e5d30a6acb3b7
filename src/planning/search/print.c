/* Answers as text: for people, as JSON. */
#include <math.h>
#include <string.h>

#include "search/search_priv.h"

static void put_cut(const weft_search_choice *c, weft_text *t)
{
    for (int s = 0; s < c->point.pp; s++)
        weft_text_add(t, "%s%d", s ? "-" : "", c->point.cut[s]);
}

static void put_key(const weft_strategy *y, weft_strategy_key key, weft_text *t)
{
    weft_text_add(t, "%s%s=", key == WEFT_KEY_tp ? "" : " ", weft_strategy_rows[key].key);
    weft_strategy_print_value(y, &weft_strategy_rows[key], false, t);
}

/* Sizes as constraints have them: dp with the ranks along ep, 1 where there is no axis. */
static weft_strategy sizes_of(const weft_search_choice *c)
{
    weft_strategy y = c->strategy;
    y.tp            = c->variant.tp;
    y.dp            = c->point.dp;
    return y;
}

/* Keys in the given order; those that are at their default are left out, but for these. */
static void put_keys(const weft_strategy *y, const weft_strategy_key *key, int n,
                     unsigned always, weft_text *t)
{
    weft_strategy none = weft_strategy_default();
    for (int i = 0; i < n; i++)
        if (always >> key[i] & 1 ||
            !weft_strategy_row_equal(y, &none, &weft_strategy_rows[key[i]]))
            put_key(y, key[i], t);
}

void weft_search_print_choice(const weft_search_choice *c, weft_text *t)
{
    static const weft_strategy_key size[]  = {WEFT_KEY_tp, WEFT_KEY_cp, WEFT_KEY_ep,
                                              WEFT_KEY_pp, WEFT_KEY_dp};
    static const weft_strategy_key split[] = {WEFT_KEY_sp, WEFT_KEY_tp_exclude,
                                              WEFT_KEY_batch_split};
    static const weft_strategy_key state[] = {WEFT_KEY_zero, WEFT_KEY_copies,
                                              WEFT_KEY_overlap_param_gather};
    static const weft_strategy_key order[] = {WEFT_KEY_schedule, WEFT_KEY_chunks};
    static const weft_strategy_key host[]  = {WEFT_KEY_offload};
    const weft_cost_variant       *v       = &c->variant;
    const weft_cost_point         *p       = &c->point;
    weft_strategy                  y       = sizes_of(c);
    put_keys(&y, size, (int)WEFT_COUNT(size),
             1u << WEFT_KEY_tp | 1u << WEFT_KEY_pp | 1u << WEFT_KEY_dp, t);
    weft_text_add(t, " micro_batch=%d", v->micro_batch);
    put_keys(&y, split, (int)WEFT_COUNT(split), 0, t);
    put_keys(&y, state, (int)WEFT_COUNT(state), 1u << WEFT_KEY_zero, t);
    weft_text_add(t, " recompute=%s", weft_cost_recompute_name((int)v->recompute));
    put_keys(&y, host, (int)WEFT_COUNT(host), 0, t);
    if (p->n_again > 0) weft_text_add(t, " recompute_layers=%d", p->n_again);
    if (p->pp > 1) put_keys(&y, order, (int)WEFT_COUNT(order), 0, t);
    if (p->pp > 1 && !weft_search__is_even(c)) {
        weft_text_add(t, " stages=");
        put_cut(c, t);
    }
}

static void put_part(weft_text *t, const char *name, double x, double scale,
                     const char *unit)
{
    if (x / scale >= 0.0005)
        weft_text_add(t, "  %-22s %9.3f %s\n", name, x / scale, unit);
}

static void put_score(const weft_cost_score *s, weft_text *t)
{
    weft_cost_part time[WEFT_COST_N_TIME], mem[WEFT_COST_N_MEMORY];
    weft_cost_time_parts(s, time);
    weft_cost_memory_parts(s, mem);
    for (int i = 0; i < WEFT_COST_N_TIME; i++)
        put_part(t, time[i].name, time[i].x, 1, "s");
    weft_text_add(t, "memory %.1f of %.1f GB on the fullest device (stage %d)\n",
                  s->mem_bytes / 1e9, s->mem_limit / 1e9, s->tightest);
    for (int i = 0; i < WEFT_COST_N_MEMORY; i++)
        put_part(t, mem[i].name, mem[i].x, 1e9, "GB");
}

static void put_kinds(const weft_search_machines *m, unsigned kinds, weft_text *t)
{
    const char *glue = "";
    for (int d = 0; d < m->n; d++)
        if (kinds >> d & 1) {
            weft_text_add(t, "%s%s", glue, m->kind[d].device.name);
            glue = "+";
        }
}

/* Runs of stages on the same kinds. */
static void put_placement(const weft_search_machines *m, const weft_search_choice *c,
                          weft_text *t)
{
    const weft_cost_point *p   = &c->point;
    int                    per = c->variant.tp * c->variant.cp * p->dp;
    for (int s = 0, e; s < p->pp; s = e) {
        int layers = 0;
        for (e = s; e < p->pp && p->kinds[e] == p->kinds[s]; e++) layers += p->cut[e];
        weft_text_add(t, "  stage%s %d", e - s > 1 ? "s" : "", s);
        if (e - s > 1) weft_text_add(t, " to %d", e - 1);
        weft_text_add(t, ": %d layers on %d x ", layers, per * (e - s));
        put_kinds(m, p->kinds[s], t);
        weft_text_add(t, "\n");
    }
}

/* What people would do without a search, as constraints: beside the answer. */
static void put_rivals(const weft_search_problem *p, const weft_search_choice *win,
                       weft_text *t)
{
    static const struct {
        const char *name;
        int         tp, pp, cp, zero;
    } way[] = {{"data parallel alone", 1, 1, 1, 0},
               {"fully sharded data parallel", 1, 1, 1, 3},
               {"tensor parallel in the node, the rest data parallel", 0, 1, 1, -1}};
    for (size_t i = 0; i < WEFT_COUNT(way); i++) {
        weft_search_problem q = *p;
        weft_search_result *r;
        q.n_best = 1;
        weft_search_fix(&q.constraints, WEFT_KEY_tp,
                        way[i].tp ? way[i].tp : p->machines->kind[0].fabric.domain);
        weft_search_fix(&q.constraints, WEFT_KEY_pp, way[i].pp);
        weft_search_fix(&q.constraints, WEFT_KEY_cp, way[i].cp);
        if (way[i].zero >= 0) weft_search_fix(&q.constraints, WEFT_KEY_zero, way[i].zero);
        q.constraints.cut = NULL;
        weft_text_add(t, "  %s: ", way[i].name);
        if (weft_search_run(&q, &r) != WEFT_OK) {
            /* what would help is not asked: the constraints are ours */
            weft_text_add(t, "%.*s\n", (int)strcspn(weft_error_text(), ";"),
                          weft_error_text());
            continue;
        }
        weft_text_add(t, "%.4g s, %.2f times as long\n", r->choice[0].score.step_s,
                      r->choice[0].score.step_s / win->score.step_s);
        weft_search_destroy(r);
    }
}

const char *weft_search_bound_of(const weft_search_problem *p)
{
    return p->model.limits.overlap_param_gather ? "plans without overlap_param_gather"
                                                : "plans of this search space";
}

weft_status weft_search_print(const weft_search_problem *p, const weft_search_result *r,
                              bool explain, weft_text *t)
{
    const weft_search_choice *c = &r->choice[0];
    weft_text_add(t, "plan: ");
    weft_search_print_choice(c, t);
    weft_text_add(
        t, "\n%lld of %d devices; step %.4g s%s (90 %%: %.4g to %.4g), %.4g %s/s\n",
        (long long)weft_search_ranks(c), r->n_device, c->score.step_s,
        p->best_case ? " at best" : "", c->lo, c->hi, p->batch / c->score.step_s,
        p->model.unit);
    if (r->bound_s > 0)
        weft_text_add(t,
                      "by fast estimates none of the %s is below %.4g s (gap %.2f %%); ",
                      weft_search_bound_of(p), r->bound_s, 100 * r->gap);
    weft_text_add(t, "%lld points worked out\n", (long long)r->n_scored);
    put_score(&c->score, t);
    if (c->point.pp > 1 && (explain || p->machines->n > 1)) {
        weft_text_add(t, "placement\n");
        put_placement(p->machines, c, t);
    }
    weft_text_add(t, r->n > 1 ? "runners-up\n" : "");
    for (int i = 1; i < r->n; i++) {
        weft_text_add(t, "  %d. ", i + 1);
        weft_search_print_choice(&r->choice[i], t);
        weft_text_add(t, ": %.4g s, %.1f GB\n     %s\n", r->choice[i].score.step_s,
                      r->choice[i].score.mem_bytes / 1e9, r->choice[i].why);
    }
    if (explain) {
        weft_text_add(t, "beside it\n");
        put_rivals(p, c, t);
    }
    return weft_text_status(t);
}

/* What is left of adding up is no time. */
static double tidy(double s, double step_s)
{
    return fabs(s) < 1e-12 * step_s ? 0 : s;
}

/* Where it is not at its default. */
static void put_json_key(const weft_strategy *y, weft_strategy_key key, weft_text *t)
{
    const weft_strategy_row *row  = &weft_strategy_rows[key];
    weft_strategy            none = weft_strategy_default();
    if (weft_strategy_row_equal(y, &none, row)) return;
    weft_text_add(t, "  \"%s\": ", row->key);
    weft_strategy_print_value(y, row, true, t);
    weft_text_add(t, ",\n");
}

static void put_json(const weft_search_machines *m, const weft_search_choice *c,
                     weft_text *t)
{
    const weft_cost_variant *v = &c->variant;
    const weft_cost_point   *p = &c->point;
    const weft_cost_score   *s = &c->score;
    weft_text_add(
        t,
        "{\"tp\": %d, \"cp\": %d, \"ep\": %d, \"pp\": %d, \"dp\": %d, \"sp\": %s, "
        "\"micro_batch\": %d, \"n_micro\": %d, \"zero\": %d, \"recompute\": "
        "\"%s\", \"recompute_layers\": %d, \"chunks\": %d, \"schedule\": \"%s\",\n",
        v->tp, v->cp, v->ep, p->pp, p->dp, v->sp ? "true" : "false", v->micro_batch,
        p->n_micro, p->zero, weft_cost_recompute_name((int)v->recompute), p->n_again,
        p->chunks, weft_strategy_schedule_name(&c->strategy));
    put_json_key(&c->strategy, WEFT_KEY_copies, t);
    put_json_key(&c->strategy, WEFT_KEY_overlap_param_gather, t);
    put_json_key(&c->strategy, WEFT_KEY_tp_exclude, t);
    weft_text_add(t, "  \"stages\": [");
    for (int i = 0; i < p->pp; i++) {
        weft_text_add(t, "%s{\"layers\": %d, \"devices\": \"", i ? ", " : "", p->cut[i]);
        put_kinds(m, p->kinds[i], t);
        weft_text_add(t, "\"}");
    }
    weft_text_add(t,
                  "],\n  \"step_s\": %.6g, \"step_lo\": %.6g, \"step_hi\": %.6g, "
                  "\"mem_bytes\": %.0f, \"mem_limit\": %.0f, \"tightest_stage\": %d,\n",
                  s->step_s, c->lo, c->hi, s->mem_bytes, s->mem_limit, s->tightest);
    weft_text_add(
        t,
        "  \"time\": {\"compute_s\": %.6g, \"again_s\": %.6g, \"comm_s\": %.6g, "
        "\"host_s\": %.6g, \"p2p_s\": %.6g, \"bubble_s\": %.6g, \"dp_s\": %.6g, "
        "\"optimizer_s\": %.6g, \"fixed_s\": %.6g},\n",
        s->compute_s, s->again_s, s->comm_s, s->host_s, s->p2p_s,
        tidy(s->bubble_s, s->step_s), s->dp_s, s->optimizer_s, s->fixed_s);
    weft_text_add(t,
                  "  \"memory\": {\"weight_bytes\": %.0f, \"state_bytes\": %.0f, "
                  "\"activation_bytes\": %.0f, \"engine_bytes\": %.0f}, \"why\": ",
                  s->weight_bytes, s->state_bytes, s->keep_bytes + s->work_bytes,
                  s->engine_bytes);
    weft_text_put_quoted(t, c->why);
    weft_text_add(t, "}");
}

weft_status weft_search_print_json(const weft_search_problem *p,
                                   const weft_search_result *r, weft_text *t)
{
    weft_text_add(t, "{\"model\": ");
    weft_text_put_quoted(t, p->model.name);
    weft_text_add(t, ", \"batch\": %d, \"devices\": %d, \"bound_s\": ", p->batch,
                  r->n_device);
    if (r->bound_s > 0)
        weft_text_add(t, "%.6g, \"bound_of\": \"%s, by fast estimates\", \"gap\": %.6g",
                      r->bound_s, weft_search_bound_of(p), r->gap);
    else
        weft_text_add(t, "null, \"gap\": null"); /* none is known */
    weft_text_add(t, ", \"scored\": %lld,\n \"choices\": [", (long long)r->n_scored);
    for (int i = 0; i < r->n; i++) {
        weft_text_add(t, i ? ",\n  " : "\n  ");
        put_json(p->machines, &r->choice[i], t);
    }
    weft_text_add(t, "]}\n");
    return weft_text_status(t);
}
