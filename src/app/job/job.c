/* Reads a job by the rows of job.def: the file's keys, then key=value words, then what follows from
 * them.  One loop over rows does the typing, the ranges and the defaults. */
#include "job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"
#include "base/io.h"
#include "job/job_priv.h"

const weft_job__key weft_job__keys[] = {
#define KEY(map, key, kind, field, min, max, words, def, same, help)                     \
    {map,  #key, WEFT_JOB__##kind, offsetof(weft_job, field), min, max, words, def,      \
     same, help},
#include "job/job.def"
#undef KEY
};
const int weft_job__n_key = (int)WEFT_COUNT(weft_job__keys);

static const char *const maps[] = {"optimizer", "lr_schedule", "checkpoint", "eval"};

/* "job.yaml:3: optimizer.lr" */
static const char *place(weft_job *j, const weft_job__key *k, const weft_node *n)
{
    const char *dot = k->map[0] ? "." : "";
    if (n->line == 0) return weft_arena_printf(j->arena, "%s%s%s", k->map, dot, k->key);
    return weft_arena_printf(j->arena, "%s:%d: %s%s%s", j->file, n->line, k->map, dot,
                             k->key);
}

static bool as_double(const weft_node *n, double *out)
{
    if (n->kind == WEFT_NODE_INT) *out = (double)n->u.i;
    if (n->kind == WEFT_NODE_FLOAT) *out = n->u.f;
    return n->kind == WEFT_NODE_INT || n->kind == WEFT_NODE_FLOAT;
}

static weft_status in_range(weft_job *j, const weft_job__key *k, const weft_node *n,
                            double x)
{
    if (x >= k->min && x <= k->max) return WEFT_OK; /* false for NaN too */
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: %.12g is out of range, from %.12g to %.12g",
                     place(j, k, n), x, k->min, k->max);
}

/* The word of k->words that n says; true and false stand for what a row allows. */
static weft_status read_word(weft_job *j, const weft_job__key *k, const weft_node *n,
                             const char **out)
{
    static const char *const alias[][2] = {{"f32", "fp32"},
                                           {"float32", "fp32"},
                                           {"bfloat16", "bf16"},
                                           {"F32", "fp32"},
                                           {"BF16", "bf16"}};
    const char              *word       = n->kind == WEFT_NODE_STRING ? n->u.s : NULL;
    if (n->kind == WEFT_NODE_BOOL && !strcmp(k->key, "recompute"))
        word = n->u.b ? "full" : "none";
    if (!word)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected one of: %s", place(j, k, n),
                         k->words);
    for (size_t i = 0; i < WEFT_COUNT(alias) && !strcmp(k->key, "dtype"); i++)
        if (!strcmp(word, alias[i][0])) word = alias[i][1];
    const char *p = k->words;
    for (size_t len; *p; p += len + (p[len] == ' ')) {
        len = strcspn(p, " ");
        if (len == strlen(word) && !strncmp(p, word, len)) {
            *out = weft_arena_strndup(j->arena, p, len);
            return WEFT_OK;
        }
    }
    const char *hint = strcmp(k->key, "dtype") ? NULL : weft_compile_dtype_hint(word);
    if (hint) return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s", place(j, k, n), hint);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: '%s' is none of: %s", place(j, k, n), word,
                     k->words);
}

/* A word of a list. */
static weft_status read_listed(weft_job *j, const weft_job__key *k, const weft_node *n,
                               const char **out)
{
    WEFT_TRY(read_word(j, k, n, out));
    if (strcmp(*out, "on") && strcmp(*out, "off")) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: '%s' stands alone, in no list", place(j, k, n),
                     *out);
}

/* One word, "a,b" or [a, b]; on and off stand alone. */
static weft_status read_words(weft_job *j, const weft_job__key *k, const weft_node *n,
                              const char **out)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    const char *one;
    if (n->kind == WEFT_NODE_BOOL) { /* YAML's words for them */
        *out = n->u.b ? "on" : "off";
        return WEFT_OK;
    }
    if (n->kind == WEFT_NODE_STRING && !strchr(n->u.s, ','))
        return read_word(j, k, n, out);
    if (n->kind == WEFT_NODE_STRING) {
        weft_node part = *n;
        for (const char *p = n->u.s; p && st == WEFT_OK; p = strchr(p, ',')) {
            p += p > n->u.s;
            part.u.s = weft_arena_strndup(j->arena, p, strcspn(p, ","));
            WEFT_GO(read_listed(j, k, &part, &one));
            weft_text_add(&t, "%s%s", t.n ? "," : "", one);
        }
    } else if (n->kind == WEFT_NODE_LIST && n->u.list.n > 0) {
        for (int i = 0; i < n->u.list.n; i++) {
            WEFT_GO(read_listed(j, k, n->u.list.node[i], &one));
            weft_text_add(&t, "%s%s", t.n ? "," : "", one);
        }
    } else {
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: expected some of: %s", place(j, k, n),
                          k->words));
    }
    WEFT_GO(weft_text_status(&t));
    *out = weft_arena_strdup(j->arena, t.s);
