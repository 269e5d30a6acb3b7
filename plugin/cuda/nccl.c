/* NCCL communicators: opened by all members of a group, watched, ended in order or aborted.
 * (1) Every wait ends after the host communicator's timeout_s, or when somebody gives up.
 * (2) After abort no call of NCCL is made with the communicator.
 * (3) The library is opened when the first rank says hello: a machine without it says nothing, and
 *     its groups communicate by another backend. */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

enum {
    CONFIG_MAGIC   = 0xcafebeef,
    CONFIG_VERSION = 21400, /* the fields of weft_cuda_nccl_config */
    POLL_US        = 50
};

/* What ranks tell each other. */
typedef struct nccl_hello {
    char version[16];
    char gpu[48];
    char host[96]; /* NCCL_HOSTID; NCCL takes one rank for each GPU of a host */
} nccl_hello;

typedef struct nccl_end {
    pthread_mutex_t    lock; /* of the list */
    weft_device_group *first;
} nccl_end;

#define NAMED_S 1.0 /* until a rank that died has a name, at most */

static void sleep_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = POLL_US * 1000L}, NULL);
}

/* ---- who can work together ---- */

static weft_status say_hello(weft_device *d, weft_device_hello *out)
{
    nccl_hello        h  = {{0}, {0}, {0}};
    const char       *id = getenv("NCCL_HOSTID");
    weft_device_facts f;
    WEFT_TRY(weft_cuda_nccl_open());
    WEFT_TRY(d->facts(d, &f));
    const int *v = weft_cuda_library_get(WEFT_CUDA_NCCL)->version;
    snprintf(h.version, sizeof h.version, "%d.%d.%d", v[0], v[1], v[2]);
    snprintf(h.gpu, sizeof h.gpu, "%s", f.id);
    snprintf(h.host, sizeof h.host, "%s", id ? id : "");
    _Static_assert(sizeof h <= sizeof *out, "a hello of NCCL");
    *out = (weft_device_hello){{0}};
    memcpy(out->bytes, &h, sizeof h);
    return WEFT_OK;
}

typedef enum nccl_apart {
    NOT_APART,
    OTHER_VERSION,
    SAME_GPU
} nccl_apart;

/* The first two that NCCL does not take together. */
static nccl_apart find_apart(const weft_device_hello *const *hello, int n, int *x, int *y)
{
    for (*y = 1; *y < n; ++*y)
        for (*x = 0; *x < *y; ++*x) {
            nccl_hello a, b;
            memcpy(&a, hello[*x]->bytes, sizeof a);
            memcpy(&b, hello[*y]->bytes, sizeof b);
            if (memcmp(a.version, b.version, sizeof a.version)) return OTHER_VERSION;
            if (!memcmp(a.gpu, b.gpu, sizeof a.gpu) &&
                !memcmp(a.host, b.host, sizeof a.host))
                return SAME_GPU;
        }
    return NOT_APART;
}

static bool can_join(const weft_device_hello *const *hello, int n)
{
    int x, y;
    return find_apart(hello, n, &x, &y) == NOT_APART;
}

static void explain_apart(const weft_device_hello *const *hello, const int32_t *name,
                          int n, char *text, size_t bytes)
{
    int        x, y;
    nccl_apart why = find_apart(hello, n, &x, &y);
    nccl_hello a, b;
    if (why == NOT_APART) return;
    memcpy(&a, hello[x]->bytes, sizeof a);
    memcpy(&b, hello[y]->bytes, sizeof b);
    if (why == OTHER_VERSION)
        snprintf(text, bytes,
                 "rank %d has NCCL %.15s, rank %d has %.15s: install one version",
                 name[x], a.version, name[y], b.version);
    else
        snprintf(text, bytes,
                 "ranks %d and %d share a GPU, and NCCL wants one for each (or another "
                 "NCCL_HOSTID for each)",
                 name[x], name[y]);
}

static weft_status open_end(weft_device_comm *dc)
{
    nccl_end *e = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    dc->impl = e;
    return WEFT_OK;
}

static void close_end(weft_device_comm *dc)
{
    nccl_end *e = dc->impl;
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- waiting for NCCL ---- */

const char *weft_cuda_nccl_print_ranks(const weft_device_group *g, char *text,
                                       size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "ranks");
    for (int i = 0; i < g->n && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s %d", i ? "," : "",
                              weft_comm_name(g->end->comm, g->rank[i]));
    return text;
}

