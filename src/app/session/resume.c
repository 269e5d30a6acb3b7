/* Where a run begins: the output folder, the checkpoint in it, what is taken from it.
 *
 *     output/checkpoints holds nothing      start at step 0
 *     ... checkpoints of this job           go on behind the newest whole one
 *     ... of another job, model or data     refused, naming what differs
 *     --fresh                               output/run-2, run-3, ...: the first that is not there
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "session/session_priv.h"

static weft_status fresh_place(weft_session *s)
{
    for (int k = 2; k < 100000; k++) {
        s->out.folder = weft_arena_printf(s->arena, "%s/run-%d", s->job.output, k);
        if (!s->out.folder || !weft_io_exists(s->out.folder)) break;
    }
    return weft_arena_status(s->arena);
}

/* What state.json keeps beside its own numbers. */
static const char *identity_of(weft_session *s, const weft_ckpt_state *st)
{
    weft_doc   *d = NULL;
    weft_text   t = {0};
    const char *x = NULL;
    if (!st->extra) return NULL;
    if (weft_doc_parse_json("state.json", st->extra, strlen(st->extra), &d) != WEFT_OK)
        return NULL;
    const weft_node *job = weft_node_get(weft_doc_root(d), "job");
    if (job) weft_node_print_json(job, &t);
    if (t.s) x = weft_arena_strdup(s->arena, t.s);
    weft_text_fini(&t);
    weft_doc_destroy(d);
    return x;
}

static weft_status read_state(const weft_ckpt *c, weft_ckpt_state *out)
{
    size_t      n;
    const char *text = weft_ckpt_text(c, "state.json", &n);
    if (!text)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: state.json is missing", weft_ckpt_path(c));
    return weft_ckpt_state_parse("state.json", text, n, out);
}

/* Before the model is compiled: is it this job? */
static weft_status check_job(weft_session *s)
{
    const char *where = weft_ckpt_path(s->resume);
    WEFT_TRY(read_state(s->resume, &s->checkpoint));
    const char *identity = identity_of(s, &s->checkpoint);
    if (!identity)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: state.json does not say of which job it is",
                         where);
    if (s->checkpoint.micro_batch < 1 || s->checkpoint.lanes < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: state.json: micro_batch %lld and lanes %lld",
                         where, (long long)s->checkpoint.micro_batch,
                         (long long)s->checkpoint.lanes);
    WEFT_TRY(weft_session__find_seq(&s->job));
    WEFT_TRY(weft_job_keep_reduction(&s->job, identity, where));
    WEFT_TRY(weft_job_same(&s->job, identity, where));
    s->r.first_step = s->r.steps = s->out.saved_step = s->checkpoint.step;
    return WEFT_OK;
}

weft_status weft_session__find_start(weft_session *s)
{
    weft_status st     = WEFT_OK;
    s->out.folder      = s->job.output;
    s->out.saved_step  = -1;
    s->out.checkpoints = weft_arena_printf(s->arena, "%s/checkpoints", s->out.folder);
    WEFT_GO(weft_arena_status(s->arena));
    bool any = weft_ckpt_any(s->out.checkpoints);
    if (s->o->fresh && (any || weft_io_exists(s->out.folder))) {
        WEFT_GO(fresh_place(s));
        s->out.checkpoints = weft_arena_printf(s->arena, "%s/checkpoints", s->out.folder);
        WEFT_GO(weft_arena_status(s->arena));
        any = false;
    }
    if (any) {
        WEFT_GO(weft_ckpt_open(s->out.checkpoints, WEFT_CKPT_NEWEST, &s->out.found,
                               &s->resume));
        weft_session__show_findings(s);
        WEFT_GO(check_job(s));
    }
out:
    return st;
}

static weft_status open_step(weft_session *s, int64_t step)
{
    WEFT_TRY(weft_ckpt_open(s->out.checkpoints, step, &s->out.found, &s->resume));
    weft_session__show_findings(s);
    weft_ckpt_state_fini(&s->checkpoint);
    s->checkpoint = (weft_ckpt_state){0};
    return check_job(s);
}

/* Rank 0 looks, for another one may be finished in the meantime. */
weft_status weft_session__open_newest(weft_session *s)
{
    int64_t     step  = -1; /* none */
    weft_status st    = WEFT_OK;
    bool        any   = weft_session__writes(s) && weft_ckpt_any(s->out.checkpoints);
    s->out.saved_step = -1;
    if (any) st = open_step(s, WEFT_CKPT_NEWEST);
    if (any && st == WEFT_OK) step = s->checkpoint.step;
    WEFT_TRY(weft_session__outcome(s, st));
    WEFT_TRY(weft_session__share(s, &step, sizeof step));
    if (!weft_session__writes(s) && step >= 0) st = open_step(s, step);
    return weft_session__outcome(s, st);
}

weft_status weft_session__place(weft_session *s)
{
    s->out.folder = s->job.output;
    if (!s->o->fresh) WEFT_TRY(weft_session__claim(s));
    return weft_session__find_start(s);
}

