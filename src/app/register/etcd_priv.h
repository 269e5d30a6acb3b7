/* Bytes of etcd's JSON gateway. */
#ifndef WEFT_REGISTER_ETCD_PRIV_H
#define WEFT_REGISTER_ETCD_PRIV_H

#include "base/text.h"
#include "register/register_priv.h"

/* Base64 of n bytes. */
void weft_register__put_base64(weft_text *t, const void *p, size_t n);

/* What a key holds by the answer to a range or a transaction.  prefix: of keys, which end in the
 * epoch.  succeeded: the transaction has put its own value.  WEFT_ERR_IO: no answer of etcd's. */
weft_status weft_register__read_etcd(const char *text, size_t n, const char *prefix,
                                     bool *succeeded, register_value *value);
/* The 8 bytes of a key's value as a number; 0: there is no such key. */
weft_status weft_register__read_etcd_beat(const char *text, size_t n, uint64_t *beat);

#endif
