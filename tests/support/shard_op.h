/* One operator on one place of a mesh, its factors cut: the reference kernel on the place's own
 * slices.
 *
 *     test_op o;
 *     test_op_make(&o, arena, &use, &mesh, &cut);
 *     for (int p = 0; p < mesh.n_rank; p++) test_op_run(&o, p, in[p], out[p], seed);
 *
 * Arrays span whole tensors; a place reads only what it has under the projected layouts and
 * writes only what it makes.  No operator is known by its name, with the letters of factor rules
 * for all there is to
 * know: positions (s, t), rows of tables (v), experts (x). */
#ifndef WEFT_TEST_SHARD_OP_H
#define WEFT_TEST_SHARD_OP_H

#include "shard/shard.h"

typedef struct test_op {
    weft_arena        *a;
    weft_op_use        u;
    weft_node_factors  f;
    const weft_mesh   *m;
    const weft_layout *cut;
    bool pair; /* a softmax factor is cut: results are a value and its log-sum-exp */
} test_op;

weft_status test_op_make(test_op *o, weft_arena *a, const weft_op_use *u,
                         const weft_mesh *m, const weft_layout *cut);
weft_status test_op_run(const test_op *o, int place, const double *const *in,
                        double *const *out, uint64_t seed);
/* Two softmax pairs become one, in `to`: element by element of whole results. */
void test_op_add_pair(const test_op *o, double *const *to, const double *const *from);
/* After all pairs are added: losses come out of what was picked. */
void test_op_end_pair(const test_op *o, const double *const *in, double *const *out);

#endif
