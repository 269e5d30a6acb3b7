/* The register in a folder that all hosts see: DIR/views/<epoch>, made by link(2) of a whole file.
 *
 * (1) A value is written under a name of its own, synchronized, then linked to the epoch's name: of
 *     several that do so one succeeds (POSIX, NFS), and no reader sees a part.
 * (2) A link that failed may have been made: over NFS the answer can be lost, and the repeated
 *     request finds the name taken.  What stands is therefore always read from the epoch's name.
 * (3) The folder is tried when the register is opened: a second link to one name must fail. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "register/register_priv.h"

enum {
    MAX_PATH = 1024,
    STALE_S  = 600
};

typedef struct file_store {
    char     folder[MAX_PATH - 128]; /* DIR/views */
    uint32_t random[2];
    uint32_t n_temp;
    bool     tried;
} file_store;

static void name_epoch(const file_store *f, uint32_t epoch, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s/%010u", f->folder, epoch);
}

static void name_temp(file_store *f, const char *what, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s/.%s-%08x%08x-%u", f->folder, what, f->random[0],
             f->random[1], f->n_temp++);
}

/* A whole, synchronized file of a new name. */
static weft_status write_temp(file_store *f, const void *bytes, size_t n,
                              char path[MAX_PATH])
{
    int         fd;
    weft_status st = WEFT_OK;
    name_temp(f, "new", path);
    WEFT_TRY(weft_io_open_write(path, true, &fd));
    WEFT_GO(weft_io_write(fd, path, bytes, n));
    WEFT_GO(weft_io_sync(fd, path));
    st = weft_io_close(fd, path);
    if (st != WEFT_OK) unlink(path);
    return st;
out:
    close(fd);
    unlink(path);
    return st;
}

static weft_status read_epoch(const file_store *f, uint32_t epoch, register_value *value)
{
    char   path[MAX_PATH], *text;
    size_t n;
    name_epoch(f, epoch, path);
    *value = (register_value){.epoch = epoch};
    if (access(path, F_OK) < 0 && errno == ENOENT) return WEFT_OK;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    if (n > WEFT_REGISTER_MOST) {
        free(text);
        return WEFT_FAIL(WEFT_ERR_IO, "%s: %zu bytes are no view", path, n);
    }
    *value = (register_value){
        .stands = true, .epoch = epoch, .bytes = (uint8_t *)text, .n = n};
    return WEFT_OK;
}

/* The epoch of a file's name, or -1. */
static int64_t epoch_of(const char *name)
{
    int64_t epoch = 0;
    if (strlen(name) != 10) return -1;
    for (int k = 0; k < 10; k++) {
        if (name[k] < '0' || name[k] > '9') return -1;
        epoch = epoch * 10 + (name[k] - '0');
    }
    return epoch < WEFT_REGISTER_NEWEST ? epoch : -1;
}

static weft_status read_newest(const file_store *f, register_value *value)
{
    int64_t newest = 0;
    DIR    *d      = opendir(f->folder);
    if (!d) return WEFT_FAIL(WEFT_ERR_IO, "%s: %s", f->folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d));)
        if (epoch_of(e->d_name) > newest) newest = epoch_of(e->d_name);
    closedir(d);
    *value = (register_value){0};
    return newest ? read_epoch(f, (uint32_t)newest, value) : WEFT_OK;
}

/* In place and without a sync: a number that is lost, or read in parts, is another number. */
static weft_status leave_beat(const file_store *f, const void *beat)
{
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/alive", f->folder);
    int  fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    bool ok =
        fd >= 0 && pwrite(fd, beat, sizeof(uint64_t), 0) == (ssize_t)sizeof(uint64_t);
    int why = errno;
    if (fd >= 0 && close(fd)) ok = false;
    return ok ? WEFT_OK : WEFT_FAIL(WEFT_ERR_IO, "%s: %s", path, strerror(why));
}

static uint64_t read_beat(const file_store *f)
{
    char     path[MAX_PATH];
    uint64_t beat = 0;
    snprintf(path, sizeof path, "%s/alive", f->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    if (pread(fd, &beat, sizeof beat, 0) != (ssize_t)sizeof beat) beat = 0;
    close(fd);
    return beat;
}

/* Removes what killed processes left, by the clock of the file system.  A process that was only
 * paused finds its file gone, and proposes again. */
static void sweep_temps(const file_store *f, time_t now)
{
    struct stat s;
    DIR        *d = opendir(f->folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, ".new-", 5) && strncmp(e->d_name, ".probe-", 7)) continue;
        if (!fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) &&
            now - s.st_mtime > STALE_S)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

