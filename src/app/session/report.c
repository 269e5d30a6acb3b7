/* What a rank reports to its agent, for incidents.jsonl; nothing happens where there is none. */
#include <stdarg.h>
#include <stdio.h>

#include "session/session_priv.h"

void weft_session__report(const weft_session *s, const char *cause, const char *decided,
                          const char *fmt, ...)
{
    const weft_membership_source *m = s->o->member;
    char                          text[400];
    va_list                       ap;
    if (!m || !m->report) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    m->report(m->arg,
              &(weft_membership_incident){
                  .cause = cause, .decided = decided, .step = s->r.steps, .text = text});
}

const char *weft_session__find_cause(const weft_session *s, weft_status st)
{
    if (st == WEFT_ERR_FULL) return "disk";
    if (st != WEFT_ERR_NUMERIC) return "error";
    return s->trial.fault == WEFT_SESSION__DIFFERS ? "differs" : "numeric";
}
