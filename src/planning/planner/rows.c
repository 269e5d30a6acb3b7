/* A model to search over whose rows are asked of its graph. */
#include "planner/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/rows_priv.h"

typedef weft_planner__rows rows;

/* ---- rows of classes ---- */

weft_cost_row *weft_planner__new_rows(weft_arena *a, int n)
{
    weft_cost_row         *r  = WEFT_ARENA_ARRAY(a, weft_cost_row, n);
    weft_cost_program_row *of = WEFT_ARENA_ARRAY(a, weft_cost_program_row, n);
    for (int k = 0; r && of && k < n; k++) r[k].of = &of[k];
    return of ? r : NULL;
}

void weft_planner__copy_row(weft_cost_row *to, const weft_cost_row *from)
{
    weft_cost_program_row *of = to->of;
    *of                       = *from->of;
    *to                       = *from;
    to->of                    = of;
}

static void add(weft_cost_row *to, const weft_cost_row *x, double sign)
{
    to->fwd_s += sign * x->fwd_s;
    to->bwd_s += sign * x->bwd_s;
    to->comm_s += sign * x->comm_s;
    to->keep_bytes += sign * x->keep_bytes;
    to->n_param += sign * x->n_param;
    to->n_expert_param += sign * x->n_expert_param;
    for (int k = 0; k < WEFT_COST_N_TRAFFIC; k++)
        to->wire_bytes[k] += sign * x->wire_bytes[k];
    double       *a = (double *)(void *)to->of; /* nothing but doubles */
    const double *b = (const double *)(const void *)x->of;
    for (size_t i = 0; i < sizeof *to->of / sizeof *a; i++) a[i] += sign * b[i];
}

/* A single run: what its ends have more than the layers between goes to the input side and the
 * head, which are always with them. */
static bool is_folded(const rows *x)
{
    return x->n_run == 1 && x->run[0].count > WEFT_PLANNER__KEEP && !x->each;
}

/* What is no sum: as much as x has, and at least so much. */
static void take_most(weft_cost_row *to, const weft_cost_row *x, bool at_least)
{
    weft_cost_program_row *o = to->of;
    if (!at_least) {
        to->work_bytes = o->peak_bytes = o->split_bytes = o->fetched_bytes = 0;
        o->grad_bytes                                                      = 0;
    }
    to->work_bytes   = fmax(to->work_bytes, x->work_bytes);
    o->peak_bytes    = fmax(o->peak_bytes, x->of->peak_bytes);
    o->split_bytes   = fmax(o->split_bytes, x->of->split_bytes);
    o->fetched_bytes = fmax(o->fetched_bytes, x->of->fetched_bytes);
    o->grad_bytes    = fmax(o->grad_bytes, x->of->grad_bytes);
}

static void compose(const rows *x, const weft_cost_row *layer, weft_cost_row *out)
{
    const weft_cost_row *head = &layer[x->n_short + 1];
    weft_planner__copy_row(&out[0], &layer[0]);
    weft_planner__copy_row(&out[1], head);
    for (int k = 2; k < x->n_class; k++)
        weft_planner__copy_row(&out[k], &layer[x->layer[k] + 1]);
    if (!is_folded(x)) return;
    add(&out[0], &layer[1], 1);
    add(&out[0], &out[2], -1);
    add(&out[1], &layer[x->n_short], 1);
    add(&out[1], &out[2], -1);
    take_most(&out[0], &layer[0], false);
    take_most(&out[1], head, false);
    take_most(&out[2], &layer[1], true);
    take_most(&out[2], &layer[x->n_short], true);
}

/* bwd_s of class k, as compose has it. */
static double backward_s(const rows *x, const weft_cost_row *layer, int k)
{
    if (k >= 2) return layer[x->layer[k] + 1].bwd_s;
    double s = layer[k ? x->n_short + 1 : 0].bwd_s;
    if (!is_folded(x)) return s;
    return s + layer[k ? x->n_short : 1].bwd_s - layer[x->layer[2] + 1].bwd_s;
}

