/* Words to people on standard error: log lines, and a progress line on a terminal.
 *
 *     2026-11-15 01:02:03 INFO step 100 of 200: loss 2.31
 */
#ifndef WEFT_SESSION_SAY_H
#define WEFT_SESSION_SAY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_say {
    bool   quiet; /* warnings only */
    bool   mute;  /* nothing: another rank writes the log */
    bool   progress;
    bool   line_open; /* a progress line stands on the terminal */
    double last_s;    /* when it was last drawn */
} weft_say;

void weft_say_info(weft_say *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void weft_say_warn(weft_say *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct weft_say_progress {
    int64_t step, steps;
    double  loss, tokens_per_s;
    double  share; /* of the machine's peak; 0: not known */
    double  step_s;
} weft_say_progress;

/* Draws the line, at most ten times a second and at the last step. */
void weft_say_step(weft_say *s, const weft_say_progress *p);
void weft_say_end(weft_say *s); /* leaves the last line standing */

#endif
