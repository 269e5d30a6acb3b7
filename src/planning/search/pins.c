/* Pins: what the user has decided already. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "search/search_priv.h"

void weft_search_open(weft_search_pins *p)
{
    memset(p, -1, sizeof *p); /* every number */
    p->cut   = NULL;
    p->share = NULL;
    p->whole = NULL;
    p->n_on  = 0;
}

enum {
    MAX_SHARE = 100000 /* replicas */
};

typedef struct key {
    const char *name;
    size_t      at;
    int         low, high;
} key;

static const key keys[] = {
    {"tp", offsetof(weft_search_pins, tp), 1, 100000},
    {"cp", offsetof(weft_search_pins, cp), 1, 100000},
    {"ep", offsetof(weft_search_pins, ep), 1, 100000},
    {"pp", offsetof(weft_search_pins, pp), 1, MAX_STAGE},
    {"dp", offsetof(weft_search_pins, dp), 1, 10000000},
    {"sp", offsetof(weft_search_pins, sp), 0, 1},
    {"zero", offsetof(weft_search_pins, zero), 0, 3},
    {"later", offsetof(weft_search_pins, later), 0, 100},
    {"micro_batch", offsetof(weft_search_pins, micro_batch), 1, 1000000},
    {"chunks", offsetof(weft_search_pins, chunks), 1, 1000},
    {"recompute_layers", offsetof(weft_search_pins, recompute_layers), 1, 10000},
};

static const char *const words_of_recompute[] = {"none", "selective", "full", "light"};
static const char *const words_of_schedule[]  = {"1f1b", "gpipe", "zb-h1", "interleaved"};

/* What was said before stands, unless it is the same. */
static weft_status put(const char *name, const char *value, int x, int *out)
{
    if (*out >= 0 && *out != x)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s=%.40s: %s was pinned to something else before",
                         name, value, name);
    *out = x;
    return WEFT_OK;
}

static weft_status find_word(const char *name, const char *value, const char *const *word,
                             int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word[i], value)) return put(name, value, i, out);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s=%.40s: expected %s, %s%s%s or %s", name, value,
                     word[0], word[1], n > 3 ? ", " : "", n > 3 ? word[2] : "",
                     word[n - 1]);
}

/* "7-7-6" */
static weft_status read_cut(weft_search_pins *p, const char *value, weft_arena *a)
{
    int n = 0;
    if (p->cut) return WEFT_FAIL(WEFT_ERR_ARG, "stages are pinned twice");
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

/* The next "3x4" or "3" of shares: replicas with so many lanes. */
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
static weft_status read_shares(weft_search_pins *p, const char *value, weft_arena *a)
{
    const char *s   = value;
    long        sum = 0, lanes, replicas;
    int         n = 0, cap = 0;
    int32_t    *share = NULL;
    bool        equal = true;
    if (p->share) return WEFT_FAIL(WEFT_ERR_ARG, "shares are pinned twice");
    do {
        s += n > 0; /* the comma */
        if (!read_share(&s, &lanes, &replicas) || (*s && *s != ',') ||
            n + replicas > MAX_SHARE)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "shares=%.60s: expected the lanes of each replica, as in 3,1 "
                "or 3x4,1x4",
                value);
        WEFT_TRY(
            weft_arena_grow(a, (void **)&share, &cap, n + (int)replicas, sizeof *share));
        while (replicas-- > 0) share[n++] = (int32_t)lanes, sum += lanes;
        equal = equal && share[0] == lanes;
    } while (*s);
    if (!equal && sum & (sum - 1))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "shares=%.60s add up to %ld lanes: it takes a power of two",
                         value, sum);
    WEFT_TRY(put("shares", value, n, &p->dp)); /* equal ones are those of any plan */
    if (!equal) p->share = share;
    return WEFT_OK;
}

weft_status weft_search_pin(weft_search_pins *p, const char *word, weft_arena *a)
{
    const char *eq = strchr(word, '='), *value = eq ? eq + 1 : "";
    char        name[32];
    const char *all[WEFT_COUNT(keys) + 5] = {"recompute", "schedule", "stages", "shares",
                                             "whole"};
    if (!strncmp(word, "layer", 5) && strchr(word, ' '))
        return weft_search__read_on(p, word);
    if (!eq || eq == word || (size_t)(eq - word) >= sizeof name || !*value)
        return WEFT_FAIL(WEFT_ERR_ARG, "%.60s: a pin is KEY=VALUE, as in tp=8", word);
    memcpy(name, word, (size_t)(eq - word));
    name[eq - word] = 0;
    for (char *s = name; *s; s++)
        if (*s == '-') *s = '_';
    if (!strcmp(name, "recompute"))
        return find_word(name, value, words_of_recompute, WEFT_RECOMPUTE_N,
                         &p->recompute);
    if (!strcmp(name, "schedule"))
        return find_word(name, value, words_of_schedule, 4, &p->schedule);
    if (!strcmp(name, "stages")) return read_cut(p, value, a);
    if (!strcmp(name, "shares")) return read_shares(p, value, a);
    if (!strcmp(name, "whole")) {
        p->whole = weft_arena_strdup(a, value);
        return weft_arena_status(a);
    }
    for (size_t i = 0; i < WEFT_COUNT(keys); i++) {
        all[5 + i] = keys[i].name;
        if (strcmp(name, keys[i].name)) continue;
        char *end;
        errno  = 0;
        long x = strtol(value, &end, 10);
        if (*end || errno || x < keys[i].low || x > keys[i].high)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s=%.40s: expected a whole number from %d to %d", name,
                             value, keys[i].low, keys[i].high);
        return put(name, value, (int)x, (int *)(void *)((char *)p + keys[i].at));
    }
    const char *near = weft_suggest(name, all, (int)WEFT_COUNT(all));
    return WEFT_FAIL(WEFT_ERR_ARG, "%.60s: no such pin%s%s%s", word,
                     near ? ", did you mean "
                          : "; there are tp, cp, ep, pp, dp, sp, "
                            "zero, later, micro_batch, chunks, recompute, "
                            "recompute_layers, schedule, stages, shares, whole",
                     near ? near : "", near ? "=...?" : "");
}
