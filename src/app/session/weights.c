#include "session/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "session/convert.h"

enum {
    READ_BYTES = 1 << 16 /* of a tensor read at a time; a multiple of 8 */
};

static float *memory_of(const weft_weights *w, const weft_model_param *p)
{
    const weft_model *m = w->model;
    for (int i = 0; i < m->n_stat; i++)
        if (p == &m->stat[i].p) return w->stat[i];
    return w->param[p - m->param];
}

static int n_all(const weft_weights *w)
{
    return w->model->n_param + w->model->n_stat;
}

static const weft_model_param *nth(const weft_weights *w, int i)
{
    const weft_model *m = w->model;
    return i < m->n_param ? &m->param[i] : &m->stat[i - m->n_param].p;
}

weft_status weft_weights_point(weft_weights *w, const weft_runner *r, weft_arena *a)
{
    const weft_model *m = w->model;
    w->param            = WEFT_ARENA_ARRAY(a, float *, m->n_param + 1);
    w->stat             = WEFT_ARENA_ARRAY(a, float *, m->n_stat + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n_all(w); i++) {
        float *p = weft_runner_view(r, nth(w, i)->name).p;
        if (!p && !w->parts)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s has no memory", nth(w, i)->name);
        if (i < m->n_param)
            w->param[i] = p;
        else
            w->stat[i - m->n_param] = p;
    }
    return WEFT_OK;
}

/* ---- what of a tensor is here ---- */

/* Runs of a tensor's elements that this rank has: at in the parameter's memory. */
static weft_status walk_own(const weft_weights *w, const weft_model_param *p,
                            const weft_model_tensor *t, int64_t first, int64_t n,
                            weft_part_fn fn, void *arg)
{
    weft_compiled_part        all;
    weft_interval             run[WEFT_MAX_DIM];
    const weft_compiled_part *own = &all;
    const weft_shape         *s   = &t->region.global;
    if (!memory_of(w, p)) return WEFT_OK;
    if (w->parts)
        own = weft_parts_own(w->parts, weft_parts_find(w->parts, p->name));
    else
        all.type = (weft_type){WEFT_DTYPE_F32, *s};
    for (int d = 0; d < s->n && !w->parts; d++) {
        run[d]     = (weft_interval){0, s->d[d]};
        all.n[d]   = 1;
        all.run[d] = &run[d];
    }
    return own ? weft_part_walk(own, &t->region, first, n, fn, arg) : WEFT_OK;
}

typedef struct copy_arg {
    const float *from;
    float       *to;
    int64_t      first;
} copy_arg;

static weft_status copy_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const copy_arg *c = arg;
    memcpy(c->to + (index - c->first), c->from + at, (size_t)n * sizeof *c->to);
    return WEFT_OK;
}

/* Elements of a tensor from wherever they are, n at most WEFT_PARTS_CHUNK. */
static weft_status fetch(const weft_weights *w, const weft_model_param *p,
                         const weft_model_tensor *t, int64_t first, int64_t n, float *out)
{
    copy_arg c = {memory_of(w, p), out, first};
    if (w->parts)
        return weft_parts_pull(w->parts, weft_parts_find(w->parts, p->name), &t->region,
                               first, n, out);
    return walk_own(w, p, t, first, n, copy_run, &c);
}

/* ---- initial numbers ---- */

/* Elements [index, index + n) of a tensor. */
typedef weft_status (*make_fn)(const void *arg, int64_t index, int64_t n, float *out);

typedef struct fill_arg {
    make_fn     make;
    const void *arg;
    void       *to;
    weft_dtype  dtype; /* of to */
} fill_arg;

static weft_status fill_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const fill_arg *f = arg;
    float           buf[4096];
    if (f->dtype == WEFT_DTYPE_F32) return f->make(f->arg, index, n, (float *)f->to + at);
    for (int64_t done = 0, k; done < n; done += k) {
        k = n - done < (int64_t)WEFT_COUNT(buf) ? n - done : (int64_t)WEFT_COUNT(buf);
        WEFT_TRY(f->make(f->arg, index + done, k, buf));
        WEFT_TRY(weft_convert_from_f32(
            f->dtype, buf, k, (char *)f->to + (at + done) * weft_dtype_bytes(f->dtype)));
    }
    return WEFT_OK;
}

