/* A step that ends each rank that runs it, on several hosts: agents tell each other which process
 * was ended by what it ran (FRAME_CRASH), and each one finds by itself that two slots were lost in
 * the same step (member.c).  So all end with the same reason, and none goes on to lose its ranks,
 * too. */
#include <string.h>

#include "launch/agent_priv.h"
#include "launch/hosts_priv.h"

/* What is sent. */
typedef struct host_crash {
    int64_t step;
    int32_t slot, oom;
} host_crash;

void weft_launch__hosts_crashed(weft_launch__run *l)
{
    weft_member_crash x;
    if (!l->hosts || !weft_member_last_crash(l->agent->member, &x)) return;
    host_crash crash = {x.step, x.slot, x.cause == WEFT_MEMBER_OOM};
    weft_launch__send_all(l->hosts, FRAME_CRASH, &crash, sizeof crash);
}

void weft_launch__crash_hear(weft_launch__run *l, uint64_t from,
                             const weft_control_event *e)
{
    host_crash crash;
    if (e->frame != FRAME_CRASH || e->bytes != sizeof from + sizeof crash || !l->agent ||
        weft_member_view_find(weft_launch__hosts_view(l), from) < 0)
        return;
    memcpy(&crash, (const uint8_t *)e->data + sizeof from, sizeof crash);
    if (crash.step < 0 || crash.step > WEFT_MEMBER_MAX_STEP) return;
    weft_member_crash_elsewhere(
        l->agent->member,
        &(weft_member_crash){.host  = from,
                             .slot  = crash.slot,
                             .cause = crash.oom ? WEFT_MEMBER_OOM : WEFT_MEMBER_CRASHED,
                             .step  = crash.step});
}
