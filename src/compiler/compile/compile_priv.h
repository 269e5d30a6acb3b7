/* Shared by the files of the room. */
#ifndef WEFT_COMPILE_PRIV_H
#define WEFT_COMPILE_PRIV_H

#include "compile/compile.h"
#include "partition/partition.h"

/* The marks of a plan as a forward graph takes them: those on values it has (a copy's mark is its
 * parameter's), and where the training program keeps parameters in more parts than these say
 * (s->kept), marks for that.  In a. */
weft_status weft_compile__forward_marks(const weft_compile_spec *s, const weft_graph *g,
                                        weft_arena *a, weft_plan *out);
/* Parameters lie alike in both. */
weft_status weft_compile__same_parts(const weft_compiled *kept, const weft_compiled *c);

/* The program of a rank; the rest is lent by base, which weft_compile_graph() made and the first
 * call adds its sharding to.  *cache: shared by the stages of its mesh rank; NULL at first, then
 * the caller's. */
weft_status weft_compile__rank(const weft_compile_spec *s, weft_compiled *base,
                               weft_partition_cache **cache, weft_compiled *out);

#endif
