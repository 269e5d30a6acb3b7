/* Plans of cuDNN for attention: the graph node by node, as cuDNN recognises it (the operations of
 * scores, mask, softmax and their gradients fuse into one engine; in another order they do not),
 * then the first engine that can run it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnn.h"
#include "sdpa.h"

enum {
    MOST_OPERATIONS = 48,
    MOST_CONFIGS    = 16,
    FIRST_VIRTUAL   = 64 /* names of values that are never in memory */
};

typedef enum tensor_kind {
    TENSOR_REAL,
    TENSOR_VIRTUAL,
    TENSOR_VALUE
} tensor_kind;

typedef struct graph_builder {
    const weft_cuda_dnn        *dnn;
    const weft_cuda_sdpa_shape *shape;
    weft_cuda_sdpa             *plan;
    int                         n_op;
    void                       *op[MOST_OPERATIONS];
    int64_t                     next_name;
    bool                        failed;
} graph_builder;

/* ---- descriptors ---- */

static void note_failure(graph_builder *b, const char *what)
{
    char text[400] = "";
    if (b->failed) return;
    b->failed = true;
    b->dnn->last_error(text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    snprintf(b->plan->why, sizeof b->plan->why, "%s: %s", what, text);
}

static void *make_desc(graph_builder *b, int type)
{
    void *d = NULL;
    if (b->failed) return NULL;
    if (b->plan->n_desc == SDPA_MOST_DESC || b->dnn->desc_create(type, &d)) {
        note_failure(b, "descriptor");
        return NULL;
    }
    b->plan->desc[b->plan->n_desc++] = d;
    return d;
}

static void set_attribute(graph_builder *b, void *d, int name, int type, int64_t n,
                          const void *p)
{
    if (!b->failed && b->dnn->desc_set(d, name, type, n, p)) note_failure(b, "attribute");
}

static void set_int(graph_builder *b, void *d, int name, int type, int value)
{
    set_attribute(b, d, name, type, 1, &value); /* enumerators are ints */
}

static void set_desc(graph_builder *b, void *d, int name, void *value)
{
    set_attribute(b, d, name, DNN_TYPE_DESCRIPTOR, 1, &value);
}

static void *finalize(graph_builder *b, void *d, const char *what)
{
    if (!b->failed && b->dnn->desc_finalize(d)) note_failure(b, what);
    return d;
}

static void add_operation(graph_builder *b, void *d, const char *what)
{
    finalize(b, d, what);
    if (!b->failed && b->n_op == MOST_OPERATIONS) note_failure(b, "operations");
    if (!b->failed) b->op[b->n_op++] = d;
}

/* ---- tensors ---- */

static void *add_tensor(graph_builder *b, int64_t name, int type, const int64_t dim[4],
                        const int64_t stride[4], tensor_kind kind)
{
    void   *d     = make_desc(b, DNN_TENSOR);
    int64_t align = 16;
    bool    yes   = true;
    set_int(b, d, DNN_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, type);
    set_attribute(b, d, DNN_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 4, dim);
    set_attribute(b, d, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4, stride);
    set_attribute(b, d, DNN_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, &name);
    set_attribute(b, d, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1, &align);
    if (kind == TENSOR_VIRTUAL)
        set_attribute(b, d, DNN_TENSOR_IS_VIRTUAL, DNN_TYPE_BOOL, 1, &yes);
    if (kind == TENSOR_VALUE)
        set_attribute(b, d, DNN_TENSOR_IS_BY_VALUE, DNN_TYPE_BOOL, 1, &yes);
    if (kind != TENSOR_VIRTUAL && !b->failed) b->plan->tensor[b->plan->n_tensor++] = name;
    return finalize(b, d, "tensor");
}

static void *add_value(graph_builder *b, int64_t name, int type)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return add_tensor(b, name, type, one, one, TENSOR_VALUE);
}

