#include "member/register.h"

#include <stddef.h>

const weft_member_view *weft_member_propose(weft_member_register   *r,
                                            const weft_member_view *view)
{
    if (view->epoch > r->newest.epoch + 1) return NULL;
    if (view->epoch == r->newest.epoch + 1) r->newest = *view;
    return &r->newest;
}