out:
    weft_text_fini(&t);
    return st;
}

static weft_status read_pair(weft_job *j, const weft_job__key *k, const weft_node *n,
                             double out[2])
{
    if (n->kind != WEFT_NODE_LIST || n->u.list.n != 2 ||
        !as_double(n->u.list.node[0], &out[0]) || !as_double(n->u.list.node[1], &out[1]))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected two numbers like [0.9, 0.999]",
                         place(j, k, n));
    WEFT_TRY(in_range(j, k, n, out[0]));
    return in_range(j, k, n, out[1]);
}

/* A number is a text too where the row has a range of them. */
static weft_status read_digits(weft_job *j, const weft_job__key *k, const weft_node *n,
                               const char **out)
{
    char s[32];
    snprintf(s, sizeof s, "%lld", (long long)n->u.i);
    *out = weft_arena_strdup(j->arena, s);
    return in_range(j, k, n, (double)n->u.i);
}

static weft_status read_strategy(weft_job *j, const weft_job__key *k, const weft_node *n)
{
    weft_status st = weft_strategy_read(&j->strategy, weft_strategy_find(k->key), n);
    return st == WEFT_OK || !n->line ? st : weft_fail_in(st, "%s:%d: ", j->file, n->line);
}

static weft_status read_key(weft_job *j, const weft_job__key *k, const weft_node *n)
{
    char *field = (char *)j + k->at;
    switch (k->kind) {
    case WEFT_JOB__STRING:
        if (n->kind == WEFT_NODE_INT && k->max > k->min)
            return read_digits(j, k, n, (const char **)(void *)field);
        if (n->kind != WEFT_NODE_STRING || !n->u.s[0])
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected %s%s", place(j, k, n),
                             k->words[0] ? "something like " : "a word or a path",
                             k->words);
        *(const char **)(void *)field = weft_arena_strdup(j->arena, n->u.s);
        return WEFT_OK;
    case WEFT_JOB__INT:
        if (n->kind != WEFT_NODE_INT)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected a whole number", place(j, k, n));
        *(int64_t *)(void *)field = n->u.i;
        return in_range(j, k, n, (double)n->u.i);
    case WEFT_JOB__REAL:
        if (!as_double(n, (double *)(void *)field))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected a number", place(j, k, n));
        return in_range(j, k, n, *(double *)(void *)field);
    case WEFT_JOB__BOOL:
        if (n->kind != WEFT_NODE_BOOL)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected true or false", place(j, k, n));
        *(bool *)field = n->u.b;
        return WEFT_OK;
    case WEFT_JOB__WORD: return read_word(j, k, n, (const char **)(void *)field);
    case WEFT_JOB__WORDS: return read_words(j, k, n, (const char **)(void *)field);
    case WEFT_JOB__PAIR: return read_pair(j, k, n, (double *)(void *)field);
    case WEFT_JOB__STRATEGY: return read_strategy(j, k, n);
    }
    return WEFT_OK;
}

/* "optimizer: sgd" */
static weft_status not_a_map(const weft_doc *d, const weft_node *n)
{
    char        where[300] = "";
    const char *first      = "";
    if (n->line) snprintf(where, sizeof where, "%s:%d: ", weft_doc_file(d), n->line);
    for (int i = weft_job__n_key - 1; i >= 0; i--)
        if (!strcmp(weft_job__keys[i].map, n->key)) first = weft_job__keys[i].key;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s%s: expected a map of keys, such as %s.%s", where,
                     n->key, n->key, first);
}

