/* What all communication backends on devices share: who can work together, and the thread that
 * notices that somebody will not come. */
#include "comm/device_comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/hosts.h"
#include "comm/shm.h"

enum {
    TAG     = 0x44455649, /* of the group in which hellos are told */
    TICK_MS = 5
};

typedef struct weft_device_watch {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    bool            running, stop;
    _Atomic bool    ended;
    weft_status     st; /* with its text, before ended is set */
    char            text[512];
} weft_device_watch;

/* ---- hello ---- */

static weft_status tell_hello(weft_comm *c, const weft_device_hello *mine,
                              weft_device_hello *all)
{
    weft_comm_group *g    = NULL;
    weft_status      st   = WEFT_OK;
    int32_t         *rank = calloc((size_t)c->world, sizeof *rank);
    if (!rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < c->world; i++) rank[i] = i;
    WEFT_GO(weft_comm_open_group(c, c->world, rank, TAG, &g));
    WEFT_GO(weft_comm_collective(c, g, WEFT_ALL_GATHER, WEFT_DTYPE_U8, mine, all,
                                 sizeof *mine));
out:
    if (g) (void)weft_comm_close_group(c, g);
    free(rank);
    return st;
}

static bool is_zero(const weft_device_hello *h)
{
    static const weft_device_hello none;
    return !memcmp(h, &none, sizeof none);
}

bool weft_device_comm_joins(const weft_device_comm *dc, int n, const int32_t *rank)
{
    const weft_device_hello *hello[WEFT_COMM_MAX_TERM];
    if (!dc || n > WEFT_COMM_MAX_TERM) return false;
    for (int i = 0; i < n; i++) {
        hello[i] = &dc->hello[rank[i]];
        if (is_zero(hello[i])) return false;
    }
    return dc->backend->joins(hello, n);
}

const char *weft_device_comm_explain(const weft_device_comm *dc, int n,
                                     const int32_t *rank, char *text, size_t bytes)
{
    const weft_device_hello *hello[WEFT_COMM_MAX_TERM];
    text[0] = 0;
    if (!dc || n > WEFT_COMM_MAX_TERM || !dc->backend->explain) return text;
    for (int i = 0; i < n; i++) {
        hello[i] = &dc->hello[rank[i]];
        if (!is_zero(hello[i])) continue;
        snprintf(text, bytes, "rank %d has none", rank[i]);
        return text;
    }
    dc->backend->explain(hello, rank, n, text, bytes);
    return text;
}

/* ---- the watcher ---- */

static void note_error(weft_device_watch *w, weft_status st)
{
    w->st = st;
    snprintf(w->text, sizeof w->text, "%s", weft_error_text());
    atomic_store(&w->ended, true);
}

static weft_status find_error(weft_device_comm *dc)
{
    WEFT_TRY(weft_comm_check(dc->comm));
    if (weft_comm_shm_is_held(weft_comm_shared_end(dc->comm))) return WEFT_OK;
    weft_status st = dc->backend->look(dc);
    if (st != WEFT_OK) weft_comm_abort(dc->comm, weft_error_text());
    return st;
}

static void look_around(weft_device_comm *dc)
{
    weft_device_watch *w  = dc->watch;
    weft_status        st = atomic_load(&w->ended) ? w->st : find_error(dc);
    if (st == WEFT_OK) return;
    if (!atomic_load(&w->ended)) note_error(w, st);
    dc->backend->abort(dc);
}

static void *watch(void *arg)
{
    weft_device_comm  *dc = arg;
    weft_device_watch *w  = dc->watch;
    struct timespec    t;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        pthread_mutex_unlock(&w->lock);
        look_around(dc);
        pthread_mutex_lock(&w->lock);
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += TICK_MS * 1000000L;
        if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
        if (!w->stop) pthread_cond_timedwait(&w->wake, &w->lock, &t);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

weft_status weft_device_comm_check(weft_device_comm *dc)
{
    weft_device_watch *w = dc ? dc->watch : NULL;
    if (!w) return WEFT_OK;
    if (atomic_load(&w->ended)) return WEFT_FAIL(w->st, "%s", w->text);
    /* Who aborts says so to the host's comm before it lets its streams go on, and these may let
     * others pass: the watcher here may not have seen it yet. */
    return weft_comm_check(dc->comm);
}

/* ---- opening and closing ---- */

static weft_status start_watch(weft_device_comm *dc)
{
    weft_device_watch *w = dc->watch = calloc(1, sizeof *w);
    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (pthread_create(&w->thread, NULL, watch, dc))
        return WEFT_FAIL(WEFT_ERR_MEM, "no thread to watch the peers with");
    w->running = true;
    return WEFT_OK;
}

static void stop_watch(weft_device_watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->running) pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    free(w);
}

weft_status weft_device_comm_open(const weft_device_backend *backend, weft_device *d,
                                  weft_comm *c, weft_device_comm **out)
{
    weft_status        st   = WEFT_OK;
    bool               open = false;
    weft_device_hello  mine = {{0}};
    weft_device_comm  *dc   = calloc(1, sizeof *dc);
    weft_device_hello *all  = calloc((size_t)c->world, sizeof *all);
    *out                    = NULL;
    if (!dc || !all) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    /* a device that cannot take part says so by its silence */
    if (d && backend->hello(d, &mine) != WEFT_OK) mine = (weft_device_hello){{0}};
    WEFT_GO(tell_hello(c, &mine, all));
    if (!d || is_zero(&mine)) goto out;
    *dc = (weft_device_comm){.backend = backend, .device = d, .comm = c, .hello = all};
    WEFT_GO(backend->open(dc));
    open = true;
    WEFT_GO(start_watch(dc));
    *out = dc;
    return WEFT_OK;
out:
    if (dc) stop_watch(dc->watch);
    if (open) backend->close(dc);
    free(all);
    free(dc);
    return st;
}

void weft_device_comm_close(weft_device_comm *dc)
{
    if (!dc) return;
    stop_watch(dc->watch);
    dc->backend->close(dc);
    free((void *)dc->hello);
    free(dc);
}
