#include "session/runner.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/random.h"
#include "device/device.h"
#include "exec/exec.h"
#include "session/vote.h"

enum {
    NO_STEP = -2 /* not before step 0 either */
};

struct weft_runner {
    weft_runner_options o;
    weft_exec          *exec;
    weft_state         *own;   /* where none was given */
    weft_memory        *slab;  /* of the program */
    int64_t             batch; /* samples a step */
    const int32_t      *ids;   /* of put_ids */
    int64_t             n_ids;
    weft_status         st;   /* of put */
    int64_t             step; /* that runs, or ran last; NO_STEP: none yet */
    /* of step % 2: samples that were read, the sum of their hashes; those of the next step may be
     * read before the running one is over */
    _Atomic uint64_t n_read[2], read[2];
    /* a micro-batch's ids and labels, for ranks that bind only some of them */
    int32_t *sample[2];
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

static void count_reads(weft_runner *r, int64_t step, int64_t first, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t g = first; g < first + n; g++) {
        int64_t epoch, index;
        weft_data_locate(r->o.data, g, &epoch, &index);
        sum += weft_vote_hash(epoch, index, step);
    }
    atomic_fetch_add(&r->n_read[step % 2], (uint64_t)n);
    atomic_fetch_add(&r->read[step % 2], sum);
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
    if (r->o.commit) count_reads(r, step, step * r->batch + micro * m->batch, m->batch);
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

static weft_status call_commit(void *user, int64_t step, int n, const double *value,
                               bool *hold)
{
    weft_runner *r = user;
    return r->o.commit(r->o.commit_arg, step, n, value, hold);
}

static weft_status call_given(void *user, int64_t step)
{
    weft_runner *r = user;
    return r->o.given(r->o.commit_arg, step);
}

/* ---- memory ---- */

weft_state *weft_runner_state(const weft_runner *r)
{
    return r->o.state ? r->o.state : r->own;
}

weft_exec *weft_runner_exec(const weft_runner *r)
{
    return r->exec;
}

static bool is_state(const weft_runner *r, int slab)
{
    return weft_slab_kind_is_state(r->o.made->program->slab[slab].kind);
}

static const weft_memory *find_state_memory(const weft_runner *r, int slab)
{
    const weft_state *s = weft_runner_state(r);
    return r->o.made->program->slab[slab].kind == WEFT_SLAB_STATE
               ? weft_state_memory(s)
               : weft_state_host_memory(s);
}

/* The state's, gradients in memory that ranks share, the rest from the device. */
static weft_status make_slabs(weft_runner *r)
{
    const weft_program *p = r->o.made->program;
    if (!r->o.state)
        WEFT_TRY(weft_program_state_create(r->o.made, r->o.comm, r->o.device, &r->own));
    for (int i = 0; i < p->n_slab && r->o.resumes; i++) /* before anything is new */
        if (r->o.slab_at[i] >= 0)
            WEFT_TRY(weft_program_slab_adopt(p, i, r->o.comm, r->o.device,
                                             r->o.slab_at[i], &r->slab[i]));
    for (int i = 0; i < p->n_slab; i++)
        if (is_state(r, i))
            r->slab[i] = *find_state_memory(r, i);
        else if (!r->slab[i].address)
            WEFT_TRY(weft_program_slab_share(p, i, r->o.comm, r->o.device, &r->slab[i]));
    return weft_exec_alloc_slabs(p, r->o.device, r->slab);
}

static void free_slabs(weft_runner *r)
{
    for (int i = 0; i < r->o.made->program->n_slab; i++)
        if (!is_state(r, i)) weft_program_slab_free(r->o.comm, &r->slab[i]);
    weft_state_destroy(r->own);
}

weft_status weft_runner_create(const weft_runner_options *o, weft_runner **out)
{
    const weft_program *p  = o->made->program;
    weft_status         st = WEFT_OK;
    weft_runner        *r  = calloc(1, sizeof *r);
    if (r) r->step = NO_STEP;
    if (r) r->slab = calloc((size_t)p->n_slab + 1, sizeof *r->slab);
    if (!r || !r->slab) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    r->o = *o;
    if (!o->device) r->o.device = weft_device_default();
    r->batch = o->made->model->batch * p->n_micro;
    for (int i = 0; i < 2 && o->data; i++) {
        size_t n     = (size_t)(o->made->model->batch * o->made->model->seq);
        r->sample[i] = malloc(n * sizeof **r->sample);
        if (!r->sample[i]) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    }
    WEFT_GO(make_slabs(r));
    weft_exec_options e = {.device        = {r->o.device, weft_device_cpu()},
                           .pool          = o->pool,
                           .comm          = o->comm,
                           .slab          = r->slab,
                           .seed          = o->seed,
                           .batch         = r->batch,
                           .micro_batch   = o->made->model->batch,
                           .read          = read_inputs,
                           .commit        = o->commit ? call_commit : NULL,
                           .given         = o->given ? call_given : NULL,
                           .user          = r,
                           .journal       = o->journal,
                           .places_shares = o->places_shares,
                           .resumes       = o->resumes,
                           .trace         = o->trace,
                           .gaps          = o->gaps};
    for (int k = 0; o->gpu_comm && k < WEFT_EXEC_MAX_BACKEND; k++)
        e.device_comm[k] = o->gpu_comm[k];
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

int64_t weft_runner_slab_at(const weft_runner *r, int i)
{
    return is_state(r, i) || r->slab[i].bytes < 1
               ? -1
               : weft_program_slab_find(r->o.comm, &r->slab[i]);
}

weft_runner_memory weft_runner_mem(const weft_runner *r)
{
    const weft_program *p = r->o.made->program;
    weft_exec_memory    e = weft_exec_mem(r->exec);
    int64_t             t = weft_compiled_bytes(r->o.made);
    weft_runner_memory  m = {.bytes       = e.total_bytes - e.comm_bytes + t,
                             .table_bytes = e.table_bytes + t};
    m.bytes += weft_state_bytes(r->own);
    for (int i = 0; i < p->n_slab; i++)
        if (r->o.state && is_state(r, i))
            m.bytes -= p->slab[i].bytes;
        else if (r->slab[i].space == WEFT_SPACE_SHARED)
            m.shared_bytes += p->slab[i].bytes;
    return m;
}

/* ---- steps ---- */

void weft_runner_put(weft_runner *r, const char *name, double x)
{
    float value = (float)x;
    if (!weft_program_find(r->o.made->program, name) || r->st != WEFT_OK) return;
    r->st = weft_exec_write(r->exec, name, 0, NULL, &value);
}

double weft_runner_get(const weft_runner *r, const char *name)
{
    float value;
    if (!weft_program_find(r->o.made->program, name)) return 0;
    if (weft_exec_read(r->exec, name, 0, NULL, &value) != WEFT_OK) return NAN;
    return (double)value;
}

weft_status weft_runner_read_row(const weft_runner *r, const char *name, int64_t row,
                                 void *host)
{
    const weft_binding *b = weft_program_find(r->o.made->program, name);
    if (!b) return WEFT_FAIL(WEFT_ERR_INTERNAL, "the program gives no %s", name);
    weft_region at = weft_region_whole(&b->at.type.shape);
    for (int d = at.global.n - 2; d >= 0; d--) {
        at.offset[d] = row % at.global.d[d];
        at.extent[d] = 1;
        row /= at.global.d[d];
    }
    return weft_exec_read(r->exec, name, 0, &at, host);
}

void weft_runner_put_ids(weft_runner *r, const int32_t *ids, int64_t n)
{
    r->ids   = ids;
    r->n_ids = n;
}

/* Before a step: it counts anew, unless its samples may have been read in the step before; so does
 * the one after it, unless this one runs again. */
static void start_counts(weft_runner *r, int64_t step)
{
    int64_t now = step % 2, next = (step + 1) % 2;
    if (step != r->step + 1) r->n_read[now] = r->read[now] = 0;
    if (step != r->step) r->n_read[next] = r->read[next] = 0;
    r->step = step;
}

weft_status weft_runner_step(weft_runner *r, int64_t step)
{
    WEFT_TRY(r->st);
    start_counts(r, step);
    return weft_exec_start(r->exec, step, 1);
}

weft_status weft_runner_settle(weft_runner *r)
{
    return weft_exec_settle(r->exec);
}

weft_runner_reads weft_runner_get_reads(const weft_runner *r)
{
    int64_t now = r->step < 0 ? 0 : r->step % 2;
    return (weft_runner_reads){r->n_read[now], r->read[now]};
}

double weft_runner_busy(const weft_runner *r)
{
    return weft_exec_get_stats(r->exec).busy_s;
}

void weft_runner_keep_numbers(weft_runner *r)
{
    weft_exec_keep_numbers(r->exec);
}

bool weft_runner_sent_other(weft_runner *r)
{
    return weft_exec_sent_other(r->exec);
}

weft_exec_progress weft_runner_progress(const weft_runner *r)
{
    return weft_exec_get_progress(r->exec);
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
