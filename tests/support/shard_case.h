/* A model's training graph under marks given as text.
 *
 *     test_shard c;
 *     test_shard_open(&c, "gpt2", 4, 64);
 *     test_shard_mark(&c, "mesh m [dp=2] from 0  mark \"input_ids\" [dp, ?]");
 *     weft_layout *l = test_shard_value(&c, "h.0.ln_1");
 *     test_shard_close(&c);
 *
 * Any failure fails the running cmocka test. */
#ifndef WEFT_TEST_SHARD_CASE_H
#define WEFT_TEST_SHARD_CASE_H

#include "graph/train.h"
#include "model/model.h"
#include "shard/shard.h"

typedef struct test_shard {
    weft_arena         *a;
    weft_model         *m;
    weft_training_graph t;
    weft_sharding      *s;
} test_shard;

void test_shard_open(test_shard *c, const char *model, int64_t batch, int64_t seq);
/* Propagates; what was there before is forgotten. */
void test_shard_mark(test_shard *c, const char *text);
void test_shard_apply(test_shard *c, const weft_shard_options *o);
void test_shard_close(test_shard *c);

/* A value's layout as text, in memory of c. */
const char *test_shard_text(test_shard *c, const char *value);
weft_layout test_shard_value(const test_shard *c, const char *value);
/* As operand k of the node that makes `node`. */
weft_layout test_shard_use(const test_shard *c, const char *node, int k);
const char *test_shard_use_text(test_shard *c, const char *node, int k);

#endif
