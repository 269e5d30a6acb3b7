/* A job as text: one line of JSON, the part of it that a checkpoint remembers, tables of the
 * keys. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_priv.h"

static void put_value(const weft_job *j, const weft_job__key *k, weft_text *t)
{
    const char *field = (const char *)j + k->at;
    switch (k->kind) {
    case WEFT_JOB__STRING:
    case WEFT_JOB__WORDS:
    case WEFT_JOB__WORD: {
        const char *s = *(const char *const *)(const void *)field;
        if (s)
            weft_text_put_quoted(t, s);
        else
            weft_text_add(t, "null");
        break;
    }
    case WEFT_JOB__INT:
        weft_text_add(t, "%lld", (long long)*(const int64_t *)(const void *)field);
        break;
    case WEFT_JOB__REAL:
        weft_text_put_double(t, *(const double *)(const void *)field);
        break;
    case WEFT_JOB__BOOL: weft_text_add(t, *(const bool *)field ? "true" : "false"); break;
    case WEFT_JOB__STRATEGY:
        weft_strategy_print_value(&j->strategy, weft_strategy_find(k->key), true, t);
        break;
    case WEFT_JOB__PAIR: {
        const double *x = (const double *)(const void *)field;
        weft_text_add(t, "[");
        weft_text_put_double(t, x[0]);
        weft_text_add(t, ", ");
        weft_text_put_double(t, x[1]);
        weft_text_add(t, "]");
        break;
    }
    }
}

/* Rows of one map stand together in job.def, so maps open and close as the rows go by. */
static void print_rows(const weft_job *j, int same_only, weft_text *t)
{
    const char *map  = "";
    const char *glue = "";
    weft_text_add(t, "{");
    for (int i = 0; i < weft_job__n_key; i++) {
        const weft_job__key *k = &weft_job__keys[i];
        if (same_only && !k->same) continue;
        if (strcmp(map, k->map)) {
            weft_text_add(t, "%s, \"%s\": {", map[0] ? "}" : "", k->map);
            map  = k->map;
            glue = "";
        }
        weft_text_add(t, "%s\"%s\": ", glue, k->key);
        put_value(j, k, t);
        glue = ", ";
    }
    weft_text_add(t, map[0] ? "}}" : "}");
}

void weft_job_print(const weft_job *j, weft_text *t)
{
    print_rows(j, 0, t);
}

/* Paths may differ from host to host; what lies there is compared when it has been read. */
static const char *last_part(const char *path)
{
    const char *s = path ? strrchr(path, '/') : NULL;
    return s && s[1] ? s + 1 : path;
}

/* False: each rank may have its own. */
static bool print_common_key(const weft_job *j, int i, weft_text *t)
{
    static const char *const own[] = {"threads", "memory", "output", "cluster"};
    const weft_job__key     *k     = &weft_job__keys[i];
    for (size_t n = 0; n < WEFT_COUNT(own); n++)
        if (!k->map[0] && !strcmp(k->key, own[n])) return false;
    weft_text_add(t, "%s%s%s is ", k->map, k->map[0] ? "." : "", k->key);
    if (k->at == offsetof(weft_job, model))
        weft_text_add(t, "%s", last_part(j->model));
    else if (k->at == offsetof(weft_job, data) || k->at == offsetof(weft_job, eval.data))
        weft_text_add(t, "%s",
                      *(const char *const *)(const void *)((const char *)j + k->at)
                          ? "given"
                          : "left out");
    else if (k->at == offsetof(weft_job, plan) && j->plan_file)
        weft_text_add(t, "a file");
    else
        put_value(j, k, t);
    return true;
}

void weft_job_print_common(const weft_job *j, weft_text *t)
{
    for (int i = 0; i < weft_job__n_key; i++)
        if (print_common_key(j, i, t)) weft_text_add(t, "\n");
}

/* auto is what it means here. */
void weft_job_print_identity(const weft_job *j, weft_text *t)
{
    weft_job x  = *j;
    x.reduction = weft_job_is_invariant(j) ? "invariant" : "fixed";
    print_rows(&x, 1, t);
}

static const weft_node *find(const weft_doc *d, const weft_job__key *k)
{
    const weft_node *m = weft_doc_root(d);
    if (k->map[0]) m = weft_node_get(m, k->map);
    return m && m->kind == WEFT_NODE_MAP ? weft_node_get(m, k->key) : NULL;
}

/* Checkpoints written before there was `reduction` have it as "sums". */
static bool put_recorded_reduction(const weft_doc *d, const weft_job__key *k,
                                   weft_text *t)
{
    const weft_node *n = weft_node_get(weft_doc_root(d), "sums");
    if (strcmp(k->key, "reduction") != 0 || !n || n->kind != WEFT_NODE_STRING)
        return false;
    weft_text_put_quoted(t, strcmp(n->u.s, "bitwise") ? "fixed" : "invariant");
    return true;
}

