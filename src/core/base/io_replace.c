/* Replacing a file whole.  In: a path as a user gives it.  Out: the old file or the new one.
 * Links are followed by hand, so that the temporary file lies next to what is replaced. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io_priv.h"

enum {
    MOST_LINKS = 40,  /* as Linux does */
    MOST_NAMES = 100, /* temporary names tried; one is enough but for accidents */
    STALE_S    = 60,  /* a temporary file between its making and its lock is younger */
    LOOK_MS    = 20   /* between looks for a pipe's reader */
};

#define TEMP ".tmp."

/* What a path means for a writer. */
typedef struct destination {
    char  *path;       /* links followed */
    int    descriptor; /* it names this open descriptor of ours, or -1 */
    bool   exists;
    mode_t mode;
    uid_t  uid;
    gid_t  gid;
} destination;

static weft_status no_memory(void)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash          ? strdup(".")
           : slash == path ? strdup("/")
                           : strndup(path, (size_t)(slash - path));
}

/* /dev/stdout, /dev/fd/3 and the like end in a link of /proc/PID/fd: the number of that
 * descriptor, or -1. Opening such a name anew would write over a regular file from its first
 * byte. */
static int own_descriptor(const char *link, const char *folder)
{
    char        real[PATH_MAX], own[64];
    const char *slash = strrchr(link, '/'), *name = slash ? slash + 1 : link;
    char       *end;
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    if (!realpath(folder, real) || strcmp(real, own) != 0) return -1;
    long n = strtol(name, &end, 10);
    return *end || end == name || n < 0 || n > INT_MAX ? -1 : (int)n;
}

/* What the link at path names; NULL with errno set where it cannot be read. */
static char *read_link(const char *path, const char *folder)
{
    char    text[PATH_MAX], *whole = NULL;
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0) return NULL;
    text[n] = 0;
    if (*text == '/') return strdup(text);
    return asprintf(&whole, "%s/%s", folder, text) < 0 ? NULL : whole;
}

/* One link further; *more: there may be another. */
static weft_status follow_once(const char *path, destination *to, bool *more)
{
    weft_status st     = WEFT_OK;
    struct stat info   = {0};
    char       *folder = NULL, *next = NULL;

    *more      = false;
    to->exists = lstat(to->path, &info) == 0;
    if (!to->exists && errno == ENOENT) return WEFT_OK;
    if (!to->exists) return weft_io__write_failed("write", path);
    to->mode = info.st_mode;
    to->uid  = info.st_uid;
    to->gid  = info.st_gid;
    if (!S_ISLNK(info.st_mode)) return WEFT_OK;

    folder = folder_of(to->path);
    if (!folder) WEFT_GO(no_memory());
    to->descriptor = own_descriptor(to->path, folder);
    if (to->descriptor >= 0) goto out;
    next = read_link(to->path, folder);
    if (!next) WEFT_GO(weft_io__write_failed("write", path));
    free(to->path);
    to->path = next;
    *more    = true;
out:
    free(folder);
    return st;
}

static weft_status find_destination(const char *path, destination *to)
{
    weft_status st   = WEFT_OK;
    bool        more = true;

    *to = (destination){.path = strdup(path), .descriptor = -1};
    if (!to->path) return no_memory();
    for (int i = 0; more && st == WEFT_OK; i++) {
        if (i == MOST_LINKS) {
            errno = ELOOP;
            WEFT_GO(weft_io__write_failed("write", path));
        }
        st = follow_once(path, to, &more);
    }
    if (st == WEFT_OK && to->exists && to->descriptor < 0 && S_ISDIR(to->mode)) {
        errno = EISDIR;
        WEFT_GO(weft_io__write_failed("write", path));
    }
out:
    if (st != WEFT_OK) free(to->path);
    return st;
}

static bool is_in_place(const destination *to)
{
    return to->descriptor >= 0 || (to->exists && !S_ISREG(to->mode));
}

bool weft_io_is_stream(const char *path)
{
    destination to;
    if (find_destination(path, &to) != WEFT_OK) return false;
    free(to.path);
    return is_in_place(&to);
}

/* ---- the temporary file ---- */

/* Of a process that was killed: it had this name, is ours, older than a minute, and no process
 * holds its lock. */
static void remove_if_stale(const char *temp)
{
    struct stat info;
    int         fd = open(temp, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        time(NULL) - info.st_mtime > STALE_S && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(temp);
    close(fd);
}

/* "<name>.tmp." and 16 digits: what create_temp() makes. */
static bool is_temp_of(const char *entry, const char *name)
{
    size_t n = strlen(name), k = strlen(TEMP);
    return strncmp(entry, name, n) == 0 && strncmp(entry + n, TEMP, k) == 0 &&
           strspn(entry + n + k, "0123456789abcdef") == 16 && !entry[n + k + 16];
}

/* Names are drawn, so that no later run writes over what a killed one left: it is removed here.
 * Failures to do so are of no account. */
static void sweep_stale(const char *target)
{
    const char    *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    char          *folder = folder_of(target), *temp;
    DIR           *d      = folder ? opendir(folder) : NULL;
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (!is_temp_of(e->d_name, name)) continue;
        if (asprintf(&temp, "%s/%s", folder, e->d_name) < 0) break;
        remove_if_stale(temp);
        free(temp);
    }
    if (d) closedir(d);
    free(folder);
}

