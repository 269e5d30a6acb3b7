/* Several ranks of one job: what they agree on, and who writes.
 *
 * Every rank runs its part of each step.  Rank 0 alone writes metrics, checkpoints and the
 * result; what it does not have of the weights the others give it (state/gather.h).
 * A rank that fails says so to the others, which then end with WEFT_ERR_PEER instead of waiting. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "comm/membership.h"
#include "session/keep_alive.h"
#include "session/session_priv.h"

static int world(const weft_session *s)
{
    return s->now->comm ? s->now->comm->world : 1;
}

bool weft_session__writes(const weft_session *s)
{
    return world(s) == 1 || s->now->comm->rank == 0;
}

/* Cores that a rank may use, and on which host. */
typedef struct seat {
    cpu_set_t cpu;
    char      host[64];
} seat;

/* What every rank may use; *all: in the arena, in the order of ranks. */
static weft_status gather_seats(weft_session *s, seat *own, seat **all)
{
    *own = (seat){.host = ""};
    *all = WEFT_ARENA_ARRAY(s->now->arena, seat, world(s));
    WEFT_TRY(weft_arena_status(s->now->arena));
    gethostname(own->host, sizeof own->host - 1);
    if (sched_getaffinity(0, sizeof own->cpu, &own->cpu)) CPU_ZERO(&own->cpu);
    return weft_session__gather(s, own, sizeof *own, *all);
}

/* Its cores, shared with those ranks of its host that may use them too: the launcher pinned each
 * rank to its own cores, or none to any. */
weft_status weft_session__threads(weft_session *s, int *out)
{
    seat      own, *all;
    cpu_set_t both;
    int       n = 0;
    *out        = (int)s->job.threads;
    if (*out) return WEFT_OK;
    *out = weft_runner_cores();
    if (world(s) == 1) return WEFT_OK;
    WEFT_TRY(gather_seats(s, &own, &all));
    for (int r = 0; r < world(s); r++) {
        CPU_AND(&both, &own.cpu, &all[r].cpu);
        n += !strcmp(own.host, all[r].host) && CPU_COUNT(&both);
    }
    *out = n && *out / n ? *out / n : 1;
    return WEFT_OK;
}

weft_status weft_session__count_cores(weft_session *s, int *out)
{
    seat own, *all;
    WEFT_TRY(gather_seats(s, &own, &all));
    for (int r = 0; r < world(s); r++)
        if (!strcmp(own.host, all[r].host)) CPU_OR(&own.cpu, &own.cpu, &all[r].cpu);
    *out = CPU_COUNT(&own.cpu);
    return WEFT_OK;
}

weft_status weft_session__open_group(weft_session *s)
{
    int32_t rank[WEFT_SESSION__MAX_RANK];
    if (!s->now->comm) return WEFT_OK;
    if (world(s) > WEFT_SESSION__MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks, at most %d", world(s),
                         WEFT_SESSION__MAX_RANK);
    for (int r = 0; r < world(s); r++) rank[r] = r;
    return weft_comm_open_group(s->now->comm, world(s), rank, WEFT_SESSION__TAG,
                                &s->now->group);
}

weft_status weft_session__share(weft_session *s, void *p, size_t n)
{
    if (world(s) == 1) return WEFT_OK;
    return weft_comm_broadcast_bytes(s->now->comm, s->now->group, p, (int64_t)n);
}

weft_status weft_session__gather(weft_session *s, const void *p, size_t n, void *out)
{
    if (world(s) == 1) {
        memcpy(out, p, n);
        return WEFT_OK;
    }
    return weft_comm_collective(s->now->comm, s->now->group, WEFT_ALL_GATHER,
                                WEFT_DTYPE_U8, p, out, (int64_t)n);
}

weft_status weft_session__lead(weft_session *s, weft_status (*work)(weft_session *s))
{
    weft_keep_alive k;
    bool            alone = world(s) == 1;
    if (!weft_session__writes(s)) return weft_gather_serve(s->now->gather);
    weft_keep_alive_start(&k, alone ? NULL : s->now->comm, s->now->gather,
                          s->o->io_timeout_s);
    weft_status st = work(s);
    weft_keep_alive_stop(&k);
    return st == WEFT_OK && !alone ? weft_gather_release(s->now->gather) : st;
}

weft_status weft_session__meet(weft_session *s)
{
    if (world(s) == 1) return WEFT_OK;
    return weft_comm_collective(s->now->comm, s->now->group, WEFT_BARRIER, WEFT_DTYPE_F32,
                                NULL, NULL, 0);
}
