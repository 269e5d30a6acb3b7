#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net_tcp.h"

/* What the others are told. */
typedef struct tcp_address {
    struct sockaddr_in6 at; /* or a sockaddr_in */
} tcp_address;

static bool usable(const struct ifaddrs *a, const char *device, bool loopback, int family)
{
    if (!a->ifa_addr || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP))
        return false;
    if (family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)a->ifa_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return false;
    }
    if (device) return !strcmp(a->ifa_name, device);
    return !!(a->ifa_flags & IFF_LOOPBACK) == loopback;
}

/* The device's address; without a device that of the first network, or the loopback's. */
static weft_status find_address(const char *device, tcp_address *out)
{
    struct ifaddrs *all;
    bool            found = false;
    if (getifaddrs(&all))
        return WEFT_FAIL(WEFT_ERR_IO, "network devices: %s", strerror(errno));
    for (int try = 0; try < 4 && !found; try++)
        for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
            int family = try % 2 ? AF_INET6 : AF_INET;
            if (!usable(a, device, try >= 2, family)) continue;
            memcpy(&out->at, a->ifa_addr,
                   family == AF_INET ? sizeof(struct sockaddr_in) : sizeof out->at);
            found = true;
        }
    freeifaddrs(all);
    if (found) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_IO, "network device %s has no address, or is down",
                     device ? device : "(any)");
}

enum {
    AHEAD = 256 << 10, /* bytes that the system takes before it can send them */
};

static void set_up(int fd)
{
    /* an idle peer whose host is gone: 2 s without a word, then four questions */
    static const struct {
        int level, name, value;
    } option[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {IPPROTO_TCP, TCP_NOTSENT_LOWAT, AHEAD},
        {SOL_SOCKET, SO_KEEPALIVE, 1},   {IPPROTO_TCP, TCP_KEEPIDLE, 2},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1}, {IPPROTO_TCP, TCP_KEEPCNT, 4}};
    for (size_t i = 0; i < WEFT_COUNT(option); i++)
        setsockopt(fd, option[i].level, option[i].name, &option[i].value,
                   sizeof option[i].value);
}

/* To be said before a connection is made: a control that paces leaves its timers behind. */
static void do_not_pace(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof "reno" - 1);
}

void weft_comm__tcp_far(int fd)
{
    char      usual[16];
    socklen_t size = sizeof usual;
    int       s    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && !getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, usual, &size))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, size);
    if (s >= 0) close(s);
}

static socklen_t size_of(const tcp_address *a)
{
    return a->at.sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof a->at;
}

weft_status weft_comm__tcp_listen(const char *device, int *fd, void **address,
                                  int64_t *bytes)
{
    char         name[IF_NAMESIZE] = "";
    const char  *said              = getenv("UCX_NET_DEVICES");
    tcp_address *a                 = calloc(1, sizeof *a);
    socklen_t    size              = sizeof a->at;
    if (!a) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *address = a;
    *bytes   = sizeof *a;
    if (said && *said && strcmp(said, "all")) {
        size_t n = strcspn(said, ",:");
        if (n < sizeof name) memcpy(name, said, n);
        device = name;
    }
    WEFT_TRY(find_address(device, a));
    a->at.sin6_port = 0; /* where sin_port lies too */
    *fd = socket(a->at.sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0) do_not_pace(*fd); /* until it is known who comes */
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&a->at, size_of(a)) || listen(*fd, 512) ||
        getsockname(*fd, (struct sockaddr *)&a->at, &size))
        return WEFT_FAIL(WEFT_ERR_IO, "listening for other hosts: %s", strerror(errno));
    return WEFT_OK;
}

static bool is_loopback(const tcp_address *a)
{
    struct sockaddr_in four;
    if (a->at.sin6_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->at.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a->at.sin6_addr) &&
                a->at.sin6_addr.s6_addr[12] == 127);
    memcpy(&four, &a->at, sizeof four);
    return ntohl(four.sin_addr.s_addr) >> 24 == 127;
}

/* An address of one machine: not "any", broadcast or multicast, by which a connection would reach
 * this machine itself or many. */
static bool is_of_one(const tcp_address *a)
{
    const struct in6_addr *six = &a->at.sin6_addr;
    uint32_t               four;
    if (a->at.sin6_family == AF_INET)
        memcpy(&four, &((const struct sockaddr_in *)(const void *)&a->at)->sin_addr, 4);
    else if (IN6_IS_ADDR_V4MAPPED(six))
        memcpy(&four, six->s6_addr + 12, 4);
    else
        return !IN6_IS_ADDR_UNSPECIFIED(six) && !IN6_IS_ADDR_MULTICAST(six);
    four = ntohl(four);
    return four >> 24 && four >> 28 < 14; /* 0.x, 224.x and above */
}

weft_status weft_comm__tcp_check(const void *address, int64_t bytes, bool loopback)
{
    tcp_address a;
    if (bytes != sizeof a)
        return WEFT_FAIL(WEFT_ERR_ARG, "an address of %lld bytes, not of %zu",
                         (long long)bytes, sizeof a);
    memcpy(&a, address, sizeof a);
    if (a.at.sin6_family != AF_INET && a.at.sin6_family != AF_INET6)
        return WEFT_FAIL(WEFT_ERR_ARG, "an address of family %d, which is not IP",
                         (int)a.at.sin6_family);
    if (!a.at.sin6_port) return WEFT_FAIL(WEFT_ERR_ARG, "an address without a port");
    if (!is_of_one(&a))
        return WEFT_FAIL(WEFT_ERR_ARG, "an address that is not of one machine");
    if (!loopback && is_loopback(&a))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "a loopback address, of a rank on another machine: "
                         "UCX_NET_DEVICES names the network to use");
    return WEFT_OK;
}

int weft_comm__tcp_connect(const void *address, int64_t bytes, bool here, int *why)
{
    tcp_address a;
    *why = EINVAL;
    if (weft_comm__tcp_check(address, bytes, true) != WEFT_OK) return -1;
    memcpy(&a, address, sizeof a);
    int fd = socket(a.at.sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) set_up(fd);
    if (fd >= 0 && here) do_not_pace(fd);
    if (fd >= 0 &&
        (!connect(fd, (struct sockaddr *)&a.at, size_of(&a)) || errno == EINPROGRESS))
        return fd;
    *why = errno;
    if (fd >= 0) close(fd);
    return -1;
}

int weft_comm__tcp_accept(int fd)
{
    int s = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s >= 0) set_up(s);
    return s;
}
