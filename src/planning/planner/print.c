/* Answers as text: for people, as JSON, in a line. */
#include "engine/engine.h"
#include "planner/planner_priv.h"

static void put_seconds(weft_text *t, const char *name, double x)
{
    if (x >= 5e-7) weft_text_add(t, "  %-30s %10.4g s\n", name, x);
}

/* Kinds of devices without timings: who reads of seconds should know. */
static void put_untimed(const weft_cluster *c, weft_text *t)
{
    const char *glue = "never timed, so that seconds are what data sheets and "
                       "efficiencies allow: ";
    bool        any  = false;
    for (int i = 0; i < c->n_device; i++) {
        bool timed = false, used = false;
        for (int k = 0; k < c->n_timing; k++) timed = timed || c->timing[k].device == i;
        for (int k = 0; k < c->n_node; k++) used = used || c->node[k].device == i;
        if (timed || !used) continue;
        weft_text_add(t, "%s%s", any ? ", " : glue, c->device[i].name);
        any = true;
    }
    if (any) weft_text_add(t, "\n");
}

/* What was asked, with what was left open; dp of a choice counts the ranks along ep, a mesh has
 * them apart. */
static void put_asked(const weft_planner_workspace *w, const weft_planner_answer *a,
                      weft_text *t)
{
    const weft_search_choice *c = &a->tried[0]->choice;
    weft_text_add(t, "asked: %s, batch of %lld %s", w->request.spec.model,
                  (long long)w->request.spec.batch, w->problem.model.unit);
    if (w->config.seq > 0) weft_text_add(t, " of %d tokens", w->config.seq);
    weft_text_add(t, ", %s, engine %s\n", w->config.precision, w->config.framework);
    if (c->variant.ep > 1 && weft_planner__is_ours(w))
        weft_text_add(t,
                      "below, dp counts ranks along ep and micro_batch is one rank's; in "
                      "plan file and job: dp=%d ep=%d ... micro_batch=%d\n",
                      c->point.dp / c->variant.ep, c->variant.ep,
                      c->variant.micro_batch * c->variant.ep);
}

static weft_status put_idle(weft_planner_workspace *w, const weft_planner_answer *a,
                            weft_text *t)
{
    weft_text why = {0};
    WEFT_TRY(weft_planner__put_idle(w, a, &why));
    if (why.n) weft_text_add(t, "%s\n", why.s);
    weft_text_fini(&why);
    return WEFT_OK;
}

/* A bound that the answer is below is none; then why there is none is printed. */
static void put_bound(const weft_planner_workspace *w, const weft_planner_answer *a,
                      weft_text *t)
{
    const weft_search_choice *c = &a->tried[0]->choice;
    weft_text_add(t, "fast estimate %.4g s; ", c->score.step_s);
    if (a->bound_s > 0)
        weft_text_add(t,
                      "by fast estimates none of the %s is below %.4g s, simulated steps "
                      "may be",
                      weft_search_bound_of(&w->problem), a->bound_s);
    else
        weft_text_add(t,
                      "no bound: the simulated step is shorter than fast estimates of "
                      "all %s",
                      weft_search_bound_of(&w->problem));
    weft_text_add(t, "; %lld points worked out, %d checked\n",
                  (long long)a->search->n_scored, a->n_tried);
}

static weft_planner_rates find_rates(const weft_planner_workspace *w,
                                     const weft_planner_answer    *a)
{
    weft_planner_rates r;
    double             batch = (double)w->request.spec.batch;
    weft_planner_rates_of(&(weft_planner_step){a->step_s, batch, batch * w->flops,
                                               w->config.seq, w->problem.model.unit,
                                               w->config.precision},
                          w->request.cluster, &a->placement, &r);
    return r;
}

static void put_rates(const weft_planner_workspace *w, const weft_planner_answer *a,
                      weft_text *t)
{
    weft_planner_rates r = find_rates(w, a);
    weft_text_add(t, r.per_device_s >= 1000 ? "%.0f %s/s a device" : "%.4g %s/s a device",
                  r.per_device_s, r.unit);
    if (r.mfu > 0) weft_text_add(t, ", MFU %.1f %%", 100 * r.mfu);
    weft_text_add(t, "%s\n", w->problem.best_case ? ", at best" : "");
}