/* Makes what is here of a tensor; also of the parameter's copy in another type, which may be cut
 * otherwise. */
static weft_status fill_tensor(const weft_weights *w, const weft_model_param *p,
                               const weft_model_tensor *t, make_fn make, const void *arg)
{
    fill_arg f = {make, arg, memory_of(w, p), WEFT_DTYPE_F32};
    int64_t  n = weft_shape_count(&t->shape);
    WEFT_TRY(walk_own(w, p, t, 0, n, fill_run, &f));
    if (!w->parts) return WEFT_OK;
    int                       value = weft_parts_find(w->parts, p->name);
    int                       copy  = value < 0 ? -1 : weft_parts_copy(w->parts, value);
    const weft_compiled_part *own   = copy < 0 ? NULL : weft_parts_own(w->parts, copy);
    if (!own) return WEFT_OK;
    f.to    = weft_parts_memory(w->parts, copy);
    f.dtype = own->type.dtype;
    return weft_part_walk(own, &t->region, 0, n, fill_run, &f);
}

typedef struct init_arg {
    const weft_model_param  *p;
    const weft_model_tensor *t;
    uint64_t                 seed;
} init_arg;

static weft_status make_init(const void *arg, int64_t index, int64_t n, float *out)
{
    const init_arg *i = arg;
    weft_model_init_values(i->p, i->t, i->seed, index, n, out);
    return WEFT_OK;
}

weft_status weft_weights_init(const weft_weights *w, uint64_t seed)
{
    for (int i = 0; i < n_all(w); i++)
        for (int k = 0; k < nth(w, i)->n_tensor; k++) {
            const weft_model_param *p = nth(w, i);
            init_arg                x = {p, &p->tensor[k], seed};
            WEFT_TRY(fill_tensor(w, p, x.t, make_init, &x));
        }
    return WEFT_OK;
}

/* ---- from files ---- */

static weft_status make_read(const void *arg, int64_t index, int64_t n, float *out)
{
    const weft_store_tensor *t    = arg;
    int64_t                  size = weft_dtype_bytes(t->dtype);
    _Alignas(64) char        buf[READ_BYTES];
    for (int64_t k; n > 0; n -= k, out += k, index += k) {
        k = n < READ_BYTES / size ? n : READ_BYTES / size;
        WEFT_TRY(weft_store_read(t, index * size, buf, (size_t)(k * size)));
        WEFT_TRY(weft_convert_to_f32(t->dtype, buf, k, out));
    }
    return WEFT_OK;
}

static weft_status read_tensor(const weft_weights *w, const char *file,
                               const weft_store_tensor *s, const weft_model_param *p,
                               const weft_model_tensor *t)
{
    char a[128], b[128];
    if (!weft_shape_equal(&s->shape, &t->shape))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s has shape [%s], the model needs [%s]",
                         file, s->name, weft_shape_text(&s->shape, a, sizeof a),
                         weft_shape_text(&t->shape, b, sizeof b));
    weft_status st = fill_tensor(w, p, t, make_read, s);
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: %s: ", file, s->name);
}

/* Which tensors were seen: seen[i][k] of parameter i, tensor k.  An alias counts when the name
 * itself is not there. */
typedef struct reader {
    const weft_weights *w;
    bool              **seen;
    weft_arena         *tmp;
} reader;

static weft_status reader_start(reader *r, const weft_weights *w)
{
    r->w = w;
    WEFT_TRY(weft_arena_create(&r->tmp));
    r->seen = WEFT_ARENA_ARRAY(r->tmp, bool *, n_all(w) + 1);
    for (int i = 0; i < n_all(w) && r->seen; i++)
        r->seen[i] = WEFT_ARENA_ARRAY(r->tmp, bool, nth(w, i)->n_tensor + 1);
    return weft_arena_status(r->tmp);
}