weft_status weft_session__take_place(weft_session *s)
{
    WEFT_TRY(weft_session__meet(s)); /* all have looked before one writes */
    if (weft_session__writes(s)) WEFT_TRY(weft_io_mkdirs(s->out.folder));
    WEFT_TRY(weft_session__claim(s));
    snprintf(s->r.output, sizeof s->r.output, "%s", s->out.folder);
    return WEFT_OK;
}

/* The model's graph is of one micro-batch: it is compared at the checkpoint's, also where --allow
 * changed that. */
weft_status weft_session__check_model(weft_session *s)
{
    weft_compile_spec spec = weft_job_spec(&s->job);
    weft_model       *m    = NULL;
    if (!s->resume) return WEFT_OK;
    uint64_t hash = s->now->made.model->graph_hash;
    if (s->checkpoint.micro_batch != s->job.micro_batch) {
        spec.micro_batch = s->checkpoint.micro_batch;
        WEFT_TRY(weft_compile_model(&spec, &m));
        hash = m->graph_hash;
        weft_model_destroy(m);
    }
    if (s->checkpoint.graph_hash == hash) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is of another model than %s; --fresh starts anew beside it",
                     weft_ckpt_path(s->resume), s->job.model);
}

weft_status weft_session__check_data(weft_session *s)
{
    if (s->checkpoint.data_id == weft_data_id(s->data) && s->checkpoint.has_content_id &&
        s->checkpoint.content_id != weft_data_content_id(s->data))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s was trained on other %s than those of %s now; --fresh "
                         "starts anew beside it",
                         weft_ckpt_path(s->resume),
                         weft_data_is_rows(s->data) ? "tokens or labels" : "tokens",
                         s->job.data);
    if (s->checkpoint.data_id != weft_data_id(s->data))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s was trained on other data than %s; --fresh starts anew beside it",
            weft_ckpt_path(s->resume), s->job.data);
    if (strcmp(s->checkpoint.kernel_set, weft_session__kernel_set(&s->job)))
        weft_say_warn(
            &s->say,
            "the checkpoint was written by kernels '%s', these are '%s': from here on "
            "the numbers may differ in their last bits",
            s->checkpoint.kernel_set, weft_session__kernel_set(&s->job));
    return WEFT_OK;
}

/* Every state of the graph that is not a copy of a parameter, by its name. */
static weft_status read_optimizer(weft_session *s)
{
    const weft_graph      *g = s->now->made.graph;
    const weft_store_file *f = weft_ckpt_tensors(s->resume, "optimizer.safetensors");
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        if (!weft_session__is_saved(s, v)) continue;
        const weft_store_tensor *t = f ? weft_store_find(f, x->name) : NULL;
        if (!t || t->dtype != x->type.dtype ||
            !weft_shape_equal(&t->shape, &x->type.shape))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s/optimizer.safetensors: %s %s",
                             weft_ckpt_path(s->resume), x->name,
                             t ? "has another type or shape" : "is missing");
        weft_state_target to = {
            weft_region_whole(&t->shape), 1, {weft_state_find(s->state, x->name)}};
        WEFT_TRY(weft_state_load(s->state, &to, t));
    }
    return WEFT_OK;
}

static weft_status read_last(weft_session *s, const weft_ckpt_state *state)
{
    weft_doc *d = NULL;
    WEFT_TRY(weft_doc_parse_json("state.json", state->extra, strlen(state->extra), &d));
    const weft_node *root  = weft_doc_root(d);
    weft_status      st    = weft_doc_get_double(d, root, "loss", &s->r.loss);
    int64_t          steps = s->job.steps;
    if (st == WEFT_OK) st = weft_doc_get_double(d, root, "grad_norm", &s->r.grad_norm);
    if (st == WEFT_OK) st = weft_doc_get_int(d, root, "steps", &steps);
    weft_doc_destroy(d);
    if (steps != s->job.steps && !s->job.lr_schedule.decay_steps &&
        strcmp(s->job.lr_schedule.name, "constant"))
        weft_say_warn(&s->say,
                      "the learning rate now ends at step %lld, so far it went for %lld; "
                      "lr_schedule.decay_steps fixes it",
                      (long long)s->job.steps, (long long)steps);
    return st;
}

static weft_status check_hash(weft_session *s)
{
    uint64_t hash;
    WEFT_TRY(weft_weights_hash(&s->now->weights, &hash));
    if (hash != s->checkpoint.weights_xxh64)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: weights do not have the hash they were saved with",
                         weft_ckpt_path(s->resume));
    return WEFT_OK;
}

weft_status weft_session__restore(weft_session *s)
{
    const char            *where = weft_ckpt_path(s->resume);
    const weft_store_file *f     = weft_ckpt_tensors(s->resume, "model.safetensors");
    WEFT_TRY(weft_session__check_data(s));
    if (!f) return WEFT_FAIL(WEFT_ERR_ARG, "%s: model.safetensors is missing", where);
    WEFT_TRY(weft_weights_read_file(&s->now->weights, f));
    WEFT_TRY(weft_session__lead(s, check_hash));
    WEFT_TRY(read_optimizer(s));
    return read_last(s, &s->checkpoint);
}
