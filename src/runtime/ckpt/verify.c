/* Is a checkpoint what its manifest says?  In: a folder and a manifest.  Out: OK, or the
 * first thing that is wrong.  Files are read, not mapped: a device that cannot read a
 * block gives an error here, where a map would end the process. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/pool.h"
#include "base/progress.h"
#include "ckpt/ckpt_priv.h"

enum {
    N_READER = 3,      /* two read while the other sums */
    HUGE     = 2 << 20 /* a large page: a read into small ones is several requests */
};

/* The blocks of one file, each read and summed by one of a few threads. */
typedef struct block_check {
    int                   fd, direct; /* direct: past the cache, or -1 */
    const char           *path;
    const weft_store_sum *sum;
    uint8_t              *buf[N_READER];
    _Atomic int64_t       next; /* no block from here on is looked at any more */
    weft_status           st[N_READER];
    int64_t               bad[N_READER]; /* the block with that error */
    char                  text[N_READER][512];
} block_check;

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

static weft_status check_block(const block_check *c, int64_t i, uint8_t *buf)
{
    int64_t at = i * WEFT_STORE_BLOCK, left = c->sum->bytes - at;
    int64_t n      = left < WEFT_STORE_BLOCK ? left : WEFT_STORE_BLOCK;
    bool    direct = c->direct >= 0 && n == WEFT_STORE_BLOCK;

    WEFT_TRY(read_at(direct ? c->direct : c->fd, c->path, buf, at, n));
    if (weft_hash_crc32c(0, buf, (size_t)n) == c->sum->crc[i]) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s: damaged: block %lld of %lld (byte %lld on) has another checksum", c->path,
        (long long)i, (long long)c->sum->n_block, (long long)at);
}

/* Blocks ascend, so the first error of each thread is its lowest. */
static void check_share(void *arg, int64_t task, int thread)
{
    block_check *c = arg;
    (void)thread;

    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < c->sum->n_block;) {
        weft_status st = check_block(c, i, c->buf[task]);

        if (st == WEFT_OK) continue;
        c->st[task]  = st;
        c->bad[task] = i;
        snprintf(c->text[task], sizeof c->text[task], "%s", weft_error_text());
        atomic_store(&c->next, c->sum->n_block);
        return;
    }
}

static weft_status find_first_error(const block_check *c)
{
    int first = -1;

    for (int k = 0; k < N_READER; k++)
        if (c->st[k] != WEFT_OK && (first < 0 || c->bad[k] < c->bad[first])) first = k;
    return first < 0 ? WEFT_OK : WEFT_FAIL(c->st[first], "%s", c->text[first]);
}

static weft_status alloc_buffer(const char *path, int64_t bytes, uint8_t **out)
{
    size_t align = bytes >= HUGE ? HUGE : WEFT_IO_ALIGN;

    if (posix_memalign((void **)out, align, (size_t)bytes))
        return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to verify it", path);
    if (bytes >= HUGE) (void)madvise(*out, (size_t)bytes, MADV_HUGEPAGE);
    return WEFT_OK;
}

static weft_status check_blocks(int fd, int direct, const char *path,
                                const weft_store_sum *s)
{
    block_check c    = {.fd = fd, .direct = direct, .path = path, .sum = s};
    weft_pool  *pool = NULL;
    int         n    = s->n_block < N_READER ? 1 : N_READER;
    int64_t     most = s->n_block > 1 ? WEFT_STORE_BLOCK : s->bytes + 1;
    weft_status st   = WEFT_OK;

    for (int k = 0; k < n; k++) WEFT_GO(alloc_buffer(path, most, &c.buf[k]));
    if (n > 1) WEFT_GO(weft_pool_create(n, 0, &pool));
    if (pool)
        weft_pool_run(pool, n, check_share, &c);
    else
        check_share(&c, 0, 0);
    st = find_first_error(&c);
out:
    weft_pool_destroy(pool);
    for (int k = 0; k < N_READER; k++) free(c.buf[k]);
    return st;
}

static weft_status check_file(const char *path, const weft_store_sum *s, bool deep,
                              bool cold)
{
    int         fd = -1, direct = -1;
    int64_t     bytes = 0;
    weft_status st    = WEFT_OK;

    WEFT_TRY(weft_io_open_read(path, &fd, &bytes));
    if (bytes != s->bytes)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: damaged: %lld bytes, the manifest says %lld",
                          path, (long long)bytes, (long long)s->bytes));
    if (cold) { /* it is synced: only a cache */
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
    if (deep) WEFT_GO(check_blocks(fd, direct, path, s));
out:
    if (direct >= 0) close(direct);
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
