/* What two ends of a control connection say of themselves first, and what they make of it.
 *
 *     weft_control_hello_print(&self, &text);                    the bytes that are sent
 *     WEFT_TRY(weft_control_hello_parse(data, bytes, &other));
 *     if (!weft_control_hello_admits(&self, &other, text, sizeof text)) ..refused: text says why
 *
 * Lines of "key value".  Keys that are not known are skipped, so that a newer build can say more
 * to an older one; the wire version says whether they understand each other at all. */
#ifndef WEFT_CONTROL_HELLO_H
#define WEFT_CONTROL_HELLO_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"

enum {
    WEFT_CONTROL_WIRE       = 4,   /* version of frames and of what agents send in them */
    WEFT_CONTROL_NAME       = 128, /* bytes of a value, its NUL with it */
    WEFT_CONTROL_KEYS       = 5000, /* bytes of the job's keys, their NUL with them */
    WEFT_CONTROL_HELLO_MOST = 8192, /* bytes of a hello */
};

typedef enum weft_control_role {
    WEFT_CONTROL_AGENT, /* of a host of the job */
    WEFT_CONTROL_TOOL,  /* weft status, events, scale, drain */
} weft_control_role;

typedef struct weft_control_hello {
    weft_control_role role;
    uint32_t          wire;      /* 0 when it is printed: WEFT_CONTROL_WIRE */
    bool              invariant; /* reduction: invariant, the same bits on every host */
    /* Empty in a tool's: any job. */
    char job[WEFT_CONTROL_NAME];
    char host[WEFT_CONTROL_NAME];
    char build[WEFT_CONTROL_NAME];   /* as weft --version prints it: version and commit */
    char kernels[WEFT_CONTROL_NAME]; /* the kernel set that computes the job's numbers */
    /* Lines "batch is 8", each with its end, in the order of both sides: what a refusal names where
     * `job` differs.  What does not fit is left out. */
    char keys[WEFT_CONTROL_KEYS];
} weft_control_hello;

void weft_control_hello_print(const weft_control_hello *h, weft_text *out);
/* WEFT_ERR_ARG: it is no hello. */
weft_status weft_control_hello_parse(const void *data, size_t bytes,
                                     weft_control_hello *out);

/* May these two work together?  false: text says why not, as a sentence that fits both sides'
 * logs.  true: text is empty, or a warning (another build under reduction: fixed).  Symmetric. */
bool weft_control_hello_admits(const weft_control_hello *a, const weft_control_hello *b,
                               char *text, size_t size);

#endif
