/* Ranks of a choice onto devices: traffic from the rows of cost, kinds of devices from the
 * search. */
#include "planner/placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- stages ---- */

weft_status weft_planner_stages(const weft_search_problem *p, const weft_search_choice *x,
                                weft_arena *a, weft_cost_stage **out)
{
    weft_cost_table   t = p->model.shape;
    int               n = p->machines->n;
    weft_cost_point   q = x->point;
    weft_device_kind *d = WEFT_ARENA_ARRAY(a, weft_device_kind, n);
    weft_cost_fabric *f = WEFT_ARENA_ARRAY(a, weft_cost_fabric, n);
    weft_cost_row    *r = WEFT_ARENA_ARRAY(a, weft_cost_row, n * t.n_class);
    weft_cost_stage  *g = WEFT_ARENA_ARRAY(a, weft_cost_stage, q.pp);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++) {
        d[i] = p->machines->kind[i].device;
        f[i] = p->machines->kind[i].fabric;
    }
    for (int i = 0; i < n; i++)
        p->model.fill(p->model.arg, &t.engine, &x->variant, &d[i], &f[i],
                      r + i * t.n_class);
    t.n_variant = 1;
    t.variant   = &x->variant;
    t.n_device  = n;
    t.device    = d;
    t.fabric    = f;
    t.row       = r;
    q.variant   = 0;
    weft_cost_score_stages(&t, &q, g);
    *out = g;
    return WEFT_OK;
}

/* ---- mesh ---- */

static double over(double n)
{
    return n > 1 ? (n - 1) / n : 0;
}

/* The mesh of a choice with its traffic; where experts do not divide the replicas their traffic
 * counts as replicas' own. */
static weft_place_mesh make_mesh(const weft_search_problem *p,
                                 const weft_search_choice  *x,
                                 const weft_cost_stage     *stage)
{
    const weft_cost_variant *v  = &x->variant;
    const weft_cost_table   *t  = &p->model.shape;
    bool                     in = v->ep > 1 && x->point.dp % v->ep == 0;
    weft_place_mesh          m  = {{x->point.pp, in ? x->point.dp / v->ep : x->point.dp,
                          in ? v->ep : 1, v->cp, v->tp},
                                   {0}};
    double                   n_micro = x->point.n_micro, n = x->point.dp * v->cp;
    for (int s = 0; s < x->point.pp; s++) {
        const weft_cost_stage *g    = &stage[s];
        double                 back = g->n_param * t->grad_bytes * over(n);
        double                 out  = g->n_param * t->param_bytes * over(n);
        double dp              = x->point.zero < 3 ? back + (x->point.zero ? out : back)
                                                   : n_micro * (back + 2 * out);
        double ep              = n_micro * g->wire_bytes[WEFT_COST_EP];
        m.bytes[WEFT_PLACE_DP] = fmax(m.bytes[WEFT_PLACE_DP], in ? dp : dp + ep);
        m.bytes[WEFT_PLACE_EP] = fmax(m.bytes[WEFT_PLACE_EP], in ? ep : 0);
        m.bytes[WEFT_PLACE_TP] =
            fmax(m.bytes[WEFT_PLACE_TP], n_micro * g->wire_bytes[WEFT_COST_TP]);
        m.bytes[WEFT_PLACE_CP] =
            fmax(m.bytes[WEFT_PLACE_CP], n_micro * g->wire_bytes[WEFT_COST_CP]);
        if (x->point.pp > 1)
            m.bytes[WEFT_PLACE_PP] = fmax(m.bytes[WEFT_PLACE_PP],
                                          2 * n_micro * x->point.chunks * g->out_bytes);
    }
    return m;
}

/* ---- kinds of devices ---- */

/* The bit of each device's kind in the search; 0: not to be used. */
static void mark_kinds(const weft_search_machines *m, const weft_cluster *c,
                       uint8_t *kind)
{
    weft_device_run r;
    for (int at = 0; weft_cluster_next_run(c, &at, &r);)
        for (int k = 0; k < m->n && !r.cordoned; k++)
            if (m->kind[k].node == (int)(r.node - c->node) &&
                fabs(m->kind[k].speed - r.speed) <= 0 &&
                fabs(m->kind[k].link - r.link) <= 0)
                memset(kind + r.first, 1 << k, (size_t)r.n);
}

/* Devices of a kind in groups of tp that do not leave their node where they fit; what is over
 * comes last. */
