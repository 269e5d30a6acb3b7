/* TEMPORARY: runs a one-rank program directly. */
#include "session/runner.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "kernel/kernel.h"

struct weft_runner {
    weft_runner_options o;
    char              **slab;
    void               *scratch;
    size_t              n_scratch;
    bool                shared;
    int64_t             first;
};

static char *base(const weft_runner *r, const weft_operand *o, const weft_firing *f,
                  int shift)
{
    const weft_buffer *b    = &r->o.made->program->buffer[o->buffer];
    int                slot = b->slot_by == WEFT_SLOT_LANE    ? f->lane_slot + shift
                              : b->slot_by == WEFT_SLOT_MICRO ? f->micro % b->n_slot
                                                              : 0;
    return r->slab[b->slab] + b->offset + slot * b->bytes +
           o->offset * weft_dtype_bytes(o->type.dtype);
}

static weft_view view(const weft_runner *r, const weft_operand *o, const weft_firing *f)
{
    weft_view v = {.dtype = o->type.dtype, .shape = o->type.shape};
    memcpy(v.stride, o->stride, sizeof v.stride);
    memcpy(v.origin, o->origin, sizeof v.origin);
    if (o->buffer >= 0) v.p = base(r, o, f, 0);
    return v;
}

static void make_call(const weft_runner *r, const weft_instr *i, const weft_firing *f,
                      weft_view *in, weft_view *out, weft_kernel_post *post,
                      weft_kernel_call *c)
{
    for (int k = 0; k < i->n_in; k++) in[k] = view(r, &i->in[k], f);
    for (int k = 0; k < i->n_out; k++) out[k] = view(r, &i->out[k], f);
    for (int k = 0; k < i->n_post; k++)
        post[k] = (weft_kernel_post){i->post[k].op, i->post[k].attr, i->post[k].in,
                                     i->post[k].out};
    *c = (weft_kernel_call){.op        = i->op,
                            .attr      = i->attr,
                            .n_in      = i->n_in,
                            .n_own_in  = i->n_own_in,
                            .n_out     = i->n_out,
                            .n_own_out = i->n_own_out,
                            .in        = in,
                            .out       = out,
                            .n_post    = i->n_post,
                            .post      = post,
                            .add       = f->first ? 0 : i->add};
}

static const weft_kernel *kernel_of(const weft_instr *i)
{
    weft_dtype t = WEFT_DTYPE_F32;
    for (int k = 0; k < i->n_own_in; k++)
        if (i->in[k].type.dtype == WEFT_DTYPE_F32 ||
            i->in[k].type.dtype == WEFT_DTYPE_BF16) {
            t = i->in[k].type.dtype;
            break;
        }
    return weft_kernel_find(i->op, "cpu", t);
}

weft_status weft_runner_create(const weft_runner_options *o, weft_runner **out)
{
    weft_runner        *r = calloc(1, sizeof *r);
    const weft_program *p = o->made->program;
    weft_view           in[4096], ou[256];
    weft_kernel_post    post[64];
    r->o    = *o;
    r->slab = calloc((size_t)p->n_slab, sizeof(char *));
    for (int i = 0; i < p->n_slab; i++) {
        size_t n   = ((size_t)p->slab[i].bytes + 4095) / 4096 * 4096 + 4096;
        r->slab[i] = aligned_alloc(4096, n);
        memset(r->slab[i], 0, n);
    }
    for (int a = 0; a < p->n_actor; a++)
        for (int k = 0; k < p->actor[a].n_instr; k++) {
            const weft_instr *i = &p->actor[a].instr[k];
            if (i->kind != WEFT_INSTR_COMPUTE) continue;
            const weft_kernel *kn = kernel_of(i);
            if (!kn)
                return WEFT_FAIL(WEFT_ERR_ARG, "no kernel for %s",
                                 weft_op_get(i->op)->name);
            weft_kernel_call c;
            weft_firing      f = {0};
            make_call(r, i, &f, in, ou, post, &c);
            size_t n = kn->scratch ? kn->scratch(&c, weft_pool_threads(o->pool)) : 0;
            if (n > r->n_scratch) r->n_scratch = n;
        }
    r->n_scratch = (r->n_scratch + 4095) / 4096 * 4096 + 4096;
    r->scratch   = aligned_alloc(4096, r->n_scratch);
    *out         = r;
    return WEFT_OK;
}