/* The process that died closed NCCL's connections and ours: ours say whose they were. */
static weft_status name_lost(weft_device_group *g)
{
    double until_s = weft_clock_s() + NAMED_S;
    while (weft_clock_s() < until_s) {
        WEFT_TRY(weft_comm_check(g->end->comm));
        sleep_briefly();
    }
    return WEFT_OK;
}

/* "rank 1 failed: ", or "one of ranks 1, 2 failed: ": the others of the group. */
static void print_suspects(const weft_device_group *g, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, g->n > 2 ? "one of ranks" : "rank");
    for (int i = 0, listed = 0; i < g->n && n < bytes; i++)
        if (i != g->me)
            n += (size_t)snprintf(text + n, bytes - n, "%s %d", listed++ ? "," : "",
                                  weft_comm_name(g->end->comm, g->rank[i]));
    if (n < bytes) snprintf(text + n, bytes - n, " failed: ");
}

static weft_status fail_nccl(weft_device_group *g, int code, const char *what)
{
    const weft_cuda_nccl *l            = weft_cuda_nccl_get();
    char                  ranks[96]    = "";
    char                  suspects[96] = "";
    if (code == WEFT_NCCL_REMOTE) {
        WEFT_TRY(name_lost(g));
        print_suspects(g, suspects, sizeof suspects);
    }
    const char *more = g->comm ? l->last_error(g->comm) : l->last_error(NULL);
    return WEFT_FAIL(WEFT_ERR_PEER, "%s%s of %s fails with %d: %s%s%s", suspects, what,
                     weft_cuda_nccl_print_ranks(g, ranks, sizeof ranks), code,
                     l->error_string(code), more && *more ? ": " : "",
                     more && *more ? more : "");
}

weft_status weft_cuda_nccl_ended(const weft_device_group *g)
{
    WEFT_TRY(weft_comm_check(g->end->comm)); /* the reason, and whose it is */
    return WEFT_FAIL(WEFT_ERR_PEER, "communication was given up");
}

/* Until NCCL has done what it was asked for, at most so long; the lock is held.  *late: it had
 * not. */
static weft_status wait_until(weft_device_group *g, int *code, double limit_s, bool *late)
{
    const weft_cuda_nccl *l       = weft_cuda_nccl_get();
    double                until_s = weft_clock_s() + limit_s;
    for (*late = false; *code == WEFT_NCCL_IN_PROGRESS && !*late; sleep_briefly()) {
        int asked = l->async_error(g->comm, code);
        if (asked) *code = asked;
        if (*code != WEFT_NCCL_IN_PROGRESS) break;
        if (g->stop) return weft_cuda_nccl_ended(g);
        WEFT_TRY(weft_comm_check(g->end->comm));
        *late = weft_clock_s() > until_s;
    }
    return WEFT_OK;
}

static weft_status fail_late(const weft_device_group *g, const char *what)
{
    char ranks[96];
    return WEFT_FAIL(WEFT_ERR_PEER, "%s of %s is not over after %.3g s", what,
                     weft_cuda_nccl_print_ranks(g, ranks, sizeof ranks),
                     g->end->comm->timeout_s);
}

weft_status weft_cuda_nccl_settle(weft_device_group *g, int code, const char *what)
{
    bool late;
    if (code == WEFT_NCCL_OK) return WEFT_OK;
    WEFT_TRY(wait_until(g, &code, g->end->comm->timeout_s, &late));
    if (late) return fail_late(g, what);
    return code ? fail_nccl(g, code, what) : WEFT_OK;
}

weft_status weft_cuda_nccl_wait(weft_device_group *g, weft_cuda_handle event,
                                const char *what)
{
    double until_s = weft_clock_s() + g->end->comm->timeout_s;
    int    code;
    while ((code = weft_cuda_cu.EventQuery(event)) == WEFT_CUDA_NOT_READY) {
        int failed = 0;
        if (weft_cuda_nccl_get()->async_error(g->comm, &failed) == WEFT_NCCL_OK &&
            failed && failed != WEFT_NCCL_IN_PROGRESS)
            return fail_nccl(g, failed, what);
        WEFT_TRY(weft_comm_check(g->end->comm));
        if (weft_clock_s() > until_s) return fail_late(g, what);
        sleep_briefly();
    }
    return weft_cuda_check(code, "EventQuery");
}

/* ---- opening ---- */

/* Position 0 makes it. */
static weft_status share_id(weft_device_group *g, weft_comm_group *meeting,
                            weft_cuda_nccl_id *id)
{
    if (g->me == 0) {
        int code = weft_cuda_nccl_get()->get_unique_id(id);
        if (code) return fail_nccl(g, code, "ncclGetUniqueId");
    }
    return weft_comm_collective(g->end->comm, meeting, WEFT_BROADCAST, WEFT_DTYPE_U8, id,
                                id, sizeof *id);
}

