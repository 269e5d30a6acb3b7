/* Factors: which dimensions of which operands and results move together (op.h).
 * Rules written with letters are parsed; rules "=name" are computed from shapes and attributes. */
#include <ctype.h>
#include <string.h>

#include "op/op_priv.h"

#define NAME(u) (weft_op_get((u)->op)->name)

typedef struct reader {
    const weft_op_use *u;
    weft_factors      *f;
    weft_dim_factors  *dim;
    int n_lead; /* dimensions of "...": factors '0', '1', ...; -1 not known yet */
} reader;

static const weft_shape *shape_at(const weft_op_use *u, int i)
{
    return i < u->n_in ? &u->in[i].shape : &u->out[i - u->n_in].shape;
}
static weft_dim_factors *dim_at(reader *r, int i, int d)
{
    return &r->dim[i * WEFT_MAX_DIM + d];
}

/* ---- factors by name ---- */

static weft_status find_factor(reader *r, char name, unsigned flags, int *out)
{
    for (int i = 0; i < r->f->n; i++)
        if (r->f->factor[i].name == name) {
            r->f->factor[i].flags |= flags;
            *out = i;
            return WEFT_OK;
        }
    if (r->f->n == WEFT_MAX_FACTOR)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: more than %d factors", NAME(r->u),
                         WEFT_MAX_FACTOR);
    r->f->factor[r->f->n] = (weft_factor){name, flags, -1};
    *out                  = r->f->n++;
    return WEFT_OK;
}

/* The size of a factor that is a dimension by itself. */
static weft_status set_size(reader *r, int f, int64_t size)
{
    weft_factor *x = &r->f->factor[f];
    if (x->size < 0) x->size = size;
    if (x->size == size || x->flags & WEFT_FACTOR_HALO) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: sizes %lld and %lld of factor %c differ",
                     NAME(r->u), (long long)x->size, (long long)size, x->name);
}

/* Dimension d of operand or result i is the factor called name. */
static weft_status put(reader *r, int i, int d, char name, unsigned flags)
{
    int f;
    WEFT_TRY(find_factor(r, name, flags, &f));
    *dim_at(r, i, d) = (weft_dim_factors){1, {f}};
    return set_size(r, f, shape_at(r->u, i)->d[d]);
}

/* ---- rules with letters ---- */

static unsigned read_flags(const char **p)
{
    static const struct {
        char     mark;
        unsigned flag;
    } marks[]      = {{'!', WEFT_FACTOR_WHOLE},
                      {'~', WEFT_FACTOR_HALO},
                      {'^', WEFT_FACTOR_SOFTMAX},
                      {'#', WEFT_FACTOR_RAGGED},
                      {'*', WEFT_FACTOR_FREE}};
    unsigned flags = 0;
    for (;; (*p)++) {
        unsigned add = 0;
        for (size_t i = 0; i < WEFT_COUNT(marks); i++)
            if (**p == marks[i].mark) add = marks[i].flag;
        if (!add) return flags;
        flags |= add;
    }
}

/* Dimensions that the words of one operand stand for; "..." is not counted. */
static int count_words(const char *p, const char *end, bool *lead)
{
    int n = 0;
    for (*lead = false; p < end; p++)
        if (*p == '(') {
            n++;
            while (p < end && *p != ')') p++;
        } else if (!strncmp(p, "...", 3)) {
            *lead = true;
            p += 2;
        } else if (isalpha((unsigned char)*p) || *p == '-') {
            n++;
        }
    return n;
}

static weft_status bad_rank(reader *r, int i)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: operand %d has not the dimensions its factor rule says",
                     NAME(r->u), i);
}

/* "... d!" : the leading dimensions of operand i, from its dimension `first` on. */
static weft_status read_lead(reader *r, int i, int first, int n)
{
    if (r->n_lead < 0) r->n_lead = n;
    if (n != r->n_lead || n < 0) return bad_rank(r, i);
    for (int d = 0; d < n; d++) WEFT_TRY(put(r, i, first + d, (char)('0' + d), 0));
    return WEFT_OK;
}

/* "(g r)": sizes are known only when all dimensions are. */
static weft_status read_composite(reader *r, const char **p, weft_dim_factors *x)
{
    for ((*p)++; **p != ')';) {
        char c = *(*p)++;
        if (c == ' ') continue;
        unsigned flags = read_flags(p);
        WEFT_TRY(find_factor(r, c, flags, &x->f[x->n++]));
    }
    (*p)++;
    return WEFT_OK;
}

