/* What must hold for one instruction by itself. */
#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"
#include "program/verify_priv.h"

#define BAD WEFT_PROGRAM__BAD

weft_status weft_program__verify_operand(const weft_program *p, const weft_operand *o)
{
    int64_t lo, hi;
    WEFT_TRY(weft_shape_verify(&o->type.shape));
    if (o->buffer == -1) return WEFT_OK;
    if (o->buffer < -1 || o->buffer >= p->n_buffer)
        return WEFT_FAIL(WEFT_ERR_ARG, "there is no buffer %d", o->buffer);
    const weft_buffer *b = &p->buffer[o->buffer];
    if (!weft_operand_span(o, &lo, &hi) || lo < 0 || hi > b->bytes)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "an operand reaches outside buffer %s of %lld bytes", b->name,
                         (long long)b->bytes);
    return WEFT_OK;
}

static weft_status check_operands(const weft_program *p, const weft_actor *a,
                                  const weft_instr *i)
{
    for (int k = 0; k < i->n_in + i->n_out; k++) {
        const weft_operand *o  = k < i->n_in ? &i->in[k] : &i->out[k - i->n_in];
        weft_status         st = weft_program__verify_operand(p, o);
        if (st != WEFT_OK)
            return weft_fail_in(st, "program %s, actor %s, %s '%s': ", p->name, a->name,
                                weft_instr_kind_name(i->kind), i->name);
    }
    return WEFT_OK;
}

/* ---- compute ---- */

static weft_status check_arity(const weft_program *p, const weft_actor *a,
                               const weft_instr *i)
{
    int in_min, in_max, out_min, out_max;
    weft_op_arity(i->op, &in_min, &in_max, &out_min, &out_max);
    if (i->n_own_in > i->n_in || i->n_own_out > i->n_out || i->n_own_in < in_min ||
        i->n_own_in > in_max || i->n_own_out < out_min || i->n_own_out > out_max)
        return BAD(p, a, i, "%s has %d operands and %d results of its own",
                   weft_op_get(i->op)->name, i->n_own_in, i->n_own_out);
    for (int k = 0; k < in_min; k++)
        if (i->in[k].buffer < 0)
            return BAD(p, a, i, "operand %d of %s is missing", k,
                       weft_op_get(i->op)->name);
    for (int k = i->n_own_in; k < i->n_in; k++)
        if (i->in[k].buffer < 0) return BAD(p, a, i, "operand %d is missing", k);
    return WEFT_OK;
}

/* Result types are what the operator's shape rule says. */
static weft_status check_types(const weft_program *p, const weft_actor *a,
                               const weft_instr *i)
{
    size_t      n    = (size_t)i->n_own_in + 2 * (size_t)i->n_own_out;
    weft_type  *type = calloc(n + 1, sizeof *type), *out = type + i->n_own_in;
    weft_type  *want = out + i->n_own_out;
    weft_status st   = WEFT_OK;
    if (!type) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_op_use u = weft_instr_use(i, type, out);
    st            = weft_op_infer(&u, want);
    if (st != WEFT_OK)
        WEFT_GO(
            weft_fail_in(st, "program %s, actor %s, '%s': ", p->name, a->name, i->name));
    for (int k = 0; k < i->n_own_out; k++) {
        char got[96], fit[96];
        if (i->out[k].buffer < 0 && out[k].shape.n == 0)
            continue; /* left out altogether */
        if (out[k].dtype == want[k].dtype &&
            weft_shape_equal(&out[k].shape, &want[k].shape))
            continue;
        WEFT_GO(BAD(p, a, i, "result %d of %s is %s[%s], should be %s[%s]", k,
                    weft_op_get(i->op)->name, weft_dtype_name(out[k].dtype),
                    weft_shape_text(&out[k].shape, got, sizeof got),
                    weft_dtype_name(want[k].dtype),
                    weft_shape_text(&want[k].shape, fit, sizeof fit)));
    }
out:
    free(type);
    return st;
}

/* A loss's own gradient may follow it: one visit to the logits for both. */
static bool is_loss_and_gradient(const weft_instr *i)
{
    return i->op == WEFT_OP_CROSS_ENTROPY && i->n_post == 1 &&
           i->post[0].op == WEFT_OP_CROSS_ENTROPY_GRAD && i->post[0].in >= 0 &&
           i->post[0].in < i->n_in && i->post[0].out >= 0 && i->post[0].out < i->n_out;
}