void weft_runner_destroy(weft_runner *r)
{
    if (!r) return;
    for (int i = 0; i < r->o.made->program->n_slab; i++) free(r->slab[i]);
    free(r->slab);
    free(r->scratch);
    free(r);
}

weft_view weft_runner_view(const weft_runner *r, const char *name)
{
    const weft_binding *b = weft_program_find(r->o.made->program, name);
    weft_firing         f = {0};
    return b ? view(r, &b->at, &f) : (weft_view){0};
}

void weft_runner_put(weft_runner *r, const char *name, double x)
{
    weft_view v = weft_runner_view(r, name);
    if (v.p) *(float *)v.p = (float)x;
}

double weft_runner_get(const weft_runner *r, const char *name)
{
    weft_view v = weft_runner_view(r, name);
    return v.p ? (double)*(float *)v.p : 0;
}

void weft_runner_take_state(weft_runner *r)
{
    const weft_program *p = r->o.made->program;
    for (int i = 0; i < p->n_binding; i++) {
        if (p->binding[i].kind != WEFT_BIND_PARAM) continue;
        weft_view a = weft_runner_view(r, p->binding[i].name),
                  b = weft_runner_view(r->o.state_of, p->binding[i].name);
        memcpy(a.p, b.p, (size_t)weft_shape_count(&a.shape) * 4);
    }
}

static weft_status read(weft_runner *r, const weft_firing *f)
{
    weft_view ids    = weft_runner_view(r, "input_ids"),
              labels = weft_runner_view(r, "labels");
    int64_t n        = r->o.made->model->batch;
    return weft_data_fill(r->o.data, r->first + f->micro * n, n, ids.p, labels.p);
}

weft_status weft_runner_step(weft_runner *r, int64_t step)
{
    int64_t first = step * r->o.made->model->batch * r->o.made->program->n_micro;
    const weft_program     *p = r->o.made->program;
    static weft_view        in[4096], ou[256];
    static weft_kernel_post post[64];
    r->first = first;
    for (int k = 0; k < p->n_firing[WEFT_STREAM_COMPUTE]; k++) {
        const weft_firing *f = &p->firing[WEFT_STREAM_COMPUTE][k];
        const weft_actor  *a = &p->actor[f->actor];
        weft_kernel_ctx    x = {r->o.pool, r->scratch, r->o.seed, step,
                                first + (f->micro > 0 ? f->micro : 0) * r->o.made->model->batch};
        for (int n = 0; n < a->n_instr; n++) {
            const weft_instr *i = &a->instr[n];
            weft_kernel_call  c;
            if (i->kind == WEFT_INSTR_READ) {
                if (r->o.data) WEFT_TRY(read(r, f));
            } else if (i->kind == WEFT_INSTR_MERGE) {
                float *to   = (float *)(void *)base(r, i->out, f, -1),
                      *from = (float *)(void *)base(r, i->in, f, 0);
                for (int64_t e = 0; e < i->out->type.shape.d[0]; e++) to[e] += from[e];
            } else if (i->kind == WEFT_INSTR_COMPUTE) {
                make_call(r, i, f, in, ou, post, &c);
                WEFT_TRY(kernel_of(i)->run(&c, &x));
            }
        }
    }
    return WEFT_OK;
}

int64_t weft_runner_bytes(const weft_runner *r)
{
    int64_t n = (int64_t)r->n_scratch;
    for (int i = 0; i < r->o.made->program->n_slab; i++) n += r->o.made->program->slab[i].bytes;
    return n;
}

weft_status weft_runner_trace(weft_runner *r, const char *path)
{
    (void)r;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: no trace yet", path);
}

void weft_runner_put_ids(weft_runner *r, const int32_t *ids, int64_t n)
{
    weft_view v = weft_runner_view(r, "input_ids");
    memset(v.p, 0, (size_t)weft_shape_count(&v.shape) * 4);
    memcpy(v.p, ids, (size_t)n * 4);
}
