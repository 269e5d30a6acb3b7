/* A folder of weights as Hugging Face lays it out: model.safetensors, or
 * model-00001-of-0000N.safetensors with model.safetensors.index.json saying which name
 * lies where.
 *
 *     weft_store_dir *d;
 *     WEFT_TRY(weft_store_dir_open("llama/", &d));
 *     const weft_store_tensor *t = weft_store_dir_find(d, "lm_head.weight");
 */
#ifndef WEFT_STORE_HF_DIR_H
#define WEFT_STORE_HF_DIR_H

#include "store/safetensors.h"

typedef struct weft_store_dir weft_store_dir;

/* Are there weights?  (A folder may hold config.json alone.) */
bool        weft_store_dir_has_weights(const char *path);
weft_status weft_store_dir_open(const char *path, weft_store_dir **out);
void        weft_store_dir_close(weft_store_dir *d); /* accepts NULL */

int                    weft_store_dir_file_count(const weft_store_dir *d);
const weft_store_file *weft_store_dir_file(const weft_store_dir *d, int i);
const char *weft_store_dir_file_name(const weft_store_dir *d, int i); /* no folder */
const weft_store_tensor *weft_store_dir_find(const weft_store_dir *d, const char *name);
/* Every tensor of every file, files in the order of their names. */
int                      weft_store_dir_count(const weft_store_dir *d);
const weft_store_tensor *weft_store_dir_at(const weft_store_dir *d, int i);
/* The index file's text, or NULL when there is one file without index. */
const char *weft_store_dir_index(const weft_store_dir *d, size_t *n);

/* The same files under another folder, with the bytes of the named tensors replaced;
 * headers, order, shards, index and everything not named stay the same bytes.  Each file
 * is old or new. */
weft_status weft_store_dir_rewrite(const weft_store_dir *d, const char *to,
                                   const weft_store_item *item, int n_item);

/* A new folder: one file, or shards of at most shard_bytes (0: no limit) with an
 * index. */
weft_status weft_store_dir_write(const char *to, const weft_store_item *item, int n_item,
                                 const weft_store_pair *meta, int n_meta,
                                 int64_t shard_bytes);

#endif
