/* Values of a strategy as text and back: one reader and one printer for each kind of row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "strategy/strategy.h"

/* ---- words of a row ---- */

/* The word in place i of "a b c"; its length in *n. */
static const char *find_word(const char *words, int i, size_t *n)
{
    for (; (*n = strcspn(words, " ")) && i > 0; i--) words += *n + (words[*n] == ' ');
    return words;
}

const char *weft_strategy_schedule_name(const weft_strategy *s)
{
    static const char *const name[] = {"1f1b", "gpipe", "zb-h1", "interleaved"};
    return name[s->schedule];
}

const char *weft_strategy_recompute_name(const weft_strategy *s)
{
    static const char *const name[] = {"none", "selective", "full"};
    return name[s->recompute];
}

const char *weft_strategy_kind_text(const weft_strategy_row *row)
{
    switch (row->kind) {
    case WEFT_STRATEGY_INT:
    case WEFT_STRATEGY_BYTES: return "whole number";
    case WEFT_STRATEGY_FRACTION: return "number from 0 to 1";
    case WEFT_STRATEGY_BOOL: return "true, false";
    case WEFT_STRATEGY_WORD: return row->words;
    case WEFT_STRATEGY_ORDER:
    case WEFT_STRATEGY_SPLIT:
    case WEFT_STRATEGY_LAYERS: return "text";
    }
    return "";
}

/* ---- spans of layers ---- */

static const weft_layer_span blocks = {0, WEFT_SPAN_HEAD - 1};

static bool read_span(const char *word, weft_layer_span *out)
{
    char *end;
    if (!strcmp(word, "input")) {
        *out = (weft_layer_span){WEFT_SPAN_INPUT, WEFT_SPAN_INPUT};
        return true;
    }
    if (!strcmp(word, "head")) {
        *out = (weft_layer_span){WEFT_SPAN_HEAD, WEFT_SPAN_HEAD};
        return true;
    }
    *out = blocks;
    if (!strcmp(word, "blocks")) return true;
    long a = strtol(word, &end, 10), b = a;
    if (end == word) return false;
    if (!strncmp(end, "..", 2)) {
        const char *from = end + 2;
        b                = strtol(from, &end, 10);
        if (end == from) return false;
    }
    *out = (weft_layer_span){(int32_t)a, (int32_t)b};
    return !*end && a >= 0 && b >= a && b < WEFT_SPAN_HEAD;
}

weft_status weft_layer_spans_parse(const char *text, weft_layer_span *out, int *n)
{
    char *copy = strdup(text), *save = NULL;
    if (!copy) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    weft_status st = WEFT_OK;
    *n             = 0;
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        if (*n == WEFT_MAX_SPAN)
            WEFT_GO(
                WEFT_FAIL(WEFT_ERR_ARG, "tp_exclude: more than %d spans", WEFT_MAX_SPAN));
        if (!read_span(w, &out[(*n)++]))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "tp_exclude=%.60s: expected input, head, blocks or layers "
                              "such as 0..3, with commas between",
                              text));
    }
    if (!*n) st = WEFT_FAIL(WEFT_ERR_ARG, "tp_exclude: which layers? write head");
out:
    free(copy);
    return st;
}

void weft_layer_spans_print(const weft_layer_span *s, int n, weft_text *t)
{
    for (int i = 0; i < n; i++) {
        if (i) weft_text_add(t, ",");
        if (s[i].first == WEFT_SPAN_INPUT)
            weft_text_add(t, "input");
        else if (s[i].first == WEFT_SPAN_HEAD)
            weft_text_add(t, "head");
        else if (s[i].first == blocks.first && s[i].last == blocks.last)
            weft_text_add(t, "blocks");
        else
            weft_text_add(t, s[i].first == s[i].last ? "%d" : "%d..%d", s[i].first,
                          s[i].last);
    }
}

/* ---- reading ---- */

static weft_status check_range(const weft_strategy_row *row, double x)
{
    if (x >= (double)row->min && x <= (double)row->max) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: %.12g is out of range, from %lld to %lld",
                     row->key, x, (long long)row->min, (long long)row->max);
}

static weft_status read_whole_number(const weft_strategy_row *row, const weft_node *n)
{
    if (n->kind != WEFT_NODE_INT)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected a whole number", row->key);
    return check_range(row, (double)n->u.i);
}