/* What was simulated and measured. */
static weft_status put_checked(weft_planner_workspace *w, const weft_planner_answer *a,
                               weft_text *t)
{
    const weft_planner_tried *x = a->tried[0];
    const weft_search_choice *c = &x->choice;
    weft_text_add(t, "plan: ");
    weft_search_print_choice(c, t);
    weft_text_add(t,
                  "\n%lld of %d devices; step %.4g s%s simulated (90 %%: %.4g to %.4g), "
                  "%.4g %s/s\n",
                  (long long)weft_search_ranks(c), a->search->n_device, a->step_s,
                  w->problem.best_case ? " at best," : "", a->lo, a->hi,
                  (double)w->request.spec.batch / a->step_s, w->problem.model.unit);
    put_rates(w, a, t);
    WEFT_TRY(put_idle(w, a, t));
    weft_planner_print_reduction(a, t);
    weft_planner_print_offload(a, t);
    weft_planner_print_later(x, t);
    put_seconds(t, "compute", x->time.compute_s);
    put_seconds(t, "update", x->time.update_s);
    put_seconds(t, "waiting for sums and gathers", x->time.comm_s);
    put_seconds(t, "idle, waiting for others", x->time.idle_s);
    weft_text_add(t,
                  "memory %.4g of %.4g GB to plan with on the fullest device (rank %d), "
                  "exactly; the largest part %s, %.3g GB\nranks of %d kinds, %d programs "
                  "made and measured\n",
                  1e-9 * (double)x->mem_bytes, 1e-9 * (double)x->mem_limit, x->fullest,
                  x->largest, 1e-9 * (double)x->largest_bytes, x->n_class, x->n_made);
    put_bound(w, a, t);
    if (a->n_tried > 1) weft_text_add(t, "runners-up\n");
    for (int i = 1; i < a->n_tried; i++) {
        const weft_planner_tried *y = a->tried[i];
        weft_text_add(t, "  %d. ", i + 1);
        weft_search_print_choice(&y->choice, t);
        if (y->step_s > 0)
            weft_text_add(t, ": %.4g s, %.4g GB", y->step_s, 1e-9 * (double)y->mem_bytes);
        weft_text_add(t, "\n     %s\n", y->why);
    }
    return WEFT_OK;
}

/* Where ranks lie: all of it, or what became of the plan before. */
static weft_status put_placement(const weft_planner_workspace *w,
                                 const weft_planner_answer *a, bool all, weft_text *t)
{
    const weft_planner_placement *at = &a->placement;
    if (all) {
        weft_text_add(t, "placement\n");
        WEFT_TRY(weft_planner_placement_print(at, w->request.cluster, t));
    } else if (at->kept) {
        weft_text_add(t, "%d of %d ranks move, the others stay where they were\n",
                      at->n_moved, at->p.n_rank);
    }
    if (w->request.was && !at->kept)
        weft_text_add(t, "cut otherwise than the plan before: every rank gets other "
                         "weights\n");
    return WEFT_OK;
}

/* What the search's own lines, which follow, are worth. */
static const char *search_heading(const weft_planner_workspace *w,
                                  const weft_planner_answer    *a)
{
    if (a->checked && a->tried[0]->choice.strategy.overlap_param_gather)
        return "what the search found, by rows, which do not know overlap_param_gather\n";
    if (a->checked) return "what the search found, by rows\n";
    if (!weft_planner__is_ours(w)) return "";
    if (w->is_rows) return "not checked by partition and simulation: the search's word\n";
    return "not checked by partition and simulation, and priced by the model's sizes, "
           "not by "
           "its programs:\nwithout --fast plan, seconds and bound are others\n";
}

