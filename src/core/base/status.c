/* The error text of a thread: one line, cut at the end of its buffer. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_SIZE = 1024
};

static _Thread_local char error_text[TEXT_SIZE];

const char *weft_error_text(void)
{
    return error_text;
}

const char *weft_status_name(weft_status st)
{
    switch (st) {
    case WEFT_OK: return "ok";
    case WEFT_AGAIN: return "in progress";
    case WEFT_ERR_ARG: return "bad argument";
    case WEFT_ERR_MEM: return "out of memory";
    case WEFT_ERR_IO: return "input/output error";
    case WEFT_ERR_FULL: return "no space left";
    case WEFT_ERR_PEER: return "peer lost";
    case WEFT_ERR_NOFIT: return "does not fit";
    case WEFT_ERR_NUMERIC: return "not finite";
    case WEFT_ERR_INTERNAL: return "internal error";
    }
    return "unknown status";
}

/* What users give us may hold newlines and control characters; a message is one line. */
static void keep_one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f) *s = ' ';
}

/* Formats before writing, as an argument may be weft_error_text() itself. */
weft_status weft_fail(weft_status st, const char *fmt, ...)
{
    char    buf[TEXT_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    keep_one_line(buf);
    memcpy(error_text, buf, sizeof buf);
    return st;
}

weft_status weft_fail_in(weft_status st, const char *fmt, ...)
{
    char    buf[TEXT_SIZE];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n >= 0 && n < TEXT_SIZE)
        snprintf(buf + n, sizeof buf - (size_t)n, "%s", error_text);
    keep_one_line(buf);
    memcpy(error_text, buf, sizeof buf);
    return st;
}
