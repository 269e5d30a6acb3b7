/* A Hugging Face folder of weights.  In: a folder.  Out: tensors by name over all its
 * files.
 * (1) Each name of the index lies in the file the index says, each file is a plain name
 *     there.
 * (2) No name lies in two files. */
#include "store/hf_dir.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/doc.h"
#include "base/io.h"
#include "base/text.h"

#define ONE_FILE "model.safetensors"
#define INDEX    "model.safetensors.index.json"

struct weft_store_dir {
    weft_arena       *arena;
    const char       *path;
    weft_store_file **file;
    const char      **name;  /* of the files */
    int              *first; /* n_file + 1: number of each file's first tensor */
    int               n_file, cap;
    char             *index;
    size_t            n_index;
};

static const char *join(weft_store_dir *d, const char *name)
{
    return weft_arena_printf(d->arena, "%s/%s", d->path, name);
}

bool weft_store_dir_has_weights(const char *path)
{
    static const char *const name[] = {ONE_FILE, INDEX};
    bool                     found  = false;

    for (size_t i = 0; i < WEFT_COUNT(name) && !found; i++) {
        weft_text t = {0};

        weft_text_add(&t, "%s/%s", path, name[i]);
        found = t.s && weft_io_exists(t.s);
        weft_text_fini(&t);
    }
    return found;
}

static weft_status add_file(weft_store_dir *d, const char *name)
{
    const char *path = join(d, name);
    int         n    = d->n_file;

    if (!path) return weft_arena_status(d->arena);
    if (n + 1 > d->cap) {
        int cap = d->cap, cap2 = d->cap;

        WEFT_TRY(
            weft_arena_grow(d->arena, (void **)&d->file, &cap, n + 1, sizeof d->file[0]));
        WEFT_TRY(weft_arena_grow(d->arena, (void **)&d->name, &cap2, n + 1,
                                 sizeof d->name[0]));
        d->cap = cap < cap2 ? cap : cap2;
    }
    d->name[n] = weft_arena_strdup(d->arena, name);
    if (!d->name[n]) return weft_arena_status(d->arena);
    WEFT_TRY(weft_store_open(path, &d->file[n]));
    d->n_file++;
    return WEFT_OK;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The file names of weight_map, sorted, each once. */
static weft_status shard_names(weft_store_dir *d, const weft_node *map, const char ***out,
                               int *n)
{
    const char **v = WEFT_ARENA_ARRAY(d->arena, const char *, map->u.list.n + 1);
    int          k = 0;

    if (!v) return weft_arena_status(d->arena);
    for (int i = 0; i < map->u.list.n; i++) {
        const weft_node *e = map->u.list.node[i];

        if (e->kind != WEFT_NODE_STRING)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s/" INDEX ":%d: '%s' is no file name",
                             d->path, e->line, e->key);
        if (strchr(e->u.s, '/') || e->u.s[0] == '.' || !e->u.s[0])
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s/" INDEX
                             ":%d: '%s' is no plain name of a file in this folder",
                             d->path, e->line, e->u.s);
        v[i] = e->u.s;
    }
    qsort(v, (size_t)map->u.list.n, sizeof *v, by_string);
    for (int i = 0; i < map->u.list.n; i++)
        if (k == 0 || strcmp(v[k - 1], v[i]) != 0) v[k++] = v[i];
    *out = v;
    *n   = k;
    return WEFT_OK;
}

static const weft_store_file *file_named(const weft_store_dir *d, const char *name)
{
    const char **p = bsearch(&name, d->name, (size_t)d->n_file, sizeof *p, by_string);

    return p ? d->file[p - d->name] : NULL;
}

