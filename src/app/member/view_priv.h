/* A host's record in views and in messages of agents. */
#ifndef WEFT_MEMBER_VIEW_PRIV_H
#define WEFT_MEMBER_VIEW_PRIV_H

#include "member/view.h"
#include "register/bytes.h"

void weft_member__put_host(weft_bytes_writer *w, const weft_member_host *h);
/* The reader is bad where these bytes are no host. */
void weft_member__get_host(weft_bytes_reader *r, weft_member_host *h);

#endif