/* A further result is made as the step's shape rule says. */
static weft_status check_further_result(const weft_program *p, const weft_actor *a,
                                        const weft_instr *i, int k)
{
    weft_type        want;
    const weft_post *s    = &i->post[k];
    const char      *name = weft_op_get(s->op)->name;
    int              j    = weft_post_result(i, k);
    if (j >= i->n_own_out)
        return BAD(p, a, i, "fused %s is of result %d of %d", name, j, i->n_own_out);
    weft_op_use u = {
        .op = s->op, .attr = s->attr, .n_in = 1, .n_out = 1, .in = &i->out[j].type};
    if (s->out < i->n_own_out || s->out >= i->n_out)
        return BAD(p, a, i, "fused %s names result %d of %d", name, s->out, i->n_out);
    WEFT_TRY(weft_op_infer(&u, &want));
    const weft_type *got = &i->out[s->out].type;
    if (got->dtype != want.dtype || !weft_shape_equal(&got->shape, &want.shape))
        return BAD(p, a, i, "result %d is not what a fused %s makes", s->out, name);
    return WEFT_OK;
}

static weft_status check_posts(const weft_program *p, const weft_actor *a,
                               const weft_instr *i)
{
    bool posts = (weft_op_get(i->op)->flags & WEFT_OP_POSTS) != 0;
    if (is_loss_and_gradient(i)) return WEFT_OK;
    for (int k = 0; k < i->n_post; k++) {
        const weft_post *s = &i->post[k];
        int              in_min, in_max, out_min, out_max;
        const char      *name = weft_op_get(s->op)->name;
        weft_op_arity(s->op, &in_min, &in_max, &out_min, &out_max);
        if (!posts && !weft_op_fusion(i->op, s->op))
            return BAD(p, a, i, "%s takes no fused %s", weft_op_get(i->op)->name, name);
        if (!posts && s->in < 0) {
            WEFT_TRY(check_further_result(p, a, i, k));
            continue;
        }
        if (!(weft_op_get(s->op)->flags & WEFT_OP_ELEM) || in_max > 2)
            return BAD(p, a, i, "%s cannot be fused", name);
        if (s->in < -1 || s->in >= i->n_in || (s->in < 0) != (in_max == 1) ||
            (s->in >= 0 && i->in[s->in].buffer < 0))
            return BAD(p, a, i, "fused %s names operand %d of %d", name, s->in, i->n_in);
        if (s->out < -1 || s->out >= i->n_out)
            return BAD(p, a, i, "fused %s names result %d of %d", name, s->out, i->n_out);
    }
    return WEFT_OK;
}

/* Of the step that makes result k; NULL: none does. */
static const weft_op_row *row_of_post(const weft_instr *i, int k)
{
    for (int s = 0; s < i->n_post; s++)
        if (i->post[s].out == k) return weft_op_get(i->post[s].op);
    return NULL;
}

static weft_status check_compute(const weft_program *p, const weft_actor *a,
                                 const weft_instr *i)
{
    const weft_op_row *row = weft_op_get(i->op);
    WEFT_TRY(check_arity(p, a, i));
    WEFT_TRY(check_types(p, a, i));
    WEFT_TRY(check_posts(p, a, i));
    for (int k = 0; k < 32; k++) {
        if (!((i->add | i->into) >> k & 1)) continue;
        const weft_op_row *maker = k < i->n_own_out ? row : row_of_post(i, k);
        if (maker && !(maker->flags & WEFT_OP_ADDS))
            return BAD(p, a, i, "%s cannot add to its results", maker->name);
        if (k >= i->n_out || i->out[k].buffer < 0)
            return BAD(p, a, i, "add names result %d, which is not there", k);
    }
    return WEFT_OK;
}

/* ---- the other kinds ---- */

static weft_status need(const weft_program *p, const weft_actor *a, const weft_instr *i,
                        int n_in, int n_out)
{
    if (i->n_in != n_in || i->n_out != n_out)
        return BAD(p, a, i, "it has %d operands and %d results, should have %d and %d",
                   i->n_in, i->n_out, n_in, n_out);
    for (int k = 0; k < n_in + n_out; k++)
        if ((k < n_in ? &i->in[k] : &i->out[k - n_in])->buffer < 0)
            return BAD(p, a, i, "%s is missing", k < n_in ? "its operand" : "its result");
    return WEFT_OK;
}

