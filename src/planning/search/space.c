/* What there is to choose from: lists of degrees, the table of rows (filled when first asked
 * for), orders of device kinds, and what no plan can beat. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "search/search_priv.h"

/* ---- lists ---- */

static int devices(const weft_search_problem *p)
{
    int n = 0;
    for (int i = 0; i < p->machines->n; i++)
        n += weft_search_usable(&p->machines->kind[i], 1);
    return n;
}

static weft_cost_variant plain(void)
{
    return (weft_cost_variant){.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
}

static void push(weft_search__list *l, int x)
{
    if (l->n < MAX_LIST) l->x[l->n++] = x;
}

/* Layers cut alike, or some of them left whole: by those alone only powers of two. */
static bool allows(const weft_search_problem *p, weft_cost_variant v)
{
    if (p->model.allows(p->model.arg, &v, NULL, 0)) return true;
    for (v.whole = 1; !(v.tp & (v.tp - 1)) && v.whole < p->model.n_whole; v.whole++)
        if (p->model.allows(p->model.arg, &v, NULL, 0)) return true;
    return false;
}

/* A degree's values: the constraint, or all up to `most` that the model allows; at: which field
 * of the variant. */
static weft_status list_degree(const weft_search_problem *p, weft_strategy_key key,
                               size_t at, int most, weft_search__list *out)
{
    char why[160];
    int  n = devices(p), pin = weft_search_given(&p->constraints, key);
    if (most > n) most = n;
    if (pin > 0) {
        weft_cost_variant v               = plain();
        *(int *)(void *)((char *)&v + at) = pin;
        bool alike = p->model.allows(p->model.arg, &v, why, sizeof why);
        if (!alike && (pin > most || !allows(p, v)))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s", why);
        if (pin > most && pin > 1)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                pin > n ? "%s=%d: the cluster has %d devices that may be used"
                        : "%s=%d: at most %d here, by the model and what the engine can "
                          "do",
                weft_strategy_rows[key].key, pin, most);
        push(out, pin);
        return WEFT_OK;
    }
    for (int x = 1; x <= most; x++) {
        weft_cost_variant v               = plain();
        *(int *)(void *)((char *)&v + at) = x;
        if (allows(p, v)) push(out, x);
    }
    return WEFT_OK;
}

/* Micro-batches: divisors of the batch, the closer the smaller. */
static weft_status list_micro(const weft_search_problem *p, weft_search__list *out)
{
    int pin = p->constraints.micro_batch;
    if (pin > 0) {
        if (p->batch % pin)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "micro_batch=%d does not divide the batch of %d", pin,
                             p->batch);
        push(out, pin);
        return WEFT_OK;
    }
    for (int x = 1; x <= p->batch && x <= p->model.max_micro; x++)
        if (p->batch % x == 0 && (!out->n || x >= 1.19 * out->x[out->n - 1]))
            push(out, x);
    return WEFT_OK;
}

static weft_status list_dp(const weft_search_problem *p, weft_arena *a,
                           weft_search__space *s)
{
    int pin = weft_search_given(&p->constraints, WEFT_KEY_dp), most = devices(p), cap = 0;
    if (pin > 0 && p->batch % pin && !weft_search__has_split(&p->constraints))
        return WEFT_FAIL(WEFT_ERR_ARG, "dp=%d does not divide the batch of %d", pin,
                         p->batch);
    if (pin > most)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "dp=%d: the cluster has %d devices that may be used", pin, most);
    for (int x = p->batch < most ? p->batch : most; x >= 1; x--) {
        if (p->batch % x || (pin > 0 && x != pin)) continue;
        WEFT_TRY(weft_arena_grow(a, (void **)&s->dp, &cap, s->n_dp + 1, sizeof *s->dp));
        s->dp[s->n_dp++] = x;
    }
    return WEFT_OK;
}