/* Held in percent, so that it selects the same parameters on every machine. */
static weft_status read_fraction(const weft_strategy_row *row, const weft_node *n,
                                 int *out)
{
    double x = n->kind == WEFT_NODE_INT ? (double)n->u.i : n->u.f;
    if (n->kind != WEFT_NODE_INT && n->kind != WEFT_NODE_FLOAT)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected a fraction such as 0.66", row->key);
    WEFT_TRY(check_range(row, x));
    *out = (int)lround(100 * x);
    if (fabs(100 * x - *out) > 1e-6)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %.12g has more than two decimals", row->key,
                         x);
    return WEFT_OK;
}

int weft_strategy_word(const char *key, const char *word)
{
    const char *words = weft_strategy_find(key)->words;
    size_t      len;
    for (int i = 0; find_word(words, i, &len), len; i++)
        if (len == strlen(word) && !strncmp(find_word(words, i, &len), word, len))
            return i;
    return -1;
}

static weft_status read_word(const weft_strategy_row *row, const weft_node *n, int *out)
{
    const char *word = n->kind == WEFT_NODE_STRING ? n->u.s : NULL;
    if (n->kind == WEFT_NODE_BOOL && !strcmp(row->key, "recompute"))
        word = n->u.b ? "full" : "none";
    if (!word)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected one of: %s", row->key, row->words);
    int i = weft_strategy_word(row->key, word);
    if (i >= 0) {
        *out = i;
        return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: '%.60s' is none of: %s", row->key, word,
                     row->words);
}

/* A list of a row as text with commas: "3,1", 3 or [3, 1]. */
static weft_status join_list(const weft_strategy_row *row, const weft_node *n,
                             weft_text *t)
{
    int              n_item = n->kind == WEFT_NODE_LIST ? n->u.list.n : 1;
    const weft_node *item   = n;
    for (int i = 0; i < n_item; i++) {
        if (n->kind == WEFT_NODE_LIST) item = n->u.list.node[i];
        if (i) weft_text_add(t, ",");
        if (item->kind == WEFT_NODE_INT)
            weft_text_add(t, "%lld", (long long)item->u.i);
        else if (item->kind == WEFT_NODE_STRING)
            weft_text_add(t, "%s", item->u.s);
        else
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected something like %s", row->key,
                             row->words);
    }
    return weft_text_status(t);
}

static weft_status read_order(weft_strategy *s, const char *text)
{
    const char *p   = text;
    s->n_mesh_order = 0;
    for (size_t len; *p; p += len + (p[len] == ',')) {
        int a = 0;
        len   = strcspn(p, ",");
        while (a < WEFT_N_STRATEGY_AXIS &&
               (len != 2 || strncmp(p, weft_strategy_axis_name(a), 2)))
            a++;
        if (a == WEFT_N_STRATEGY_AXIS)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "mesh_order: '%.*s' is not dp, tp, cp or ep; other axes are "
                             "for a plan file",
                             (int)(len < 60 ? len : 60), p);
        for (int i = 0; i < s->n_mesh_order; i++)
            if (s->mesh_order[i] == a)
                return WEFT_FAIL(WEFT_ERR_ARG, "mesh_order: %s is there twice",
                                 weft_strategy_axis_name(a));
        s->mesh_order[s->n_mesh_order++] = (uint8_t)a;
    }
    return s->n_mesh_order
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_ARG, "mesh_order: expected something like dp,tp");
}

/* The "3" or "3x4" at *p: lanes, and how many ranks have as many. */
static bool read_run(const char **p, long *lanes, long *ranks)
{
    char *end;
    *lanes = strtol(*p, &end, 10);
    *ranks = 1;
    if (end == *p || *lanes < 1 || *lanes > 1 << 16) return false;
    *p = end;
    if (*end != 'x') return true;
    *ranks = strtol(++*p, &end, 10);
    if (end == *p || *ranks < 1 || *ranks > 1 << 20) return false;
    *p = end;
    return true;
}