static int list_kind(const weft_cluster *c, const uint8_t *kind, int k, int tp, int *list)
{
    int n = 0, n_over = 0, all = weft_cluster_count(c);
    int per = 0;
    for (int i = 0, e; i < all; i = e) { /* node by node */
        int node = weft_cluster_node(c, i, NULL), have = 0;
        for (e = i; e < all && weft_cluster_node(c, e, NULL) == node; e++)
            have += kind[e] >> k & 1;
        per      = e - i;
        int keep = tp > per || per % tp ? have : have / tp * tp;
        for (int d = i; d < e; d++)
            if (kind[d] >> k & 1) {
                if (keep-- > 0)
                    list[n++] = d;
                else
                    list[all - ++n_over] = d;
            }
    }
    for (int i = 0; i < n_over; i++) list[n + i] = list[all - 1 - i];
    return n + n_over;
}

/* Kinds that stages name, by the last stage that does. */
static int order_kinds(const weft_search_choice *x, int n_kind, int *order)
{
    int last[WEFT_COST_MAX_DEVICE], n = 0;
    for (int k = 0; k < n_kind; k++) {
        last[k] = -1;
        for (int s = 0; s < x->point.pp; s++)
            if (x->point.kinds[s] >> k & 1) last[k] = s;
        if (last[k] < 0) continue;
        int at = n++;
        for (; at > 0 && last[order[at - 1]] > last[k]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    return n;
}

/* The kind of device that place r of a stage lies on, where replicas have kinds of their own. */
static int kind_of(const weft_search_choice *x, int r)
{
    int k;
    weft_cost_deal_share(&x->point.deal, r / (x->variant.tp * x->variant.cp), &k);
    return x->point.deal.kind[k];
}

/* Devices as the search counted them out, stage by stage: of a stage of two kinds the one that
 * ends there is used up first. */
static weft_status deal_marked(const weft_search_choice *x, const weft_search_machines *m,
                               const weft_cluster *c, const uint8_t *kind, weft_arena *a,
                               int *device)
{
    int  per = x->variant.tp * x->variant.cp * x->point.dp, n = 0;
    int  have[WEFT_COST_MAX_DEVICE], at[WEFT_COST_MAX_DEVICE] = {0};
    int *list[WEFT_COST_MAX_DEVICE], order[WEFT_COST_MAX_DEVICE];
    int  n_order = order_kinds(x, m->n, order);
    for (int i = 0; i < n_order; i++) {
        list[i] = WEFT_ARENA_ARRAY(a, int, weft_cluster_count(c));
        WEFT_TRY(weft_arena_status(a));
        have[i] = list_kind(c, kind, order[i], x->variant.tp, list[i]);
    }
    for (int s = 0; s < x->point.pp && x->point.deal.n; s++)
        for (int r = 0; r < per; r++) { /* each replica on its kind */
            int i = 0, k = kind_of(x, r);
            while (order[i] != k) i++;
            if (at[i] == have[i])
                return WEFT_FAIL(WEFT_ERR_NOFIT, "cluster %s has too few %s", c->name,
                                 m->kind[k].device.name);
            device[n++] = list[i][at[i]++];
        }
    for (int s = 0; s < x->point.pp && !x->point.deal.n; s++) {
        int left = per;
        for (int i = 0; i < n_order; i++)
            while (left > 0 && x->point.kinds[s] >> order[i] & 1 && at[i] < have[i]) {
                device[n++] = list[i][at[i]++];
                left--;
            }
        if (left)
            return WEFT_FAIL(WEFT_ERR_NOFIT,
                             "stage %d needs %d devices of its kinds more than cluster "
                             "%s has",
                             s, left, c->name);
    }
    return WEFT_OK;
}

weft_status weft_planner_deal(const weft_search_problem *p, const weft_search_choice *x,
                              const weft_cluster *c, weft_arena *a, int *device)
{
    uint8_t *kind = WEFT_ARENA_ARRAY(a, uint8_t, weft_cluster_count(c));
    WEFT_TRY(weft_arena_status(a));
    mark_kinds(p->machines, c, kind);
    return deal_marked(x, p->machines, c, kind, a, device);
}

/* ---- a plan that there was ---- */

weft_status weft_planner_was_of(const weft_plan *p, weft_arena *a, weft_planner_was *out)
{
    static const char *const name[] = {"pp", "dp", "ep", "cp", "tp"};
    int                      n = weft_plan_world(p), last = 0;
    *out       = (weft_planner_was){.mesh = {{p->strategy.pp, 1, 1, 1, 1}, {0}}};
    int *other = WEFT_ARENA_ARRAY(a, int, n);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < p->n_axis; i++) {
        int k = WEFT_PLACE_N_MESH - 1;
        while (k > 0 && strcmp(name[k], p->axis[i].name) != 0) k--;
        if (k <= last)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "the plan before has axis %s, expected dp, ep, cp, tp in "
                             "this order",
                             p->axis[i].name);
        last              = k;
        out->mesh.size[k] = p->axis[i].size;
    }
    for (int r = 0; r < n; r++)
        other[r] = p->machines.n_device ? p->machines.device[r] : r;
    out->device = other;
    return WEFT_OK;
}

