/* libcudnn of the tests: graphs of operations as plugin/cuda/ops/sdpa_plan.c makes them, run on
 * the CPU one operation after the other.  Values that are never in memory are arrays of floats
 * here; those of type bf16 are rounded when they are read. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnn.h"
#include "stub/call.h"

enum {
    OK              = 0,
    BAD             = 2000,
    MOST_ATTRIBUTES = 12,
    MOST_TENSORS    = 96
};

typedef struct attribute {
    int     name;
    int64_t n;
    void   *data;
} attribute;

typedef struct desc {
    int          type, n_attribute;
    bool         done;
    attribute    attribute[MOST_ATTRIBUTES];
    struct desc *graph; /* of heuristics, configurations and plans */
} desc;

/* How often plans ran: tests look it up. */
int stub_dnn_runs;

static const char *last_error = "";

static int fail(const char *why)
{
    last_error = why;
    return BAD;
}

void cudnnGetLastErrorString(char *text, size_t bytes);
void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", last_error);
}

size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void)
{
    const char *version = getenv("WEFT_STUB_DNN"); /* another version */
    return version ? (size_t)atol(version) : 91900;
}

int cudnnCreate(void **h);
int cudnnCreate(void **h)
{
    if (stub_enter(__func__)) return BAD;
    *h = calloc(1, sizeof(void *)); /* its stream */
    return *h ? OK : fail("memory");
}

int cudnnDestroy(void *h);
int cudnnDestroy(void *h)
{
    if (stub_enter(__func__)) return BAD;
    free(h);
    return OK;
}

int cudnnSetStream(void *h, void *stream);
int cudnnSetStream(void *h, void *stream)
{
    if (stub_enter(__func__)) return BAD;
    *(void **)h = stream;
    return OK;
}

/* ---- descriptors ---- */

int cudnnBackendCreateDescriptor(int type, void **out);
int cudnnBackendCreateDescriptor(int type, void **out)
{
    if (stub_enter(__func__)) return BAD;
    desc *d = calloc(1, sizeof *d);
    if (!d) return fail("memory");
    d->type = type;
    *out    = d;
    return OK;
}

int cudnnBackendDestroyDescriptor(void *p);
int cudnnBackendDestroyDescriptor(void *p)
{
    if (stub_enter(__func__)) return BAD;
    desc *d = p;
    for (int i = 0; i < d->n_attribute; i++) free(d->attribute[i].data);
    free(d);
    return OK;
}

static size_t size_of(int type)
{
    switch (type) {
    case DNN_TYPE_HANDLE:
    case DNN_TYPE_INT64:
    case DNN_TYPE_POINTER:
    case DNN_TYPE_DESCRIPTOR: return 8;
    case DNN_TYPE_BOOL:
    case DNN_TYPE_CHAR: return 1;
    default: return 4;
    }
}

static const attribute *find(const desc *d, int name)
{
    for (int i = 0; d && i < d->n_attribute; i++)
        if (d->attribute[i].name == name) return &d->attribute[i];
    return NULL;
}

static void *get_pointer(const desc *d, int name)
{
    const attribute *a = find(d, name);
    return a ? *(void **)a->data : NULL;
}

static int get_int(const desc *d, int name, int otherwise)
{
    const attribute *a = find(d, name);
    return a ? *(int *)a->data : otherwise;
}

int cudnnBackendSetAttribute(void *p, int name, int type, int64_t n, const void *data);
int cudnnBackendSetAttribute(void *p, int name, int type, int64_t n, const void *data)
{
    if (stub_enter(__func__)) return BAD;
    desc *d = p;
    if (d->done || d->n_attribute == MOST_ATTRIBUTES || n < 1) return fail("attribute");
    if (type == DNN_TYPE_DESCRIPTOR && !((desc *const *)data)[0]->done)
        return fail("a descriptor that is not final");
    attribute *a = &d->attribute[d->n_attribute++];
    a->name      = name;
    a->n         = n;
    a->data      = malloc(size_of(type) * (size_t)n);
    if (!a->data) return fail("memory");
    memcpy(a->data, data, size_of(type) * (size_t)n);
    return OK;
}

int cudnnBackendFinalize(void *p);
int cudnnBackendFinalize(void *p)
{
    if (stub_enter(__func__)) return BAD;
    desc *d = p;
    if (d->type == DNN_HEURISTIC) d->graph = get_pointer(d, DNN_HEURISTIC_GRAPH);
    if (d->type == DNN_EXECUTION_PLAN && getenv("WEFT_STUB_NO_PLAN"))
        return fail("the stub has no engine for this");
    if (d->type == DNN_EXECUTION_PLAN)
        d->graph = ((desc *)get_pointer(d, DNN_PLAN_CONFIG))->graph;
    d->done = true;
    return OK;
}