weft_status weft_planner_print(weft_planner_workspace *w, const weft_planner_answer *a,
                               bool explain, weft_text *t)
{
    size_t from = t->n;
    weft_planner_print_untimed(w, t);
    if (t->n > from) weft_text_add(t, "\n");
    put_asked(w, a, t);
    if (w->is_rows) put_untimed(w->request.cluster, t);
    weft_engine_tell_precision(w->request.cluster, w->config.precision, w->is_rows, t);
    if (a->checked) WEFT_TRY(put_checked(w, a, t));
    if (explain || w->request.was) WEFT_TRY(put_placement(w, a, explain, t));
    if (a->checked && !explain) return weft_text_status(t);
    weft_text_add(t, "%s", search_heading(w, a));
    weft_search_result found = *a->search;
    if (a->checked) found.n = 1; /* runners-up stand above, simulated */
    WEFT_TRY(weft_search_print(&w->problem, &found, explain, t));
    if (a->checked) return WEFT_OK;
    put_rates(w, a, t);
    weft_planner_print_reduction(a, t);
    weft_planner_print_offload(a, t);
    return put_idle(w, a, t);
}

static void put_tried(const weft_planner_tried *x, weft_text *t)
{
    static const char *const end[] = {"fits", "too full", "no plan", "untried"};
    weft_text                words = {0};
    weft_search_print_choice(&x->choice, &words);
    weft_text_add(t, "\n  {\"plan\": ");
    weft_text_put_quoted(t, words.s ? words.s : "");
    weft_text_add(t, ", \"end\": \"%s\"", end[x->end]);
    if (x->mem_bytes)
        weft_text_add(t, ", \"mem_bytes\": %lld, \"mem_limit\": %lld, \"fullest\": %d",
                      (long long)x->mem_bytes, (long long)x->mem_limit, x->fullest);
    if (x->host_bytes)
        weft_text_add(t, ", \"host_bytes\": %lld, \"host_s\": %.17g",
                      (long long)x->host_bytes, x->host_s);
    if (x->step_s > 0)
        weft_text_add(t,
                      ", \"step_s\": %.6g, \"compute_s\": %.6g, \"update_s\": %.6g, "
                      "\"comm_s\": %.6g, \"idle_s\": %.6g",
                      x->step_s, x->time.compute_s, x->time.update_s, x->time.comm_s,
                      x->time.idle_s);
    if (x->choice.strategy.overlap_param_gather)
        weft_text_add(t, ", \"overlap_param_gather\": %g, \"bucket_bytes\": %lld",
                      x->choice.strategy.overlap_param_gather / 100.0,
                      (long long)x->bucket);
    if (x->without_s > 0) weft_text_add(t, ", \"without_overlap_s\": %.6g", x->without_s);
    if (x->buckets_s > 0) weft_text_add(t, ", \"buckets_alone_s\": %.6g", x->buckets_s);
    weft_text_add(t, ", \"rows_s\": %.6g, \"why\": ", x->choice.score.step_s);
    weft_text_put_quoted(t, x->why);
    weft_text_add(t, "}");
    weft_text_fini(&words);
}

static void put_devices(const weft_planner_workspace *w, const weft_planner_answer *a,
                        weft_text *t)
{
    const weft_planner_placement *at = &a->placement;
    weft_planner_rates            r  = find_rates(w, a);
    weft_text_add(t, ",\n \"mfu\": %.6g, \"%s_per_s\": %.6g, \"%s_per_s_device\": %.6g",
                  r.mfu, r.unit, r.per_s, r.unit, r.per_device_s);
    weft_text_add(t, ",\n \"device_of_rank\": [");
    for (int i = 0; i < at->p.n_rank; i++)
        weft_text_add(t, "%s%d", i ? ", " : "", at->p.device[i]);
    weft_text_add(t, "]");
    if (w->request.was)
        weft_text_add(t, ", \"ranks_moved\": %d", at->kept ? at->n_moved : at->p.n_rank);
}

