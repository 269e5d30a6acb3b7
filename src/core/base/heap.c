/* See heap.h.  Only the GNU library has such knobs; elsewhere there is nothing to do. */
#include "base/heap.h"

#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>

enum {
    KEPT  = 1 << 28, /* free bytes at the heap's end */
    LARGE = 1 << 25  /* what is larger is the system's, and goes back at once */
};

void weft_heap_keep(void)
{
    mallopt(M_TRIM_THRESHOLD, KEPT);
    mallopt(M_MMAP_THRESHOLD, LARGE);
}
#else
void weft_heap_keep(void) {}
#endif
