/* A job: what to train, on what, how long.  The keys: docs/job.md.
 *
 *     weft_job *job;
 *     weft_job_load("job.yaml", 1, (const char *[]){"optimizer.lr=0.0003"}, &job);
 *     ...
 *     weft_job_destroy(job);
 */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_job weft_job;

/* Reads a job file (.json, else YAML; NULL: none) and then key=value words, dots reaching into
 * maps. Unknown keys, missing ones and values out of range are WEFT_ERR_ARG with file and line. */
weft_status weft_job_load(const char *path, int n_assign, const char *const *assign,
                          weft_job **out);
void        weft_job_destroy(weft_job *j); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
