/* Reading and writing files; each call that writes passes the hook.  Replacing them:
 * io_replace.c. */
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io_priv.h"
#include "base/progress.h"

/* ---- the failure hook ---------------------------------------------------------------------- */

static struct {
    _Atomic int64_t calls, fail_at, kill_at, stop_at;
    atomic_int      err, sticky, ready;
} hook;

static int errno_named(const char *s)
{
    static const struct {
        const char *name;
        int         err;
    } known[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},
                 {"EROFS", EROFS},   {"EACCES", EACCES}, {"EMFILE", EMFILE}};
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        if (!strncmp(s, known[i].name, strlen(known[i].name))) return known[i].err;
    return atoi(s);
}

/* Two threads that read the environment at once store the same values. */
static void read_environment(void)
{
    if (atomic_load(&hook.ready)) return;
    const char *fail = getenv("WEFT_IO_FAIL"), *kill_at = getenv("WEFT_IO_KILL");
    const char *stop_at = getenv("WEFT_IO_STOP");
    const char *err     = fail ? strchr(fail, ':') : NULL;
    if (err) {
        const char *sticky = strchr(err + 1, ':');
        atomic_store(&hook.err, errno_named(err + 1));
        atomic_store(&hook.sticky, sticky && !strcmp(sticky, ":sticky"));
        atomic_store(&hook.fail_at, atoll(fail));
    }
    if (kill_at) atomic_store(&hook.kill_at, atoll(kill_at));
    if (stop_at) atomic_store(&hook.stop_at, atoll(stop_at));
    atomic_store(&hook.ready, 1);
}

void weft_io_fail_at(int64_t n, int err, bool sticky)
{
    read_environment();
    atomic_store(&hook.err, err);
    atomic_store(&hook.sticky, sticky);
    atomic_store(&hook.fail_at, n ? atomic_load(&hook.calls) + n : 0);
}

int64_t weft_io_calls(void)
{
    return atomic_load(&hook.calls);
}

/* false: the call that would follow is to fail with the errno that is now set. */
bool weft_io__may_go_on(void)
{
    read_environment();
    weft_progress_mark();
    int64_t n  = atomic_fetch_add(&hook.calls, 1) + 1;
    int64_t at = atomic_load(&hook.fail_at);
    if (n == atomic_load(&hook.kill_at)) kill(getpid(), SIGKILL);
    if (n == atomic_load(&hook.stop_at)) kill(getpid(), SIGSTOP);
    if (at == 0 || n < at || (n > at && !atomic_load(&hook.sticky))) return true;
    errno = atomic_load(&hook.err);
    return false;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static weft_status failed(weft_status st, const char *what, const char *path, int err)
{
    char buf[128];
    return WEFT_FAIL(
        st, "cannot %s %s: %s%s", what, path, strerror_r(err, buf, sizeof buf),
        err == EFBIG ? " (ulimit -f, or the most the file system holds)" : "");
}

/* The path is at fault, not the device. */
static bool wrongly_named(int err)
{
    return err == ENOENT || err == ENOTDIR || err == EISDIR || err == EACCES ||
           err == EPERM || err == EROFS || err == ENAMETOOLONG || err == ELOOP ||
           err == ENXIO;
}

weft_status weft_io__write_failed(const char *what, const char *path)
{
    int         err = errno;
    weft_status st  = err == ENOSPC || err == EDQUOT ? WEFT_ERR_FULL
                      : err == ENOMEM                ? WEFT_ERR_MEM
                      : wrongly_named(err)           ? WEFT_ERR_ARG
                                                     : WEFT_ERR_IO;
    return failed(st, what, path, err);
}

static weft_status read_failed(const char *path)
{
    int         err = errno;
    weft_status st  = wrongly_named(err) ? WEFT_ERR_ARG
                      : err == ENOMEM    ? WEFT_ERR_MEM
                                         : WEFT_ERR_IO;
    return failed(st, "read", path, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

int weft_io__above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int up  = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int err = errno;
    close(fd);
    errno = err;
    return up;
}

static const char *kind_of_file(mode_t mode)
{
    return S_ISFIFO(mode)   ? "a pipe"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "no file";
}

/* O_NONBLOCK: a pipe that nothing writes to does not hold the call; reading regular files is as
 * ever. */
static weft_status open_read(const char *path, bool pipes, int *fd, struct stat *info)
{
    weft_status st = WEFT_OK;
    int         f =
        weft_io__above_standard(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (f < 0) return read_failed(path);
    if (fstat(f, info) != 0)
        st = read_failed(path);
    else if (S_ISDIR(info->st_mode))
        st = failed(WEFT_ERR_ARG, "read", path, EISDIR);
    else if (!S_ISREG(info->st_mode) && !(pipes && !S_ISBLK(info->st_mode)))
        st = WEFT_FAIL(WEFT_ERR_ARG, "cannot read %s: it is %s, not a regular file", path,
                       kind_of_file(info->st_mode));
    if (st != WEFT_OK) {
        close(f);
        return st;
    }
    *fd = f;
    return WEFT_OK;
}

weft_status weft_io_open_read(const char *path, int *fd, int64_t *bytes)
{
    struct stat info;
    WEFT_TRY(open_read(path, false, fd, &info));
    if (bytes) *bytes = info.st_size;
    return WEFT_OK;
}

/* Waits until a pipe has bytes or its writers are gone.  A signal that a handler takes ends the
 * wait: poll() never restarts. */
static weft_status wait_for_bytes(int fd, const char *path, int most_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, most_ms) >= 0) return WEFT_OK;
    if (errno == EINTR)
        return WEFT_FAIL(WEFT_ERR_IO, "stopped by a signal while reading %s", path);
    return read_failed(path);
}

static weft_status too_large(const char *path, size_t most)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is larger than %zu MB, the most that is read of such a file",
                     path, most >> 20);
}

