#include "base/progress.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

static _Atomic uint64_t              count;
static weft_progress_record *_Atomic shared;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void add_one(_Atomic uint64_t *word)
{
    atomic_fetch_add_explicit(word, 1, memory_order_relaxed);
}

void weft_progress_beat(void)
{
    weft_progress_record *r = atomic_load(&shared);
    if (r) add_one(&r->beat);
}

void weft_progress_alive(void)
{
    weft_progress_record *r = atomic_load(&shared);
    if (!r) return;
    add_one(&r->word);
    add_one(&r->beat);
}

void weft_progress_mark(void)
{
    add_one(&count);
    weft_progress_alive();
}

uint64_t weft_progress_count(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed);
}

/* ---- tasks ---- */

static weft_progress_task *find_task(weft_progress_record *r, int stream)
{
    return r && stream >= 0 && stream < WEFT_PROGRESS_STREAMS ? &r->task[stream] : NULL;
}

void weft_progress_begin(int stream, const char *name, double longest_s)
{
    weft_progress_record *r = atomic_load(&shared);
    weft_progress_task   *t = find_task(r, stream);
    if (!t) return;
    size_t n = name ? strnlen(name, sizeof t->name - 1) : 0;
    if (n) memcpy(t->name, name, n);
    t->name[n] = 0;
    atomic_store_explicit(&t->longest_ns, (uint64_t)(longest_s * 1e9),
                          memory_order_relaxed);
    atomic_store_explicit(&t->begun_ns, now_ns(), memory_order_release);
    add_one(&r->beat);
}

double weft_progress_end(int stream)
{
    weft_progress_record *r = atomic_load(&shared);
    weft_progress_task   *t = find_task(r, stream);
    if (!t) return 0;
    uint64_t begun = atomic_load_explicit(&t->begun_ns, memory_order_relaxed);
    atomic_store_explicit(&t->begun_ns, 0, memory_order_relaxed);
    add_one(&r->beat);
    return begun ? 1e-9 * (double)(now_ns() - begun) : 0;
}

/* ---- the record ---- */

void weft_progress_share(weft_progress_record *record)
{
    for (int k = 0; record && k < WEFT_PROGRESS_STREAMS; k++)
        atomic_store(&record->task[k].begun_ns, 0); /* of a process before this one */
    atomic_store(&shared, record);
}

bool weft_progress_is_shared(void)
{
    return atomic_load_explicit(&shared, memory_order_relaxed) != NULL;
}
