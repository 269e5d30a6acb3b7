/* HOST:PORT: read, resolved, listened at. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_priv.h"

enum {
    MAX_HOST = 256,
    BACKLOG  = 1024,
};

static weft_status split_address(const char *at, char *host, size_t n_host, char port[8])
{
    const char *colon = strrchr(at, ':');
    size_t      n     = colon ? (size_t)(colon - at) : 0;
    char       *end   = NULL;
    long        number =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    if (n >= 2 && at[0] == '[' && at[n - 1] == ']') at++, n -= 2;
    if (!n || n >= n_host || number < 0 || number > 65535 || *end)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is no HOST:PORT, as node0:29400", at);
    snprintf(host, n_host, "%.*s", (int)n, at);
    snprintf(port, 8, "%ld", number);
    return WEFT_OK;
}

static weft_status resolve(const char *at, int flags, struct sockaddr_storage *out,
                           socklen_t *n)
{
    char             host[MAX_HOST], port[8];
    struct addrinfo *a    = NULL,
                    hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags    = AI_NUMERICSERV | AI_NUMERICHOST | flags};
    WEFT_TRY(split_address(at, host, sizeof host, port));
    int rc = getaddrinfo(host, port, &hints, &a);
    if (rc) { /* no number: a name */
        hints.ai_flags = AI_NUMERICSERV | flags;
        rc             = getaddrinfo(host, port, &hints, &a);
    }
    if (rc)
        return WEFT_FAIL(WEFT_ERR_ARG, "cannot find the host of '%s': %s", at,
                         gai_strerror(rc));
    *n = a->ai_addrlen;
    memcpy(out, a->ai_addr, a->ai_addrlen);
    freeaddrinfo(a);
    return WEFT_OK;
}

weft_status weft_control__resolve(const char *at, struct sockaddr_storage *out,
                                  socklen_t *n)
{
    return resolve(at, 0, out, n);
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

weft_status weft_control__listen(const char *at, int *fd, int *port)
{
    struct sockaddr_storage a;
    socklen_t               n;
    int                     on = 1;
    WEFT_TRY(resolve(at, AI_PASSIVE, &a, &n));
    int s = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s >= 0 && !bind(s, (struct sockaddr *)&a, n) && !listen(s, BACKLOG)) {
        *fd   = s;
        *port = find_port(s);
        return WEFT_OK;
    }
    weft_status st =
        WEFT_FAIL(WEFT_ERR_ARG, "cannot listen at %s: %s", at, strerror(errno));
    if (s >= 0) close(s);
    return st;
}

void weft_control__print_address(const struct sockaddr_storage *a, socklen_t n,
                                 char out[WEFT_CONTROL__ADDRESS])
{
    char host[48], port[8];
    if (getnameinfo((const struct sockaddr *)a, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(out, WEFT_CONTROL__ADDRESS, "an unknown address");
    else
        snprintf(out, WEFT_CONTROL__ADDRESS, strchr(host, ':') ? "[%s]:%s" : "%s:%s",
                 host, port);
}
