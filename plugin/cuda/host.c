/* Functions of the host under their own names, inside this library only: each calls through the
 * table that the plugin was given. */
#include "host.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"

enum {
    TEXT_SIZE = 1024
};

static const weft_plugin_host *host;

void weft_cuda_set_host(const weft_plugin_host *h)
{
    host = h;
}

#define HOST(result, name, parameters, arguments)                                        \
    result name parameters                                                               \
    {                                                                                    \
        return host->name arguments;                                                     \
    }
#include "plugin/host.def"
#undef HOST

weft_status weft_fail(weft_status st, const char *fmt, ...)
{
    char    text[TEXT_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return host->fail_text(st, text);
}

weft_status weft_fail_in(weft_status st, const char *fmt, ...)
{
    char    text[TEXT_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return host->fail_in_text(st, text);
}