static weft_status need_contiguous(const weft_program *p, const weft_actor *a,
                                   const weft_instr *i)
{
    for (int k = 0; k < i->n_in + i->n_out; k++)
        if (!weft_operand_contiguous(k < i->n_in ? &i->in[k] : &i->out[k - i->n_in]))
            return BAD(p, a, i, "%s is not contiguous",
                       k < i->n_in ? "its operand" : "its result");
    return WEFT_OK;
}

static int position(const weft_group *g, int32_t rank)
{
    for (int k = 0; k < g->n_rank; k++)
        if (g->rank[k] == rank) return k;
    return -1;
}

static weft_status check_lanes(const weft_program *p, const weft_actor *a,
                               const weft_instr *i)
{
    const weft_group *g = &p->group[i->group];
    if (i->coll != WEFT_ALL_REDUCE && i->coll != WEFT_REDUCE_SCATTER)
        return BAD(p, a, i, "%s has no lanes", weft_collective_name(i->coll));
    if (!weft_lanes_right(&(weft_lanes){i->lanes, g->n_rank, g->share}))
        return BAD(p, a, i, "%d ranks cannot share %d lanes%s", g->n_rank, i->lanes,
                   g->share ? " as their group says" : "");
    int n = weft_instr_terms(i, g, position(g, p->rank));
    for (int t = 0; t < i->n_in; t++) {
        const weft_buffer *b = &p->buffer[i->in[t].buffer];
        if (b->slot_by != WEFT_SLOT_LANE || b->n_slot < n)
            return BAD(p, a, i, "buffer %s has no slots by lane for %d terms", b->name,
                       n);
        if (b->bytes % weft_dtype_bytes(i->in[t].type.dtype))
            return BAD(p, a, i, "slots of %lld bytes", (long long)b->bytes);
    }
    return WEFT_OK;
}

/* Tensor t: do operand and result fit each other? */
static weft_status check_tensor(const weft_program *p, const weft_actor *a,
                                const weft_instr *i, int t)
{
    const weft_group *g    = &p->group[i->group];
    int64_t           unit = weft_instr_unit(i, t), n = g->n_rank, lo = 0, hi = 0;
    int64_t           in  = weft_shape_count(&i->in[t].type.shape);
    int64_t           out = weft_shape_count(&i->out[t].type.shape);
    bool fits, shares = i->coll == WEFT_REDUCE_SCATTER || i->coll == WEFT_ALL_GATHER;
    if (unit < 0 || (unit && !shares))
        return BAD(p, a, i, "units of %lld elements", (long long)unit);
    if (shares) weft_instr_share(i, t, g->n_rank, position(g, p->rank), &lo, &hi);
    switch (i->coll) {
    case WEFT_REDUCE_SCATTER: fits = (unit || in % n == 0) && hi - lo == out; break;
    case WEFT_ALL_GATHER: fits = (unit || out % n == 0) && hi - lo == in; break;
    case WEFT_ALL_TO_ALL: fits = in == out && in % n == 0; break;
    default: fits = in == out;
    }
    if (!fits || i->in[t].type.dtype != i->out[t].type.dtype ||
        i->in[t].type.dtype != i->in[0].type.dtype)
        return BAD(p, a, i, "%s over %d ranks cannot turn %lld %s into %lld %s",
                   weft_collective_name(i->coll), g->n_rank, (long long)in,
                   weft_dtype_name(i->in[t].type.dtype), (long long)out,
                   weft_dtype_name(i->out[t].type.dtype));
    return WEFT_OK;
}

/* Rows of one width, and for every position where each bin ends. */
static weft_status check_rows(const weft_program *p, const weft_actor *a,
                              const weft_instr *i)
{
    WEFT_TRY(need(p, a, i, 2, 1));
    WEFT_TRY(need_contiguous(p, a, i));
    const weft_type *in = &i->in[0].type, *table = &i->in[1].type, *out = &i->out[0].type;
    int64_t          n = p->group[i->group].n_rank;
    if (in->shape.n != 2 || out->shape.n != 2 || in->shape.d[1] != out->shape.d[1] ||
        in->dtype != out->dtype)
        return BAD(p, a, i, "rows of another %s", "width or type");
    if (table->dtype != WEFT_DTYPE_I32 || table->shape.n != 2 || table->shape.d[0] != n ||
        table->shape.d[1] < 2)
        return BAD(p, a, i, "a table that is not %lld ranks by bins", (long long)n);
    if (i->unit || i->lanes) return BAD(p, a, i, "rows have no %s", "units or lanes");
    return WEFT_OK;
}

