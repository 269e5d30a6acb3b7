/* The control connection of a rank: views with a descriptor, the end, what is no message. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/line.h"

static int open_line(weft_line **l)
{
    int pair[2];
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(weft_line_open(pair[1], 0, l), WEFT_OK);
    return pair[0];
}

static void send_view(int agent, uint32_t epoch)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(weft_line_put(agent,
                                   &(weft_line_message){.kind       = WEFT_LINE_VIEW,
                                                        .epoch      = epoch,
                                                        .world      = 3,
                                                        .local      = 3,
                                                        .most       = 3,
                                                        .most_local = 3,
                                                        .saves      = epoch % 2,
                                                        .restarts   = epoch == 1,
                                                        .key = {(uint8_t)epoch, 7}},
                                   fd),
                     WEFT_OK);
    close(fd);
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void the_newest_view_counts(void **state)
{
    (void)state;
    weft_line     *l;
    weft_line_view v;
    struct stat    s;
    int            agent = open_line(&l), before = 0;
    send_view(agent, 1);
    assert_int_equal(weft_line_await(l, 0, &v), WEFT_OK);
    assert_int_equal(v.epoch, 1);
    assert_int_equal(v.world, 3);
    assert_true(v.saves && v.restarts && v.key[0] == 1 && v.key[1] == 7);
    assert_int_equal(fstat(v.shm_fd, &s), 0);
    for (uint32_t epoch = 2; epoch < 200; epoch += 2) {
        send_view(agent, epoch);
        send_view(agent, epoch - 1); /* older: dropped */
        send_view(agent, epoch + 1);
        assert_int_equal(weft_line_await(l, epoch, &v), WEFT_OK);
        assert_int_equal(v.epoch, epoch + 1);
        assert_int_equal(v.key[0], (uint8_t)(epoch + 1)); /* each view has its own */
        assert_int_equal(fstat(v.shm_fd, &s), 0);
        assert_false(weft_line_has_newer(l, v.epoch));
        assert_true(weft_line_has_newer(l, epoch));
        assert_true(weft_line_shrinks(l, epoch, v.local + 1));
        assert_false(weft_line_shrinks(l, epoch, v.local));
        assert_false(weft_line_shrinks(l, v.epoch, v.local + 1));
        if (epoch == 20) before = count_descriptors();
    }
    assert_int_equal(count_descriptors(), before);
    weft_line_close(l);
    close(agent);
}

/* What is to be prepared for comes once, with a brief; a view that is there first counts. */
static void a_rank_hears_what_to_prepare(void **state)
{
    (void)state;
    weft_line        *l;
    weft_line_next    next;
    weft_line_message m = {.kind  = WEFT_LINE_PREPARE,
                           .world = 2,
                           .first = 1,
                           .local = 2, /* more than there are */
                           .text  = "1 2 "};
    char              text[8];
    int               before = count_descriptors(), fd[2];
    int               agent  = open_line(&l);
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(weft_line_put(agent, &m, fd[0]), WEFT_OK);
    m.world = 3;
    assert_int_equal(weft_line_put(agent, &m, fd[0]), WEFT_OK);
    m.world = 5; /* no second time */
    assert_int_equal(weft_line_put(agent, &m, fd[0]), WEFT_OK);
    close(fd[0]);
    assert_int_equal(write(fd[1], "brief", 5), 5);
    close(fd[1]);
    assert_true(weft_line_is_to_prepare(l, &next));
    assert_int_equal(next.world, 3);
    assert_int_equal(next.first, 1);
    assert_int_equal(next.local, 2);
    assert_string_equal(next.hosts, "1 2 ");
    assert_int_equal(read(next.brief_fd, text, sizeof text), 5);
    send_view(agent, 1);
    weft_line_view v;
    assert_int_equal(weft_line_await(l, 0, &v), WEFT_OK);
    assert_false(weft_line_is_to_prepare(l, &next));
    weft_line_close(l);
    close(agent);
    assert_int_equal(count_descriptors(), before);
}