/* Twice the largest value that is never in memory, in the backward pass. */
static int64_t workspace_of(const desc *graph)
{
    const attribute *ops  = find(graph, DNN_GRAPH_OPERATIONS);
    int64_t          most = 0;
    for (int64_t i = 0; ops->n > 18 && i < ops->n; i++) {
        const desc *y = get_pointer(((desc **)ops->data)[i], DNN_OPERATION_POINTWISE_Y);
        if (!y || !find(y, DNN_TENSOR_IS_VIRTUAL)) continue;
        const int64_t *dim = find(y, DNN_TENSOR_DIMENSIONS)->data;
        int64_t        n   = dim[0] * dim[1] * dim[2] * dim[3];
        if (n > most) most = n;
    }
    return 256 + 2 * most;
}

int cudnnBackendGetAttribute(void *p, int name, int type, int64_t most, int64_t *n,
                             void *out);
int cudnnBackendGetAttribute(void *p, int name, int type, int64_t most, int64_t *n,
                             void *out)
{
    if (stub_enter(__func__)) return BAD;
    desc *d = p;
    (void)type;
    *n = 0;
    if (most < 1) return BAD;
    if (name == DNN_HEURISTIC_RESULTS) {
        desc *config  = ((desc **)out)[0];
        config->graph = d->graph;
        config->done  = true;
        *n            = 1;
    }
    if (name == DNN_PLAN_WORKSPACE) *(int64_t *)out = workspace_of(d->graph), *n = 1;
    return OK;
}

/* ---- tensors ---- */

typedef struct tensor {
    int64_t        name;
    int            type;
    const int64_t *dim, *stride;
    bool           in_floats; /* not in the type itself: never in memory */
    void          *mem;
    void          *own; /* to be freed */
} tensor;

typedef struct run_state {
    int            n;
    tensor         tensor[MOST_TENSORS];
    int64_t        n_given;
    const int64_t *given;
    void *const   *address;
} run_state;

static tensor *tensor_of(run_state *r, const desc *d)
{
    int64_t name = *(int64_t *)find(d, DNN_TENSOR_UNIQUE_ID)->data;
    for (int i = 0; i < r->n; i++)
        if (r->tensor[i].name == name) return &r->tensor[i];
    tensor *t = &r->tensor[r->n++];
    *t        = (tensor){.name = name, .type = get_int(d, DNN_TENSOR_DATA_TYPE, 0)};
    t->dim    = find(d, DNN_TENSOR_DIMENSIONS)->data;
    t->stride = find(d, DNN_TENSOR_STRIDES)->data;
    for (int64_t i = 0; i < r->n_given; i++)
        if (r->given[i] == name) t->mem = r->address[i];
    if (t->mem) return t;
    int64_t count = 1;
    for (int k = 0; k < 4; k++) count += (t->dim[k] - 1) * t->stride[k];
    t->in_floats = true;
    t->mem = t->own = calloc((size_t)count, sizeof(float));
    return t;
}

static tensor *operand(run_state *r, const desc *op, int name)
{
    const desc *d = get_pointer(op, name);
    return d ? tensor_of(r, d) : NULL;
}

static float round_bf16(float x)
{
    union {
        float    f;
        uint32_t u;
    } v = {x};
    v.u = (v.u + 0x7fffu + (v.u >> 16 & 1u)) & 0xffff0000u;
    return v.f;
}

/* Index i of a result, in an operand that is spread or shared by neighbours. */
static int64_t offset_of(const tensor *t, const int64_t *i, const int64_t *dim)
{
    int64_t at = 0;
    for (int k = 0; k < 4; k++) at += i[k] * t->dim[k] / dim[k] * t->stride[k];
    return at;
}

static float read_at(const tensor *t, int64_t at)
{
    union {
        uint32_t u;
        float    f;
    } v;
    if (t->in_floats) {
        float x = ((float *)t->mem)[at];
        return t->type == DNN_BF16 ? round_bf16(x) : x;
    }
    if (t->type == DNN_F32) return ((float *)t->mem)[at];
    if (t->type == DNN_INT32) return (float)((int32_t *)t->mem)[at];
    v.u = (uint32_t)((uint16_t *)t->mem)[at] << 16;
    return v.f;
}

static void write_at(const tensor *t, int64_t at, float x)
{
    union {
        float    f;
        uint32_t u;
    } v = {round_bf16(x)};
    if (t->in_floats || t->type == DNN_F32)
        ((float *)t->mem)[at] = x;
    else
        ((uint16_t *)t->mem)[at] = (uint16_t)(v.u >> 16);
}

#define EACH(i, dim)                                                                     \
    for (int64_t i[4] = {0}; i[0] < (dim)[0]; i[0]++)                                    \
        for (i[1] = 0; i[1] < (dim)[1]; i[1]++)                                          \
            for (i[2] = 0; i[2] < (dim)[2]; i[2]++)                                      \
                for (i[3] = 0; i[3] < (dim)[3]; i[3]++)

/* ---- operations ---- */

static void run_matmul(run_state *r, const desc *op)
{
    tensor *a = operand(r, op, DNN_OPERATION_MATMUL_A);
    tensor *b = operand(r, op, DNN_OPERATION_MATMUL_B);
    tensor *c = operand(r, op, DNN_OPERATION_MATMUL_C);
    EACH(i, c->dim)
    {
        const int64_t head[4] = {i[0], i[1], 0, 0}, one[4] = {c->dim[0], c->dim[1], 1, 1};
        int64_t       at  = offset_of(a, head, one) + i[2] * a->stride[2];
        int64_t       to  = offset_of(b, head, one) + i[3] * b->stride[3];
        float         sum = 0;
        for (int64_t k = 0; k < a->dim[3]; k++)
            sum += read_at(a, at + k * a->stride[3]) * read_at(b, to + k * b->stride[2]);
        write_at(c, offset_of(c, i, c->dim), sum);
    }
}

