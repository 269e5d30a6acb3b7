/* An arena: memory that dies at once.  Compile-side objects (graph, plan, program) live in one.
 * Not safe for two threads. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include "base/status.h"

typedef struct weft_arena weft_arena;

weft_status weft_arena_create(weft_arena **out);
void        weft_arena_destroy(weft_arena *a); /* accepts NULL */
/* What was asked for so far, with what keeping it costs; NULL is 0. */
int64_t weft_arena_bytes(const weft_arena *a);

/* n zeroed bytes, aligned to 16; NULL when there is no memory (and the arena then says so:
 * weft_arena_status() is WEFT_ERR_MEM from then on, so a builder may check once at its end). */
void       *weft_arena_alloc(weft_arena *a, size_t n);
weft_status weft_arena_status(const weft_arena *a);

char *weft_arena_strdup(weft_arena *a, const char *s);
char *weft_arena_strndup(weft_arena *a, const char *s, size_t n);
char *weft_arena_printf(weft_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void *weft_arena_memdup(weft_arena *a, const void *p, size_t n);

/* Grows an array kept in the arena: *p holds *cap elements of size bytes; afterwards it holds
 * at least want.  Old storage stays until the arena dies. */
weft_status weft_arena_grow(weft_arena *a, void **p, int *cap, int want, size_t size);

#define WEFT_ARENA_NEW(a, T)      ((T *)weft_arena_alloc((a), sizeof(T)))
#define WEFT_ARENA_ARRAY(a, T, n) ((T *)weft_arena_alloc((a), sizeof(T) * (size_t)(n)))

#endif
