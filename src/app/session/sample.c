/* One forward pass of the whole window a token: plain, and fast enough for a look at a small
 * model. */
#include "session/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "ckpt/ckpt.h"
#include "session/device.h"
#include "session/pick.h"
#include "session/runner.h"
#include "session/say.h"
#include "session/weights.h"

/* Where config.json and weights lie. */
static weft_status find_model(const char *model, weft_arena *a, const char **out)
{
    weft_ckpt  *c     = NULL;
    const char *final = weft_arena_printf(a, "%s/final", model);
    const char *ckpt  = weft_arena_printf(a, "%s/checkpoints", model);
    WEFT_TRY(weft_arena_status(a));
    *out = model;
    if (weft_store_dir_has_weights(model)) return WEFT_OK;
    if (weft_store_dir_has_weights(final)) {
        *out = final;
        return WEFT_OK;
    }
    if (!weft_ckpt_any(ckpt))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: no weights here, nor in final/ or checkpoints/", model);
    weft_ckpt_findings found = {0};
    weft_status        st    = weft_ckpt_open(ckpt, WEFT_CKPT_NEWEST, &found, &c);
    const char        *text;
    int                n;
    while (st == WEFT_OK && weft_ckpt_next_warning(&found, &text, &n))
        weft_say_warn(&(weft_say){0}, "%.*s", n, text);
    weft_ckpt_findings_fini(&found);
    WEFT_TRY(st);
    *out = weft_arena_strdup(a, weft_ckpt_path(c));
    weft_ckpt_close(c);
    return weft_arena_status(a);
}

/* What weft train wrote about how a model was trained, where the folder has it. */
typedef struct trained_job {
    int64_t seq;   /* positions past it are unknown to the model; 0: not known */
    bool    bytes; /* tokenizer: bytes */
} trained_job;

static trained_job read_job(const char *model, weft_arena *a)
{
    const char *path = weft_arena_printf(a, "%s/job.json", model);
    weft_doc   *d    = NULL;
    trained_job j    = {0};
    if (!path || !weft_io_exists(path) || weft_doc_load(path, &d) != WEFT_OK) return j;
    const weft_node *t = weft_node_get(weft_doc_root(d), "tokenizer");
    if (weft_doc_get_int(d, weft_doc_root(d), "seq", &j.seq) != WEFT_OK) j.seq = 0;
    j.bytes = t && t->kind == WEFT_NODE_STRING && !strcmp(t->u.s, "bytes");
    weft_doc_destroy(d);
    return j;
}

typedef struct sampler {
    weft_model   *model;
    weft_compiled made;
    weft_pool    *pool;
    weft_device  *device;
    weft_runner  *runner;
    weft_arena   *arena;
    int64_t       window, vocab;
    int32_t      *token; /* prompt and what came after it */
    int64_t       n;
    int32_t      *order;
    float        *logit; /* of the last token */
} sampler;

static weft_status compile_logits(sampler *s, const char *dir,
                                  const weft_model_source *source, int64_t window)
{
    weft_compile_spec spec = weft_compile_spec_default(dir, 1, window);
    spec.source            = source;
    WEFT_TRY(weft_compile_logits_model(&spec, &s->model));
    if (!window) { /* the model's own, within reason */
        int64_t context = s->model->info.context;
        window = spec.seq = context > 0 && context < 256 ? context : 256;
    }
    if (s->model->seq != window) {
        weft_model_destroy(s->model);
        s->model = NULL;
        WEFT_TRY(weft_compile_logits_model(&spec, &s->model));
    }
    WEFT_TRY(weft_compile_logits(&spec, s->model, &s->made));
    if (s->made.model->kind != WEFT_MODEL_LM || !s->made.model->causal)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: not a model of next tokens", dir);
    s->window = window;
    s->vocab  = s->made.model->info.vocab;
    return WEFT_OK;
}

static weft_status compile(sampler *s, const char *dir, int64_t window)
{
    weft_model_source *source;
    WEFT_TRY(weft_model_source_open(dir, &source));
    weft_status st = compile_logits(s, dir, source, window);
    weft_model_source_destroy(source);
    return st;
}

static weft_status load(sampler *s, const char *dir, const weft_sample_options *how)
{
    weft_weights    w = {.model = s->made.model, .graph = s->made.graph};
    weft_store_dir *d = NULL;
    WEFT_TRY(
        weft_pool_create(how->threads ? how->threads : weft_runner_cores(), 0, &s->pool));
    WEFT_TRY(weft_session_open_device(
        &(weft_session_device){.where = "weft sample", .list = how->device}, &s->device));
    weft_runner_options o = {.made = &s->made, .pool = s->pool, .device = s->device};
    WEFT_TRY(weft_runner_create(&o, &s->runner));
    w.state = weft_runner_state(s->runner);
    WEFT_TRY(weft_store_dir_open(dir, &d));
    weft_status st = weft_weights_read_dir(&w, d);
    weft_store_dir_close(d);
    return st;
}

