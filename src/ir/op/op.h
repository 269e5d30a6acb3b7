/* Operators: one row each in src/ir/op/ops.def.
 *
 * Everything that is true of an operator on any machine is in its row: operands, attributes, the
 * shape rule, the factor rule (which dimensions move together, which are summed away), flops and
 * bytes.  Whoever needs to know something about operators loops over rows and factors; nobody
 * switches on an operator's name except the gradient table (graph/) and the kernels (kernel/). */
#ifndef WEFT_OP_OP_H
#define WEFT_OP_OP_H

#include "base/arena.h"
#include "base/text.h"
#include "weft/tensor.h"

typedef enum weft_op {
#define OP(ID, ...) WEFT_OP_##ID,
#include "op/ops.def"
#undef OP
    WEFT_N_OP
} weft_op;

#define WEFT_MAX_ATTR 10
#define WEFT_MAX_OUT  128  /* split */
#define WEFT_MAX_IN   4096 /* clip over all parameters */

/* An attribute's value; its type is in the row. */
typedef struct weft_attr {
    int64_t     i; /* types i, b */
    double      f; /* type f */
    const char *s; /* type s: borrowed from whoever owns the attribute */
    int         n; /* type l: how many */
    int64_t     l[WEFT_MAX_DIM];
} weft_attr;

typedef enum weft_attr_type {
    WEFT_ATTR_INT    = 'i',
    WEFT_ATTR_BOOL   = 'b',
    WEFT_ATTR_FLOAT  = 'f',
    WEFT_ATTR_STRING = 's',
    WEFT_ATTR_LIST   = 'l',
} weft_attr_type;

/* What a value is, without where. */
typedef struct weft_type {
    weft_dtype dtype;
    weft_shape shape;
} weft_type;

/* One use of an operator: types of its operands and results, its attributes in row order. */
typedef struct weft_op_use {
    weft_op          op;
    const weft_attr *attr;
    int              n_in, n_out;
    const weft_type *in;
    const weft_type *out; /* unset while the shape rule runs */
} weft_op_use;

enum {
    WEFT_OP_VIEW = 1 << 0, /* the result is the operand's memory seen otherwise */
    /* passes an unreduced sum on unchanged (add: all operands must be) */
    WEFT_OP_LINEAR = 1 << 1,
    WEFT_OP_ELEM   = 1 << 2, /* element by element: result 0 may overwrite operand 0 */
    WEFT_OP_UPDATE = 1 << 3, /* result j overwrites the state it is the next value of */
    WEFT_OP_RANDOM = 1 << 4, /* draws counter-based random numbers */
    WEFT_OP_NODIFF = 1 << 5, /* no gradient flows through it */
    /* What every kernel of the operator promises to lowering, in the rest of this list:
     * operands and results may be strided views (stride 0: spread) */
    WEFT_OP_STRIDED = 1 << 6,
    WEFT_OP_ADDS    = 1 << 7, /* results marked in `add` are added to instead of stored */
    WEFT_OP_POSTS   = 1 << 8, /* takes fused steps behind it (weft_post) */
    /* between ranks: lowering makes a collective of it, no kernel */
    WEFT_OP_COMM = 1 << 9,
};

/* Steps that kernels of some devices take with an operator, besides the element-wise ones of
 * WEFT_OP_POSTS.  A sum or a copy is a further result: the value that it is made of stays. */
typedef enum weft_fusion {
    /* add on a norm's gradient: the gradient that goes past the norm */
    WEFT_FUSION_RESIDUAL = 1 << 0,
    /* reduce on a norm's gradient: the sum over all dimensions but the last, a bias' gradient */
    WEFT_FUSION_NORM_SUMS = 1 << 1,
    /* cast of an update's new parameter: its bf16 copy */
    WEFT_FUSION_COPY = 1 << 2,
    /* no step: matmuls in fp8 that take and give largest magnitudes (ops.def) */
    WEFT_FUSION_LARGEST = 1 << 3,
    /* rotary on attention's gradient, one on dq and one on dk: the gradients of what was turned */
    WEFT_FUSION_ROTARY = 1 << 4,
} weft_fusion;

/* Which of these is `step` after op?  0: none. */
unsigned weft_op_fusion(weft_op op, weft_op step);

typedef weft_status (*weft_op_shape_fn)(const weft_op_use *u, weft_type *out);
typedef double (*weft_op_count_fn)(const weft_op_use *u);

typedef struct weft_op_row {
    const char *name;
    const char *in;   /* "x w bias?": names; '?' may be left out, '*' any number (last) */
    const char *out;  /* "y mean rstd"; '*' any number */
    const char *attr; /* "eps:f=1e-05 causal:b=0": name:type[=default] */
    const char *rule; /* factor rule, see weft_op_factors() */
    weft_op_shape_fn shape;
    weft_op_count_fn flops;
    weft_op_count_fn bytes; /* read and written when nothing is fused */
    unsigned         flags;
} weft_op_row;

