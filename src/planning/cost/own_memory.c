/* Memory of a program as our engine takes it: slabs, and on a GPU what kernels need besides. */
#include "cost/cost.h"
#include "op/workspace.h"
#include "program/work.h"

static int64_t round_up(int64_t n)
{
    return (n + 127) / 128 * 128;
}

static const weft_attr *attr_of(const weft_instr *i, const char *name)
{
    return &i->attr[weft_op_attr_index(i->op, name)];
}

/* Query i of attention sees keys up to i + ahead where it is causal. */
static int64_t find_ahead(const weft_instr *i)
{
    int64_t s = i->in[1].type.shape.d[1], t = i->in[2].type.shape.d[1];
    int64_t q_first = attr_of(i, "q_first")->i;
    return q_first < 0 ? t - s : q_first - attr_of(i, "k_first")->i;
}

static bool is_causal(const weft_instr *i)
{
    return attr_of(i, "causal")->i && find_ahead(i) < i->in[2].type.shape.d[1] - 1;
}

/* Is it a call for our kernel by warpgroups (plugin/cuda/ops/attention_back.c)?  Rotary embeddings'
 * gradients, its further steps, take no memory. */
static bool is_by_warpgroups(const weft_instr *i, const weft_device_kind *d)
{
    if (!weft_cluster_is_hopper(d) || i->n_in != 6 ||
        i->in[1].type.dtype != WEFT_DTYPE_BF16 || attr_of(i, "window")->i > 0)
        return false;
    const int64_t *q = i->in[1].type.shape.d, *k = i->in[2].type.shape.d;
    return weft_attention_has_sums(q[1], k[1], q[3], is_causal(i), find_ahead(i));
}

/* cuDNN's deterministic backward pass: the gradients of the scores in tiles of 128; where query
 * heads share keys, those of keys and values for each of them in bf16; 256 bytes of its own (9.19,
 * of plans for an H200: tests/cuda/test_sdpa_plan.c).  And our sums of do * o. */
static int64_t attention_bytes(const weft_instr *i, const weft_device_kind *d)
{
    const int64_t *q = i->in[1].type.shape.d, *k = i->in[2].type.shape.d;
    int64_t        b = q[0], s = q[1], h = q[2], t = k[1], g = k[2];
    if (b < 1 || s < 1 || t < 1 || g < 1 || h < g) return 0;
    if (is_by_warpgroups(i, d))
        return weft_workspace_attention_sums(b, h, g, s, t, q[3], is_causal(i),
                                             find_ahead(i))
            .bytes;
    weft_attention_slice x =
        weft_workspace_attention(b, g, h / g, s, t, WEFT_WORKSPACE_ATTENTION);
    int64_t heads = x.b * x.g * (h / g);
    int64_t bytes = 2 * heads * round_up(s) * round_up(t) + 4 * heads * s + 256;
    return g < h ? bytes + 4 * heads * t * q[3] : bytes;
}

/* Codes and scales of both operands. */
static int64_t fp8_bytes(const weft_instr *i)
{
    weft_workload w;
    if (!weft_instr_is_fp8(i)) return 0;
    weft_instr_work(i, &w);
    return 256 + weft_workspace_fp8((int64_t)w.size[0], (int64_t)w.size[2]) +
           weft_workspace_fp8((int64_t)w.size[1], (int64_t)w.size[2]);
}

static int64_t scratch_bytes(const weft_instr *i, const weft_device_kind *d)
{
    if (i->kind != WEFT_INSTR_COMPUTE) return 0;
    if (i->op == WEFT_OP_MATMUL)
        return weft_workspace_matmul(weft_shape_count(&i->out[0].type.shape)) +
               fp8_bytes(i);
    if (i->op == WEFT_OP_ATTENTION_GRAD) return attention_bytes(i, d);
    return 0;
}

int64_t weft_cost_program_bytes(const weft_program *p, const weft_device_kind *d)
{
    int64_t all = 0, most = 0;
    for (int k = 0; k < p->n_slab; k++) all += p->slab[k].bytes;
    if (weft_cluster_is_cpu(d)) return all;
    all -= weft_program_bytes(p, WEFT_SLAB_HOST_STATE) +
           weft_program_bytes(p, WEFT_SLAB_HOST_WORK);
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            int64_t bytes = scratch_bytes(&p->actor[a].instr[n], d);
            if (bytes > most) most = bytes;
        }
    /* what the host fills in has a copy on the device */
    return all + weft_program_bytes(p, WEFT_SLAB_STAGING) + most;
}
