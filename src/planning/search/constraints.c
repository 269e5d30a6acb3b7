/* Constraints: what the user has decided already, read by the rows of a strategy where it has
 * the key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "search/search_priv.h"

void weft_search_open(weft_search_constraints *p)
{
    *p = (weft_search_constraints){.strategy         = weft_strategy_default(),
                                   .micro_batch      = -1,
                                   .recompute_layers = -1,
                                   .world            = -1};
}

int weft_search_given(const weft_search_constraints *p, weft_strategy_key key)
{
    return p->given >> key & 1 ? weft_strategy_number(&p->strategy, key) : -1;
}

bool weft_search_has_copies(const weft_search_constraints *p, int replicas, int zero,
                            int shards)
{
    int  n       = weft_search_given(p, WEFT_KEY_copies);
    bool standby = n > 1 && n <= 1 + WEFT_MAX_STANDBY && replicas == 1 && shards >= n;
    if (standby && weft_search_given(p, WEFT_KEY_offload) < 1) return true;
    return n < 2 || (replicas >= n && (!zero || replicas % n == 0));
}

bool weft_search__holds_copies(const weft_search_constraints *q,
                               const weft_cost_variant *v, const weft_cost_point *p,
                               int zero, int shards)
{
    int n = weft_search_given(q, WEFT_KEY_copies), dp = p->dp / v->ep;
    if (!weft_search_has_copies(q, dp, zero, shards)) return false;
    if (n < 2 || q->n_host < 2) return true;
    weft_strategy y = weft_search_sizes(dp, v);
    y.pp            = p->pp;
    y.zero          = zero;
    y.copies        = n;
    n               = n < q->n_host ? n : q->n_host;
    return weft_strategy_state_hosts(&y, q->n_host, q->host_ranks) >= n;
}

bool weft_search__has_split(const weft_search_constraints *p)
{
    return p->given >> WEFT_KEY_batch_split & 1;
}

void weft_search_fix(weft_search_constraints *p, weft_strategy_key key, int x)
{
    p->given &= ~(1u << key);
    if (x < 0) return;
    p->given |= 1u << key;
    weft_strategy_set_number(&p->strategy, key, x);
}

enum {
    /* keys whose value is one number */
    NUMBERS = 1 << WEFT_KEY_tp | 1 << WEFT_KEY_cp | 1 << WEFT_KEY_ep | 1 << WEFT_KEY_pp |
              1 << WEFT_KEY_dp | 1 << WEFT_KEY_sp | 1 << WEFT_KEY_zero |
              1 << WEFT_KEY_copies | 1 << WEFT_KEY_overlap_param_gather |
              1 << WEFT_KEY_chunks | 1 << WEFT_KEY_recompute | 1 << WEFT_KEY_schedule |
              1 << WEFT_KEY_offload,
    /* sizes of axes and stages: from 1 on */
    SIZES = 1 << WEFT_KEY_tp | 1 << WEFT_KEY_cp | 1 << WEFT_KEY_ep | 1 << WEFT_KEY_pp |
            1 << WEFT_KEY_dp,
    SEARCHED = NUMBERS | 1 << WEFT_KEY_batch_split | 1 << WEFT_KEY_tp_exclude
};

/* Numbers that a strategy has no key for. */
typedef struct number {
    const char *name;
    size_t      at;
    int         low, high;
} number;

static const number numbers[] = {
    {"micro_batch", offsetof(weft_search_constraints, micro_batch), 1, 1000000},
    {"recompute_layers", offsetof(weft_search_constraints, recompute_layers), 1, 10000},
};

static int *number_at(weft_search_constraints *p, const number *k)
{
    return (int *)(void *)((char *)p + k->at);
}

bool weft_search_release(weft_search_constraints *p, const char *name)
{
    const weft_strategy_row *row = weft_strategy_find(name);
    if (row) {
        uint32_t bit   = 1u << (row - weft_strategy_rows);
        bool     given = p->given & bit;
        p->given &= ~bit;
        if (bit == 1u << WEFT_KEY_pp && given) p->cut = NULL;
        return given;
    }
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++) {
        int *x = number_at(p, &numbers[i]), was = *x;
        if (strcmp(numbers[i].name, name) != 0) continue;
        *x = -1;
        return was >= 0;
    }
    return false;
}

