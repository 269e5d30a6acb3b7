/* A write-once register: for each epoch one view, and the first that is proposed stands.  This one
 * is in the memory of a host's only agent. */
#ifndef WEFT_MEMBER_REGISTER_H
#define WEFT_MEMBER_REGISTER_H

#include <stdint.h>

enum {
    WEFT_MEMBER_MAX_SLOT = 1024
};

/* Which process has each slot: the how-many-th of that slot, from 1. */
typedef struct weft_member_view {
    uint32_t epoch;
    int      n_slot;
    uint32_t process[WEFT_MEMBER_MAX_SLOT];
} weft_member_view;

typedef struct weft_member_register {
    weft_member_view newest; /* epoch 0: nothing was decided yet */
} weft_member_register;

/* Decides the epoch after the newest one; of an epoch that is decided, the view that stands is
 * returned (of older ones the newest: who asks has been overtaken).  NULL: an epoch was left
 * out. */
const weft_member_view *weft_member_propose(weft_member_register   *r,
                                            const weft_member_view *view);

#endif
