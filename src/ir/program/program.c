/* Programs: making them, finding things in them, counting what an instruction does. */
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"

weft_status weft_program_create(const char *name, weft_program **out)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_program *p = WEFT_ARENA_NEW(a, weft_program);
    if (p) {
        p->arena = a;
        p->name  = weft_arena_strdup(a, name);
        p->world = p->n_micro = p->n_lane = 1;
    }
    weft_status st = weft_arena_status(a);
    if (st != WEFT_OK)
        weft_arena_destroy(a);
    else
        *out = p;
    return st;
}

void weft_program_destroy(weft_program *p)
{
    if (p) weft_arena_destroy(p->arena);
}

void weft_program_destroy_set(weft_program **p, int n)
{
    for (int i = 0; p && i < n; i++) weft_program_destroy(p[i]);
    free(p);
}

const weft_binding *weft_program_find(const weft_program *p, const char *name)
{
    for (int i = 0; i < p->n_binding; i++)
        if (!strcmp(p->binding[i].name, name)) return &p->binding[i];
    return NULL;
}

int64_t weft_program_bytes(const weft_program *p, weft_slab_kind k)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind == k) n += p->slab[i].bytes;
    return n;
}

/* ---- streams ---- */

weft_status weft_program_add_stream(weft_program *p, weft_stream_spec s, int32_t *out)
{
    weft_stream_spec *all = WEFT_ARENA_ARRAY(p->arena, weft_stream_spec, p->n_stream + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 0; k < p->n_stream; k++) all[k] = p->stream[k];
    s.name           = weft_arena_strdup(p->arena, s.name);
    all[p->n_stream] = s;
    p->stream        = all;
    *out             = p->n_stream++;
    return weft_arena_status(p->arena);
}

weft_stream_spec *weft_program_stream(const weft_program *p, weft_stream_kind k)
{
    for (int s = 0; s < p->n_stream; s++)
        if (p->stream[s].kind == k) return &p->stream[s];
    return NULL;
}

/* ---- names ---- */

const char *weft_slab_kind_name(weft_slab_kind k)
{
    static const char *const name[] = {"state", "work", "staging", "host_state",
                                       "host_work"};
    return name[k];
}

bool weft_slab_kind_is_state(weft_slab_kind k)
{
    return k == WEFT_SLAB_STATE || k == WEFT_SLAB_HOST_STATE;
}

bool weft_slab_kind_is_host(weft_slab_kind k)
{
    return k == WEFT_SLAB_HOST_STATE || k == WEFT_SLAB_HOST_WORK;
}

const char *weft_stream_kind_name(weft_stream_kind k)
{
    static const char *const name[] = {"compute", "comm", "host", "io"};
    return name[k];
}

const char *weft_instr_kind_name(weft_instr_kind k)
{
    static const char *const name[] = {"compute", "collective", "send", "recv",  "copy",
                                       "read",    "merge",      "mark", "commit"};
    return name[k];
}

/* ---- operands ---- */

int32_t weft_program_slot(const weft_program *p, const weft_instr *i, bool is_out,
                          int32_t buffer, const weft_firing *f)
{
    const weft_buffer *b    = &p->buffer[buffer];
    int32_t            lane = f->lane_slot;
    if (i->kind == WEFT_INSTR_MERGE && is_out) lane--;
    switch (b->slot_by) {
    case WEFT_SLOT_MICRO: return f->micro < 0 ? 0 : f->micro % b->n_slot;
    case WEFT_SLOT_LANE: return lane;
    case WEFT_SLOT_ONE: break;
    }
    return 0;
}

bool weft_operand_span(const weft_operand *o, int64_t *lo, int64_t *hi)
{
    int64_t first = o->offset, last = o->offset, size = weft_dtype_bytes(o->type.dtype);
    for (int d = 0; d < o->type.shape.n; d++) {
        int64_t reach;
        if (o->type.shape.d[d] == 0) {
            *lo = *hi = 0;
            return true;
        }
        if (__builtin_mul_overflow(o->type.shape.d[d] - 1, o->stride[d], &reach) ||
            __builtin_add_overflow(reach < 0 ? first : last, reach,
                                   reach < 0 ? &first : &last))
            return false;
    }
    return !__builtin_mul_overflow(first, size, lo) &&
           !__builtin_add_overflow(last, 1, &last) &&
           !__builtin_mul_overflow(last, size, hi);
}

