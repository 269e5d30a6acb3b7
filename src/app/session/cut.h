/* micro_batch and lanes of a job whose ranks become more or fewer.
 *
 * Under reduction: invariant they stay.  Where sums may follow the plan, a plan for more
 * data-parallel ranks than there are lanes has more of these (planner/replan.h), and all ranks take
 * them over with it.  So plans are what replays, new ranks and checkpoints have them from. */
#ifndef WEFT_SESSION_CUT_H
#define WEFT_SESSION_CUT_H

#include "session/session_priv.h"

/* micro_batch and lanes of the plan of this generation, whatever the job had before; where it goes
 * on the log says what changes. */
weft_status weft_session__follow_cut(weft_session *s);
/* What was decided other than the checkpoint, or the job as it was given, has it. */
weft_status weft_session__note_cut(weft_session *s, const weft_job *given);
/* The checkpoint's history on the way to processes that take the place of ranks: into a card, and
 * out of one.  go_back: after `step` steps the job runs with the keys that it has now, as it went
 * back there; is_read: to a checkpoint, whose state *c is (at step 0 to the beginning). */
void        weft_session__put_history(const weft_session *s, weft_kept_card *c);
weft_status weft_session__take_history(weft_session *s, const weft_kept_card *c);
weft_status weft_session__go_back_in_history(weft_ckpt_state *c, int64_t step,
                                             bool is_read, const weft_job *now);
/* What was decided for the most ranks that there may be has more lanes than the job gives: where
 * sums may follow the plan they are taken when there are so many ranks. */
void weft_session__lower_lanes(weft_session *s, const weft_job *given);

#endif
