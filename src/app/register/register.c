#include "register/register.h"

#include <stdlib.h>
#include <string.h>

#include "register/register_priv.h"

weft_status weft_register_open(const char *where, const weft_register_options *o,
                               weft_register **out)
{
    if (!o->job || !*o->job || strlen(o->job) > 255)
        return WEFT_FAIL(WEFT_ERR_ARG, "a register needs the name of a job, of 1 to 255 "
                                       "characters");
    if (!strncmp(where, "file:", 5)) return weft_register__open_file(where + 5, o, out);
    if (!strncmp(where, "etcd://", 7))
        return weft_register__open_etcd(where + 7, false, o, out);
    if (!strncmp(where, "etcds://", 8))
        return weft_register__open_etcd(where + 8, true, o, out);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "register '%s': expected file:DIR, etcd://host:port,.../NAME or "
                     "etcds://host:port,.../NAME",
                     where);
}

void weft_register_close(weft_register *r)
{
    if (r) r->op->close(r);
}

weft_status weft_register_propose(weft_register *r, uint32_t epoch, const void *bytes,
                                  size_t n)
{
    if (!epoch || epoch == WEFT_REGISTER_NEWEST)
        return WEFT_FAIL(WEFT_ERR_ARG, "epoch %u cannot be proposed", epoch);
    if (n > WEFT_REGISTER_MOST)
        return WEFT_FAIL(WEFT_ERR_ARG, "a view of %zu bytes: at most %d fit a register",
                         n, WEFT_REGISTER_MOST);
    return r->op->ask(r, epoch, bytes, (int64_t)n);
}

weft_status weft_register_read(weft_register *r, uint32_t epoch)
{
    if (!epoch) return WEFT_FAIL(WEFT_ERR_ARG, "epoch 0 cannot be read");
    return r->op->ask(r, epoch, NULL, -1);
}

weft_status weft_register_look(weft_register *r, uint64_t beat)
{
    return r->op->ask(r, WEFT_REGISTER_NEWEST, beat ? &beat : NULL, -1);
}

bool weft_register_next(weft_register *r, weft_register_outcome *out)
{
    return r->op->next(r, out);
}

int weft_register_fd(const weft_register *r)
{
    return r->op->fd(r);
}