/* ---- placing ---- */

static weft_status place(const weft_cluster *c, const weft_planner_was *was,
                         const int *guess, weft_arena *a, weft_planner_placement *out)
{
    WEFT_TRY(weft_place_price(&out->job, c, guess, &out->plain));
    if (was) {
        int *old = WEFT_ARENA_ARRAY(a, int, weft_place_n_rank(&out->job));
        WEFT_TRY(weft_arena_status(a));
        WEFT_TRY(
            weft_place_inherit(&was->mesh, was->device, &out->mesh, c, old, &out->kept));
        if (out->kept)
            return weft_place_repair(&out->job, c, old, &out->p, &out->n_moved);
    }
    out->job.guess = guess;
    return weft_place_map(&out->job, c, &out->p);
}

/* The job: axes with their traffic, and on which kinds each rank may lie. */
static weft_status make_job(const weft_search_problem *p, const weft_search_choice *x,
                            const weft_cluster *c, weft_arena *a,
                            weft_planner_placement *out)
{
    weft_cost_stage *stage;
    memset(out, 0, sizeof *out);
    WEFT_TRY(weft_planner_stages(p, x, a, &stage));
    out->mesh  = make_mesh(p, x, stage);
    out->job   = weft_place_mesh_job(&out->mesh);
    int      n = weft_place_n_rank(&out->job), per = n / x->point.pp;
    uint8_t *kind = WEFT_ARENA_ARRAY(a, uint8_t, weft_cluster_count(c));
    uint8_t *may  = WEFT_ARENA_ARRAY(a, uint8_t, n);
    WEFT_TRY(weft_arena_status(a));
    mark_kinds(p->machines, c, kind);
    for (int r = 0; r < n; r++)
        may[r] = (uint8_t)(x->point.deal.n ? 1 << kind_of(x, r % per)
                                           : x->point.kinds[r / per]);
    out->job.may  = may;
    out->job.kind = kind;
    return WEFT_OK;
}

weft_status weft_planner_place(const weft_search_problem *p, const weft_search_choice *x,
                               const weft_cluster *c, const weft_planner_was *was,
                               weft_arena *a, weft_planner_placement *out)
{
    WEFT_TRY(make_job(p, x, c, a, out));
    int *list = WEFT_ARENA_ARRAY(a, int, weft_place_n_rank(&out->job));
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(deal_marked(x, p->machines, c, out->job.kind, a, list));
    return place(c, was, list, a, out);
}

weft_status weft_planner_place_on(const weft_search_problem *p,
                                  const weft_search_choice *x, const weft_cluster *c,
                                  const int *device, weft_arena *a,
                                  weft_planner_placement *out)
{
    WEFT_TRY(make_job(p, x, c, a, out));
    int n         = weft_place_n_rank(&out->job);
    out->p.n_rank = n;
    WEFT_TRY(weft_place_price(&out->job, c, device, &out->p.price));
    out->plain     = out->p.price;
    out->p.n_tried = 1;
    out->p.device  = malloc(sizeof *device * (size_t)n);
    if (!out->p.device) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a placement");
    memcpy(out->p.device, device, sizeof *device * (size_t)n);
    return WEFT_OK;
}

void weft_planner_placement_fini(weft_planner_placement *p)
{
    weft_placement_fini(&p->p);
}

weft_status weft_planner_placement_print(const weft_planner_placement *p,
                                         const weft_cluster *c, weft_text *t)
{
    WEFT_TRY(weft_place_print(&p->job, c, &p->p, t));
    if (p->kept)
        weft_text_add(t, "%d of %d ranks move, the others stay where they were\n",
                      p->n_moved, p->p.n_rank);
    return weft_text_status(t);
}