/* ---- reading ---- */

static weft_status refuse_other(const char *name, const char *value)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s=%.40s: %s was given another value before", name,
                     value, name);
}

/* What was given before stands, unless it is the same. */
static weft_status fix_number(weft_search_constraints *p, weft_strategy_key key,
                              const char *name, const char *value, int x)
{
    int was = weft_search_given(p, key);
    if (was >= 0 && was != x) return refuse_other(name, value);
    weft_search_fix(p, key, x);
    return WEFT_OK;
}

/* The value of a row as the search counts it. */
static weft_status read_row(weft_search_constraints *p, weft_strategy_key key,
                            const char *value)
{
    const char   *name = weft_strategy_rows[key].key;
    weft_strategy s    = weft_strategy_default();
    char          word[100];
    if (key == WEFT_KEY_recompute && !strcmp(value, "light")) /* other engines' */
        return fix_number(p, key, name, value, WEFT_RECOMPUTE_LIGHT);
    snprintf(word, sizeof word, "%s=%.60s", name, value);
    WEFT_TRY(weft_strategy_assign(&s, word, NULL));
    int x = weft_strategy_number(&s, key);
    if (x < 1 && SIZES >> key & 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: 0 is out of range, from 1 on", name);
    if (key == WEFT_KEY_pp && x > MAX_STAGE)
        return WEFT_FAIL(WEFT_ERR_ARG, "pp: %d is out of range, from 1 to %d", x,
                         MAX_STAGE);
    return fix_number(p, key, name, value, x);
}

static weft_status read_number(weft_search_constraints *p, const number *k,
                               const char *value)
{
    char *end;
    int  *out = number_at(p, k);
    errno     = 0;
    long x    = strtol(value, &end, 10);
    if (*end || errno || x < k->low || x > k->high)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %.40s is out of range, from %d to %d",
                         k->name, value, k->low, k->high);
    if (*out >= 0 && *out != x) return refuse_other(k->name, value);
    *out = (int)x;
    return WEFT_OK;
}

/* "7-7-6" */
static weft_status read_cut(weft_search_constraints *p, const char *value, weft_arena *a)
{
    int n = 0;
    if (p->cut) return WEFT_FAIL(WEFT_ERR_ARG, "stages are given twice");
    uint16_t   *cut = WEFT_ARENA_ARRAY(a, uint16_t, MAX_STAGE);
    const char *s   = value;
    WEFT_TRY(weft_arena_status(a));
    while (n < MAX_STAGE) {
        char *end;
        long  x = strtol(s, &end, 10);
        if (end == s || x < 0 || x > 10000 || (*end && *end != '-')) break;
        cut[n++] = (uint16_t)x;
        if (!*end) {
            int pp = weft_search_given(p, WEFT_KEY_pp);
            if (pp > 0 && pp != n)
                return WEFT_FAIL(WEFT_ERR_ARG, "stages=%.60s are %d stages, but pp=%d",
                                 value, n, pp);
            weft_search_fix(p, WEFT_KEY_pp, n);
            p->cut = cut;
            return WEFT_OK;
        }
        s = end + 1;
    }
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "stages=%.60s: expected the layers of each stage, as in 7-7-6",
                     value);
}

