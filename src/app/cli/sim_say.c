#include "cli/sim_say.h"

#include "cost/cost.h"
#include "planner/planner.h"

enum {
    MOST_TRACKS = 64 /* ranks that a timeline shows each by itself */
};

static int64_t memory_of(const weft_program *p, const weft_cluster *c)
{
    return weft_cost_program_bytes(p, weft_cluster_device(c, p->rank));
}

static weft_status traffic(const weft_sim_folded *f, const weft_cluster *c, double *level)
{
    for (int k = 0; k < f->n_class; k++)
        WEFT_TRY(weft_sim_folded_traffic(f, c, k, level));
    return WEFT_OK;
}

static const char *level_name(const weft_cluster *c, int level)
{
    if (level == 0) return "device";
    if (level == 1) return "node";
    return level - 2 < c->n_switch ? c->sw[level - 2].name : "net";
}

static double idle_share(const weft_timeline *t, int k)
{
    return t->total_s > 0 ? weft_timeline_idle_s(t, k, WEFT_STREAM_COMPUTE) / t->total_s
                          : 0;
}

bool weft_cli_sim_fits(const weft_sim_folded *f, const weft_cluster *c)
{
    for (int k = 0; k < f->n_class; k++) {
        const weft_device_kind *d = weft_cluster_device(c, f->program[k]->rank);
        if (memory_of(f->program[k], c) > weft_cluster_usable_bytes(d)) return false;
    }
    return true;
}

/* The line that weft plan begins with, too, then what was simulated. */
static weft_status put_asked(const weft_cluster *c, const weft_cli_sim_asked *asked,
                             weft_arena *a, weft_text *out)
{
    weft_plan_machines on;
    size_t             from = out->n;
    WEFT_TRY(weft_planner_name_machines(c, a, &on));
    weft_planner_print_never_ran(c, out);
    if (out->n > from) weft_text_add(out, "\n");
    if (!asked->model) return WEFT_OK;
    weft_text_add(out, "simulated: %s, batch of %lld", asked->model,
                  (long long)asked->batch);
    if (asked->seq) weft_text_add(out, " x %lld tokens", (long long)asked->seq);
    weft_text_add(out, " in micro-batches of %lld, %s, on %s\n",
                  (long long)asked->micro_batch, asked->dtype, on.name);
    return WEFT_OK;
}

static weft_status put_asked_json(const weft_cluster *c, const weft_cli_sim_asked *asked,
                                  weft_arena *a, weft_text *out)
{
    weft_plan_machines on;
    WEFT_TRY(weft_planner_name_machines(c, a, &on));
    weft_text_add(out, ", \"engine_ran_there\": %s, \"cluster\": ",
                  weft_planner_has_run_on(c) ? "true" : "false");
    weft_text_put_quoted(out, on.name);
    if (!asked->model) return WEFT_OK;
    weft_text_put_string_member(out, "model", asked->model);
    weft_text_add(out,
                  ", \"dtype\": \"%s\", \"batch\": %lld, \"seq\": %lld, "
                  "\"micro_batch\": %lld",
                  asked->dtype, (long long)asked->batch, (long long)asked->seq,
                  (long long)asked->micro_batch);
    return WEFT_OK;
}

