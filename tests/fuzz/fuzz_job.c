/* A job file of any bytes, as YAML and as JSON: read or refused, and what was read prints and
 * reads back. */
#include <stdint.h>
#include <stdlib.h>

#include "job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void one(const char *file, const char *p, size_t n)
{
    weft_job *j = NULL, *k = NULL;
    weft_text t = {0};
    if (weft_job_parse(file, p, n, 0, NULL, &j) != WEFT_OK) return;
    weft_job_print(j, &t);
    if (weft_job_parse("back.json", t.s, t.n, 0, NULL, &k) != WEFT_OK) abort();
    weft_text_fini(&t);
    weft_job_destroy(j);
    weft_job_destroy(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    one("fuzz.yaml", (const char *)p, n);
    one("fuzz.json", (const char *)p, n);
    return 0;
}
