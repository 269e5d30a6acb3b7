/* host:port: read, resolved, listened at. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/rdzv_priv.h"

enum {
    MAX_HOST = 256,
    BACKLOG  = 1024,
};

static weft_status split_address(const char *at, char *host, size_t n, char *port,
                                 size_t n_port)
{
    const char *colon = strrchr(at, ':');
    char       *end;
    long        number = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == at || end == colon + 1 || *end || number < 1 ||
        number > 65535 || (size_t)(colon - at) >= n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "'%s' is no host:port to meet at; write one such as node0:29400",
                         at);
    bool brackets = *at == '[' && colon[-1] == ']';
    snprintf(host, n, "%.*s", (int)(colon - at) - (brackets ? 2 : 0),
             at + (brackets ? 1 : 0));
    snprintf(port, n_port, "%ld", number);
    return WEFT_OK;
}

weft_status weft_comm_rdzv_check(const char *at)
{
    char host[MAX_HOST], port[8];
    return split_address(at, host, sizeof host, port, sizeof port);
}

weft_status weft_comm__rdzv_resolve(const char *at, struct addrinfo **out)
{
    char host[MAX_HOST], port[8];
    WEFT_TRY(split_address(at, host, sizeof host, port, sizeof port));
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    int             rc   = getaddrinfo(host, port, &hint, out);
    if (rc)
        return WEFT_FAIL(WEFT_ERR_ARG, "cannot find the host of '%s': %s", at,
                         gai_strerror(rc));
    return WEFT_OK;
}

bool weft_comm__rdzv_is_name(const char *at)
{
    char            host[MAX_HOST], port[8];
    struct in6_addr number;
    return split_address(at, host, sizeof host, port, sizeof port) == WEFT_OK &&
           inet_pton(AF_INET, host, &number) != 1 &&
           inet_pton(AF_INET6, host, &number) != 1 && strcmp(host, "localhost") != 0;
}

/* The IPv4 address in it, of family AF_INET or mapped into IPv6. */
static bool get_ipv4(const struct sockaddr *a, struct in_addr *out)
{
    if (a->sa_family == AF_INET) {
        *out = ((const struct sockaddr_in *)(const void *)a)->sin_addr;
        return true;
    }
    const struct in6_addr *six =
        &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (a->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(six)) return false;
    memcpy(out, six->s6_addr + 12, sizeof *out);
    return true;
}

bool weft_comm__rdzv_is_loopback(const struct sockaddr *a)
{
    struct in_addr four;
    if (get_ipv4(a, &four)) return ntohl(four.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(
               &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static bool is_any(const struct sockaddr *a)
{
    struct in_addr four;
    if (get_ipv4(a, &four)) return four.s_addr == htonl(INADDR_ANY);
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(
               &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

void weft_comm__rdzv_print(const struct sockaddr *a, socklen_t len, char *out, size_t n)
{
    if (getnameinfo(a, len, out, (socklen_t)n, NULL, 0, NI_NUMERICHOST))
        snprintf(out, n, "an unknown address");
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET)
        return !memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                       &((const struct sockaddr_in *)(const void *)b)->sin_addr, 4);
    return a->sa_family == AF_INET6 &&
           !memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16);
}

void weft_comm_rdzv_device(const char *at, char *name, size_t n)
{
    struct addrinfo        *to;
    struct ifaddrs         *all;
    struct sockaddr_storage own;
    socklen_t               len = sizeof own;
    *name                       = 0;
    if (weft_comm__rdzv_resolve(at, &to) != WEFT_OK) return;
    /* a datagram socket that is connected knows its way without sending anything */
    int  s  = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = !is_any(to->ai_addr) && s >= 0 &&
              !connect(s, to->ai_addr, to->ai_addrlen) &&
              !getsockname(s, (struct sockaddr *)&own, &len);
    if (s >= 0) close(s);
    freeaddrinfo(to);
    if (!ok || getifaddrs(&all)) return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        if (same_address(i->ifa_addr, (struct sockaddr *)&own)) {
            snprintf(name, n, "%s", i->ifa_name);
            break;
        }
    freeifaddrs(all);
}

/* This host's address towards `at`. */
static weft_status find_own(const char *at, struct sockaddr_storage *own, socklen_t *len)
{
    struct addrinfo *to;
    WEFT_TRY(weft_comm__rdzv_resolve(at, &to));
    int  s  = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = s >= 0 && !connect(s, to->ai_addr, to->ai_addrlen) &&
              !getsockname(s, (struct sockaddr *)own, len);
    int why = errno;
    if (s >= 0) close(s);
    freeaddrinfo(to);
    return ok ? WEFT_OK
              : WEFT_FAIL(WEFT_ERR_ARG, "%s cannot be reached from this host: %s", at,
                          strerror(why));
}

/* ---- listening ---- */

/* A socket that listens at this address, or -1 and errno. */
static int listen_at(const struct addrinfo *a)
{
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    int only_six = !is_any(a->ai_addr); /* [::] is every address of both families */
    if (s < 0) return -1;
    if (a->ai_family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only_six, sizeof only_six);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(s, a->ai_addr, a->ai_addrlen) && !listen(s, BACKLOG)) return s;
    int why = errno;
    close(s);
    errno = why;
    return -1;
}

static weft_status fail_listen(const char *at, const struct addrinfo *a, int why)
{
    char number[64];
    weft_comm__rdzv_print(a->ai_addr, a->ai_addrlen, number, sizeof number);
    if (why == EADDRNOTAVAIL)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "rank 0 cannot listen at %s: this host does not have the address %s; "
            "give an address of rank 0's host with --rdzv or WEFT_RDZV",
            at, number);
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "rank 0 cannot listen at %s (%s): %s; choose another port with --rdzv "
        "host:port or WEFT_RDZV",
        at, number, strerror(why));
}

