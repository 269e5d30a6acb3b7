/* A cpu whose memory of space DEVICE cannot be reached outside launches and copies: its pages are
 * inaccessible in between, so host code that dereferences them dies there.  Tests run whole jobs on
 * it (WEFT_DEVICE=guard) to show that nothing outside device, kernel and exec does.
 *
 * While a stream's launch runs, other threads reach the pages too: pages have one protection for
 * all. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device_priv.h"

typedef struct guarded {
    struct guarded *next;
    void           *address;
    size_t          bytes;
} guarded;

static struct {
    pthread_mutex_t lock;
    guarded        *first;
    int             n_inside; /* launches and copies that are on */
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void protect(const guarded *g, int how)
{
    if (mprotect(g->address, g->bytes, how)) abort(); /* a range that we mapped */
}

static void enter(void)
{
    pthread_mutex_lock(&guard.lock);
    if (guard.n_inside++ == 0)
        for (guarded *g = guard.first; g; g = g->next) protect(g, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&guard.lock);
}

static void leave(void)
{
    pthread_mutex_lock(&guard.lock);
    if (--guard.n_inside == 0)
        for (guarded *g = guard.first; g; g = g->next) protect(g, PROT_NONE);
    pthread_mutex_unlock(&guard.lock);
}

static weft_status guard_alloc(weft_device *d, weft_space space, int64_t bytes,
                               weft_memory *out)
{
    WEFT_TRY(weft_device__cpu_alloc(d, space, bytes, out));
    if (space != WEFT_SPACE_DEVICE || !out->address) return WEFT_OK;
    guarded *g = malloc(sizeof *g);
    if (!g) {
        weft_device__cpu_free(d, out);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    pthread_mutex_lock(&guard.lock);
    *g          = (guarded){guard.first, out->address, (size_t)bytes};
    guard.first = g;
    if (!guard.n_inside) protect(g, PROT_NONE);
    pthread_mutex_unlock(&guard.lock);
    return WEFT_OK;
}

static void guard_free(weft_device *d, const weft_memory *m)
{
    guarded *g = NULL;
    pthread_mutex_lock(&guard.lock);
    for (guarded **at = &guard.first; *at; at = &(*at)->next)
        if ((*at)->address == m->address) {
            g   = *at;
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&guard.lock);
    free(g);
    weft_device__cpu_free(d, m);
}

static weft_status guard_copy(weft_device *d, weft_stream *s, const weft_memory *to,
                              const weft_memory *from)
{
    (void)d, (void)s;
    enter();
    if (from->bytes) memcpy(to->address, from->address, (size_t)from->bytes);
    leave();
    return WEFT_OK;
}

static weft_status guard_launch(weft_stream *s, const weft_code *c)
{
    enter();
    weft_status st = weft_device__cpu_launch(s, c);
    leave();
    return st;
}

weft_device *weft_device_guard(void)
{
    static weft_device     d;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!d.name) {
        d             = *weft_device_cpu();
        d.name        = "guard";
        d.host_access = false;
        d.alloc       = guard_alloc;
        d.free        = guard_free;
        d.copy        = guard_copy;
        d.launch      = guard_launch;
    }
    pthread_mutex_unlock(&lock);
    return &d;
}

weft_device *weft_device_default(void)
{
    const char *name = getenv("WEFT_DEVICE");
    return name && !strcmp(name, "guard") ? weft_device_guard() : weft_device_cpu();
}

weft_status weft_device_check_default(void)
{
    const char *name = getenv("WEFT_DEVICE");
    if (!name || !strcmp(name, "cpu") || !strcmp(name, "guard")) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "WEFT_DEVICE is '%.40s': it is cpu, or guard for tests", name);
}