/* (b,h,s,t), never in memory */
static void *add_scores(graph_builder *b, int type)
{
    const weft_cuda_sdpa_shape *s         = b->shape;
    int64_t                     dim[4]    = {s->b, s->h, s->s, s->t};
    int64_t                     stride[4] = {s->h * s->s * s->t, s->s * s->t, s->t, 1};
    return add_tensor(b, b->next_name++, type, dim, stride, TENSOR_VIRTUAL);
}

/* (b,h,s,1) in f32 */
static void *add_rows(graph_builder *b, int64_t name, tensor_kind kind)
{
    const weft_cuda_sdpa_shape *s         = b->shape;
    int64_t                     dim[4]    = {s->b, s->h, s->s, 1};
    int64_t                     stride[4] = {s->h * s->s, s->s, 1, 1};
    return add_tensor(b, name, DNN_F32, dim, stride, kind);
}

static void *add_lse(graph_builder *b)
{
    const weft_cuda_sdpa_shape *s      = b->shape;
    int64_t                     dim[4] = {s->b, s->h, s->s, 1};
    return add_tensor(b, SDPA_LSE, DNN_F32, dim, s->stride[SDPA_LSE], TENSOR_REAL);
}

/* (b,heads,n,e) of the call; transposed: (b,heads,e,n) */
static void *add_heads(graph_builder *b, int name, int64_t heads, int64_t n,
                       bool transposed)
{
    const int64_t *x         = b->shape->stride[name];
    int64_t        dim[4]    = {b->shape->b, heads, n, b->shape->e};
    int64_t        stride[4] = {x[0], x[1], x[2], x[3]};
    if (transposed) {
        dim[2] = b->shape->e, dim[3] = n;
        stride[2] = x[3], stride[3] = x[2];
    }
    return add_tensor(b, name, DNN_BF16, dim, stride, TENSOR_REAL);
}

/* ---- operations ---- */

static void add_matmul(graph_builder *b, void *x, void *y, void *z)
{
    void *m = make_desc(b, DNN_MATMUL), *d;
    set_int(b, m, DNN_MATMUL_COMPUTE_TYPE, DNN_TYPE_DATA_TYPE, DNN_F32);
    finalize(b, m, "matmul");
    d = make_desc(b, DNN_OPERATION_MATMUL);
    set_desc(b, d, DNN_OPERATION_MATMUL_A, x);
    set_desc(b, d, DNN_OPERATION_MATMUL_B, y);
    set_desc(b, d, DNN_OPERATION_MATMUL_C, z);
    set_desc(b, d, DNN_OPERATION_MATMUL_DESC, m);
    add_operation(b, d, "matmul");
}

typedef struct pointwise {
    int     mode, precision;
    void   *x, *y, *choose, *result; /* y, choose: NULL where the mode has none */
    int64_t axis;                    /* of an index; -1 */
} pointwise;

static void add_pointwise(graph_builder *b, pointwise p)
{
    float one = 1;
    void *m   = make_desc(b, DNN_POINTWISE), *d;
    set_int(b, m, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, p.mode);
    set_int(b, m, DNN_POINTWISE_PRECISION, DNN_TYPE_DATA_TYPE, p.precision);
    if (p.axis >= 0) set_attribute(b, m, DNN_POINTWISE_AXIS, DNN_TYPE_INT64, 1, &p.axis);
    finalize(b, m, "pointwise");
    d = make_desc(b, DNN_OPERATION_POINTWISE);
    set_desc(b, d, DNN_OPERATION_POINTWISE_DESC, m);
    set_desc(b, d, DNN_OPERATION_POINTWISE_X, p.x);
    set_desc(b, d, DNN_OPERATION_POINTWISE_Y, p.result);
    if (p.y) set_desc(b, d, DNN_OPERATION_POINTWISE_B, p.y);
    if (p.choose) set_desc(b, d, DNN_OPERATION_POINTWISE_T, p.choose);
    set_attribute(b, d, DNN_OPERATION_POINTWISE_ALPHA1, DNN_TYPE_FLOAT, 1, &one);
    set_attribute(b, d, DNN_OPERATION_POINTWISE_ALPHA2, DNN_TYPE_FLOAT, 1, &one);
    add_operation(b, d, "pointwise");
}