weft_status weft_job_keep_reduction(weft_job *j, const char *identity, const char *where)
{
    weft_doc *d;
    if (strcmp(j->reduction, "auto")) return WEFT_OK;
    WEFT_TRY(weft_doc_parse_json(where, identity, strlen(identity), &d));
    const weft_node *n = weft_node_get(weft_doc_root(d), "reduction");
    if (n && n->kind == WEFT_NODE_STRING)
        j->reduction = strcmp(n->u.s, "fixed") ? "invariant" : "fixed";
    weft_doc_destroy(d);
    return WEFT_OK;
}

weft_status weft_job_same(const weft_job *j, const char *identity, const char *where)
{
    weft_doc   *mine = NULL, *theirs = NULL;
    weft_text   t = {0}, a = {0}, b = {0};
    weft_status st = WEFT_OK;
    weft_job_print_identity(j, &t);
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_doc_parse_json("job", t.s, t.n, &mine));
    WEFT_GO(weft_doc_parse_json(where, identity, strlen(identity), &theirs));
    for (int i = 0; i < weft_job__n_key; i++) {
        const weft_job__key *k = &weft_job__keys[i];
        const weft_node     *m = find(mine, k), *n = find(theirs, k);
        if (!m || k->same != 1) continue;
        a.n = b.n = 0;
        weft_node_print_json(m, &a);
        if (n)
            weft_node_print_json(n, &b);
        else if (!put_recorded_reduction(theirs, k, &b))
            continue;
        WEFT_GO(weft_text_status(&a));
        WEFT_GO(weft_text_status(&b));
        if (!strcmp(a.s, b.s)) continue;
        const char *dot = k->map[0] ? "." : "", *quote = strchr(b.s, ' ') ? "'" : "";
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                          "%s is of another job: %s%s%s is %s there and %s here; "
                          "%s%s%s%s=%s%s goes on, --fresh starts anew beside it",
                          where, k->map, dot, k->key, b.s, a.s, quote, k->map, dot,
                          k->key, b.s, quote));
    }
out:
    weft_text_fini(&t);
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_doc_destroy(mine);
    weft_doc_destroy(theirs);
    return st;
}

weft_status weft_job_parse_allow(const char *text, unsigned *out)
{
    static const struct {
        const char *key;
        unsigned    bit;
    } known[] = {{"lanes", WEFT_JOB_ALLOW_LANES},
                 {"micro_batch", WEFT_JOB_ALLOW_MICRO_BATCH}};
    *out      = 0;
    for (const char *p = text; p;) {
        size_t   len = strcspn(p, ",");
        unsigned bit = 0;
        for (size_t i = 0; i < WEFT_COUNT(known); i++)
            if (len == strlen(known[i].key) && !strncmp(p, known[i].key, len))
                bit = known[i].bit;
        if (!bit)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "--allow: '%.*s' is none of the keys that a resume may "
                             "change: lanes, micro_batch (write --allow "
                             "lanes,micro_batch); with others it is another job: --fresh",
                             (int)(len < 100 ? len : 100), p);
        *out |= bit;
        p = p[len] ? p + len + 1 : NULL;
    }
    return WEFT_OK;
}

static const char *kind_text(const weft_job__key *k)
{
    switch (k->kind) {
    case WEFT_JOB__STRING: return "text";
    case WEFT_JOB__INT: return "whole number";
    case WEFT_JOB__REAL: return "number";
    case WEFT_JOB__BOOL: return "true, false";
    case WEFT_JOB__PAIR: return "two numbers";
    case WEFT_JOB__WORDS:
    case WEFT_JOB__WORD: return k->words;
    case WEFT_JOB__STRATEGY: return weft_strategy_kind_text(weft_strategy_find(k->key));
    }
    return "";
}

void weft_job_print_keys(weft_text *t)
{
    for (int i = 0; i < weft_job__n_key; i++) {
        const weft_job__key *k = &weft_job__keys[i];
        char                 name[64];
        snprintf(name, sizeof name, "%s%s%s", k->map, k->map[0] ? "." : "", k->key);
        weft_text_add(t, "  %-24s %s%s%s", name, kind_text(k),
                      k->def[0] ? "; default " : "", k->def);
        if (k->help[0]) weft_text_add(t, "\n  %-24s   %s", "", k->help);
        weft_text_add(t, "\n");
    }
}

void weft_job_print_keys_md(weft_text *t)
{
    weft_text_add(t, "| key | value | default | |\n|---|---|---|---|\n");
    for (int i = 0; i < weft_job__n_key; i++) {
        const weft_job__key *k = &weft_job__keys[i];
        weft_text_add(t, "| `%s%s%s` | %s | %s%s%s | %s |\n", k->map,
                      k->map[0] ? "." : "", k->key, kind_text(k), k->def[0] ? "`" : "",
                      k->def, k->def[0] ? "`" : "", k->help);
    }
}
