/* Training: a job in, trained weights out.
 *
 *     weft_job *job;
 *     weft_session_result r;
 *     weft_job_load("job.yaml", 0, NULL, &job);
 *     if (weft_session_run(job, NULL, &r) != WEFT_OK)
 *         fprintf(stderr, "%s\n", weft_error_text());
 *     weft_job_destroy(job);
 */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include <stdbool.h>

#include "weft/base.h"
#include "weft/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_session_result;

typedef struct weft_session_options {
    bool fresh;    /* do not resume: start anew beside the checkpoints that are there */
    bool quiet;    /* no log lines on stderr but warnings */
    bool progress; /* a progress line on stderr */
    /* Keys that decide bits and that a resume may change all the same: "lanes,micro_batch"; NULL:
     * none. */
    const char *allow;
    const char *command; /* as it was given, for remedies in errors; NULL: not known */
    const char *trace;   /* a timeline of the last step for Perfetto, or NULL */
    /* Asked after every step: not 0 ends the run after a checkpoint.  May be NULL. */
    int (*stop)(void *arg);
    void *arg;
    /* Where this rank learns which ranks there are (comm/membership.h); NULL: it is alone.  The
     * session connects them, and closes the connections. */
    const struct weft_membership_source *member;
    double timeout_s; /* of ranks that wait for each other; 0: 60 */
    /* one call on a file of a checkpoint may take that long; 0: 600 */
    double io_timeout_s;
    int    min_rank; /* that the job may go on with later; 0: their number stays */
    int    min_host; /* the same of hosts */
    /* Arguments of a process of this program that makes plans ahead, beside training; NULL ends
     * them.  NULL: plans are made when they are needed. */
    const char *const *planner;
    /* incidents.jsonl of another run of this job: the same numbers of ranks from the same steps on,
     * with the same plans (those of its plans/); NULL: as the agent says */
    const char *replay;
    /* Of rank 0, once all is written and nothing is lost with this process any more: the result,
     * as weft_session_run() gives it.  Not of a run that stop() ended.  May be NULL. */
    void (*finished)(void *arg, const struct weft_session_result *r);
    void *finished_arg;
} weft_session_options;

enum {
    WEFT_SESSION_MAX_DAMAGED = 16 /* steps of damaged checkpoints that a result names */
};

typedef struct weft_session_result {
    int      rank;       /* of this process, at the end; files are rank 0's */
    int64_t  steps;      /* done, those before a resume too */
    int64_t  first_step; /* done before this run */
    double   loss;       /* of the last step; NaN if there was none */
    double   grad_norm;
    double   eval_loss; /* NaN: no evaluation */
    double   tokens_per_s;
    double   step_ms_median;
    int64_t  mem_peak_bytes;   /* of this rank: planned slabs, declared scratch, tables */
    int64_t  mem_table_bytes;  /* of these, the program, its graphs and what runs them */
    int64_t  mem_shared_bytes; /* of these, in memory that ranks of a host share */
    int64_t  mem_most_bytes;   /* the largest mem_peak_bytes of all ranks */
    uint64_t weights_xxh64;
    int      stopped;      /* what stop() gave, 0 when all steps were run */
    char     output[4096]; /* the folder that was written */
    /* checkpoints that were found damaged and not used; the first of them by step */
    int     n_damaged;
    int64_t damaged_step[WEFT_SESSION_MAX_DAMAGED];
} weft_session_result;

/* Runs the job to its end (or to stop).  o may be NULL.  A loss or gradient that is not finite is
 * WEFT_ERR_NUMERIC; the checkpoints so far stay. */
weft_status weft_session_run(const weft_job *j, const weft_session_options *o,
                             weft_session_result *out);

#ifdef __cplusplus
}
#endif
#endif
