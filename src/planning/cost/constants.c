/* Kinds and their terms; see constants.h. */
#include "cost/constants.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/text.h"

#define TERM(name, value, low, high, unit, about) {#name, value, low, high, unit, about},
static const weft_cost_term device_term[] = {
#include "cost/device_terms.def"
};
static const weft_cost_term link_term[] = {
#include "cost/link_terms.def"
};
static const weft_cost_term engine_term[] = {
#include "cost/engine_terms.def"
};
#undef TERM

static const struct {
    const char           *name;
    const weft_cost_term *term;
    int                   n;
} family[WEFT_COST_N_FAMILY] = {
    {"device", device_term, (int)WEFT_COUNT(device_term)},
    {"link", link_term, (int)WEFT_COUNT(link_term)},
    {"engine", engine_term, (int)WEFT_COUNT(engine_term)},
};

enum {
    MAX_TERM = 64,
    MAX_KIND = 40
};

typedef struct kind {
    const char *name, *pattern, *source;
    double      value[MAX_TERM]; /* NAN: as the default */
    bool        fitted;          /* measured steps moved it */
} kind;

struct weft_cost_constants {
    int  n[WEFT_COST_N_FAMILY];
    kind kind[WEFT_COST_N_FAMILY][MAX_KIND];
};

/* ---- what is built in ---- */

static const struct {
    weft_cost_family family;
    const char      *name, *pattern, *source;
} known[] = {
#define KIND(f, name, pattern, source) {WEFT_COST_##f, name, pattern, source},
#define SET(f, name, term, value)
#include "cost/constants.def"
#undef KIND
#undef SET
};

typedef struct setting {
    weft_cost_family family;
    const char      *name, *term;
    double           value;
} setting;

#define KIND(f, name, pattern, source)
#define SET(f, name, term, value) {WEFT_COST_##f, name, #term, value},
static const setting stated[] = {
#include "cost/constants.def"
};
static const setting fitted[] = {
#include "cost/fitted.def"
};
#undef KIND
#undef SET

static int find_kind(const weft_cost_constants *c, weft_cost_family f, const char *name,
                     size_t len)
{
    for (int i = 0; i < c->n[f]; i++)
        if (strlen(c->kind[f][i].name) == len && !strncmp(c->kind[f][i].name, name, len))
            return i;
    return -1;
}

static int find_term(weft_cost_family f, const char *name)
{
    for (int i = 0; i < family[f].n; i++)
        if (!strcmp(family[f].term[i].name, name)) return i;
    return -1;
}

static void add_kind(weft_cost_constants *c, weft_cost_family f, const char *name,
                     const char *pattern, const char *source)
{
    kind *k = &c->kind[f][c->n[f]++];
    *k      = (kind){.name = name, .pattern = pattern, .source = source};
    for (int i = 0; i < MAX_TERM; i++) k->value[i] = NAN;
}

static weft_status apply(weft_cost_constants *c, const setting *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_cost_family f = list[i].family;
        int              k = find_kind(c, f, list[i].name, strlen(list[i].name));
        int              t = find_term(f, list[i].term);
        if (k < 0 || t < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "built-in constants: there is no %s.%s",
                             list[i].name, list[i].term);
        c->kind[f][k].value[t] = list[i].value;
    }
    return WEFT_OK;
}