static void times(weft_cost_row *r, double n)
{
    r->fwd_s *= n;
    r->bwd_s *= n;
    r->comm_s *= n;
    for (int k = 0; k < WEFT_COST_N_TRAFFIC; k++) r->wire_bytes[k] *= n;
    r->of->weight_s *= n;
    for (int k = 0; k < 2; k++) {
        weft_cost_seam *s = k ? &r->of->end : &r->of->begin;
        *s = (weft_cost_seam){n * s->fwd_s, n * s->bwd_s, n * s->weight_s, n * s->comm_s,
                              s->keep_bytes};
    }
    for (int c = 0; c < WEFT_COST_N_SHARES; c++)
        for (int back = 0; back < 2; back++) {
            r->of->share[c].more_s[back] *= n;
            r->of->share[c].fetch_s[back] *= n;
            r->of->share[c].fetch[back].n *= n;
            r->of->share[c].fetch[back].once *= n;
            r->of->share[c].fetch[back].bytes *= n;
        }
}

/* ---- filling ---- */

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* Health may have slowed the links of some of a kind's devices; those are priced as the others. */
static bool same_links(const weft_cost_fabric *a, const weft_cost_fabric *b)
{
    return a->domain == b->domain && is_near(a->in.Bps_2, b->in.Bps_2) &&
           is_near(a->in.Bps, b->in.Bps) && is_near(a->ports_Bps, b->ports_Bps) &&
           is_near(a->port_Bps, b->port_Bps);
}

static int kind_of(const rows *x, const weft_device_kind *d, const weft_cost_fabric *f)
{
    int best = 0, fit = 0;
    for (int k = 0; k < x->n_kind; k++) {
        const weft_planner__kind *q = &x->kind[k];
        if (strcmp(q->device->name, d->name) != 0) continue;
        int now = 1 + 2 * is_near(q->device->mem_Bps * q->speed, d->mem_Bps) +
                  same_links(&q->fabric, f);
        if (now <= fit) continue;
        best = k;
        fit  = now;
    }
    return best;
}

static bool same(const weft_cost_variant *a, const weft_cost_variant *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->sp == b->sp &&
           a->micro_batch == b->micro_batch && a->recompute == b->recompute &&
           a->whole == b->whole;
}

static weft_planner__filled *add_shares(rows *x, weft_planner__filled *f)
{
    if (f->failed || f->shared) return f;
    f->failed = weft_planner__price_shares(x, &f->v, f->kind, f->row) != WEFT_OK;
    f->shared = true;
    return f;
}

static weft_planner__filled *ask(rows *x, const weft_cost_variant *v, int kind,
                                 bool shares)
{
    for (weft_planner__filled *f = x->filled; f; f = f->next)
        if (f->kind == kind && same(&f->v, v)) return shares ? add_shares(x, f) : f;
    weft_planner__filled *f = WEFT_ARENA_NEW(x->a, weft_planner__filled);
    if (!f) return NULL;
    f->v    = *v;
    f->kind = kind;
    f->row  = weft_planner__new_rows(x->a, x->n_short + 2);
    if (!f->row) return NULL;
    f->failed = weft_planner__price(x, v, kind, f->row) != WEFT_OK;
    f->next   = x->filled;
    x->filled = f;
    return shares ? add_shares(x, f) : f;
}

/* What running forward passes again adds to the backward ones. */
static void add_again(rows *x, const weft_planner__filled *f, weft_cost_row *row)
{
    weft_cost_variant plain = f->v;
    plain.recompute         = WEFT_RECOMPUTE_NONE;
    if (f->v.recompute == WEFT_RECOMPUTE_NONE) return;
    const weft_planner__filled *p = ask(x, &plain, f->kind, false);
    for (int k = 0; p && !p->failed && k < x->n_class; k++)
        row[k].again_s = fmax(0, row[k].bwd_s - backward_s(x, p->row, k));
}

/* The rows of all classes, made when first asked for; NULL: such a cut cannot be made. */
static const weft_cost_row *classes_of(rows *x, weft_planner__filled *f)
{
    if (!f || f->failed) return NULL;
    weft_cost_row *r = f->seen[f->shared];
    if (r) return r;
    r = weft_planner__new_rows(x->a, x->n_class);
    if (!r) return NULL;
    compose(x, f->row, r);
    add_again(x, f, r);
    for (int k = 0; k < x->n_class && x->s.micro_batch > 0; k++) times(&r[k], f->v.ep);
    f->seen[f->shared] = r;
    return r;
}

