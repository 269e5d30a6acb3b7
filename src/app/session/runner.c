#include "session/runner.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/random.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "device/device.h"
#include "exec/exec.h"
#include "session/convert.h"

struct weft_runner {
    weft_runner_options o;
    weft_exec          *exec;
    weft_memory        *slab;   /* of the program */
    bool                shared; /* the state slab is another runner's */
    int64_t             batch;  /* samples a step */
    const int32_t      *ids;    /* of put_ids */
    int64_t             n_ids;
    int32_t            *sample
        [2]; /* a micro-batch's ids and labels, for ranks that bind only some of them */
};

/* ---- inputs ---- */

/* Numbers below `below`, or in [0, 1) for floats: the same for the same step and micro-batch. */
static void fill_random(const weft_view *v, uint64_t seed, int64_t step, int micro,
                        int64_t below)
{
    int64_t  n      = weft_shape_count(&v->shape);
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, w[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        uint32_t ctr[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), (uint32_t)step,
                           (uint32_t)micro};
        if (i % 4 == 0) weft_random_philox(key, ctr, w);
        if (v->dtype == WEFT_DTYPE_I32)
            ((int32_t *)v->p)[i] = (int32_t)(w[i % 4] % (uint32_t)below);
        else
            ((float *)v->p)[i] = weft_random_uniform(w[i % 4]);
    }
}

static weft_status read_random(weft_runner *r, int64_t step, int micro)
{
    const weft_program *p = r->o.made->program;
    const weft_model   *m = r->o.made->model;
    weft_type           t = m->graph->value[m->logits].type;
    int64_t class         = t.shape.d[t.shape.n - 1];
    for (int i = 0; i < p->n_binding; i++) {
        if (p->binding[i].kind != WEFT_BIND_INPUT) continue;
        weft_view v;
        WEFT_TRY(weft_exec_binding(r->exec, p->binding[i].name, micro, &v));
        fill_random(&v, r->o.seed + (uint64_t)i, step, micro, class);
    }
    return WEFT_OK;
}

/* A decoder sees its start token and then the labels before its own. */
static void shift_right(const weft_model *m, const int32_t *labels, int32_t *ids)
{
    for (int64_t i = 0; i < m->batch * m->seq; i++) {
        if (i % m->seq == 0)
            ids[i] = m->decoder_start;
        else
            ids[i] = labels[i - 1] >= 0 ? labels[i - 1] : m->decoder_pad;
    }
}

/* Is this result of a READ the memory of input v? */
static bool is_input(weft_runner *r, const weft_view *out, weft_vid v, int micro)
{
    weft_view   x;
    const char *name = v < 0 ? NULL : r->o.made->model->graph->value[v].name;
    return name && weft_program_find(r->o.made->program, name) &&
           weft_exec_binding(r->exec, name, micro, &x) == WEFT_OK && x.p == out->p;
}

/* Only what is asked for: a rank's stages may read their inputs at different times. */
static weft_status read_data(weft_runner *r, int64_t step, int micro, int n,
                             const weft_view *out)
{
    const weft_model *m     = r->o.made->model;
    int32_t          *to[2] = {r->sample[0], r->sample[1]}, *ids = NULL, *labels = NULL;
    int32_t          *decoder = NULL;
    for (int i = 0; i < n; i++) {
        if (is_input(r, &out[i], m->ids, micro)) ids = out[i].p;
        if (is_input(r, &out[i], m->labels, micro)) labels = out[i].p;
        if (is_input(r, &out[i], m->decoder_ids, micro)) decoder = out[i].p;
    }
    if (ids) to[0] = ids;
    if (labels) to[1] = labels;
    WEFT_TRY(weft_data_fill(r->o.data, step * r->batch + micro * m->batch, m->batch,
                            to[0], to[1]));
    if (decoder) shift_right(m, to[1], decoder);
    return WEFT_OK;
}

static weft_status read_ids(weft_runner *r, int micro)
{
    const weft_model *m = r->o.made->model;
    weft_view         v;
    WEFT_TRY(weft_exec_binding(r->exec, m->graph->value[m->ids].name, micro, &v));
    int64_t room = weft_shape_count(&v.shape), n = r->n_ids < room ? r->n_ids : room;
    memset(v.p, 0, (size_t)room * sizeof *r->ids);
    memcpy(v.p, r->ids, (size_t)n * sizeof *r->ids);
    return WEFT_OK;
}

