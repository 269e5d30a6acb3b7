#include "session/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static int n_all(const weft_weights *w)
{
    return w->model->n_param + w->model->n_stat;
}

static const weft_model_param *nth(const weft_weights *w, int i)
{
    const weft_model *m = w->model;
    return i < m->n_param ? &m->param[i] : &m->stat[i - m->n_param].p;
}

/* The tensor of the state that a parameter is; -1: none. */
static weft_status find_tensor(const weft_weights *w, const weft_model_param *p, int *out)
{
    *out = weft_state_find(w->state, p->name);
    return *out >= 0 ? WEFT_OK
                     : WEFT_FAIL(WEFT_ERR_INTERNAL, "%s is not in the state", p->name);
}

/* Where a tensor of a file goes: to its parameter and to the copies of it. */
static weft_status find_target(const weft_weights *w, const weft_model_param *p,
                               const weft_model_tensor *t, weft_state_target *out)
{
    const weft_graph *g    = w->graph;
    weft_vid          self = weft_graph_find(g, p->name);
    *out                   = (weft_state_target){.region = t->region, .n_tensor = 1};
    WEFT_TRY(find_tensor(w, p, &out->tensor[0]));
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].copy_of != self || self < 0) continue;
        int copy = weft_state_find(w->state, g->value[v].name);
        if (copy >= 0 && out->n_tensor < WEFT_STATE_MAX_COPY)
            out->tensor[out->n_tensor++] = copy;
    }
    return WEFT_OK;
}

/* ---- initial numbers ---- */

typedef struct init_arg {
    const weft_model_param  *p;
    const weft_model_tensor *t;
    uint64_t                 seed;
    weft_pool               *pool;
} init_arg;

enum {
    PIECE = 1024 /* numbers that a thread draws at a time */
};

typedef struct init_run {
    const init_arg *of;
    int64_t         first, n;
    float          *out;
} init_run;

static void draw_piece(void *arg, int64_t task, int thread)
{
    const init_run *r  = arg;
    int64_t         at = task * PIECE, n = r->n - at < PIECE ? r->n - at : PIECE;
    (void)thread;
    weft_model_init_values(r->of->p, r->of->t, r->of->seed, r->first + at, n,
                           r->out + at);
}

/* Numbers are functions of their index: threads share them out. */
static weft_status make_init(const void *arg, int64_t index, int64_t n, float *out)
{
    init_run r = {arg, index, n, out};
    weft_pool_run(r.of->pool, (n + PIECE - 1) / PIECE, draw_piece, &r);
    return WEFT_OK;
}

weft_status weft_weights_init(const weft_weights *w, uint64_t seed)
{
    for (int i = 0; i < n_all(w); i++)
        for (int k = 0; k < nth(w, i)->n_tensor; k++) {
            const weft_model_param *p = nth(w, i);
            init_arg                x = {p, &p->tensor[k], seed, w->pool};
            weft_state_target       to;
            WEFT_TRY(find_target(w, p, x.t, &to));
            WEFT_TRY(weft_state_fill(w->state, &to, make_init, &x));
        }
    return WEFT_OK;
}

/* ---- from files ---- */

static weft_status read_tensor(const weft_weights *w, const char *file,
                               const weft_store_tensor *s, const weft_model_param *p,
                               const weft_model_tensor *t)
{
    char              a[128], b[128];
    weft_state_target to;
    if (!weft_shape_equal(&s->shape, &t->shape))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s has shape [%s], the model needs [%s]",
                         file, s->name, weft_shape_text(&s->shape, a, sizeof a),
                         weft_shape_text(&t->shape, b, sizeof b));
    WEFT_TRY(find_target(w, p, t, &to));
    weft_status st = weft_state_load(w->state, &to, s);
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
                    "%s: tensor %s is missing (init: random ignores these weights)",
                    where, nth(r->w, i)->tensor[k].name);
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

