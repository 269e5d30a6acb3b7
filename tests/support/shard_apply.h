/* What reshard steps do to numbers: each rank's tensor is an array over the whole shape with
 * marks for what the rank has.  The plainest meaning that the steps can have. */
#ifndef WEFT_TEST_SHARD_APPLY_H
#define WEFT_TEST_SHARD_APPLY_H

#include "shard/shard.h"

/* One value on all places of a mesh: x[place][element], has[place][element]. */
typedef struct test_spread {
    const weft_mesh *m;
    weft_layout      l;
    weft_shape       s;
    double         **x;
    bool           **has;
} test_spread;

/* Nothing anywhere. */
weft_status test_spread_make(weft_arena *a, const weft_mesh *m, const weft_layout *l,
                             const weft_shape *s, test_spread *out);
/* Marks what each place has under its layout. */
weft_status test_spread_mark(weft_arena *a, test_spread *t);
/* All of the steps.  lse: the companion of a softmax pair in the same layout (the value's own
 * rows of each inner elements), NULL without; it is combined too. */
weft_status test_spread_reshard(weft_arena *a, const weft_reshard *r,
                                const test_spread *in, test_spread *out);
/* Elements of the place's regions in order, and back. */
int64_t test_spread_pack(weft_arena *a, const test_spread *t, int place, double *out);
void    test_spread_unpack(weft_arena *a, test_spread *t, int place, const double *in);

#endif
