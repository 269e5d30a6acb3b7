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
/* Removes what saves and prunings of epochs up to this one did not finish: temporary names, and
 * folders that a manifest under a temporary name says are ours.  Other folders of steps that no
 * manifest names are left, with a warning. */
weft_status weft_ckpt__sweep(const char *dir, uint32_t epoch, weft_ckpt_findings *f);
/* What temporary names of a writer end in: ".tmp", ".e3.tmp". */
void                   weft_ckpt__suffix(uint32_t epoch, char out[32]);
static inline uint32_t weft_ckpt__epoch(const weft_ckpt_findings *f)
{
    return f ? f->epoch : 0;
}

/* findings.c; f may be NULL in all of them. */
void weft_ckpt__warn(weft_ckpt_findings *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Tells checkpoints of one step apart. */
uint32_t weft_ckpt__id(const weft_ckpt_manifest *m);
void     weft_ckpt__note(weft_ckpt_findings *f, int64_t step, uint32_t id, bool whole);
/* What was noted, or NULL. */
const weft_ckpt_checked *weft_ckpt__find_note(const weft_ckpt_findings *f, int64_t step,
                                              uint32_t id);

#endif
