/* What a rank that prepares for a membership needs to know of the job as it runs: what was decided,
 * the plan, and plans that were made ahead for other numbers of ranks.  A rank that trains prints
 * it for its agent, which gives it to ranks of its own host that are new or stay, and to those of
 * hosts that join.
 *
 *     weft_brief_print(&(weft_brief){..}, &t);
 *     WEFT_TRY(weft_brief_parse(t.s, t.n, &b));      b.plan and b.ahead point into the bytes
 */
#ifndef WEFT_SESSION_BRIEF_H
#define WEFT_SESSION_BRIEF_H

#include "base/status.h"
#include "base/text.h"

typedef struct weft_brief {
    int64_t     micro_batch, lanes;
    char        reduction[16];
    const char *plan; /* its text, plan_bytes of it; 0: the job has one rank, and none */
    size_t      plan_bytes;
    const char *ahead; /* answers (session/ahead.h), ahead_bytes of them; 0: none yet */
    size_t      ahead_bytes;
} weft_brief;

void weft_brief_print(const weft_brief *b, weft_text *out);
/* WEFT_ERR_ARG: these bytes, which another host may have sent, are no brief. */
weft_status weft_brief_parse(const char *bytes, size_t n, weft_brief *out);

#endif
