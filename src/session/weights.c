#include "session/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "session/convert.h"

/* A walk over a region's elements in row-major order: runs that are contiguous in the parameter. */
typedef struct walk {
    float  *base;
    int     n;                    /* dimensions in front of the run */
    int64_t extent[WEFT_MAX_DIM]; /* of those */
    int64_t stride[WEFT_MAX_DIM]; /* in elements */
    int64_t run;                  /* elements in a run */
} walk;

static walk walk_make(float *p, const weft_region *r)
{
    walk    w      = {.base = p, .run = 1};
    int     d      = r->global.n - 1;
    int64_t stride = 1;
    /* trailing dimensions taken whole, and one more, are one run */
    for (; d >= 0; d--) {
        w.base += r->offset[d] * stride;
        w.run *= r->extent[d];
        bool whole = r->extent[d] == r->global.d[d];
        stride *= r->global.d[d];
        if (!whole) {
            d--;
            break;
        }
    }
    w.n = d + 1;
    for (; d >= 0; d--) {
        w.base += r->offset[d] * stride;
        w.extent[d] = r->extent[d];
        w.stride[d] = stride;
        stride *= r->global.d[d];
    }
    return w;
}

static float *walk_run(const walk *w, int64_t index)
{
    float *p = w->base;
    for (int d = w->n - 1; d >= 0; d--) {
        p += index % w->extent[d] * w->stride[d];
        index /= w->extent[d];
    }
    return p;
}

/* Calls fn on each contiguous piece of elements [first, first + n) of the region. */
typedef weft_status (*piece_fn)(void *arg, float *p, int64_t done, int64_t n);

static weft_status pieces(const walk *w, int64_t first, int64_t n, piece_fn fn, void *arg)
{
    for (int64_t done = 0; done < n;) {
        int64_t at   = first + done;
        int64_t left = w->run - at % w->run;
        int64_t k    = left < n - done ? left : n - done;
        WEFT_TRY(fn(arg, walk_run(w, at / w->run) + at % w->run, done, k));
        done += k;
    }
    return WEFT_OK;
}

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
        if (!p) return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s has no memory", nth(w, i)->name);
        if (i < m->n_param)
            w->param[i] = p;
        else
            w->stat[i - m->n_param] = p;
    }
    return WEFT_OK;
}

/* ---- initial numbers ---- */

typedef struct fill_arg {
    const float *x;
} fill_arg;

static weft_status fill_piece(void *arg, float *p, int64_t done, int64_t n)
{
    memcpy(p, ((fill_arg *)arg)->x + done, (size_t)n * sizeof *p);
    return WEFT_OK;
}

static weft_status fill(void *arg, const weft_model_param *p, const weft_model_tensor *t,
                        int64_t first, int64_t n, const float *x)
{
    walk     k = walk_make(memory_of(arg, p), &t->region);
    fill_arg a = {x};
    return pieces(&k, first, n, fill_piece, &a);
}

weft_status weft_weights_init(const weft_weights *w, uint64_t seed)
{
    weft_weights copy = *w;
    return weft_model_init(w->model, seed, fill, &copy);
}

/* ---- from files ---- */

/* Elements read at a time: a file never lies in memory beside the weights it becomes. */
enum {
    CHUNK = 1 << 18
};

typedef struct read_arg {
    const weft_store_tensor *t;
} read_arg;

static weft_status read_piece(void *arg, float *p, int64_t done, int64_t n)
{
    const weft_store_tensor *t = ((read_arg *)arg)->t;
    const char *from = (const char *)t->data + done * weft_dtype_bytes(t->dtype);
    for (int64_t k; n > 0; n -= k, p += k, from += k * weft_dtype_bytes(t->dtype)) {
        k = n < CHUNK ? n : CHUNK;
        WEFT_TRY(weft_convert_to_f32(t->dtype, from, k, p));
        weft_io_map_read(from, (size_t)(k * weft_dtype_bytes(t->dtype)));
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
    walk        k   = walk_make(memory_of(w, p), &t->region);
    read_arg    arg = {s};
    weft_status st  = pieces(&k, 0, weft_shape_count(&s->shape), read_piece, &arg);
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: %s: ", file, s->name);
}

/* Which tensors were seen: seen[i][k] of parameter i, tensor k.  An alias counts when the name itself is
 * not there. */
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
    walk       k;
    weft_dtype dtype;
} source;

typedef struct write_arg {
    weft_dtype dtype;
    char      *to;
} write_arg;

