#include "support/exec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SLAB = 16
};

/* What an executor's slabs are; ranks are threads, so the list has a lock. */
typedef struct held {
    struct held        *next;
    const weft_program *p;
    const weft_exec    *e;
    weft_memory         slab[MAX_SLAB], given[MAX_SLAB];
} held;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static held           *first;

/* A program writes its work memory before it reads it, in every step: here it is all NaN. */
static weft_status fill_work(const held *h)
{
    static char block[1 << 16];
    memset(block, 0xff, sizeof block);
    for (int i = 0; i < h->p->n_slab; i++) {
        if (h->p->slab[i].kind != WEFT_SLAB_WORK || h->given[i].address) continue;
        for (int64_t at = 0, n; at < h->p->slab[i].bytes; at += n) {
            n = h->p->slab[i].bytes - at;
            if (n > (int64_t)sizeof block) n = sizeof block;
            WEFT_TRY(weft_device_write(&h->slab[i], at, block, n));
        }
    }
    return WEFT_OK;
}

static void free_held(held *h)
{
    for (int i = 0; i < h->p->n_slab; i++)
        if (!h->given[i].address) weft_device_free(&h->slab[i]);
    free(h);
}

weft_status test_exec_create(const weft_program *p, const weft_exec_options *o,
                             weft_exec **out)
{
    weft_exec_options with = o ? *o : (weft_exec_options){0};
    held             *h    = calloc(1, sizeof *h);
    if (!h || p->n_slab > MAX_SLAB) abort();
    h->p = p;
    for (int i = 0; with.slab && i < p->n_slab; i++)
        h->slab[i] = h->given[i] = with.slab[i];
    with.slab      = h->slab;
    weft_status st = weft_exec_alloc_slabs(
        p, with.device[0] ? with.device[0] : weft_device_cpu(), h->slab);
    if (st == WEFT_OK && !with.price) st = fill_work(h);
    if (st == WEFT_OK) st = weft_exec_create(p, &with, out);
    if (st != WEFT_OK) {
        free_held(h);
        return st;
    }
    pthread_mutex_lock(&lock);
    h->e    = *out;
    h->next = first;
    first   = h;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

void test_exec_destroy(weft_exec *e)
{
    held *h = NULL;
    if (!e) return;
    weft_exec_destroy(e);
    pthread_mutex_lock(&lock);
    for (held **at = &first; *at && !h; at = *at ? &(*at)->next : at)
        if ((*at)->e == e) {
            h   = *at;
            *at = h->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (h) free_held(h);
}
