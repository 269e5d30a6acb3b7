/* Our malloc stands in front of glibc's, so that every allocation of the process is seen. */
#include "support/count_alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

static _Atomic int64_t calls, fail_at;

int64_t weft_test_allocs(void)
{
    return atomic_load(&calls);
}

bool weft_test_alloc_fail_at(int64_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&calls) + n : 0);
    return true;
}

static bool may_go_on(void)
{
    int64_t n = atomic_fetch_add(&calls, 1) + 1;
    if (n != atomic_load(&fail_at)) return true;
    errno = ENOMEM;
    return false;
}

void *malloc(size_t n)
{
    return may_go_on() ? __libc_malloc(n) : NULL;
}

void *calloc(size_t n, size_t size)
{
    return may_go_on() ? __libc_calloc(n, size) : NULL;
}

void *realloc(void *p, size_t n)
{
    return may_go_on() ? __libc_realloc(p, n) : NULL;
}

void *memalign(size_t align, size_t n)
{
    return may_go_on() ? __libc_memalign(align, n) : NULL;
}

void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = memalign(align, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}
