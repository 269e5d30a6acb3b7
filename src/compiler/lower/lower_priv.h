/* Shared by the passes of lowering. */
#ifndef WEFT_LOWER_PRIV_H
#define WEFT_LOWER_PRIV_H

#include "lower/lower.h"

/* Where a value lies: a view of the storage of value root. */
typedef struct weft_lower__loc {
    weft_vid root; /* -1: not placed yet */
    int64_t  offset;
    int64_t  stride[WEFT_MAX_DIM];
} weft_lower__loc;

#define WEFT_LOWER__MAX_POST 6

/* The steps fused onto a product. */
typedef struct weft_lower__chain {
    int n;
    int node[WEFT_LOWER__MAX_POST]; /* graph nodes, in order */
} weft_lower__chain;

/* A loss whose logits are made and used part by part (head.c); nodes. */
typedef struct weft_lower__head {
    int     logits, dx, dw;
    int     dim;    /* of the logits: cut into parts */
    int64_t n_part; /* equal ones */
} weft_lower__head;

enum {
    WEFT_LOWER__MOST_JOINED = 4
};

/* Matmuls as one (join.c): the first of what each operand joins, and the type of the whole. */
typedef struct weft_lower__join {
    weft_vid  a, b, y; /* b -1: of an operator with one operand */
    weft_type a_type, b_type, y_type;
    int       n_copy; /* b: these are copied side by side; 0: they lie so */
    weft_vid  copy[WEFT_LOWER__MOST_JOINED];
} weft_lower__join;

typedef struct weft_lower__pass {
    const weft_graph  *g;
    weft_arena        *tmp;   /* dies with the pass */
    bool              *alive; /* node: somebody needs it */
    int               *n_use; /* value: uses by alive nodes, outputs and nexts */
    int               *first_user, *user;
    weft_lower__loc   *loc;        /* value */
    int               *fused_into; /* node: the product it is a step of, -1 none */
    weft_lower__chain *chain;      /* node: steps fused onto it */
    weft_vid  *accum; /* value: result of the accumulate node it is written into, -1 */
    weft_vid  *base;  /* node: an embedding's gradient is added to this value, -1 */
    bool       one_micro;
    const int *piece;  /* node; NULL: all are of one */
    bool      *placed; /* value: written straight into a concat or a state */
    int        row_elements;
    unsigned   fusions;
    bool      *padded;              /* value: its rows are at multiples of row_elements */
    int        head_rows;           /* weft_lower_options */
    weft_lower__head **head;        /* node: of a loss in parts; NULL: it is none */
    bool              *in_head;     /* node: written with such a loss */
    int                join_width;  /* weft_lower_options */
    int64_t            align_bytes; /* of storages */
    weft_lower__join **join;        /* node: of matmuls as one; NULL: it is none */
    bool              *in_join;     /* node: written with such a one */
    weft_type **room;     /* value: what its storage holds with others; NULL: it alone */
    int        *last_use; /* value: last alive node that reads it, views looked through */
} weft_lower__pass;

/* view.c */
void weft_lower__dense(const weft_shape *s, int64_t stride[WEFT_MAX_DIM]);
bool weft_lower__is_dense(const weft_shape *s, const int64_t *stride);
/* Rows at multiples of row_elements; a value that is too narrow for that is dense. */
void weft_lower__pad(const weft_shape *s, int row_elements, int64_t stride[WEFT_MAX_DIM]);
/* The strides of the same elements under another shape; false when they do not exist. */
bool weft_lower__reshape(const weft_shape *from, const int64_t *stride,
                         const weft_shape *to, int64_t out[WEFT_MAX_DIM]);
/* The place of result j of view node n, given its operand's; false when a copy is needed. */
bool weft_lower__view(const weft_graph *g, const weft_graph_node *n, int j,
                      const weft_lower__loc *in, weft_lower__loc *out);
/* The value under v, looking through view nodes. */
weft_vid weft_lower__base(const weft_graph *g, weft_vid v);

/* prepare.c: fills alive, n_use, users, last_use; places concats, accumulators and next states. */
weft_status weft_lower__prepare(weft_lower__pass *p);
/* fuse.c: fills chain and fused_into. */
void weft_lower__fuse(weft_lower__pass *p);
/* live.c: first and last of each storage; then element-wise results over dying operands. */
void weft_lower__live(weft_segment *s);
void weft_lower__share(weft_segment *s, int row_elements);
/* head.c: fills head and in_head. */
weft_status weft_lower__find_heads(weft_lower__pass *p);
/* May dx of a loss in parts lie over x? */
bool weft_lower__head_over(const weft_lower__pass *p, int loss);
/* Part k of n_part equal ones along a dimension. */
weft_operand weft_lower__part(const weft_operand *o, int dim, int64_t n_part, int64_t k);
/* join.c: fills join, in_join and room; after heads. */
weft_status weft_lower__find_joins(weft_lower__pass *p);
/* largest.c: before storages are numbered.  Adds storages of its own by `add`. */
typedef weft_status (*weft_lower__add_fn)(void *arg, const weft_type *t, const char *name,
                                          weft_vid *out);
weft_status weft_lower__share_largest(weft_segment *s, weft_lower__add_fn add, void *arg);
/* pad.c: fills padded. */
void weft_lower__choose_padded(weft_lower__pass *p);

#endif