bool weft_operand_contiguous(const weft_operand *o)
{
    weft_view v = {.dtype = o->type.dtype, .shape = o->type.shape};
    memcpy(v.stride, o->stride, sizeof v.stride);
    return weft_view_contiguous(&v);
}

weft_operand weft_operand_make(int32_t buffer, weft_dtype t, const weft_shape *s)
{
    weft_view    v = weft_view_make(NULL, t, s);
    weft_operand o = {.buffer = buffer, .type = {.dtype = t, .shape = *s}};
    memcpy(o.stride, v.stride, sizeof o.stride);
    return o;
}

int weft_program_instr_base(const weft_program *p, int32_t actor)
{
    int n = 0;
    for (int32_t a = 0; a < actor; a++) n += p->actor[a].n_instr;
    return n;
}

int weft_program_n_instr(const weft_program *p)
{
    return weft_program_instr_base(p, p->n_actor);
}

int weft_program_stage_ranks(const weft_program *p)
{
    int least = p->world;
    for (int k = 0; k < p->n_actor; k++)
        for (int m = 0; m < p->actor[k].n_instr; m++) {
            const weft_instr *i = &p->actor[k].instr[m];
            if (i->kind != WEFT_INSTR_SEND && i->kind != WEFT_INSTR_RECV) continue;
            if (weft_instr_is_standby(i)) continue;
            int away = i->peer > p->rank ? i->peer - p->rank : p->rank - i->peer;
            if (away > 0 && away < least) least = away;
        }
    return least > 0 ? least : 1;
}

#define STANDBY "standby."

const char *weft_standby_name(weft_arena *a, int k, const char *name)
{
    return weft_arena_printf(a, STANDBY "%d.%s", k + 1, name);
}

int weft_program_n_standby(const weft_program *p)
{
    long most = 0;
    for (int b = 0; b < p->n_binding; b++) {
        const char *name = p->binding[b].name;
        if (p->binding[b].kind != WEFT_BIND_STANDBY ||
            strncmp(name, STANDBY, strlen(STANDBY)) != 0)
            continue;
        long k = strtol(name + strlen(STANDBY), NULL, 10);
        if (k > most) most = k;
    }
    return (int)most;
}

bool weft_instr_is_standby(const weft_instr *i)
{
    return (i->kind == WEFT_INSTR_SEND || i->kind == WEFT_INSTR_RECV) &&
           i->tag >= WEFT_STANDBY_TAG;
}

bool weft_instr_is_comm(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE || i->kind == WEFT_INSTR_SEND ||
           i->kind == WEFT_INSTR_RECV;
}

bool weft_instr_is_free(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_MARK || i->kind == WEFT_INSTR_COMMIT;
}

bool weft_instr_writes_state(const weft_program *p, const weft_instr *i)
{
    for (int k = 0; k < i->n_out; k++) {
        int32_t b = i->out[k].buffer;
        if (b >= 0 && weft_slab_kind_is_state(p->slab[p->buffer[b].slab].kind))
            return true;
    }
    return false;
}

bool weft_instr_is_on_host(const weft_program *p, const weft_instr *i)
{
    int n = 0;
    for (int k = 0; k < i->n_in + i->n_out; k++) {
        int32_t b = (k < i->n_in ? &i->in[k] : &i->out[k - i->n_in])->buffer;
        if (b < 0) continue;
        if (!weft_slab_kind_is_host(p->slab[p->buffer[b].slab].kind)) return false;
        n++;
    }
    return n > 0;
}

bool weft_program_find_commit(const weft_program *p, int *actor, int *instr)
{
    for (*actor = 0; *actor < p->n_actor; ++*actor)
        for (*instr = 0; *instr < p->actor[*actor].n_instr; ++*instr)
            if (p->actor[*actor].instr[*instr].kind == WEFT_INSTR_COMMIT) return true;
    return false;
}

/* ---- counts ---- */

weft_op_use weft_instr_use(const weft_instr *i, weft_type *in, weft_type *out)
{
    for (int k = 0; k < i->n_own_in; k++) in[k] = i->in[k].type;
    for (int k = 0; k < i->n_own_out; k++) out[k] = i->out[k].type;
    /* optional operands left out at the end are not given at all */
    int n = i->n_own_in;
    while (n > 0 && i->in[n - 1].buffer < 0) n--;
    return (weft_op_use){.op    = i->op,
                         .attr  = i->attr,
                         .n_in  = n,
                         .n_out = i->n_own_out,
                         .in    = in,
                         .out   = out};
}