static weft_status read_inputs(void *user, int64_t step, int micro, int n,
                               const weft_view *out)
{
    weft_runner *r = user;
    if (r->o.data) return read_data(r, step, micro, n, out);
    return r->ids ? read_ids(r, micro) : read_random(r, step, micro);
}

/* ---- memory ---- */

/* The state slab of b may be a's where every state of b lies at the same place in a. */
static int state_slab(const weft_program *p)
{
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind == WEFT_SLAB_STATE) return i;
    return -1;
}

static bool lies_in(const weft_program *p, const weft_instr *i, int slab)
{
    for (int k = 0; k < i->n_in; k++)
        if (p->buffer[i->in[k].buffer].slab == slab) return true;
    for (int k = 0; k < i->n_out; k++)
        if (p->buffer[i->out[k].buffer].slab == slab) return true;
    return false;
}

/* Gradients, and parameters that ranks give each other parts of: where ranks share memory,
 * collectives work on them where they are. */
static bool peers_reach(const weft_program *p, int slab)
{
    if (p->slab[slab].kind == WEFT_SLAB_STAGING) return false;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++) {
            const weft_instr *q = &p->actor[a].instr[i];
            if (q->kind == WEFT_INSTR_COLLECTIVE && lies_in(p, q, slab)) return true;
        }
    return false;
}

/* Is this slab another runner's? */
static bool is_borrowed(const weft_runner *r, int slab)
{
    return r->shared && slab == state_slab(r->o.made->program);
}

/* Slabs of this runner's own that lie in memory of all ranks. */
static bool in_common(const weft_runner *r, int slab)
{
    if (!weft_comm_shared_end(r->o.comm)) return false;
    return !is_borrowed(r, slab) && peers_reach(r->o.made->program, slab);
}

static bool same_layout(const weft_program *a, const weft_program *b)
{
    for (int i = 0; i < b->n_binding; i++) {
        const weft_binding *y = &b->binding[i];
        if (y->kind != WEFT_BIND_PARAM && y->kind != WEFT_BIND_STATE) continue;
        const weft_binding *x = weft_program_find(a, y->name);
        if (!x || x->at.offset != y->at.offset ||
            a->buffer[x->at.buffer].offset != b->buffer[y->at.buffer].offset)
            return false;
    }
    int x = state_slab(a), y = state_slab(b);
    return x >= 0 && y >= 0 && b->slab[y].bytes <= a->slab[x].bytes;
}

/* State of another runner, gradients in memory that ranks share, the rest from the device. */
static weft_status make_slabs(weft_runner *r)
{
    const weft_program *p     = r->o.made->program;
    weft_runner        *first = r->o.state_of;
    if (first && same_layout(first->o.made->program, p)) {
        r->slab[state_slab(p)] = first->slab[state_slab(first->o.made->program)];
        r->shared              = true;
    }
    for (int i = 0; i < p->n_slab; i++) {
        if (!in_common(r, i)) continue;
        weft_memory m = {weft_device_cpu(), WEFT_SPACE_SHARED, NULL, p->slab[i].bytes};
        WEFT_TRY(
            weft_comm_shm_alloc(weft_comm_shared_end(r->o.comm), m.bytes, &m.address));
        r->slab[i] = m;
    }
    return weft_exec_alloc_slabs(p, weft_device_cpu(), r->slab);
}

static void free_slabs(weft_runner *r)
{
    for (int i = 0; i < r->o.made->program->n_slab; i++) {
        if (is_borrowed(r, i)) continue;
        if (in_common(r, i))
            weft_comm_shm_free(weft_comm_shared_end(r->o.comm), r->slab[i].address);
        else
            weft_device_free(&r->slab[i]);
    }
}

weft_status weft_runner_create(const weft_runner_options *o, weft_runner **out)
{
    const weft_program *p  = o->made->program;
    weft_status         st = WEFT_OK;
    weft_runner        *r  = calloc(1, sizeof *r);
    if (r) r->slab = calloc((size_t)p->n_slab + 1, sizeof *r->slab);
    if (!r || !r->slab) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    r->o     = *o;
    r->batch = o->made->model->batch * p->n_micro;
    for (int i = 0; i < 2 && o->data; i++) {
        size_t n     = (size_t)(o->made->model->batch * o->made->model->seq);
        r->sample[i] = malloc(n * sizeof **r->sample);
        if (!r->sample[i]) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    }
    WEFT_GO(make_slabs(r));
    weft_exec_options e = {.pool        = o->pool,
                           .comm        = o->comm,
                           .slab        = r->slab,
                           .seed        = o->seed,
                           .batch       = r->batch,
                           .micro_batch = o->made->model->batch,
                           .read        = read_inputs,
                           .user        = r,
                           .trace       = o->trace};
    WEFT_GO(weft_exec_create(p, &e, &r->exec));
    *out = r;
    r    = NULL;
out:
    weft_runner_destroy(r);
    return st;
}

