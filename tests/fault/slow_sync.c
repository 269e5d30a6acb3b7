/* Preloaded: a device that is slow.  Every fsync and fdatasync of a file whose path holds
 * SLOW_SYNC_FILE (all, where that is not set) takes SLOW_SYNC_S seconds. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void be_slow(int fd)
{
    const char     *seconds = getenv("SLOW_SYNC_S"), *file = getenv("SLOW_SYNC_FILE");
    double          s = seconds ? strtod(seconds, NULL) : 0;
    struct timespec t = {.tv_sec = (time_t)s};
    char            link[64], path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    if (file && !strstr(path, file)) return;
    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t)) continue;
}

int fsync(int fd)
{
    be_slow(fd);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    be_slow(fd);
    return (int)syscall(SYS_fdatasync, fd);
}