static weft_status read_split(weft_strategy *s, const char *text)
{
    const char *p = text;
    long        lanes, ranks;
    int64_t     all = 0, sum = 0;
    s->n_batch_split = 0;
    do {
        p += s->n_batch_split > 0; /* the comma */
        bool is_run = read_run(&p, &lanes, &ranks) && (!*p || *p == ',');
        all += is_run ? ranks : 0;
        sum += is_run ? ranks * lanes : 0;
        if (!is_run || all > 1 << 20 || sum > 1 << 30)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "batch_split=%.40s: expected lanes of each rank, from 1 to "
                             "65536, such as 3,1 or 3x4,1x4",
                             text);
        if (!weft_strategy_add_split(s, (int)ranks, (int)lanes))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "batch_split: more than %d changes are for a plan file",
                             WEFT_MAX_BATCH_RUN);
    } while (*p);
    return WEFT_OK;
}

static weft_status read_list(weft_strategy *s, const weft_strategy_row *row,
                             const weft_node *n)
{
    weft_text   t  = {0};
    weft_status st = join_list(row, n, &t);
    if (st == WEFT_OK && row->kind == WEFT_STRATEGY_ORDER) st = read_order(s, t.s);
    if (st == WEFT_OK && row->kind == WEFT_STRATEGY_SPLIT) st = read_split(s, t.s);
    if (st == WEFT_OK && row->kind == WEFT_STRATEGY_LAYERS)
        st = weft_layer_spans_parse(t.s, s->tp_exclude, &s->n_tp_exclude);
    weft_text_fini(&t);
    return st;
}

weft_status weft_strategy_read(weft_strategy *s, const weft_strategy_row *row,
                               const weft_node *n)
{
    void *field = (char *)s + row->at;
    switch (row->kind) {
    case WEFT_STRATEGY_INT:
        WEFT_TRY(read_whole_number(row, n));
        *(int *)field = (int)n->u.i;
        return WEFT_OK;
    case WEFT_STRATEGY_BYTES:
        WEFT_TRY(read_whole_number(row, n));
        *(int64_t *)field = n->u.i;
        return WEFT_OK;
    case WEFT_STRATEGY_FRACTION: return read_fraction(row, n, field);
    case WEFT_STRATEGY_BOOL:
        if (n->kind != WEFT_NODE_BOOL)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected true or false", row->key);
        *(bool *)field = n->u.b;
        return WEFT_OK;
    case WEFT_STRATEGY_WORD: return read_word(row, n, field);
    case WEFT_STRATEGY_ORDER:
    case WEFT_STRATEGY_SPLIT:
    case WEFT_STRATEGY_LAYERS: return read_list(s, row, n);
    }
    return WEFT_OK;
}

static weft_status find_row(const char *key, const weft_strategy_row **out)
{
    const char *all[32], *hint = weft_strategy_hint(key);
    int         n = 0;
    *out          = weft_strategy_find(key);
    if (*out) return WEFT_OK;
    for (int i = 0; i < weft_strategy_n_row; i++) all[n++] = weft_strategy_rows[i].key;
    const char *near = weft_suggest(key, all, n);
    if (hint) return WEFT_FAIL(WEFT_ERR_ARG, "unknown key '%s': %s", key, hint);
    return WEFT_FAIL(WEFT_ERR_ARG, "unknown key '%.60s'%s%s%s", key,
                     near ? ", did you mean '" : "; a strategy is like dp=2 tp=2 zero=1",
                     near ? near : "", near ? "'?" : "");
}

/* d: a document to read "key=value" into. */
static weft_status read_assignment(weft_strategy *s, weft_doc *d, const char *word,
                                   const weft_strategy_row **row)
{
    char   key[64];
    size_t n = strcspn(word, "=");
    if (!word[n] || !n || n >= sizeof key)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%.60s': expected key=value, as in dp=2", word);
    memcpy(key, word, n);
    key[n] = 0;
    WEFT_TRY(find_row(key, row));
    if (weft_node_get(weft_doc_root(d), key))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is there twice", key);
    WEFT_TRY(weft_doc_override(d, word));
    return weft_strategy_read(s, *row, weft_node_get(weft_doc_root(d), key));
}

weft_status weft_strategy_assign(weft_strategy *s, const char *assignment,
                                 const weft_strategy_row **row)
{
    const weft_strategy_row *found;
    weft_doc                *d;
    WEFT_TRY(weft_doc_parse_json("strategy", "{}", 2, &d));
    weft_status st = read_assignment(s, d, assignment, row ? row : &found);
    weft_doc_destroy(d);
    return st;
}

