/* What the command asks of a session besides weft_session_run(): decisions, without running. */
#ifndef WEFT_SESSION_SESSION_H
#define WEFT_SESSION_SESSION_H

#include "base/text.h"
#include "weft/session.h"

/* How many ranks `weft train` should start of an open job, with these options (fresh, allow):
 * more than one only where these are predicted to be faster by what was measured here (weft
 * cluster calibrate --ranks N), or by the job's cluster. */
weft_status weft_session_count_ranks(const weft_job *j, const weft_session_options *o,
                                     int *n);

/* The plan that weft_session_run() runs with these options on world ranks, `local` of them on
 * each host (0: all), as JSON: of the job's keys or file, or chosen; with the checkpoint's
 * micro_batch and lanes where there is one to resume from.
 * world 0: as many ranks as the job's keys take, one where they do not say.  Nothing is started
 * or written. */
weft_status weft_session_print_plan(const weft_job *j, const weft_session_options *o,
                                    int world, int local, weft_text *t);

/* Is this process the helper that a rank has started to make plans ahead
 * (weft_session_options.planner)?  Then it does so, and ends: what it finds goes to its standard
 * output. */
bool        weft_session_is_planner(void);
weft_status weft_session_serve_plans(void);

#endif