/* /etc/hosts may name an address twice. */
static bool came_before(const struct addrinfo *all, const struct addrinfo *a)
{
    for (const struct addrinfo *b = all; b != a; b = b->ai_next)
        if (same_address(b->ai_addr, a->ai_addr)) return true;
    return false;
}

/* An address that another process has is an error even where a second one is free: guests might
 * connect to the first. */
weft_status weft_comm__rdzv_listen(const char *at, rdzv_listeners *out)
{
    struct addrinfo *all, *missing = NULL;
    weft_status      st = WEFT_OK;
    *out                = (rdzv_listeners){.loopback = true};
    WEFT_TRY(weft_comm__rdzv_resolve(at, &all));
    for (struct addrinfo *a = all; a && out->n < (int)WEFT_COUNT(out->fd);
         a                  = a->ai_next) {
        if (came_before(all, a)) continue;
        int s = listen_at(a);
        if (s < 0 && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT)) {
            missing = a;
            continue;
        }
        if (s < 0) WEFT_GO(fail_listen(at, a, errno));
        out->fd[out->n++] = s;
        out->loopback     = out->loopback && weft_comm__rdzv_is_loopback(a->ai_addr);
    }
    if (!out->n) st = fail_listen(at, missing, EADDRNOTAVAIL);
out:
    freeaddrinfo(all);
    if (st != WEFT_OK) weft_comm__rdzv_close(out);
    return st;
}

void weft_comm__rdzv_close(rdzv_listeners *d)
{
    for (int i = 0; i < d->n; i++) close(d->fd[i]);
    d->n = 0;
}

/* At a free port of an address of this host. */
static weft_status listen_free(struct sockaddr_storage *own, socklen_t len, int *fd,
                               char *at, size_t n)
{
    char host[64], port[16];
    if (own->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)own)->sin6_port = 0;
    else
        ((struct sockaddr_in *)(void *)own)->sin_port = 0;
    struct addrinfo a = {.ai_family  = own->ss_family,
                         .ai_addr    = (struct sockaddr *)own,
                         .ai_addrlen = len};
    int             s = listen_at(&a);
    if (s < 0 || getsockname(s, a.ai_addr, &len) ||
        getnameinfo(a.ai_addr, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        int why = errno;
        if (s >= 0) close(s);
        return WEFT_FAIL(WEFT_ERR_IO, "this host cannot listen for ranks: %s",
                         strerror(why));
    }
    snprintf(at, n, own->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    *fd = s;
    return WEFT_OK;
}

weft_status weft_comm_rdzv_listen_near(const char *peer, int *fd, char *at, size_t n)
{
    struct sockaddr_storage own = {0};
    socklen_t               len = sizeof own;
    WEFT_TRY(find_own(peer, &own, &len));
    return listen_free(&own, len, fd, at, n);
}

/* That of the first network device that is up and not loopback. */
static bool find_device(int family, struct sockaddr_storage *own, socklen_t *len)
{
    struct ifaddrs *all, *found = NULL;
    if (getifaddrs(&all)) return false;
    for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        const struct sockaddr *a = i->ifa_addr;
        if (!a || a->sa_family != family || !(i->ifa_flags & IFF_UP) ||
            weft_comm__rdzv_is_loopback(a))
            continue;
        if (family == AF_INET6 &&
            IN6_IS_ADDR_LINKLOCAL(
                &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr))
            continue;
        found = i;
    }
    *len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (found) memcpy(own, found->ifa_addr, *len);
    freeifaddrs(all);
    return found != NULL;
}

/* An address that was given: it must be one of this host's. */
static weft_status listen_given(const char *address, int *fd, char *at, size_t n)
{
    char                    text[300];
    struct addrinfo        *to;
    struct sockaddr_storage own = {0};
    bool                    six = strchr(address, ':') && *address != '[';
    if (snprintf(text, sizeof text, six ? "[%s]:9" : "%s:9", address) >= (int)sizeof text)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%.80s' is too long for an address", address);
    WEFT_TRY(weft_comm__rdzv_resolve(text, &to));
    socklen_t len = to->ai_addrlen;
    memcpy(&own, to->ai_addr, len);
    freeaddrinfo(to);
    if (is_any((struct sockaddr *)&own))
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' names no address that others can reach",
                         address);
    if (listen_free(&own, len, fd, at, n) == WEFT_OK) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is no address of this host", address);
}

weft_status weft_comm_rdzv_listen_own(const char *address, int *fd, char *at, size_t n)
{
    /* of networks that are for documents: asking the way there sends nothing */
    static const char *const far[] = {"192.0.2.1:9", "[2001:db8::1]:9"};
    struct sockaddr_storage  own   = {0};
    socklen_t                len   = sizeof own;
    bool                     found = false;
    if (address) return listen_given(address, fd, at, n);
    for (size_t i = 0; i < WEFT_COUNT(far) && !found; i++) {
        len   = sizeof own;
        found = find_own(far[i], &own, &len) == WEFT_OK;
    }
    if (!found && !find_device(AF_INET, &own, &len) && !find_device(AF_INET6, &own, &len))
        return weft_comm_rdzv_listen_near("127.0.0.1:9", fd, at, n);
    return listen_free(&own, len, fd, at, n);
}
