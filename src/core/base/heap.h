/* The process's heap.
 *     weft_heap_keep();    once, before work that opens and closes arenas by the thousand */
#ifndef WEFT_BASE_HEAP_H
#define WEFT_BASE_HEAP_H

/* What is freed stays with the process: the C library would hand it back to the system and ask
 * for it again, page by page. For commands that plan and end, not for ranks, whose memory is
 * counted. */
void weft_heap_keep(void);

#endif
