/* A build without libcurl's header. */
#include "register/register_priv.h"

weft_status weft_register__open_etcd(const char *where, bool tls,
                                     const weft_register_options *o, weft_register **out)
{
    (void)where, (void)tls, (void)o, (void)out;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "this weft was built without libcurl: give file:DIR, or build "
                     "it where libcurl4-openssl-dev is installed");
}
