/* How ranks on GPUs communicate: on the device where a backend of its plugin joins them, else
 * staged through the host.  $WEFT_GPU_COMM names one backend, or staged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/plugin.h"
#include "session/session_priv.h"

enum {
    FEW_STEPS = 3 /* after which a step's time is known */
};
static const double LEAST_LIMIT_S = 5, STEP_FACTOR = 5;

/* The one rule.  A backend that was asked for is the only one.  Ranks that share one GPU read each
 * other's memory (peer).  Between GPUs NCCL is the default, which knows their links; with
 * reduction: invariant it only moves bytes, and sums that read peers' memory come first where it
 * can be reached.  What neither of them joins or takes is staged: on the device where all ranks are
 * GPUs of one host, else through the host's communicator (exec/stage.c). */
void weft_session__order_backends(const char *asked, int n_gpu, bool invariant,
                                  const char *backend[WEFT_EXEC_MAX_BACKEND])
{
    bool nccl_first = n_gpu > 1 && !invariant;
    int  n          = 0;
    memset(backend, 0, sizeof *backend * WEFT_EXEC_MAX_BACKEND);
    if (asked && *asked) {
        backend[0] = asked;
        return;
    }
    if (nccl_first) backend[n++] = "nccl";
    backend[n++] = "peer";
    if (n_gpu > 1 && !nccl_first) backend[n++] = "nccl";
    backend[n] = "staged";
}

static weft_status check_name(const char *name)
{
    static const char *const known[] = {"staged", "peer", "nccl"};
    for (size_t k = 0; k < WEFT_COUNT(known); k++)
        if (!name || !*name || !strcmp(name, known[k])) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_GPU_COMM is staged, peer or nccl, not '%s'",
                     name);
}

static const weft_device_backend *find_backend(const weft_device *d, const char *name)
{
    const weft_plugin *p = weft_plugin_of(d);
    for (int i = 0; name && p && i < p->n_backend; i++)
        if (!strcmp(p->backend[i]->name, name)) return p->backend[i];
    return NULL;
}

/* The backends that some rank has: all ranks open those, one after another. */
static weft_status agree_on_backends(weft_session *s, const char *const *name, bool *has)
{
    unsigned char mine[WEFT_EXEC_MAX_BACKEND], *all;
    int           n = s->now->comm->world;
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        mine[k] = find_backend(s->device, name[k]) != NULL;
    all = WEFT_ARENA_ARRAY(s->now->arena, unsigned char, n *WEFT_EXEC_MAX_BACKEND);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(weft_session__gather(s, mine, sizeof mine, all));
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++) {
        has[k] = false;
        for (int r = 0; r < n; r++) has[k] = has[k] || all[r * WEFT_EXEC_MAX_BACKEND + k];
    }
    return WEFT_OK;
}

/* Why this rank cannot use a backend; "": it can, or has no GPU. */
static weft_status try_backend(const weft_session *s, const char *name)
{
    const weft_device_backend *backend = find_backend(s->device, name);
    weft_device_hello          hello;
    return backend ? backend->hello(s->device, &hello) : WEFT_OK;
}

/* Staged works for any ranks: through memory that they share, or the host's communicator. */
static bool is_staged(const char *name)
{
    return !strcmp(name, "staged");
}

/* A backend that was asked for by name says what it lacks. */
static weft_status check_asked(const weft_session *s, const char *asked)
{
    if (!asked || !*asked || is_staged(asked)) return WEFT_OK;
    weft_status st = try_backend(s, asked);
    return st == WEFT_OK ? st : weft_fail_in(st, "WEFT_GPU_COMM=%s: ", asked);
}

/* Do all ranks on GPUs communicate by the preferred backend?  Else why: a line. */
static weft_status check_joined(weft_session *s, const char *name, bool *joined,
                                char *why, size_t bytes)
{
    const weft_session__devices *d    = &s->now->devices;
    const weft_device_comm      *dc   = s->now->gpu_comm[0];
    int32_t                     *rank = WEFT_ARENA_ARRAY(s->now->arena, int32_t, d->n);
    int                          n    = 0;
    WEFT_TRY(weft_arena_status(s->now->arena));
    for (int r = 0; r < d->n; r++)
        if (d->card[r].gpu[0]) rank[n++] = r;
    *joined =
        n < 2 || !find_backend(s->device, name) || weft_device_comm_joins(dc, n, rank);
    *why = 0;
    if (*joined) return WEFT_OK;
    weft_device_comm_explain(dc, n, rank, why, bytes);
    if (!dc && try_backend(s, name) != WEFT_OK)
        snprintf(why, bytes, "%s", weft_error_text());
    return WEFT_OK;
}

