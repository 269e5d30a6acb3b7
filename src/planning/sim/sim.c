/* Prices every instruction once, walks the firings (program/walk.h) and keeps what ran when. */
#include "sim/sim_priv.h"

#include "cost/cost.h"
#include "program/walk.h"

typedef struct run {
    weft_timeline *t;
    bool           no_slices;
    double         total_s, first_s; /* ends of all steps, of the first */
} run;

static weft_status ran(void *user, const weft_slice *s)
{
    run *r = user;
    if (s->end_s > r->total_s) r->total_s = s->end_s;
    if (s->step == 0 && s->end_s > r->first_s) r->first_s = s->end_s;
    return r->no_slices ? WEFT_OK : weft_timeline_add(r->t, s);
}

static weft_status price(const weft_program *p, const weft_cluster *c, weft_arena *a,
                         double **seconds)
{
    if (c) return weft_cost_program(p, c, a, seconds);
    double *list = WEFT_ARENA_ARRAY(a, double, weft_program_n_instr(p));
    if (!list) return weft_arena_status(a);
    for (int k = 0, n = 0; k < p->n_actor; k++)
        for (int m = 0; m < p->actor[k].n_instr; m++, n++) {
            const weft_instr *i = &p->actor[k].instr[m];
            list[n]             = i->seconds;
            if (i->seconds < 0 && !weft_instr_is_free(i))
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "program %s, %s '%s' states no seconds, and there is no cluster to "
                    "price it on",
                    p->name, weft_instr_kind_name(i->kind), i->name);
            if (list[n] < 0) list[n] = 0;
        }
    *seconds = list;
    return WEFT_OK;
}

bool weft_sim__crowded(const weft_cluster *c)
{
    for (int i = 0; c && i < c->n_node; i++)
        if (c->node[i].n_oversubscription) return true;
    return false;
}

/* Which ranks share a host, and how they slow each other down. */
static weft_status share_hosts(const weft_program *const *p, int n, const weft_cluster *c,
                               weft_arena *a, weft_walk_options *o)
{
    if (!weft_sim__crowded(c)) return WEFT_OK;
    int             n_host = weft_cluster_n_node(c), place;
    weft_walk_host *host   = WEFT_ARENA_ARRAY(a, weft_walk_host, n_host + 1);
    int            *of     = WEFT_ARENA_ARRAY(a, int, n);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < c->n_node; i++)
        for (int k = 0; k < c->node[i].count; k++)
            host[c->node[i].first_node + k] = (weft_walk_host){
                c->node[i].n_oversubscription, c->node[i].oversubscription};
    for (int i = 0; i < n; i++) of[i] = weft_cluster_node(c, p[i]->rank, &place);
    o->n_host  = n_host;
    o->host    = host;
    o->host_of = of;
    return WEFT_OK;
}

weft_status weft_sim__run(const weft_program *const *real,
                          const weft_program *const *walked, int n, const weft_cluster *c,
                          const weft_sim_options *o, weft_timeline **out)
{
    run               r    = {0};
    weft_walk_options walk = {
        .n_step = o && o->n_step ? o->n_step : 2, .visit = ran, .user = &r};
    weft_status st = WEFT_OK;
    r.no_slices    = o && o->no_slices;
    WEFT_TRY(weft_timeline_create("predicted", real, n, &r.t));
    double **seconds = WEFT_ARENA_ARRAY(r.t->arena, double *, n);
    WEFT_GO(weft_arena_status(r.t->arena));
    for (int i = 0; i < n; i++) WEFT_GO(price(real[i], c, r.t->arena, &seconds[i]));
    walk.seconds = (const double *const *)seconds;
    WEFT_GO(share_hosts(real, n, c, r.t->arena, &walk));
    WEFT_GO(weft_program_walk(walked, n, &walk));
    r.t->n_step  = walk.n_step;
    r.t->total_s = r.t->step_s = r.total_s;
    if (walk.n_step > 1) r.t->step_s = (r.total_s - r.first_s) / (walk.n_step - 1);
    *out = r.t;
    return WEFT_OK;
out:
    weft_timeline_destroy(r.t);
    return st;
}
