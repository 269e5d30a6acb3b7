/* Reading a safetensors file.  In: a file, or bytes.  Out: a table of tensors whose every
 * byte was accounted for.
 * (1) Tensors sorted by offset touch end to end from 0 to the end of the file: no gap, no
 *     overlap.
 * (2) Names are unique (the JSON reader refuses a key twice) and hold no NUL.
 * (3) Nothing is multiplied before it is known not to overflow. */
#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/doc.h"
#include "base/hash.h"
#include "base/io.h"

#define MAX_HEADER (100u * 1000u * 1000u) /* the format's own limit */

struct weft_store_file {
    weft_arena        *arena;
    const char        *path;
    weft_io_map        map; /* when we opened it */
    weft_io_file       in;  /* the same file, to be read */
    const char        *header;
    size_t             n_header;
    const uint8_t     *data;
    int64_t            n_data;
    weft_store_tensor *tensor;
    int                n_tensor;
    int               *by_data; /* n_tensor of them */
    int               *slot;    /* open addressing by name: tensor + 1, 0 empty */
    uint32_t           mask;
    weft_store_pair   *meta;
    int                n_meta;
};

static weft_status bad(const weft_store_file *f, const char *tensor, const char *why)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: not a valid safetensors file: tensor '%.200s': %s", f->path,
                     tensor, why);
}

static bool st_dtype(const char *s, weft_dtype *out)
{
    for (int t = 0; t < WEFT_N_DTYPE; t++)
        if (strcmp(s, weft_dtype_st_name((weft_dtype)t)) == 0) {
            *out = (weft_dtype)t;
            return true;
        }
    return false;
}

static weft_status read_shape(const weft_store_file *f, const char *name,
                              const weft_node *n, weft_shape *out)
{
    if (!n || n->kind != WEFT_NODE_LIST) return bad(f, name, "no list 'shape'");
    if (n->u.list.n > WEFT_MAX_DIM) return bad(f, name, "more than 8 dimensions");
    out->n = n->u.list.n;
    for (int i = 0; i < out->n; i++) {
        const weft_node *d = n->u.list.node[i];

        if (d->kind != WEFT_NODE_INT || d->u.i < 0)
            return bad(f, name, "a dimension is no whole number from 0 on");
        out->d[i] = d->u.i;
    }
    if (weft_shape_verify(out) != WEFT_OK)
        return bad(f, name, "shape is impossibly large");
    return WEFT_OK;
}

static weft_status read_offsets(const weft_store_file *f, const weft_node *n,
                                weft_store_tensor *t)
{
    const weft_node *b, *e;
    int64_t          want;

    if (!n || n->kind != WEFT_NODE_LIST || n->u.list.n != 2)
        return bad(f, t->name, "no 'data_offsets' of two numbers");
    b = n->u.list.node[0];
    e = n->u.list.node[1];
    if (b->kind != WEFT_NODE_INT || e->kind != WEFT_NODE_INT || b->u.i < 0 ||
        e->u.i < b->u.i)
        return bad(f, t->name, "data_offsets are no pair begin <= end");
    if (e->u.i > f->n_data)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: truncated: tensor '%.200s' ends at byte %lld of the data, the file "
            "holds %lld",
            f->path, t->name, (long long)e->u.i, (long long)f->n_data);
    t->begin = b->u.i;
    t->bytes = e->u.i - b->u.i;
    want     = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    if (want != t->bytes)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: not a valid safetensors file: tensor '%.200s': shape and type take "
            "%lld bytes, data_offsets give %lld",
            f->path, t->name, (long long)want, (long long)t->bytes);
    return WEFT_OK;
}

static weft_status read_tensor(weft_store_file *f, const weft_node *n)
{
    weft_store_tensor *t = &f->tensor[f->n_tensor];
    const weft_node   *dt;

    if (n->kind != WEFT_NODE_MAP) return bad(f, n->key, "its entry is no map");
    t->file = f;
    t->name = weft_arena_strdup(f->arena, n->key);
    if (!t->name) return weft_arena_status(f->arena);
    for (int i = 0; i < n->u.list.n; i++) {
        const char *k = n->u.list.node[i]->key;

        if (strcmp(k, "dtype") != 0 && strcmp(k, "shape") != 0 &&
            strcmp(k, "data_offsets") != 0)
            return bad(f, n->key, "a key other than dtype, shape, data_offsets");
    }
    dt = weft_node_get(n, "dtype");
    if (!dt || dt->kind != WEFT_NODE_STRING) return bad(f, n->key, "no 'dtype'");
    if (!st_dtype(dt->u.s, &t->dtype))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: not a valid safetensors file: tensor '%.200s': unknown dtype '%.40s'",
            f->path, n->key, dt->u.s);
    WEFT_TRY(read_shape(f, n->key, weft_node_get(n, "shape"), &t->shape));
    WEFT_TRY(read_offsets(f, weft_node_get(n, "data_offsets"), t));
    t->data = f->data + t->begin;
    f->n_tensor++;
    return WEFT_OK;
}

