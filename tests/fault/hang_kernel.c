/* Preloaded, for logf, which attention calls in every step.  Once the file HANG_FILE is there, the
 * next caller removes it and never returns; once NAN_FILE is there, it removes it and gets NaN.  In
 * rank SLOW_RANK one call in 16 takes SLOW_US microseconds (200) of a core. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void be_slow(void)
{
    const char     *slow = getenv("SLOW_RANK"), *rank = getenv("WEFT_RANK");
    const char     *us = getenv("SLOW_US");
    long            ns = us ? atol(us) * 1000 : 200000;
    static unsigned n_call;
    if (!slow || !rank || strcmp(slow, rank) != 0 || n_call++ % 16) return;
    struct timespec from, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}

float logf(float x)
{
    static float (*real)(float);
    const char *file = getenv("HANG_FILE"), *nan_file = getenv("NAN_FILE");
    if (file && !access(file, F_OK) && !unlink(file))
        for (volatile int forever = 1; forever;) continue;
    if (nan_file && !access(nan_file, F_OK) && !unlink(nan_file)) return NAN;
    be_slow();
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "logf");
    return real(x);
}