/* Reads on to the end, so that pipes and files that grow are read whole too. */
static weft_status read_to_end(int fd, const char *path, size_t cap, size_t most,
                               char **text, size_t *n)
{
    weft_status st   = WEFT_OK;
    char       *buf  = NULL, *more;
    size_t      used = 0;
    for (;;) {
        if (!buf || cap - used < 2) {
            if (buf) cap *= 2;
            more = realloc(buf, cap);
            if (!more) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "%s: out of memory", path));
            buf = more;
        }
        ssize_t k = read(fd, buf + used, cap - used - 1);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) {
            WEFT_GO(wait_for_bytes(fd, path, -1));
            continue;
        }
        if (k < 0) WEFT_GO(read_failed(path));
        if (k == 0) break;
        used += (size_t)k;
        if (used > most) WEFT_GO(too_large(path, most));
    }
    buf[used] = 0;
    *text     = buf;
    *n        = used;
    buf       = NULL;
out:
    free(buf);
    return st;
}

weft_status weft_io_read_as(const char *path, int flags, char **text, size_t *n)
{
    struct stat info;
    int         fd;
    size_t most = flags & WEFT_IO_LARGE ? (size_t)WEFT_IO_LARGE_MOST : WEFT_IO_TEXT_MOST;
    WEFT_TRY(open_read(path, flags & WEFT_IO_PIPES, &fd, &info));
    bool        regular = S_ISREG(info.st_mode);
    size_t      size    = regular ? (size_t)info.st_size : 0;
    weft_status st      = size > most ? too_large(path, most) : WEFT_OK;
    if (S_ISFIFO(info.st_mode)) st = wait_for_bytes(fd, path, WEFT_IO_PARTNER_MS);
    if (st == WEFT_OK) st = read_to_end(fd, path, size + 4096, most, text, n);
    close(fd);
    if (st == WEFT_OK && S_ISFIFO(info.st_mode) && !*n) {
        free(*text);
        st = WEFT_FAIL(WEFT_ERR_ARG, "cannot read %s: nothing is written to this pipe",
                       path);
    }
    return st;
}

weft_status weft_io_read_file(const char *path, char **text, size_t *n)
{
    return weft_io_read_as(path, 0, text, n);
}

weft_status weft_io_map_file(const char *path, weft_io_map *out)
{
    int     fd;
    int64_t bytes;
    WEFT_TRY(weft_io_open_read(path, &fd, &bytes));
    size_t n = (size_t)bytes;
    void  *p = n ? mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (p == MAP_FAILED) {
        weft_status st = read_failed(path);
        close(fd);
        return st;
    }
    close(fd);
    out->p = n ? p : (const uint8_t *)"";
    out->n = n;
    return WEFT_OK;
}

void weft_io_unmap(weft_io_map *m)
{
    if (m->n) munmap((void *)(uintptr_t)m->p, m->n);
    *m = (weft_io_map){0};
}

weft_status weft_io_file_open(const char *path, bool keep_fd, weft_io_file *out)
{
    struct stat s;
    int         fd;
    WEFT_TRY(open_read(path, false, &fd, &s));
    *out = (weft_io_file){.path  = path,
                          .fd    = keep_fd ? fd : -1,
                          .dev   = (uint64_t)s.st_dev,
                          .ino   = (uint64_t)s.st_ino,
                          .bytes = (int64_t)s.st_size};
    if (!keep_fd) close(fd);
    return WEFT_OK;
}