/* A rank that stays is asked in a view, each time anew; what a new view makes old is forgotten. */
static void a_rank_that_stays_is_asked(void **state)
{
    (void)state;
    weft_line        *l;
    weft_line_view    v;
    weft_line_next    next;
    weft_line_message m      = {.kind = WEFT_LINE_PREPARE, .local = 2};
    int               before = count_descriptors();
    int               agent = open_line(&l), fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    send_view(agent, 1);
    assert_int_equal(weft_line_await(l, 0, &v), WEFT_OK);
    assert_false(weft_line_take_next(l, &next));
    for (m.world = 2; m.world < 20; m.world++) {
        assert_int_equal(weft_line_put(agent, &m, m.world % 3 ? fd : -1), WEFT_OK);
        while (!weft_line_take_next(l, &next)) usleep(100);
        assert_int_equal(next.world, m.world);
        assert_int_equal(next.brief_fd >= 0, m.world % 3 != 0);
        if (next.brief_fd >= 0) close(next.brief_fd);
        assert_false(weft_line_take_next(l, &next)); /* once */
    }
    assert_int_equal(weft_line_put(agent, &m, fd), WEFT_OK);
    send_view(agent, 2);
    assert_int_equal(weft_line_await(l, 1, &v), WEFT_OK);
    assert_false(weft_line_take_next(l, &next));
    assert_int_equal(weft_line_put(agent, &m, fd), WEFT_OK); /* it is not taken */
    weft_line_close(l);
    close(agent);
    close(fd);
    assert_int_equal(count_descriptors(), before);
}

static void the_end_ends_every_wait(void **state)
{
    (void)state;
    weft_line     *l;
    weft_line_view v;
    int            agent = open_line(&l);
    send_view(agent, 1);
    weft_line_put(agent, &(weft_line_message){.kind = WEFT_LINE_END, .text = "enough"},
                  -1);
    assert_int_equal(weft_line_await(l, 1, &v), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_text(), "enough"));
    weft_line_close(l);
    close(agent);
    agent = open_line(&l);
    close(agent); /* the agent was killed */
    assert_int_equal(weft_line_await(l, 0, &v), WEFT_ERR_PEER);
    weft_line_close(l);
}

static void what_is_no_message_closes_the_line(void **state)
{
    (void)state;
    weft_line        *l;
    weft_line_message m;
    char              bad[sizeof m] = "no message";
    int               agent         = open_line(&l), fd;
    weft_line_end     end;
    assert_false(weft_line_take(agent, &m, &fd, &end)); /* nothing is there */
    assert_int_equal(end, WEFT_LINE_OPEN);
    weft_line_send(l, &(weft_line_message){.kind = WEFT_LINE_READY, .step = 7});
    assert_true(weft_line_take(agent, &m, &fd, &end));
    assert_int_equal(m.kind, WEFT_LINE_READY);
    assert_int_equal(m.step, 7);
    weft_line_close(l);
    assert_false(weft_line_take(agent, &m, &fd, &end));
    assert_int_equal(end, WEFT_LINE_GONE);
    close(agent);
    for (size_t n = 1; n <= sizeof bad; n += sizeof bad - 1) {
        weft_line_view v;
        agent = open_line(&l);
        assert_int_equal(send(agent, bad, n, 0), (ssize_t)n);
        assert_int_equal(weft_line_await(l, 0, &v), WEFT_ERR_PEER);
        assert_non_null(strstr(weft_error_text(), "weft run sent what is no message"));
        weft_line_close(l);
        close(agent);
        int pair[2]; /* the agent's end */
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        assert_int_equal(send(pair[0], bad, n, 0), (ssize_t)n);
        assert_false(weft_line_take(pair[1], &m, &fd, &end));
        assert_int_equal(end, WEFT_LINE_GARBAGE);
        close(pair[0]);
        close(pair[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_view_counts),
        cmocka_unit_test(a_rank_hears_what_to_prepare),
        cmocka_unit_test(a_rank_that_stays_is_asked),
        cmocka_unit_test(the_end_ends_every_wait),
        cmocka_unit_test(what_is_no_message_closes_the_line),
    };
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