/* result = mode(x, y) in f32 */
static void add_map(graph_builder *b, int mode, void *x, void *y, void *result)
{
    add_pointwise(b, (pointwise){.mode      = mode,
                                 .precision = DNN_F32,
                                 .x         = x,
                                 .y         = y,
                                 .result    = result,
                                 .axis      = -1});
}

/* The same over scores: a new value. */
static void *map_scores(graph_builder *b, int mode, void *x, void *y)
{
    void *result = add_scores(b, DNN_F32);
    add_map(b, mode, x, y, result);
    return result;
}

static void add_reduction(graph_builder *b, int mode, void *x, void *result)
{
    void *r = make_desc(b, DNN_REDUCTION), *d;
    set_int(b, r, DNN_REDUCTION_COMPUTE_TYPE, DNN_TYPE_DATA_TYPE, DNN_F32);
    set_int(b, r, DNN_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION, mode);
    finalize(b, r, "reduction");
    d = make_desc(b, DNN_OPERATION_REDUCTION);
    set_desc(b, d, DNN_OPERATION_REDUCTION_DESC, r);
    set_desc(b, d, DNN_OPERATION_REDUCTION_X, x);
    set_desc(b, d, DNN_OPERATION_REDUCTION_Y, result);
    add_operation(b, d, "reduction");
}

static void add_reshape(graph_builder *b, void *x, void *result)
{
    void *d = make_desc(b, DNN_OPERATION_RESHAPE);
    set_desc(b, d, DNN_OPERATION_RESHAPE_X, x);
    set_desc(b, d, DNN_OPERATION_RESHAPE_Y, result);
    add_operation(b, d, "reshape");
}

/* ---- attention ---- */

static void *add_index(graph_builder *b, void *scores, int64_t axis)
{
    void *result = add_scores(b, DNN_INT32);
    add_pointwise(b, (pointwise){.mode      = DNN_GEN_INDEX,
                                 .precision = DNN_F32,
                                 .x         = scores,
                                 .result    = result,
                                 .axis      = axis});
    return result;
}

/* query + shift >= key ? scores : lowest */
static void *mask_scores(graph_builder *b, void *scores)
{
    if (!b->shape->causal) return scores;
    void *lowest = add_value(b, SDPA_LOWEST, DNN_F32);
    void *result = add_scores(b, DNN_F32);
    void *query = add_index(b, scores, 2), *key = add_index(b, scores, 3);
    void *sees = add_scores(b, DNN_BOOL);
    if (b->shape->shift) {
        void *moved = add_scores(b, DNN_INT32);
        add_pointwise(b, (pointwise){.mode      = DNN_ADD,
                                     .precision = DNN_INT32,
                                     .x         = query,
                                     .y         = add_value(b, SDPA_SHIFT, DNN_INT32),
                                     .result    = moved,
                                     .axis      = 3});
        query = moved;
    }
    add_pointwise(b, (pointwise){.mode      = DNN_CMP_GE,
                                 .precision = DNN_BOOL,
                                 .x         = query,
                                 .y         = key,
                                 .result    = sees,
                                 .axis      = -1});
    add_pointwise(b, (pointwise){.mode      = DNN_SELECT,
                                 .precision = DNN_F32,
                                 .x         = scores,
                                 .y         = lowest,
                                 .choose    = sees,
                                 .result    = result,
                                 .axis      = -1});
    return result;
}

