/* Messages between an agent and its ranks, changed byte by byte, cut off, with and without a
 * descriptor, in any order: a rank has only views and preparations that are possible, an agent only
 * messages of a kind that there is, whose texts end; descriptors are closed.
 * Input: messages of a kind, a number of changes and flags, then changes (place, value). */
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    CUT        = 1, /* flags: it is sent without its end */
    HAS_FD     = 2,
    MAX_SENT   = 32,
    MAX_LOOK   = 2000,
    EPOCHS     = 1 << 16, /* below it: those of the input */
    LAST_EPOCH = 1 << 20
};

/* Of an agent that may be stopped: none is, here. */
void weft_launch__read_stat(pid_t pid, double *cpu_s, char *state);
void weft_launch__read_stat(pid_t pid, double *cpu_s, char *state)
{
    (void)pid;
    *cpu_s = 0;
    *state = 'R';
}

typedef struct input {
    const uint8_t *data;
    size_t         n;
} input;

static uint8_t take_byte(input *in)
{
    if (!in->n) return 0;
    in->n--;
    return *in->data++;
}

static void fill_message(weft_line_message *m, int kind, uint32_t epoch)
{
    *m = (weft_line_message){.kind       = kind,
                             .epoch      = epoch,
                             .over       = epoch - 1,
                             .world      = 3,
                             .local      = 3,
                             .mine       = 1,
                             .most       = 4,
                             .most_local = 4,
                             .step       = 7};
    memcpy(m->cause, "kill", 5);
    if (kind == WEFT_LINE_PREPARE) memcpy(m->text, "2 1", 4);
}

/* A line's bytes are those that weft_line_put would send, changed: it goes through a pair of its
 * own.  false: nothing more can be sent. */
static bool send_changed(input *in, int to, int fd, uint32_t epoch)
{
    weft_line_message m, raw;
    uint8_t           kind = take_byte(in), flags = take_byte(in), n_change = flags >> 3;
    union {
        struct cmsghdr head;
        char           room[CMSG_SPACE(sizeof(int))];
    } control       = {0};
    struct iovec  v = {&raw, sizeof raw};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    int           pair[2];
    fill_message(&m, kind % (WEFT_N_LINE_KIND + 1), epoch);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) abort();
    if (weft_line_put(pair[0], &m, -1) != WEFT_OK) abort();
    if (recv(pair[1], &raw, sizeof raw, 0) != (ssize_t)sizeof raw) abort();
    close(pair[0]);
    close(pair[1]);
    while (n_change--) {
        size_t at                          = take_byte(in) | (size_t)take_byte(in) << 8;
        ((uint8_t *)&raw)[at % sizeof raw] = take_byte(in);
    }
    raw.epoch %= EPOCHS;
    raw.over %= EPOCHS;
    if (flags & CUT) v.iov_len = 1 + take_byte(in);
    if (flags & HAS_FD) {
        h.msg_control     = &control;
        h.msg_controllen  = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        *c                = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(to, &h, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

static int open_pair(int pair[2])
{
    static int fd = -1;
    if (fd < 0) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) abort();
    return fd;
}

static void check_message(const weft_line_message *m)
{
    if (m->kind < 0 || m->kind >= WEFT_N_LINE_KIND) abort();
    if (strlen(m->text) >= sizeof m->text || strlen(m->cause) >= sizeof m->cause ||
        strlen(m->decided) >= sizeof m->decided)
        abort();
}

/* The agent's end. */
static void hear_rank(input in)
{
    weft_line_message m;
    int               pair[2], fd = open_pair(pair), got = -1;
    weft_line_end     end = WEFT_LINE_OPEN;
    for (int k = 0; in.n && k < MAX_SENT; k++)
        if (!send_changed(&in, pair[0], fd, (uint32_t)k + 2)) break;
    while (weft_line_take(pair[1], &m, &got, &end)) {
        check_message(&m);
        if (got >= 0) close(got);
    }
    if (got >= 0) abort();
    close(pair[0]);
    close(pair[1]);
}

static void check_view(const weft_line_view *v)
{
    if (v->world < 1 || v->local < 1 || v->first < 0 || v->first > v->world - v->local ||
        v->mine < 0 || v->most < v->world || v->most_local < v->local ||
        v->most_local > v->most || strlen(v->rdzv) >= sizeof v->rdzv)
        abort();
    if ((v->world == v->local) != !*v->rdzv || fcntl(v->shm_fd, F_GETFD) < 0) abort();
}

static void check_next(weft_line *l)
{
    weft_line_next x;
    if (!weft_line_take_next(l, &x)) return;
    if (x.world < 1 || x.local < 1 || x.first < 0 || x.first > x.world - x.local ||
        x.mine < 0 || x.mine >= x.local || strlen(x.hosts) >= sizeof x.hosts)
        abort();
    if (x.brief_fd >= 0 && close(x.brief_fd)) abort();
}

/* A rank's end, which has a view before; what follows marks that all was heard. */
static void hear_agent(input in)
{
    weft_line        *l;
    weft_line_view    v;
    weft_line_message m;
    int               pair[2], fd = open_pair(pair);
    if (weft_line_open(pair[1], 0, &l) != WEFT_OK) abort();
    fill_message(&m, WEFT_LINE_VIEW, 1);
    bool fine = weft_line_put(pair[0], &m, fd) == WEFT_OK;
    for (int k = 0; in.n && fine && k < MAX_SENT; k++)
        fine = send_changed(&in, pair[0], fd, (uint32_t)k + 2);
    fill_message(&m, WEFT_LINE_OVER, LAST_EPOCH);
    m.over = LAST_EPOCH;
    fine   = false;
    for (int k = 0; k < MAX_LOOK && atomic_load(weft_line_over(l)) < LAST_EPOCH; k++) {
        fine = fine || weft_line_put(pair[0], &m, -1) == WEFT_OK;
        sched_yield(); /* what is no message has closed the line: then it is not heard */
    }
    if (weft_line_await(l, 0, &v) == WEFT_OK) check_view(&v);
    check_next(l);
    (void)weft_line_has_newer(l, 3);
    weft_line_close(l);
    close(pair[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hear_rank((input){data, n});
    hear_agent((input){data, n});
    return 0;
}
