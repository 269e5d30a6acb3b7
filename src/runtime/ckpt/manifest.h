/* The manifest: the one small file that makes a checkpoint exist.
 *
 *     weft-manifest 1
 *     step 20
 *     dir step-00000020
 *     block 4194304
 *     file model.safetensors 5242880 2 0123456789abcdef   bytes, blocks, hash of CRCs
 *     crc 1a2b3c4d 5e6f7081                               CRC32C of blocks, eight a line
 *     ...
 *     end 89abcdef                                        CRC32C of everything above
 *
 * Its length is known before the checksums are, so room for it can be reserved first.
 * parse(print(m)) == m, and what print would not have written is refused. */
#ifndef WEFT_CKPT_MANIFEST_H
#define WEFT_CKPT_MANIFEST_H

#include "base/text.h"
#include "store/sum.h"

typedef struct weft_ckpt_entry {
    char          *name; /* of a file in dir: letters, digits, . _ - */
    weft_store_sum sum;
} weft_ckpt_entry;

typedef struct weft_ckpt_manifest {
    int64_t          step;
    char            *dir;
    int              n_file;
    weft_ckpt_entry *file;
} weft_ckpt_manifest;

weft_status weft_ckpt_manifest_print(const weft_ckpt_manifest *m, weft_text *t);
/* name is for messages. */
weft_status weft_ckpt_manifest_parse(const char *name, const char *text, size_t n,
                                     weft_ckpt_manifest *out);
void        weft_ckpt_manifest_fini(weft_ckpt_manifest *m);

/* Is s a plain file name as a manifest may hold it? */
bool weft_ckpt_name_ok(const char *s);

#endif
