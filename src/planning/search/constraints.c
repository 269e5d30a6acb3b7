/* Constraints: what the user has decided already, read by the rows of a strategy where it has
 * the key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "search/search_priv.h"
#include "strategy/strategy.h"

void weft_search_open(weft_search_constraints *p)
{
    memset(p, -1, sizeof *p); /* every number */
    p->cut         = NULL;
    p->batch_split = NULL;
    p->tp_exclude  = NULL;
    p->n_on        = 0;
}

enum {
    MAX_SHARE = 100000 /* replicas */
};

/* Rows of a strategy whose values are a number here, and numbers that a strategy has not. */
static const struct {
    const char *name;
    size_t      at;
} rows[] = {
    {"tp", offsetof(weft_search_constraints, tp)},
    {"cp", offsetof(weft_search_constraints, cp)},
    {"ep", offsetof(weft_search_constraints, ep)},
    {"pp", offsetof(weft_search_constraints, pp)},
    {"dp", offsetof(weft_search_constraints, dp)},
    {"sp", offsetof(weft_search_constraints, sp)},
    {"zero", offsetof(weft_search_constraints, zero)},
    {"overlap_param_gather", offsetof(weft_search_constraints, overlap_param_gather)},
    {"chunks", offsetof(weft_search_constraints, chunks)},
    {"recompute", offsetof(weft_search_constraints, recompute)},
    {"schedule", offsetof(weft_search_constraints, schedule)},
};

typedef struct number {
    const char *name;
    size_t      at;
    int         low, high;
} number;

static const number numbers[] = {
    {"micro_batch", offsetof(weft_search_constraints, micro_batch), 1, 1000000},
    {"recompute_layers", offsetof(weft_search_constraints, recompute_layers), 1, 10000},
};

static const char *const others[] = {"stages", "batch_split", "tp_exclude"};

/* What was given before stands, unless it is the same. */
static weft_status put(const char *name, const char *value, int x, int *out)
{
    if (*out >= 0 && *out != x)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s=%.40s: %s was given another value before",
                         name, value, name);
    *out = x;
    return WEFT_OK;
}

static int *field_at(weft_search_constraints *p, size_t at)
{
    return (int *)(void *)((char *)p + at);
}

/* The value of row i as the search counts it. */
static weft_status read_row(weft_search_constraints *p, size_t i, const char *name,
                            const char *value)
{
    const weft_strategy_row *row;
    weft_strategy            s = weft_strategy_default();
    char                     word[100];
    int                     *out = field_at(p, rows[i].at);
    if (!strcmp(name, "recompute") && !strcmp(value, "light")) /* other engines' */
        return put(name, value, WEFT_RECOMPUTE_LIGHT, out);
    snprintf(word, sizeof word, "%s=%.60s", name, value);
    WEFT_TRY(weft_strategy_assign(&s, word, &row));
    const void *field = (const char *)&s + row->at;
    int x = row->kind == WEFT_STRATEGY_BOOL ? *(const bool *)field : *(const int *)field;
    if (x < 1 && rows[i].at <= offsetof(weft_search_constraints, dp))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: 0 is out of range, from 1 on", name);
    if (!strcmp(name, "pp") && x > MAX_STAGE)
        return WEFT_FAIL(WEFT_ERR_ARG, "pp: %d is out of range, from 1 to %d", x,
                         MAX_STAGE);
    return put(name, value, x, out);
}

static weft_status read_number(weft_search_constraints *p, const number *k,
                               const char *value)
{
    char *end;
    errno  = 0;
    long x = strtol(value, &end, 10);
    if (*end || errno || x < k->low || x > k->high)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %.40s is out of range, from %d to %d",
                         k->name, value, k->low, k->high);
    return put(k->name, value, (int)x, field_at(p, k->at));
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
            if (p->pp > 0 && p->pp != n)
                return WEFT_FAIL(WEFT_ERR_ARG, "stages=%.60s are %d stages, but pp=%d",
                                 value, n, p->pp);
            p->pp  = n;
            p->cut = cut;
            return WEFT_OK;
        }
        s = end + 1;
    }
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "stages=%.60s: expected the layers of each stage, as in 7-7-6",
                     value);
}

/* The next "3x4" or "3" of batch_split: replicas with so many lanes. */
static bool read_share(const char **s, long *lanes, long *replicas)
{
    char *end;
    *lanes    = strtol(*s, &end, 10);
    *replicas = 1;
    if (end == *s) return false;
    if (*end == 'x') {
        *s        = end + 1;
        *replicas = strtol(*s, &end, 10);
        if (end == *s) return false;
    }
    *s = end;
    return *lanes > 0 && *lanes <= 100000 && *replicas > 0 && *replicas <= MAX_SHARE;
}

/* "3x4,1x4" or "3,1": lanes of the batch's sum that each replica takes. */
static weft_status read_split(weft_search_constraints *p, const char *value,
                              weft_arena *a)
{
    const char *s   = value;
    long        sum = 0, lanes, replicas;
    int         n = 0, cap = 0;
    int32_t    *share = NULL;
    bool        equal = true;
    if (p->batch_split) return WEFT_FAIL(WEFT_ERR_ARG, "batch_split is given twice");
    do {
        s += n > 0; /* the comma */
        if (!read_share(&s, &lanes, &replicas) || (*s && *s != ',') ||
            n + replicas > MAX_SHARE)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "batch_split=%.60s: expected the lanes of each replica, as in 3,1 "
                "or 3x4,1x4",
                value);
        WEFT_TRY(
            weft_arena_grow(a, (void **)&share, &cap, n + (int)replicas, sizeof *share));
        while (replicas-- > 0) share[n++] = (int32_t)lanes, sum += lanes;
        equal = equal && share[0] == lanes;
    } while (*s);
    if (!equal && sum & (sum - 1))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "batch_split=%.60s adds up to %ld lanes: it takes a power of two", value,
            sum);
    WEFT_TRY(put("batch_split", value, n, &p->dp)); /* equal ones are those of any plan */
    if (!equal) p->batch_split = share;
    return WEFT_OK;
}

static weft_status refuse_name(const char *word, const char *name)
{
    const char *all[WEFT_COUNT(rows) + WEFT_COUNT(numbers) + WEFT_COUNT(others)];
    const char *hint = weft_strategy_hint(name);
    int         n    = 0;
    weft_text   t    = {0};
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) all[n++] = rows[i].name;
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++) all[n++] = numbers[i].name;
    for (size_t i = 0; i < WEFT_COUNT(others); i++) all[n++] = others[i];
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
    for (size_t i = 0; i < WEFT_COUNT(rows); i++)
        if (!strcmp(name, rows[i].name)) return read_row(p, i, name, value);
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++)
        if (!strcmp(name, numbers[i].name)) return read_number(p, &numbers[i], value);
    if (!strcmp(name, "stages")) return read_cut(p, value, a);
    if (!strcmp(name, "batch_split")) return read_split(p, value, a);
    if (strcmp(name, "tp_exclude") != 0) return refuse_name(word, name);
    p->tp_exclude = weft_arena_strdup(a, value);
    return weft_arena_status(a);
}
