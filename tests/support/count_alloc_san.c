/* Under a sanitizer malloc is its own; it tells us of every call. */
#include "support/count_alloc.h"

#include <stdatomic.h>
#include <stddef.h>

extern int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const volatile void *, size_t),
    void (*on_free)(const volatile void *));

static _Atomic int64_t calls;

static void on_malloc(const volatile void *p, size_t n)
{
    (void)p, (void)n;
    atomic_fetch_add(&calls, 1);
}

static void on_free(const volatile void *p)
{
    (void)p;
}

__attribute__((constructor)) static void install(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

int64_t weft_test_allocs(void)
{
    return atomic_load(&calls);
}

bool weft_test_alloc_fail_at(int64_t n)
{
    return n == 0;
}
