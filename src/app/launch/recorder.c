/* Flight recorders of ranks (base/flight.h): memory that ranks write and the launcher keeps, and
 * what becomes of it when one fails: OUTPUT/dumps/epoch-E-K/rank<r>.json of all of them, K counted
 * in each epoch.  Of several hosts each writes its own ranks into one folder, once an epoch. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/flight.h"
#include "base/io.h"
#include "launch/launch_priv.h"

enum {
    MAX_DUMP = 16 /* of one run: the first ones tell most */
};

struct weft_launch__recorder {
    int               fd;
    weft_flight_ring *ring; /* of each rank here */
    size_t            bytes;
    int               n_dump;
    uint32_t          epoch;   /* of the last one, */
    int               n_epoch; /* and how many there are of it */
};

weft_status weft_launch__recorder_open(weft_launch__run *l)
{
    weft_launch__recorder *x = calloc(1, sizeof *x);
    if (!x) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->recorder = x;
    x->bytes    = (size_t)l->n * sizeof *x->ring;
    x->ring     = MAP_FAILED;
    x->fd       = memfd_create("weft-flight", MFD_CLOEXEC);
    if (x->fd >= 0 && !ftruncate(x->fd, (off_t)x->bytes))
        x->ring = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, x->fd, 0);
    if (x->ring == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "shared memory: %s", strerror(errno));
    return WEFT_OK;
}

void weft_launch__recorder_close(weft_launch__run *l)
{
    weft_launch__recorder *x = l->recorder;
    if (!x) return;
    if (x->ring != MAP_FAILED) munmap(x->ring, x->bytes);
    if (x->fd >= 0) close(x->fd);
    free(x);
    l->recorder = NULL;
}

int weft_launch__recorder_fd(const weft_launch__run *l)
{
    return l->recorder ? l->recorder->fd : -1;
}

/* ---- dumps ---- */

static void write_dump(const weft_launch__run *l, const weft_flight_ring *ring,
                       const char *folder)
{
    for (int r = 0; r < l->n; r++) {
        char      path[4400];
        weft_text t = {0};
        if (weft_launch__position(l, r) >= weft_launch__agent_count(l))
            continue; /* it prepares, or waits; another host may have a rank of its number */
        snprintf(path, sizeof path, "%s/rank%d.json", folder, weft_launch__rank(l, r));
        weft_flight_print(&ring[r], &t);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd >= 0) (void)weft_io_write(fd, path, t.s, t.n);
        if (fd >= 0) close(fd);
        weft_text_fini(&t);
    }
}

static bool has_entries(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (atomic_load(&l->recorder->ring[r].n)) return true;
    return false;
}

/* Printing takes milliseconds, for which nobody waits: a child does it. */
void weft_launch__recorder_dump(weft_launch__run *l, const char *output, uint32_t epoch)
{
    weft_launch__recorder *x = l->recorder;
    char                   folder[4300];
    struct stat            s;
    if (!x || !output || !*output || x->n_dump == MAX_DUMP || !has_entries(l)) return;
    if (stat(output, &s) || !S_ISDIR(s.st_mode)) return; /* the job has not begun */
    bool again = x->n_dump && x->epoch == epoch;
    if (again && l->hosts) return;
    weft_flight_ring *copy = malloc(x->bytes);
    if (!copy) return;
    memcpy(copy, x->ring, x->bytes); /* as it is now: survivors go on */
    snprintf(folder, sizeof folder, "%s/dumps", output);
    (void)mkdir(folder, 0777);
    x->n_dump++;
    x->n_epoch = again ? x->n_epoch + 1 : 1;
    x->epoch   = epoch;
    snprintf(folder, sizeof folder, "%s/dumps/epoch-%u-%d", output, epoch, x->n_epoch);
    pid_t child = mkdir(folder, 0777) && errno != EEXIST ? -1 : fork();
    if (!child) {
        if (!fork()) write_dump(l, copy, folder);
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    free(copy);
}