static weft_status check_whole(const weft_search_problem *p)
{
    const weft_search_model *m   = &p->model;
    const weft_strategy     *pin = &p->constraints.strategy;
    weft_text                all = {0}, name = {0};
    weft_status              st = WEFT_OK;
    if (!(p->constraints.given >> WEFT_KEY_tp_exclude & 1) || !pin->n_tp_exclude)
        return WEFT_OK;
    weft_layer_spans_print(pin->tp_exclude, pin->n_tp_exclude, &name);
    if (weft_search_given(&p->constraints, WEFT_KEY_tp) == 1)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                          "tp_exclude=%.60s with tp=1: it names what a tp of 2 or more "
                          "leaves replicated",
                          name.s ? name.s : ""));
    for (int i = 1; i < m->n_whole; i++) {
        if (weft_search__is_whole(m, i, pin)) goto out;
        weft_text_add(&all, "; ");
        weft_layer_spans_print(m->whole[i].span, m->whole[i].n_span, &all);
    }
    st = WEFT_FAIL(WEFT_ERR_ARG, "tp_exclude=%.60s: of this model there are: none%.400s",
                   name.s ? name.s : "", all.s ? all.s : "");
out:
    weft_text_fini(&all);
    weft_text_fini(&name);
    return st;
}

bool weft_search__is_whole(const weft_search_model *m, int i, const weft_strategy *y)
{
    return weft_layer_spans_equal(m->whole[i].span, m->whole[i].n_span, y->tp_exclude,
                                  y->n_tp_exclude);
}

/* What sizes and sharding are constrained to against what the engine can do. */
static weft_status check_sizes(const weft_search_problem *p, int n_layer)
{
    const weft_search_constraints *x    = &p->constraints;
    const weft_search_limits      *l    = &p->model.limits;
    int                            tp   = weft_search_given(x, WEFT_KEY_tp);
    int                            cp   = weft_search_given(x, WEFT_KEY_cp);
    int                            pp   = weft_search_given(x, WEFT_KEY_pp);
    int                            dp   = weft_search_given(x, WEFT_KEY_dp);
    int                            zero = weft_search_given(x, WEFT_KEY_zero);
    if (pp > 1 && !l->pp)
        return WEFT_FAIL(WEFT_ERR_ARG, "pp=%d: the engine has no words for stages", pp);
    if (pp > n_layer)
        return WEFT_FAIL(WEFT_ERR_ARG, "pp=%d: the model has %d layers", pp, n_layer);
    if (zero >= 0 && !(l->zero >> zero & 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "zero=%d: the engine has no such stage", zero);
    if (zero >= 0 && pp > 1 && !(l->zero_pp >> zero & 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "zero=%d with pp=%d: the engine does not do both",
                         zero, pp);
    if (zero == 0 && cp > 1 && l->cp_shards)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "zero=0 with cp=%d: the engine shards over context-parallel "
                         "ranks; take zero=3",
                         cp);
    /* tp and pp that are open, or more than 1, may be what a replica is shared over */
    int shards = tp == 1 && pp == 1 ? 1 : INT_MAX;
    if (dp > 0 && !weft_search_has_copies(x, dp, zero > 0 ? zero : 0, shards))
        return WEFT_FAIL(WEFT_ERR_ARG, "copies=%d: dp=%d %s",
                         weft_search_given(x, WEFT_KEY_copies), dp,
                         zero > 0
                             ? "is no multiple of it, and shards are over dp / copies"
                             : "has fewer replicas");
    if (weft_search_given(x, WEFT_KEY_sp) == 1 && (!l->sp || tp == 1))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         l->sp ? "sp=true shards sequences over tp, which is 1"
                               : "sp=true: the engine does not do it");
    return WEFT_OK;
}