/* A prompt of ids: numbers with spaces between.  *n: how many; ids NULL: only counted. */
static weft_status read_ids(const sampler *s, const char *p, int64_t *n, int32_t *ids)
{
    for (*n = 0; *(p += strspn(p, " ,\n\t")); (*n)++) {
        char *end;
        long  id = strtol(p, &end, 10);
        if (end == p || (*end && !strchr(" ,\n\t", *end)) || id < 0 || id >= s->vocab)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "--ids: the prompt is token ids from 0 to %lld with spaces "
                             "between, such as \"12 7 431\"; '%.20s' is none",
                             (long long)s->vocab - 1, p);
        if (ids) ids[*n] = (int32_t)id;
        p = end;
    }
    if (!*n)
        return WEFT_FAIL(WEFT_ERR_ARG, "--ids: give the prompt as token ids: --prompt "
                                       "\"12 7 431\"");
    return WEFT_OK;
}

static weft_status put_prompt(sampler *s, const weft_sample_options *o, bool ids)
{
    const char *p = o->prompt && o->prompt[0] ? o->prompt : ids ? "" : "\n";
    s->n          = (int64_t)strlen(p);
    if (ids) WEFT_TRY(read_ids(s, p, &s->n, NULL));
    s->token = WEFT_ARENA_ARRAY(s->arena, int32_t, s->n + o->tokens + 1);
    s->order = WEFT_ARENA_ARRAY(s->arena, int32_t, s->vocab);
    s->logit = WEFT_ARENA_ARRAY(s->arena, float, s->vocab);
    WEFT_TRY(weft_arena_status(s->arena));
    if (ids) return read_ids(s, p, &s->n, s->token);
    for (int64_t i = 0; i < s->n; i++) {
        s->token[i] = (uint8_t)p[i];
        if (s->token[i] >= s->vocab)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "the prompt's byte %d is past the vocabulary of %lld",
                             s->token[i], (long long)s->vocab);
    }
    return WEFT_OK;
}

/* The window slides by halves, so that a token sees at least half of one before it. */
static weft_status next(sampler *s, const weft_sample_options *o, int64_t draw)
{
    int64_t first = 0;
    while (s->n - first > s->window) first += s->window / 2 > 0 ? s->window / 2 : 1;
    weft_runner_put_ids(s->runner, s->token + first, s->n - first);
    WEFT_TRY(weft_runner_step(s->runner, draw));
    const weft_model *m = s->made.model;
    WEFT_TRY(weft_runner_read_row(s->runner, m->graph->value[m->logits].name,
                                  s->n - first - 1, s->logit));
    s->token[s->n++] = weft_pick(s->logit, (int32_t)s->vocab, o->temperature, o->top_k,
                                 weft_pick_uniform(o->seed, draw), s->order);
    return WEFT_OK;
}

static void print(const sampler *s, bool ids, weft_text *text)
{
    for (int64_t i = 0; i < s->n; i++) {
        char byte = (char)s->token[i];
        if (ids)
            weft_text_add(text, i ? " %d" : "%d", s->token[i]);
        else
            weft_text_put(text, &byte, 1);
    }
}

weft_status weft_sample_run(const char *model, const weft_sample_options *o, bool ids,
                            weft_text *text)
{
    sampler     s = {0};
    const char *dir;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&s.arena));
    WEFT_GO(find_model(model, s.arena, &dir));
    trained_job job = read_job(model, s.arena);
    WEFT_GO(compile(&s, dir, o->window ? o->window : job.seq));
    if (!ids && !weft_model_is_of_bytes(s.made.model) && !(job.bytes && s.vocab <= 256))
        WEFT_GO(WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: its %lld tokens are not bytes; --ids takes a prompt of ids and "
            "prints ids",
            dir, (long long)s.vocab));
    WEFT_GO(load(&s, dir, o));
    WEFT_GO(put_prompt(&s, o, ids));
    for (int64_t i = 0; i < o->tokens; i++) WEFT_GO(next(&s, o, i));
    print(&s, ids, text);
out:
    weft_runner_destroy(s.runner);
    weft_session_close_device(s.device);
    weft_pool_destroy(s.pool);
    weft_compiled_fini(&s.made);
    weft_model_destroy(s.model);
    weft_arena_destroy(s.arena);
    return st;
}
