/* What a run leaves: checkpoints, and the trained model as a Hugging Face folder. */
#include <errno.h>
#include <sys/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "kernel/kernel.h"
#include "plugin/plugin.h"
#include "session/session_priv.h"

const char *weft_session__kernel_set(const weft_job *j)
{
    const weft_plugin *p;
    if (strncmp(j->device, "cuda", 4) != 0 || weft_plugin_open("cuda", &p) != WEFT_OK)
        return weft_kernel_set_id("cpu");
    return weft_kernel_set_id("cuda");
}

/* States of the program that must be saved: all but copies of parameters, which follow from the
 * master weights, and running statistics, which are weights. */
bool weft_session__is_saved(const weft_session *s, weft_vid v)
{
    const weft_model       *m = s->now->made.model;
    const weft_graph_value *x = &s->now->made.graph->value[v];
    if (x->kind != WEFT_VALUE_STATE || x->node >= 0) return false;
    for (int i = 0; i < m->n_stat; i++)
        if (!strcmp(m->stat[i].p.name, x->name)) return false;
    return x->copy_of < 0;
}

static weft_status optimizer_items(weft_session *s, weft_arena *a, weft_store_item **out,
                                   int *n)
{
    const weft_graph *g = s->now->made.graph;
    *n                  = 0;
    *out                = WEFT_ARENA_ARRAY(a, weft_store_item, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (!weft_session__is_saved(s, v)) continue;
        const weft_type *t = &g->value[v].type;
        weft_store_item *x = &(*out)[(*n)++];
        weft_region      r = weft_region_whole(&t->shape);
        *x                 = (weft_store_item){
                            .name = g->value[v].name, .dtype = t->dtype, .shape = t->shape};
        WEFT_TRY(weft_gather_source(s->now->gather, weft_state_find(s->state, x->name),
                                    &r, t->dtype, a, &x->from));
    }
    return WEFT_OK;
}

static weft_status copy_history(const weft_ckpt_state *from, weft_ckpt_state *to)
{
    for (int i = 0; i < from->n_history; i++)
        WEFT_TRY(weft_ckpt_state_add_change(to, &from->history[i]));
    return WEFT_OK;
}

weft_status weft_session__describe(weft_session *s, weft_ckpt_state *out)
{
    weft_ckpt_state c     = {.step           = s->r.steps,
                             .sample         = s->r.steps * s->job.batch,
                             .seed           = s->job.seed,
                             .batch          = s->job.batch,
                             .micro_batch    = s->job.micro_batch,
                             .lanes          = s->job.lanes,
                             .seq            = s->job.seq,
                             .data_id        = weft_data_id(s->data),
                             .has_content_id = true,
                             .content_id     = weft_data_content_id(s->data),
                             .graph_hash     = s->now->made.model->graph_hash};
    weft_text       extra = {0};
    weft_status     st    = WEFT_OK;
    snprintf(c.kernel_set, sizeof c.kernel_set, "%s", weft_session__kernel_set(&s->job));
    weft_text_add(&extra, "{\"job\": ");
    weft_job_print_identity(&s->job, &extra);
    weft_text_add(&extra, ", \"steps\": %lld", (long long)s->job.steps);
    weft_text_put_member(&extra, "loss", s->r.loss);
    weft_text_put_member(&extra, "grad_norm", s->r.grad_norm);
    weft_session__eval_print(s, &extra);
    if (s->now->saves_only && s->row.step == s->r.steps) {
        weft_text_add(&extra, ", \"row\": "); /* metrics.jsonl may lack it */
        weft_metrics_print(&s->row, &extra);
    }
    weft_text_add(&extra, "}");
    WEFT_GO(weft_text_status(&extra));
    WEFT_GO(copy_history(&s->checkpoint, &c));
    c.extra = extra.s; /* the text's memory is malloc's */
    *out    = c;
    return WEFT_OK;
out:
    weft_text_fini(&extra);
    weft_ckpt_state_fini(&c);
    return st;
}

static weft_status print_state(weft_session *s, weft_text *out)
{
    weft_ckpt_state c;
    weft_status     st = WEFT_OK;
    WEFT_TRY(weft_session__describe(s, &c));
    WEFT_GO(weft_weights_hash(&s->now->weights, &c.weights_xxh64));
    WEFT_GO(weft_ckpt_state_print(&c, out));
out:
    weft_ckpt_state_fini(&c);
    return st;
}

static void note_damaged(weft_session_result *r, int64_t step)
{
    for (int i = 0; i < r->n_damaged && i < WEFT_SESSION_MAX_DAMAGED; i++)
        if (r->damaged_step[i] == step) return;
    if (r->n_damaged < WEFT_SESSION_MAX_DAMAGED) r->damaged_step[r->n_damaged] = step;
    r->n_damaged++;
}

void weft_session__show_findings(weft_session *s)
{
    const char *text;
    int         n;
    while (weft_ckpt_next_warning(&s->out.found, &text, &n))
        weft_say_warn(&s->say, "%.*s", n, text);
    s->r.n_damaged = 0;
    for (int i = 0; i < s->out.found.n; i++)
        if (!s->out.found.checked[i].whole)
            note_damaged(&s->r, s->out.found.checked[i].step);
}