static weft_status open_backends(weft_session *s, const char *const *name, bool any_order)
{
    weft_generation *g = s->now;
    bool             has[WEFT_EXEC_MAX_BACKEND];
    WEFT_TRY(agree_on_backends(s, name, has));
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++) {
        const weft_device_backend *backend = find_backend(s->device, name[k]);
        if (!has[k]) continue;
        WEFT_TRY(weft_device_comm_open(backend, backend ? s->device : NULL, g->comm,
                                       &g->gpu_comm[k]));
        if (g->gpu_comm[k]) g->gpu_comm[k]->any_order = any_order;
    }
    return WEFT_OK;
}

weft_status weft_session__open_gpu_comm(weft_session *s)
{
    weft_generation *g     = s->now;
    const char      *asked = getenv("WEFT_GPU_COMM"), *name[WEFT_EXEC_MAX_BACKEND];
    bool invariant         = !g->plan || g->plan->of.reduction != WEFT_REDUCTION_FIXED;
    bool joined;
    char why[400];
    if (!g->comm) return WEFT_OK;
    WEFT_TRY(weft_session__outcome(s, check_name(asked)));
    WEFT_TRY(weft_session__outcome(s, check_asked(s, asked)));
    weft_session__order_backends(asked, g->devices.n_gpu, invariant, name);
    WEFT_TRY(open_backends(s, name, !invariant));
    if (is_staged(name[0])) return WEFT_OK;
    WEFT_TRY(check_joined(s, name[0], &joined, why, sizeof why));
    if (asked && *asked)
        return weft_session__outcome(
            s, joined ? WEFT_OK
                      : WEFT_FAIL(WEFT_ERR_ARG,
                                  "WEFT_GPU_COMM=%s does not join the ranks on "
                                  "GPUs: %s; WEFT_GPU_COMM=staged does",
                                  asked, why));
    if (!joined && g->devices.n_gpu > 1)
        weft_say_warn(&s->say, "ranks on GPUs do not communicate by %s: %s", name[0],
                      why);
    return WEFT_OK;
}

void weft_session__say_gpu_comm(weft_session *s)
{
    char   text[80] = "";
    size_t n        = 0;
    if (!s->now->comm || s->now->devices.n_gpu < 1) return;
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        if (s->now->gpu_comm[k] && n < sizeof text &&
            !is_staged(s->now->gpu_comm[k]->backend->name))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s, else ",
                                  s->now->gpu_comm[k]->backend->name);
    weft_say_info(&s->say, "ranks on GPUs communicate by %sstaged (through host memory)",
                  text);
}

double weft_session__find_wait_limit(int n_step, double longest_s)
{
    if (n_step < FEW_STEPS) return 0;
    return longest_s * STEP_FACTOR > LEAST_LIMIT_S ? longest_s * STEP_FACTOR
                                                   : LEAST_LIMIT_S;
}

/* Another rank is as far behind as a step takes at most, so who is waited for longer hangs; the
 * calls name it. */
void weft_session__limit_gpu_waits(weft_session *s, double step_s)
{
    weft_generation *g = s->now;
    if (!weft_session__has_agent(s)) return;
    g->n_step++;
    if (step_s > g->longest_s) g->longest_s = step_s;
    double limit_s = weft_session__find_wait_limit(g->n_step, g->longest_s);
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        if (g->gpu_comm[k])
            atomic_store(&g->gpu_comm[k]->limit_ms, (int64_t)(1e3 * limit_s));
}

void weft_session__close_gpu_comm(weft_generation *g)
{
    for (int k = 0; k < WEFT_EXEC_MAX_BACKEND; k++)
        weft_device_comm_close(g->gpu_comm[k]);
}