/* "lr: 3e-4" at the top, where optimizer.lr is meant. */
static weft_status check_level(const weft_doc *d, const weft_node *root)
{
    for (int i = 0; i < root->u.list.n; i++) {
        const weft_node     *n   = root->u.list.node[i];
        const weft_job__key *k   = NULL;
        bool                 top = false;
        for (int j = weft_job__n_key - 1; j >= 0; j--) {
            if (strcmp(weft_job__keys[j].key, n->key) != 0) continue;
            k   = &weft_job__keys[j];
            top = top || !k->map[0];
        }
        if (!k || top) continue;
        char where[300] = "";
        if (n->line) snprintf(where, sizeof where, "%s:%d: ", weft_doc_file(d), n->line);
        return WEFT_FAIL(WEFT_ERR_ARG, "%sunknown key '%s', did you mean '%s.%s'?", where,
                         n->key, k->map, k->key);
    }
    return WEFT_OK;
}

/* "learning_rate: 3e-4": names of other programs and of earlier builds. */
static weft_status check_names(const weft_doc *d, const weft_node *root)
{
    for (int i = 0; i < root->u.list.n; i++) {
        const weft_node *n          = root->u.list.node[i];
        const char      *hint       = weft_strategy_hint(n->key);
        char             where[300] = "";
        if (!hint) continue;
        if (n->line) snprintf(where, sizeof where, "%s:%d: ", weft_doc_file(d), n->line);
        return WEFT_FAIL(WEFT_ERR_ARG, "%sunknown key '%s': %s", where, n->key, hint);
    }
    return WEFT_OK;
}

static weft_status check_keys(const weft_doc *d, const weft_node *root)
{
    const char *name[64];
    int         n = 0;
    for (int i = 0; i < weft_job__n_key; i++)
        if (!weft_job__keys[i].map[0]) name[n++] = weft_job__keys[i].key;
    for (size_t m = 0; m < WEFT_COUNT(maps); m++) name[n++] = maps[m];
    WEFT_TRY(check_level(d, root));
    WEFT_TRY(check_names(d, root));
    WEFT_TRY(weft_doc_check_keys(d, root, name, n));
    for (size_t m = 0; m < WEFT_COUNT(maps); m++) {
        const weft_node *map = weft_node_get(root, maps[m]);
        if (!map || map->kind == WEFT_NODE_NULL) continue;
        if (map->kind != WEFT_NODE_MAP) return not_a_map(d, map);
        n = 0;
        for (int i = 0; i < weft_job__n_key; i++)
            if (!strcmp(weft_job__keys[i].map, maps[m]))
                name[n++] = weft_job__keys[i].key;
        WEFT_TRY(weft_doc_check_keys(d, map, name, n));
    }
    return WEFT_OK;
}

static const weft_node *find(const weft_node *root, const weft_job__key *k)
{
    const weft_node *map = k->map[0] ? weft_node_get(root, k->map) : root;
    const weft_node *n =
        map && map->kind == WEFT_NODE_MAP ? weft_node_get(map, k->key) : NULL;
    return n && n->kind != WEFT_NODE_NULL ? n : NULL;
}

/* Defaults go through the same reader as the file. */
static weft_status read_defaults(weft_job *j)
{
    weft_text   t  = {0};
    weft_doc   *d  = NULL;
    weft_status st = WEFT_OK;
    j->strategy    = weft_strategy_default();
    for (int i = 0; i < weft_job__n_key; i++)
        if (weft_job__keys[i].def[0] && weft_job__keys[i].kind != WEFT_JOB__STRATEGY)
            weft_text_add(&t, "k%d: %s\n", i, weft_job__keys[i].def);
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_doc_parse_yaml("job.def", t.s, t.n, &d));
    for (int i = 0; i < weft_job__n_key; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        const weft_node *n = weft_node_get(weft_doc_root(d), name);
        if (n) WEFT_GO(read_key(j, &weft_job__keys[i], n));
    }
out:
    weft_doc_destroy(d);
    weft_text_fini(&t);
    return st;
}

/* The default of the INT key whose field is there. */
static int64_t find_default(size_t at)
{
    for (int i = 0; i < weft_job__n_key; i++)
        if (weft_job__keys[i].at == at) return strtoll(weft_job__keys[i].def, NULL, 10);
    return 0;
}

/* Keys that ask for an evaluation without saying of what. */
static weft_status check_eval(const weft_job *j)
{
    const weft_job_eval *e     = &j->eval;
    bool                 every = e->every != find_default(offsetof(weft_job, eval.every));
    bool batches = e->batches != find_default(offsetof(weft_job, eval.batches));
    if (e->data || (!every && !batches)) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s: eval.%s is given without eval.data: nothing would be evaluated; "
        "give eval.data, a file of tokens or text",
        j->file, every ? "every" : "batches");
}

