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

#endif