static int index_of(const weft_weights *w, const weft_model_param *p)
{
    for (int i = 0; i < n_all(w); i++)
        if (nth(w, i) == p) return i;
    return -1;
}

static weft_status reader_take(reader *r, const char *file, const weft_store_tensor *s)
{
    const weft_model_param  *p;
    const weft_model_tensor *t;
    if (!weft_model_find_tensor(r->w->model, s->name, &p, &t)) return WEFT_OK;
    bool *seen = &r->seen[index_of(r->w, p)][t - p->tensor];
    for (int i = 0; *seen && i < 3 && p->alias[i]; i++)
        if (!strcmp(p->alias[i], s->name))
            return WEFT_OK; /* tied: the name itself wins */
    *seen = true;
    return read_tensor(r->w, file, s, p, t);
}

static weft_status reader_end(const reader *r, const char *where)
{
    for (int i = 0; i < n_all(r->w); i++)
        for (int k = 0; k < nth(r->w, i)->n_tensor; k++)
            if (!r->seen[i][k])
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "%s: tensor %s is missing (init: false ignores these weights)", where,
                    nth(r->w, i)->tensor[k].name);
    return WEFT_OK;
}

weft_status weft_weights_read_dir(const weft_weights *w, const weft_store_dir *d)
{
    reader      r  = {0};
    weft_status st = WEFT_OK;
    WEFT_GO(reader_start(&r, w));
    for (int i = 0; i < weft_store_dir_file_count(d); i++) {
        const weft_store_file *f = weft_store_dir_file(d, i);
        for (int k = 0; k < weft_store_count(f); k++)
            WEFT_GO(reader_take(&r, weft_store_path(f), weft_store_at(f, k)));
    }
    WEFT_GO(reader_end(&r, weft_store_path(weft_store_dir_file(d, 0))));
out:
    weft_arena_destroy(r.tmp);
    return st;
}

weft_status weft_weights_read_file(const weft_weights *w, const weft_store_file *f)
{
    reader      r  = {0};
    weft_status st = WEFT_OK;
    WEFT_GO(reader_start(&r, w));
    for (int k = 0; k < weft_store_count(f); k++)
        WEFT_GO(reader_take(&r, weft_store_path(f), weft_store_at(f, k)));
    WEFT_GO(reader_end(&r, weft_store_path(f)));
out:
    weft_arena_destroy(r.tmp);
    return st;
}

/* ---- to files ---- */

typedef struct source {
    const weft_weights      *w;
    const weft_model_param  *p;
    const weft_model_tensor *t;
    weft_dtype               dtype;
    float                   *buf; /* WEFT_PARTS_CHUNK, shared by all sources of a list */
} source;

/* A writer may ask for bytes that begin or end inside an element: such edges go by a small copy. */
static weft_status source_read(void *arg, int64_t offset, void *buf, size_t n)
{
    const source *s    = arg;
    int64_t       size = weft_dtype_bytes(s->dtype);
    char         *to   = buf;
    while (n) {
        int64_t skip = offset % size, whole = (int64_t)n / size;
        if (skip || !whole) {
            char one[8];
            WEFT_TRY(fetch(s->w, s->p, s->t, offset / size, 1, s->buf));
            WEFT_TRY(weft_convert_from_f32(s->dtype, s->buf, 1, one));
            size_t k = (size_t)(size - skip) < n ? (size_t)(size - skip) : n;
            memcpy(to, one + skip, k);
            to += k;
            offset += (int64_t)k;
            n -= k;
            continue;
        }
        if (whole > WEFT_PARTS_CHUNK) whole = WEFT_PARTS_CHUNK;
        WEFT_TRY(fetch(s->w, s->p, s->t, offset / size, whole, s->buf));
        WEFT_TRY(weft_convert_from_f32(s->dtype, s->buf, whole, to));
        to += whole * size;
        offset += whole * size;
        n -= (size_t)(whole * size);
    }
    return WEFT_OK;
}

