/* libweft_cuda.so of another build, for test_plugin: nothing of it may be called but build(). */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/plugin.h"

#ifndef STUB_NO_SYMBOL
static const char *print_build(void)
{
#ifdef STUB_ABI
    abort();
#endif
#ifdef STUB_BYTES /* a table of another size alone */
    static char text[WEFT_PLUGIN_BUILD_SIZE];
    snprintf(text, sizeof text, WEFT_PLUGIN_BUILD_FORMAT, WEFT_PLUGIN_BUILD_VALUES);
    return text;
#else
    return "weft 0.0.1, 3 operators, sizes 1 2 3";
#endif
}

static void start(const weft_plugin_host *host)
{
    (void)host;
    abort();
}

extern const weft_plugin weft_plugin_cuda;
const weft_plugin        weft_plugin_cuda = {
#ifdef STUB_ABI
    .abi = WEFT_PLUGIN_ABI + 1,
#else
    .abi = WEFT_PLUGIN_ABI,
#endif
#ifdef STUB_BYTES
    .bytes = (int)sizeof(weft_plugin) + 8,
#else
    .bytes = (int)sizeof(weft_plugin),
#endif
    .build = print_build,
    .start = start};
#else
extern const int weft_nothing;
const int        weft_nothing = 1;
#endif
