/* A tool's request to an agent, from connecting to the answer's end: weft status --at HOST:PORT. */
#ifndef WEFT_CONTROL_CLIENT_H
#define WEFT_CONTROL_CLIENT_H

#include "control/control.h"
#include "control/request.h"

/* A part of the answer, as it comes. */
typedef void (*weft_control_answer_fn)(void *arg, bool error, const void *text, size_t n);

/* Waits for the answer's end; timeout_s 0: as long as it takes.  o: token or certificates; its self
 * is filled in.  *code: the exit code that the agent gave.
 * WEFT_ERR_PEER: no answer; the text names the address and the reason. */
weft_status weft_control_ask_agent(const weft_control_options *o, const char *at,
                                   const weft_control_request *r, double timeout_s,
                                   weft_control_answer_fn answer, void *arg, int *code);

/* One of several agents that are asked the same. */
typedef struct weft_control_reply {
    bool answered; /* to its end, with exit code 0 */
    /* of who is there, where it proved the token; else wire is 0 */
    weft_control_hello hello;
    weft_text          text;     /* its standard output; the caller's */
    char               why[200]; /* there is no answer */
} weft_control_reply;

/* All at once, for at most timeout_s; reply: n, zeroed.  WEFT_ERR_ARG: of o alone. */
weft_status weft_control_ask_agents(const weft_control_options *o, int n,
                                    const char *const *at, const weft_control_request *r,
                                    double timeout_s, weft_control_reply *reply);

#endif