/* One line with a remedy. */
static weft_status fail_folder(weft_status st)
{
    char why[200];
    snprintf(why, sizeof why, "%s", weft_error_text());
    return WEFT_FAIL(st, "%s: give file: a folder that all hosts see and can write", why);
}

/* A folder in which a name can be linked twice, or not at all, is no register. */
static weft_status try_folder(file_store *f)
{
    char        first[MAX_PATH], second[MAX_PATH], name[MAX_PATH];
    struct stat s;
    weft_status st = WEFT_OK;
    st             = weft_io_mkdirs(f->folder);
    if (st == WEFT_OK) st = write_temp(f, "1", 1, first);
    if (st != WEFT_OK) return fail_folder(st);
    if (write_temp(f, "2", 1, second) != WEFT_OK) {
        unlink(first);
        return fail_folder(WEFT_ERR_IO);
    }
    name_temp(f, "probe", name);
    if (link(first, name) < 0)
        st = WEFT_FAIL(WEFT_ERR_IO,
                       "%s: no file can be linked there (%s): give a folder of a file "
                       "system with hard links, or etcd://",
                       f->folder, strerror(errno));
    else if (link(second, name) == 0 || errno != EEXIST || stat(first, &s) < 0 ||
             s.st_nlink != 2)
        st = WEFT_FAIL(
            WEFT_ERR_IO,
            "%s: link(2) is not exclusive there, so two views of one epoch could "
            "stand: give another folder, or etcd://",
            f->folder);
    if (!stat(first, &s)) sweep_temps(f, s.st_mtime);
    unlink(name);
    unlink(second);
    unlink(first);
    return st;
}

static weft_status propose_file(file_store *f, uint32_t epoch, const void *bytes,
                                size_t n, register_value *value)
{
    char temp[MAX_PATH], path[MAX_PATH];
    name_epoch(f, epoch, path);
    WEFT_TRY(write_temp(f, bytes, n, temp));
    int error = link(temp, path) < 0 ? errno : 0;
    unlink(temp);
    WEFT_TRY(read_epoch(f, epoch, value));
    if (value->stands) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_IO, "%s: %s", path, strerror(error ? error : ENOENT));
}

/* What is given as standing is on the disk, whichever process linked it: a power cut takes back no
 * view that a host has seen. */
static weft_status ask_file(void *store, uint32_t epoch, const void *bytes, int64_t n,
                            register_value *value)
{
    file_store *f = store;
    if (!f->tried) WEFT_TRY(try_folder(f));
    f->tried = true;
    if (n < 0 && bytes) WEFT_TRY(leave_beat(f, bytes));
    if (epoch == WEFT_REGISTER_NEWEST)
        WEFT_TRY(read_newest(f, value));
    else
        WEFT_TRY(read_epoch(f, epoch, value));
    if (epoch == WEFT_REGISTER_NEWEST) value->beat = read_beat(f);
    if (!value->stands && n >= 0)
        WEFT_TRY(propose_file(f, epoch, bytes, (size_t)n, value));
    return value->stands ? weft_io_sync_dir(f->folder) : WEFT_OK;
}

weft_status weft_register__open_file(const char *folder, const weft_register_options *o,
                                     weft_register **out)
{
    static const register_store ops = {.ask = ask_file, .destroy = free};
    file_store                 *f   = calloc(1, sizeof *f);
    char                        where[300];
    if (!f) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (!*folder || snprintf(f->folder, sizeof f->folder, "%s/views", folder) >=
                        (int)sizeof f->folder) {
        free(f);
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "register 'file:%.80s': a folder is needed, of at most %zu "
                         "characters",
                         folder, sizeof f->folder - 10);
    }
    snprintf(where, sizeof where, "file:%s", folder);
    if (getrandom(f->random, sizeof f->random, 0) != (ssize_t)sizeof f->random)
        f->random[0] = (uint32_t)getpid();
    return weft_register__open_store(&ops, f, where, o, out);
}