/* Does it name keys of a strategy, besides those that any plan takes (bucket_bytes, recompute,
 * offload, copies)? */
static bool names_strategy(const weft_job *j)
{
    weft_strategy plain = weft_strategy_default();
    plain.bucket_bytes  = j->strategy.bucket_bytes;
    plain.recompute     = j->strategy.recompute;
    plain.offload       = j->strategy.offload;
    plain.copies        = j->strategy.copies;
    return !weft_strategy_equal(&j->strategy, &plain);
}

/* Every entry of the list, however many ranks there will be. */
static weft_status check_devices(const weft_job *j)
{
    weft_job_device d;
    int             n = 1;
    for (const char *p = j->device; *p; p++) n += *p == ',';
    for (int i = 0; i < n; i++)
        WEFT_TRY(weft_job_parse_device(j->file, j->device, i, n, &d));
    return WEFT_OK;
}

/* What follows from other keys. */
static weft_status resolve(weft_job *j)
{
    if (!j->model)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: model is missing: a folder with config.json, or a "
                         "preset such as tiny256",
                         j->file);
    if (!j->data)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: data is missing: a file of tokens or text",
                         j->file);
    if (j->batch <= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: batch is missing: sequences in a step",
                         j->file);
    if (j->steps < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: steps is missing: how many to train",
                         j->file);
    j->given_micro_batch = j->micro_batch > 0;
    j->given_lanes       = j->lanes > 0;
    weft_job_default_cut(j);
    if (j->lr_schedule.decay_steps && j->lr_schedule.decay_steps < j->lr_schedule.warmup)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: lr_schedule.decay_steps %lld ends before warmup %lld does "
                         "(it counts the warm-up too)",
                         j->file, (long long)j->lr_schedule.decay_steps,
                         (long long)j->lr_schedule.warmup);
    WEFT_TRY(check_eval(j));
    WEFT_TRY(check_devices(j));
    if (strcmp(j->fp8_format, "e4m3") && strcmp(j->dtype, "fp8"))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: fp8_format=%s is for dtype=fp8, not for %s",
                         j->file, j->fp8_format, j->dtype);
    if (j->strategy.offload && !strcmp(j->optimizer.name, "lamb"))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: offload=optimizer is not for optimizer.name=lamb, whose norms "
            "are taken before the step is committed: choose adamw, adam, "
            "adagrad or sgd, or offload=none",
            j->file);
    j->plan_file =
        j->plan && strcmp(j->plan, "off") && strcmp(j->plan, "none") ? j->plan : NULL;
    if (j->plan_file && names_strategy(j))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: plan says it all: leave out dp, tp, cp, ep, pp, zero and "
                         "the other keys of a strategy",
                         j->file);
    return weft_job_check_cut(j, j->strategy.dp);
}

bool weft_job_is_open(const weft_job *j)
{
    return !j->plan && !names_strategy(j);
}

bool weft_job_is_invariant(const weft_job *j)
{
    return strcmp(j->reduction, "fixed") != 0;
}

void weft_job_default_cut(weft_job *j)
{
    if (j->given_micro_batch) return;
    j->micro_batch = j->batch;
    if (j->given_lanes && j->lanes <= j->batch)
        j->micro_batch = j->batch % j->lanes ? 1 : j->batch / j->lanes;
}

weft_status weft_job_check_copies(int copies, int n_host)
{
    if (n_host < 2 || copies <= n_host) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "copies is %d, and the job has at most %d hosts, each with one copy; "
        "set copies to at most %d, or give the job more hosts (--nnodes)",
        copies, n_host, n_host);
}

weft_status weft_job_check_cut(weft_job *j, int dp)
{
    if (j->batch % j->micro_batch)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: micro_batch %lld does not divide batch %lld",
                         j->file, (long long)j->micro_batch, (long long)j->batch);
    int64_t m = j->batch / j->micro_batch;
    if (m > WEFT_JOB_MAX_MICRO)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: batch / micro_batch is %lld micro-batches, at most %d",
                         j->file, (long long)m, WEFT_JOB_MAX_MICRO);
    if (!j->given_lanes) j->lanes = weft_lanes_default(dp, m);
    if (j->lanes & (j->lanes - 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: lanes %lld is not a power of two", j->file,
                         (long long)j->lanes);
    if (j->lanes > m && j->lanes > j->batch)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: lanes %lld is more than batch %lld", j->file,
                         (long long)j->lanes, (long long)j->batch);
    if (j->lanes > m)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: lanes %lld is more than the %lld micro-batch%s of a step; set "
            "micro_batch to at most %lld",
            j->file, (long long)j->lanes, (long long)m, m > 1 ? "es" : "",
            (long long)(j->batch / j->lanes));
    return WEFT_OK;
}

