/* Who writes the output folder: rank 0 of the newest view of one run, and no other process.
 *
 *     the lock     of the folder: of rank 0's process, and gone with it
 *     epoch        "7 5a31..": the newest view whose rank 0 has opened the files, and its run,
 *                  which rank 0 names when the run begins
 *
 * (1) A run begins only with the lock, where the file system knows locks, and above the number
 *     that is there: it never falls.
 * (2) In a later view a new rank 0 takes the lock; one that is rank 0 no more has given it up by
 *     then.  A lock that is still held (by a host that is cut off, or one whose file system forgets
 *     the locks of lost hosts late) does not stop the job: its holder is of this run, as another
 *     run would have named itself.  It is asked for again each second.
 * (3) Rank 0 reads `epoch` each second and before each checkpoint.  Where another run is named
 *     there it writes nothing more, and its run ends; where that is a later view of its own, it is
 *     as one that has lost its peers. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "comm/auth.h"
#include "session/session_priv.h"

#define CLAIM_S 2 /* for a run that is just ending */
#define TAKEN_S                                                                          \
    100 /* for one that was taken over: NFS forgets a lost client's locks later */
#define LOOK_S 1.0 /* between looks of rank 0 */

/* ---- the lock ---- */

/* false: another process has it.  Where a file system knows no locks all have it. */
static bool try_lock(weft_session *s)
{
    if (s->out.claim >= 0) return true;
    int fd = open(s->out.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return true; /* not there yet */
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return false;
    }
    s->out.claim = fd;
    return true;
}

/* Of two runs that write into one folder each would destroy the other's.  One that is just ending
 * is waited for. */
weft_status weft_session__claim(weft_session *s)
{
    bool   taken = s->now && s->now->takes_over, said = false;
    double begun = weft_clock_s();
    if (!weft_session__writes(s)) return WEFT_OK;
    while (!try_lock(s)) {
        double waited = weft_clock_s() - begun;
        if (waited > CLAIM_S && !taken)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: another run writes there; wait for it, choose another "
                             "output, or --fresh to start beside it",
                             s->out.folder);
        if (waited > CLAIM_S && !said)
            weft_say_info(&s->say, "%s: waiting for the run that was taken over to end",
                          s->out.folder);
        said = said || waited > CLAIM_S;
        if (waited > TAKEN_S) {
            weft_say_warn(&s->say,
                          "%s: the run that was taken over still has its lock; this one "
                          "goes on, what that one writes does not count",
                          s->out.folder);
            return WEFT_OK;
        }
        usleep(20000);
    }
    return WEFT_OK;
}

void weft_session__give_up_claim(weft_session *s)
{
    if (s->out.claim >= 0) close(s->out.claim);
    s->out.claim = -1;
}

/* ---- epoch ---- */

typedef struct fence {
    int64_t  epoch; /* 0: none has opened the files */
    uint64_t run;   /* 0: the file does not say it */
} fence;

static void name_file(const weft_session *s, char path[4352])
{
    snprintf(path, 4352, "%s/epoch", s->out.folder);
}

static weft_status read_fence(const char *path, fence *out)
{
    char     *text = NULL;
    size_t    n    = 0;
    long long x    = 0;
    *out           = (fence){0};
    if (!weft_io_exists(path)) return WEFT_OK;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    bool good = sscanf(text, "%lld %" SCNx64, &x, &out->run) >= 1 && x >= 0;
    free(text);
    if (!good)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: not the number of a view: remove the file",
                         path);
    out->epoch = x;
    return WEFT_OK;
}

static weft_status write_fence(const weft_session *s, const char *path, int64_t epoch)
{
    char text[64];
    int  n = snprintf(text, sizeof text, "%lld %016" PRIx64 "\n", (long long)epoch,
                      s->out.run);
    return weft_io_replace_file(path, text, (size_t)n);
}

/* Are numbers of views those of agents of several hosts, which rise through all runs? */
static bool counts_views(const weft_session *s)
{
    return weft_session__has_agent(s) && weft_session__may_be_stale(s) &&
           s->out.found.epoch > 0;
}

/* May this rank 0 write, by what stands there? */
static weft_status compare_fence(const weft_session *s, const char *path, const fence *f)
{
    long long own   = (long long)s->out.found.epoch;
    bool      other = f->run && f->run != s->out.run;
    bool      later = counts_views(s) && !s->now->saves_only && f->epoch > own;
    if (!other && !later) return WEFT_OK;
    if (f->run && !other) /* its agent finds that it is not in that view */
        return WEFT_FAIL(WEFT_ERR_PEER, "%s: view %lld of this job writes there", path,
                         (long long)f->epoch);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: view %lld of %s writes there; this one (view %lld) was taken "
                     "over, and ends",
                     path, (long long)f->epoch,
                     other ? "another run" : "a later run of this job", own);
}

weft_status weft_session__name_run(weft_session *s)
{
    weft_status st = WEFT_OK;
    if (weft_session__writes(s)) {
        st = weft_comm_random(&s->out.run, sizeof s->out.run);
        s->out.run |= 1;
    }
    WEFT_TRY(weft_session__outcome(s, st));
    return weft_session__share(s, &s->out.run, sizeof s->out.run);
}

weft_status weft_session__begin_epoch(weft_session *s)
{
    char    path[4352];
    fence   f;
    int64_t epoch = s->out.found.epoch;
    name_file(s, path);
    if (!weft_session__may_be_stale(s) && !weft_io_exists(path)) return WEFT_OK;
    WEFT_TRY(read_fence(path, &f));
    if (f.epoch >= epoch && counts_views(s))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: view %lld of another run writes there, which began at the "
                         "same time as this one (view %lld): start it once more",
                         path, (long long)f.epoch, (long long)epoch);
    return write_fence(s, path, f.epoch >= epoch ? f.epoch + 1 : epoch);
}

weft_status weft_session__take_epoch(weft_session *s)
{
    char    path[4352];
    fence   f;
    int64_t epoch = s->out.found.epoch;
    name_file(s, path);
    if (!try_lock(s) && !s->out.lock_told) {
        s->out.lock_told = true;
        weft_say_info(&s->say,
                      "%s: a process that is not in this view has its lock; the job goes "
                      "on, what that one writes does not count",
                      s->out.folder);
    }
    if (!weft_session__may_be_stale(s) && !weft_io_exists(path)) return WEFT_OK;
    WEFT_TRY(read_fence(path, &f));
    WEFT_TRY(compare_fence(s, path, &f));
    return write_fence(s, path, f.epoch > epoch ? f.epoch : epoch);
}

weft_status weft_session__keep_place(weft_session *s, bool at_once)
{
    char   path[4352];
    fence  f;
    double now_s = weft_clock_s();
    if (!weft_session__writes(s) || (!at_once && now_s - s->out.looked_s < LOOK_S))
        return WEFT_OK;
    s->out.looked_s = now_s;
    if (!s->now->saves_only) (void)try_lock(s);
    name_file(s, path);
    if (read_fence(path, &f) != WEFT_OK)
        return WEFT_OK; /* a disk that fails says no more */
    return compare_fence(s, path, &f);
}
