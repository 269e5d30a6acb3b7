#include "cli/build.h"

#include <stdio.h>
#include <weft/base.h>

static char build_text[120] = WEFT_VERSION;

void weft_cli_set_commit(const char *commit)
{
    snprintf(build_text, sizeof build_text, "%s%s%s", WEFT_VERSION, *commit ? " " : "",
             commit);
}

const char *weft_cli_commit(void)
{
    size_t version = sizeof WEFT_VERSION - 1;
    return build_text + version + (build_text[version] == ' ');
}

const char *weft_cli_build(void)
{
    return build_text;
}
