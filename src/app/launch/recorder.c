/* Flight recorders of ranks (base/flight.h): memory that ranks write and the launcher keeps, and
 * what becomes of it when one fails: OUTPUT/dumps/epoch-E-K/rank<r>.json of all of them, K counted
 * in each epoch.  Of several hosts each writes its own ranks into one folder, once an epoch. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/flight.h"
#include "base/io.h"
#include "launch/launch_priv.h"

enum {
    MAX_DUMP = 16, /* of one run: the first ones tell most */
    NICE     = 19
};

struct weft_launch__recorder {
    int               fd;
    weft_flight_ring *ring; /* of each rank here */
    size_t            bytes;
    int               n_dump;
    uint32_t          epoch;   /* of the last one, */
    int               n_epoch; /* and how many there are of it */
    /* The one that is due; empty: none. */
    char folder[4300];
    int *rank; /* by slot, in that epoch; -1: none */
    /* by slot: what its process has left, before another one begins */
    weft_flight_ring **lost;
};

weft_status weft_launch__recorder_open(weft_launch__run *l)
{
    weft_launch__recorder *x = calloc(1, sizeof *x);
    if (!x) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->recorder = x;
    x->bytes    = (size_t)l->n * sizeof *x->ring;
    x->fd       = -1;
    x->ring     = MAP_FAILED;
    x->rank     = calloc((size_t)l->n, sizeof *x->rank);
    x->lost     = calloc((size_t)l->n, sizeof *x->lost);
    if (!x->rank || !x->lost) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    x->fd = memfd_create("weft-flight", MFD_CLOEXEC);
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
    weft_launch__recorder_flush(l);
    if (x->ring != MAP_FAILED) munmap(x->ring, x->bytes);
    if (x->fd >= 0) close(x->fd);
    free(x->rank);
    free(x->lost);
    free(x);
    l->recorder = NULL;
}

int weft_launch__recorder_fd(const weft_launch__run *l)
{
    return l->recorder ? l->recorder->fd : -1;
}

/* ---- dumps ---- */

/* Survivors go on: all rings are copied first.  Printing takes milliseconds of a processor, which
 * ranks that recover have before it. */
static void write_dump(const weft_launch__run *l)
{
    const weft_launch__recorder *x    = l->recorder;
    weft_flight_ring            *copy = malloc(x->bytes);
    if (!copy) return;
    for (int r = 0; r < l->n; r++)
        memcpy(&copy[r], x->lost[r] ? x->lost[r] : &x->ring[r], sizeof *copy);
    if (l->agent) (void)setpriority(PRIO_PROCESS, 0, NICE);
    for (int r = 0; r < l->n; r++) {
        char      path[4400];
        weft_text t = {0};
        if (x->rank[r] < 0) continue;
        snprintf(path, sizeof path, "%s/rank%d.json", x->folder, x->rank[r]);
        weft_flight_print(&copy[r], x->epoch, &t);
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

/* Ranks by slot; those that prepare or wait have none: another host may have a rank of their
 * number. */
static void note_ranks(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        l->recorder->rank[r] = weft_launch__position(l, r) < weft_launch__agent_count(l)
                                   ? weft_launch__rank(l, r)
                                   : -1;
}

static void keep_lost(weft_launch__recorder *x, int slot)
{
    if (slot < 0 || x->lost[slot]) return;
    x->lost[slot] = malloc(sizeof *x->ring);
    if (x->lost[slot]) memcpy(x->lost[slot], &x->ring[slot], sizeof *x->ring);
}

void weft_launch__recorder_dump(weft_launch__run *l, const char *output, uint32_t epoch,
                                int slot)
{
    weft_launch__recorder *x = l->recorder;
    struct stat            s;
    if (!x || !output || !*output || !has_entries(l)) return;
    bool again = x->n_dump && x->epoch == epoch;
    if (*x->folder && again) { /* lost at once */
        keep_lost(x, slot);
        return;
    }
    weft_launch__recorder_flush(l);
    if (x->n_dump == MAX_DUMP || (again && l->hosts)) return;
    if (stat(output, &s) || !S_ISDIR(s.st_mode)) return; /* the job has not begun */
    x->n_dump++;
    x->n_epoch = again ? x->n_epoch + 1 : 1;
    x->epoch   = epoch;
    snprintf(x->folder, sizeof x->folder, "%s/dumps", output);
    (void)mkdir(x->folder, 0777);
    snprintf(x->folder, sizeof x->folder, "%s/dumps/epoch-%u-%d", output, epoch,
             x->n_epoch);
    note_ranks(l);
    keep_lost(x, slot);
}

/* A child does it, which is not waited for. */
void weft_launch__recorder_flush(weft_launch__run *l)
{
    weft_launch__recorder *x = l->recorder;
    if (!x || !*x->folder) return;
    weft_failpoint("agent.dump");
    pid_t child = mkdir(x->folder, 0777) && errno != EEXIST ? -1 : fork();
    if (!child) {
        if (!fork()) write_dump(l);
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    x->folder[0] = 0;
    for (int r = 0; r < l->n; r++) {
        free(x->lost[r]);
        x->lost[r] = NULL;
    }
}