static weft_status add_item(const weft_weights *w, const char *name, weft_dtype dtype,
                            const weft_model_param *p, const weft_model_tensor *t,
                            float *buf, weft_arena *a, weft_store_item *out)
{
    source *s = WEFT_ARENA_NEW(a, source);
    if (!s) return weft_arena_status(a);
    *s   = (source){w, p, t, dtype, buf};
    *out = (weft_store_item){.name  = weft_arena_strdup(a, name),
                             .dtype = dtype,
                             .shape = t->shape,
                             .from  = {.read = source_read, .arg = s}};
    return weft_arena_status(a);
}

static weft_status items_like(const weft_weights *w, const weft_store_dir *d, float *buf,
                              weft_arena *a, weft_store_item *item, int *n)
{
    const weft_model_param  *p;
    const weft_model_tensor *t;
    for (int i = 0; i < weft_store_dir_count(d); i++) {
        const weft_store_tensor *s = weft_store_dir_at(d, i);
        if (weft_model_find_tensor(w->model, s->name, &p, &t))
            WEFT_TRY(add_item(w, s->name, s->dtype, p, t, buf, a, &item[(*n)++]));
    }
    return WEFT_OK;
}

weft_status weft_weights_items(const weft_weights *w, const weft_store_dir *names,
                               weft_dtype dtype, weft_arena *a, weft_store_item **out,
                               int *n)
{
    int most = names ? weft_store_dir_count(names) : 0;
    for (int i = 0; i < n_all(w) && !names; i++) most += nth(w, i)->n_tensor;
    *n         = 0;
    *out       = WEFT_ARENA_ARRAY(a, weft_store_item, most + 1);
    float *buf = WEFT_ARENA_ARRAY(a, float, WEFT_PARTS_CHUNK);
    WEFT_TRY(weft_arena_status(a));
    if (names) return items_like(w, names, buf, a, *out, n);
    for (int i = 0; i < n_all(w); i++) {
        const weft_model_param *p = nth(w, i);
        for (int k = 0; k < p->n_tensor; k++)
            WEFT_TRY(add_item(w, p->tensor[k].name, dtype, p, &p->tensor[k], buf, a,
                              &(*out)[(*n)++]));
    }
    return WEFT_OK;
}

static weft_status hash_tensor(const source *s, uint64_t *out)
{
    weft_hash_state h;
    int64_t         n = weft_shape_count(&s->t->shape);
    weft_hash_init(&h, 0);
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < WEFT_PARTS_CHUNK ? n - at : WEFT_PARTS_CHUNK;
        WEFT_TRY(fetch(s->w, s->p, s->t, at, k, s->buf));
        weft_hash_add(&h, s->buf, (size_t)k * sizeof *s->buf);
    }
    *out = weft_hash_value(&h);
    return WEFT_OK;
}

static int by_name(const void *a, const void *b)
{
    const weft_store_item *x = a, *y = b;
    return strcmp(x->name, y->name);
}

weft_status weft_weights_hash(const weft_weights *w, uint64_t *out)
{
    weft_arena      *a  = NULL;
    weft_store_item *it = NULL;
    weft_hash_state  list;
    int              n  = 0;
    weft_status      st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_weights_items(w, NULL, WEFT_DTYPE_F32, a, &it, &n));
    qsort(it, (size_t)n, sizeof *it, by_name);
    weft_hash_init(&list, 0);
    for (int i = 0; i < n; i++) {
        uint64_t h;
        uint8_t  le[8];
        WEFT_GO(hash_tensor(it[i].from.arg, &h));
        for (int b = 0; b < 8; b++) le[b] = (uint8_t)(h >> 8 * b);
        weft_hash_add(&list, it[i].name, strlen(it[i].name) + 1);
        weft_hash_add(&list, le, 8);
    }
    *out = weft_hash_value(&list);
out:
    weft_arena_destroy(a);
    return st;
}