/* All members know who is connected before one of them goes on. */
static weft_status name_late(weft_device_group *g, weft_comm_group *meeting, bool late)
{
    uint8_t mine = late, *all = calloc((size_t)g->n, 1);
    char    text[128] = "";
    size_t  n         = 0;
    int     n_late    = 0;
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = weft_comm_collective(g->end->comm, meeting, WEFT_ALL_GATHER,
                                          WEFT_DTYPE_U8, &mine, all, 1);
    for (int i = 0; st == WEFT_OK && i < g->n; i++) {
        if (!all[i]) continue;
        if (n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", n_late ? ", " : "",
                                  weft_comm_name(g->end->comm, g->rank[i]));
        n_late++;
    }
    free(all);
    if (st != WEFT_OK || !n_late) return st;
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "NCCL did not connect rank%s %s within %.3g s (--timeout); "
                     "NCCL_DEBUG=INFO says more, WEFT_GPU_COMM=staged does without it",
                     n_late > 1 ? "s" : "", text, g->end->comm->timeout_s);
}

/* A part of the time is left for the others to hear who is late. */
static weft_status connect_group(weft_device_group *g, weft_comm_group *meeting)
{
    weft_cuda_nccl_config config = {sizeof config, CONFIG_MAGIC, CONFIG_VERSION, 0};
    weft_cuda_nccl_id     id     = {{0}};
    bool                  late   = false;
    WEFT_TRY(share_id(g, meeting, &id));
    pthread_mutex_lock(&g->lock);
    int         code = weft_cuda_nccl_get()->init(&g->comm, g->n, id, g->me, &config);
    weft_status st   = wait_until(g, &code, 0.75 * g->end->comm->timeout_s, &late);
    if (st == WEFT_OK && !late && code) st = fail_nccl(g, code, "ncclCommInitRankConfig");
    pthread_mutex_unlock(&g->lock);
    return st == WEFT_OK ? name_late(g, meeting, late) : st;
}

