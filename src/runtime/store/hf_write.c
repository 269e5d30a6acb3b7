/* Writing a Hugging Face folder.  In: named tensors.  Out: one file, or shards and their
 * index. The index goes last: without it the shards are not yet a model. */
#include "store/hf_dir.h"

#include <stdlib.h>

#include "base/io.h"
#include "base/text.h"

#define ONE_FILE "model.safetensors"
#define INDEX    "model.safetensors.index.json"

static weft_status write_in(const char *dir, const char *name,
                            const weft_store_spec *spec)
{
    weft_text   path = {0};
    weft_status st;

    weft_text_add(&path, "%s/%s", dir, name);
    st = weft_text_status(&path);
    if (st == WEFT_OK) st = weft_store_write(path.s, spec);
    weft_text_fini(&path);
    return st;
}

static weft_status write_index(const char *dir, const char *text, size_t n)
{
    weft_text   path = {0};
    weft_status st;

    weft_text_add(&path, "%s/" INDEX, dir);
    st = weft_text_status(&path);
    if (st == WEFT_OK) st = weft_io_replace_file(path.s, text, n);
    weft_text_fini(&path);
    return st;
}

weft_status weft_store_dir_rewrite(const weft_store_dir *d, const char *to,
                                   const weft_store_item *item, int n_item)
{
    weft_store_item *mine = malloc(sizeof *mine * (size_t)(n_item + 1));
    const char      *index;
    size_t           n_index;
    weft_status      st = WEFT_OK;

    if (!mine) return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to write it", to);
    for (int i = 0; i < n_item; i++)
        if (!weft_store_dir_find(d, item[i].name))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: there is no tensor '%s' to replace", to,
                              item[i].name));
    WEFT_GO(weft_io_mkdirs(to));
    for (int f = 0; f < weft_store_dir_file_count(d); f++) {
        const weft_store_file *file = weft_store_dir_file(d, f);
        int                    n    = 0;

        for (int i = 0; i < n_item; i++)
            if (weft_store_find(file, item[i].name)) mine[n++] = item[i];
        WEFT_GO(write_in(to, weft_store_dir_file_name(d, f),
                         &(weft_store_spec){.item = mine, .n_item = n, .like = file}));
    }
    index = weft_store_dir_index(d, &n_index);
    if (index) WEFT_GO(write_index(to, index, n_index));
out:
    free(mine);
    return st;
}

static int64_t item_bytes(const weft_store_item *it)
{
    return weft_shape_count(&it->shape) * weft_dtype_bytes(it->dtype);
}

/* The end of the shard that begins at item i: as many as fit, at least one. */
static int shard_end(const weft_store_item *item, int n_item, int i, int64_t limit)
{
    int64_t sum = item_bytes(&item[i++]);

    while (i < n_item && sum + item_bytes(&item[i]) <= limit)
        sum += item_bytes(&item[i++]);
    return i;
}

static weft_status write_shards(const char *to, const weft_store_item *item, int n_item,
                                const weft_store_pair *meta, int n_meta, int64_t limit)
{
    weft_text   index = {0}, name = {0};
    int64_t     total   = 0;
    int         n_shard = 0, k = 0;
    weft_status st = WEFT_OK;

    for (int i = 0; i < n_item; i++) total += item_bytes(&item[i]);
    for (int i = 0; i < n_item; n_shard++) i = shard_end(item, n_item, i, limit);
    weft_text_add(&index,
                  "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {",
                  (long long)total);
    for (int i = 0, end; i < n_item; i = end) {
        weft_store_spec s = {.meta = meta, .n_meta = n_meta, .item = item + i};

        end      = shard_end(item, n_item, i, limit);
        s.n_item = end - i;
        name.n   = 0;
        weft_text_add(&name, "model-%05d-of-%05d.safetensors", ++k, n_shard);
        WEFT_GO(weft_text_status(&name));
        WEFT_GO(write_in(to, name.s, &s));
        for (int j = i; j < end; j++) {
            weft_text_add(&index, "%s\n    ", j ? "," : "");
            weft_text_put_quoted(&index, item[j].name);
            weft_text_add(&index, ": \"%s\"", name.s);
        }
    }
    weft_text_add(&index, "\n  }\n}\n");
    WEFT_GO(weft_text_status(&index));
    WEFT_GO(write_index(to, index.s, index.n));
out:
    weft_text_fini(&index);
    weft_text_fini(&name);
    return st;
}

static bool has_one_file(const char *dir)
{
    weft_text path = {0};
    bool      found;

    weft_text_add(&path, "%s/" ONE_FILE, dir);
    found = path.s && weft_io_exists(path.s);
    weft_text_fini(&path);
    return found;
}

weft_status weft_store_dir_write(const char *to, const weft_store_item *item, int n_item,
                                 const weft_store_pair *meta, int n_meta,
                                 int64_t shard_bytes)
{
    int64_t total = 0;

    for (int i = 0; i < n_item; i++) total += item_bytes(&item[i]);
    WEFT_TRY(weft_io_mkdirs(to));
    if (shard_bytes > 0 && total > shard_bytes && has_one_file(to))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: holds a " ONE_FILE
                         ", which readers would take instead of the "
                         "shards; remove it first",
                         to);
    if (shard_bytes > 0 && total > shard_bytes)
        return write_shards(to, item, n_item, meta, n_meta, shard_bytes);
    return write_in(to, ONE_FILE, &(weft_store_spec){item, n_item, meta, n_meta, NULL});
}
