/* Scratch of attention's gradient by warpgroups, from the text of its attributes. */
#ifndef WEFT_TESTS_ATTENTION_ROOM_H
#define WEFT_TESTS_ATTENTION_ROOM_H

#include <stdlib.h>
#include <string.h>

#include "op/workspace.h"

static inline int64_t room_of_attention(int64_t b, int64_t h, int64_t g, int64_t s,
                                        int64_t t, int64_t e, const char *attr)
{
    const char *first  = strstr(attr, "q_first=");
    int64_t     ahead  = first ? atol(first + strlen("q_first=")) : t - s;
    bool        causal = strstr(attr, "causal=1") && ahead < t - 1;
    return weft_workspace_attention_sums(b, h, g, s, t, e, causal, ahead).bytes;
}

#endif
