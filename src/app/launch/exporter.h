/* What Prometheus collects of a job, as text: format 0.0.4.
 *
 *     weft_exporter_print(&(weft_exporter_job){.job = "out", ..}, &text);
 *
 * What ranks alone know (loss, seconds of a step, checkpoint) is read from status.json in the
 * job's output folder; where there is none yet, or it is no status, those lines are left out. */
#ifndef WEFT_LAUNCH_EXPORTER_H
#define WEFT_LAUNCH_EXPORTER_H

#include <stdint.h>

#include "base/text.h"
#include "launch/incident.h"

typedef struct weft_exporter_rank {
    bool    alive;
    int64_t step; /* the last that it has committed */
} weft_exporter_rank;

typedef struct weft_exporter_cause {
    char    cause[16], level[16]; /* level: what was decided */
    int64_t n;                    /* incidents so far */
} weft_exporter_cause;

enum {
    WEFT_EXPORTER_MAX_CAUSE = 64 /* causes and levels that are counted */
};

typedef struct weft_exporter_counts {
    int                 n;
    weft_exporter_cause of[WEFT_EXPORTER_MAX_CAUSE];
} weft_exporter_counts;

/* One incident more. */
void weft_exporter_count(weft_exporter_counts *c, const char *cause, const char *level);

typedef struct weft_exporter_job {
    const char *job, *host;             /* labels */
    const char *folder;                 /* of its output; "" : not known */
    double      now_s;                  /* seconds since 1970 */
    uint32_t    epoch;                  /* of the newest view; 0: views do not change */
    int         n_host;                 /* in that view */
    int         n_rank, n_cause, first; /* first: number of rank[0] */
    int         n_phase; /* of the last incident that is over; 0: none is */
    const weft_incident_phase *phase;
    const weft_exporter_rank  *rank;
    const weft_exporter_cause *cause;
    bool                       is_program; /* another engine's, */
    int                        n_restart;  /* which was started again so often */
} weft_exporter_job;

void weft_exporter_print(const weft_exporter_job *j, weft_text *t);

#endif
