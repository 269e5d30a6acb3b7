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

void weft_progress_begin(int stream, const char *name, double longest_s,
                         const weft_progress_work *work)
{
    weft_progress_record *r = atomic_load(&shared);
    weft_progress_task   *t = find_task(r, stream);
    if (!t) return;
    size_t n = name ? strnlen(name, sizeof t->name - 1) : 0;
    if (n) memcpy(t->name, name, n);
    t->name[n] = 0;
    t->work    = work ? *work : (weft_progress_work){0};
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

/* ---- what tasks take ---- */

static const double PAGE_BPS = 0.25e9; /* pages are made at least so fast */

static bool is_known(const weft_progress_work *w)
{
    return w->kind > 0 && w->kind < WEFT_PROGRESS_KINDS && w->amount > 0;
}

/* Its size is from 4^k to 4^(k+1). */
static int find_size(double amount)
{
    int k = 0;
    for (; amount >= 4 && k < WEFT_PROGRESS_SIZES - 1; amount /= 4) k++;
    return k;
}

void weft_progress_note(const weft_progress_work *work, double seconds)
{
    weft_progress_record *r = atomic_load(&shared);
    if (!r || !is_known(work)) return;
    _Atomic uint32_t *at   = &r->longest_us[work->kind][find_size(work->amount)];
    uint32_t          us   = seconds < 4000 ? (uint32_t)(1e6 * seconds) + 1 : UINT32_MAX;
    uint32_t          most = atomic_load_explicit(at, memory_order_relaxed);
    while (us > most && !atomic_compare_exchange_weak(at, &most, us)) continue;
}

double weft_progress_estimate(const weft_progress_record *record,
                              const weft_progress_work   *work)
{
    double least_s = 0;
    if (!is_known(work)) return 0;
    int size = find_size(work->amount);
    for (int k = 0; k < WEFT_PROGRESS_SIZES; k++) {
        double s = 1e-6 * atomic_load_explicit(&record->longest_us[work->kind][k],
                                               memory_order_relaxed);
        for (int i = k; i <= size && k < size; i++) s *= 4;
        if (s > 0 && (least_s <= 0 || s < least_s)) least_s = s;
    }
    return least_s > 0 ? least_s + work->bytes / PAGE_BPS : 0;
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
