/* A growing string: what every _print writes into.
 *
 *     weft_text t = {0};
 *     weft_text_add(&t, "%s: %d\n", name, n);
 *     ...
 *     weft_text_fini(&t);
 */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include <stdbool.h>

#include "base/status.h"

typedef struct weft_text {
    char  *s; /* NUL-terminated, or NULL while empty */
    size_t n;
    size_t cap;
    int    failed; /* memory ran out: what was added since is lost */
} weft_text;

void weft_text_add(weft_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void weft_text_put(weft_text *t, const char *s, size_t n);
/* The shortest decimal that reads back as exactly x ("0.1", "1e-05", "3"). */
void weft_text_put_double(weft_text *t, double x);
/* , "key": x as one more member of a JSON map; null where x is not finite: JSON has no other word
 * for it. */
void weft_text_put_member(weft_text *t, const char *key, double x);
void weft_text_put_string_member(weft_text *t, const char *key, const char *s);
/* s between double quotes with JSON's escapes. */
void        weft_text_put_quoted(weft_text *t, const char *s);
weft_status weft_text_status(const weft_text *t); /* WEFT_ERR_MEM once an add failed */
void        weft_text_fini(weft_text *t);

#define WEFT_TEXT_COUNT 32
/* 1234567 as "1,234,567" into buf; gives buf. */
const char *weft_text_count(int64_t n, char buf[WEFT_TEXT_COUNT]);

/* The whole of s as a decimal number ("1e-05", "-3", "inf", "nan"), whatever the locale; false
 * when it is none.  What is too large reads as infinity. */
bool weft_text_read_double(const char *s, double *out);

#endif