static weft_status changed(const weft_io_file *f, const char *how)
{
    return WEFT_FAIL(WEFT_ERR_IO, "%s was %s while it was being read", f->path, how);
}

/* The descriptor to read by: the kept one, or a new one of the same file. */
static weft_status reopen(const weft_io_file *f, int *fd)
{
    struct stat s;
    *fd = f->fd >= 0 ? f->fd : open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd >= 0) return WEFT_OK;
    if (*fd < 0 && errno == ENOENT) return changed(f, "removed");
    if (*fd < 0) return failed(WEFT_ERR_IO, "read", f->path, errno);
    if (fstat(*fd, &s) == 0 && (uint64_t)s.st_dev == f->dev &&
        (uint64_t)s.st_ino == f->ino)
        return WEFT_OK;
    close(*fd);
    return changed(f, "replaced");
}

weft_status weft_io_file_read(const weft_io_file *f, int64_t at, void *p, size_t n)
{
    weft_status st   = WEFT_OK;
    size_t      done = 0;
    int         fd;
    WEFT_TRY(reopen(f, &fd));
    while (done < n && st == WEFT_OK) {
        ssize_t k = pread(fd, (char *)p + done, n - done, (off_t)at + (off_t)done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) st = failed(WEFT_ERR_IO, "read", f->path, errno);
        if (k == 0) {
            struct stat s;
            long long   now = fstat(fd, &s) == 0 ? (long long)s.st_size : 0;

            st = WEFT_FAIL(WEFT_ERR_IO,
                           "%s was truncated while it was being read: it had %lld "
                           "bytes, now %lld",
                           f->path, (long long)f->bytes, now);
        }
        if (k > 0) done += (size_t)k;
    }
    if (fd != f->fd) close(fd);
    return st;
}

void weft_io_file_close(weft_io_file *f)
{
    if (f->path && f->fd >= 0) close(f->fd);
    *f = (weft_io_file){.fd = -1};
}