static weft_status check_recompute(const weft_search_constraints *x,
                                   const weft_search_limits      *l)
{
    int again = weft_search_given(x, WEFT_KEY_recompute);
    if (again >= 0 && !(l->recompute >> again & 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "recompute=%s: the engine has no such mode%s",
                         weft_cost_recompute_name(again),
                         again == WEFT_RECOMPUTE_LIGHT
                             ? "; of our own, selective is norms and activations"
                             : "");
    if (x->recompute_layers > 0 &&
        (!l->partial || (again >= 0 && again != WEFT_RECOMPUTE_FULL)))
        return WEFT_FAIL(WEFT_ERR_ARG, "recompute_layers=%d: %s", x->recompute_layers,
                         l->partial ? "layers that run again do so with recompute=full"
                                    : "the engine runs all layers again or none");
    return WEFT_OK;
}

static weft_status check_schedule(const weft_search_constraints *x,
                                  const weft_search_limits      *l)
{
    int pp       = weft_search_given(x, WEFT_KEY_pp);
    int schedule = weft_search_given(x, WEFT_KEY_schedule);
    int chunks   = weft_search_given(x, WEFT_KEY_chunks);
    if (schedule == WEFT_STRATEGY_INTERLEAVED) {
        if (!l->chunks || pp == 1 || chunks == 1)
            return WEFT_FAIL(WEFT_ERR_ARG, "schedule=interleaved: %s",
                             !l->chunks ? "the engine does not interleave stages"
                             : pp == 1  ? "a single stage is not interleaved, pp is 1"
                                        : "it takes at least 2 chunks");
    } else if (schedule >= 0 && !(l->schedules >> schedule & 1)) {
        return WEFT_FAIL(WEFT_ERR_ARG, "the engine has no such schedule");
    }
    if (chunks > 1 && schedule >= 0 && schedule != WEFT_STRATEGY_INTERLEAVED)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "chunks=%d goes with schedule=interleaved: the other schedules "
                         "have one chunk a stage",
                         chunks);
    if (weft_search__has_split(x) && !l->shares)
        return WEFT_FAIL(WEFT_ERR_ARG, "batch_split: the engine has equal ones only");
    if (chunks > 1 && (!l->chunks || pp == 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "chunks=%d: %s", chunks,
                         l->chunks ? "a single stage is not interleaved"
                                   : "the engine does not interleave stages");
    return WEFT_OK;
}

static weft_status check_constraints(const weft_search_problem *p, int n_layer)
{
    const weft_search_constraints *x   = &p->constraints;
    int                            sum = 0;
    WEFT_TRY(check_sizes(p, n_layer));
    WEFT_TRY(check_recompute(x, &p->model.limits));
    WEFT_TRY(check_schedule(x, &p->model.limits));
    WEFT_TRY(check_whole(p));
    for (int i = 0; x->cut && i < weft_search_given(x, WEFT_KEY_pp); i++)
        sum += x->cut[i];
    if (x->cut && sum != n_layer)
        return WEFT_FAIL(WEFT_ERR_ARG, "stages hold %d layers, but the model has %d", sum,
                         n_layer);
    return weft_search__check_on(x, n_layer);
}

/* ---- rows ---- */

static weft_status make_table(const weft_search_problem *p, weft_arena *a,
                              weft_search__space *s)
{
    weft_cost_table *t = &s->t;
    *t                 = p->model.shape;
    t->copies          = weft_search_given(&p->constraints, WEFT_KEY_copies);
    t->standby         = weft_search_given(&p->constraints, WEFT_KEY_standby);
    t->n_variant       = s->tp.n * s->cp.n * s->ep.n * weft_search__ways(s) * s->micro.n *
                   WEFT_RECOMPUTE_N;
    if (p->model.n_whole > 1) t->n_variant++; /* the last is put together of others */
    t->n_device = p->machines->n;
    t->device   = s->device;
    t->fabric   = s->fabric;
    for (int i = 0; i < t->n_device; i++) {
        s->device[i] = p->machines->kind[i].device;
        s->fabric[i] = p->machines->kind[i].fabric;
    }
    int n_row  = t->n_device * t->n_variant;
    s->variant = WEFT_ARENA_ARRAY(a, weft_cost_variant, t->n_variant);
    s->row     = WEFT_ARENA_ARRAY(a, weft_cost_row, (size_t)n_row * (size_t)t->n_class);
    s->whole_s = WEFT_ARENA_ARRAY(a, double, n_row);
    s->seam_s  = WEFT_ARENA_ARRAY(a, double, n_row);
    s->filled  = WEFT_ARENA_ARRAY(a, bool, t->n_variant);
    s->whole   = WEFT_ARENA_ARRAY(a, bool, t->n_variant);
    t->variant = s->variant;
    t->row     = s->row;
    return weft_arena_status(a);
}

static double whole(const weft_cost_table *t, const weft_cost_row *r)
{
    double sum = 0;
    for (int i = 0; i < t->n_segment; i++) {
        const weft_cost_row *x = &r[t->segment[i].layer_class];
        sum += t->segment[i].count * (x->fwd_s + x->bwd_s);
    }
    if (t->first >= 0) sum += r[t->first].fwd_s + r[t->first].bwd_s;
    if (t->last >= 0) sum += r[t->last].fwd_s + r[t->last].bwd_s;
    return sum;
}

/* Work that is not fused across the seam of two stages may take less than the whole: measured
 * times say so. */
static double seam(const weft_cost_table *t, const weft_cost_row *r)
{
    double least = 0;
    for (int i = 0; i < t->n_segment; i++) {
        const weft_cost_program_row *x = r[t->segment[i].layer_class].of;
        if (!x) continue; /* rows of sizes know of none */
        least =
            fmin(least, x->end.fwd_s + x->end.bwd_s + x->begin.fwd_s + x->begin.bwd_s);
    }
    return least;
}

double weft_search__whole(const weft_search__space *s, int device, int variant, int pp)
{
    int at = device * s->t.n_variant + variant;
    return fmax(0, s->whole_s[at] + (pp > 1 ? (s->n_layer - 1) * s->seam_s[at] : 0));
}

void weft_search__sum_up(weft_search__space *s, int variant)
{
    const weft_cost_row *r = s->row + (int64_t)variant * s->t.n_class;
    s->whole_s[variant]    = whole(&s->t, r);
    s->seam_s[variant]     = seam(&s->t, r);
}

static void fill(const weft_search__space *s, const weft_cost_engine *e,
                 const weft_cost_variant *v, int d, weft_cost_row *row)
{
    const weft_search_model *m = &s->p->model;
    (m->glance ? m->glance : m->fill)(m->arg, e, v, &s->device[d], &s->fabric[d], row);
}

int weft_search__ways(const weft_search__space *s)
{
    int n = s->p->model.n_whole;
    return n > 1 ? n + 1 : 2;
}

void weft_search__set_way(weft_cost_variant *v, int way)
{
    v->sp    = way == 1;
    v->whole = way > 1 ? way - 1 : 0;
}

static int number_of(const weft_search__space *s, int tp, int cp, int ep, int way,
                     int micro, int again)
{
    int n_way = weft_search__ways(s), i = (tp * s->cp.n + cp) * s->ep.n + ep;
    return ((i * n_way + way) * s->micro.n + micro) * WEFT_RECOMPUTE_N + again;
}

bool weft_search__filled(const weft_search__space *s, int tp, int cp, int ep, int way,
                         int micro, int again)
{
    return s->filled[number_of(s, tp, cp, ep, way, micro, again)];
}

int weft_search__variant(weft_search__space *s, int tp, int cp, int ep, int way,
                         int micro, int again)
{
    int i = number_of(s, tp, cp, ep, way, micro, again);
    if (s->filled[i]) return i;
    weft_cost_variant *v = &s->variant[i];
    *v                   = (weft_cost_variant){.tp          = s->tp.x[tp],
                                               .cp          = s->cp.x[cp],
                                               .ep          = s->ep.x[ep],
                                               .micro_batch = s->micro.x[micro],
                                               .recompute   = (weft_cost_recompute)again};
    weft_search__set_way(v, way);
    for (int d = 0; d < s->t.n_device; d++) {
        int            at = d * s->t.n_variant + i;
        weft_cost_row *r  = s->row + (int64_t)at * s->t.n_class;
        fill(s, &s->t.engine, v, d, r);
        s->whole_s[at] = whole(&s->t, r);
        s->seam_s[at]  = seam(&s->t, r);
    }
    s->filled[i] = true;
    if (v->whole) s->n_unlike++;
    return i;
}

void weft_search__ready(weft_search__space *s, int variant)
{
    const weft_search_model *m = &s->p->model;
    if (s->whole[variant]) return;
    for (int d = 0; d < s->t.n_device && m->glance; d++)
        m->fill(m->arg, &s->t.engine, &s->variant[variant], &s->device[d], &s->fabric[d],
                s->row + ((int64_t)d * s->t.n_variant + variant) * (int64_t)s->t.n_class);
    s->whole[variant] = true;
}

/* Cutting makes products smaller and adds traffic: no way to cut a layer needs fewer
 * device-seconds. */
static double uncut(const weft_search__space *s, int d, int micro_batch, int again,
                    weft_cost_row *row)
{
    weft_cost_engine  e    = s->t.engine;
    weft_cost_variant v    = plain();
    double            best = INFINITY;
    e.host_op_s = e.host_coll_s = e.host_moe_s = 0;
    e.tp_exposed = e.cp_exposed = e.ep_exposed = 0;
    v.micro_batch                              = micro_batch;
    v.recompute                                = (weft_cost_recompute)again;
    for (int i = 0; i < s->ep.n; i++) {
        v.ep = s->ep.x[i];
        fill(s, &e, &v, d, row);
        best = fmin(best, whole(&s->t, row));
    }
    return best;
}

double weft_search__floor(weft_search__space *s, int micro, int again)
{
    double *x = &s->floor_s[micro][again];
    if (*x <= 0) *x = uncut(s, 0, s->micro.x[micro], again, s->spare);
    return *x;
}

/* The same where times were measured: the least of all ways to cut and all micro-batches, by
 * their rows. */
static void find_least(weft_search__space *s)
{
    const weft_search_model *m = &s->p->model;
    for (int d = 0; d < s->t.n_device; d++) s->ideal_s[d] = INFINITY;
    int ways = weft_search__ways(s);
    for (int i = 0; i < s->tp.n * s->cp.n * s->ep.n * ways * s->micro.n; i++) {
        int               micro = i % s->micro.n, rest = i / s->micro.n / ways;
        int               way = i / s->micro.n % ways, ep = rest % s->ep.n;
        int               cp = rest / s->ep.n % s->cp.n, tp = rest / s->ep.n / s->cp.n;
        weft_cost_variant v = {
            .tp = s->tp.x[tp], .cp = s->cp.x[cp], .ep = s->ep.x[ep], .micro_batch = 1};
        weft_search__set_way(&v, way);
        if ((way && v.tp < 2) || (v.sp && !m->limits.sp)) continue;
        if (v.whole && (v.ep > 1 || s->micro.x[micro] % v.tp)) continue;
        if (!m->allows(m->arg, &v, NULL, 0)) continue;
        int at = weft_search__variant(s, tp, cp, ep, way, micro, WEFT_RECOMPUTE_NONE);
        for (int d = 0; d < s->t.n_device; d++)
            s->ideal_s[d] =
                fmin(s->ideal_s[d], weft_search__whole(s, d, at, m->limits.pp ? 2 : 1) *
                                        v.tp * v.cp / s->micro.x[micro]);
    }
}

/* A unit of the batch on one device when nothing is cut, nothing is waited for and the host costs
 * nothing, in the
 * largest micro-batch: cutting makes products smaller and adds traffic, so that no plan needs fewer
 * device-seconds. */
static weft_status find_ideal(weft_search__space *s, weft_arena *a)
{
    int largest = s->micro.x[s->micro.n - 1];
    s->spare    = WEFT_ARENA_ARRAY(a, weft_cost_row, s->t.n_class);
    WEFT_TRY(weft_arena_status(a));
    if (s->p->model.measured) find_least(s);
    s->n_unlike = 0;
    for (int d = 0; d < s->t.n_device; d++) {
        if (!s->p->model.measured)
            s->ideal_s[d] = uncut(s, d, largest, WEFT_RECOMPUTE_NONE, s->spare) / largest;
        if (!isfinite(s->ideal_s[d]) || !(s->ideal_s[d] > 0))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s has no peak for the precision asked for",
                             s->device[d].name);
    }
    return WEFT_OK;
}

