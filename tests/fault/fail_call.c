/* Preloaded: in each process the FAIL_NTH-th call fails that prepares for another view - a
 * descriptor for plans or a brief, a write to it, pages of shared memory - once the file FAIL_WHILE
 * is there; of all processes one does so, the first that makes the file FAIL_ONCE.  FAIL_NTH=0: all
 * ranks do, each time.
 * FAIL_CALL: memfd, write, pages; or line, a message of a rank to its agent, which is sent without
 * its first word. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int n_call;
static atomic_int marked[64]; /* 1 + descriptors of plans and briefs */

static int fails(const char *call)
{
    const char *of = getenv("FAIL_CALL"), *when = getenv("FAIL_WHILE"),
               *once = getenv("FAIL_ONCE"), *nth = getenv("FAIL_NTH");
    if (!of || !when || !once || !nth || strcmp(of, call) != 0 || access(when, F_OK))
        return 0;
    if (!strcmp(nth, "0")) return getenv("WEFT_RANK") != NULL;
    if (atomic_fetch_add(&n_call, 1) + 1 != atoi(nth)) return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, once, O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

static void mark(int fd)
{
    for (int k = 0; fd >= 0 && k < 64; k++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&marked[k], &none, fd + 1)) return;
    }
}

static int is_marked(int fd)
{
    for (int k = 0; k < 64; k++)
        if (atomic_load(&marked[k]) == fd + 1) return 1;
    return 0;
}

int memfd_create(const char *name, unsigned flags)
{
    int is_ours = !strcmp(name, "weft-plans") || !strcmp(name, "weft-brief");
    if (is_ours && fails("memfd")) {
        errno = EMFILE;
        return -1;
    }
    int fd = (int)syscall(SYS_memfd_create, name, flags);
    if (is_ours) mark(fd);
    return fd;
}

int close(int fd)
{
    for (int k = 0; k < 64; k++) {
        int is = fd + 1;
        if (atomic_compare_exchange_strong(&marked[k], &is, 0)) break;
    }
    return (int)syscall(SYS_close, fd);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (is_marked(fd) && fails("write")) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, p, n, at);
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (is_marked(fd) && fails("write")) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, p, n);
}

static int is_line(int fd)
{
    int       type = 0;
    socklen_t n    = sizeof type;
    return getenv("WEFT_RANK") && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) &&
           type == SOCK_SEQPACKET;
}

ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
    char          bytes[4096] = {0};
    struct iovec  v           = {bytes, 0};
    struct msghdr other       = *h;
    if (h->msg_iovlen == 1 && h->msg_iov->iov_len <= sizeof bytes && is_line(fd) &&
        fails("line")) {
        v.iov_len = h->msg_iov->iov_len;
        memcpy(bytes + 4, (const char *)h->msg_iov->iov_base + 4, v.iov_len - 4);
        other.msg_iov = &v;
        h             = &other;
    }
    return syscall(SYS_sendmsg, fd, h, flags);
}

int madvise(void *p, size_t n, int advice)
{
    if (advice == MADV_POPULATE_WRITE && fails("pages")) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_madvise, p, n, advice);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    if (!mode && fails("pages")) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}