static void fill_rows(rows *x, const weft_cost_variant *v, const weft_device_kind *d,
                      const weft_cost_fabric *f, bool shares, weft_cost_row *row)
{
    const weft_cost_row *got   = classes_of(x, ask(x, v, kind_of(x, d, f), shares));
    const weft_cost_row  never = {/* never the fastest, never fits */
                                  .fwd_s      = 1e9,
                                  .bwd_s      = 1e9,
                                  .keep_bytes = 1e30,
                                  .work_bytes = 1e30,
                                  .of         = &x->never};
    for (int k = 0; k < x->n_class; k++) row[k] = got ? got[k] : never;
}

static void fill(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                 const weft_device_kind *d, const weft_cost_fabric *f, weft_cost_row *row)
{
    (void)e;
    fill_rows(arg, v, d, f, true, row);
}

static void glance(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                   const weft_device_kind *d, const weft_cost_fabric *f,
                   weft_cost_row *row)
{
    (void)e;
    fill_rows(arg, v, d, f, false, row);
}

/* ---- what may be cut ---- */

enum {
    SHORT = 256 /* positions: sequences are not cut into less */
};

/* A part of a cut is at most a thirty-second more than another. */
static bool is_even(int64_t n, int parts)
{
    return n % parts == 0 || n / parts >= 32;
}

static weft_status check_marks(const weft_cost_variant *v, const weft_graph *g,
                               const weft_shard_options *o)
{
    const weft_mesh *m = &o->mesh[0];
    for (int i = 0; i < o->n_mark; i++) {
        const weft_split       *s = &o->mark[i].layout.split[0];
        const weft_graph_value *x = &g->value[o->mark[i].value];
        int64_t n = x->type.shape.d[s->dim], parts = m->axis[s->axis].size;
        bool    cp = !strcmp(m->axis[s->axis].name, "cp");
        if (s->period > 0) n = s->period;
        n = (n + s->unit - 1) / s->unit;
        if (cp ? n % (2 * parts) == 0 && n / parts >= SHORT : is_even(n, (int)parts))
            continue;
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s=%d does not divide the %lld parts that dimension %d of %s may "
            "be cut into",
            m->axis[s->axis].name, (int)parts, (long long)n, s->dim, x->name);
    }
    if (v->sp && v->tp < 2) return WEFT_FAIL(WEFT_ERR_ARG, "sp=true needs tp");
    if (v->cp > 1 && v->ep > 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "cp=%d with ep=%d: both cut sequences", v->cp,
                         v->ep);
    return WEFT_OK;
}

static weft_status check(rows *x, const weft_cost_variant *v)
{
    weft_planner__short *s;
    weft_shard_options   o;
    weft_arena          *tmp = NULL;
    weft_status          st  = WEFT_OK;
    if (v->tp * v->cp * v->ep == 1) return WEFT_OK;
    WEFT_TRY(
        weft_planner__short_of(x, 0, 0, v->whole ? v->tp : 1, WEFT_RECOMPUTE_NONE, &s));
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_planner__expand(x, v, 1, 0, s, tmp, &o));
    WEFT_GO(check_marks(v, s->t.graph, &o));
out:
    weft_arena_destroy(tmp);
    return st;
}

static bool allows(void *arg, const weft_cost_variant *v, char *why, size_t n)
{
    rows             *x = arg;
    weft_cost_variant w = *v;
    w.micro_batch       = 1;
    w.recompute         = WEFT_RECOMPUTE_NONE;
    for (weft_planner__allowed *k = x->allowed; k; k = k->next)
        if (same(&k->v, &w)) {
            if (why) snprintf(why, n, "%s", k->why);
            return !k->why[0];
        }
    weft_planner__allowed *k = WEFT_ARENA_NEW(x->a, weft_planner__allowed);
    if (!k) return false;
    k->v   = w;
    k->why = "";
    if (check(x, &w) != WEFT_OK) k->why = weft_arena_strdup(x->a, weft_error_text());
    k->next    = x->allowed;
    x->allowed = k;
    return allows(arg, v, why, n);
}

