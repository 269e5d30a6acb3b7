/* What a tool asks of an agent over a control connection, as text: lines of "key value".
 *
 * A tool sends one REQUEST; the agent answers with OUT and ERR (what goes to the tool's standard
 * output and standard error) and one END (the exit code).  Frames of agents among each other have
 * kinds from WEFT_CONTROL_OF_AGENTS on. */
#ifndef WEFT_CONTROL_REQUEST_H
#define WEFT_CONTROL_REQUEST_H

#include "control/hello.h"

typedef enum weft_control_tool_frame {
    WEFT_CONTROL_REQUEST = 1,
    WEFT_CONTROL_OUT,
    WEFT_CONTROL_ERR,
    WEFT_CONTROL_END, /* one byte: the exit code */
    WEFT_CONTROL_OF_AGENTS = 16,
} weft_control_tool_frame;

typedef enum weft_control_ask {
    WEFT_CONTROL_STATUS,
    WEFT_CONTROL_EVENTS,
    WEFT_CONTROL_SCALE, /* n */
    WEFT_CONTROL_DRAIN, /* host */
    WEFT_CONTROL_STATE, /* what the agent sees of the job, as JSON */
    WEFT_N_CONTROL_ASK
} weft_control_ask;

typedef struct weft_control_request {
    weft_control_ask ask;
    bool             json, follow; /* STATUS, EVENTS */
    int64_t          n;
    char             host[WEFT_CONTROL_NAME];
} weft_control_request;

/* Does it leave the job as it is?  A token that only reads opens these alone. */
bool        weft_control_request_reads(const weft_control_request *r);
const char *weft_control_ask_name(weft_control_ask ask); /* "status" */
void        weft_control_request_print(const weft_control_request *r, weft_text *out);
/* WEFT_ERR_ARG: it is none, or one of a newer version. */
weft_status weft_control_request_parse(const void *data, size_t bytes,
                                       weft_control_request *out);

#endif
