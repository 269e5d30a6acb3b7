/* Changes of one option each, predicted like the configuration itself; the fastest are kept.
 *
 * (1) A change is one that the engine has an option for.
 * (2) Every change fits.  Where the configuration fits too, a change shortens its step. */
#include "search/advice.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_CHANGE = 32
};

/* Of a step's time: what is nearer is not worth a change. */
#define SHORTER 0.995

typedef struct advice_search {
    const weft_search_advice_request *q;
    weft_arena                       *arena;
    int                               n;
    weft_search_change                change[MAX_CHANGE];
} advice_search;

static int count_ranks(const weft_config *c)
{
    return c->dp * c->tp * c->pp * c->cp;
}

/* dp takes what the other degrees leave of the devices. */
static bool fill_devices(weft_config *c, int world)
{
    int cut = c->tp * c->pp * c->cp;
    if (cut < 1 || world % cut) return false;
    c->dp         = world / cut;
    c->zero_group = -1;
    if (c->heads % c->tp || c->pp > c->layers) return false;
    if (c->ep > 1 && (c->dp * c->cp * c->tp) % c->ep) return false;
    return c->global_batch % c->dp == 0;
}

/* Has the engine options for what differs? */
static bool is_possible(const weft_search_advice_request *q, const weft_config *c)
{
    const weft_search_limits *l    = q->limits;
    const weft_config        *now  = q->config;
    unsigned                  zero = c->pp > 1 ? l->zero_pp : l->zero;
    bool                      same = c->zero == now->zero && (c->pp > 1) == (now->pp > 1);
    if (!same && !(zero >> c->zero & 1)) return false;
    if (c->pp > 1 && !l->pp) return false;
    if (c->cp > 1 && !l->cp) return false;
    if (c->sp > 0 && !l->sp) return false;
    return c->vpp == now->vpp || c->vpp <= 1 || l->chunks;
}

/* Keeps c if it is possible, fits and is faster; text goes to the arena. */
static void consider_change(advice_search *s, const weft_config *c, const char *text)
{
    const weft_search_advice_request *q     = s->q;
    weft_search_change               *x     = &s->change[s->n];
    int                               share = c->global_batch / c->dp;
    if (s->n == MAX_CHANGE || !is_possible(q, c)) return;
    if (c->micro_batch > 0 && (c->micro_batch > share || share % c->micro_batch)) return;
    x->config              = *c;
    x->config.stage_layers = c->pp == q->config->pp ? q->config->stage_layers : "";
    if (weft_estimate_row(q->hardware, q->constants, &x->config, &x->predicted) !=
            WEFT_OK ||
        !x->predicted.fits)
        return;
    if (q->now->fits && x->predicted.step_s > SHORTER * q->now->step_s) return;
    x->text = text;
    s->n++;
}

/* ---- one option ---- */

/* Twice and half of a degree; at: its place in weft_config. */
static void try_degree(advice_search *s, const char *name, size_t at)
{
    const weft_config *now = s->q->config;
    for (int up = 0; up < 2; up++) {
        weft_config c = *now;
        int        *x = (int *)(void *)((char *)&c + at), was = *x;
        *x = up ? was * 2 : was / 2;
        if (*x < 1 || (c.tp < 2 && c.sp > 0)) c.sp = 0;
        if (c.pp < 2) c.vpp = 1;
        if (*x < 1 || !fill_devices(&c, count_ranks(now))) continue;
        consider_change(s, &c,
                        weft_arena_printf(s->arena, "%s %d -> %d (dp %d -> %d)", name,
                                          was, *x, now->dp, c.dp));
    }
}

static void try_micro_batch(advice_search *s)
{
    const weft_config *now = s->q->config;
    for (int up = 0; up < 2 && now->micro_batch > 0; up++) {
        weft_config c = *now;
        c.micro_batch = up ? c.micro_batch * 2 : c.micro_batch / 2;
        if (c.micro_batch < 1) continue;
        consider_change(s, &c,
                        weft_arena_printf(s->arena, "micro-batch %d -> %d",
                                          now->micro_batch, c.micro_batch));
    }
}

static void try_recompute(advice_search *s)
{
    const weft_config *now = s->q->config;
    for (int i = 0; i < WEFT_RECOMPUTE_N && *now->recompute; i++) {
        weft_config c    = *now;
        const char *kind = weft_cost_recompute_name(i);
        if (!strcmp(c.recompute, kind) || !(s->q->limits->recompute >> i & 1)) continue;
        c.recompute         = kind;
        c.recompute_modules = c.recompute_layers = -1;
        consider_change(
            s, &c,
            weft_arena_printf(s->arena, "recompute %s -> %s", now->recompute, kind));
    }
}

