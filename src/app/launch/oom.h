/* How many processes the kernel has killed for want of memory: of this process's control group
 * (and those below it) where the kernel counts them, else of the machine.  A rank that was killed
 * by SIGKILL while the count rose was one of them.
 *
 * root: "" or, in tests, a folder with /proc and /sys of its own.  -1: not known. */
#ifndef WEFT_LAUNCH_OOM_H
#define WEFT_LAUNCH_OOM_H

#include <stdint.h>

int64_t weft_oom_count(const char *root);

#endif