/* Lanes of each replica.  Equal ones are those of any plan: only their number is kept. */
static weft_status read_split(weft_search_constraints *p, const char *value)
{
    const weft_strategy_row *row = &weft_strategy_rows[WEFT_KEY_batch_split];
    weft_strategy            s   = weft_strategy_default();
    weft_text                t   = {0};
    if (p->given >> WEFT_KEY_batch_split & 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is given twice", row->key);
    weft_text_add(&t, "%s=%s", row->key, value);
    weft_status st = weft_text_status(&t);
    if (st == WEFT_OK) st = weft_strategy_assign(&s, t.s, NULL);
    weft_text_fini(&t);
    if (st != WEFT_OK) return st;
    s.dp = weft_strategy_split_ranks(&s);
    if (s.n_batch_split > 1) WEFT_TRY(weft_strategy_check(&s));
    WEFT_TRY(fix_number(p, WEFT_KEY_dp, row->key, value, s.dp));
    if (s.n_batch_split < 2) return WEFT_OK;
    p->given |= 1u << WEFT_KEY_batch_split;
    p->strategy.n_batch_split = s.n_batch_split;
    memcpy(p->strategy.batch_split, s.batch_split, sizeof s.batch_split);
    return WEFT_OK;
}

/* "blocks,head", or "none": tp cuts all layers. */
static weft_status read_exclude(weft_search_constraints *p, const char *value)
{
    weft_strategy s = weft_strategy_default();
    if (strcmp(value, "none") != 0)
        WEFT_TRY(weft_layer_spans_parse(value, s.tp_exclude, &s.n_tp_exclude));
    const weft_strategy_row *row = &weft_strategy_rows[WEFT_KEY_tp_exclude];
    if (p->given >> WEFT_KEY_tp_exclude & 1 &&
        !weft_strategy_row_equal(&s, &p->strategy, row))
        return refuse_other(row->key, value);
    p->given |= 1u << WEFT_KEY_tp_exclude;
    p->strategy.n_tp_exclude = s.n_tp_exclude;
    memcpy(p->strategy.tp_exclude, s.tp_exclude, sizeof s.tp_exclude);
    return WEFT_OK;
}

static weft_status refuse_name(const char *word, const char *name)
{
    const char *all[WEFT_N_STRATEGY_KEY + WEFT_COUNT(numbers) + 1];
    const char *hint = weft_strategy_hint(name);
    int         n    = 0;
    weft_text   t    = {0};
    for (int i = 0; i < WEFT_N_STRATEGY_KEY; i++)
        if (SEARCHED >> i & 1) all[n++] = weft_strategy_rows[i].key;
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++) all[n++] = numbers[i].name;
    all[n++]         = "stages";
    const char *near = hint ? NULL : weft_suggest(name, all, n);
    weft_text_add(&t, "%.60s: no such constraint", word);
    if (hint) weft_text_add(&t, ": %s", hint);
    if (near) weft_text_add(&t, ", did you mean %s=...?", near);
    for (int i = 0; i < n && !hint && !near; i++)
        weft_text_add(&t, "%s%s", i ? ", " : "; there are ", all[i]);
    weft_status st = WEFT_FAIL(WEFT_ERR_ARG, "%s", t.s ? t.s : word);
    weft_text_fini(&t);
    return st;
}

weft_status weft_search_constrain(weft_search_constraints *p, const char *word,
                                  weft_arena *a)
{
    const char *eq = strchr(word, '='), *value = eq ? eq + 1 : "";
    char        name[32];
    if (!strncmp(word, "layer", 5) && strchr(word, ' '))
        return weft_search__read_on(p, word);
    if (!eq || eq == word || (size_t)(eq - word) >= sizeof name || !*value)
        return WEFT_FAIL(WEFT_ERR_ARG, "%.60s: a constraint is KEY=VALUE, as in tp=8",
                         word);
    memcpy(name, word, (size_t)(eq - word));
    name[eq - word] = 0;
    for (char *s = name; *s; s++)
        if (*s == '-') *s = '_';
    for (int i = 0; i < WEFT_N_STRATEGY_KEY; i++)
        if (NUMBERS >> i & 1 && !strcmp(name, weft_strategy_rows[i].key))
            return read_row(p, (weft_strategy_key)i, value);
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++)
        if (!strcmp(name, numbers[i].name)) return read_number(p, &numbers[i], value);
    if (!strcmp(name, "stages")) return read_cut(p, value, a);
    if (!strcmp(name, "batch_split")) return read_split(p, value);
    if (!strcmp(name, "tp_exclude")) return read_exclude(p, value);
    return refuse_name(word, name);
}
