#include "launch/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_OPEN    = 64,
    MAX_REQUEST = 4096,
    MAX_ACCEPT  = 256, /* in one go: the rest of the loop has its turn */
};
static const double LIMIT_S = 2;

typedef struct connection {
    int       fd; /* -1: free */
    double    begun_s;
    char      in[MAX_REQUEST];
    size_t    n_in;
    weft_text out;
    size_t    sent;
} connection;

struct weft_http {
    int               listener, epoll, port;
    weft_http_page_fn page;
    void             *arg;
    connection        c[MAX_OPEN];
};

/* ---- requests ---- */

int weft_http_read_request(const char *text, size_t n)
{
    static const char get[] = "GET ";
    const char       *end   = memmem(text, n, "\r\n\r\n", 4);
    const char       *line  = memchr(text, '\n', n);
    if (!end) return n >= MAX_REQUEST ? 400 : 0;
    size_t length = (size_t)(line - text);
    if (length < 14 || memchr(text, 0, length)) return 400;
    const char *path    = text + 4;
    const char *version = memmem(path, length - 4, " HTTP/1.", 8);
    if (!version) return 400;
    if (memcmp(text, get, 4) != 0) return 405;
    size_t      n_path = (size_t)(version - path);
    const char *query  = memchr(path, '?', n_path);
    if (query) n_path = (size_t)(query - path);
    bool known =
        (n_path == 1 && *path == '/') || (n_path == 8 && !memcmp(path, "/metrics", 8));
    return known ? 200 : 404;
}

static const char *name_status(int status)
{
    return status == 200   ? "200 OK"
           : status == 404 ? "404 Not Found"
           : status == 405 ? "405 Method Not Allowed"
                           : "400 Bad Request";
}

static void answer(weft_http *h, connection *c, int status)
{
    weft_text body = {0};
    if (status == 200)
        h->page(h->arg, &body);
    else
        weft_text_add(&body, "%s\n", name_status(status));
    weft_text_add(&c->out,
                  "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; "
                  "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  name_status(status), body.n);
    weft_text_put(&c->out, body.s, body.n);
    weft_text_fini(&body);
}

/* ---- connections ---- */

static void end_connection(connection *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd   = -1;
    c->n_in = c->sent = 0;
    weft_text_fini(&c->out);
    c->out = (weft_text){0};
}

static connection *find_place(weft_http *h)
{
    connection *oldest = &h->c[0];
    for (int k = 0; k < MAX_OPEN; k++) {
        if (h->c[k].fd < 0) return &h->c[k];
        if (h->c[k].begun_s < oldest->begun_s) oldest = &h->c[k];
    }
    end_connection(oldest);
    return oldest;
}

static void accept_all(weft_http *h, double now_s)
{
    for (int k = 0; k < MAX_ACCEPT; k++) {
        int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        connection        *c = find_place(h);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        c->fd                = fd;
        c->begun_s           = now_s;
        if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &e)) end_connection(c);
    }
}

static void write_more(weft_http *h, connection *c)
{
    while (c->sent < c->out.n) {
        ssize_t n = send(c->fd, c->out.s + c->sent, c->out.n - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
            if (epoll_ctl(h->epoll, EPOLL_CTL_MOD, c->fd, &e)) break;
            return;
        }
        if (n <= 0) break;
        c->sent += (size_t)n;
    }
    end_connection(c);
}

static void read_more(weft_http *h, connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->n_in, sizeof c->in - c->n_in, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        end_connection(c);
        return;
    }
    c->n_in += (size_t)n;
    int status = weft_http_read_request(c->in, c->n_in);
    if (!status) return;
    answer(h, c, status);
    write_more(h, c);
}

void weft_http_serve(weft_http *h, double now_s)
{
    struct epoll_event e[MAX_OPEN + 1];
    int                n    = epoll_wait(h->epoll, e, MAX_OPEN + 1, 0);
    bool               more = false;
    for (int k = 0; k < n; k++) {
        connection *c = e[k].data.ptr;
        if (!c)
            more = true;
        else if (c->fd >= 0 && c->out.n)
            write_more(h, c);
        else if (c->fd >= 0)
            read_more(h, c);
    }
    for (int k = 0; k < MAX_OPEN; k++)
        if (h->c[k].fd >= 0 && now_s - h->c[k].begun_s > LIMIT_S)
            end_connection(&h->c[k]);
    if (more) accept_all(h, now_s);
}

/* ---- the listener ---- */

static weft_status split_address(const char *at, char *host, size_t n_host, char *port,
                                 size_t n_port)
{
    const char *colon = strrchr(at, ':');
    size_t      n     = colon ? (size_t)(colon - at) : 0;
    if (n >= 2 && at[0] == '[' && at[n - 1] == ']') at++, n -= 2;
    char *end;
    long  number = colon && colon[1] ? strtol(colon + 1, &end, 10) : -1;
    if (!n || n >= n_host || number < 0 || number > 65535 || *end || strlen(colon) > 6)
        return WEFT_FAIL(WEFT_ERR_ARG, "--metrics: ADDR:PORT, as 127.0.0.1:9400");
    snprintf(host, n_host, "%.*s", (int)n, at);
    snprintf(port, n_port, "%ld", number);
    return WEFT_OK;
}

static weft_status listen_at(const char *at, int *fd)
{
    char             host[64], port[8];
    struct addrinfo *a    = NULL,
                    hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags    = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    WEFT_TRY(split_address(at, host, sizeof host, port, sizeof port));
    if (getaddrinfo(host, port, &hints, &a))
        return WEFT_FAIL(WEFT_ERR_ARG, "--metrics: %s is no address in numbers", host);
    int on = 1;
    *fd    = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0) setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool fine = *fd >= 0 && !bind(*fd, a->ai_addr, a->ai_addrlen) && !listen(*fd, 128);
    int  why  = errno;
    freeaddrinfo(a);
    if (fine) return WEFT_OK;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return WEFT_FAIL(WEFT_ERR_ARG, "--metrics: %s: %s", at, strerror(why));
}

static int find_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t               n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)&a)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)&a)->sin_port);
}

weft_status weft_http_open(const char *at, weft_http_page_fn page, void *arg,
                           weft_http **out)
{
    weft_http *h = calloc(1, sizeof *h);
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    h->page     = page;
    h->arg      = arg;
    h->listener = h->epoll = -1;
    for (int k = 0; k < MAX_OPEN; k++) h->c[k].fd = -1;
    weft_status        st = listen_at(at, &h->listener);
    struct epoll_event e  = {.events = EPOLLIN};
    if (st == WEFT_OK) {
        h->port  = find_port(h->listener);
        h->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (h->epoll < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->listener, &e))
            st = WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno));
    }
    if (st == WEFT_OK)
        *out = h;
    else
        weft_http_close(h);
    return st;
}

void weft_http_close(weft_http *h)
{
    if (!h) return;
    for (int k = 0; k < MAX_OPEN; k++) end_connection(&h->c[k]);
    if (h->listener >= 0) close(h->listener);
    if (h->epoll >= 0) close(h->epoll);
    free(h);
}

int weft_http_fd(const weft_http *h)
{
    return h->epoll;
}

int weft_http_port(const weft_http *h)
{
    return h->port;
}
