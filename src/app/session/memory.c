/* Before anything is allocated: what ranks of each host will hold against what is free there.
 * All ranks say the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lanes.h"
#include "session/gpu_memory.h"
#include "session/session_priv.h"

/* The number behind a key at the beginning of a line; -1: none.  Reads without the failure hook:
 * a host that does not say has room enough. */
static int64_t read_number(const char *path, const char *key)
{
    FILE     *f = fopen(path, "r");
    char      line[512];
    long long x = -1;
    size_t    n = strlen(key);
    while (f && x < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && sscanf(line + n, " %lld", &x) != 1) x = -1;
    if (f) fclose(f);
    return x;
}

/* How the two kinds of control groups name things. */
typedef struct control {
    const char *root, *limit, *used, *file[2];
} control;

static const control one = {"/sys/fs/cgroup/memory",
                            "memory.limit_in_bytes",
                            "memory.usage_in_bytes",
                            {"total_inactive_file", "total_active_file"}};
static const control two = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};

int64_t weft_session__left(int64_t limit, int64_t used, int64_t files)
{
    return limit - (files < used ? used - files : 0);
}

/* Free in one group: its limit less what it has, files' pages aside; `most` where it has no
 * limit. */
static int64_t free_in(const control *c, const char *path, int64_t most)
{
    char    name[4200];
    int64_t limit, used, cached = 0;
    snprintf(name, sizeof name, "%s%s/%s", c->root, path, c->limit);
    limit = read_number(name, "");
    snprintf(name, sizeof name, "%s%s/%s", c->root, path, c->used);
    used = read_number(name, "");
    snprintf(name, sizeof name, "%s%s/memory.stat", c->root, path);
    for (int i = 0; i < 2; i++) {
        int64_t x = read_number(name, c->file[i]);
        if (x > 0) cached += x;
    }
    if (limit < 0 || used < 0) return most;
    int64_t left = weft_session__left(limit, used, cached);
    return left < most ? left : most;
}

/* ... and in all groups above it. */
static int64_t free_above(const control *c, char *path, int64_t most)
{
    for (char *end; (end = strrchr(path, '/')); *end = 0) {
        if (!strcmp(path, "/")) *path = 0;
        most = free_in(c, path, most);
        if (!*path) break;
    }
    return free_in(c, "", most);
}

int64_t weft_session__free_bytes(void)
{
    char    line[4096];
    int64_t kb   = read_number("/proc/meminfo", "MemAvailable:");
    int64_t most = kb < 0 ? INT64_MAX : kb * 1024;
    FILE   *f    = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *path                = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (!path) continue;
        if (!strncmp(path, "::/", 3)) most = free_above(&two, path + 2, most);
        if (!strncmp(path, ":memory:/", 9)) most = free_above(&one, path + 8, most);
    }
    if (f) fclose(f);
    return most;
}

/* What a rank says: where it is, what it will hold, what is free there. */
typedef struct seat {
    char    host[96]; /* "name", or "cuda:0 of name" */
    bool    gpu;
    int64_t need, have;
    /* of a GPU: parts of need; what other processes had of its memory, -1 unknown */
    weft_gpu_bytes part;
    int64_t        others;
    /* of a GPU whose states the host updates: what they take there, and what is free */
    int64_t host_need, host_have;
} seat;

/* They come from other processes: texts end, and sums of sizes stay numbers. */
static weft_status check_seats(seat *all, int n)
{
    for (int k = 0; k < n; k++) {
        all[k].host[sizeof all[k].host - 1] = 0;
        if (all[k].need < 0 || all[k].need > INT64_MAX / n || all[k].have < 0 ||
            all[k].host_need < 0 || all[k].host_need > INT64_MAX / n)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d failed: it sent %lld as the bytes that it needs", k,
                             (long long)all[k].need);
    }
    return WEFT_OK;
}

/* The ranks of rank r's host; r is the first of them. */
static bool find_host(const seat *all, int n, int r, int *n_rank, seat *out)
{
    *out    = all[r];
    *n_rank = 0;
    for (int k = 0; k < r; k++)
        if (!strcmp(all[k].host, out->host)) return false;
    out->need = 0;
    for (int k = r; k < n; k++) {
        if (strcmp(all[k].host, out->host) != 0) continue;
        if (all[k].have < out->have) out->have = all[k].have;
        out->need += all[k].need;
        ++*n_rank;
    }
    return true;
}

