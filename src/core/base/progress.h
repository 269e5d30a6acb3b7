/* Whether this process makes progress, for those who must tell a slow one from one that is stuck:
 * a count that moves with every block of a file written or read, and a word that other processes
 * see.
 *
 *     weft_progress_mark();                  a piece of work is done
 *     weft_progress_share(&word_in_shared_memory);
 *
 * Safe to call from any thread. */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

void     weft_progress_mark(void);  /* moves the count and the word */
uint64_t weft_progress_count(void); /* marks so far */
/* Moves the word alone: this process waits, and knows that what it waits for makes progress. */
void weft_progress_alive(void);
/* The word moves from now on; NULL: no longer.  It must stay as long as it is shared. */
void weft_progress_share(_Atomic uint64_t *word);

#endif
