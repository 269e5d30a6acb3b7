/* What the ranks of a run are asked to do: the job's words and the options of the command, as data.
 *
 *     weft_launch_request q = {.file = "job.yaml", .timeout_s = 60, .io_timeout_s = 600};
 *     weft_launch(4, argv, &(weft_launch_options){.request = &q}, &code);
 *
 * in a rank
 *     WEFT_TRY(weft_launch_request_find(arena, &q, &found));
 *
 * The launcher writes a request to a sealed memory file that its ranks inherit; they read no argv.
 * (1) parse(print(q)) == q, whatever bytes its texts have.
 * (2) What is cut off, altered, unknown or of another version of weft is refused. */
#ifndef WEFT_LAUNCH_REQUEST_H
#define WEFT_LAUNCH_REQUEST_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/text.h"

typedef struct weft_launch_request {
    const char        *file; /* the job file; NULL: assignments are the job */
    int                n_assign;
    const char *const *assign; /* key=value, after the file, in order */
    /* as weft_session_options; NULL: not given */
    const char *allow, *trace, *replay;
    const char *command; /* as it was typed, for remedies in errors */
    bool        fresh, quiet, json;
    bool        check; /* run collectives for check_s seconds instead of a job */
    double      check_s;
    double      timeout_s;    /* of ranks that wait for each other */
    double      io_timeout_s; /* of one call on a file */
    double      min_rank;     /* that the job may go on with; 0: their number stays */
    double      min_host;     /* the same of hosts */
} weft_launch_request;

void weft_launch_request_print(const weft_launch_request *q, weft_text *t);
/* Texts of *out are in the arena.  WEFT_ERR_ARG: not what print writes. */
weft_status weft_launch_request_parse(const char *text, size_t n, weft_arena *a,
                                      weft_launch_request *out);

/* A descriptor, closed at exec, of memory that holds the request and that no process can change. */
weft_status weft_launch_request_seal(const weft_launch_request *q, int *fd);
/* In a rank: the request of the launcher that started this process (WEFT_REQUEST_FD), whose
 * descriptor is closed.  *found is false where no launcher of ours did. */
weft_status weft_launch_request_find(weft_arena *a, weft_launch_request *out,
                                     bool *found);

#endif