static weft_status read_doc(const weft_doc *d, weft_job *j)
{
    const weft_node *root = weft_doc_root(d);
    if (root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a job is a map of keys", weft_doc_file(d));
    WEFT_TRY(check_keys(d, root));
    j->steps = -1;
    WEFT_TRY(read_defaults(j));
    for (int i = 0; i < weft_job__n_key; i++) {
        const weft_node *n = find(root, &weft_job__keys[i]);
        if (n) WEFT_TRY(read_key(j, &weft_job__keys[i], n));
    }
    WEFT_TRY(weft_arena_status(j->arena));
    return resolve(j);
}

weft_status weft_job_parse(const char *file, const char *text, size_t n, int n_assign,
                           const char *const *assign, weft_job **out)
{
    weft_arena *a    = NULL;
    weft_doc   *d    = NULL;
    size_t      len  = strlen(file);
    bool        json = len > 5 && !strcmp(file + len - 5, ".json");
    weft_status st   = WEFT_OK;

    WEFT_GO(json ? weft_doc_parse_json(file, text, n, &d)
                 : weft_doc_parse_yaml(file, text, n, &d));
    for (int i = 0; i < n_assign; i++) WEFT_GO(weft_doc_override(d, assign[i]));
    WEFT_GO(weft_arena_create(&a));
    weft_job *j = WEFT_ARENA_NEW(a, weft_job);
    if (!j) WEFT_GO(weft_arena_status(a));
    j->arena = a;
    j->file  = weft_arena_strdup(a, file);
    WEFT_GO(read_doc(d, j));
    *out = j;
    a    = NULL;
out:
    weft_doc_destroy(d);
    weft_arena_destroy(a);
    return st;
}

weft_status weft_job_load(const char *path, int n_assign, const char *const *assign,
                          weft_job **out)
{
    if (!path) return weft_job_parse("command line", "{}", 2, n_assign, assign, out);
    char  *text = NULL;
    size_t n    = 0;
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_PIPES, &text, &n));
    weft_status st = weft_job_parse(path, text, n, n_assign, assign, out);
    free(text);
    return st;
}

void weft_job_destroy(weft_job *j)
{
    if (j) weft_arena_destroy(j->arena);
}

bool weft_job_is_on_cpus(const weft_job *j)
{
    for (const char *at = j->device; at;
         at             = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "cpu", 3) != 0) return false;
    return true;
}

/* Kernels of the CPU take neither rows with gaps nor these fusions. */
static bool is_for_gpus(const char *device)
{
    return device && strstr(device, "cuda") && !strstr(device, "cpu");
}

weft_compile_spec weft_job_spec(const weft_job *j)
{
    weft_compile_spec s = {.model       = j->model,
                           .source      = j->source,
                           .seq         = j->seq,
                           .batch       = j->batch,
                           .micro_batch = j->micro_batch,
                           .lanes       = j->lanes,
                           .reduction =
                               (weft_reduction)weft_reduction_parse(j->reduction),
                           .dtype      = j->dtype,
                           .fp8_format = j->fp8_format,
                           .recompute  = (weft_strategy_recompute)j->strategy.recompute,
                           .offload    = (weft_strategy_offload)j->strategy.offload,
                           .dropout    = j->dropout,
                           .optimizer  = j->optimizer};
    if (is_for_gpus(j->device)) weft_compile_for_cuda(&s);
    return s;
}

double weft_job_lr(const weft_job *j, int64_t s)
{
    const weft_job_schedule *c   = &j->lr_schedule;
    double                   lr  = j->optimizer.lr;
    int64_t                  end = c->decay_steps ? c->decay_steps : j->steps;
    if (s <= c->warmup) return lr * (double)s / (double)c->warmup;
    if (!strcmp(c->name, "constant")) return lr;
    if (s > end || end <= c->warmup) return c->min_lr;
    double t = (double)(s - 1 - c->warmup) / (double)(end - c->warmup); /* [0, 1) */
    double w = !strcmp(c->name, "cosine") ? 0.5 * (1 + cos(M_PI * t)) : 1 - t;
    return c->min_lr + w * (lr - c->min_lr);
}