void weft_runner_destroy(weft_runner *r)
{
    if (!r) return;
    weft_exec_destroy(r->exec);
    if (r->slab && r->o.made) free_slabs(r);
    free(r->sample[0]);
    free(r->sample[1]);
    free(r->slab);
    free(r);
}

void weft_runner_take_state(weft_runner *r)
{
    const weft_program *p = r->o.made->program;
    if (r->shared || !r->o.state_of) return;
    for (int i = 0; i < p->n_binding; i++) {
        if (p->binding[i].kind != WEFT_BIND_PARAM &&
            p->binding[i].kind != WEFT_BIND_STATE)
            continue;
        weft_view to   = weft_runner_view(r, p->binding[i].name);
        weft_view from = weft_runner_view(r->o.state_of, p->binding[i].name);
        if (from.p)
            memcpy(to.p, from.p,
                   (size_t)weft_shape_count(&to.shape) *
                       (size_t)weft_dtype_bytes(to.dtype));
    }
}

weft_runner_memory weft_runner_mem(const weft_runner *r)
{
    const weft_program *p = r->o.made->program;
    weft_exec_memory    e = weft_exec_mem(r->exec);
    int64_t             t = weft_compiled_bytes(r->o.made);
    weft_runner_memory  m = {.bytes       = e.total_bytes - e.comm_bytes + t,
                             .table_bytes = e.table_bytes + t};
    if (r->shared) m.bytes -= p->slab[state_slab(p)].bytes;
    for (int i = 0; i < p->n_slab; i++)
        if (in_common(r, i)) m.shared_bytes += p->slab[i].bytes;
    return m;
}

/* ---- steps ---- */

weft_view weft_runner_view(const weft_runner *r, const char *name)
{
    weft_view v = {0};
    if (!weft_program_find(r->o.made->program, name)) return v;
    if (weft_exec_binding(r->exec, name, 0, &v) != WEFT_OK) v.p = NULL;
    return v;
}

void weft_runner_put(weft_runner *r, const char *name, double x)
{
    weft_view v = weft_runner_view(r, name);
    if (v.p) *(float *)v.p = (float)x;
}

double weft_runner_get(const weft_runner *r, const char *name)
{
    weft_view v = weft_runner_view(r, name);
    return v.p ? (double)*(const float *)v.p : 0;
}

void weft_runner_put_ids(weft_runner *r, const int32_t *ids, int64_t n)
{
    r->ids   = ids;
    r->n_ids = n;
}

weft_status weft_runner_step(weft_runner *r, int64_t step)
{
    return weft_exec_run(r->exec, step, 1);
}

weft_status weft_runner_refresh_copies(weft_runner *r)
{
    const weft_graph *g = r->o.made->graph;
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        if (x->copy_of < 0) continue;
        weft_view copy = weft_runner_view(r, x->name);
        weft_view from = weft_runner_view(r, g->value[x->copy_of].name);
        if (!copy.p || !from.p) continue;
        WEFT_TRY(weft_convert_from_f32(copy.dtype, from.p, weft_shape_count(&copy.shape),
                                       copy.p));
    }
    return WEFT_OK;
}

int weft_runner_instructions(const weft_program *p)
{
    int n = 0;
    for (int k = 0; k < p->n_stream; k++)
        for (int i = 0; i < p->stream[k].n_firing; i++)
            n += p->actor[p->stream[k].firing[i].actor].n_instr;
    return n;
}

int weft_runner_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

weft_status weft_runner_timeline(weft_runner *r, weft_timeline **out)
{
    return weft_exec_timeline(r->exec, out);
}

weft_status weft_runner_trace(weft_runner *r, const char *path)
{
    weft_timeline *t    = NULL;
    weft_text      json = {0};
    weft_status    st   = WEFT_OK;
    WEFT_GO(weft_exec_timeline(r->exec, &t));
    WEFT_GO(weft_timeline_json(t, &json));
    WEFT_GO(weft_text_status(&json));
    WEFT_GO(weft_io_replace_file(path, json.s, json.n));
out:
    weft_timeline_destroy(t);
    weft_text_fini(&json);
    return st;
}
