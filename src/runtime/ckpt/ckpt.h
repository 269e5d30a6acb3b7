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
 *     weft_ckpt_findings found = {0};
 *     WEFT_TRY(weft_ckpt_save("out/checkpoints", 20, f, 2, &found));
 *     WEFT_TRY(weft_ckpt_prune("out/checkpoints", 20, 3, &found));
 *     ...
 *     WEFT_TRY(weft_ckpt_open("out/checkpoints", WEFT_CKPT_NEWEST, &found, &c));
 *     t = weft_store_find(weft_ckpt_tensors(c, "model.safetensors"), "wte.weight");
 *
 * One job writes a directory at a time, one checkpoint of it; any number may read it.  A writer
 * that was replaced while it was stopped may wake and go on: so temporary names carry the epoch of
 * their writer (step-N.e3.tmp), and a writer touches none of a later epoch.  What an earlier one
 * has begun is removed; it then fails, or writes files that have no name any more. */
#ifndef WEFT_CKPT_CKPT_H
#define WEFT_CKPT_CKPT_H

#include "base/text.h"
#include "store/safetensors.h"

#define WEFT_CKPT_NEWEST (-1)

/* One file to be saved: text, or tensors (where text is NULL).  With tensors.like the
 * header of an existing file is kept byte for byte.  In a draft (below) also bytes that others
 * write, or a text of n_text bytes that is given later. */
typedef struct weft_ckpt_file {
    const char     *name; /* letters, digits, . _ - ; tensors end in .safetensors */
    weft_store_spec tensors;
    const char     *text;
    size_t          n_text;
    int64_t         block_bytes; /* > 0: written in place, by blocks, by others */
} weft_ckpt_file;

/* One checkpoint that was read back in full, or could not be. */
typedef struct weft_ckpt_checked {
    int64_t  step;
    uint32_t id; /* of its manifest; 0: that cannot be read */
    bool     whole;
} weft_ckpt_checked;

/* What a run has found out about its directory: damage is reported once, and a checkpoint
 * is read back once.  Zeroed to begin with.  Functions below take NULL, too. */
typedef struct weft_ckpt_findings {
    uint32_t           epoch;   /* of the writer; 0: there are no later ones */
    weft_text          warn;    /* warnings, one a line, none twice */
    size_t             n_shown; /* bytes of warn that the caller has shown */
    int                n, cap;
    weft_ckpt_checked *checked;
} weft_ckpt_findings;

/* The next warning that was not shown yet: its text and length.  False: there is none. */
bool weft_ckpt_next_warning(weft_ckpt_findings *f, const char **text, int *n);
void weft_ckpt_findings_fini(weft_ckpt_findings *f);

/* WEFT_ERR_FULL: the room was not there; nothing was touched.  A step that is already
 * saved, damaged or not, is replaced, the old one staying valid until the new one is.
 * Leftovers of saves that did not finish are removed; a folder of a step that no manifest
 * and no record of ours names is left, with a warning. */
weft_status weft_ckpt_save(const char *dir, int64_t step, const weft_ckpt_file *file,
                           int n_file, weft_ckpt_findings *f);

/* A checkpoint that is being written, by several processes, perhaps while training goes on:
 *
 *     weft_ckpt_draft *d;
 *     WEFT_TRY(weft_ckpt_begin(dir, 20, file, n_file, &found, &d));  empty files in step-20.tmp
 *     WEFT_GO(weft_ckpt_reserve(d));                                 room for all of them
 *     ...                            others write, sync and close weft_ckpt_draft_path(d, i)
 *     WEFT_GO(weft_ckpt_set_sum(d, i, &sum));                        for each file by blocks
 *     WEFT_GO(weft_ckpt_set_text(d, k, text, n));                    for each text that was left
 *     WEFT_GO(weft_ckpt_commit(d, &found));                          step 20 exists
 *     out: weft_ckpt_draft_close(d);               what was not committed is removed
 *
 * Calls are made by one thread at a time. */
typedef struct weft_ckpt_draft weft_ckpt_draft;
weft_status weft_ckpt_begin(const char *dir, int64_t step, const weft_ckpt_file *file,
                            int n_file, weft_ckpt_findings *f, weft_ckpt_draft **out);
/* Borrows file[] and what it points to.  WEFT_ERR_FULL: the room is not there. */
weft_status weft_ckpt_reserve(weft_ckpt_draft *d);
const char *weft_ckpt_draft_path(const weft_ckpt_draft *d, int i);
/* Takes sum. */
weft_status weft_ckpt_set_sum(weft_ckpt_draft *d, int i, weft_store_sum *sum);
weft_status weft_ckpt_set_text(weft_ckpt_draft *d, int i, const char *text, size_t n);
weft_status weft_ckpt_commit(weft_ckpt_draft *d, weft_ckpt_findings *f);
void        weft_ckpt_draft_close(weft_ckpt_draft *d); /* accepts NULL */

/* Removes those leftovers without a save; fine where dir is not there.  all: also of later epochs,
 * which an earlier run of the job has left. */
weft_status weft_ckpt_tidy(const char *dir, bool all, weft_ckpt_findings *f);

/* After a save of `step`: deletes all but the `keep` (0: all) newest whole checkpoints up
 * to it.  A checkpoint counts when it was read back and verified; a damaged one is
 * reported and does not count.  Nothing is deleted where `step` itself does not read
 * back.  Left alone are newer steps, and damaged ones whose manifest cannot be read. */
weft_status weft_ckpt_prune(const char *dir, int64_t step, int keep,
                            weft_ckpt_findings *f);

typedef struct weft_ckpt weft_ckpt;

/* Is there anything that claims to be a checkpoint? */
bool weft_ckpt_any(const char *dir);
/* Opens a step, or the newest one that is whole.  Every block is verified.  Each damaged
 * one passed over is a warning, to be shown whatever else is not.  WEFT_ERR_ARG: none is
 * whole. */
weft_status weft_ckpt_open(const char *dir, int64_t step, weft_ckpt_findings *f,
                           weft_ckpt **out);
void        weft_ckpt_close(weft_ckpt *c); /* accepts NULL */

int64_t weft_ckpt_step(const weft_ckpt *c);
/* The step's folder: a Hugging Face model. */
const char *weft_ckpt_path(const weft_ckpt *c);
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
