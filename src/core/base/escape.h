/* UTF-8 and the escapes of JSON strings: what lex and doc share. */
#ifndef WEFT_BASE_ESCAPE_H
#define WEFT_BASE_ESCAPE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 sequence at p (1..4), or 0 when it is none (overlong, surrogate, cut). */
int weft_escape_utf8_length(const char *p, const char *end);

/* Writes code point c, gives the bytes written (1..4). */
int weft_escape_put_utf8(uint32_t c, char *out);

/* One escape: *p stands behind the backslash and is moved past it; surrogate pairs are two
 * escapes read as one.  Gives the bytes written to out (at most 4), 0 when it is no escape of
 * JSON's, or stands for NUL. */
int weft_escape_read(const char **p, const char *end, char *out);

#endif
