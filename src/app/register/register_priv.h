/* What a register is made of, and the thread that calls those whose calls wait. */
#ifndef WEFT_REGISTER_REGISTER_PRIV_H
#define WEFT_REGISTER_REGISTER_PRIV_H

#include "register/register.h"

typedef struct register_ops {
    /* n is -1: read; bytes: the 8 of a keep-alive number to write, or NULL */
    weft_status (*ask)(weft_register *r, uint32_t epoch, const void *bytes, int64_t n);
    bool (*next)(weft_register *r, weft_register_outcome *out);
    int (*fd)(const weft_register *r);
    void (*close)(weft_register *r);
} register_ops;

struct weft_register {
    const register_ops *op;
};

typedef struct register_value {
    bool     stands;
    uint32_t epoch;
    uint64_t beat; /* of a read of the newest: the keep-alive number */
    uint8_t *bytes;
    size_t   n;
} register_value;

/* A store whose calls may wait.  All are made by one thread, one after another. */
typedef struct register_store {
    /* n is -1: read; bytes: the 8 of a keep-alive number to write, or NULL.  STANDS or EMPTY with a
     * value that *value owns (free), or WEFT_ERR_IO. */
    weft_status (*ask)(void *store, uint32_t epoch, const void *bytes, int64_t n,
                       register_value *value);
    void (*destroy)(void *store);
} register_store;

/* A register over a store, which it takes, also on failure.  The job's name is proposed for epoch
 * 0; another one that stands there is WEFT_ERR_ARG, as is a store that cannot be reached. */
weft_status weft_register__open_store(const register_store *op, void *store,
                                      const char *where, const weft_register_options *o,
                                      weft_register **out);

weft_status weft_register__open_file(const char *folder, const weft_register_options *o,
                                     weft_register **out);
/* where: without etcd:// */
weft_status weft_register__open_etcd(const char *where, bool tls,
                                     const weft_register_options *o, weft_register **out);

#endif