/* ---- the model ---- */

/* Devices and nodes alike, whatever the health of their links. */
static bool is_kind(const weft_planner__kind *k, const weft_device_run *r)
{
    return k->device == r->device && k->speed == r->speed &&
           k->node->link == r->node->link && k->node->net == r->node->net &&
           k->node->n_port == r->node->n_port && k->node->n_device == r->node->n_device;
}

static weft_status find_kinds(rows *x)
{
    weft_device_run r;
    int             at = 0, cap = 0;
    while (weft_cluster_next_run(x->c, &at, &r)) {
        int k = 0;
        if (r.cordoned) continue;
        x->world = r.first + r.n;
        while (k < x->n_kind && !is_kind(&x->kind[k], &r)) k++;
        if (k < x->n_kind) continue;
        WEFT_TRY(weft_arena_grow(x->a, (void **)&x->kind, &cap, x->n_kind + 1,
                                 sizeof *x->kind));
        x->kind[x->n_kind++] = (weft_planner__kind){
            .device = r.device, .node = r.node, .speed = r.speed, .rank = r.first};
    }
    for (int k = 0; k < x->n_kind; k++)
        WEFT_TRY(weft_planner__read_links(x->c, x->world, x->kind[k].rank,
                                          &x->kind[k].fabric));
    if (x->n_kind) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "the cluster has no device that may be used");
}

/* Where the layers use what is marked: its first user, or that of its half-precision copy. */
static int used_at(const weft_graph *g, const int *first_user, const int *user,
                   weft_vid v)
{
    weft_vid copy = weft_graph_find_copy(g, v);
    if (copy >= 0) v = copy;
    return first_user[v] < first_user[v + 1] ? user[first_user[v]] : g->n_node;
}

/* Is a parameter of one layer cut, but not so the same of the next? */
static bool differs(const weft_planner__short *s, const weft_shard_options *o,
                    const int *at, int a)
{
    int k = 0;
    if (at[a] < s->node[0]) return false;
    while (k < s->n_layer && s->node[k + 1] <= at[a]) k++;
    if (k + 1 >= s->n_layer) return false;
    for (int b = 0; b < o->n_mark; b++)
        if (at[b] - s->node[k + 1] == at[a] - s->node[k] &&
            o->mark[b].layout.split[0].dim == o->mark[a].layout.split[0].dim)
            return false;
    return true;
}

static weft_status find_alternating(rows *x, bool *out)
{
    weft_cost_variant    v = {.tp = 2, .cp = 1, .ep = 1, .micro_batch = 1};
    weft_planner__short *s;
    weft_shard_options   o;
    weft_arena          *tmp = NULL;
    weft_status          st  = WEFT_OK;
    int                 *first_user, *user;
    *out = false;
    WEFT_TRY(weft_planner__short_of(x, 0, 0, 1, WEFT_RECOMPUTE_NONE, &s));
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_graph_users(s->t.graph, tmp, &first_user, &user));
    if (weft_planner__expand(x, &v, 1, 0, s, tmp, &o) != WEFT_OK) goto out;
    int *at = WEFT_ARENA_ARRAY(tmp, int, o.n_mark + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (int i = 0; i < o.n_mark; i++)
        at[i] = used_at(s->t.graph, first_user, user, o.mark[i].value);
    for (int i = 0; i < o.n_mark && !*out; i++)
        *out = s->t.graph->value[o.mark[i].value].kind == WEFT_VALUE_PARAM &&
               differs(s, &o, at, i);
out:
    weft_arena_destroy(tmp);
    return st;
}

enum {
    EACH = 32 /* of more layers that alternate so many are looked at, or one more */
};

/* Layers that alternate are all looked at. */
static weft_status look_each(rows *x)
{
    int n = x->run[0].count;
    if (x->n_run != 1 || n <= WEFT_PLANNER__KEEP) return WEFT_OK;
    WEFT_TRY(find_alternating(x, &x->each));
    if (x->each) x->s.layers = n <= EACH ? n : EACH + n % 2;
    return WEFT_OK;
}

