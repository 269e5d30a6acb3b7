/* Reading, writing and replacing files; each call that writes passes the hook `may_go_on`. */
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the failure hook ---------------------------------------------------------------------- */

static struct {
    _Atomic int64_t calls, fail_at, kill_at;
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
    const char *err = fail ? strchr(fail, ':') : NULL;
    if (err) {
        const char *sticky = strchr(err + 1, ':');
        atomic_store(&hook.err, errno_named(err + 1));
        atomic_store(&hook.sticky, sticky && !strcmp(sticky, ":sticky"));
        atomic_store(&hook.fail_at, atoll(fail));
    }
    if (kill_at) atomic_store(&hook.kill_at, atoll(kill_at));
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
static bool may_go_on(void)
{
    read_environment();
    int64_t n  = atomic_fetch_add(&hook.calls, 1) + 1;
    int64_t at = atomic_load(&hook.fail_at);
    if (n == atomic_load(&hook.kill_at)) kill(getpid(), SIGKILL);
    if (at == 0 || n < at || (n > at && !atomic_load(&hook.sticky))) return true;
    errno = atomic_load(&hook.err);
    return false;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static weft_status failed(weft_status st, const char *what, const char *path, int err)
{
    char buf[128];
    return WEFT_FAIL(st, "cannot %s %s: %s", what, path,
                     strerror_r(err, buf, sizeof buf));
}

/* The path is at fault, not the device. */
static bool wrongly_named(int err)
{
    return err == ENOENT || err == ENOTDIR || err == EISDIR || err == EACCES ||
           err == EPERM || err == EROFS || err == ENAMETOOLONG || err == ELOOP;
}

static weft_status write_failed(const char *what, const char *path)
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

/* Opens a file to read and gives its size; a directory is refused here already. */
static weft_status open_read(const char *path, int *fd, size_t *n)
{
    struct stat s;
    int         f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) return read_failed(path);
    if (fstat(f, &s) != 0 || S_ISDIR(s.st_mode)) {
        if (S_ISDIR(s.st_mode)) errno = EISDIR;
        weft_status st = read_failed(path);
        close(f);
        return st;
    }
    *fd = f;
    *n  = S_ISREG(s.st_mode) ? (size_t)s.st_size : 0;
    return WEFT_OK;
}

/* Reads on to the end, so that pipes and files that grow are read whole too. */
weft_status weft_io_read_file(const char *path, char **text, size_t *n)
{
    weft_status st   = WEFT_OK;
    char       *buf  = NULL, *more;
    size_t      used = 0, cap;
    int         fd   = -1;

    WEFT_TRY(open_read(path, &fd, &cap));
    cap += 4096;
    for (;;) {
        if (!buf || cap - used < 2) {
            if (buf) cap *= 2;
            more = realloc(buf, cap);
            if (!more) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "%s: out of memory", path));
            buf = more;
        }
        ssize_t k = read(fd, buf + used, cap - used - 1);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) WEFT_GO(read_failed(path));
        if (k == 0) break;
        used += (size_t)k;
    }
    buf[used] = 0;
    *text     = buf;
    *n        = used;
    buf       = NULL;
out:
    free(buf);
    close(fd);
    return st;
}

weft_status weft_io_map_file(const char *path, weft_io_map *out)
{
    int    fd;
    size_t n;
    WEFT_TRY(open_read(path, &fd, &n));
    void *p = n ? mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0) : NULL;
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

void weft_io_map_read(const void *p, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), a = (uintptr_t)p, end = a + n;
    a   = (a + page - 1) / page * page;
    end = end / page * page;
    if (a < end) (void)madvise((void *)a, end - a, MADV_DONTNEED); /* only a cache */
}

