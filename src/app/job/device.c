/* The `device` key. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

enum {
    MAX_NUMBER = 1023
};

static weft_status fail_to_parse(const char *where, const char *text, size_t n)
{
    bool gpu = n >= 3 && (!strncmp(text, "gpu", 3) || !strncmp(text, "GPU", 3));
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: device is cpu, cuda, cuda:N or auto, not '%.*s'%s", where,
                     (int)(n < 40 ? n : 40), text, gpu ? ": a GPU is cuda" : "");
}

/* One entry of the list. */
static weft_status parse_entry(const char *where, const char *text, size_t n,
                               weft_job_device *out)
{
    static const char *const names[] = {"cpu", "cuda", "auto"};
    *out                             = (weft_job_device){.number = -1};
    for (size_t i = 0; i < WEFT_COUNT(names); i++)
        if (strlen(names[i]) == n && !strncmp(text, names[i], n)) {
            snprintf(out->name, sizeof out->name, "%s", names[i]);
            return WEFT_OK;
        }
    if (n < 6 || n > 9 || strncmp(text, "cuda:", 5) != 0)
        return fail_to_parse(where, text, n);
    out->number = 0;
    for (size_t i = 5; i < n; i++) {
        if (!isdigit((unsigned char)text[i])) return fail_to_parse(where, text, n);
        out->number = out->number * 10 + (text[i] - '0');
    }
    if (out->number > MAX_NUMBER) return fail_to_parse(where, text, n);
    snprintf(out->name, sizeof out->name, "cuda");
    return WEFT_OK;
}

weft_status weft_job_parse_device(const char *where, const char *list, int local_rank,
                                  int local_world, weft_job_device *out)
{
    int n = 1;
    for (const char *p = list; *p; p++) n += *p == ',';
    if (n > 1 && n != local_world)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: device %s names %d devices, and a host has %d rank%s: give "
                         "one for each, or one for all",
                         where, list, n, local_world, local_world > 1 ? "s" : "");
    for (int i = 0; n > 1 && i < local_rank; i++) list = strchr(list, ',') + 1;
    return parse_entry(where, list, strcspn(list, ","), out);
}
