/* Shared by rediscover.c and tables.c. */
#ifndef BENCH_PLAN_REDISCOVER_H
#define BENCH_PLAN_REDISCOVER_H

#include "estimate/estimate.h"
#include "search/search.h"

typedef struct bench {
    weft_arena          *a;
    weft_hardware       *h;
    weft_cost_constants *k;
    const char          *dir;
    bool                 show; /* each plan, not the table alone */
} bench;

typedef struct sizes {
    int layers, hidden, heads, kv_heads, ffn, vocab, seq, batch;
} sizes;

weft_status bench_machines(const bench *b, const char *device, const char *net,
                           int n_node, int per_node, weft_search_machines *out);
void        bench_config(weft_config *c, const char *framework, const sizes *z);
void        bench_put_choice(const weft_search_choice *c, weft_text *t);

weft_status bench_cells(const bench *b);
weft_status bench_recipes(const bench *b);
weft_status bench_ernie(const bench *b);

#endif