weft_status weft_cost_constants_unfitted(weft_cost_constants **out)
{
    weft_cost_constants *c = calloc(1, sizeof(*c));
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for the constants");
    for (int f = 0; f < WEFT_COST_N_FAMILY; f++) {
        add_kind(c, (weft_cost_family)f, "default", "\n", "the terms' own defaults");
        for (int i = 0; i < family[f].n; i++)
            c->kind[f][0].value[i] = family[f].term[i].value;
    }
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        if (c->n[known[i].family] < MAX_KIND)
            add_kind(c, known[i].family, known[i].name, known[i].pattern,
                     known[i].source);
    weft_status st = apply(c, stated, WEFT_COUNT(stated));
    if (st != WEFT_OK) {
        free(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status weft_cost_constants_create(weft_cost_constants **out)
{
    weft_cost_constants *c;
    WEFT_TRY(weft_cost_constants_unfitted(&c));
    weft_status st = apply(c, fitted, WEFT_COUNT(fitted));
    if (st != WEFT_OK) {
        free(c);
        return st;
    }
    for (size_t i = 0; i < WEFT_COUNT(fitted); i++) {
        const setting *s = &fitted[i];
        c->kind[s->family][find_kind(c, s->family, s->name, strlen(s->name))].fitted =
            true;
    }
    *out = c;
    return WEFT_OK;
}

bool weft_cost_kind_fitted(const weft_cost_constants *c, weft_cost_family f, int i)
{
    return i > 0 && c->kind[f][i].fitted;
}

void weft_cost_constants_destroy(weft_cost_constants *c)
{
    free(c);
}

/* ---- by key ---- */

static weft_status no_term(weft_cost_family f, const char *key, const char *term)
{
    const char *list[MAX_TERM];
    for (int i = 0; i < family[f].n; i++) list[i] = family[f].term[i].name;
    const char *near = weft_suggest(term, list, family[f].n);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: no such term of the kind %s%s%s%s", key,
                     family[f].name, near ? ", did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

weft_status weft_cost_constants_set(weft_cost_constants *c, const char *key, double v)
{
    const char *first = strchr(key, '.'), *last = strrchr(key, '.');
    if (!first || last == first)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: expected family.kind.term, as engine.default.stream", key);
    for (int f = 0; f < WEFT_COST_N_FAMILY; f++) {
        if (strlen(family[f].name) != (size_t)(first - key) ||
            strncmp(family[f].name, key, (size_t)(first - key)))
            continue;
        weft_cost_family fam = (weft_cost_family)f;
        int              k   = find_kind(c, fam, first + 1, (size_t)(last - first - 1));
        int              t   = find_term(fam, last + 1);
        if (k < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: no such %s is known", key,
                             family[f].name);
        if (t < 0) return no_term(fam, key, last + 1);
        const weft_cost_term *term = &family[f].term[t];
        if (!(v >= term->low && v <= term->high))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %g is outside of its limits %g to %g",
                             key, v, term->low, term->high);
        c->kind[f][k].value[t] = v;
        return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: starts with none of device, link, engine", key);
}

/* ---- by number ---- */

int weft_cost_n_term(weft_cost_family f)
{
    return family[f].n;
}

const weft_cost_term *weft_cost_term_at(weft_cost_family f, int i)
{
    return &family[f].term[i];
}

int weft_cost_n_kind(const weft_cost_constants *c, weft_cost_family f)
{
    return c->n[f];
}

const char *weft_cost_kind_name(const weft_cost_constants *c, weft_cost_family f, int i)
{
    return c->kind[f][i].name;
}

const char *weft_cost_kind_source(const weft_cost_constants *c, weft_cost_family f, int i)
{
    return c->kind[f][i].source;
}

double weft_cost_value(const weft_cost_constants *c, weft_cost_family f, int k, int term,
                       bool *own)
{
    double v = c->kind[f][k].value[term];
    if (own) *own = !isnan(v);
    return isnan(v) ? c->kind[f][0].value[term] : v;
}

void weft_cost_put(weft_cost_constants *c, weft_cost_family f, int k, int term, double v)
{
    c->kind[f][k].value[term] = v;
}

/* Does name contain the pattern ('|' parts alternatives), whatever the case? */
static bool contains(const char *name, const char *pattern)
{
    for (; *pattern; pattern += strcspn(pattern, "|"), pattern += *pattern == '|') {
        size_t n = strcspn(pattern, "|");
        for (const char *s = name; *s; s++) {
            size_t i = 0;
            while (i < n && s[i] && tolower((unsigned char)s[i]) == pattern[i]) i++;
            if (i == n) return true;
        }
    }
    return false;
}

int weft_cost_kind_of(const weft_cost_constants *c, weft_cost_family f, const char *name)
{
    for (int i = 1; name && i < c->n[f]; i++)
        if (contains(name, c->kind[f][i].pattern)) return i;
    return 0;
}

weft_status weft_cost_know_engine(const weft_cost_constants *c, const char *name)
{
    weft_text t = {0};
    if (weft_cost_kind_of(c, WEFT_COST_ENGINE, name)) return WEFT_OK;
    for (int i = 1; i < c->n[WEFT_COST_ENGINE]; i++)
        weft_text_add(&t, "%s%s", i > 1 ? ", " : "",
                      weft_cost_kind_name(c, WEFT_COST_ENGINE, i));
    weft_status st =
        WEFT_FAIL(WEFT_ERR_ARG, "engine '%.40s' is none of: %s", name, t.s ? t.s : "");
    weft_text_fini(&t);
    return st;
}

/* ---- for use ---- */

void weft_cost_constants_engine(const weft_cost_constants *c, const char *framework,
                                weft_cost_engine *out)
{
    int k = weft_cost_kind_of(c, WEFT_COST_ENGINE, framework), i = 0;
    out->known = k > 0;
#define TERM(name, value, low, high, unit, about)                                        \
    out->name = weft_cost_value(c, WEFT_COST_ENGINE, k, i++, NULL);
#include "cost/engine_terms.def"
#undef TERM
}

typedef struct device_values {
#define TERM(name, value, low, high, unit, about) double name;
#include "cost/device_terms.def"
#undef TERM
} device_values;

void weft_cost_constants_device(const weft_cost_constants *c, weft_device_kind *d)
{
    int           k = weft_cost_kind_of(c, WEFT_COST_DEVICE, d->name), i = 0;
    device_values v;
#define TERM(name, value, low, high, unit, about)                                        \
    v.name = weft_cost_value(c, WEFT_COST_DEVICE, k, i++, NULL);
#include "cost/device_terms.def"
#undef TERM
    if (d->efficiency <= 0) d->efficiency = v.efficiency;
    if (d->half_size <= 0) d->half_size = v.half_size;
    if (d->attention <= 0) d->attention = v.attention;
    if (d->stream <= 0) d->stream = v.stream;
    if (d->launch_s <= 0) d->launch_s = v.launch_s;
    for (i = 0; i < d->n_rate; i++) {
        const char *t = d->rate[i].dtype;
        if (d->rate[i].efficiency > 0) continue;
        if (!strncmp(t, "f8", 2)) d->rate[i].efficiency = v.efficiency_f8;
        if (!strncmp(t, "f4", 2)) d->rate[i].efficiency = v.efficiency_f4;
        if (!strcmp(t, "f32")) d->rate[i].efficiency = v.efficiency_f32;
    }
}

void weft_cost_constants_link(const weft_cost_constants *c, const char *name, double Bps,
                              weft_cost_wire *out)
{
    int    k = weft_cost_kind_of(c, WEFT_COST_LINK, name);
    double v[5];
    for (int i = 0; i < 5; i++) v[i] = weft_cost_value(c, WEFT_COST_LINK, k, i, NULL);
    double four = v[1] > 0 ? v[1] : v[0], two = v[2] > 0 ? v[2] : four;
    *out = (weft_cost_wire){.alpha_s = v[3],
                            .Bps     = Bps * v[0],
                            .Bps_4   = Bps * four,
                            .Bps_2   = Bps * two,
                            .decay   = v[4]};
}