/* The fewest lanes that the plan works with: each is up to a whole gradient. */
static int count_lanes(const weft_session *s)
{
    const weft_plan *p = s->now->plan;
    return (int)weft_lanes_default(p ? weft_plan_lane_ranks(p) : 1, INT32_MAX);
}

static void take_host_seat(const weft_session *s, seat *own)
{
    const weft_program *p = s->now->made.program;
    own->have             = weft_session__free_bytes();
    own->need = weft_training_bytes(&s->training) + weft_compiled_bytes(&s->now->made) +
                weft_program_bytes(p, WEFT_SLAB_WORK) +
                weft_program_bytes(p, WEFT_SLAB_STAGING) +
                weft_program_bytes(p, WEFT_SLAB_HOST_WORK);
    if (!s->now->keeps_state)
        own->need += weft_program_bytes(p, WEFT_SLAB_STATE) +
                     weft_program_bytes(p, WEFT_SLAB_HOST_STATE);
}

static weft_status take_gpu_seat(const weft_session *s, seat *own)
{
    weft_device_facts facts;
    char              name[64] = "";
    WEFT_TRY(s->device->facts(s->device, &facts));
    gethostname(name, sizeof name - 1);
    snprintf(own->host, sizeof own->host, "%s of %s", s->device->name, name);
    WEFT_TRY(weft_gpu_need(s->now->made.program, s->device, &own->part));
    if (s->now->keeps_state) own->part.state = 0;
    const weft_program *p = s->now->made.program;
    own->host_need        = weft_program_bytes(p, WEFT_SLAB_HOST_WORK);
    if (!s->now->keeps_state)
        own->host_need += weft_program_bytes(p, WEFT_SLAB_HOST_STATE);
    own->host_have = own->host_need ? weft_session__free_bytes() : 0;
    own->gpu       = true;
    own->have      = facts.free_bytes;
    own->others    = facts.other_bytes;
    own->need      = weft_gpu_sum(&own->part);
    return WEFT_OK;
}

static weft_status take_seat(const weft_session *s, seat *own)
{
    gethostname(own->host, 63);
    if (s->device->facts) return take_gpu_seat(s, own);
    take_host_seat(s, own);
    return WEFT_OK;
}

/* ---- a GPU ---- */

/* What would make this rank's program fit; a plan's file says all of it itself. */
static void find_remedies(const weft_session *s, int64_t have, weft_gpu_remedies *out)
{
    const weft_generation *g   = s->now;
    weft_gpu_fit           fit = {.spec              = weft_job_spec(&s->job),
                                  .given_lanes       = s->job.given_lanes,
                                  .device            = s->device,
                                  .n_rank            = g->n_rank,
                                  .keeps_micro_batch = s->resume,
                                  .keeps_ranks       = g->plan};
    if (g->comm && g->plan) {
        fit.strategy = &g->plan->strategy;
        fit.rank     = g->comm->rank;
    }
    *out = (weft_gpu_remedies){0};
    if (!s->job.plan_file) weft_gpu_find_remedies(&fit, have, out);
}

/* Names the host where there are several. */
static weft_status fail_on_gpu(const weft_session *s, const seat *g, int n_rank,
                               const weft_gpu_remedies *r)
{
    char where[sizeof g->host];
    snprintf(where, sizeof where, "%s", g->host);
    if (!s->now->local || s->now->local >= s->now->n_rank) where[strcspn(where, " ")] = 0;
    return weft_gpu_refuse(&(weft_gpu_shortage){.model  = s->now->made.model->name,
                                                .where  = where,
                                                .n_rank = n_rank,
                                                .need   = g->need,
                                                .have   = g->have,
                                                .part   = g->part,
                                                .others = g->others},
                           r);
}