/* The words of one operand or result, [p, end). */
static weft_status read_operand(reader *r, int i, const char *p, const char *end)
{
    bool lead;
    int  n = count_words(p, end, &lead), d = 0, rank = shape_at(r->u, i)->n;
    if (lead ? rank < n : rank != n) return bad_rank(r, i);
    while (p < end) {
        if (*p == ' ') {
            p++;
        } else if (!strncmp(p, "...", 3)) {
            WEFT_TRY(read_lead(r, i, d, rank - n));
            d += rank - n;
            p += 3;
        } else if (*p == '(') {
            WEFT_TRY(read_composite(r, &p, dim_at(r, i, d++)));
        } else if (*p == '-') {
            d++, p++;
        } else {
            char     c     = *p++;
            unsigned flags = read_flags(&p);
            WEFT_TRY(put(r, i, d++, c, flags));
        }
    }
    return WEFT_OK;
}

/* Composite dimensions give the one size they have that nobody else told. */
static weft_status solve(reader *r)
{
    int n = (r->u->n_in + r->u->n_out) * WEFT_MAX_DIM;
    for (int k = 0; k < n; k++) {
        weft_dim_factors *x = &r->dim[k];
        int64_t size = shape_at(r->u, k / WEFT_MAX_DIM)->d[k % WEFT_MAX_DIM], known = 1;
        int     open = -1;
        if (x->n < 2) continue;
        for (int j = 0; j < x->n; j++)
            if (r->f->factor[x->f[j]].size >= 0)
                known *= r->f->factor[x->f[j]].size;
            else
                open = x->f[j];
        if (open >= 0 && known > 0) r->f->factor[open].size = size / known;
        if (open >= 0) known *= r->f->factor[open].size;
        if (known != size)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: factors of %lld do not make a dimension of %lld",
                             NAME(r->u), (long long)known, (long long)size);
    }
    return WEFT_OK;
}

static weft_status read_rule(reader *r, const char *rule)
{
    const char *arrow = strstr(rule, "->"), *p = rule;
    int         i = 0;
    while (i < r->u->n_in) {
        const char *end = p + strcspn(p, ",");
        if (end > arrow) end = arrow;
        WEFT_TRY(read_operand(r, i++, p, end));
        p = end + 1;
    }
    for (p = arrow + 2; i < r->u->n_in + r->u->n_out; p++) {
        const char *end = p + strcspn(p, ",");
        WEFT_TRY(read_operand(r, i++, p, end));
        p = end;
    }
    return solve(r);
}

/* ---- computed rules ---- */

static char nth(int d)
{
    return (char)('0' + d);
}

/* All operands and results of operand 0's rank: dimension d is factor d.  Scalars have none. */
static weft_status same(reader *r, unsigned flags)
{
    int rank = r->u->out[0].shape.n;
    for (int i = 0; i < r->u->n_in + r->u->n_out; i++)
        for (int d = 0; d < rank && shape_at(r->u, i)->n == rank; d++)
            WEFT_TRY(put(r, i, d, nth(d), flags));
    return WEFT_OK;
}
static weft_status rule_same(reader *r)
{
    return same(r, 0);
}
static weft_status rule_update(reader *r)
{
    return same(r, WEFT_FACTOR_FREE);
}
static weft_status rule_none(reader *r)
{
    (void)r;
    return WEFT_OK;
}

static weft_status rule_spec(reader *r)
{
    weft_op__spec s;
    WEFT_TRY(weft_op__parse_spec(weft_use_string(r->u, "spec"), &s));
    for (int i = 0; i < 3; i++)
        for (int d = 0; s.part[i][d]; d++) WEFT_TRY(put(r, i, d, s.part[i][d], 0));
    return WEFT_OK;
}

static weft_status rule_grouped(reader *r)
{
    return read_rule(r, weft_use_int(r->u, "trans") ? "r# k, x n k, - -> r# n"
                                                    : "r# k, x k n, - -> r# n");
}
static weft_status rule_grouped_wgrad(reader *r)
{
    return read_rule(r, weft_use_int(r->u, "trans") ? "r# k, r# n, - -> x n k"
                                                    : "r# k, r# n, - -> x k n");
}