static void try_zero(advice_search *s)
{
    const weft_config *now = s->q->config;
    for (int zero = 0; zero <= 3 && now->dp * now->cp > 1; zero++) {
        weft_config c = *now;
        if (zero == now->zero) continue;
        c.zero = zero;
        consider_change(s, &c,
                        weft_arena_printf(s->arena, "zero %d -> %d", now->zero, zero));
    }
}

static void try_chunks(advice_search *s)
{
    const weft_config *now = s->q->config;
    for (int chunks = 1; chunks <= 8 && now->pp > 1; chunks++) {
        weft_config c = *now;
        if (chunks == c.vpp || c.layers % (c.pp * chunks)) continue;
        c.vpp = chunks;
        consider_change(
            s, &c,
            weft_arena_printf(s->arena, "interleaved chunks %d -> %d", now->vpp, chunks));
    }
}

static void try_switches(advice_search *s)
{
    weft_config sequence = *s->q->config, flash = *s->q->config;
    sequence.sp = flash.flash_attention = 1;
    if (s->q->config->tp > 1 && !s->q->config->sp)
        consider_change(s, &sequence, "sequence parallelism on");
    if (!s->q->config->flash_attention) consider_change(s, &flash, "flash attention on");
}

static int by_time(const void *a, const void *b)
{
    const weft_search_change *x = a, *y = b;
    if (x->predicted.step_s != y->predicted.step_s)
        return x->predicted.step_s < y->predicted.step_s ? -1 : 1;
    return strcmp(x->text, y->text);
}

static weft_status find_changes(advice_search *s, weft_search_advice *out)
{
    try_degree(s, "tp", offsetof(weft_config, tp));
    try_degree(s, "pp", offsetof(weft_config, pp));
    try_degree(s, "cp", offsetof(weft_config, cp));
    if (s->q->config->experts > 1) try_degree(s, "ep", offsetof(weft_config, ep));
    try_micro_batch(s);
    try_recompute(s);
    try_zero(s);
    try_chunks(s);
    try_switches(s);
    WEFT_TRY(weft_arena_status(s->arena));
    qsort(s->change, (size_t)s->n, sizeof *s->change, by_time);
    out->n_change = s->n < s->q->n_most ? s->n : s->q->n_most;
    out->change =
        weft_arena_memdup(s->arena, s->change, sizeof *s->change * (size_t)out->n_change);
    return weft_arena_status(s->arena);
}

/* ---- a plan of the search ---- */

/* Does anything fit that the engine can do? */
static weft_status find_plan(const advice_search *s, weft_search_advice *out)
{
    const weft_search_advice_request *q = s->q;
    weft_search_machines              m;
    weft_search_result               *r = NULL;
    weft_text                         t = {0};
    WEFT_TRY(weft_search_machines_of(q->cluster, q->constants, s->arena, &m));
    weft_search_problem p = {
        .machines = &m, .batch = q->config->global_batch, .n_best = 1};
    weft_search_open(&p.constraints);
    WEFT_TRY(
        weft_search_transformer(q->config, q->constants, q->limits, s->arena, &p.model));
    weft_status st = weft_search_run(&p, &r);
    if (st != WEFT_OK && st != WEFT_ERR_NOFIT) return st;
    out->any_fits = st == WEFT_OK;
    if (out->any_fits) {
        weft_search_print_choice(&r->choice[0], &t);
        weft_text_add(&t, ": %.3g s, %.1f GB", r->choice[0].score.step_s,
                      r->choice[0].score.mem_bytes / 1e9);
    } else {
        weft_text_add(&t, "%s", weft_error_text());
    }
    weft_search_destroy(r);
    out->plan = weft_arena_strdup(s->arena, t.s ? t.s : "");
    st        = weft_text_status(&t);
    weft_text_fini(&t);
    return st == WEFT_OK ? weft_arena_status(s->arena) : st;
}

weft_status weft_search_advise(const weft_search_advice_request *q, weft_arena *a,
                               weft_search_advice *out)
{
    weft_search_advice found = {0};
    advice_search     *s     = calloc(1, sizeof *s);
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to look for changes");
    s->q           = q;
    s->arena       = a;
    weft_status st = find_changes(s, &found);
    if (st == WEFT_OK && !q->now->fits && !found.n_change) st = find_plan(s, &found);
    if (st == WEFT_OK) *out = found;
    free(s);
    return st;
}