/* A class for each layer that is looked at; those between two ends are like one of them. */
static int list_each(rows *x, weft_cost_segment *segment)
{
    int n = x->run[0].count, kept = x->n_short;
    for (int k = 0; k < kept; k++) x->layer[x->n_class + k] = k;
    for (int i = 0; i < n; i++) {
        int k = i < kept / 2        ? i
                : i >= n - kept / 2 ? kept - (n - i)
                                    : kept / 2 - (i - kept / 2) % 2;
        if (n == kept) k = i;
        segment[i] = (weft_cost_segment){x->n_class + k, 1};
    }
    x->n_class += kept;
    return n;
}

static weft_status find_layers(rows *x, const weft_model *whole, weft_cost_table *t)
{
    weft_planner__short *s;
    int                  at = 0;
    WEFT_TRY(weft_graph_find_runs(whole->graph, x->a, &x->n_run, &x->run));
    WEFT_TRY(look_each(x));
    WEFT_TRY(weft_planner__short_of(x, 0, 0, 1, WEFT_RECOMPUTE_NONE, &s));
    int room                   = 3 * x->n_run + 3 + (x->each ? x->run[0].count : 0);
    x->n_short                 = s->n_layer;
    x->layer                   = WEFT_ARENA_ARRAY(x->a, int, room);
    weft_cost_segment *segment = WEFT_ARENA_ARRAY(x->a, weft_cost_segment, room);
    WEFT_TRY(weft_arena_status(x->a));
    x->n_class  = 2;
    x->layer[0] = x->layer[1] = -1;
    if (x->each) t->n_segment = list_each(x, segment);
    for (int r = 0; r < x->n_run && !x->each; r++) {
        int kept = s->t.model->run[r].count, n = x->run[r].count, parts = n < 3 ? n : 3;
        for (int k = is_folded(x) ? 1 : 0; k < (is_folded(x) ? 2 : parts); k++) {
            int count               = is_folded(x) ? n : parts == 3 && k == 1 ? n - 2 : 1;
            segment[t->n_segment++] = (weft_cost_segment){x->n_class, count};
            x->layer[x->n_class++]  = at + (k == parts - 1 ? kept - 1 : k);
        }
        at += kept;
    }
    t->segment = segment;
    t->n_class = x->n_class;
    t->first   = 0;
    t->last    = 1;
    return WEFT_OK;
}

/* Our own engine: all it does is in its programs, and there is nothing on top of them. */
static void describe_engine(const rows *x, weft_cost_table *t)
{
    bool              half = weft_compile_is_bf16(x->s.dtype);
    weft_cost_engine *e    = &t->engine;
    bool              two =
        !strncmp(x->s.optimizer.name, "adam", 4) || !strcmp(x->s.optimizer.name, "lamb");
    bool one =
        !two && (strcmp(x->s.optimizer.name, "sgd") || x->s.optimizer.momentum != 0);
    t->param_bytes  = half ? 2 : 4;
    t->grad_bytes   = 4;
    t->programs     = true;
    t->shard_sums   = x->s.reduction == WEFT_REDUCTION_FIXED;
    t->bucket_bytes = x->bucket_bytes;
    t->rounds       = x->s.micro_batch > 0;
    *e              = (weft_cost_engine){
                     .known          = true,
                     .tp_exposed     = 1,
                     .cp_exposed     = 1,
                     .ep_exposed     = 1,
                     .tp_overlap     = 1,
                     .pp_exposed     = 0, /* in bounds: not always waited for */
                     .dp_exposed     = 1,
                     .dp_exposed_pp  = 1,
                     .zero_exposed   = 1,
                     .gather_exposed = 1,
                     .gather_share   = 1,
                     .optimizer      = 1,
                     .bubble         = x->limits.schedules >> WEFT_COST_ZERO_BUBBLE & 1 ? 0 : 1,
                     .product        = 1,
                     .stream         = 1,
                     .max_chunks     = 32,
                     .mem_spare      = 1,
                     .mem_keep       = 1,
                     .mem_fixed      = 0,
                     .mem_weight     = t->param_bytes + t->grad_bytes,
                     .mem_state      = (half ? 4 : 0) + (two   ? 8
                                                         : one ? 4
                                                               : 0),
                     .mem_limit      = 0.95,
                     .spread         = 0.05,
                     .spread_open    = 0.02,
    };
}