/* Of our own plans: the mesh as a job has it, where ranks along ep stand beside dp. */
static void put_asked_json(const weft_planner_workspace *w, const weft_planner_answer *a,
                           weft_text *t)
{
    const weft_search_choice *c    = &a->tried[0]->choice;
    const char               *glue = "";
    const struct {
        const char *name;
        int         n;
    } axis[] = {{"dp", c->point.dp / c->variant.ep},
                {"ep", c->variant.ep},
                {"cp", c->variant.cp},
                {"tp", c->variant.tp}};
    weft_text_add(t, ",\n \"asked\": {\"model\": ");
    weft_text_put_quoted(t, w->request.spec.model);
    weft_text_put_string_member(t, "cluster", w->request.cluster->name);
    weft_text_add(t, ", \"batch\": %lld, \"seq\": %d, \"precision\": ",
                  (long long)w->request.spec.batch, w->config.seq);
    weft_text_put_quoted(t, w->config.precision);
    weft_text_put_string_member(t, "engine", w->config.framework);
    weft_text_add(t, "}");
    if (!weft_planner__is_ours(w)) return;
    weft_text_add(t, ",\n \"reduction\": \"%s\"", weft_reduction_name(a->reduction));
    weft_text_add(t, ",\n \"mesh\": \"");
    for (size_t i = 0; i < WEFT_COUNT(axis); i++) {
        if (i && axis[i].n < 2) continue;
        weft_text_add(t, "%s%s=%d", glue, axis[i].name, axis[i].n);
        glue = ",";
    }
    weft_text_add(t, "\"");
}

/* The search's object, with what was checked behind it. */
weft_status weft_planner_print_json(weft_planner_workspace    *w,
                                    const weft_planner_answer *a, weft_text *t)
{
    WEFT_TRY(weft_search_print_json(&w->problem, a->search, t));
    while (t->n && t->s[t->n - 1] != '}') t->n--;
    if (t->n) t->n--;
    put_asked_json(w, a, t);
    weft_text_add(t,
                  ",\n \"engine_ran_there\": %s, \"checked\": %s, \"priced_by\": \"%s\", "
                  "\"step_s\": %.6g, "
                  "\"step_lo\": %.6g, \"step_hi\": %.6g, \"tried\": [",
                  weft_planner__ran_there(w) ? "true" : "false",
                  a->checked ? "true" : "false", w->is_rows ? "programs" : "sizes",
                  a->step_s, a->lo, a->hi);
    for (int i = 0; i < a->n_tried && a->checked; i++) {
        weft_text_add(t, i ? "," : "");
        put_tried(a->tried[i], t);
    }
    weft_text_add(t, "]");
    put_devices(w, a, t);
    weft_text why = {0};
    WEFT_TRY(weft_planner__put_idle(w, a, &why));
    if (why.n) {
        weft_text_add(t, ",\n \"idle\": ");
        weft_text_put_quoted(t, why.s);
    }
    weft_text_fini(&why);
    weft_text_add(t, "}\n");
    return weft_text_status(t);
}

void weft_planner_print_reduction(const weft_planner_answer *a, weft_text *t)
{
    if (!a->fixed_to_fit && !a->fixed_on_devices) return;
    weft_text_add(
        t,
        "reduction is fixed, %s: a second run has the same bits, another number "
        "of ranks has not%s\n",
        a->fixed_to_fit ? "as nothing fits with invariant sums"
                        : "the default on several GPUs and on unlike devices",
        a->fixed_to_fit ? "" : "; reduction=invariant has them");
}

void weft_planner_print_offload(const weft_planner_answer *a, weft_text *t)
{
    const weft_planner_tried *x = a->tried[0];
    if (!x->choice.strategy.offload) return;
    weft_text_add(t, "optimizer states are in the host's memory%s",
                  a->offload_to_fit ? ", as nothing fits without offload=optimizer" : "");
    if (x->host_bytes)
        weft_text_add(t,
                      ": %.4g GB there for the rank that has most, %.4g s of a step for "
                      "its updates",
                      1e-9 * (double)x->host_bytes, x->host_s);
    weft_text_add(t, "\n");
}

void weft_planner_print_line(const weft_planner_answer *a, weft_text *t)
{
    int64_t n = weft_search_ranks(&a->tried[0]->choice);
    weft_text_add(t, "%lld rank%s, ", (long long)n, n > 1 ? "s" : "");
    weft_search_print_choice(&a->tried[0]->choice, t);
    weft_text_add(t, ": %.3g s a step predicted", a->step_s);
    if (a->offload_to_fit) weft_text_add(t, " (offload=optimizer: nothing fits without)");
    if (a->fixed_to_fit)
        weft_text_add(
            t, " (reduction=fixed: nothing fits with invariant sums, so bits depend "
               "on the number of ranks)");
    else if (a->fixed_on_devices)
        weft_text_add(t, " (reduction=fixed, the default on several GPUs and on unlike "
                         "devices: bits depend on the number of ranks)");
}
