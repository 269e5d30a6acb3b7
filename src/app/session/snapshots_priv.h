/* Copies of a state that goes with its process, in the memory of agents. */
#ifndef WEFT_SESSION_SNAPSHOTS_PRIV_H
#define WEFT_SESSION_SNAPSHOTS_PRIV_H

#include "session/session_priv.h"

/* What a rank has measured of its snapshot: until it was whole, that steps waited for it, a step;
 * all 0: it makes none. */
typedef struct weft_session__snapshot_times {
    double  total_s, waited_s, step_s;
    int32_t under_way;
} weft_session__snapshot_times;
/* Steps between snapshots, of what n ranks have measured. */
int64_t weft_session__choose_every(const weft_session__snapshot_times *of, int n);

/* snapshots.c: in the agent's memory, where it is not the state's own.  adopt: before anything is
 * allocated in the rank's slab; open: when the state is there. */
bool        weft_session__has_snapshots(const weft_session *s);
void        weft_session__adopt_snapshots(weft_session *s);
weft_status weft_session__open_snapshots(weft_session *s);
void        weft_session__close_snapshots(weft_session *s);
/* Is there to be one of the step whose row is s->row? */
bool weft_session__is_snapshot_due(const weft_session *s);
/* After each step, whose state is settled where one is due. */
weft_status weft_session__step_snapshots(weft_session *s);
/* One of the step that all are after, now; *whole: together they have all of it.  By all ranks. */
weft_status weft_session__make_snapshot(weft_session *s, bool *whole);
/* Before the vote of a step; before anything writes the state. */
weft_status weft_session__await_snapshot(weft_session *s, int64_t step);
void        weft_session__wait_snapshot_copied(weft_session *s);
/* The newest step of which slots have all that the generation's ranks want, -1: none; g->from is
 * what they have.  The same at all ranks, as long as none of them forgets any. */
weft_status weft_session__find_snapshot(weft_session *s, const weft_state *to,
                                        int64_t *step);
weft_status weft_session__read_snapshot(weft_session *s, weft_state *to);
/* Those in this rank's slot, of later steps. */
void weft_session__forget_snapshots(weft_session *s, int64_t after);
/* Memory of one in this rank's slot is given back. */
void weft_session__forget_held(weft_comm *end, weft_comm_shm_held *h);

/* snapshot_far.c: second copies on other hosts.  open: by all ranks; on one host there are none.
 * start: with the snapshot of a step that is due; end: waits until this rank's has gone and its
 * ward's is there, or cannot. */
weft_status weft_session__open_far(weft_session *s);
weft_status weft_session__start_far(weft_session *s, int64_t step);
bool        weft_session__is_far_over(const weft_session *s);
weft_status weft_session__end_far(weft_session *s);
/* guard[r]: the rank that keeps what rank r has, which needs it: on another host, and the
 * guard of no other rank; -1: there is none.  host: of each rank. */
void weft_session__find_guards(const int32_t *host, const bool *needs, int n, int *guard);

#endif
