/* A build without UCX. */
#include "comm/ucx.h"

weft_status weft_comm_ucx_open(const weft_comm_ucx_options *o, weft_comm **out)
{
    (void)o, (void)out;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "this weft was built without UCX, so its ranks must be on one host; "
                     "build it where libucx-dev is installed");
}

void weft_comm_ucx_address(const weft_comm *c, const void **p, int64_t *bytes)
{
    (void)c;
    *p     = NULL;
    *bytes = 0;
}

weft_status weft_comm_ucx_connect(weft_comm *c, uint64_t job, const void *const *address,
                                  const int64_t *bytes)
{
    (void)c, (void)job, (void)address, (void)bytes;
    return WEFT_FAIL(WEFT_ERR_ARG, "this weft was built without UCX");
}
