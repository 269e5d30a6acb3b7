#include "base/progress.h"

#include <stddef.h>

static _Atomic uint64_t          count;
static _Atomic uint64_t *_Atomic shared;

void weft_progress_alive(void)
{
    _Atomic uint64_t *word = atomic_load(&shared);
    if (word) atomic_fetch_add_explicit(word, 1, memory_order_relaxed);
}

void weft_progress_mark(void)
{
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    weft_progress_alive();
}

uint64_t weft_progress_count(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed);
}

void weft_progress_share(_Atomic uint64_t *word)
{
    atomic_store(&shared, word);
}
