/* A part of a tensor: for each dimension ascending runs of positions; the part is their product.
 * Its memory is dense and row-major: the runs of a dimension lie side by side.
 *
 *     a (4,6) tensor, rows 0-1, columns 0-1 and 4-5:     run[0] = {0,2}   run[1] = {0,2} {4,6}
 *     its memory is a (2,4) matrix
 *
 * A plain value; the runs are somebody else's memory. */
#ifndef WEFT_TENSOR_PART_H
#define WEFT_TENSOR_PART_H

#include "base/arena.h"
#include "weft/tensor.h"

/* [lo, hi) */
typedef struct weft_interval {
    int64_t lo, hi;
} weft_interval;

typedef struct weft_part {
    weft_shape           shape;           /* of the whole tensor */
    int                  n[WEFT_MAX_DIM]; /* runs of each dimension */
    const weft_interval *run[WEFT_MAX_DIM];
} weft_part;

int64_t weft_part_count(const weft_part *p); /* elements; 0: an empty part */
bool    weft_part_equal(const weft_part *a, const weft_part *b);

/* With its runs, in a; NULL: no memory, and the arena says so. */
weft_part *weft_part_copy(const weft_part *p, weft_arena *a);

/* A region as a part of its global shape; run: WEFT_MAX_DIM of the caller's. */
weft_part weft_part_of_region(const weft_region *r, weft_interval *run);

/* The boxes whose union the part is: box k of weft_part_boxes(). */
int64_t     weft_part_boxes(const weft_part *p);
weft_region weft_part_box(const weft_part *p, int64_t k);

/* Where a region lies in the part's memory. */
typedef struct weft_part_place {
    int64_t at; /* its first element */
    /* between neighbours of a dimension; 1 where it has none */
    int64_t stride[WEFT_MAX_DIM];
} weft_part_place;

/* False: some of the region is not in the part, or it is in several runs of a dimension. */
bool weft_part_find(const weft_part *p, const weft_region *r, weft_part_place *out);

/* A run of elements: [at, at + n) of the part's memory, [index, index + n) of the region's order.
 */
typedef weft_status (*weft_part_fn)(void *arg, int64_t at, int64_t index, int64_t n);

/* Calls fn for the runs of elements [first, first + n) of r, in r's row-major order, that the part
 * has. */
weft_status weft_part_walk(const weft_part *p, const weft_region *r, int64_t first,
                           int64_t n, weft_part_fn fn, void *arg);

/* Cuts a region into boxes of at most `most` elements (at least 1) that follow each other in its
 * row-major order.  *at: 0 before the first, then those that were given; most stays the
 * same.  False: there is none left. */
bool weft_region_next_chunk(const weft_region *r, int64_t most, int64_t *at,
                            weft_region *out);

/* Cuts elements [*at, end) of a region, in its row-major order, into boxes that follow each other.
 * *at moves on to the end of the box; at least 0 <= *at <= end <= all of the region's elements.
 * False: there is none left. */
bool weft_region_next_box(const weft_region *r, int64_t *at, int64_t end,
                          weft_region *out);

#endif