weft_status weft_session__save_alone(weft_session *s)
{
    static const weft_store_pair pt    = {"format", "pt"};
    weft_arena                  *a     = NULL;
    weft_text                    state = {0};
    weft_ckpt_file               f[4];
    weft_store_item             *item, *opt;
    int                          n  = 0, n_item, n_opt;
    weft_status                  st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(print_state(s, &state));
    WEFT_GO(
        weft_weights_items(&s->now->weights, NULL, WEFT_DTYPE_F32, a, &item, &n_item));
    WEFT_GO(optimizer_items(s, a, &opt, &n_opt));
    f[n++] = (weft_ckpt_file){.name    = "model.safetensors",
                              .tensors = {item, n_item, &pt, 1, NULL}};
    if (n_opt)
        f[n++] = (weft_ckpt_file){.name    = "optimizer.safetensors",
                                  .tensors = {opt, n_opt, NULL, 0, NULL}};
    f[n++] = (weft_ckpt_file){.name = "state.json", .text = state.s, .n_text = state.n};
    if (s->now->made.model->config)
        f[n++] = (weft_ckpt_file){.name   = "config.json",
                                  .text   = s->now->made.model->config,
                                  .n_text = strlen(s->now->made.model->config)};
    WEFT_GO(weft_io_mkdirs(s->out.checkpoints));
    WEFT_GO(weft_ckpt_save(s->out.checkpoints, s->r.steps, f, n, &s->out.found));
    WEFT_GO(weft_ckpt_prune(s->out.checkpoints, s->r.steps, (int)s->job.checkpoint.keep,
                            &s->out.found));
    weft_say_info(&s->say, "checkpoint of step %lld in %s", (long long)s->r.steps,
                  s->out.checkpoints);
out:
    weft_session__show_findings(s);
    weft_text_fini(&state);
    weft_arena_destroy(a);
    return st;
}

/* Small files that make a folder loadable by others and that training does not change. */
static const char *const copied[] = {"generation_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "tokenizer.model",
                                     "special_tokens_map.json",
                                     "vocab.json",
                                     "vocab.txt",
                                     "merges.txt"};

weft_status weft_session__check_copies(const weft_session *s)
{
    for (size_t i = 0; s->now->made.model->dir && i < WEFT_COUNT(copied); i++) {
        char from[4608];
        int  fd = -1;
        snprintf(from, sizeof from, "%s/%s", s->now->made.model->dir, copied[i]);
        if (!weft_io_exists(from)) continue;
        WEFT_TRY(weft_io_open_read(from, &fd, NULL));
        close(fd);
    }
    return WEFT_OK;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* A model that was trained on text as bytes gets no tokenizer, and keeps none of an earlier run:
 * its ids are not that tokenizer's. */
static weft_status copy_beside(const weft_session *s, const char *to)
{
    bool bytes = !strcmp(weft_data_format(s->data), "text");
    for (size_t i = 0; s->now->made.model->dir && i < WEFT_COUNT(copied); i++) {
        char   from[4608], dest[4608];
        char  *text;
        size_t n;
        snprintf(from, sizeof from, "%s/%s", s->now->made.model->dir, copied[i]);
        snprintf(dest, sizeof dest, "%s/%s", to, copied[i]);
        if (bytes && i > 0 && !is_same_file(from, dest)) {
            if (unlink(dest) != 0 && errno != ENOENT)
                return WEFT_FAIL(WEFT_ERR_IO, "%s: cannot be removed: %s", dest,
                                 strerror(errno));
            continue;
        }
        if (!weft_io_exists(from) || (bytes && i > 0)) continue;
        WEFT_TRY(weft_io_read_as(from, WEFT_IO_LARGE, &text, &n));
        weft_status st = weft_io_replace_file(dest, text, n);
        free(text);
        WEFT_TRY(st);
    }
    return WEFT_OK;
}

weft_status weft_session__export(weft_session *s)
{
    static const weft_store_pair pt    = {"format", "pt"};
    const weft_model            *m     = s->now->made.model;
    weft_dtype                   dtype = m->file_dtype;
    weft_arena                  *a     = NULL;
    weft_store_item             *item;
    int                          n;
    weft_status                  st = WEFT_OK;
    char                         to[4352], config[4400];
    snprintf(to, sizeof to, "%s/final", s->out.folder);
    snprintf(config, sizeof config, "%s/config.json", to);
    if (dtype != WEFT_DTYPE_BF16) dtype = WEFT_DTYPE_F32;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_io_mkdirs(to));
    WEFT_GO(weft_weights_items(&s->now->weights, s->source, dtype, a, &item, &n));
    WEFT_GO(s->source ? weft_store_dir_rewrite(s->source, to, item, n)
                      : weft_store_dir_write(to, item, n, &pt, 1, 0));
    if (m->config) WEFT_GO(weft_io_replace_file(config, m->config, strlen(m->config)));
    WEFT_GO(copy_beside(s, to));
out:
    weft_arena_destroy(a);
    return st;
}
