/* Is a checkpoint what its manifest says?  In: a folder and a manifest.  Out: OK, or the
 * first thing that is wrong.  Files are read, not mapped: a device that cannot read a
 * block gives an error here, where a map would end the process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/progress.h"
#include "ckpt/ckpt_priv.h"

static weft_status read_at(int fd, const char *path, uint8_t *buf, int64_t at, int64_t n)
{
    while (n > 0) {
        ssize_t k = pread(fd, buf, (size_t)n, at);

        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            return WEFT_FAIL(WEFT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (k == 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: truncated while it was read", path);
        weft_progress_mark();
        buf += k;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

static weft_status check_blocks(int fd, const char *path, const weft_store_sum *s)
{
    uint8_t    *buf = malloc(WEFT_STORE_BLOCK);
    weft_status st  = WEFT_OK;

    if (!buf) return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to verify it", path);
    for (int64_t i = 0; i < s->n_block; i++) {
        int64_t at = i * WEFT_STORE_BLOCK;
        int64_t n  = s->bytes - at < WEFT_STORE_BLOCK ? s->bytes - at : WEFT_STORE_BLOCK;

        WEFT_GO(read_at(fd, path, buf, at, n));
        if (weft_hash_crc32c(0, buf, (size_t)n) != s->crc[i])
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "%s: damaged: block %lld of %lld (byte %lld on) has "
                              "another checksum",
                              path, (long long)i, (long long)s->n_block, (long long)at));
    }
out:
    free(buf);
    return st;
}

static weft_status check_file(const char *path, const weft_store_sum *s, bool deep,
                              bool cold)
{
    int         fd    = -1;
    int64_t     bytes = 0;
    weft_status st    = WEFT_OK;

    WEFT_TRY(weft_io_open_read(path, &fd, &bytes));
    if (bytes != s->bytes)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: damaged: %lld bytes, the manifest says %lld",
                          path, (long long)bytes, (long long)s->bytes));
    if (cold)
        (void)posix_fadvise(fd, 0, 0,
                            POSIX_FADV_DONTNEED); /* it is synced: only a cache */
    if (deep) WEFT_GO(check_blocks(fd, path, s));
out:
    close(fd);
    return st;
}

weft_status weft_ckpt__verify(const char *dir, const weft_ckpt_manifest *m, bool deep,
                              bool cold)
{
    weft_text   path = {0};
    weft_status st   = WEFT_OK;

    for (int i = 0; i < m->n_file; i++) {
        path.n = 0;
        weft_text_add(&path, "%s/%s/%s", dir, m->dir, m->file[i].name);
        WEFT_GO(weft_text_status(&path));
        WEFT_GO(check_file(path.s, &m->file[i].sum, deep, cold));
    }
out:
    weft_text_fini(&path);
    return st;
}

weft_status weft_ckpt__load_manifest(const char *dir, int64_t step,
                                     weft_ckpt_manifest *out)
{
    weft_ckpt_manifest m    = {0};
    weft_text          path = {0};
    char              *text = NULL;
    size_t             n    = 0;
    weft_status        st   = WEFT_OK;

    weft_text_add(&path, "%s/" WEFT_CKPT__MANIFEST "%08lld", dir, (long long)step);
    WEFT_GO(weft_text_status(&path));
    WEFT_GO(weft_io_read_as(path.s, WEFT_IO_LARGE, &text, &n));
    WEFT_GO(weft_ckpt_manifest_parse(path.s, text, n, &m));
    if (m.step != step) {
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: it is the manifest of step %lld", path.s,
                       (long long)m.step);
        weft_ckpt_manifest_fini(&m);
        goto out;
    }
    *out = m;
out:
    free(text);
    weft_text_fini(&path);
    return st;
}
