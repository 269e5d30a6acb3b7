/* A file written in one pass, summed by blocks.  In: bytes in order.  Out: the file and its sums.
 * Large pieces go to the file from where they lie; only what does not fill a block is copied. */
#include "store/sum.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"

void weft_store_sum_fini(weft_store_sum *s)
{
    free(s->crc);
    *s = (weft_store_sum){0};
}

uint64_t weft_store_sum_hash(const weft_store_sum *s)
{
    weft_hash_state h;

    weft_hash_init(&h, (uint64_t)s->bytes);
    for (int64_t i = 0; i < s->n_block; i++) {
        uint32_t c     = s->crc[i];
        uint8_t  le[4] = {(uint8_t)c, (uint8_t)(c >> 8), (uint8_t)(c >> 16),
                          (uint8_t)(c >> 24)};

        weft_hash_add(&h, le, sizeof le);
    }
    return weft_hash_value(&h);
}

weft_status weft_store_out_open(weft_store_out *o, const char *path, int64_t bytes)
{
    weft_status st      = WEFT_OK;
    int64_t     n_block = (bytes + WEFT_STORE_BLOCK - 1) / WEFT_STORE_BLOCK;

    *o      = (weft_store_out){.fd = -1, .want = bytes};
    o->path = strdup(path);
    o->crc  = malloc(sizeof o->crc[0] * (size_t)(n_block + 1));
    o->buf  = malloc(bytes < WEFT_STORE_BLOCK ? (size_t)bytes + 1 : WEFT_STORE_BLOCK);
    if (!o->path || !o->crc || !o->buf)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to write it", path));
    WEFT_GO(weft_io_open_write(path, true, &o->fd));
    if (bytes > 0) WEFT_GO(weft_io_reserve(o->fd, path, bytes));
out:
    if (st != WEFT_OK) weft_store_out_drop(o);
    return st;
}

static weft_status put_block(weft_store_out *o, const void *p, size_t n)
{
    o->crc[o->n_block++] = weft_hash_crc32c(0, p, n);
    WEFT_TRY(weft_io_write(o->fd, o->path, p, n));
    o->done += (int64_t)n;
    return WEFT_OK;
}

weft_status weft_store_out_put(weft_store_out *o, const void *p, size_t n)
{
    const uint8_t *at = p;

    if ((int64_t)n > o->want - o->done - (int64_t)o->n_buf)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: more bytes than the %lld announced",
                         o->path, (long long)o->want);
    while (n > 0) {
        size_t k = WEFT_STORE_BLOCK - o->n_buf;

        if (o->n_buf == 0 && n >= WEFT_STORE_BLOCK) {
            WEFT_TRY(put_block(o, at, WEFT_STORE_BLOCK));
        } else {
            if (k > n) k = n;
            memcpy(o->buf + o->n_buf, at, k);
            o->n_buf += k;
            if (o->n_buf == WEFT_STORE_BLOCK) {
                o->n_buf = 0;
                WEFT_TRY(put_block(o, o->buf, WEFT_STORE_BLOCK));
            }
        }
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

weft_status weft_store_out_close(weft_store_out *o, weft_store_sum *sum)
{
    weft_status st = WEFT_OK;
    int         fd;

    if (o->n_buf > 0) {
        WEFT_GO(put_block(o, o->buf, o->n_buf));
        o->n_buf = 0;
    }
    if (o->done != o->want)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: %lld bytes written, %lld announced",
                          o->path, (long long)o->done, (long long)o->want));
    WEFT_GO(weft_io_sync(o->fd, o->path));
    fd    = o->fd;
    o->fd = -1;
    WEFT_GO(weft_io_close(fd, o->path));
    if (sum) {
        *sum   = (weft_store_sum){o->done, o->n_block, o->crc};
        o->crc = NULL;
    }
out:
    weft_store_out_drop(o);
    return st;
}

void weft_store_out_drop(weft_store_out *o)
{
    if (o->fd >= 0) close(o->fd);
    free(o->path);
    free(o->buf);
    free(o->crc);
    *o = (weft_store_out){.fd = -1};
}
