/* In words: why a plan lost, what is wrong when none fits. */
#include <string.h>

#include "search/search_priv.h"

typedef struct term {
    const char *name;
    double      a, b;
} term;

/* ---- why b lost against a ---- */

static const char *cause(const char *name, const weft_search_choice *b,
                         const weft_search_machines *m)
{
    const weft_cost_variant *v      = &b->variant;
    int                      domain = m->kind[0].fabric.domain;
    if (!strcmp(name, "waiting for wires")) {
        if (v->tp > domain) return ": its tensor groups leave the fast domain";
        if (v->ep > domain) return ": its experts are spread over several nodes";
        if (v->cp > 1 && v->tp * v->cp > domain)
            return ": its context groups leave the node";
        return v->tp > 1 ? ": tensor groups sum after every block" : "";
    }
    if (!strcmp(name, "pipeline idle"))
        return b->point.n_micro < 4 * b->point.pp ? ": few micro-batches for its stages"
                                                  : "";
    if (!strcmp(name, "compute again")) return ": it has to run layers again to fit";
    if (!strcmp(name, "gradients, weights"))
        return b->point.zero > 2 ? ": weights are gathered layer by layer"
                                 : ": large parameters are summed over many replicas";
    if (!strcmp(name, "compute"))
        return b->point.pp < 2      ? ": smaller products on each device"
               : v->micro_batch < 2 ? ": smaller products, or stages that do not divide"
                                    : ": stages that do not divide evenly";
    return "";
}

void weft_search__why(const weft_search_choice *a, const weft_search_choice *b,
                      const weft_search_machines *m, weft_text *t)
{
    const weft_cost_score *x = &a->score, *y = &b->score;
    weft_cost_part         ours[WEFT_COST_N_TIME], theirs[WEFT_COST_N_TIME];
    term                   terms[WEFT_COST_N_TIME];
    int                    worst = 0, gain = 0;
    weft_cost_time_parts(x, ours);
    weft_cost_time_parts(y, theirs);
    for (int i = 0; i < WEFT_COST_N_TIME; i++) {
        terms[i] = (term){ours[i].name, ours[i].x, theirs[i].x};
        if (terms[i].b - terms[i].a > terms[worst].b - terms[worst].a) worst = i;
        if (terms[i].b - terms[i].a < terms[gain].b - terms[gain].a) gain = i;
    }
    const term *w = &terms[worst], *g = &terms[gain];
    int64_t     na = weft_search_ranks(a);
    int64_t     nb = weft_search_ranks(b);
    weft_text_add(t, "%.1f %% slower: ", 100 * (y->step_s / x->step_s - 1));
    if (nb < na)
        weft_text_add(t, "it can use %lld devices only, not %lld; ", (long long)nb,
                      (long long)na);
    weft_text_add(t, "%.3g s more %s%s", w->b - w->a, w->name, cause(w->name, b, m));
    if (g->a - g->b > 0.25 * (w->b - w->a))
        weft_text_add(t, "; %.3g s less %s does not make up for it", g->a - g->b,
                      g->name);
}

/* ---- nothing fits ---- */

static int helps_devices(const weft_search_problem *p)
{
    for (int by = 2; by <= 64; by *= 2) {
        weft_search_machines m = *p->machines;
        weft_search_problem  q = *p;
        for (int i = 0; i < m.n; i++) {
            m.kind[i].device.rate = m.kind[i].rate;
            m.kind[i].n_node *= by;
        }
        q.machines = &m;
        if (weft_search__any(&q)) return by;
    }
    return 0;
}

/* The first constraint without which something fits. */
static const char *helping_constraint(const weft_search_problem *p)
{
    static const char *const name[] = {"zero", "recompute", "micro_batch", "sp", "pp",
                                       "tp",   "cp",        "ep",          "dp"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        weft_search_problem q = *p;
        if (weft_search_release(&q.constraints, name[i]) && weft_search__any(&q))
            return name[i];
    }
    return NULL;
}

weft_status weft_search__nofit(const weft_search_problem *p, const weft_search_choice *x)
{
    const weft_cost_score *s = &x->score;
    weft_cost_part         part[WEFT_COST_N_MEMORY];
    int                    most = 0;
    weft_text              t    = {0};
    weft_cost_memory_parts(s, part);
    for (int i = 1; i < WEFT_COST_N_MEMORY; i++)
        if (part[i].x > part[most].x) most = i;
    weft_search_print_choice(x, &t);
    weft_text_add(&t, " needs %.1f GB of %.1f on stage %d, most of it %s (%.1f GB)",
                  s->mem_bytes / 1e9, s->mem_limit / 1e9, s->tightest, part[most].name,
                  part[most].x / 1e9);
    const char *pin = helping_constraint(p);
    int         by  = pin ? 0 : helps_devices(p);
    if (pin)
        weft_text_add(&t, "; without the constraint on %s there are plans that fit", pin);
    else if (by)
        weft_text_add(&t, "; %d times as many devices would do", by);
    weft_text_add(
        &t, "%s devices with %.0f %% more memory%s", pin || by ? ", or" : "; it takes",
        100 * (s->mem_bytes / s->mem_limit - 1) + 1,
        s->keep_bytes > s->weight_bytes + s->state_bytes ? ", or shorter sequences" : "");
    weft_status st =
        WEFT_FAIL(WEFT_ERR_NOFIT, "nothing fits: the closest plan, %s", t.s ? t.s : "?");
    weft_text_fini(&t);
    return st;
}
