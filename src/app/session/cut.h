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
/* What was decided for the most ranks that there may be has more lanes than the job gives: where
 * sums may follow the plan they are taken when there are so many ranks. */
void weft_session__lower_lanes(weft_session *s, const weft_job *given);

#endif