bool weft_io_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static weft_status make_dir(const char *path)
{
    struct stat s;
    if (stat(path, &s) == 0) {
        if (S_ISDIR(s.st_mode)) return WEFT_OK;
        return failed(WEFT_ERR_ARG, "make the directory", path, ENOTDIR);
    }
    if (!weft_io__may_go_on()) return weft_io__write_failed("make the directory", path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return weft_io__write_failed("make the directory", path);
    return WEFT_OK;
}

weft_status weft_io_mkdirs(const char *path)
{
    char *p = strdup(path);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = WEFT_OK;
    for (char *at = p + 1; *p && *at && st == WEFT_OK; at++) {
        if (*at != '/') continue;
        *at = 0;
        st  = make_dir(p);
        *at = '/';
    }
    if (st == WEFT_OK) st = make_dir(p);
    free(p);
    return st;
}

weft_status weft_io_open_write(const char *path, bool fresh, int *fd)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (fresh ? O_EXCL | O_NOFOLLOW : 0);
    int f     = weft_io__may_go_on() ? open(path, flags, 0666) : -1;
    f         = weft_io__above_standard(f);
    if (f < 0) return weft_io__write_failed("write", path);
    *fd = f;
    return WEFT_OK;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

weft_status weft_io_write(int fd, const char *path, const void *p, size_t n)
{
    if (!weft_io__may_go_on()) { /* as a full disk does: some of it is there */
        int err = errno;
        write_all(fd, p, n / 2);
        errno = err;
        return weft_io__write_failed("write", path);
    }
    return write_all(fd, p, n) ? WEFT_OK : weft_io__write_failed("write", path);
}

static bool write_all_at(int fd, const char *p, size_t n, int64_t at)
{
    while (n) {
        ssize_t k = pwrite(fd, p, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return false;
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

weft_status weft_io_write_at(int fd, const char *path, const void *p, size_t n,
                             int64_t at)
{
    if (!weft_io__may_go_on()) {
        int err = errno;
        write_all_at(fd, p, n / 2 / WEFT_IO_ALIGN * WEFT_IO_ALIGN, at);
        errno = err;
        return weft_io__write_failed("write", path);
    }
    return write_all_at(fd, p, n, at) ? WEFT_OK : weft_io__write_failed("write", path);
}

weft_status weft_io_open_direct(const char *path, int *fd)
{
    if (!weft_io__may_go_on()) return weft_io__write_failed("write", path);
    int f = weft_io__above_standard(open(path, O_WRONLY | O_CLOEXEC | O_DIRECT));
    if (f < 0 && errno != EINVAL && errno != EOPNOTSUPP)
        return weft_io__write_failed("write", path);
    *fd = f;
    return WEFT_OK;
}

int64_t weft_io_direct_align(int direct)
{
#ifdef STATX_DIOALIGN
    struct statx s;
    int64_t      most = 0;
    if (statx(direct, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) == 0 &&
        s.stx_mask & STATX_DIOALIGN)
        most = s.stx_dio_mem_align > s.stx_dio_offset_align ? s.stx_dio_mem_align
                                                            : s.stx_dio_offset_align;
    if (most > 0 && most < WEFT_IO_ALIGN) return most;
#endif
    (void)direct;
    return WEFT_IO_ALIGN;
}

/* Leaves out the first k bytes. */
static void skip_bytes(struct iovec **part, int *n_part, size_t k)
{
    for (; *n_part && k >= (*part)->iov_len; ++*part, --*n_part) k -= (*part)->iov_len;
    if (!*n_part) return;
    (*part)->iov_base = (char *)(*part)->iov_base + k;
    (*part)->iov_len -= k;
}

weft_status weft_io_write_parts_at(int fd, const char *path, struct iovec *part,
                                   int n_part, int64_t at)
{
    if (n_part == 1) return weft_io_write_at(fd, path, part->iov_base, part->iov_len, at);
    if (!weft_io__may_go_on()) { /* some of it is there */
        int err = errno;
        if (n_part) write_all_at(fd, part->iov_base, part->iov_len, at);
        errno = err;
        return weft_io__write_failed("write", path);
    }
    while (n_part) {
        ssize_t k = pwritev(fd, part, n_part, at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return weft_io__write_failed("write", path);
        at += k;
        skip_bytes(&part, &n_part, (size_t)k);
    }
    return WEFT_OK;
}

#define RESERVE_PIECE ((int64_t)1 << 30)

weft_status weft_io_reserve(int fd, const char *path, int64_t n)
{
    if (!weft_io__may_go_on()) return weft_io__write_failed("reserve room for", path);
    if (n <= 0) return WEFT_OK;
    /* in pieces: where it is slow, its progress is seen */
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < RESERVE_PIECE ? n - at : RESERVE_PIECE;
        do errno = posix_fallocate(fd, at, k);
        while (errno == EINTR);
        if (errno == ESPIPE || errno == ENODEV)
            return WEFT_OK; /* a pipe, a device: no room to reserve */
        if (errno) return weft_io__write_failed("reserve room for", path);
        weft_progress_mark();
    }
    return WEFT_OK;
}

weft_status weft_io_sync(int fd, const char *path)
{
    if (!weft_io__may_go_on()) return weft_io__write_failed("sync", path);
    /* EINVAL, EROFS: a pipe or a device, which has nothing to sync */
    bool fine = fdatasync(fd) == 0 || errno == EINVAL || errno == EROFS;
    return fine ? WEFT_OK : weft_io__write_failed("sync", path);
}

/* The descriptor is gone afterwards, also when this fails. */
weft_status weft_io_close(int fd, const char *path)
{
    bool go  = weft_io__may_go_on();
    int  err = errno;
    if (close(fd) != 0 && errno != EINTR) return weft_io__write_failed("close", path);
    errno = err;
    return go ? WEFT_OK : weft_io__write_failed("close", path);
}

weft_status weft_io_sync_dir(const char *path)
{
    int fd = weft_io__may_go_on() ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) return weft_io__write_failed("sync", path);
    /* some file systems cannot sync a directory and say EINVAL: nothing is lost by that */
    weft_status st =
        fsync(fd) == 0 || errno == EINVAL ? WEFT_OK : weft_io__write_failed("sync", path);
    close(fd);
    return st;
}

weft_status weft_io_rename(const char *from, const char *to)
{
    return weft_io__may_go_on() && rename(from, to) == 0
               ? WEFT_OK
               : weft_io__write_failed("rename to", to);
}

static weft_status remove_children(const char *path)
{
    weft_status    st = WEFT_OK;
    struct dirent *e;
    DIR           *dir = opendir(path);
    if (!dir) return weft_io__write_failed("remove", path);
    while (st == WEFT_OK && (e = readdir(dir))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *child = NULL;
        if (asprintf(&child, "%s/%s", path, e->d_name) < 0)
            st = WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        else {
            st = weft_io_remove_tree(child);
            free(child);
        }
    }
    closedir(dir);
    return st;
}

/* Links are removed, not followed; what is not there is fine. */
weft_status weft_io_remove_tree(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0)
        return errno == ENOENT ? WEFT_OK : weft_io__write_failed("remove", path);
    if (S_ISDIR(s.st_mode)) WEFT_TRY(remove_children(path));
    int rc = !weft_io__may_go_on() ? -1 : S_ISDIR(s.st_mode) ? rmdir(path) : unlink(path);
    return rc == 0 || errno == ENOENT ? WEFT_OK : weft_io__write_failed("remove", path);
}
