/* A file written in one pass, summed by blocks.  In: bytes in order.  Out: the file and
 * its sums. Large pieces go to the file from where they lie; only small ones are gathered
 * in between. */
#include "store/sum.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"

#define SMALL      (64 << 10) /* pieces up to this are gathered first */
#define CHUNK      (1 << 20)  /* summed and written in one go */
#define SYNC_EVERY ((int64_t)256 << 20)

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
    int fd = -1;

    *o = (weft_store_out){.fd = -1};
    WEFT_TRY(weft_io_open_write(path, true, &fd));
    return weft_store_out_use(o, fd, path, bytes);
}

weft_status weft_store_out_use(weft_store_out *o, int fd, const char *path, int64_t bytes)
{
    weft_status st      = WEFT_OK;
    int64_t     n_block = (bytes + WEFT_STORE_BLOCK - 1) / WEFT_STORE_BLOCK;

    *o      = (weft_store_out){.fd = fd, .want = bytes};
    o->path = strdup(path);
    o->crc  = malloc(sizeof o->crc[0] * (size_t)(n_block + 1));
    o->buf  = malloc(SMALL);
    if (!o->path || !o->crc || !o->buf)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to write it", path));
    if (bytes > 0) WEFT_GO(weft_io_reserve(o->fd, path, bytes));
out:
    if (st != WEFT_OK) weft_store_out_drop(o);
    return st;
}

/* Bytes that go out now: summed while they are in the cache, then written. */
static weft_status emit(weft_store_out *o, const uint8_t *p, size_t n)
{
    while (n > 0) {
        int64_t at = o->done % WEFT_STORE_BLOCK;
        size_t  k  = n < CHUNK ? n : CHUNK;

        if ((int64_t)k > WEFT_STORE_BLOCK - at) k = (size_t)(WEFT_STORE_BLOCK - at);
        if (at == 0) o->crc[o->n_block++] = 0;
        o->crc[o->n_block - 1] = weft_hash_crc32c(o->crc[o->n_block - 1], p, k);
        WEFT_TRY(weft_io_write(o->fd, o->path, p, k));
        o->done += (int64_t)k;
        p += k;
        n -= k;
        /* so that no single sync is long: a watched save shows progress */
        if (o->done % SYNC_EVERY == 0) WEFT_TRY(weft_io_sync(o->fd, o->path));
        /* a block that is full may start its way to the device; only a hint */
        if (o->done % WEFT_STORE_BLOCK == 0)
            (void)sync_file_range(o->fd, o->done - WEFT_STORE_BLOCK, WEFT_STORE_BLOCK,
                                  SYNC_FILE_RANGE_WRITE);
    }
    return WEFT_OK;
}

static weft_status flush(weft_store_out *o)
{
    size_t n = o->n_buf;

    o->n_buf = 0;
    return emit(o, o->buf, n);
}

weft_status weft_store_out_put(weft_store_out *o, const void *p, size_t n)
{
    if ((int64_t)n > o->want - o->done - (int64_t)o->n_buf)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: more bytes than the %lld announced",
                         o->path, (long long)o->want);
    if (o->n_buf + n > SMALL) WEFT_TRY(flush(o));
    if (n > SMALL) return emit(o, p, n);
    if (n > 0) memcpy(o->buf + o->n_buf, p, n);
    o->n_buf += n;
    return WEFT_OK;
}

weft_status weft_store_out_close(weft_store_out *o, weft_store_sum *sum)
{
    weft_status st = WEFT_OK;
    int         fd;

    WEFT_GO(flush(o));
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
