/* Named places in the code at which a test makes this process fail or wait.
 *
 *     weft_failpoint("vote.arrived");
 *
 *     WEFT_FAILPOINT=vote.arrived:kill:rank=1:nth=3,view.connected:delay=200
 *     WEFT_FAILPOINT_ONCE=/tmp/hit           the k-th entry acts once in all processes: it makes
 *                                            the file /tmp/hit.k first
 *
 * An entry is name:action[:rank=R][:nth=N|N+|every][:while=FILE].  Actions: kill, stop, segv,
 * bus, abort (that signal to this process), host (SIGKILL to its parent, the agent of its host,
 * and to it), exit (code 3, without a word), oom (it takes up to 4 GB), delay=MS, work=MS (it uses
 * a core for so long); flip: a number that this process has computed there is another one
 * (weft_failpoint_flips).
 * rank: only where WEFT_RANK is R; rank=none: only where there is no such variable.
 * nth: at the N-th time of this process (1); N+: then and each later time, every: each time,
 * both whatever WEFT_FAILPOINT_ONCE says.
 * while: only while that file is there, also for nth; a delay or work ends when it goes.
 * With WEFT_FAILPOINT_ONCE an entry after the first is looked at once those before it have acted.
 *
 * (1) Where the variable is not set, a failpoint is one load and one compare.
 * (2) Names are written once, in the call: tests/eco/eco_failpoints.py has the table of all. */
#ifndef WEFT_BASE_FAILPOINT_H
#define WEFT_BASE_FAILPOINT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

enum {
    WEFT_FAILPOINT_UNREAD, /* the variable was not looked at yet */
    WEFT_FAILPOINT_OFF,
    WEFT_FAILPOINT_ARMED
};

/* Of the inline function alone. */
extern atomic_int weft_failpoint_state;

void weft_failpoint_hit(const char *name);

/* From any thread. */
static inline void weft_failpoint(const char *name)
{
    if (atomic_load_explicit(&weft_failpoint_state, memory_order_acquire) !=
        WEFT_FAILPOINT_OFF)
        weft_failpoint_hit(name);
}

/* Is the number at that place to be a wrong one?  From any thread. */
bool               weft_failpoint_flips_hit(const char *name);
static inline bool weft_failpoint_flips(const char *name)
{
    return atomic_load_explicit(&weft_failpoint_state, memory_order_acquire) !=
               WEFT_FAILPOINT_OFF &&
           weft_failpoint_flips_hit(name);
}

/* As if the variables had these values, NULL: not set.  For tests. */
weft_status weft_failpoint_arm(const char *text, const char *once);

#endif