static weft_status write_piece(void *arg, float *p, int64_t done, int64_t n)
{
    const write_arg *a = arg;
    return weft_convert_from_f32(a->dtype, p, n,
                                 a->to + done * weft_dtype_bytes(a->dtype));
}

/* A writer may ask for bytes that begin or end inside an element: such edges go by a small copy. */
static weft_status source_read(void *arg, int64_t offset, void *buf, size_t n)
{
    const source *s    = arg;
    int64_t       size = weft_dtype_bytes(s->dtype);
    char         *to   = buf;
    while (n) {
        int64_t skip = offset % size;
        if (skip || n < (size_t)size) {
            char      one[8];
            write_arg a = {s->dtype, one};
            WEFT_TRY(pieces(&s->k, offset / size, 1, write_piece, &a));
            size_t k = (size_t)(size - skip) < n ? (size_t)(size - skip) : n;
            memcpy(to, one + skip, k);
            to += k;
            offset += (int64_t)k;
            n -= k;
            continue;
        }
        int64_t   whole = (int64_t)n / size;
        write_arg a     = {s->dtype, to};
        WEFT_TRY(pieces(&s->k, offset / size, whole, write_piece, &a));
        to += whole * size;
        offset += whole * size;
        n -= (size_t)(whole * size);
    }
    return WEFT_OK;
}

static weft_status add_item(const weft_weights *w, const char *name, weft_dtype dtype,
                            const weft_model_param *p, const weft_model_tensor *t,
                            weft_arena *a, weft_store_item *out)
{
    source *s = WEFT_ARENA_NEW(a, source);
    if (!s) return weft_arena_status(a);
    *s   = (source){walk_make(memory_of(w, p), &t->region), dtype};
    *out = (weft_store_item){.name  = weft_arena_strdup(a, name),
                             .dtype = dtype,
                             .shape = t->shape,
                             .from  = {.read = source_read, .arg = s}};
    return weft_arena_status(a);
}

static weft_status items_like(const weft_weights *w, const weft_store_dir *d,
                              weft_arena *a, weft_store_item *item, int *n)
{
    const weft_model_param  *p;
    const weft_model_tensor *t;
    for (int i = 0; i < weft_store_dir_count(d); i++) {
        const weft_store_tensor *s = weft_store_dir_at(d, i);
        if (weft_model_find_tensor(w->model, s->name, &p, &t))
            WEFT_TRY(add_item(w, s->name, s->dtype, p, t, a, &item[(*n)++]));
    }
    return WEFT_OK;
}

weft_status weft_weights_items(const weft_weights *w, const weft_store_dir *names,
                               weft_dtype dtype, weft_arena *a, weft_store_item **out,
                               int *n)
{
    int most = names ? weft_store_dir_count(names) : 0;
    for (int i = 0; i < n_all(w) && !names; i++) most += nth(w, i)->n_tensor;
    *n   = 0;
    *out = WEFT_ARENA_ARRAY(a, weft_store_item, most + 1);
    WEFT_TRY(weft_arena_status(a));
    if (names) return items_like(w, names, a, *out, n);
    for (int i = 0; i < n_all(w); i++) {
        const weft_model_param *p = nth(w, i);
        for (int k = 0; k < p->n_tensor; k++)
            WEFT_TRY(add_item(w, p->tensor[k].name, dtype, p, &p->tensor[k], a,
                              &(*out)[(*n)++]));
    }
    return WEFT_OK;
}

static weft_status hash_piece(void *arg, float *p, int64_t done, int64_t n)
{
    (void)done;
    weft_hash_add(arg, p, (size_t)n * sizeof *p);
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
    weft_hash_state  list, one;
    int              n  = 0;
    weft_status      st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_weights_items(w, NULL, WEFT_DTYPE_F32, a, &it, &n));
    qsort(it, (size_t)n, sizeof *it, by_name);
    weft_hash_init(&list, 0);
    for (int i = 0; i < n; i++) {
        const source *s = it[i].from.arg;
        weft_hash_init(&one, 0);
        WEFT_GO(pieces(&s->k, 0, weft_shape_count(&it[i].shape), hash_piece, &one));
        uint64_t h = weft_hash_value(&one);
        uint8_t  le[8];
        for (int b = 0; b < 8; b++) le[b] = (uint8_t)(h >> 8 * b);
        weft_hash_add(&list, it[i].name, strlen(it[i].name) + 1);
        weft_hash_add(&list, le, 8);
    }
    *out = weft_hash_value(&list);
out:
    weft_arena_destroy(a);
    return st;
}
