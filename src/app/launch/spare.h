/* A process that waits to take the place of a rank, with its device open: on a GPU a context and
 * libraries take seconds.
 *
 *     if (weft_launch_is_spare()) {
 *         ...                                           the device is opened, and stays open
 *         if (!weft_launch_await_slot()) return 0;      the job ended without it
 *     }
 *     WEFT_TRY(weft_launch_detect(&e));                 it is a rank like all others
 *
 * The launcher's side is in launch_priv.h. */
#ifndef WEFT_LAUNCH_SPARE_H
#define WEFT_LAUNCH_SPARE_H

#include <stdbool.h>

/* Was this process started as one? */
bool weft_launch_is_spare(void);
/* Ranks of this host, which it may be one of. */
int weft_launch_spare_world(void);
/* Waits until the launcher says which rank it is: variables say so from then on, also to those who
 * look at the process.  false: it is not needed. */
bool weft_launch_await_slot(void);

#endif