/* Aligned at the last dimension; a 1 that is spread has no factor. */
static weft_status rule_broadcast(reader *r)
{
    int               n = r->u->n_in;
    const weft_shape *y = shape_at(r->u, n);
    for (int i = 0; i <= n; i++) {
        const weft_shape *s = shape_at(r->u, i);
        for (int d = 0; d < s->n; d++) {
            int at = y->n - s->n + d;
            if (s->d[d] == y->d[at]) WEFT_TRY(put(r, i, d, nth(at), 0));
        }
    }
    return WEFT_OK;
}

static weft_status rule_transpose(reader *r)
{
    const weft_attr *perm = weft_use_attr(r->u, "perm");
    for (int d = 0; d < perm->n; d++) {
        WEFT_TRY(put(r, 0, d, nth(d), 0));
        WEFT_TRY(put(r, 1, d, nth((int)perm->l[d]), 0));
    }
    return WEFT_OK;
}

static int axis_of(const weft_op_use *u)
{
    int64_t a = weft_use_int(u, "axis");
    return (int)(a < 0 ? a + u->in[0].shape.n : a);
}

/* concat, split, slice: the axis is nobody's factor, the others stay what they are. */
static weft_status rule_axis(reader *r)
{
    int axis = axis_of(r->u);
    for (int i = 0; i < r->u->n_in + r->u->n_out; i++)
        for (int d = 0; d < shape_at(r->u, i)->n; d++)
            if (d != axis) WEFT_TRY(put(r, i, d, nth(d), 0));
    return WEFT_OK;
}

/* gather: operand 0's axis is 'v', a part holds its own rows and gives zeros for others;
 * scatter: the same from the result's side.  The other side's axis goes with idx. */
static weft_status by_index(reader *r, int table)
{
    int axis = axis_of(r->u);
    for (int i = 0; i < 3; i += 2)
        for (int d = 0; d < shape_at(r->u, i)->n; d++)
            WEFT_TRY(put(r, i, d, d != axis ? nth(d) : i == table ? 'v' : 'n', 0));
    return put(r, 1, 0, 'n', 0);
}
static weft_status rule_gather(reader *r)
{
    return by_index(r, 0);
}
static weft_status rule_scatter(reader *r)
{
    return by_index(r, 2);
}

/* Only a sum may be cut along what it sums: a mean needs the whole count, a maximum is no sum. */
static weft_status rule_reduce(reader *r)
{
    const weft_shape *x    = &r->u->in[0].shape;
    const weft_attr  *axes = weft_use_attr(r->u, "axes");
    bool sum = !strcmp(weft_use_string(r->u, "kind"), "sum"), gone[WEFT_MAX_DIM] = {0};
    int  at = 0;
    for (int i = 0; i < axes->n; i++)
        gone[axes->l[i] < 0 ? axes->l[i] + x->n : axes->l[i]] = true;
    for (int d = 0; d < x->n; d++) {
        WEFT_TRY(put(r, 0, d, nth(d), gone[d] && !sum ? WEFT_FACTOR_WHOLE : 0));
        if (!gone[d]) WEFT_TRY(put(r, 1, at, nth(d), 0));
        if (!gone[d] || weft_use_int(r->u, "keep")) at++;
    }
    return WEFT_OK;
}
static weft_status rule_reduce_all(reader *r)
{
    for (int d = 0; d < r->u->in[0].shape.n; d++) WEFT_TRY(put(r, 0, d, nth(d), 0));
    return WEFT_OK;
}
static weft_status rule_fill(reader *r)
{
    for (int d = 0; d < r->u->out[0].shape.n; d++) WEFT_TRY(put(r, 0, d, nth(d), 0));
    return WEFT_OK;
}

/* ---- reshape ---- */

/* Where the dimensions of a shape end, counted in elements from the fastest: 4,6 ends at 6 and
 * 24. */
static int ends_of(const weft_shape *s, int64_t end[WEFT_MAX_DIM])
{
    int64_t at = 1;
    for (int d = s->n - 1; d >= 0; d--) end[s->n - 1 - d] = at *= s->d[d];
    return s->n;
}

/* Appends to dimension d the factors that lie in [from, to) of the cut points. */
static void take_factors(reader *r, int i, int d, const int64_t *cut, int n_cut,
                         int64_t from, int64_t to)
{
    weft_dim_factors *x = dim_at(r, i, d);
    for (int k = n_cut - 1; k >= 0;
         k--) /* the slowest first; factor k lies below cut k */
        if (cut[k] > from && cut[k] <= to && x->n < WEFT_MAX_PART) x->f[x->n++] = k;
}

