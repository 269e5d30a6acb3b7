/* A model on a cluster, ready to be searched. */
#ifndef TESTS_SEARCH_BENCH_H
#define TESTS_SEARCH_BENCH_H

#include <string.h>

#include "engine/engine.h"
#include "search/search.h"
#include "support/test.h"

typedef struct bench {
    weft_arena          *a;
    weft_cluster        *k;
    weft_cost_constants *c;
    weft_hardware       *h;
    weft_config          config;
    weft_search_machines m;
    weft_search_problem  p;
} bench;

typedef struct sizes {
    int layers, hidden, heads, seq, vocab, experts, batch;
} sizes;

static inline void open_bench(bench *b, const char *cluster, const sizes *z,
                              const char *engine)
{
    weft_search_limits l = weft_search_limits_of(engine);
    memset(b, 0, sizeof *b);
    assert_ok(weft_arena_create(&b->a));
    assert_ok(weft_cluster_load(cluster, NULL, &b->k));
    assert_ok(weft_cost_constants_create(&b->c));
    assert_ok(weft_search_machines_of(b->k, b->c, b->a, &b->m));
    weft_engine_open(&b->config);
    assert_ok(weft_engine_cluster(b->k, b->a, &b->config, &b->h));
    weft_config *c = &b->config;
    c->id          = "test";
    c->family      = z->experts ? "moe" : "gpt";
    c->attn        = "full";
    c->layers      = z->layers;
    c->hidden      = z->hidden;
    c->heads       = z->heads;
    c->ffn_hidden  = 4 * z->hidden;
    c->seq         = z->seq;
    c->vocab       = z->vocab;
    if (z->experts) {
        c->experts      = z->experts;
        c->experts_topk = 2;
    }
    c->global_batch = z->batch;
    c->precision    = "bf16";
    c->framework    = engine;
    c->tp = c->pp = c->cp = 1;
    assert_ok(weft_config_complete("test", c));
    b->p = (weft_search_problem){.machines = &b->m, .batch = z->batch, .n_best = 5};
    weft_search_open(&b->p.constraints);
    assert_ok(weft_search_transformer(c, b->c, &l, b->a, &b->p.model));
}

static inline void close_bench(bench *b)
{
    weft_hardware_destroy(b->h);
    weft_cost_constants_destroy(b->c);
    weft_cluster_destroy(b->k);
    weft_arena_destroy(b->a);
}

#endif
