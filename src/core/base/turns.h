/* Short turns on a core for the calling thread and threads that it starts from now on: one that
 * mostly waits for a device is run soon after the device has answered, also where every core
 * computes.  Its share of the cores stays the same.  A hint: Linux 6.12 and later take it. */
#ifndef WEFT_BASE_TURNS_H
#define WEFT_BASE_TURNS_H

#include <stdbool.h>

/* False: the system does not know it. */
bool weft_turns_shorten(void);

#endif
