/* Dumps of flight recorders (base/flight.h), one a rank, read side by side: the first collective or
 * message that some rank has begun and another one has not, or has not as the same call.
 *
 *     WEFT_TRY(weft_dumps_create(&d));
 *     WEFT_TRY(weft_dumps_add(d, "rank0.json", text, n));          each of them
 *     mismatch = weft_dumps_explain(d, &text);
 *     weft_dumps_destroy(d); */
#ifndef WEFT_LAUNCH_DUMPS_H
#define WEFT_LAUNCH_DUMPS_H

#include "base/text.h"

typedef struct weft_dumps weft_dumps;

weft_status weft_dumps_create(weft_dumps **out);
void        weft_dumps_destroy(weft_dumps *d); /* accepts NULL */
/* WEFT_ERR_ARG: it is no dump, or a second one of its rank. */
weft_status weft_dumps_add(weft_dumps *d, const char *file, const char *text, size_t n);
int         weft_dumps_count(const weft_dumps *d);
/* Lines for people; true: there is a mismatch, which is the first line. */
bool weft_dumps_explain(const weft_dumps *d, weft_text *t);

#endif