void weft_io_unmap(weft_io_map *m)
{
    if (m->n) munmap((void *)(uintptr_t)m->p, m->n);
    *m = (weft_io_map){0};
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
    if (!may_go_on()) return write_failed("make the directory", path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return write_failed("make the directory", path);
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

weft_status weft_io_open_write(const char *path, bool truncate, int *fd)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (truncate ? O_TRUNC : 0);
    int f     = may_go_on() ? open(path, flags, 0666) : -1;
    if (f < 0) return write_failed("write", path);
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
    if (!may_go_on()) { /* as a full disk does: some of it is there */
        int err = errno;
        write_all(fd, p, n / 2);
        errno = err;
        return write_failed("write", path);
    }
    return write_all(fd, p, n) ? WEFT_OK : write_failed("write", path);
}

weft_status weft_io_reserve(int fd, const char *path, int64_t n)
{
    if (!may_go_on()) return write_failed("reserve room for", path);
    if (n <= 0) return WEFT_OK;
    do errno = posix_fallocate(fd, 0, n);
    while (errno == EINTR);
    return errno ? write_failed("reserve room for", path) : WEFT_OK;
}

weft_status weft_io_sync(int fd, const char *path)
{
    return may_go_on() && fdatasync(fd) == 0 ? WEFT_OK : write_failed("sync", path);
}

/* The descriptor is gone afterwards, also when this fails. */
weft_status weft_io_close(int fd, const char *path)
{
    bool go  = may_go_on();
    int  err = errno;
    if (close(fd) != 0 && errno != EINTR) return write_failed("close", path);
    errno = err;
    return go ? WEFT_OK : write_failed("close", path);
}

weft_status weft_io_sync_dir(const char *path)
{
    int fd = may_go_on() ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) return write_failed("sync", path);
    /* some file systems cannot sync a directory and say EINVAL: nothing is lost by that */
    weft_status st =
        fsync(fd) == 0 || errno == EINVAL ? WEFT_OK : write_failed("sync", path);
    close(fd);
    return st;
}

weft_status weft_io_rename(const char *from, const char *to)
{
    return may_go_on() && rename(from, to) == 0 ? WEFT_OK : write_failed("rename to", to);
}

static weft_status remove_children(const char *path)
{
    weft_status    st = WEFT_OK;
    struct dirent *e;
    DIR           *dir = opendir(path);
    if (!dir) return write_failed("remove", path);
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
        return errno == ENOENT ? WEFT_OK : write_failed("remove", path);
    if (S_ISDIR(s.st_mode)) WEFT_TRY(remove_children(path));
    int rc = !may_go_on() ? -1 : S_ISDIR(s.st_mode) ? rmdir(path) : unlink(path);
    return rc == 0 || errno == ENOENT ? WEFT_OK : write_failed("remove", path);
}

static weft_status write_temp(const char *temp, const void *p, size_t n)
{
    int fd = -1;
    WEFT_TRY(weft_io_open_write(temp, true, &fd));
    weft_status st = weft_io_write(fd, temp, p, n);
    if (st == WEFT_OK) st = weft_io_sync(fd, temp);
    weft_status closed = weft_io_close(fd, temp);
    return st == WEFT_OK ? closed : st;
}

weft_status weft_io_replace_file(const char *path, const void *p, size_t n)
{
    weft_status st   = WEFT_OK;
    char       *temp = NULL, *dir = NULL;
    const char *slash = strrchr(path, '/');
    if (asprintf(&temp, "%s.tmp.%ld", path, (long)getpid()) < 0) temp = NULL;
    dir = !slash          ? strdup(".")
          : slash == path ? strdup("/")
                          : strndup(path, (size_t)(slash - path));
    if (!temp || !dir) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));

    if (weft_io_exists(dir))
        st = write_temp(temp, p, n);
    else /* by the name that was given */
        st = WEFT_FAIL(WEFT_ERR_ARG, "cannot write %s: there is no folder %s", path, dir);
    if (st == WEFT_OK) st = weft_io_rename(temp, path);
    if (st != WEFT_OK) {
        unlink(temp);
        goto out;
    }
    WEFT_GO(weft_io_sync_dir(dir));
out:
    free(temp);
    free(dir);
    return st;
}
