/* The page of a read-only server: right and wrong requests, connections that say nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/http.h"

static void requests_by_their_bytes(void **state)
{
    static const struct {
        const char *text;
        int         status;
    } list[] = {
        {"", 0},
        {"GET /metrics HTTP/1.1\r\n", 0},
        {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200},
        {"GET / HTTP/1.0\r\n\r\n", 200},
        {"GET /metrics?x=1 HTTP/1.1\r\n\r\n", 200},
        {"GET /metrics/ HTTP/1.1\r\n\r\n", 404},
        {"GET  HTTP/1.1\r\n\r\n", 404},
        {"POST /metrics HTTP/1.1\r\n\r\n", 405},
        {"GET /metrics\r\n\r\n", 400},
        {"GET HTTP/1.1 and more\r\n\r\n", 400}, /* found by fuzz_http */
        {"\r\n\r\n", 400},
        {"hello\r\n\r\n", 400},
    };
    (void)state;
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        if (weft_http_read_request(list[k].text, strlen(list[k].text)) != list[k].status)
            fail_msg("%s: not %d", list[k].text, list[k].status);
    char much[4096];
    memset(much, 'x', sizeof much);
    assert_int_equal(weft_http_read_request(much, sizeof much - 1), 0);
    assert_int_equal(weft_http_read_request(much, sizeof much), 400);
}

static void write_page(void *arg, weft_text *t)
{
    ++*(int *)arg;
    for (int k = 0; k < 20000; k++)
        weft_text_add(t, "line %d\n", k); /* more than a socket holds */
}

static int connect_to(const weft_http *h)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port   = htons((uint16_t)weft_http_port(h))};
    a.sin_addr.s_addr    = htonl(INADDR_LOOPBACK);
    int fd               = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* The whole answer, while the server is served. */
static size_t read_answer(weft_http *h, int fd, char *text, size_t size)
{
    size_t n = 0;
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                              {.fd = weft_http_fd(h), .events = POLLIN}};
        assert_true(poll(p, 2, 10000) > 0);
        if (p[1].revents) weft_http_serve(h, weft_clock_s());
        if (!p[0].revents) continue;
        ssize_t got = recv(fd, text + n, size - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    text[n] = 0;
    return n;
}

static void a_page_is_served(void **state)
{
    static char text[1 << 19];
    int         pages = 0;
    weft_http  *h;
    (void)state;
    assert_int_equal(weft_http_open("127.0.0.1:0", write_page, &pages, &h), WEFT_OK);
    int         fd  = connect_to(h);
    const char *ask = "GET /metrics HTTP/1.1\r\n\r\n";
    assert_int_equal(send(fd, ask, 5, 0), 5); /* in two parts */
    weft_http_serve(h, weft_clock_s());
    weft_http_serve(h, weft_clock_s());
    assert_int_equal(send(fd, ask + 5, strlen(ask) - 5, 0), strlen(ask) - 5);
    read_answer(h, fd, text, sizeof text);
    close(fd);
    assert_int_equal(pages, 1);
    assert_non_null(strstr(text, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(text, "\nline 19999\n"));
    fd  = connect_to(h);
    ask = "PUT / HTTP/1.1\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), 0), strlen(ask));
    read_answer(h, fd, text, sizeof text);
    assert_non_null(strstr(text, "405 Method Not Allowed"));
    close(fd);
    weft_http_close(h);
}

/* A thousand that say nothing keep nobody out, and take no time of the loop. */
static void idle_connections_delay_nothing(void **state)
{
    enum {
        N = 1000
    };
    static int  idle[N];
    static char text[1 << 19];
    int         pages = 0;
    weft_http  *h;
    (void)state;
    struct rlimit many;
    getrlimit(RLIMIT_NOFILE, &many);
    many.rlim_cur = many.rlim_max;
    setrlimit(RLIMIT_NOFILE, &many);
    assert_int_equal(weft_http_open("127.0.0.1:0", write_page, &pages, &h), WEFT_OK);
    for (int k = 0; k < N; k++) {
        idle[k] = connect_to(h);
        if (k % 100 == 99) weft_http_serve(h, weft_clock_s());
    }
    struct pollfd p = {.fd = weft_http_fd(h), .events = POLLIN};
    int           n = 0;
    while (poll(&p, 1, 0) > 0 && n++ < 1000) weft_http_serve(h, weft_clock_s());
    assert_true(n < 1000); /* nothing is left to do while they are idle */
    int         fd  = connect_to(h);
    const char *ask = "GET / HTTP/1.1\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), 0), strlen(ask));
    read_answer(h, fd, text, sizeof text);
    assert_non_null(strstr(text, "200 OK"));
    close(fd);
    for (int k = 0; k < N; k++) close(idle[k]);
    weft_http_close(h);
}

static void addresses(void **state)
{
    static const char *const bad[] = {"",
                                      "9400",
                                      ":9400",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:x",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "localhost:9400",
                                      "127.0.0.1:1:1",
                                      "127.0.0.1:000000001"};
    weft_http               *h, *other;
    char                     at[64];
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (weft_http_open(bad[k], write_page, NULL, &h) != WEFT_ERR_ARG)
            fail_msg("%s", bad[k]);
    assert_int_equal(weft_http_open("127.0.0.1:0", write_page, NULL, &h), WEFT_OK);
    snprintf(at, sizeof at, "127.0.0.1:%d", weft_http_port(h));
    assert_int_equal(weft_http_open(at, write_page, NULL, &other), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "in use"));
    weft_http_close(h);
    weft_http_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_by_their_bytes),
        cmocka_unit_test(a_page_is_served),
        cmocka_unit_test(idle_connections_delay_nothing),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