/* A walk over the cut points of both shapes at once. */
typedef struct cuts {
    int64_t end[2][WEFT_MAX_DIM], cut[2 * WEFT_MAX_DIM], last;
    /* dimensions, how many are passed, where the group began */
    int  n[2], at[2], first[2];
    int  n_cut, settled; /* factors; those of groups that are done */
    bool good;           /* every cut of the group divides the next */
} cuts;

static weft_status add_cut(reader *r, cuts *c, int64_t end)
{
    int f;
    if (end == c->last) return WEFT_OK; /* a dimension of 1 */
    c->good = c->good && end % c->last == 0;
    WEFT_TRY(find_factor(r, nth(c->n_cut), 0, &f));
    r->f->factor[f].size = end / c->last;
    c->cut[c->n_cut++] = c->last = end;
    return WEFT_OK;
}

/* Both shapes end here: what lies between this and the last such place is one group. */
static void end_group(reader *r, cuts *c)
{
    if (!c->good) c->n_cut = r->f->n = c->settled;
    for (int t = 0; t < 2; t++) {
        for (int k = c->first[t]; k < c->at[t] && c->good; k++)
            take_factors(r, t, c->n[t] - 1 - k, c->cut, c->n_cut,
                         k ? c->end[t][k - 1] : 1, c->end[t][k]);
        c->first[t] = c->at[t];
    }
    c->settled = c->n_cut;
    c->good    = true;
}

/* Cut points of either shape cut both: each step between two of them is a factor, where it divides.
 * 4,6 -> 8,3 has cuts 3 6 24: factors 3 2 4, so 4 (2 3) -> (4 2) 3.  Where a cut is no multiple of
 * the one before (2,3 -> 3,2), the dimensions around it have no factors until both shapes meet. */
static weft_status rule_reshape(reader *r)
{
    cuts c = {.last = 1, .good = true};
    if (weft_shape_count(&r->u->in[0].shape) == 0) return WEFT_OK;
    c.n[0] = ends_of(&r->u->in[0].shape, c.end[0]);
    c.n[1] = ends_of(&r->u->out[0].shape, c.end[1]);
    while (c.at[0] < c.n[0] || c.at[1] < c.n[1]) {
        int64_t a = c.at[0] < c.n[0] ? c.end[0][c.at[0]] : INT64_MAX;
        int64_t b = c.at[1] < c.n[1] ? c.end[1][c.at[1]] : INT64_MAX;
        WEFT_TRY(add_cut(r, &c, a < b ? a : b));
        if (a <= b) c.at[0]++;
        if (b <= a) c.at[1]++;
        if (a == b) end_group(r, &c);
    }
    return WEFT_OK;
}

/* ---- the door ---- */

static const struct {
    const char *name;
    weft_status (*fn)(reader *r);
} computed[] = {
    {"=spec", rule_spec},           {"=same", rule_same},
    {"=broadcast", rule_broadcast}, {"=reshape", rule_reshape},
    {"=transpose", rule_transpose}, {"=concat", rule_axis},
    {"=split", rule_axis},          {"=slice", rule_axis},
    {"=reduce", rule_reduce},       {"=reduce_all", rule_reduce_all},
    {"=update", rule_update},       {"=gather", rule_gather},
    {"=scatter", rule_scatter},     {"=fill", rule_fill},
    {"=grouped", rule_grouped},     {"=grouped_wgrad", rule_grouped_wgrad},
    {"=none", rule_none},
};

weft_status weft_op_factors(const weft_op_use *u, weft_factors *out,
                            weft_dim_factors *dim)
{
    reader      r    = {.u = u, .f = out, .dim = dim, .n_lead = -1};
    const char *rule = weft_op_get(u->op)->rule;
    out->n           = 0;
    memset(dim, 0, sizeof *dim * WEFT_MAX_DIM * (size_t)(u->n_in + u->n_out));
    if (*rule != '=') return read_rule(&r, rule);
    for (size_t i = 0; i < WEFT_COUNT(computed); i++)
        if (!strcmp(computed[i].name, rule)) return computed[i].fn(&r);
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: unknown factor rule %s", NAME(u), rule);
}
