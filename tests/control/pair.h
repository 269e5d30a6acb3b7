/* Two or more control planes of one process, served in turn, for tests. */
#ifndef WEFT_TEST_CONTROL_PAIR_H
#define WEFT_TEST_CONTROL_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/control.h"

static inline weft_comm_token token_of(uint8_t number)
{
    weft_comm_token t = {0};
    memset(t.key.byte, number, sizeof t.key.byte);
    return t;
}

static inline weft_control_hello hello_of(const char *host)
{
    weft_control_hello h = {.role = WEFT_CONTROL_AGENT, .invariant = true};
    snprintf(h.job, sizeof h.job, "gpt2");
    snprintf(h.host, sizeof h.host, "%s", host);
    snprintf(h.build, sizeof h.build, "0.1.0 1234567");
    snprintf(h.kernels, sizeof h.kernels, "avx2");
    return h;
}

static inline weft_control *open_plane(const weft_control_options *o)
{
    weft_control *c = NULL;
    if (weft_control_open(o, &c) != WEFT_OK) fail_msg("%s", weft_error_text());
    return c;
}

static inline weft_control *open_host(const char *host, const weft_comm_token *token,
                                      bool listens)
{
    return open_plane(&(weft_control_options){.listen = listens ? "127.0.0.1:0" : NULL,
                                              .token  = token,
                                              .self   = hello_of(host)});
}

static int64_t connect_planes(weft_control *from, const weft_control *to)
{
    char    at[32];
    int64_t peer = 0;
    snprintf(at, sizeof at, "127.0.0.1:%d", weft_control_port(to));
    if (weft_control_connect(from, at, weft_clock_s(), &peer) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return peer;
}

/* The next event of c, while `other` (or NULL) is served as well; events of the other stay with it.
 * false: none within limit_s. */
static inline bool await_event(weft_control *c, weft_control *other, double limit_s,
                               weft_control_event *out)
{
    double end_s = weft_clock_s() + limit_s;
    while (weft_clock_s() < end_s) {
        if (weft_control_next(c, out)) return true;
        struct pollfd p[2] = {
            {.fd = weft_control_fd(c), .events = POLLIN},
            {.fd = other ? weft_control_fd(other) : -1, .events = POLLIN}};
        (void)poll(p, 2, 10);
        weft_control_serve(c, weft_clock_s());
        if (other) weft_control_serve(other, weft_clock_s());
    }
    return false;
}

static inline void expect_event(weft_control *c, weft_control *other,
                                weft_control_event_kind kind, weft_control_event *out)
{
    if (!await_event(c, other, 30, out)) fail_msg("no event of kind %d", (int)kind);
    if (out->kind != kind)
        fail_msg("event %d, not %d: %s: %s", (int)out->kind, (int)kind, out->address,
                 out->text);
}

/* Both sides open; the peers' numbers. */
static inline void open_both(weft_control *a, weft_control *b, int64_t *of_a,
                             int64_t *of_b)
{
    weft_control_event e;
    *of_a = connect_planes(a, b);
    expect_event(a, b, WEFT_CONTROL_OPENED, &e);
    assert_true(e.peer == *of_a && e.outgoing && !*e.text);
    expect_event(b, a, WEFT_CONTROL_OPENED, &e);
    assert_true(!e.outgoing);
    *of_b = e.peer;
}

/* A stranger's socket. */
static inline int connect_raw(const weft_control *to)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port   = htons((uint16_t)weft_control_port(to))};
    a.sin_addr.s_addr    = htonl(INADDR_LOOPBACK);
    int fd               = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

#endif