/* ---- orders of kinds ---- */

static void put_order(weft_search__space *s, const weft_search__order *o)
{
    for (int whole_stages = 0; whole_stages < (o->n > 1 ? 2 : 1); whole_stages++)
        if (s->n_order < MAX_ORDER) {
            s->order[s->n_order]         = *o;
            s->order[s->n_order++].whole = whole_stages;
        }
}

static void add_orders(weft_search__space *s, weft_search__order *o, unsigned used)
{
    if (o->n == s->t.n_device) put_order(s, o);
    for (int k = 0; k < s->t.n_device; k++) {
        if (used >> k & 1) continue;
        o->kind[o->n++] = k;
        add_orders(s, o, used | 1u << k);
        o->n--;
    }
}

/* Of three kinds and more only: by speed and by memory, up and down.  The order decides what the
 * ends and the fullest stages lie on, and little else. */
static void add_some_orders(weft_search__space *s)
{
    int n = s->t.n_device;
    for (int by = 0; by < 4; by++) {
        weft_search__order o = {.n = n};
        for (int k = 0; k < n; k++) {
            int    at = k;
            double x  = by < 2 ? s->ideal_s[k] : (double)s->device[k].mem_bytes;
            for (; at > 0; at--) {
                int    q = o.kind[at - 1];
                double y = by < 2 ? s->ideal_s[q] : (double)s->device[q].mem_bytes;
                if (by % 2 ? y >= x : y <= x) break;
                o.kind[at] = q;
            }
            o.kind[at] = k;
        }
        put_order(s, &o);
    }
}