static weft_status add_item(const weft_weights *w, const char *name, weft_dtype dtype,
                            const weft_model_param *p, const weft_model_tensor *t,
                            weft_arena *a, weft_store_item *out)
{
    int tensor;
    WEFT_TRY(find_tensor(w, p, &tensor));
    *out = (weft_store_item){
        .name = weft_arena_strdup(a, name), .dtype = dtype, .shape = t->shape};
    WEFT_TRY(weft_gather_source(w->gather, tensor, &t->region, dtype, a, &out->from));
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

weft_status weft_weights_list(const weft_weights *w, weft_arena *a,
                              weft_store_item **item, weft_snapshot_item **region, int *n)
{
    int most = 0;
    for (int i = 0; i < n_all(w); i++) most += nth(w, i)->n_tensor;
    *n      = 0;
    *item   = WEFT_ARENA_ARRAY(a, weft_store_item, most + 1);
    *region = WEFT_ARENA_ARRAY(a, weft_snapshot_item, most + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n_all(w); i++) {
        const weft_model_param *p = nth(w, i);
        int                     tensor;
        WEFT_TRY(find_tensor(w, p, &tensor));
        for (int k = 0; k < p->n_tensor; k++, ++*n) {
            const weft_model_tensor *t = &p->tensor[k];
            (*region)[*n] = (weft_snapshot_item){tensor, t->region, WEFT_DTYPE_F32};
            (*item)[*n]   = (weft_store_item){
                  .name = t->name, .dtype = WEFT_DTYPE_F32, .shape = t->shape};
        }
    }
    return WEFT_OK;
}

/* A tensor of a file, to be hashed. */
typedef struct hashed {
    int                      number; /* in the order of weft_weights_list() */
    const char              *name;
    const weft_model_param  *p;
    const weft_model_tensor *t;
} hashed;

static int by_name(const void *a, const void *b)
{
    const hashed *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The bytes of a tensor of a file. */
static weft_status hash_tensor(const weft_store_file *f, const char *name, uint64_t *out)
{
    const weft_store_tensor *t = weft_store_find(f, name);
    weft_hash_state          h;
    enum {
        READ = 1 << 20
    };
    if (!t) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no %s in %s", name, weft_store_path(f));
    char *buf = malloc(READ);
    if (!buf) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = WEFT_OK;
    weft_hash_init(&h, 0);
    for (int64_t at = 0, n; at < t->bytes && st == WEFT_OK; at += n) {
        n  = t->bytes - at < READ ? t->bytes - at : READ;
        st = weft_store_read(t, at, buf, (size_t)n);
        weft_hash_add(&h, buf, (size_t)n);
    }
    *out = weft_hash_value(&h);
    free(buf);
    return st;
}

/* Where hashes of tensors come from: known, or of a file, or else of the state. */
typedef struct hash_source {
    const uint64_t        *item;
    const weft_store_file *file;
} hash_source;

static weft_status add_hash(const weft_weights *w, const hash_source *from,
                            const hashed *x, weft_hash_state *list)
{
    uint64_t h;
    uint8_t  le[8];
    int      tensor;
    WEFT_TRY(find_tensor(w, x->p, &tensor));
    if (from->item)
        h = from->item[x->number];
    else
        WEFT_TRY(from->file ? hash_tensor(from->file, x->name, &h)
                            : weft_gather_hash(w->gather, tensor, &x->t->region, &h));
    for (int b = 0; b < 8; b++) le[b] = (uint8_t)(h >> 8 * b);
    weft_hash_add(list, x->name, strlen(x->name) + 1);
    weft_hash_add(list, le, 8);
    return WEFT_OK;
}

static weft_status hash_all(const weft_weights *w, const hash_source *from, uint64_t *out)
{
    weft_hash_state list;
    int             n = 0, at = 0;
    weft_status     st = WEFT_OK;
    for (int i = 0; i < n_all(w); i++) n += nth(w, i)->n_tensor;
    hashed *x = malloc(sizeof *x * (size_t)(n + 1));
    if (!x) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < n_all(w); i++)
        for (int k = 0; k < nth(w, i)->n_tensor; k++, at++)
            x[at] =
                (hashed){at, nth(w, i)->tensor[k].name, nth(w, i), &nth(w, i)->tensor[k]};
    qsort(x, (size_t)n, sizeof *x, by_name);
    weft_hash_init(&list, 0);
    for (int i = 0; i < n; i++) WEFT_GO(add_hash(w, from, &x[i], &list));
    *out = weft_hash_value(&list);
out:
    free(x);
    return st;
}

weft_status weft_weights_hash(const weft_weights *w, uint64_t *out)
{
    return hash_all(w, &(hash_source){.item = NULL}, out);
}

weft_status weft_weights_hash_file(const weft_weights *w, const weft_store_file *f,
                                   uint64_t *out)
{
    return hash_all(w, &(hash_source){.file = f}, out);
}

weft_status weft_weights_hash_items(const weft_weights *w, const uint64_t *item,
                                    uint64_t *out)
{
    return hash_all(w, &(hash_source){.item = item}, out);
}