const weft_op_row *weft_op_get(weft_op op);
bool               weft_op_find(const char *name, weft_op *out);
/* The known name nearest to this one, or NULL. */
const char *weft_op_suggest(const char *name);

/* How many operands and results the row allows. */
void weft_op_arity(weft_op op, int *in_min, int *in_max, int *out_min, int *out_max);

/* Attributes: their number, the i-th one's name and type, and its place by name (-1: none). */
int            weft_op_n_attr(weft_op op);
const char    *weft_op_attr_name(weft_op op, int i, char *buf, size_t n);
weft_attr_type weft_op_attr_type(weft_op op, int i);
int            weft_op_attr_index(weft_op op, const char *name);
/* All attributes at their defaults (empty list, "" and 0 where the row gives none). */
void weft_op_attr_defaults(weft_op op, weft_attr attr[WEFT_MAX_ATTR]);

/* Reads "key=value key=[1,2] spec=ab,bc->ac" into attr (defaults first); strings go to arena. */
weft_status weft_op_parse_attr(weft_op op, const char *text, weft_arena *a,
                               weft_attr attr[WEFT_MAX_ATTR]);
/* The same text back: only what differs from the defaults, in row order. */
void weft_op_print_attr(weft_op op, const weft_attr *attr, weft_text *t);

/* A copy of a row's attributes, strings and all. */
weft_status weft_op_copy_attr(weft_op op, const weft_attr *from, weft_arena *a,
                              const weft_attr **out);

int64_t          weft_use_int(const weft_op_use *u, const char *attr);
double           weft_use_float(const weft_op_use *u, const char *attr);
const char      *weft_use_string(const weft_op_use *u, const char *attr);
const weft_attr *weft_use_attr(const weft_op_use *u, const char *attr);

/* Result types from operand types and attributes; says in words what does not fit. */
weft_status weft_op_infer(const weft_op_use *u, weft_type *out);
double      weft_op_flops(const weft_op_use *u);
double      weft_op_bytes(const weft_op_use *u);

/* Where part k of so many begins when n positions are dealt out in units: runs that differ by at
 * most one unit, the larger first; the last unit may be short. */
static inline int64_t weft_part_start(int64_t n, int64_t unit, int64_t parts, int64_t k)
{
    int64_t units = (n + unit - 1) / unit, more = units % parts;
    int64_t at = (units / parts * k + (k < more ? k : more)) * unit;
    return at < n ? at : n;
}

/* ---- factors ----
 * A rule gives every dimension of every operand and result a factor; equal letters move together.
 *     "... d!, d!, d! -> ... d!, ..., ..."      layer norm
 * letters   a factor; "..." the leading dimensions, one factor each
 * (g r)     one dimension made of two factors, the first one slower
 * !         whole: must not be split          ~  halo: a split needs its neighbours' edge; its size
 *           is that of the first dimension it stands in (others follow from stride and window)
 * *         free: a result without it is whole on every part, not a summand
 * ^         when split, combines as a softmax pair (max, sum) instead of a plain sum
 * #         ragged: a bound, with a companion count; parts are sorted each for itself
 * -         a dimension that is nobody's factor (size as it comes, never split)
 * =name     the rule is computed: =spec =same =broadcast =reshape =transpose =concat =split =slice
 *           =reduce =reduce_all =update =gather =scatter =fill =grouped =grouped_wgrad =none
 * A factor in an operand that is missing from a result is summed there. */
#define WEFT_MAX_FACTOR 24
#define WEFT_MAX_PART   6

enum {
    WEFT_FACTOR_WHOLE   = 1 << 0,
    WEFT_FACTOR_HALO    = 1 << 1,
    WEFT_FACTOR_SOFTMAX = 1 << 2,
    WEFT_FACTOR_RAGGED  = 1 << 3,
    WEFT_FACTOR_FREE = 1 << 4, /* any split is legal and changes nothing for the others */
};

typedef struct weft_factor {
    char     name;
    unsigned flags;
    int64_t  size;
} weft_factor;

/* The factors of one dimension, slowest first; n = 0: none (size-1 broadcast or '-'). */
typedef struct weft_dim_factors {
    int n;
    int f[WEFT_MAX_PART];
} weft_dim_factors;

typedef struct weft_factors {
    int         n;
    weft_factor factor[WEFT_MAX_FACTOR];
} weft_factors;

/* Fills the factors of u and, for each operand (0..n_in-1) then result, the factors of its
 * dimensions: dim[(operand) * WEFT_MAX_DIM + d].  Sizes are checked to agree.
 * Factors that a rule does not name (computed rules, "...") are called '0', '1', ... or, in =spec,
 * by their letters.  u->out is needed. */
weft_status weft_op_factors(const weft_op_use *u, weft_factors *out,
                            weft_dim_factors *dim);

#endif
