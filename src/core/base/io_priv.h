/* What io.c and io_replace.c share. */
#ifndef WEFT_BASE_IO_PRIV_H
#define WEFT_BASE_IO_PRIV_H

#include "base/io.h"

enum {
    WEFT_IO_PARTNER_MS = 2000 /* for a pipe's other end to be opened */
};

/* Counts a call of the failure hook.  false: the call that would follow fails with errno. */
bool weft_io__may_go_on(void);

/* "cannot <what> <path>: <errno>" with the status that errno means. */
weft_status weft_io__write_failed(const char *what, const char *path);

/* fd, or a copy of it above 0, 1 and 2: a library may be called with standard streams closed, and
 * what others write to these must not reach a data file.  Passes -1 on. */
int weft_io__above_standard(int fd);

#endif
