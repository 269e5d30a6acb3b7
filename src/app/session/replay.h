/* The views of a recorded run, taken again at the same steps (weft run --replay incidents.jsonl):
 * where tp, cp or ep changes on the way, bits are those of a run with the same views.  Sums depend
 * on plans and not on hosts, so ranks of many hosts are replayed as ranks of one.
 *
 *     WEFT_TRY(weft_replay_load(path, arena, &r));
 *     const weft_replay_view *v = weft_replay_find(&r, step);     that step is run in it
 *
 * views.jsonl has a line for each view that has trained: epoch, first_step, ranks and plan; a run
 * that was resumed counts epochs anew.  A line of incidents.jsonl whose job went on has next_epoch,
 * next_step, ranks and plan, and the same of the view before (`view`): enough for a run that was
 * not resumed.  Plans are files next to them, named by what is in them.  Steps that were run again
 * count as they were run last: a view hides those before it from its first step on. */
#ifndef WEFT_SESSION_REPLAY_H
#define WEFT_SESSION_REPLAY_H

#include <stdint.h>

#include "base/arena.h"

typedef struct weft_replay_view {
    int64_t     first_step;
    int         n_rank;
    uint32_t    epoch; /* in the recorded run */
    const char *plan;  /* in the folder of the file; NULL: none was recorded */
} weft_replay_view;

typedef struct weft_replay {
    int               n;
    weft_replay_view *view; /* first steps rise */
} weft_replay;

/* Adds what lines of one of the files say; where r has views already (those of views.jsonl), lines
 * of incidents.jsonl add the ones it lacks.  WEFT_ERR_ARG: "file:line: what, remedy". */
weft_status weft_replay_parse(const char *file, const char *text, size_t n, weft_arena *a,
                              weft_replay *r);
/* The file, and views.jsonl in its folder if there is one. */
weft_status weft_replay_load(const char *path, weft_arena *a, weft_replay *out);
/* NULL: none is known. */
const weft_replay_view *weft_replay_find(const weft_replay *r, int64_t step);
/* The fewest and the most ranks that a view has; 0: there is none. */
void weft_replay_count(const weft_replay *r, int *least, int *most);

#endif