static double type_bytes(const weft_type *t)
{
    return (double)weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* What is spread (stride 0) moves once. */
static double operand_bytes(const weft_operand *o)
{
    double n = o->buffer < 0 ? 0 : weft_dtype_bytes(o->type.dtype);
    for (int d = 0; d < o->type.shape.n; d++)
        if (o->stride[d] || o->type.shape.d[d] == 0) n *= (double)o->type.shape.d[d];
    return n;
}

/* Counts over an operator's use; most have few operands, clip has one for each parameter. */
typedef double (*count_fn)(const weft_op_use *u);

static double count_own(const weft_instr *i, count_fn f)
{
    weft_type  few[16];
    int        n    = i->n_own_in + i->n_own_out;
    weft_type *type = n <= 16 ? few : malloc(sizeof *type * (size_t)n);
    if (!type) return 0;
    weft_op_use u     = weft_instr_use(i, type, type + i->n_own_in);
    double      count = f(&u);
    if (type != few) free(type);
    return count;
}

/* A post works element by element on an own result. */
static double post_flops(const weft_instr *i, int k)
{
    const weft_post *s  = &i->post[k];
    weft_type        of = i->out[weft_post_result(i, k)].type, in[2] = {of, of}, out = of;
    weft_op_use u = {.op = s->op, .attr = s->attr, .n_in = s->in < 0 ? 1 : 2, .n_out = 1};
    if (s->in >= 0) in[1] = i->in[s->in].type;
    if (s->out >= 0) out = i->out[s->out].type;
    u.in  = in;
    u.out = &out;
    return weft_op_flops(&u);
}

double weft_instr_flops(const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_MERGE)
        return (double)weft_shape_count(&i->out[0].type.shape);
    if (i->kind != WEFT_INSTR_COMPUTE) return 0;
    double n = count_own(i, weft_op_flops);
    for (int k = 0; k < i->n_post; k++) n += post_flops(i, k);
    return n;
}

double weft_instr_bytes(const weft_instr *i)
{
    double n = 0;
    if (i->kind == WEFT_INSTR_COLLECTIVE && i->coll == WEFT_SEND_ROWS)
        return operand_bytes(&i->in[0]);
    if (i->kind == WEFT_INSTR_COLLECTIVE && i->coll == WEFT_RETURN_ROWS)
        return operand_bytes(&i->out[0]);
    if (i->kind != WEFT_INSTR_COMPUTE) {
        for (int k = 0; k < i->n_in; k++) n += operand_bytes(&i->in[k]);
        if (weft_instr_is_comm(i) && i->n_in)
            return n; /* what is given, not what comes back */
        for (int k = 0; k < i->n_out; k++) n += operand_bytes(&i->out[k]);
        return i->kind == WEFT_INSTR_MERGE ? n + operand_bytes(&i->out[0]) : n;
    }
    n = count_own(i, weft_op_bytes);
    for (int k = 0; k < i->n_own_out; k++)
        if (i->out[k].buffer < 0) n -= type_bytes(&i->out[k].type);
    for (int k = i->n_own_in; k < i->n_in; k++) n += operand_bytes(&i->in[k]);
    for (int k = i->n_own_out; k < i->n_out; k++) n += operand_bytes(&i->out[k]);
    for (int k = 0; k < i->n_out && k < 32; k++)
        if ((i->add | i->into) >> k & 1)
            n += operand_bytes(&i->out[k]); /* read to be added to */
    return n < 0 ? 0 : n;
}

int64_t weft_instr_unit(const weft_instr *i, int t)
{
    return i->units ? i->units[t] : i->unit;
}

void weft_instr_share(const weft_instr *i, int t, int n, int k, int64_t *lo, int64_t *hi)
{
    const weft_operand *whole = i->coll == WEFT_ALL_GATHER ? &i->out[t] : &i->in[t];
    int64_t             total = weft_shape_count(&whole->type.shape);
    int64_t             unit  = weft_instr_unit(i, t);
    if (!unit) unit = total / n > 0 ? total / n : 1;
    *lo = weft_part_start(total, unit, n, k);
    *hi = weft_part_start(total, unit, n, k + 1);
}

int weft_instr_terms(const weft_instr *i, const weft_group *g, int k)
{
    int first, end;
    if (i->kind != WEFT_INSTR_COLLECTIVE || !i->lanes) return 1;
    weft_lanes_of(&(weft_lanes){i->lanes, g->n_rank, g->share}, k, &first, &end);
    return weft_lanes_terms(first, end, NULL);
}