/* A new file next to the target, with the target's mode from the start: nobody reads in between
 * what the old file kept from them.  The owner is kept where we may. */
static weft_status create_temp(const char *path, const destination *to,
                               weft_io_replacement *r)
{
    sweep_stale(r->target);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    for (int i = 0; i < MOST_NAMES; i++) {
        uint64_t draw;
        if (getrandom(&draw, sizeof draw, 0) != (ssize_t)sizeof draw) continue;
        free(r->temp);
        if (asprintf(&r->temp, "%s" TEMP "%016llx", r->target, (unsigned long long)draw) <
            0) {
            r->temp = NULL;
            return no_memory();
        }
        r->fd = open(r->temp, flags, to->exists ? 0600 : 0666);
        if (r->fd >= 0 || errno != EEXIST) break;
    }
    r->fd = weft_io__above_standard(r->fd);
    if (r->fd < 0) return weft_io__write_failed("write", path);
    (void)flock(r->fd, LOCK_EX | LOCK_NB); /* for sweep_stale() */
    if (!to->exists) return WEFT_OK;
    if ((to->uid != geteuid() || to->gid != getegid()) &&
        fchown(r->fd, to->uid, to->gid) != 0)
        errno = 0; /* the file is then ours */
    return fchmod(r->fd, to->mode & 0777) == 0 ? WEFT_OK
                                               : weft_io__write_failed("write", path);
}

/* Opens a device or a pipe.  A pipe has a while to get its reader (ENXIO: none yet), but no call
 * waits for ever; once open it is written as fast as it is read. */
static weft_status open_special(const char *path, const destination *to, int *fd)
{
    const int flags = O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
    for (int waited_ms = 0;; waited_ms += LOOK_MS) {
        *fd = open(to->path, flags);
        if (*fd >= 0 || errno != ENXIO || !S_ISFIFO(to->mode)) break;
        if (waited_ms >= WEFT_IO_PARTNER_MS)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cannot write %s: nothing reads from this pipe", path);
        usleep(LOOK_MS * 1000);
    }
    if (*fd < 0 || fcntl(*fd, F_SETFL, O_WRONLY) != 0)
        return weft_io__write_failed("write", path);
    return WEFT_OK;
}

static weft_status open_in_place(const char *path, const destination *to,
                                 weft_io_replacement *r)
{
    if (to->descriptor >= 0)
        r->fd = fcntl(to->descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    else
        WEFT_TRY(open_special(path, to, &r->fd));
    r->fd = weft_io__above_standard(r->fd);
    return r->fd >= 0 ? WEFT_OK : weft_io__write_failed("write", path);
}

/* By the name that was given. */
static weft_status check_folder(const char *path, const char *target)
{
    char *folder = folder_of(target);
    if (!folder) return no_memory();
    weft_status st = WEFT_OK;
    if (!weft_io_exists(folder))
        st = WEFT_FAIL(WEFT_ERR_ARG, "cannot write %s: there is no folder %s", path,
                       folder);
    free(folder);
    return st;
}

weft_status weft_io_replace_begin(const char *path, weft_io_replacement *out)
{
    weft_status         st = WEFT_OK;
    destination         to;
    weft_io_replacement r = {.fd = -1};

    *out = r;
    WEFT_TRY(find_destination(path, &to));
    r.target = to.path;
    if (!is_in_place(&to)) WEFT_GO(check_folder(path, to.path));
    if (!weft_io__may_go_on()) WEFT_GO(weft_io__write_failed("write", path));
    WEFT_GO(is_in_place(&to) ? open_in_place(path, &to, &r) : create_temp(path, &to, &r));
    *out = r;
    return WEFT_OK;
out:
    if (r.fd < 0) { /* the name is not ours */
        free(r.temp);
        r.temp = NULL;
    }
    weft_io_replace_drop(&r);
    return st;
}

weft_status weft_io_replace_end(weft_io_replacement *r, const char *path)
{
    weft_status st     = WEFT_OK;
    char       *folder = NULL;
    int         fd     = r->fd;

    if (fd >= 0) {
        WEFT_GO(weft_io_sync(fd, path));
        r->fd = -1;
        WEFT_GO(weft_io_close(fd, path));
    }
    if (r->temp) {
        folder = folder_of(r->target);
        if (!folder) WEFT_GO(no_memory());
        WEFT_GO(weft_io_rename(r->temp, r->target));
        free(r->temp);
        r->temp = NULL;
        WEFT_GO(weft_io_sync_dir(folder));
    }
out:
    free(folder);
    weft_io_replace_drop(r);
    return st;
}

void weft_io_replace_drop(weft_io_replacement *r)
{
    if (r->fd >= 0) close(r->fd);
    if (r->temp) unlink(r->temp);
    free(r->target);
    free(r->temp);
    *r = (weft_io_replacement){.fd = -1};
}

weft_status weft_io_replace_file(const char *path, const void *p, size_t n)
{
    weft_io_replacement r;
    weft_status         st = WEFT_OK;
    WEFT_TRY(weft_io_replace_begin(path, &r));
    WEFT_GO(weft_io_write(r.fd, path, p, n));
    WEFT_GO(weft_io_replace_end(&r, path));
out:
    weft_io_replace_drop(&r);
    return st;
}
