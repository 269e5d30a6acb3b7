#include "support/watch.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

static void *watch_main(void *arg)
{
    test_watch *w = arg;
    for (double t = weft_clock_s() + 0.001; !atomic_load(&w->stop); t += 0.001) {
        struct timespec ts = {.tv_sec = (time_t)t};
        ts.tv_nsec         = (long)((t - (double)ts.tv_sec) * 1e9);
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
        double late = weft_clock_s() - t;
        if (late > w->late_s) w->late_s = late;
        if (late > 0.001) t += late;
    }
    return NULL;
}

/* Seconds that the threads of this process, ended ones left out, were ready and not on a core. */
static double waited_for_cores(void)
{
    double         sum_s = 0;
    struct dirent *e;
    DIR           *d = opendir("/proc/self/task");
    while (d && (e = readdir(d))) {
        char               path[300];
        unsigned long long ran_ns, waited_ns;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%llu %llu", &ran_ns, &waited_ns) == 2)
            sum_s += 1e-9 * (double)waited_ns;
        fclose(f);
    }
    if (d) closedir(d);
    return sum_s;
}

void test_watch_start(test_watch *w)
{
    w->waited_s = waited_for_cores();
    atomic_init(&w->stop, false);
    w->late_s = 0;
    pthread_create(&w->thread, NULL, watch_main, w);
}

double test_watch_stop(test_watch *w)
{
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    w->waited_s = waited_for_cores() - w->waited_s;
    return w->late_s;
}