/* softmax(mask(scale q k')) v, and the log-sum-exp of rows */
static void add_forward(graph_builder *b)
{
    const weft_cuda_sdpa_shape *s = b->shape;
    void                       *q = add_heads(b, SDPA_Q, s->h, s->s, false);
    void                       *k = add_heads(b, SDPA_K, s->g, s->t, true);
    void                       *v = add_heads(b, SDPA_V, s->g, s->t, false);
    void                       *o = add_heads(b, SDPA_O, s->h, s->s, false);
    void *lse = add_lse(b), *scale = add_value(b, SDPA_SCALE, DNN_F32);
    void *raw = add_scores(b, DNN_F32), *p;
    add_matmul(b, q, k, raw);
    void *scores  = mask_scores(b, map_scores(b, DNN_MUL, raw, scale));
    void *most    = add_rows(b, b->next_name++, TENSOR_VIRTUAL);
    void *sum     = add_rows(b, b->next_name++, TENSOR_VIRTUAL);
    void *log_sum = add_rows(b, b->next_name++, TENSOR_VIRTUAL);
    add_reduction(b, DNN_REDUCE_MAX, scores, most);
    void *e = map_scores(b, DNN_EXP, map_scores(b, DNN_SUB, scores, most), NULL);
    add_reduction(b, DNN_REDUCE_ADD, e, sum);
    add_map(b, DNN_LOG, sum, NULL, log_sum);
    add_map(b, DNN_ADD, most, log_sum, lse);
    p = add_scores(b, DNN_BF16);
    add_map(b, DNN_DIV, e, sum, p);
    add_matmul(b, p, v, o);
}

/* Scores (b,h,s,t) as (b,h,t,s), for the tensor cores. */
static void *transpose_scores(graph_builder *b, void *x)
{
    const weft_cuda_sdpa_shape *s         = b->shape;
    int64_t                     dim[4]    = {s->b, s->h, s->t, s->s};
    int64_t                     stride[4] = {s->h * s->s * s->t, s->s * s->t, 1, s->t};
    void *y = add_tensor(b, b->next_name++, DNN_BF16, dim, stride, TENSOR_VIRTUAL);
    add_reshape(b, x, y);
    return y;
}

/* p' x: of each query head, summed over the query heads of a key head. */
static void add_key_gradient(graph_builder *b, void *p, void *x, int name)
{
    const weft_cuda_sdpa_shape *s      = b->shape;
    void                       *result = add_heads(b, name, s->g, s->t, false);
    if (s->g == s->h) {
        add_matmul(b, p, x, result);
        return;
    }
    int64_t dim[4]    = {s->b, s->h, s->t, s->e};
    int64_t stride[4] = {s->h * s->t * s->e, s->t * s->e, s->e, 1};
    void   *each = add_tensor(b, b->next_name++, DNN_BF16, dim, stride, TENSOR_VIRTUAL);
    add_matmul(b, p, x, each);
    add_reduction(b, DNN_REDUCE_ADD, each, result);
}

/* sum_i of do_i o_i, (b,h,s,1): a tensor in memory, which two kernels share */
static void *add_output_sum(graph_builder *b, void *d_o, void *o)
{
    const weft_cuda_sdpa_shape *s         = b->shape;
    int64_t                     dim[4]    = {s->b, s->h, s->s, s->e};
    int64_t                     stride[4] = {s->h * s->s * s->e, s->s * s->e, s->e, 1};
    void                       *one       = add_value(b, SDPA_ONE, DNN_F32);
    void *each = add_tensor(b, b->next_name++, DNN_F32, dim, stride, TENSOR_VIRTUAL);
    void *rows = add_rows(b, b->next_name++, TENSOR_VIRTUAL);
    void *sum  = add_rows(b, SDPA_SUM, TENSOR_REAL);
    add_map(b, DNN_MUL, d_o, o, each);
    add_reduction(b, DNN_REDUCE_ADD, each, rows);
    add_map(b, DNN_MUL, rows, one, sum);
    return sum;
}

/* p = exp(mask(scale q k' - lse)), dv = p' do, ds = scale p (do v' - sum(do o)), dk = ds' q, dq =
 * ds k */