/* Does the input side share parameters with the head? */
static bool is_tied(rows *x)
{
    weft_cost_variant           v = {.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
    const weft_planner__filled *f = ask(x, &v, 0, false);
    return f && !f->failed && x->tied;
}

/* Uncut, a layer has its price on every kind of device, or there is nothing to plan with. */
static weft_status check_kinds(rows *x)
{
    weft_cost_variant v = {.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
    for (int k = 0; k < x->n_kind; k++) {
        const weft_planner__filled *f = ask(x, &v, k, false);
        char                        why[256];
        if (f && !f->failed) continue;
        snprintf(why, sizeof why, "%s", weft_error_text());
        return WEFT_FAIL(WEFT_ERR_ARG, "%s", why);
    }
    return WEFT_OK;
}

/* The most parts that the layers, cut alike, or with some of them left whole allow; by the latter
 * powers of two, as the search asks for them. */
static int most(rows *x, size_t at, int limit)
{
    weft_cost_variant v = {.tp = 1, .cp = 1, .ep = 1, .micro_batch = 1};
    int               n = 1;
    for (int d = 2; d <= limit; d++) {
        int n_way =
            at == offsetof(weft_cost_variant, tp) && !(d & (d - 1)) ? x->n_whole : 1;
        *(int *)(void *)((char *)&v + at) = d;
        for (v.whole = 0; v.whole < n_way && n < d; v.whole++)
            if (allows(x, &v, NULL, 0)) n = d;
    }
    return n;
}

weft_status weft_planner_rows(const weft_compile_spec *s, const weft_model *whole,
                              const weft_cluster *c, const weft_search_limits *l,
                              int64_t bucket_bytes, weft_arena *a, weft_search_model *out)
{
    rows *x = WEFT_ARENA_NEW(a, rows);
    WEFT_TRY(weft_arena_status(a));
    *x = (rows){.s                = *s,
                .c                = c,
                .a                = a,
                .limits           = *l,
                .bucket_bytes     = bucket_bytes,
                .never.peak_bytes = 1e30};
    if (x->s.layers < WEFT_PLANNER__KEEP) x->s.layers = WEFT_PLANNER__KEEP;
    *out           = (weft_search_model){.unit      = "sequences",
                                         .arg       = x,
                                         .limits    = *l,
                                         .max_tp    = 1,
                                         .max_cp    = 1,
                                         .max_ep    = 1,
                                         .max_micro = 64,
                                         .measured  = c->n_timing > 0,
                                         .fill      = fill,
                                         .glance    = glance,
                                         .allows    = allows};
    weft_status st = find_kinds(x);
    if (st == WEFT_OK) st = find_layers(x, whole, &out->shape);
    if (st == WEFT_OK) describe_engine(x, &out->shape);
    if (st == WEFT_OK) st = check_kinds(x);
    if (st != WEFT_OK) {
        weft_planner_rows_fini(out);
        return st;
    }
    const weft_model *m        = x->shorts->t.model;
    int               n_device = weft_cluster_usable(c);
    int               limit    = n_device < 64 ? n_device : 64;
    out->name                  = weft_arena_strdup(a, m->name);
    if (m->kind != WEFT_MODEL_LM && m->kind != WEFT_MODEL_ENCDEC) {
        out->unit      = "samples";
        out->max_micro = 1024;
    }
    out->shape.tied = is_tied(x);
    WEFT_TRY(weft_planner__list_whole(x, out));
    out->max_tp = most(x, offsetof(weft_cost_variant, tp), limit);
    if (l->cp) out->max_cp = most(x, offsetof(weft_cost_variant, cp), limit);
    if (l->ep) out->max_ep = most(x, offsetof(weft_cost_variant, ep), limit);
    return weft_arena_status(a);
}

void weft_planner_rows_fini(weft_search_model *m)
{
    rows *x = m->arg;
    if (!x) return;
    for (weft_planner__short *s = x->shorts; s; s = s->next) {
        weft_training_fini(&s->t);
        weft_arena_destroy(s->a);
    }
    x->shorts = NULL;
    m->arg    = NULL;
}
