#include "support/shard_case.h"

#include <stdio.h>

#include "support/test.h"

void test_shard_open(test_shard *c, const char *model, int64_t batch, int64_t seq)
{
    weft_model_options o = {.batch = batch, .seq = seq, .with_loss = true};
    memset(c, 0, sizeof *c);
    assert_ok(weft_arena_create(&c->a));
    assert_ok(weft_model_load(model, &o, &c->m));
    weft_train_param  *p = WEFT_ARENA_ARRAY(c->a, weft_train_param, c->m->n_param);
    weft_train_options t = {.loss      = c->m->loss_sum,
                            .optimizer = "adamw",
                            .beta      = {0.9, 0.999},
                            .eps       = 1e-8,
                            .clip      = 1,
                            .n_param   = c->m->n_param,
                            .param     = p};
    for (int i = 0; i < c->m->n_param; i++)
        p[i] = (weft_train_param){c->m->param[i].value, c->m->param[i].decay};
    assert_ok(weft_graph_make_training(c->m->graph, &t, &c->t));
}

void test_shard_apply(test_shard *c, const weft_shard_options *o)
{
    weft_sharding_destroy(c->s);
    c->s = NULL;
    assert_ok(weft_shard_propagate(c->t.graph, o, &c->s));
}

void test_shard_mark(test_shard *c, const char *text)
{
    weft_lex           x;
    weft_mesh          m;
    weft_mark          k[32];
    weft_shard_options o = {.n_mesh = 1, .mesh = &m, .mark = k};
    weft_lex_init(&x, c->a, "marks", text, strlen(text));
    assert_ok(weft_mesh_parse(&x, c->a, &m));
    while (x.tok != WEFT_TOK_END) assert_ok(weft_mark_parse(&x, &m, &k[o.n_mark++]));
    test_shard_apply(c, &o);
}

void test_shard_close(test_shard *c)
{
    weft_sharding_destroy(c->s);
    weft_graph_destroy(c->t.graph);
    weft_model_destroy(c->m);
    weft_arena_destroy(c->a);
}

static weft_vid find(const test_shard *c, const char *name)
{
    weft_vid v = weft_graph_find(c->t.graph, name);
    if (v < 0) fail_msg("there is no value %s", name);
    return v;
}

weft_layout test_shard_value(const test_shard *c, const char *value)
{
    return c->s->value[find(c, value)];
}

weft_layout test_shard_use(const test_shard *c, const char *node, int k)
{
    return c->s->use[c->s->first[c->t.graph->value[find(c, node)].node] + k];
}

static const char *text_of(test_shard *c, const weft_layout *l)
{
    weft_text t = {0};
    weft_layout_print(l, &c->s->mesh[l->mesh], &t);
    const char *s = weft_arena_strdup(c->a, t.s);
    weft_text_fini(&t);
    return s;
}

const char *test_shard_text(test_shard *c, const char *value)
{
    weft_layout l = test_shard_value(c, value);
    return text_of(c, &l);
}

const char *test_shard_use_text(test_shard *c, const char *node, int k)
{
    weft_layout l = test_shard_use(c, node, k);
    return text_of(c, &l);
}
