/* Somebody who only sleeps, a little at a time: how late it wakes up says how far the machine can
 * be trusted with time just now.
 *
 *     test_watch w;
 *     test_watch_start(&w);
 *     ...
 *     double late_s = test_watch_stop(&w);
 */
#ifndef TEST_SUPPORT_WATCH_H
#define TEST_SUPPORT_WATCH_H

#include <pthread.h>
#include <stdatomic.h>

/* Later than this and a measurement counts for nothing. */
#define TEST_WATCH_TRUST_S 8e-3

typedef struct test_watch {
    pthread_t   thread;
    atomic_bool stop;
    double      late_s;
    double      waited_s; /* for a core, all threads together; valid after stop */
} test_watch;

void   test_watch_start(test_watch *w);
double test_watch_stop(test_watch *w);

#endif