static weft_status read_meta(weft_store_file *f, const weft_node *n)
{
    if (n->kind != WEFT_NODE_MAP) return bad(f, n->key, "is no map");
    f->meta = WEFT_ARENA_ARRAY(f->arena, weft_store_pair, n->u.list.n + 1);
    if (!f->meta) return weft_arena_status(f->arena);
    for (int i = 0; i < n->u.list.n; i++) {
        const weft_node *v = n->u.list.node[i];

        if (v->kind != WEFT_NODE_STRING) return bad(f, n->key, "a value is no string");
        f->meta[i].key   = weft_arena_strdup(f->arena, v->key);
        f->meta[i].value = weft_arena_strdup(f->arena, v->u.s);
    }
    f->n_meta = n->u.list.n;
    return weft_arena_status(f->arena);
}

static weft_status read_header(weft_store_file *f)
{
    weft_doc        *doc = NULL;
    const weft_node *root;
    weft_status      st = WEFT_OK;

    WEFT_GO(weft_doc_parse_json(f->path, f->header, f->n_header, &doc));
    root = weft_doc_root(doc);
    if (root->kind != WEFT_NODE_MAP)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                          "%s: not a valid safetensors file: header is no map", f->path));
    f->tensor = WEFT_ARENA_ARRAY(f->arena, weft_store_tensor, root->u.list.n + 1);
    WEFT_GO(weft_arena_status(f->arena));
    for (int i = 0; i < root->u.list.n; i++) {
        const weft_node *n = root->u.list.node[i];

        if (strcmp(n->key, "__metadata__") == 0)
            WEFT_GO(read_meta(f, n));
        else
            WEFT_GO(read_tensor(f, n));
    }
out:
    weft_doc_destroy(doc);
    return st;
}

static int by_offset(const void *a, const void *b, void *arg)
{
    const weft_store_tensor *t = arg, *x = &t[*(const int *)a], *y = &t[*(const int *)b];

    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return *(const int *)a < *(const int *)b ? -1 : 1; /* empty tensors: header's order */
}

static weft_status check_layout(weft_store_file *f)
{
    int64_t at = 0;

    f->by_data = WEFT_ARENA_ARRAY(f->arena, int, f->n_tensor + 1);
    if (!f->by_data) return weft_arena_status(f->arena);
    for (int i = 0; i < f->n_tensor; i++) f->by_data[i] = i;
    qsort_r(f->by_data, (size_t)f->n_tensor, sizeof(int), by_offset, f->tensor);
    for (int i = 0; i < f->n_tensor; i++) {
        const weft_store_tensor *t = &f->tensor[f->by_data[i]];

        if (t->begin < at) return bad(f, t->name, "its bytes overlap another tensor's");
        if (t->begin > at) return bad(f, t->name, "bytes before it belong to no tensor");
        at += t->bytes;
    }
    if (at != f->n_data)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: not a valid safetensors file: %lld bytes after the last tensor", f->path,
            (long long)(f->n_data - at));
    return WEFT_OK;
}

static weft_status index_names(weft_store_file *f)
{
    uint32_t n = 8;

    while (n < 2 * (uint32_t)f->n_tensor) n *= 2;
    f->mask = n - 1;
    f->slot = WEFT_ARENA_ARRAY(f->arena, int, n);
    if (!f->slot) return weft_arena_status(f->arena);
    for (int i = 0; i < f->n_tensor; i++) {
        const char *s = f->tensor[i].name;
        uint32_t    h = (uint32_t)weft_hash_xxh64(s, strlen(s), 0) & f->mask;

        for (; f->slot[h]; h = (h + 1) & f->mask)
            if (strcmp(f->tensor[f->slot[h] - 1].name, s) == 0)
                return bad(f, s, "its name stands there twice");
        f->slot[h] = i + 1;
    }
    return WEFT_OK;
}

