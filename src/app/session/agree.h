/* Do all ranks mean the same?  Asked before the first step, so that ranks which differ end with
 * one line, the same at each of them, instead of waiting for each other.
 *
 *     weft_agree a = {comm, group};
 *     WEFT_TRY(weft_agree_texts(&a, "the job", n, text));        "batch is 8", ... in order
 *     WEFT_TRY(weft_agree_programs(&a, program));
 *
 * Where they agree, that is a gather of a few bytes a rank (of programs: of their calls, some
 * KB); only where they do not, they look for the first difference together.
 * WEFT_ERR_ARG: what differs first, between which ranks.  All ranks have that line, and none
 * leaves before the others do. */
#ifndef WEFT_SESSION_AGREE_H
#define WEFT_SESSION_AGREE_H

#include "comm/comm.h"
#include "program/program.h"

typedef struct weft_agree {
    weft_comm       *comm;
    weft_comm_group *group; /* all ranks, in order */
} weft_agree;

/* n lines of text at each rank.  what: "the plan". */
weft_status weft_agree_texts(const weft_agree *a, const char *what, int n,
                             const char *const *text);

/* Every collective and message of a step: the same calls in the same order at all that take part,
 * and no rank waits in one call for another that waits for it elsewhere (looked at where all
 * calls together are below 64 MB). */
weft_status weft_agree_programs(const weft_agree *a, const weft_program *p);

/* An error that every rank has in the same words: returns when all of them have got so far. */
weft_status weft_agree_refuse(const weft_agree *a, weft_status st);

/* What came of something that every rank did: st, with its words.  everywhere: it failed at all
 * of them, and all know. */
weft_status weft_agree_outcome(const weft_agree *a, weft_status st, bool *everywhere);

#endif