static float map_value(int mode, float x, float y)
{
    switch (mode) {
    case DNN_ADD: return x + y;
    case DNN_MUL: return x * y;
    case DNN_SUB: return x - y;
    case DNN_DIV: return x / y;
    case DNN_EXP: return expf(x);
    case DNN_LOG: return logf(x);
    case DNN_CMP_GE: return x >= y;
    default: return NAN;
    }
}

static void run_pointwise(run_state *r, const desc *op)
{
    const desc      *m      = get_pointer(op, DNN_OPERATION_POINTWISE_DESC);
    const attribute *axis   = find(m, DNN_POINTWISE_AXIS);
    int              mode   = get_int(m, DNN_POINTWISE_MODE, -1);
    tensor          *x      = operand(r, op, DNN_OPERATION_POINTWISE_X);
    tensor          *b      = operand(r, op, DNN_OPERATION_POINTWISE_B);
    tensor          *choose = operand(r, op, DNN_OPERATION_POINTWISE_T);
    tensor          *y      = operand(r, op, DNN_OPERATION_POINTWISE_Y);
    EACH(i, y->dim)
    {
        float u = read_at(x, offset_of(x, i, y->dim)), v = 0;
        if (b) v = read_at(b, offset_of(b, i, y->dim));
        if (mode == DNN_GEN_INDEX)
            v = (float)i[*(int64_t *)axis->data];
        else if (mode == DNN_SELECT)
            v = read_at(choose, offset_of(choose, i, y->dim)) != 0 ? u : v;
        else
            v = map_value(mode, u, v);
        write_at(y, offset_of(y, i, y->dim), v);
    }
}

static void run_reduction(run_state *r, const desc *op)
{
    const desc *m    = get_pointer(op, DNN_OPERATION_REDUCTION_DESC);
    bool        most = get_int(m, DNN_REDUCTION_OPERATOR, 0) == DNN_REDUCE_MAX;
    tensor     *x    = operand(r, op, DNN_OPERATION_REDUCTION_X);
    tensor     *y    = operand(r, op, DNN_OPERATION_REDUCTION_Y);
    EACH(j, y->dim)
    {
        float   sum = most ? -INFINITY : 0;
        int64_t part[4];
        for (int k = 0; k < 4; k++) part[k] = x->dim[k] / y->dim[k];
        EACH(i, part)
        {
            int64_t at = 0;
            for (int k = 0; k < 4; k++) at += (j[k] * part[k] + i[k]) * x->stride[k];
            float v = read_at(x, at);
            sum     = most ? fmaxf(sum, v) : sum + v;
        }
        write_at(y, offset_of(y, j, y->dim), sum);
    }
}

/* The same memory under other sizes and strides. */
static void run_reshape(run_state *r, const desc *op)
{
    tensor *x = operand(r, op, DNN_OPERATION_RESHAPE_X);
    tensor *y = operand(r, op, DNN_OPERATION_RESHAPE_Y);
    free(y->own);
    y->own       = NULL;
    y->mem       = x->mem;
    y->in_floats = x->in_floats;
    if (!x->in_floats) y->type = x->type;
}

typedef struct execution {
    const desc *graph, *pack;
} execution;

static void run_operation(run_state *r, const desc *op)
{
    switch (op->type) {
    case DNN_OPERATION_MATMUL: run_matmul(r, op); break;
    case DNN_OPERATION_POINTWISE: run_pointwise(r, op); break;
    case DNN_OPERATION_REDUCTION: run_reduction(r, op); break;
    case DNN_OPERATION_RESHAPE: run_reshape(r, op); break;
    default: abort();
    }
}

static void run_graph(const void *args)
{
    const execution *e   = args;
    const attribute *ops = find(e->graph, DNN_GRAPH_OPERATIONS);
    const attribute *ids = find(e->pack, DNN_PACK_UNIQUE_IDS);
    run_state        r   = {.n_given = ids->n, .given = ids->data};
    r.address            = find(e->pack, DNN_PACK_POINTERS)->data;
    memset(get_pointer(e->pack, DNN_PACK_WORKSPACE), 0x5a,
           (size_t)workspace_of(e->graph));
    for (int64_t i = 0; i < ops->n; i++) run_operation(&r, ((desc **)ops->data)[i]);
    for (int i = 0; i < r.n; i++) free(r.tensor[i].own);
}

int cudnnBackendExecute(void *h, void *plan, void *pack);
int cudnnBackendExecute(void *h, void *plan, void *pack)
{
    execution e = {((desc *)plan)->graph, pack};
    stub_dnn_runs++;
    return stub_call(*(void **)h, "cudnnBackendExecute", run_graph, &e, sizeof e) ? BAD
                                                                                  : OK;
}
