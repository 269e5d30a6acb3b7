/* The run that has last written an output folder: does it still run?
 *
 *     weft_launch_living x;
 *     weft_launch_find_living(&options, &x);
 *     if (x.n) ..             those agents of its newest view answer, and have not left it
 *
 * Asked before a run begins: that one is joined, or this one refused.  Agents of this host are
 * asked by their local sockets, others over the control plane, all at once; one that does not
 * answer within 3 s is taken to be gone (lock and `epoch` keep two runs apart: session/fence.c). */
#ifndef WEFT_LAUNCH_LIVING_H
#define WEFT_LAUNCH_LIVING_H

#include "base/doc.h"
#include "launch/launch.h"
#include "member/view.h"

enum {
    WEFT_LAUNCH_LIVING = 16 /* agents that are asked at most: of a view the first ones */
};

typedef struct weft_launch_living {
    int     n;
    char    at[WEFT_LAUNCH_LIVING][WEFT_MEMBER_NAME]; /* their addresses */
    char    names[400];                               /* "host0 at 10.0.0.1:29400, .." */
    int64_t view, step; /* the newest that one of them knows */
} weft_launch_living;

/* The newest view of the job, as views.jsonl has it; the caller's.  false: there is none. */
bool weft_launch_find_last_view(const char *dir, weft_doc **out);
/* The largest number of a view in the files `epoch` and views.jsonl there; 0: there is none. */
int64_t weft_launch_newest_epoch(const char *dir);
/* o: output, and token or certificates, without which other hosts are not asked.  listed: n
 * addresses where a run may be as well. */
void weft_launch_find_living(const weft_launch_options *o, int                     n,
                             char (*listed)[WEFT_MEMBER_NAME], weft_launch_living *out);
/* "OUTPUT: a run of 2 hosts writes there (..; view 4, step 1500)" */
void weft_launch__describe_living(const weft_launch_living *x, const char *output,
                                  char *text, size_t size);
/* For runs that cannot join: WEFT_ERR_ARG names those that run there, and their step. */
weft_status weft_launch_refuse_living(const weft_launch_options *o);

/* What listens at an address. */
typedef struct weft_launch_listener {
    bool               is_agent;  /* of weft, with the same token */
    bool               is_job;    /* and it says how its job is: */
    weft_control_hello hello;     /* is_agent */
    char               state[32]; /* "running" */
    char               output[256];
    int64_t            view, step; /* -1: not known */
    /* this host's, where the other has another one, else "" */
    char build[WEFT_CONTROL_NAME], kernels[WEFT_CONTROL_NAME];
    char why[200]; /* is_agent false */
} weft_launch_listener;

/* build: of this program, as weft --version has it.  WEFT_ERR_ARG: no token. */
weft_status weft_launch_ask_listener(const char *at, const weft_comm_token_options *token,
                                     const char *build, weft_launch_listener *out);

#endif
