#include "support/watch.h"

#include <stdbool.h>
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

void test_watch_start(test_watch *w)
{
    atomic_init(&w->stop, false);
    w->late_s = 0;
    pthread_create(&w->thread, NULL, watch_main, w);
}

double test_watch_stop(test_watch *w)
{
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    return w->late_s;
}
