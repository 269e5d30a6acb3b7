/* Preloaded, for logf, which attention calls in every step.  Once the file HANG_FILE is there, the
 * next caller removes it and never returns; once NAN_FILE is there, it removes it and gets NaN;
 * once EXIT_FILE is there, it removes it and its process exits with 3.  In rank SLOW_RANK, and
 * while the file SLOW_FILE is there, one call in 16 takes SLOW_US microseconds (200) of a core. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_slow(void)
{
    const char *slow = getenv("SLOW_RANK"), *rank = getenv("WEFT_RANK");
    const char *file = getenv("SLOW_FILE");
    if (file && !access(file, F_OK)) return 1;
    return slow && rank && !strcmp(slow, rank);
}

static void be_slow(void)
{
    const char     *us = getenv("SLOW_US");
    long            ns = us ? atol(us) * 1000 : 200000;
    static unsigned n_call;
    if (n_call++ % 16 || !is_slow()) return;
    struct timespec from, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}

/* Is the file there that a variable names?  Of all callers one is told so. */
static int take_file(const char *variable)
{
    const char *file = getenv(variable);
    return file && !access(file, F_OK) && !unlink(file);
}

float logf(float x)
{
    static float (*real)(float);
    if (take_file("HANG_FILE"))
        for (volatile int forever = 1; forever;) continue;
    if (take_file("EXIT_FILE")) _exit(3);
    if (take_file("NAN_FILE")) return NAN;
    be_slow();
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "logf");
    return real(x);
}