weft_status weft_strategy_parse(const char *text, weft_strategy *out)
{
    const weft_strategy_row *row;
    weft_strategy            s    = weft_strategy_default();
    char                    *copy = strdup(text), *save = NULL;
    weft_doc                *d  = NULL;
    weft_status              st = WEFT_OK;
    if (!copy) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    WEFT_GO(weft_doc_parse_json("strategy", "{}", 2, &d));
    for (char *w = strtok_r(copy, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save))
        WEFT_GO(read_assignment(&s, d, w, &row));
    WEFT_GO(weft_strategy_check(&s));
    *out = s;
out:
    weft_doc_destroy(d);
    free(copy);
    return st;
}

/* ---- printing ---- */

/* 66 as 0.66 */
static void print_fraction(int percent, weft_text *t)
{
    if (percent % 100 == 0)
        weft_text_add(t, "%d", percent / 100);
    else if (percent % 10 == 0)
        weft_text_add(t, "0.%d", percent / 10);
    else
        weft_text_add(t, "0.%02d", percent);
}

static void put_word(const char *words, int i, bool json, weft_text *t)
{
    size_t      n;
    const char *word = find_word(words, i, &n);
    weft_text_add(t, json ? "\"%.*s\"" : "%.*s", (int)n, word);
}

static void put_list(const weft_strategy *s, const weft_strategy_row *row, weft_text *t)
{
    int axis[WEFT_N_STRATEGY_AXIS];
    int n = weft_strategy_axes(s, axis);
    for (int i = 0; i < n && row->kind == WEFT_STRATEGY_ORDER; i++)
        weft_text_add(t, "%s%s", i ? "," : "", weft_strategy_axis_name(axis[i]));
    for (int k = 0; k < s->n_batch_split && row->kind == WEFT_STRATEGY_SPLIT; k++) {
        weft_text_add(t, k ? ",%d" : "%d", s->batch_split[k].lanes);
        if (s->batch_split[k].ranks > 1) weft_text_add(t, "x%d", s->batch_split[k].ranks);
    }
    if (row->kind == WEFT_STRATEGY_LAYERS)
        weft_layer_spans_print(s->tp_exclude, s->n_tp_exclude, t);
}

static bool is_empty(const weft_strategy *s, weft_strategy_kind kind)
{
    return !(kind == WEFT_STRATEGY_ORDER   ? s->n_mesh_order
             : kind == WEFT_STRATEGY_SPLIT ? s->n_batch_split
                                           : s->n_tp_exclude);
}

void weft_strategy_print_value(const weft_strategy *s, const weft_strategy_row *row,
                               bool json, weft_text *t)
{
    const void *field = (const char *)s + row->at;
    switch (row->kind) {
    case WEFT_STRATEGY_INT: weft_text_add(t, "%d", *(const int *)field); break;
    case WEFT_STRATEGY_BYTES:
        weft_text_add(t, "%lld", (long long)*(const int64_t *)field);
        break;
    case WEFT_STRATEGY_FRACTION: print_fraction(*(const int *)field, t); break;
    case WEFT_STRATEGY_BOOL:
        weft_text_add(t, *(const bool *)field ? "true" : "false");
        break;
    case WEFT_STRATEGY_WORD: put_word(row->words, *(const int *)field, json, t); break;
    case WEFT_STRATEGY_ORDER:
    case WEFT_STRATEGY_SPLIT:
    case WEFT_STRATEGY_LAYERS:
        if (json && is_empty(s, row->kind)) {
            weft_text_add(t, "null");
            break;
        }
        if (json) weft_text_add(t, "\"");
        put_list(s, row, t);
        if (json) weft_text_add(t, "\"");
        break;
    }
}

void weft_strategy_print(const weft_strategy *s, weft_text *t)
{
    weft_strategy none = weft_strategy_default();
    const char   *glue = "";
    for (int i = 0; i < weft_strategy_n_row; i++) {
        const weft_strategy_row *row   = &weft_strategy_rows[i];
        weft_strategy            plain = *s;
        plain.n_mesh_order = 0; /* an order is compared with the default one */
        if (row->kind != WEFT_STRATEGY_ORDER) plain = none;
        if (weft_strategy_row_equal(s, &plain, row)) continue;
        weft_text_add(t, "%s%s=", glue, row->key);
        weft_strategy_print_value(s, row, false, t);
        glue = " ";
    }
    if (!*glue) weft_text_add(t, "pp=1");
}