static void add_backward(graph_builder *b)
{
    const weft_cuda_sdpa_shape *s   = b->shape;
    void                       *q   = add_heads(b, SDPA_Q, s->h, s->s, false);
    void                       *k   = add_heads(b, SDPA_K, s->g, s->t, true);
    void                       *v   = add_heads(b, SDPA_V, s->g, s->t, true);
    void                       *o   = add_heads(b, SDPA_O, s->h, s->s, false);
    void                       *d_o = add_heads(b, SDPA_DO, s->h, s->s, false);
    void *lse = add_lse(b), *scale = add_value(b, SDPA_SCALE, DNN_F32);
    void *sum = add_output_sum(b, d_o, o);
    void *raw = add_scores(b, DNN_F32), *slope = add_scores(b, DNN_F32);

    add_matmul(b, q, k, raw);
    void *scores = map_scores(b, DNN_MUL, raw, scale);
    void *below  = mask_scores(b, map_scores(b, DNN_SUB, scores, lse));
    void *p      = map_scores(b, DNN_EXP, below, NULL);
    add_key_gradient(b, transpose_scores(b, p), d_o, SDPA_DV);

    add_matmul(b, d_o, v, slope);
    void *ds = map_scores(b, DNN_MUL, map_scores(b, DNN_SUB, slope, sum), p);
    ds       = map_scores(b, DNN_MUL, ds, scale);
    add_key_gradient(b, transpose_scores(b, ds), q, SDPA_DK);

    int64_t dim[4] = {s->b, s->g, s->t, s->e};
    void   *rows =
        add_tensor(b, b->next_name++, DNN_F32, dim, s->stride[SDPA_K], TENSOR_VIRTUAL);
    add_reshape(b, k, rows);
    add_matmul(b, ds, rows, add_heads(b, SDPA_DQ, s->h, s->s, false));
}

/* ---- plans ---- */

/* Engine and knobs as text: two versions of cuDNN may choose differently. */
static void name_plan(graph_builder *b, void *config)
{
    weft_cuda_sdpa *plan   = b->plan;
    void           *engine = make_desc(b, DNN_ENGINE), *knob[DNN_MOST_KNOBS];
    int64_t         n = 0, index = -1, one;
    int             at;
    b->dnn->desc_get(config, DNN_CONFIG_ENGINE, DNN_TYPE_DESCRIPTOR, 1, &n, &engine);
    b->dnn->desc_get(engine, DNN_ENGINE_INDEX, DNN_TYPE_INT64, 1, &n, &index);
    at = snprintf(plan->name, sizeof plan->name, "engine %ld", (long)index);
    for (int i = 0; i < DNN_MOST_KNOBS; i++) knob[i] = make_desc(b, DNN_KNOB_CHOICE);
    n = 0;
    b->dnn->desc_get(config, DNN_CONFIG_KNOBS, DNN_TYPE_DESCRIPTOR, DNN_MOST_KNOBS, &n,
                     knob);
    for (int i = 0; i < n && at < (int)sizeof plan->name - 32; i++) {
        int     type  = 0;
        int64_t value = 0;
        b->dnn->desc_get(knob[i], DNN_KNOB_CHOICE_TYPE, DNN_TYPE_KNOB, 1, &one, &type);
        b->dnn->desc_get(knob[i], DNN_KNOB_CHOICE_VALUE, DNN_TYPE_INT64, 1, &one, &value);
        at += snprintf(plan->name + at, sizeof plan->name - (size_t)at, " k%d=%ld", type,
                       (long)value);
    }
}

/* The first configuration that becomes a plan. */
static bool try_configs(graph_builder *b, void *heuristic)
{
    weft_cuda_sdpa *plan = b->plan;
    void           *config[MOST_CONFIGS];
    int64_t         n = 0;
    for (int i = 0; i < MOST_CONFIGS; i++) config[i] = make_desc(b, DNN_ENGINE_CONFIG);
    if (b->failed) return false;
    b->dnn->desc_get(heuristic, DNN_HEURISTIC_RESULTS, DNN_TYPE_DESCRIPTOR, MOST_CONFIGS,
                     &n, config);
    for (int i = 0; i < n; i++) {
        void *x = make_desc(b, DNN_EXECUTION_PLAN);
        set_desc(b, x, DNN_PLAN_CONFIG, config[i]);
        if (b->failed || b->dnn->desc_finalize(x)) continue;
        plan->plan = x;
        b->dnn->desc_get(x, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &n,
                         &plan->workspace_bytes);
        name_plan(b, config[i]);
        return true;
    }
    return false;
}