static weft_status check_collective(const weft_program *p, const weft_actor *a,
                                    const weft_instr *i)
{
    if (i->group < 0 || i->group >= p->n_group)
        return BAD(p, a, i, "there is no group %d", i->group);
    if (position(&p->group[i->group], p->rank) < 0)
        return BAD(p, a, i, "rank %d is not in group %d", p->rank, i->group);
    if (i->coll == WEFT_BARRIER) return need(p, a, i, 0, 0);
    if (i->coll == WEFT_SEND_ROWS || i->coll == WEFT_RETURN_ROWS)
        return check_rows(p, a, i);
    bool several =
        i->n_in > 1 && (i->coll == WEFT_ALL_REDUCE || i->coll == WEFT_REDUCE_SCATTER ||
                        i->coll == WEFT_ALL_GATHER);
    int n = several ? i->n_in : 1;
    WEFT_TRY(need(p, a, i, n, n));
    WEFT_TRY(need_contiguous(p, a, i));
    if (i->lanes) WEFT_TRY(check_lanes(p, a, i));
    for (int t = 0; t < n; t++) WEFT_TRY(check_tensor(p, a, i, t));
    return WEFT_OK;
}

static weft_status check_peer(const weft_program *p, const weft_actor *a,
                              const weft_instr *i)
{
    if (i->peer < 0 || i->peer >= p->world || i->peer == p->rank)
        return BAD(p, a, i, "there is no other rank %d of %d", i->peer, p->world);
    if (i->credits < 0) return BAD(p, a, i, "%d credits", i->credits);
    if (i->tag < 0 || i->tag >= 1 << 24)
        return BAD(p, a, i, "tag %d is not between 0 and 2^24", i->tag);
    return need_contiguous(p, a, i);
}

static weft_status check_same_type(const weft_program *p, const weft_actor *a,
                                   const weft_instr *i)
{
    WEFT_TRY(need(p, a, i, 1, 1));
    if (i->in[0].type.dtype != i->out[0].type.dtype ||
        !weft_shape_equal(&i->in[0].type.shape, &i->out[0].type.shape))
        return BAD(p, a, i, "operand and result differ in %s", "type");
    return WEFT_OK;
}

/* Operands are numbers that the host looks at. */
static weft_status check_commit(const weft_program *p, const weft_actor *a,
                                const weft_instr *i)
{
    WEFT_TRY(need(p, a, i, i->n_in, 0));
    if (i->n_in > WEFT_MAX_OUTCOME)
        return BAD(p, a, i, "%d operands, at most %d", i->n_in, WEFT_MAX_OUTCOME);
    for (int k = 0; k < i->n_in; k++)
        if (weft_shape_count(&i->in[k].type.shape) != 1 ||
            (i->in[k].type.dtype != WEFT_DTYPE_F32 &&
             i->in[k].type.dtype != WEFT_DTYPE_F64))
            return BAD(p, a, i, "operand %d is no scalar of f32 or f64", k);
    return WEFT_OK;
}

weft_status weft_program__verify_instr(const weft_program *p, const weft_actor *a,
                                       const weft_instr *i)
{
    WEFT_TRY(check_operands(p, a, i));
    if (i->kind != WEFT_INSTR_COMPUTE && (i->add || i->into || i->n_post))
        return BAD(p, a, i, "only compute instructions %s", "add or fuse");
    switch (i->kind) {
    case WEFT_INSTR_COMPUTE: return check_compute(p, a, i);
    case WEFT_INSTR_COLLECTIVE: return check_collective(p, a, i);
    case WEFT_INSTR_SEND: WEFT_TRY(need(p, a, i, 1, 0)); return check_peer(p, a, i);
    case WEFT_INSTR_RECV: WEFT_TRY(need(p, a, i, 0, 1)); return check_peer(p, a, i);
    case WEFT_INSTR_MERGE:
        WEFT_TRY(need_contiguous(p, a, i));
        return check_same_type(p, a, i);
    case WEFT_INSTR_COPY: return check_same_type(p, a, i);
    case WEFT_INSTR_READ:
        if (i->n_out < 1) return BAD(p, a, i, "it has no %s", "results");
        return need(p, a, i, 0, i->n_out);
    case WEFT_INSTR_MARK: return need(p, a, i, 0, 0);
    case WEFT_INSTR_COMMIT: return check_commit(p, a, i);
    case WEFT_N_INSTR_KIND: break;
    }
    return BAD(p, a, i, "kind %d", (int)i->kind);
}
