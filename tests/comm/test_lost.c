/* Who watches an end hears that a rank is lost while no call is in flight. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "support/test.h"

typedef struct listener {
    weft_comm_watcher watcher;
    atomic_int        n;
    char              why[256];
} listener;

static void hear(void *arg, const char *why)
{
    listener *l = arg;
    snprintf(l->why, sizeof l->why, "%s", why);
    atomic_fetch_add(&l->n, 1);
}

static void listen_to(weft_comm *c, listener *l)
{
    *l         = (listener){.n = 0};
    l->watcher = (weft_comm_watcher){.lost = hear, .arg = l};
    weft_comm_watch(c, &l->watcher);
}

static void local_ranks_hear(void **state)
{
    (void)state;
    weft_comm_local *world;
    weft_comm       *c[2];
    listener         a, b, gone;
    assert_ok(weft_comm_local_create(2, &world));
    for (int i = 0; i < 2; i++) assert_ok(weft_comm_local_join(world, i, 60, &c[i]));
    listen_to(c[0], &a);
    listen_to(c[0], &gone);
    listen_to(c[0], &b);
    weft_comm_unwatch(&gone.watcher);
    weft_comm_abort(c[1], "it is enough");
    assert_int_equal(atomic_load(&a.n), 1);
    assert_int_equal(atomic_load(&b.n), 1);
    assert_int_equal(atomic_load(&gone.n), 0);
    assert_string_equal(a.why, "rank 1 gave up: it is enough");
    weft_comm_unwatch(&a.watcher);
    weft_comm_unwatch(&b.watcher);
    for (int i = 0; i < 2; i++) weft_comm_destroy(c[i]);
    weft_comm_local_destroy(world);
}

/* A rank of its own process, which waits to be killed. */
static pid_t start_rank(const weft_comm_shm *w, int rank)
{
    weft_comm *c;
    pid_t      pid = fork();
    if (pid) return pid;
    if (weft_comm_shm_join(weft_comm_shm_fd(w), rank, 30, &c) != WEFT_OK) _exit(1);
    for (;;) pause();
}

static void a_killed_process_is_heard(void **state)
{
    (void)state;
    weft_comm_shm *w;
    weft_comm     *c;
    listener       l;
    assert_ok(weft_comm_shm_create(2, &w));
    pid_t pid = start_rank(w, 1);
    assert_true(pid > 0);
    assert_ok(weft_comm_shm_join(weft_comm_shm_fd(w), 0, 30, &c));
    listen_to(c, &l);
    usleep(100000); /* some rounds of the thread that watches */
    assert_int_equal(atomic_load(&l.n), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int ms = 0; ms < 20000 && !atomic_load(&l.n); ms++) usleep(1000);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(atomic_load(&l.n), 1);
    assert_string_equal(l.why, "rank 1 died: its process ended");
    weft_comm_unwatch(&l.watcher);
    weft_comm_drop(c);
    weft_comm_shm_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_ranks_hear),
        cmocka_unit_test(a_killed_process_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