static void choose_engine(graph_builder *b, void *graph, void *device)
{
    static const int modes[] = {DNN_MODE_A, DNN_MODE_FALLBACK};
    for (size_t i = 0; i < WEFT_COUNT(modes) && !b->failed; i++) {
        void *h = make_desc(b, DNN_HEURISTIC);
        set_desc(b, h, DNN_HEURISTIC_GRAPH, graph);
        set_int(b, h, DNN_HEURISTIC_MODE, DNN_TYPE_HEURISTIC, modes[i]);
        if (device) set_desc(b, h, DNN_HEURISTIC_DEVICE, device);
        if (b->failed || b->dnn->desc_finalize(h)) continue;
        if (try_configs(b, h)) return;
    }
    note_failure(b, "no engine");
}

static void make_plan(graph_builder *b, void *handle, const char *device_json)
{
    void *device = NULL, *graph;
    if (device_json) {
        device = make_desc(b, DNN_DEVICE_PROPERTIES);
        set_attribute(b, device, DNN_DEVICE_JSON, DNN_TYPE_CHAR,
                      (int64_t)strlen(device_json), device_json);
        finalize(b, device, "device properties");
    }
    if (b->shape->backward)
        add_backward(b);
    else
        add_forward(b);
    graph = make_desc(b, DNN_OPERATION_GRAPH);
    set_attribute(b, graph, DNN_GRAPH_OPERATIONS, DNN_TYPE_DESCRIPTOR, b->n_op, b->op);
    if (handle) set_attribute(b, graph, DNN_GRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &handle);
    finalize(b, graph, "operation graph");
    if (!b->failed) choose_engine(b, graph, device);
}

/* ---- all plans of the process ---- */

static weft_cuda_sdpa      *plans;
static const weft_cuda_dnn *plans_dnn;
static pthread_mutex_t      lock = PTHREAD_MUTEX_INITIALIZER;

static void drop_descriptors(const weft_cuda_dnn *dnn, weft_cuda_sdpa *p)
{
    while (p->n_desc) dnn->desc_destroy(p->desc[--p->n_desc]);
}

const weft_cuda_sdpa *weft_cuda_sdpa_get(const weft_cuda_dnn *dnn, void *handle,
                                         const char                 *device_json,
                                         const weft_cuda_sdpa_shape *shape)
{
    weft_cuda_sdpa *p;
    pthread_mutex_lock(&lock);
    for (p = plans; p; p = p->next)
        if (!memcmp(&p->shape, shape, sizeof *shape)) break;
    if (!p && (p = calloc(1, sizeof *p))) {
        p->shape        = *shape;
        graph_builder b = {
            .dnn = dnn, .shape = &p->shape, .plan = p, .next_name = FIRST_VIRTUAL};
        make_plan(&b, handle, device_json);
        if (!p->plan) drop_descriptors(dnn, p);
        p->next   = plans;
        plans     = p;
        plans_dnn = dnn;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

void weft_cuda_sdpa_failure(char *text, size_t n)
{
    *text = 0;
    pthread_mutex_lock(&lock);
    for (const weft_cuda_sdpa *p = plans; p; p = p->next) {
        const weft_cuda_sdpa_shape *x = &p->shape;
        if (p->plan) continue;
        snprintf(text, n,
                 "cuDNN has no plan for the %s pass of attention of %lld x %lld tokens "
                 "with %lld heads of %lld (%.200s)",
                 x->backward ? "backward" : "forward", (long long)x->b, (long long)x->s,
                 (long long)x->h, (long long)x->e, p->why);
    }
    pthread_mutex_unlock(&lock);
}

void weft_cuda_sdpa_drop(void)
{
    pthread_mutex_lock(&lock);
    while (plans) {
        weft_cuda_sdpa *p = plans;
        plans             = p->next;
        drop_descriptors(plans_dnn, p);
        free(p);
    }
    pthread_mutex_unlock(&lock);
}