int weft_search__stages(const weft_search__space *s, const weft_search__order *o, int tp,
                        int S, int pp, uint8_t *kinds)
{
    int at = 0, have = 0; /* devices of the stage that is being filled */
    for (int i = 0; i < o->n; i++) {
        int k    = o->kind[i];
        int left = weft_search_usable(&s->p->machines->kind[k], tp);
        if (o->whole) {
            have = 0;
            if (left < S) continue;
        }
        while (left > 0 && (!kinds || at < pp)) {
            int take = S - have < left ? S - have : left;
            if (kinds) kinds[at] = (uint8_t)(have ? kinds[at] | 1 << k : 1 << k);
            have += take;
            left -= take;
            if (have < S) break;
            have = 0;
            at++;
        }
        if (kinds && at >= pp) break;
    }
    return at;
}

/* ---- all of it ---- */

weft_status weft_search__space_init(const weft_search_problem *p, weft_arena *a,
                                    weft_search__space *s)
{
    const weft_search_model *m = &p->model;
    memset(s, 0, sizeof *s);
    s->p = p;
    for (int i = 0; i < m->shape.n_segment; i++) s->n_layer += m->shape.segment[i].count;
    if (p->batch < 1) return WEFT_FAIL(WEFT_ERR_ARG, "a batch of %d", p->batch);
    WEFT_TRY(check_constraints(p, s->n_layer));
    WEFT_TRY(
        list_degree(p, WEFT_KEY_tp, offsetof(weft_cost_variant, tp), m->max_tp, &s->tp));
    WEFT_TRY(
        list_degree(p, WEFT_KEY_cp, offsetof(weft_cost_variant, cp), m->max_cp, &s->cp));
    WEFT_TRY(
        list_degree(p, WEFT_KEY_ep, offsetof(weft_cost_variant, ep), m->max_ep, &s->ep));
    WEFT_TRY(list_micro(p, &s->micro));
    WEFT_TRY(list_dp(p, a, s));
    WEFT_TRY(make_table(p, a, s));
    WEFT_TRY(find_ideal(s, a));
    if (s->t.n_device <= 2)
        add_orders(s, &(weft_search__order){0}, 0);
    else
        add_some_orders(s);
    return WEFT_OK;
}
