/* Between open.c and call.c. */
#ifndef WEFT_COMM_CALL_PRIV_H
#define WEFT_COMM_CALL_PRIV_H

#include "comm/comm.h"

/* What was started runs to its end first. */
void weft_comm__close_queue(weft_comm_group *g);
/* Queues end, and what is known of open groups and channels is freed; the transport frees them
 * itself. */
void weft_comm__forget_opened(weft_comm *c);

#endif
