/* Files, with every call that can fail behind one door so that tests can fail the n-th one.
 * Errors name the path and the system's reason; ENOSPC and EDQUOT are WEFT_ERR_FULL; a path that
 * is not there, or not for us to read or write, is WEFT_ERR_ARG: somebody named it wrongly. */
#ifndef WEFT_BASE_IO_H
#define WEFT_BASE_IO_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/status.h"

enum {
    WEFT_IO_TEXT_MOST = 64 << 20, /* bytes of a text that is read whole */
    /* flags */
    WEFT_IO_PIPES = 1,   /* a pipe, a terminal or /dev/stdin will do as well */
    WEFT_IO_LARGE = 2,   /* up to WEFT_IO_LARGE_MOST */
    WEFT_IO_ALIGN = 4096 /* of what goes past the cache */
};
#define WEFT_IO_LARGE_MOST (4ll << 30)

/* The whole file, NUL-terminated; free() it.  It is a regular file of at most 64 MB; anything else
 * is WEFT_ERR_ARG at once: no call waits for a pipe that nothing writes to. */
weft_status weft_io_read_file(const char *path, char **text, size_t *n);
/* The same with flags.  A signal that a handler takes ends the wait for a pipe. */
weft_status weft_io_read_as(const char *path, int flags, char **text, size_t *n);

/* A regular file to read from, and its size (bytes may be NULL); close() it. */
weft_status weft_io_open_read(const char *path, int *fd, int64_t *bytes);

/* A read-only map of a regular file. */
typedef struct weft_io_map {
    const uint8_t *p;
    size_t         n;
} weft_io_map;
weft_status weft_io_map_file(const char *path, weft_io_map *out);
void        weft_io_unmap(weft_io_map *m);

/* A file that is read piece by piece while others may change it.  A read that does not get all
 * its bytes (the file was truncated or replaced, the device failed) is WEFT_ERR_IO with one line;
 * a map would end the process by SIGBUS. Any thread may read. */
typedef struct weft_io_file {
    const char *path; /* borrowed */
    int fd; /* -1: opened for each read, so that thousands of files need no descriptors */
    uint64_t dev, ino;
    int64_t  bytes; /* when it was opened */
} weft_io_file;
weft_status weft_io_file_open(const char *path, bool keep_fd, weft_io_file *out);
weft_status weft_io_file_read(const weft_io_file *f, int64_t at, void *p, size_t n);
void        weft_io_file_close(weft_io_file *f); /* accepts a zeroed or closed one */

bool        weft_io_exists(const char *path);
weft_status weft_io_mkdirs(const char *path); /* with parents; present is fine */

/* Thin calls that go through the failure hook (so does each mkdir of mkdirs).  write takes all n
 * bytes or fails.
 * fresh: path must be new, not even a link; else it is made where missing, and its bytes stay. */
weft_status weft_io_open_write(const char *path, bool fresh, int *fd);
weft_status weft_io_write(int fd, const char *path, const void *p, size_t n);
/* Bytes at .. at + n - 1, wherever the descriptor stands. */
weft_status weft_io_write_at(int fd, const char *path, const void *p, size_t n,
                             int64_t at);
/* A second descriptor of a file that is there, past the cache (O_DIRECT): memory, place and length
 * of a write are then multiples of WEFT_IO_ALIGN.  *fd is -1 where the file system cannot. */
weft_status weft_io_open_direct(const char *path, int *fd);
/* What address and length of each part of a write past the cache are multiples of: what the system
 * says of the file, else WEFT_IO_ALIGN, which always suffices. */
int64_t weft_io_direct_align(int direct);
/* As write_at, from several places in memory, which it changes. */
weft_status weft_io_write_parts_at(int fd, const char *path, struct iovec *part,
                                   int n_part, int64_t at);
weft_status weft_io_reserve(int fd, const char *path, int64_t n); /* posix_fallocate */
weft_status weft_io_sync(int fd, const char *path);               /* fdatasync */
weft_status weft_io_close(int fd, const char *path);
weft_status weft_io_sync_dir(const char *path);
weft_status weft_io_rename(const char *from, const char *to);
weft_status weft_io_remove_tree(const char *path);

/* The replacement of a file: old or new, never half.
 *
 *     weft_io_replacement r;
 *     WEFT_TRY(weft_io_replace_begin(path, &r));
 *     WEFT_GO(weft_io_write(r.fd, path, p, n));       any number of times
 *     WEFT_GO(weft_io_replace_end(&r, path));         sync, close, rename, sync of the folder
 *     out: weft_io_replace_drop(&r);                  fine after end
 *
 * (1) A link is followed; what it names is replaced, and keeps its mode.
 * (2) The temporary name is new, next to the target and drawn at random: a file or link that
 *     someone prepared is neither opened nor replaced.
 * (3) What is no regular file (device, pipe), or names an open descriptor (/dev/stdout), is
 *     written in
 *     place: temp is NULL and nothing is renamed. */
typedef struct weft_io_replacement {
    int   fd;     /* to write to; -1: the writer closed it */
    char *target; /* the file behind links */
    char *temp;   /* NULL: written in place */
} weft_io_replacement;
weft_status weft_io_replace_begin(const char *path, weft_io_replacement *out);
weft_status weft_io_replace_end(weft_io_replacement *r, const char *path);
void        weft_io_replace_drop(weft_io_replacement *r);

/* All of it in one call. */
weft_status weft_io_replace_file(const char *path, const void *p, size_t n);
/* Would a replacement of path be written in place? */
bool weft_io_is_stream(const char *path);

/* Tests: from now on the n-th hooked call (1 = the next) fails with the given errno and so does
 * each one after it if sticky; 0 turns it off.  A failing write leaves half of its bytes.  Also
 * WEFT_IO_FAIL=n:errno[:sticky], and WEFT_IO_KILL=n, which ends the process with SIGKILL right
 * before the n-th call, or WEFT_IO_STOP=n, which stops it there until SIGCONT. */
void    weft_io_fail_at(int64_t n, int err, bool sticky);
int64_t weft_io_calls(void); /* hooked calls so far */

#endif
