/* Preloaded: once the file HANG_FILE is there, whoever next calls logf (attention does, in every
 * step) removes it and never returns. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

float logf(float x);

float logf(float x)
{
    static float (*real)(float);
    const char  *file = getenv("HANG_FILE");
    if (file && !access(file, F_OK) && !unlink(file))
        for (volatile int forever = 1; forever;) continue;
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "logf");
    return real(x);
}
