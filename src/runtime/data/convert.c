/* Tokens from one format to another.  In: any stream.  Out: raw u16 or u32, or Megatron's
 * pair.
 * (1) A file is written under a temporary name and renamed, so converting onto oneself is
 *     safe.
 * (2) The .idx goes last: a .bin without it is never half of a pair. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/data_priv.h"
#include "data/idx.h"

#define CHUNK     (1 << 18)
#define MAX_PIECE (1ll << 30) /* tokens in one sequence of an index */

static weft_status largest(const weft_data__stream *s, int32_t *buf, int64_t *out)
{
    int64_t most = 0;

    for (int64_t at = 0; at < s->n_token; at += CHUNK) {
        int64_t n = s->n_token - at < CHUNK ? s->n_token - at : CHUNK;

        WEFT_TRY(weft_data__stream_read(s, at, n, buf));
        for (int64_t i = 0; i < n; i++) {
            const char *path;
            int64_t     pos, id;

            if (buf[i] < 0) {
                WEFT_TRY(weft_data__stream_token(s, at + i, &path, &pos, &id));
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "%s: token %lld is %lld, which is no token id", path,
                                 (long long)pos, (long long)id);
            }
            most = buf[i] > most ? buf[i] : most;
        }
    }
    *out = most;
    return WEFT_OK;
}

static weft_status write_tokens(int fd, const char *path, const weft_data__stream *s,
                                int w, int32_t *buf)
{
    for (int64_t at = 0; at < s->n_token; at += CHUNK) {
        int64_t n = s->n_token - at < CHUNK ? s->n_token - at : CHUNK;
        /* narrowed in place: byte k of w * i never passes 4 * i */
        uint8_t *b = (uint8_t *)buf;

        WEFT_TRY(weft_data__stream_read(s, at, n, buf));
        for (int64_t i = 0; i < n; i++) {
            uint32_t v = (uint32_t)buf[i];

            for (int k = 0; k < w; k++) b[i * w + k] = (uint8_t)(v >> (8 * k));
        }
        WEFT_TRY(weft_io_write(fd, path, b, (size_t)(n * w)));
    }
    return WEFT_OK;
}

static weft_status write_bin(const char *path, const weft_data__stream *s, int w,
                             int32_t *buf)
{
    weft_io_replacement r;
    weft_status         st = WEFT_OK;

    WEFT_TRY(weft_io_replace_begin(path, &r));
    WEFT_GO(weft_io_reserve(r.fd, path, s->n_token * w));
    WEFT_GO(write_tokens(r.fd, path, s, w, buf));
    WEFT_GO(weft_io_replace_end(&r, path));
out:
    weft_io_replace_drop(&r);
    return st;
}

/* Sequences of the index: the stream's own pieces, the long ones cut. */
static weft_status write_idx(weft_arena *a, const char *path, const weft_data__stream *s,
                             weft_dtype dtype)
{
    weft_text t   = {0};
    int64_t  *cut = WEFT_ARENA_ARRAY(a, int64_t, s->n_piece + s->n_token / MAX_PIECE + 2);
    int64_t   n   = 0;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < s->n_piece; i++)
        for (int64_t at = s->piece[i].first; at < s->piece[i + 1].first; at += MAX_PIECE)
            cut[n++] = at;
    cut[n] = s->n_token;
    WEFT_GO(weft_data_idx_print(dtype, cut, n, &t));
    WEFT_GO(weft_io_replace_file(path, t.s, t.n));
out:
    weft_text_fini(&t);
    return st;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Raw integers of w bytes. */
static weft_status to_raw(const weft_data__stream *s, const char *to, int w, int32_t *buf)
{
    int64_t most = 0;

    WEFT_TRY(largest(s, buf, &most));
    if (w == 2 && most > UINT16_MAX)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: id %lld does not fit the format's 16 bits; convert --to u32 "
            "or megatron",
            to, (long long)most);
    return write_bin(to, s, w, buf);
}

static weft_status to_megatron(weft_arena *a, const weft_data__stream *s, const char *to,
                               int32_t *buf)
{
    const char *bin  = weft_data__sibling(a, to, ".bin");
    const char *idx  = weft_data__sibling(a, to, ".idx");
    int64_t     most = 0;
    bool        wide;

    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(largest(s, buf, &most));
    wide = most > UINT16_MAX;
    /* a .bin that only wants its index stays as it is */
    if (!(s->n_file == 1 && s->dtype == WEFT_DTYPE_U16 && s->n_piece == 1 &&
          s->piece[0].at == 0 && same_file(bin, s->file[0].path)))
        WEFT_TRY(write_bin(bin, s, wide ? 4 : 2, buf));
    return write_idx(a, idx, s, wide ? WEFT_DTYPE_I32 : WEFT_DTYPE_U16);
}

weft_status weft_data_convert(const char *from, const char *from_format, const char *to,
                              const char *format)
{
    weft_data__format in, out = WEFT_DATA__BIN;
    weft_data__stream s   = {0};
    weft_arena       *a   = NULL;
    int32_t          *buf = NULL;
    size_t            n   = strlen(to);
    weft_status       st  = WEFT_OK;

    WEFT_TRY(weft_data__format_of(from, from_format, &in));
    if (format)
        WEFT_TRY(weft_data__format_of(to, format, &out));
    else if (n > 4 && strcasecmp(to + n - 4, ".idx") == 0)
        out = WEFT_DATA__MEGATRON;
    else if (n <= 4 || strcasecmp(to + n - 4, ".bin") != 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: to what format? name it x.bin or x.idx, or say --to bin, "
                         "u32 or megatron",
                         to);
    if (in == WEFT_DATA__SAFETENSORS)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: its rows are samples, not a stream to convert", from);
    if (out == WEFT_DATA__SAFETENSORS || out == WEFT_DATA__TEXT)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: only bin (u16), u32 and megatron can be written", to);
    WEFT_TRY(weft_data__stream_open(from, in, from_format != NULL, &s));
    WEFT_GO(weft_arena_create(&a));
    buf = malloc(sizeof *buf * CHUNK);
    if (!buf) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory to convert %s", from));
    if (s.n_token == 0) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no tokens in it", from));
    WEFT_GO(out == WEFT_DATA__MEGATRON
                ? to_megatron(a, &s, to, buf)
                : to_raw(&s, to, out == WEFT_DATA__U32 ? 4 : 2, buf));
out:
    free(buf);
    weft_arena_destroy(a);
    weft_data__stream_fini(&s);
    return st;
}