weft_status weft_cli_sim_json(const weft_sim_folded *f, const weft_world *w,
                              const weft_cluster *c, const weft_cli_sim_asked *asked,
                              weft_text *out)
{
    const weft_timeline *t                       = f->timeline;
    double               level[WEFT_COST_LEVELS] = {0};
    bool                 any                     = false;
    double              *idle = WEFT_ARENA_ARRAY(f->arena, double, f->n_class);
    WEFT_TRY(weft_arena_status(f->arena));
    WEFT_TRY(traffic(f, c, level));
    for (int k = 0; k < f->n_class; k++) idle[k] = idle_share(t, k);
    weft_text_add(out,
                  "{\"ranks\": %d, \"classes\": %d, \"fits\": %s, \"steps\": %d, "
                  "\"step_ms\": ",
                  w->n, f->n_class, weft_cli_sim_fits(f, c) ? "true" : "false",
                  t->n_step);
    weft_text_put_double(out, 1e3 * t->step_s);
    weft_text_add(out, ", \"total_ms\": ");
    weft_text_put_double(out, 1e3 * t->total_s);
    weft_text_add(out, ", \"compute_idle\": [");
    for (int r = 0; r < w->n; r++) {
        if (r) weft_text_add(out, ", ");
        weft_text_put_double(out, idle[f->class_of[r]]);
    }
    weft_text_add(out, "], \"mem_bytes\": [");
    for (int r = 0; r < w->n; r++)
        weft_text_add(out, r ? ", %lld" : "%lld",
                      (long long)memory_of(f->program[f->class_of[r]], c));
    weft_text_add(out, "], \"link_bytes\": {");
    for (int l = 1; l < WEFT_COST_LEVELS; l++) {
        if (!(level[l] > 0)) continue;
        if (any) weft_text_add(out, ", ");
        any = true;
        weft_text_put_quoted(out, level_name(c, l));
        weft_text_add(out, ": ");
        weft_text_put_double(out, level[l]);
    }
    weft_text_add(out, "}");
    WEFT_TRY(put_asked_json(c, asked, f->arena, out));
    weft_text_add(out, "}");
    return weft_text_status(out);
}

/* Programs that do not fit are simulated, too. */
static void put_too_large(const weft_sim_folded *f, const weft_cluster *c, weft_text *out)
{
    for (int k = 0; k < f->n_class; k++) {
        const weft_device_kind *d    = weft_cluster_device(c, f->program[k]->rank);
        int64_t                 need = memory_of(f->program[k], c);
        int64_t                 have = weft_cluster_usable_bytes(d);
        if (need > have)
            weft_text_add(
                out, "DOES NOT FIT: rank %d%s %.1f GB, %s has %.1f to plan with\n",
                f->program[k]->rank, f->n_rank[k] > 1 ? " and others hold" : " holds",
                1e-9 * (double)need, d->name, 1e-9 * (double)have);
    }
}

weft_status weft_cli_sim_print(const weft_sim_folded *f, const weft_world *w,
                               const weft_cluster *c, const weft_cli_sim_asked *asked,
                               weft_text *out)
{
    double level[WEFT_COST_LEVELS] = {0};
    WEFT_TRY(traffic(f, c, level));
    WEFT_TRY(put_asked(c, asked, f->arena, out));
    WEFT_TRY(weft_timeline_print(f->timeline, out));
    put_too_large(f, c, out);
    if (w->n == 1) return WEFT_OK;
    weft_text_add(out, "%d ranks of %d kinds:\n", w->n, f->n_class);
    for (int k = 0; k < f->n_class; k++)
        weft_text_add(out, "  rank %d%s: %d like it, compute idle %.1f %%, %.1f MiB\n",
                      f->program[k]->rank, f->n_rank[k] > 1 ? " and others" : "",
                      f->n_rank[k], 100 * idle_share(f->timeline, k),
                      (double)memory_of(f->program[k], c) / (1 << 20));
    for (int l = 1; l < WEFT_COST_LEVELS; l++)
        if (level[l] > 0)
            weft_text_add(out, "  over %s: %.3f MB a step\n", level_name(c, l),
                          1e-6 * level[l]);
    return weft_text_status(out);
}

weft_status weft_cli_sim_trace(const weft_sim_folded *f, const weft_world *w,
                               weft_text *out)
{
    weft_timeline *all;
    if (w->n > MOST_TRACKS) return weft_timeline_json(f->timeline, out);
    WEFT_TRY(weft_sim_folded_expand(f, w, &all));
    weft_status st = weft_timeline_json(all, out);
    weft_timeline_destroy(all);
    return st;
}
