/* How ranks on GPUs communicate: on the device where a way of its plugin joins them, else staged
 * through the host.  $WEFT_GPU_COMM names one way, or staged. */
#include <stdlib.h>
#include <string.h>

#include "plugin/plugin.h"
#include "session/session_priv.h"

/* Known by name on every rank, also on those without the plugin; the preferred one first. */
static const char *const ways[WEFT_EXEC_MAX_WAY] = {"peer", "nccl"};

static weft_status check_name(const char *name)
{
    bool known = !name || !strcmp(name, "staged");
    for (int k = 0; k < WEFT_EXEC_MAX_WAY && !known; k++) known = !strcmp(name, ways[k]);
    return known ? WEFT_OK
                 : WEFT_FAIL(WEFT_ERR_ARG,
                             "WEFT_GPU_COMM is staged, peer or nccl, not '%s'", name);
}

static const weft_device_way *find_way(const weft_device *d, const char *name)
{
    const weft_plugin *p = weft_plugin_of(d);
    for (int i = 0; p && i < p->n_way; i++)
        if (!strcmp(p->way[i]->name, name)) return p->way[i];
    return NULL;
}

static bool is_wanted(const char *name)
{
    const char *only = getenv("WEFT_GPU_COMM");
    return !only || !*only || !strcmp(only, name);
}

/* The ways that some rank has: all ranks open those, one after another. */
static weft_status agree_on_ways(weft_session *s, bool *has)
{
    unsigned char mine[WEFT_EXEC_MAX_WAY], *all;
    int           n = s->now->comm->world;
    for (int k = 0; k < WEFT_EXEC_MAX_WAY; k++)
        mine[k] = is_wanted(ways[k]) && find_way(s->device, ways[k]);
    all = WEFT_ARENA_ARRAY(s->now->arena, unsigned char, n *WEFT_EXEC_MAX_WAY);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(weft_session__gather(s, mine, sizeof mine, all));
    for (int k = 0; k < WEFT_EXEC_MAX_WAY; k++) {
        has[k] = false;
        for (int r = 0; r < n; r++) has[k] = has[k] || all[r * WEFT_EXEC_MAX_WAY + k];
    }
    return WEFT_OK;
}

weft_status weft_session__open_gpu_comm(weft_session *s)
{
    weft_generation *g    = s->now;
    const char      *name = getenv("WEFT_GPU_COMM");
    bool             has[WEFT_EXEC_MAX_WAY];
    if (!g->comm) return WEFT_OK;
    WEFT_TRY(weft_session__outcome(s, check_name(name && *name ? name : NULL)));
    WEFT_TRY(agree_on_ways(s, has));
    for (int k = 0; k < WEFT_EXEC_MAX_WAY; k++) {
        const weft_device_way *way =
            is_wanted(ways[k]) ? find_way(s->device, ways[k]) : NULL;
        if (has[k])
            WEFT_TRY(weft_device_comm_open(way, way ? s->device : NULL, g->comm,
                                           &g->gpu_comm[k]));
    }
    return WEFT_OK;
}

void weft_session__close_gpu_comm(weft_generation *g)
{
    for (int k = 0; k < WEFT_EXEC_MAX_WAY; k++) weft_device_comm_close(g->gpu_comm[k]);
}
