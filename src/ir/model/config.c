/* Reading a configuration's keys.  Every complaint is one line: file, line, key, why, remedy. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/model_priv.h"

static const int64_t most_size   = INT32_MAX;
static const int64_t default_seq = 1024;

/* The first spelling of "a|b" that is there and not null. */
const weft_node *weft_model__node(const weft_model__maker *mk, const char *key)
{
    char word[64];
    for (const char *p = key; *p;) {
        size_t n = strcspn(p, "|");
        if (n < sizeof word) {
            memcpy(word, p, n);
            word[n]              = 0;
            const weft_node *got = weft_node_get(mk->cfg, word);
            if (got && got->kind != WEFT_NODE_NULL) return got;
        }
        p += n + (p[n] == '|');
    }
    return NULL;
}

bool weft_model__has(const weft_model__maker *mk, const char *key)
{
    return weft_model__node(mk, key) != NULL;
}

static int first_spelling(const char *key)
{
    return (int)strcspn(key, "|");
}

void weft_model__refuse(weft_model__maker *mk, const char *key, const char *fmt, ...)
{
    char    why[512];
    va_list ap;
    if (mk->b.st != WEFT_OK) return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    const weft_node *n    = weft_model__node(mk, key);
    const char      *name = n && n->key ? n->key : key;
    int              len  = n && n->key ? (int)strlen(name) : first_spelling(key);
    if (n)
        mk->b.st = WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %.*s: %s", weft_doc_file(mk->doc),
                             n->line, len, name, why);
    else
        mk->b.st = WEFT_FAIL(WEFT_ERR_ARG, "%s: %.*s: %s", weft_doc_file(mk->doc), len,
                             name, why);
}

int64_t weft_model__size(weft_model__maker *mk, const char *key, int64_t def)
{
    const weft_node *n = weft_model__node(mk, key);
    int64_t          x = def;
    if (mk->b.st != WEFT_OK) return 1;
    if (!n && def == 0)
        weft_model__refuse(mk, key, "is missing; the model's size depends on it");
    if (n && mk->b.st == WEFT_OK)
        mk->b.st = weft_doc_get_int(mk->doc, mk->cfg, n->key, &x);
    if (mk->b.st == WEFT_OK && (x < 1 || x > most_size))
        weft_model__refuse(mk, key, "%lld is impossible, expected 1 to %lld",
                           (long long)x, (long long)most_size);
    return mk->b.st == WEFT_OK ? x : 1;
}

int64_t weft_model__layers(weft_model__maker *mk, const char *key)
{
    const int64_t most = 10000;
    int64_t       n    = weft_model__size(mk, key, 0);
    if (n > most)
        weft_model__refuse(mk, key, "%lld layers are more than %lld", (long long)n,
                           (long long)most);
    return mk->b.st == WEFT_OK ? n : 1;
}

double weft_model__number(weft_model__maker *mk, const char *key, double def)
{
    const weft_node *n = weft_model__node(mk, key);
    double           x = def;
    if (mk->b.st != WEFT_OK) return def;
    if (n) mk->b.st = weft_doc_get_double(mk->doc, mk->cfg, n->key, &x);
    if (mk->b.st == WEFT_OK && !isfinite(x))
        weft_model__refuse(mk, key, "is not a finite number");
    return mk->b.st == WEFT_OK ? x : def;
}

double weft_model__positive(weft_model__maker *mk, const char *key, double def)
{
    double x = weft_model__number(mk, key, def);
    if (mk->b.st == WEFT_OK && !(x > 0))
        weft_model__refuse(mk, key, "%g must be above 0", x);
    return mk->b.st == WEFT_OK ? x : def;
}

bool weft_model__flag(weft_model__maker *mk, const char *key, bool def)
{
    const weft_node *n = weft_model__node(mk, key);
    bool             x = def;
    if (n && mk->b.st == WEFT_OK)
        mk->b.st = weft_doc_get_bool(mk->doc, mk->cfg, n->key, &x);
    return mk->b.st == WEFT_OK ? x : def;
}

const char *weft_model__word(weft_model__maker *mk, const char *key, const char *def)
{
    const weft_node *n = weft_model__node(mk, key);
    const char      *x = def;
    if (n && mk->b.st == WEFT_OK)
        mk->b.st = weft_doc_get_string(mk->doc, mk->cfg, n->key, &x);
    return mk->b.st == WEFT_OK ? x : def;
}

int64_t weft_model__divide(weft_model__maker *mk, const char *key, int64_t parts,
                           const char *whole_key, int64_t whole)
{
    if (mk->b.st != WEFT_OK) return 1;
    if (whole % parts == 0) return whole / parts;
    weft_model__refuse(mk, key, "%lld does not divide %.*s %lld; change one of the two",
                       (long long)parts, first_spelling(whole_key), whole_key,
                       (long long)whole);
    return 1;
}

static double probability(weft_model__maker *mk, const char *key, double def)
{
    double p = weft_model__number(mk, key, def);
    if (mk->b.st == WEFT_OK && (p < 0 || p >= 1))
        weft_model__refuse(mk, key, "%g is no probability below 1", p);
    return mk->b.st == WEFT_OK ? p : 0;
}

static void leave_notice(weft_model__maker *mk)
{
    mk->m->notice =
        "the configuration's dropout is off; `dropout: true` in the job turns it on";
}

double weft_model__drop(weft_model__maker *mk, const char *key, double def)
{
    double p = probability(mk, key, def);
    if (mk->o.dropout) return p;
    if (p > 0) leave_notice(mk);
    return 0;
}

void weft_model__no_attention_drop(weft_model__maker *mk, const char *key, double def)
{
    double p = probability(mk, key, def);
    if (p > 0 && mk->o.dropout)
        weft_model__refuse(
            mk, key,
            "dropout of attention probabilities is not supported; set it to 0, or "
            "leave `dropout: true` out of the job");
    else if (p > 0)
        leave_notice(mk);
}

void weft_model__set_seq(weft_model__maker *mk, const char *key, int64_t context)
{
    if (mk->b.st != WEFT_OK) return;
    mk->seq = mk->o.seq ? mk->o.seq : context < default_seq ? context : default_seq;
    if (mk->seq > context)
        weft_model__refuse(mk, key,
                           "seq %lld is longer than the model's %lld positions; take a "
                           "shorter seq",
                           (long long)mk->seq, (long long)context);
    mk->m->info.context = context;
    mk->m->seq          = mk->seq;
}
