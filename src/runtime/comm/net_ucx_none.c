/* A build without UCX. */
#include "comm/net_priv.h"

static weft_status open_link(net_end *e, const char *device)
{
    (void)e, (void)device;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "this weft was built without UCX: set WEFT_NET=tcp, or build it "
                     "where libucx-dev is installed");
}

const net_link weft_comm__net_ucx = {
    .name = "ucx", .piece = NET_SHORT, .open = open_link};