/* Of this rank, if its program is the one that does not fit: room is what all ranks there leave. */
static weft_status refuse_on_gpu(weft_session *s, const seat *all, int n, int r,
                                 const seat *g, int n_rank)
{
    weft_gpu_remedies own  = {0}, *of;
    bool              me   = !s->now->comm || s->now->comm->rank == r;
    int64_t           left = g->have - (g->need - all[r].need);
    if (n_rank > 1) left = g->have / n_rank;
    of = WEFT_ARENA_ARRAY(s->now->arena, weft_gpu_remedies, n);
    WEFT_TRY(weft_arena_status(s->now->arena));
    if (me) find_remedies(s, left, &own);
    WEFT_TRY(weft_session__gather(s, &own, sizeof own, of));
    for (int i = 0; i < WEFT_GPU_MOST_REMEDIES; i++)
        of[r].text[i][sizeof of[r].text[i] - 1] = 0;
    if (of[r].n < 0 || of[r].n > WEFT_GPU_MOST_REMEDIES) of[r].n = 0;
    return weft_session__refuse(s, fail_on_gpu(s, g, n_rank, &of[r]));
}

weft_status weft_session__explain_memory(weft_session *s, weft_status st)
{
    seat              own = {.have = 0};
    weft_gpu_remedies r;
    if (st != WEFT_ERR_NOFIT || !s->device->facts || take_seat(s, &own) != WEFT_OK)
        return st;
    if (!s->now->keeps_state && s->state) own.have += weft_state_memory(s->state)->bytes;
    find_remedies(s, own.have, &r);
    return fail_on_gpu(s, &own, 1, &r);
}

/* "name" of "cuda:0 of name". */
static const char *find_machine(const seat *x)
{
    const char *of = strstr(x->host, " of ");
    return of ? of + strlen(" of ") : x->host;
}

/* States of GPUs in the memory of rank r's host, where r is the first of its ranks. */
static weft_status check_offload(weft_session *s, const seat *all, int n, int r)
{
    const char *machine = find_machine(&all[r]);
    int64_t     need = 0, have = all[r].host_have;
    int         n_rank = 0;
    for (int k = 0; k < n; k++) {
        if (strcmp(find_machine(&all[k]), machine) != 0 || !all[k].host_need) continue;
        if (k < r) return WEFT_OK;
        if (all[k].host_have < have) have = all[k].host_have;
        need += all[k].host_need;
        n_rank++;
    }
    if (need <= have) return WEFT_OK;
    return weft_session__refuse(
        s,
        WEFT_FAIL(WEFT_ERR_NOFIT,
                  "%s needs %.1f GB of the memory of %s for the optimizer states of %d "
                  "rank%s (offload=optimizer), where %.1f GB are free: more GPUs with "
                  "zero=1 share them; memory=any goes on all the same",
                  s->now->made.model->name, 1e-9 * (double)need, machine, n_rank,
                  n_rank > 1 ? "s" : "", 1e-9 * (double)have));
}

weft_status weft_session__check_memory(weft_session *s)
{
    int  n   = s->now->comm ? s->now->comm->world : 1, n_rank;
    seat own = {.have = 0}, host, *all = WEFT_ARENA_ARRAY(s->now->arena, seat, n);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(take_seat(s, &own));
    WEFT_TRY(weft_session__gather(s, &own, sizeof own, all));
    WEFT_TRY(check_seats(all, n));
    for (int r = 0; r < n && strcmp(s->job.memory, "any"); r++) {
        if (all[r].host_need) WEFT_TRY(check_offload(s, all, n, r));
        if (!find_host(all, n, r, &n_rank, &host) || host.need <= host.have) continue;
        if (host.gpu) return refuse_on_gpu(s, all, n, r, &host, n_rank);
        weft_status st = WEFT_FAIL(
            WEFT_ERR_NOFIT,
            "%s needs %.1f GB for the %d rank%s on %s, where %.1f GB are free: share it "
            "out (pp, tp, zero=3, more machines; weft plan says how), recompute=full, a "
            "smaller micro_batch with lanes=%d%s; memory=any goes on all the same",
            s->now->made.model->name, 1e-9 * (double)host.need, n_rank,
            n_rank > 1 ? "s" : "", host.host, 1e-9 * (double)host.have, count_lanes(s),
            s->resume ? " and --allow lanes,micro_batch" : " or a smaller model");
        return weft_session__refuse(s, st);
    }
    return WEFT_OK;
}
