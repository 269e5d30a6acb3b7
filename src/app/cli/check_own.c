#include "cli/check_own.h"

#include <string.h>

#include "base/pool.h"

/* What is asked with these constraints; "": the best. */
typedef struct own_request {
    weft_arena          *arena;
    weft_cluster        *cluster;
    weft_model_source   *source;
    weft_planner_request q;
} own_request;

static weft_status read_words(own_request *r, const char *words)
{
    char word[128];
    for (const char *at = words; *at;) {
        at += strspn(at, " \t\n");
        size_t n = strcspn(at, " \t\n");
        if (n >= sizeof word)
            return WEFT_FAIL(WEFT_ERR_ARG, "--weft: '%.40s...' is too long", at);
        memcpy(word, at, n);
        word[n] = 0;
        if (n) WEFT_TRY(weft_cli_constrain(&r->q, word, r->arena));
        at += n;
    }
    return WEFT_OK;
}

static weft_status open_request(const weft_cli_own_check *o, own_request *r)
{
    weft_planner_request *q = &r->q;
    WEFT_TRY(weft_arena_create(&r->arena));
    WEFT_TRY(weft_cluster_load(o->cluster, NULL, &r->cluster));
    WEFT_TRY(weft_model_source_open(o->model, &r->source));
    q->spec             = weft_compile_spec_default(o->model, o->batch, o->seq);
    q->spec.source      = r->source;
    q->spec.micro_batch = q->spec.lanes = 0;
    q->spec.reduction                   = WEFT_REDUCTION_AUTO;
    q->spec.dtype                       = NULL;
    q->cluster                          = r->cluster;
    q->n_thread                         = weft_pool_cores();
    weft_search_open(&q->constraints);
    return WEFT_OK;
}

static void close_request(own_request *r)
{
    weft_cluster_destroy(r->cluster);
    weft_model_source_destroy(r->source);
    weft_arena_destroy(r->arena);
}

/* ---- what is said ---- */

static void put_measured(double measured, const weft_planner_answer *a, weft_text *t)
{
    if (!(measured > 0)) return;
    weft_text_add(t, "measured %.4g s, %.2f of the prediction%s\n", measured,
                  measured / a->step_s,
                  measured > a->hi ? ": slower than it should be; weft trace diff shows "
                                     "where"
                  : measured < a->lo ? ": faster than predicted; weft cluster calibrate "
                                       "--from TRACE corrects the cluster"
                                     : ": as expected");
}

/* Only a plan that is more than 1 % shorter is worth a change. */
static void put_better(const weft_planner_answer *a, const weft_planner_answer *best,
                       weft_text *t)
{
    if (!best || best->step_s > 0.99 * a->step_s) {
        weft_text_add(t, "no plan for these machines is known to be faster\n");
        return;
    }
    weft_text_add(t, "faster by %.1f %%: ", 100 * (a->step_s / best->step_s - 1));
    weft_planner_print_line(best, t);
    weft_text_add(t, "\n");
}

static void put_answer(const weft_cli_own_check *o, const weft_planner_answer *a,
                       const weft_planner_answer *best, weft_text *t)
{
    const weft_planner_tried *x = a->tried[0];
    weft_text_add(t, "read: weft, %s, batch of %lld", o->model, (long long)o->batch);
    if (o->seq) weft_text_add(t, " x %lld tokens", (long long)o->seq);
    weft_text_add(t, ": ");
    weft_planner_print_line(a, t);
    weft_text_add(t, "\nfits: %.4g of %.4g GB on the fullest device (rank %d, %s)\n",
                  1e-9 * (double)x->mem_bytes, 1e-9 * (double)x->mem_limit, x->fullest,
                  x->device);
    weft_text_add(t, "step %.4g s (90 %%: %.4g to %.4g): compute %.4g, update %.4g, ",
                  a->step_s, a->lo, a->hi, x->time.compute_s, x->time.update_s);
    weft_text_add(t, "communication %.4g, idle %.4g\n", x->time.comm_s, x->time.idle_s);
    put_measured(o->measured_s, a, t);
    put_better(a, best, t);
}

static void put_json(const weft_cli_own_check *o, const weft_planner_answer *a,
                     const weft_planner_answer *best, weft_text *t)
{
    const weft_planner_tried *x = a->tried[0];
    weft_text_add(t,
                  "{\"fits\": true, \"mem_bytes\": %lld, \"mem_limit\": %lld, "
                  "\"step_s\": %.6g, \"step_lo\": %.6g, \"step_hi\": %.6g, ",
                  (long long)x->mem_bytes, (long long)x->mem_limit, a->step_s, a->lo,
                  a->hi);
    weft_text_add(t,
                  "\"compute_s\": %.6g, \"update_s\": %.6g, \"comm_s\": %.6g, "
                  "\"idle_s\": %.6g, \"best_step_s\": %.6g",
                  x->time.compute_s, x->time.update_s, x->time.comm_s, x->time.idle_s,
                  best ? best->step_s : a->step_s);
    if (o->measured_s > 0) weft_text_add(t, ", \"measured_s\": %.6g", o->measured_s);
    weft_text_add(t, "}\n");
}

static void put_no_fit(const weft_cli_own_check *o, weft_text *t)
{
    if (!o->json) weft_text_add(t, "DOES NOT FIT: %s\n", weft_error_text());
    if (!o->json) return;
    weft_text_add(t, "{\"fits\": false, \"why\": ");
    weft_text_put_quoted(t, weft_error_text());
    weft_text_add(t, "}\n");
}

weft_status weft_cli_check_own(const weft_cli_own_check *o, bool *fits, weft_text *out)
{
    own_request          r = {.arena = NULL};
    weft_planner_answer *a = NULL, *best = NULL;
    weft_text            line = {0};
    weft_status          st   = WEFT_OK;
    WEFT_GO(open_request(o, &r));
    weft_planner_request any = r.q; /* without constraints */
    WEFT_GO(read_words(&r, o->words));
    if (weft_search_given(&r.q.constraints, WEFT_KEY_offload) < 0) /* with these keys */
        weft_search_fix(&r.q.constraints, WEFT_KEY_offload, WEFT_OFFLOAD_NONE);
    if (!o->json) weft_planner_print_never_ran(r.cluster, &line);
    if (line.n) weft_text_add(out, "%s\n", line.s);
    st    = weft_planner_plan(&r.q, &a);
    *fits = st == WEFT_OK;
    if (st == WEFT_ERR_NOFIT) {
        put_no_fit(o, out);
        st = WEFT_OK;
        goto out;
    }
    if (st != WEFT_OK) goto out;
    if (weft_planner_plan(&any, &best) != WEFT_OK) best = NULL;
    if (o->json)
        put_json(o, a, best, out);
    else
        put_answer(o, a, best, out);
    WEFT_GO(weft_text_status(out));
out:
    weft_text_fini(&line);
    weft_planner_destroy(a);
    weft_planner_destroy(best);
    close_request(&r);
    return st;
}
