/* The keys and certificates of control connections, for comm/tls.h. */
#ifndef WEFT_CONTROL_TLS_PRIV_H
#define WEFT_CONTROL_TLS_PRIV_H

#include "comm/tls.h"
#include "control/control.h"

enum {
    WEFT_CONTROL__FULL,   /* weft_comm_tls_end.psk: the job's token */
    WEFT_CONTROL__READER, /* the one that only reads */
};

weft_status weft_control__tls_open(const weft_control_options *o, weft_comm_tls **out);

#endif
