/* Where the state of a checkpoint goes first, if host code does not reach it: then it may change as
 * soon as the device has copied it, not when files are written.  Into the device's own memory where
 * so much of it is free, for the time of one checkpoint; else into pinned memory of the host, which
 * is kept; else there is no copy, and training waits for the files. */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

enum {
    LEFT_PART = 32, /* of a device's memory: 1 / 32 stays free for libraries and others */
};

static int64_t count_bytes(const weft_session *s)
{
    return weft_state_memory(s->state)->bytes + weft_state_host_memory(s->state)->bytes;
}

/* Ranks on this one's GPU, itself among them. */
static int64_t count_sharing(const weft_session *s)
{
    const weft_session__devices *d   = &s->now->devices;
    int                          own = s->now->comm ? s->now->comm->rank : 0;
    int64_t                      n   = 0;
    for (int r = 0; d->card && r < d->n; r++)
        n += !strcmp(d->card[r].gpu, d->card[own].gpu);
    return n > 0 ? n : 1;
}

bool weft_session__has_room(int64_t bytes, int64_t n_rank, int64_t free_bytes,
                            int64_t total_bytes)
{
    int64_t left = free_bytes - total_bytes / LEFT_PART;
    return left > 0 && bytes <= left / n_rank;
}

/* A device that does not say what it has free is asked for the memory at once. */
static bool has_device_room(const weft_session *s)
{
    weft_device_facts facts;
    if (weft_state_host_memory(s->state)->bytes) return false; /* most of it is there */
    if (!s->device->facts) return true;
    return s->device->facts(s->device, &facts) == WEFT_OK &&
           weft_session__has_room(count_bytes(s), count_sharing(s), facts.free_bytes,
                                  facts.total_bytes);
}

static bool has_host_room(const weft_session *s)
{
    int64_t n    = s->now->local > 0 ? s->now->local : s->now->n_rank;
    int64_t left = weft_session__free_bytes();
    return weft_session__has_room(count_bytes(s), n > 0 ? n : 1, left, left);
}

void weft_session__make_device_copy(weft_session *s, weft_state **out)
{
    *out = NULL;
    if (has_device_room(s))
        (void)weft_state_create_like(s->state, WEFT_SPACE_DEVICE, out);
}

static void make_copy(weft_session *s, weft_state **out)
{
    weft_generation *g = s->now;
    *out               = g->copy;
    if (*out) return;
    *out         = s->out.spent;
    s->out.spent = NULL;
    if (*out) return;
    weft_session__make_device_copy(s, out);
    if (*out) return;
    if (has_host_room(s) &&
        weft_state_create_like(s->state, WEFT_SPACE_PINNED, &g->copy) == WEFT_OK)
        *out = g->copy;
}

/* A driver gives device memory back when all that the device was given is done, which may wait for
 * a peer that waits for this rank.  So not here, where a step may be under way. */
void weft_session__drop_copy(weft_session *s, weft_state *copy)
{
    if (!copy || copy == s->now->copy) return;
    weft_session__free_spent(s); /* there is none, but where two end within one step */
    s->out.spent = copy;
}

void weft_session__free_spent(weft_session *s)
{
    weft_state_destroy(s->out.spent);
    s->out.spent = NULL;
}

weft_status weft_session__take_copy(weft_session *s, weft_state **out, bool *all)
{
    int                world = s->now->comm ? s->now->comm->world : 1;
    const weft_memory *m     = weft_state_memory(s->state);
    bool               needs = m->bytes && !weft_memory_host(m);
    int32_t            own, *of = calloc((size_t)world, sizeof *of);
    *out = NULL;
    if (!of) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    if (needs) make_copy(s, out);
    own            = !needs || *out;
    weft_status st = weft_session__gather(s, &own, sizeof own, of);
    *all           = st == WEFT_OK;
    for (int r = 0; r < world && *all; r++) *all = of[r];
    free(of);
    if (*all || !*out) return st;
    weft_session__drop_copy(s, *out);
    *out = NULL;
    return st;
}
