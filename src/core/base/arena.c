/* A list of blocks that double in size; an allocation is a bump in the newest one.
 * What does not fit a normal block gets its own. */
#include "base/arena.h"

#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN       = 16,
    FIRST_BLOCK = 4096,
    /* what is never filled counts as memory of a rank; larger ones malloc takes from the system */
    LAST_BLOCK = 1 << 16
};

typedef struct block block;
struct block {
    block *next;
    size_t used, size; /* of the bytes behind the header */
};
_Static_assert(sizeof(block) <= 2 * ALIGN, "the header's room");

struct weft_arena {
    block      *head;
    size_t      next_size;
    weft_status st;
};

weft_status weft_arena_create(weft_arena **out)
{
    weft_arena *a = calloc(1, sizeof *a);
    if (!a) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    a->next_size = FIRST_BLOCK;
    *out         = a;
    return WEFT_OK;
}

void weft_arena_destroy(weft_arena *a)
{
    if (!a) return;
    for (block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

int64_t weft_arena_bytes(const weft_arena *a)
{
    int64_t n = 0;
    for (const block *b = a ? a->head : NULL; b; b = b->next)
        n += 2 * ALIGN + (int64_t)b->used;
    return n;
}

weft_status weft_arena_status(const weft_arena *a)
{
    return a->st;
}

static void *no_memory(weft_arena *a)
{
    a->st = WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    return NULL;
}

static block *add_block(weft_arena *a, size_t n)
{
    bool   own  = n > a->next_size / 2;
    size_t size = own ? n : a->next_size;
    block *b    = calloc(1, 2 * ALIGN + size);
    if (!b) return NULL;
    b->size = size;
    if (!own && a->next_size < LAST_BLOCK) a->next_size *= 2;
    if (own && a->head) { /* keep bumping in the block that has room left */
        b->next       = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *weft_arena_alloc(weft_arena *a, size_t n)
{
    if (n > SIZE_MAX / 4) return no_memory(a);
    n        = (n + (n == 0) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    block *b = a->head;
    if (!b || b->size - b->used < n) {
        b = add_block(a, n);
        if (!b) return no_memory(a);
    }
    void *p = (char *)b + 2 * ALIGN + b->used;
    b->used += n;
    return p;
}

void *weft_arena_memdup(weft_arena *a, const void *p, size_t n)
{
    void *q = weft_arena_alloc(a, n);
    if (q && n) memcpy(q, p, n);
    return q;
}

char *weft_arena_strndup(weft_arena *a, const char *s, size_t n)
{
    n       = strnlen(s, n);
    char *q = weft_arena_alloc(a, n + 1);
    if (q) memcpy(q, s, n);
    return q;
}

char *weft_arena_strdup(weft_arena *a, const char *s)
{
    return weft_arena_strndup(a, s, strlen(s));
}

char *weft_arena_printf(weft_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int   n = vsnprintf(NULL, 0, fmt, ap);
    char *q = n < 0 ? NULL : weft_arena_alloc(a, (size_t)n + 1);
    if (q) vsnprintf(q, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return q;
}

weft_status weft_arena_grow(weft_arena *a, void **p, int *cap, int want, size_t size)
{
    if (want <= *cap) return WEFT_OK;
    int64_t n = *cap < 8 ? 8 : 2 * (int64_t)*cap;
    if (n < want) n = want;
    if (n > INT32_MAX) n = INT32_MAX;
    if ((size_t)n > SIZE_MAX / 4 / size) {
        no_memory(a);
        return a->st;
    }
    void *q = weft_arena_alloc(a, (size_t)n * size);
    if (!q) return a->st;
    if (*cap) memcpy(q, *p, (size_t)*cap * size);
    *p   = q;
    *cap = (int)n;
    return WEFT_OK;
}
