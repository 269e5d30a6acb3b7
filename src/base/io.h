/* Files, with every call that can fail behind one door so that tests can fail the n-th one.
 * Errors name the path and the system's reason; ENOSPC and EDQUOT are WEFT_ERR_FULL; a path that
 * is not there, or not for us to read or write, is WEFT_ERR_ARG: somebody named it wrongly. */
#ifndef WEFT_BASE_IO_H
#define WEFT_BASE_IO_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* The whole file, NUL-terminated; free() it. */
weft_status weft_io_read_file(const char *path, char **text, size_t *n);

/* A read-only map of a file. */
typedef struct weft_io_map {
    const uint8_t *p;
    size_t         n;
} weft_io_map;
weft_status weft_io_map_file(const char *path, weft_io_map *out);
void        weft_io_unmap(weft_io_map *m);
/* Bytes of a map that have been read and need not stay in memory (they can be read again). */
void weft_io_map_read(const void *p, size_t n);

bool        weft_io_exists(const char *path);
weft_status weft_io_mkdirs(const char *path); /* with parents; present is fine */

/* Thin calls that go through the failure hook (so does each mkdir of mkdirs).  write takes all n bytes or fails. */
weft_status weft_io_open_write(const char *path, bool truncate, int *fd);
weft_status weft_io_write(int fd, const char *path, const void *p, size_t n);
weft_status weft_io_reserve(int fd, const char *path, int64_t n); /* posix_fallocate */
weft_status weft_io_sync(int fd, const char *path);               /* fdatasync */
weft_status weft_io_close(int fd, const char *path);
weft_status weft_io_sync_dir(const char *path);
weft_status weft_io_rename(const char *from, const char *to);
weft_status weft_io_remove_tree(const char *path);

/* temp name + write + sync + rename + directory sync: old or new, never half. */
weft_status weft_io_replace_file(const char *path, const void *p, size_t n);

/* Tests: from now on the n-th hooked call (1 = the next) fails with the given errno and so does
 * each one after it if sticky; 0 turns it off.  A failing write leaves half of its bytes.  Also WEFT_IO_FAIL=n:errno[:sticky], and
 * WEFT_IO_KILL=n, which ends the process with SIGKILL right before the n-th call. */
void    weft_io_fail_at(int64_t n, int err, bool sticky);
int64_t weft_io_calls(void); /* hooked calls so far */

#endif
