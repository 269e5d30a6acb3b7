/* Inside the ckpt room. */
#ifndef WEFT_CKPT_CKPT_PRIV_H
#define WEFT_CKPT_CKPT_PRIV_H

#include "base/arena.h"
#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"

#define WEFT_CKPT__MANIFEST "MANIFEST-"
#define WEFT_CKPT__STEP     "step-"
#define WEFT_CKPT__TMP      ".tmp"

/* Steps that have a MANIFEST-N, newest first; none where dir is not there.  free() it. */
weft_status weft_ckpt__steps(const char *dir, int64_t **out, int *n);
weft_status weft_ckpt__load_manifest(const char *dir, int64_t step,
                                     weft_ckpt_manifest *out);
/* deep: reads every block; cold: from the device, not from the cache; else lengths
 * only. */
weft_status weft_ckpt__verify(const char *dir, const weft_ckpt_manifest *m, bool deep,
                              bool cold);
/* Removes what a crash left: *.tmp, and folders of steps that no manifest names. */
weft_status weft_ckpt__sweep(const char *dir);

#endif
