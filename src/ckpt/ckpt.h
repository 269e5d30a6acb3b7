/* Checkpoints: bytes that survive a crash.
 *
 *     dir/step-00000020/config.json          given by the caller, like
 *                       model.safetensors    weights under Hugging Face's names
 *                       optimizer.safetensors
 *                       state.json           step, sample, seed, ... (ckpt/state.h)
 *     dir/MANIFEST-00000020                  written last: it alone makes step 20 exist
 *
 * A save reserves all room first, writes into step-N.tmp, syncs, renames, and then
 * commits by the manifest.  A crash, a full disk or an error at any moment leaves the old
 * checkpoints whole, and the new one whole or absent.  There is no "latest" pointer: the
 * newest valid manifest wins.
 *
 *     weft_ckpt_file f[] = {
 *         {.name = "model.safetensors", .tensors = {item, n_item, meta, 1}},
 *         {.name = "state.json", .text = json, .n_text = n}};
 *     WEFT_TRY(weft_ckpt_save("out/checkpoints", 20, f, 2));
 *     WEFT_TRY(weft_ckpt_prune("out/checkpoints", 3));
 *     ...
 *     WEFT_TRY(weft_ckpt_open("out/checkpoints", WEFT_CKPT_NEWEST, &warn, &c));
 *     t = weft_store_find(weft_ckpt_tensors(c, "model.safetensors"), "wte.weight");
 *
 * One process writes a directory at a time; any number may read it. */
#ifndef WEFT_CKPT_CKPT_H
#define WEFT_CKPT_CKPT_H

#include "base/text.h"
#include "store/safetensors.h"

#define WEFT_CKPT_NEWEST (-1)

/* One file to be saved: text, or tensors (where text is NULL).  With tensors.like the
 * header of an existing file is kept byte for byte. */
typedef struct weft_ckpt_file {
    const char     *name; /* letters, digits, . _ - ; tensors end in .safetensors */
    weft_store_spec tensors;
    const char     *text;
    size_t          n_text;
} weft_ckpt_file;

/* WEFT_ERR_FULL: the room was not there; nothing was touched.  A step that is already
 * saved is replaced, the old one staying valid until the new one is.  Leftovers of
 * crashes are removed. */
weft_status weft_ckpt_save(const char *dir, int64_t step, const weft_ckpt_file *file,
                           int n_file);

/* Keeps the `keep` newest checkpoints (0: all).  Before the first deletion the newest one
 * is read back and verified; if it does not hold, nothing is deleted and the status says
 * so. */
weft_status weft_ckpt_prune(const char *dir, int keep);

typedef struct weft_ckpt weft_ckpt;

/* Is there anything that claims to be a checkpoint? */
bool weft_ckpt_any(const char *dir);
/* Opens a step, or the newest one that is whole.  Every block is verified.  Each damaged
 * one passed over adds a line to warn (may be NULL), to be shown loudly.  WEFT_ERR_ARG:
 * none is whole. */
weft_status weft_ckpt_open(const char *dir, int64_t step, weft_text *warn,
                           weft_ckpt **out);
void        weft_ckpt_close(weft_ckpt *c); /* accepts NULL */

int64_t     weft_ckpt_step(const weft_ckpt *c);
const char *weft_ckpt_path(
    const weft_ckpt *c); /* the step's folder: a Hugging Face model */
/* A tensor file, or a text file (NUL-terminated; n may be NULL); NULL when it has no such
 * file. */
const weft_store_file *weft_ckpt_tensors(const weft_ckpt *c, const char *name);
const char            *weft_ckpt_text(const weft_ckpt *c, const char *name, size_t *n);

typedef struct weft_ckpt_info {
    int64_t     step;
    int64_t     bytes;
    int         n_file;
    weft_status status;   /* WEFT_OK: whole as far as was looked */
    char        dir[160]; /* the folder's name; "" when the manifest does not tell */
    char        why[256]; /* what is wrong with it */
} weft_ckpt_info;

/* Every step with a manifest, newest first; free() the list.  deep: every block is read,
 * else manifests and lengths only. */
weft_status weft_ckpt_list(const char *dir, bool deep, weft_ckpt_info **out, int *n);

#endif
