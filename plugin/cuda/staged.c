/* The backend "staged": who can use it, a rank's end, and noticing that somebody does not come. */
#include "staged.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who can ---- */

typedef struct staged_hello {
    char    magic[8];
    char    host[64];
    int32_t pid;
} staged_hello;

_Static_assert(sizeof(staged_hello) <= WEFT_DEVICE_HELLO_BYTES, "a hello holds it");

static weft_status say_hello(weft_device *d, weft_device_hello *out)
{
    staged_hello h = {.magic = "staged1", .pid = (int32_t)getpid()};
    (void)d;
    weft_cuda_name_host(h.host, sizeof h.host);
    memcpy(out, &h, sizeof h);
    return WEFT_OK;
}

static bool joins(const weft_device_hello *const *hello, int n)
{
    if (n < 2 || n > STAGED_RANKS) return false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            staged_hello a, b;
            memcpy(&a, hello[i], sizeof a);
            memcpy(&b, hello[k], sizeof b);
            if (memcmp(a.magic, b.magic, sizeof a.magic) != 0 ||
                memcmp(a.host, b.host, sizeof a.host) != 0 || a.pid == b.pid)
                return false;
        }
    return true;
}

/* ---- a rank's end ---- */

static weft_status open_end(weft_device_comm *dc)
{
    staged_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    e->dc    = dc;
    dc->impl = e;
    return WEFT_OK;
}

static void close_end(weft_device_comm *dc)
{
    staged_end *e = dc->impl;
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- the watcher's part ---- */

static uint32_t *flag_at(const weft_device_group *g, int from, int to, int slot)
{
    return (uint32_t *)(void *)(g->shared + weft_cuda_staged_flag(g, from, to, slot));
}

static bool may_send(const weft_device_group *g, int from)
{
    return !g->is_channel || from == 0;
}

static uint32_t read_word(const weft_device_group *g, int member)
{
    const void *at = g->shared + weft_cuda_staged_word(member);
    return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
}

static bool is_here(const weft_device_group *g, int member)
{
    return read_word(g, member) % 2;
}

static weft_status look(weft_device_comm *dc)
{
    staged_end *e  = dc->impl;
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->group; g && st == WEFT_OK; g = g->next)
        st = weft_device_comm_watch(dc, &g->watched, read_word(g, g->me),
                                    is_here(g, g->me));
    pthread_mutex_unlock(&e->lock);
    return st;
}

void weft_cuda_staged_watch(weft_device_group *g, int32_t tag)
{
    g->watched = (weft_device_watched){.n       = g->n,
                                       .me      = g->me,
                                       .rank    = g->rank,
                                       .tag     = tag,
                                       .names   = &g->names,
                                       .is_here = is_here,
                                       .group   = g};
}

/* Lets this member's streams pass what they wait for. */
static void release_group(weft_device_group *g)
{
    __atomic_store_n((uint32_t *)(void *)g->shared, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < g->n; r++)
        for (int k = 0; k < g->n_slot && r != g->me; k++) {
            if (may_send(g, g->me))
                __atomic_fetch_or(flag_at(g, g->me, r, k), STAGED_EMPTY,
                                  __ATOMIC_SEQ_CST);
            if (may_send(g, r))
                __atomic_fetch_or(flag_at(g, r, g->me, k), STAGED_FULL, __ATOMIC_SEQ_CST);
        }
}

static void abort_end(weft_device_comm *dc)
{
    staged_end *e = dc->impl;
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->group; g; g = g->next) release_group(g);
    pthread_mutex_unlock(&e->lock);
}

const weft_device_backend weft_cuda_staged_backend = {
    .name            = "staged",
    .hello           = say_hello,
    .joins           = joins,
    .takes           = weft_cuda_staged_takes,
    .messages        = true,
    .open            = open_end,
    .close           = close_end,
    .open_group      = weft_cuda_staged_open_group,
    .close_group     = weft_cuda_staged_close_group,
    .prepare         = weft_cuda_staged_prepare,
    .prepare_message = weft_cuda_staged_prepare_message,
    .run             = weft_cuda_staged_run,
    .release         = weft_cuda_staged_release,
    .look            = look,
    .abort           = abort_end,
};
