#include "session/brief.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_HEAD = 256
};

static const char FORM[] =
    "weft brief 2\nmicro_batch %lld\nlanes %lld\nreduction %s\nplan %zu ahead %zu\n";

void weft_brief_print(const weft_brief *b, weft_text *out)
{
    weft_text_add(out, FORM, (long long)b->micro_batch, (long long)b->lanes, b->reduction,
                  b->plan_bytes, b->ahead_bytes);
    if (b->plan_bytes) weft_text_put(out, b->plan, b->plan_bytes);
    if (b->ahead_bytes) weft_text_put(out, b->ahead, b->ahead_bytes);
}

/* Printing what was read has to give the same bytes. */
static bool is_head(const weft_brief *b, const char *head, size_t n)
{
    char again[MAX_HEAD];
    int  m = snprintf(again, sizeof again, FORM, (long long)b->micro_batch,
                      (long long)b->lanes, b->reduction, b->plan_bytes, b->ahead_bytes);
    return m > 0 && (size_t)m == n && !memcmp(again, head, n);
}

weft_status weft_brief_parse(const char *bytes, size_t n, weft_brief *out)
{
    char       head[MAX_HEAD];
    size_t     size  = n < sizeof head - 1 ? n : sizeof head - 1;
    long long  micro = 0, lanes = 0;
    int        at = 0;
    weft_brief b  = {0};
    memcpy(head, bytes, size);
    head[size] = 0;
    if (sscanf(head,
               "weft brief 2\nmicro_batch %18lld\nlanes %18lld\nreduction %15s\nplan "
               "%18zu ahead %18zu%n",
               &micro, &lanes, b.reduction, &b.plan_bytes, &b.ahead_bytes, &at) != 5)
        return WEFT_FAIL(WEFT_ERR_ARG, "this is no brief of a running job");
    b.micro_batch = micro;
    b.lanes       = lanes;
    at++; /* the end of the line */
    if ((size_t)at > size || !is_head(&b, head, (size_t)at) ||
        b.plan_bytes + b.ahead_bytes != n - (size_t)at || micro < 1 || lanes < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "the brief of the running job is out of range");
    b.plan  = bytes + at;
    b.ahead = b.plan + b.plan_bytes;
    *out    = b;
    return WEFT_OK;
}
