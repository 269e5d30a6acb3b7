/* Errors are values: how a function says that and why it failed.
 *
 *     WEFT_TRY(f());                 nothing held yet: return f's status if it is not OK
 *     WEFT_GO(f());                  something held: st = status, goto out
 *     return WEFT_FAIL(WEFT_ERR_ARG, "%s: %ld heads do not divide %ld", file, h, d);
 *     WEFT_GO(WEFT_FAIL(...));
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include "weft/base.h"

/* Writes this thread's error text and gives st back.  */
weft_status weft_fail(weft_status st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts words in front of the text of the error being passed on ("job.yaml: ..."). */
weft_status weft_fail_in(weft_status st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#define WEFT_FAIL(st, ...) weft_fail((st), __VA_ARGS__)

#define WEFT_TRY(call)                                                                   \
    do {                                                                                 \
        weft_status try_st_ = (call);                                                    \
        if (try_st_ != WEFT_OK) return try_st_;                                          \
    } while (0)

#define WEFT_GO(call)                                                                    \
    do {                                                                                 \
        st = (call);                                                                     \
        if (st != WEFT_OK) goto out;                                                     \
    } while (0)

#define WEFT_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
