/* Short turns change nothing else of how a thread is scheduled. */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "support/test.h"
#include "base/turns.h"

typedef struct seen {
    bool taken;
    int  nice, policy;
} seen;

/* Of this thread alone, as Linux has it. */
static void *shorten(void *arg)
{
    seen *s = arg;
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
    s->taken  = weft_turns_shorten();
    s->nice   = getpriority(PRIO_PROCESS, 0);
    s->policy = sched_getscheduler(0);
    return NULL;
}

static void only_turns_change(void **state)
{
    pthread_t thread;
    seen      s    = {0};
    int       nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, shorten, &s), 0);
    pthread_join(thread, NULL);
    assert_true(s.taken || policy != SCHED_OTHER);
    assert_int_equal(s.nice, nice < 19 ? nice + 1 : nice);
    assert_int_equal(s.policy, policy);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_turns_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