static weft_status parse(weft_store_file *f, const uint8_t *p, size_t n)
{
    uint64_t h = 0;

    if (n < 8)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: truncated: %zu bytes are no safetensors file",
                         f->path, n);
    for (int i = 0; i < 8; i++) h |= (uint64_t)p[i] << (8 * i);
    if (h > MAX_HEADER)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: not a valid safetensors file: header of %llu bytes, at most %u are "
            "allowed",
            f->path, (unsigned long long)h, MAX_HEADER);
    if (h > n - 8)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: truncated: header of %llu bytes, the file holds %zu",
                         f->path, (unsigned long long)h, n - 8);
    if (h == 0 || p[8] != '{')
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: not a valid safetensors file: header does not start with '{'", f->path);
    f->header   = (const char *)p + 8;
    f->n_header = (size_t)h;
    f->data     = p + 8 + h;
    f->n_data   = (int64_t)(n - 8 - (size_t)h);
    WEFT_TRY(read_header(f));
    WEFT_TRY(check_layout(f));
    return index_names(f);
}

static weft_status create(const char *path, weft_store_file **out)
{
    weft_arena      *a = NULL;
    weft_store_file *f;

    WEFT_TRY(weft_arena_create(&a));
    f = WEFT_ARENA_NEW(a, weft_store_file);
    if (f) {
        f->arena = a;
        f->path  = weft_arena_strdup(a, path);
    }
    if (weft_arena_status(a) != WEFT_OK) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to open it", path);
    }
    *out = f;
    return WEFT_OK;
}

weft_status weft_store_open(const char *path, weft_store_file **out)
{
    weft_store_file *f = NULL;
    char            *header;
    weft_status      st = WEFT_OK;

    WEFT_TRY(create(path, &f));
    WEFT_GO(weft_io_file_open(f->path, true, &f->in));
    WEFT_GO(weft_io_map_file(path, &f->map));
    WEFT_GO(parse(f, f->map.p, f->map.n));
    /* copied: it is written again at the end of a job, when the file may be shorter */
    header = weft_arena_alloc(f->arena, f->n_header + 1);
    WEFT_GO(weft_arena_status(f->arena));
    memcpy(header, f->header, f->n_header);
    f->header = header;
    *out      = f;
out:
    if (st != WEFT_OK) weft_store_close(f);
    return st;
}

weft_status weft_store_parse(const char *name, const void *p, size_t n,
                             weft_store_file **out)
{
    weft_store_file *f  = NULL;
    weft_status      st = WEFT_OK;

    WEFT_TRY(create(name, &f));
    WEFT_GO(parse(f, p, n));
    *out = f;
out:
    if (st != WEFT_OK) weft_store_close(f);
    return st;
}

void weft_store_close(weft_store_file *f)
{
    if (!f) return;
    if (f->map.p) weft_io_unmap(&f->map);
    weft_io_file_close(&f->in);
    weft_arena_destroy(f->arena);
}

weft_status weft_store_read(const weft_store_tensor *t, int64_t offset, void *buf,
                            size_t n)
{
    const weft_store_file *f = t->file;

    if (f->in.path)
        return weft_io_file_read(&f->in, (int64_t)f->n_header + 8 + t->begin + offset,
                                 buf, n);
    if (n) memcpy(buf, (const char *)t->data + offset, n);
    return WEFT_OK;
}

const char *weft_store_path(const weft_store_file *f)
{
    return f->path;
}

int weft_store_count(const weft_store_file *f)
{
    return f->n_tensor;
}

const weft_store_tensor *weft_store_at(const weft_store_file *f, int i)
{
    return &f->tensor[i];
}

const weft_store_tensor *weft_store_at_data(const weft_store_file *f, int i)
{
    return &f->tensor[f->by_data[i]];
}

const weft_store_tensor *weft_store_find(const weft_store_file *f, const char *name)
{
    uint32_t h = (uint32_t)weft_hash_xxh64(name, strlen(name), 0) & f->mask;

    for (; f->slot[h]; h = (h + 1) & f->mask)
        if (strcmp(f->tensor[f->slot[h] - 1].name, name) == 0)
            return &f->tensor[f->slot[h] - 1];
    return NULL;
}

const char *weft_store_header(const weft_store_file *f, size_t *n)
{
    *n = f->n_header;
    return f->header;
}

int64_t weft_store_data_bytes(const weft_store_file *f)
{
    return f->n_data;
}

int weft_store_meta_count(const weft_store_file *f)
{
    return f->n_meta;
}

const weft_store_pair *weft_store_meta(const weft_store_file *f, int i)
{
    return &f->meta[i];
}
