/* A step that ends each rank that runs it, on several hosts: agents tell each other which process
 * was ended by what it ran (FRAME_CRASH), and each one finds by itself that two slots were lost in
 * the same step (member.c).  So all end with the same reason, and none goes on to lose its ranks,
 * too. */
#include "launch/agent_priv.h"
#include "launch/hosts_priv.h"

void weft_launch__hosts_crashed(weft_launch__run *l)
{
    weft_member_crash x;
    if (!l->hosts || !weft_member_last_crash(l->agent->member, &x)) return;
    host_crash crash = {x.step, x.slot, x.cause == WEFT_MEMBER_OOM};
    weft_launch__send_all(l->hosts, FRAME_CRASH, &crash, sizeof crash);
}

void weft_launch__crash_hear(weft_launch__run *l, const host_frame *f)
{
    const host_crash *x = &f->crash;
    if (f->kind != FRAME_CRASH || !l->agent ||
        weft_member_view_find(weft_launch__hosts_view(l), f->from) < 0)
        return;
    weft_member_crash_elsewhere(
        l->agent->member,
        &(weft_member_crash){.host  = f->from,
                             .slot  = x->slot,
                             .cause = x->oom ? WEFT_MEMBER_OOM : WEFT_MEMBER_CRASHED,
                             .step  = x->step});
}