static weft_status make_group(weft_device_comm *dc, const weft_device_group_spec *spec,
                              weft_device_group **out)
{
    weft_device_group *g = calloc(1, sizeof *g);
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *g = (weft_device_group){
        .end = dc, .n = spec->n, .me = spec->me, .any_order = dc->any_order};
    pthread_mutex_init(&g->lock, NULL);
    g->rank = calloc((size_t)spec->n, sizeof *g->rank);
    *out    = g;
    if (!g->rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(g->rank, spec->rank, (size_t)spec->n * sizeof *g->rank);
    g->watched = (weft_device_watched){
        .n = g->n, .me = g->me, .rank = g->rank, .tag = spec->tag, .names = &g->names};
    WEFT_TRY(dc->device->alloc(dc->device, WEFT_SPACE_PINNED, 2 * sizeof *g->aborted,
                               &g->flags));
    WEFT_TRY(dc->device->alloc(dc->device, WEFT_SPACE_DEVICE, sizeof *g->aborted,
                               &g->stop_copy));
    g->progress = g->flags.address;
    g->aborted  = (uint32_t *)g->flags.address + 1;
    return WEFT_OK;
}

static void link_group(nccl_end *e, weft_device_group *g)
{
    pthread_mutex_lock(&e->lock);
    g->next  = e->first;
    e->first = g;
    pthread_mutex_unlock(&e->lock);
}

/* The watcher may be about to abort it. */
static void unlink_group(nccl_end *e, weft_device_group *g)
{
    pthread_mutex_lock(&e->lock);
    while (g->busy) {
        pthread_mutex_unlock(&e->lock);
        sleep_briefly();
        pthread_mutex_lock(&e->lock);
    }
    for (weft_device_group **p = &e->first; *p; p = &(*p)->next)
        if (*p == g) {
            *p = g->next;
            break;
        }
    pthread_mutex_unlock(&e->lock);
}

static void free_group(weft_device_group *g)
{
    weft_device *d = g->end->device;
    weft_cuda_nccl_close_channel(g);
    g->end->bytes -= g->stage.bytes;
    if (g->stage.address) d->free(d, &g->stage);
    if (g->flags.address) d->free(d, &g->flags);
    if (g->stop_copy.address) d->free(d, &g->stop_copy);
    pthread_mutex_destroy(&g->lock);
    weft_device_names_fini(&g->names);
    free(g->rank);
    free(g);
}

/* Ends what is under way, here.  Graphs that have its calls go on to their end. */
static void abort_group(weft_device_group *g)
{
    g->stop                          = true; /* who has the lock leaves it */
    *(volatile uint32_t *)g->aborted = 1;
    pthread_mutex_lock(&g->lock);
    if (g->comm) (void)weft_cuda_nccl_get()->abort(g->comm);
    g->comm = NULL;
    pthread_mutex_unlock(&g->lock);
}

static weft_status open_group(weft_device_comm *dc, const weft_device_group_spec *spec,
                              weft_device_group **out)
{
    weft_device_group *g  = NULL;
    weft_status        st = WEFT_OK;
    WEFT_TRY(weft_cuda_use(weft_cuda_gpu_of(dc->device)));
    WEFT_GO(make_group(dc, spec, &g));
    if (spec->bytes) WEFT_GO(weft_cuda_nccl_open_channel(g, spec));
    WEFT_GO(connect_group(g, spec->meeting));
    if (spec->bytes) WEFT_GO(weft_cuda_nccl_connect_channel(g));
    link_group(dc->impl, g);
    *out = g;
    return WEFT_OK;
out:
    if (g && g->comm) abort_group(g);
    if (g) free_group(g);
    return st;
}

/* ---- closing ---- */

/* Members end together; who does not come is not waited for longer than for anything else. */
static weft_status finalize(weft_device_group *g)
{
    const weft_cuda_nccl *l = weft_cuda_nccl_get();
    WEFT_TRY(weft_cuda_nccl_settle(g, l->finalize(g->comm), "ncclCommFinalize"));
    int code = l->destroy(g->comm);
    g->comm  = NULL;
    return code && code != WEFT_NCCL_IN_PROGRESS ? fail_nccl(g, code, "ncclCommDestroy")
                                                 : WEFT_OK;
}

static void close_group(weft_device_group *g, bool broken)
{
    unlink_group(g->end->impl, g);
    (void)weft_cuda_use(weft_cuda_gpu_of(g->end->device));
    bool ended = broken || g->stop;
    if (!ended) {
        pthread_mutex_lock(&g->lock);
        ended = !g->comm || finalize(g) != WEFT_OK;
        pthread_mutex_unlock(&g->lock);
    }
    if (ended) abort_group(g);
    free_group(g);
}

/* ---- the watcher ---- */

static weft_status check_group(weft_device_group *g)
{
    int code = 0, asked;
    if (!g->comm || g->stop) return WEFT_OK;
    asked = weft_cuda_nccl_get()->async_error(g->comm, &code);
    if (asked) code = asked;
    if (code && code != WEFT_NCCL_IN_PROGRESS) return fail_nccl(g, code, "NCCL");
    uint32_t word = *g->progress;
    return weft_device_comm_watch(g->end, &g->watched, word, word % 2);
}

static weft_status look(weft_device_comm *dc)
{
    nccl_end   *e  = dc->impl;
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->first; g && st == WEFT_OK; g = g->next)
        st = check_group(g);
    pthread_mutex_unlock(&e->lock);
    return st;
}

static weft_device_group *next_to_abort(nccl_end *e)
{
    weft_device_group *g = e->first;
    while (g && !g->comm) g = g->next;
    return g;
}

/* NCCL may wait for graphs that have calls of a communicator, and others may be closed meanwhile:
 * the list's lock is free then. */
static void abort_end(weft_device_comm *dc)
{
    nccl_end *e = dc->impl;
    (void)weft_cuda_use(weft_cuda_gpu_of(dc->device));
    pthread_mutex_lock(&e->lock);
    for (weft_device_group *g = e->first; g; g = g->next) g->stop = true;
    for (weft_device_group *g; (g = next_to_abort(e));) {
        g->busy = true;
        pthread_mutex_unlock(&e->lock);
        abort_group(g);
        pthread_mutex_lock(&e->lock);
        g->busy = false;
    }
    pthread_mutex_unlock(&e->lock);
}

const weft_device_backend weft_cuda_nccl_backend = {
    .name            = "nccl",
    .hello           = say_hello,
    .joins           = can_join,
    .explain         = explain_apart,
    .takes           = weft_cuda_nccl_takes,
    .messages        = true,
    .reads_rows      = true,
    .open            = open_end,
    .close           = close_end,
    .open_group      = open_group,
    .close_group     = close_group,
    .prepare         = weft_cuda_nccl_prepare,
    .prepare_message = weft_cuda_nccl_prepare_message,
    .run             = weft_cuda_nccl_run,
    .release         = weft_cuda_nccl_release,
    .look            = look,
    .abort           = abort_end,
};