/* Names in the index are where it says, and what the files hold is in the index. */
static weft_status check_index(const weft_store_dir *d, const weft_node *map)
{
    int total = 0;

    for (int i = 0; i < map->u.list.n; i++) {
        const weft_node       *e = map->u.list.node[i];
        const weft_store_file *f = file_named(d, e->u.s);

        if (!f || !weft_store_find(f, e->key))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s/" INDEX ": says that '%s' is in %s, but it is not",
                             d->path, e->key, e->u.s);
    }
    for (int i = 0; i < d->n_file; i++) total += weft_store_count(d->file[i]);
    if (total == map->u.list.n) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s/" INDEX
                     ": names %d tensors, but its files hold %d: index and files do "
                     "not belong together",
                     d->path, map->u.list.n, total);
}

static weft_status open_shards(weft_store_dir *d)
{
    const char      *path = join(d, INDEX);
    weft_doc        *doc  = NULL;
    const weft_node *map;
    const char     **name;
    int              n  = 0;
    weft_status      st = WEFT_OK;

    if (!path) return weft_arena_status(d->arena);
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_LARGE, &d->index, &d->n_index));
    WEFT_TRY(weft_doc_parse_json(path, d->index, d->n_index, &doc));
    map = weft_doc_root(doc)->kind == WEFT_NODE_MAP
              ? weft_node_get(weft_doc_root(doc), "weight_map")
              : NULL;
    if (!map || map->kind != WEFT_NODE_MAP || map->u.list.n == 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no map 'weight_map' in it", path));
    WEFT_GO(shard_names(d, map, &name, &n));
    for (int i = 0; i < n; i++) WEFT_GO(add_file(d, name[i]));
    WEFT_GO(check_index(d, map));
out:
    weft_doc_destroy(doc);
    return st;
}

static weft_status number_tensors(weft_store_dir *d)
{
    d->first = WEFT_ARENA_ARRAY(d->arena, int, d->n_file + 1);
    if (!d->first) return weft_arena_status(d->arena);
    for (int i = 0; i < d->n_file; i++)
        d->first[i + 1] = d->first[i] + weft_store_count(d->file[i]);
    return WEFT_OK;
}

weft_status weft_store_dir_open(const char *path, weft_store_dir **out)
{
    weft_arena     *a = NULL;
    weft_store_dir *d = NULL;
    const char     *one;
    weft_status     st = WEFT_OK;

    WEFT_TRY(weft_arena_create(&a));
    d = WEFT_ARENA_NEW(a, weft_store_dir);
    if (!d) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to open it", path);
    }
    d->arena = a;
    d->path  = weft_arena_strdup(a, path);
    one      = d->path ? join(d, ONE_FILE) : NULL;
    WEFT_GO(weft_arena_status(a));
    if (!weft_store_dir_has_weights(path))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: neither " ONE_FILE " nor " INDEX " is there",
                          path));
    WEFT_GO(weft_io_exists(one) ? add_file(d, ONE_FILE) : open_shards(d));
    WEFT_GO(number_tensors(d));
    *out = d;
out:
    if (st != WEFT_OK) weft_store_dir_close(d);
    return st;
}

void weft_store_dir_close(weft_store_dir *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_file; i++) weft_store_close(d->file[i]);
    free(d->index);
    weft_arena_destroy(d->arena);
}

int weft_store_dir_file_count(const weft_store_dir *d)
{
    return d->n_file;
}

const weft_store_file *weft_store_dir_file(const weft_store_dir *d, int i)
{
    return d->file[i];
}

const char *weft_store_dir_file_name(const weft_store_dir *d, int i)
{
    return d->name[i];
}

const weft_store_tensor *weft_store_dir_find(const weft_store_dir *d, const char *name)
{
    const weft_store_tensor *t = NULL;

    for (int i = 0; i < d->n_file && !t; i++) t = weft_store_find(d->file[i], name);
    return t;
}

int weft_store_dir_count(const weft_store_dir *d)
{
    return d->first[d->n_file];
}

const weft_store_tensor *weft_store_dir_at(const weft_store_dir *d, int i)
{
    int f = 0;

    while (i >= d->first[f + 1]) f++;
    return weft_store_at(d->file[f], i - d->first[f]);
}

const char *weft_store_dir_index(const weft_store_dir *d, size_t *n)
{
    *n = d->n_index;
    return d->index;
}
