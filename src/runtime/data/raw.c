/* What integers a .bin holds.  In: a file.  Out: u16 or u32, and where they begin; or a line that
 * says why it is refused.
 *
 *     llm.c's header          256 i32: magic, version, number of tokens; then the tokens
 *     raw u16, raw u32        nothing but tokens: distinguished by the 16-bit words of the first
 *     MiB
 *
 * In u32 tokens below 2^20 every odd word (the upper half) is below 16.  In u16 tokens neither
 * place is special, so n words of 16 and more that are all at even places have a chance of 1 in
 * 2^n: from SURE such words on the file is u32, from UNSURE on it is refused, below that it is
 * u16.  The same for words that are not 0. */
#include <string.h>

#include "data/data_priv.h"

enum {
    N_HEADER = 1024,
    LOOK     = 1 << 20, /* bytes looked at */
    CHUNK    = 1 << 14, /* a multiple of 8 */
    HIGH     = 16,      /* upper halves of ids below 2^20 are below it */
    SURE     = 32,
    UNSURE   = 8,
    MIN_TEXT = 64, /* so many bytes, all of them ASCII text, are no u16 tokens */
};

/* Of words at places 0, 1, 2 and 3 modulo 4: how many are not 0, how many are HIGH or more. */
typedef struct word_count {
    int64_t nonzero[4], high[4];
    bool    ascii; /* every byte so far is ASCII text */
} word_count;

static int64_t get_i32(const uint8_t *p)
{
    return weft_data__integer(WEFT_DTYPE_I32, p);
}

/* What llm.c writes: one row for each of its vocabularies. */
static const struct {
    int64_t     magic, version;
    weft_dtype  dtype;
    const char *note;
} llmc[] = {
    {20240520, 1, WEFT_DTYPE_U16, "llm.c header of 1,024 bytes skipped"},
    {20240801, 7, WEFT_DTYPE_U32, "llm.c header of 1,024 bytes skipped"},
};

/* *found: it has such a header. */
static weft_status read_header(const weft_io_file *f, bool *found, weft_data__raw *out)
{
    uint8_t head[12];

    *found = false;
    if (f->bytes < N_HEADER) return WEFT_OK;
    WEFT_TRY(weft_io_file_read(f, 0, head, sizeof head));
    for (size_t i = 0; i < WEFT_COUNT(llmc); i++) {
        int64_t w = weft_dtype_bytes(llmc[i].dtype), n = get_i32(head + 8);

        if (get_i32(head) != llmc[i].magic) continue;
        if (get_i32(head + 4) != llmc[i].version)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: llm.c header of version %lld, only %lld is known; set "
                             "data_format: u16 "
                             "if it is no header",
                             f->path, (long long)get_i32(head + 4),
                             (long long)llmc[i].version);
        if (n < 0 || f->bytes - N_HEADER != n * w)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s: its llm.c header names %lld tokens, %lld bytes of them follow, not "
                "%lld: the file is truncated or another one",
                f->path, (long long)n, (long long)(f->bytes - N_HEADER),
                (long long)(n * w));
        *found = true;
        *out   = (weft_data__raw){llmc[i].dtype, N_HEADER, llmc[i].note};
    }
    return WEFT_OK;
}

/* Files of other programs that are called .bin, or were renamed. */
static weft_status check_magic(const weft_io_file *f)
{
    static const struct {
        const char *magic;
        int         n;
        const char *what;
    } known[]       = {{"PK\3\4", 4, "a zip archive (perhaps weights of PyTorch)"},
                       {"\x93NUMPY", 6, "a NumPy file"},
                       {"PAR1", 4, "a Parquet file"},
                       {"ARROW1", 6, "an Arrow file"},
                       {"GGUF", 4, "a GGUF file"},
                       {"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
                       {"MMIDIDX", 7, "a Megatron index"}};
    uint8_t head[8] = {0};
    size_t  n       = f->bytes < 8 ? (size_t)f->bytes : 8;

    WEFT_TRY(weft_io_file_read(f, 0, head, n));
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        if (memcmp(head, known[i].magic, (size_t)known[i].n) == 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s is %s, no raw tokens; set data_format: u16 or u32 if it "
                             "is (docs/data.md)",
                             f->path, known[i].what);
    return WEFT_OK;
}

static weft_status count_words(const weft_io_file *f, word_count *c)
{
    uint8_t buf[CHUNK];
    int64_t end = f->bytes < LOOK ? f->bytes : LOOK;

    *c = (word_count){.ascii = end >= MIN_TEXT};
    for (int64_t at = 0; at < end; at += CHUNK) {
        int64_t n = end - at < CHUNK ? end - at : CHUNK;

        WEFT_TRY(weft_io_file_read(f, at, buf, (size_t)n));
        if (c->ascii) c->ascii = weft_data__find_binary(buf, n) < 0;
        for (int64_t i = 0; i < n && c->ascii; i++) c->ascii = buf[i] < 128;
        for (int64_t i = 0; i + 1 < n; i += 2) {
            int word = buf[i] | buf[i + 1] << 8;

            c->nonzero[i / 2 % 4] += word != 0;
            c->high[i / 2 % 4] += word >= HIGH;
        }
    }
    return WEFT_OK;
}

/* Is it as if all words of which there are `even` at even and `odd` at odd places were lower
 * halves? */
static bool is_sided(int64_t even, int64_t odd, int64_t least)
{
    return even >= least && odd == 0;
}

static weft_status refuse_unsure(const weft_io_file *f, const char *why)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: %s: set data_format: u16 or data_format: u32 (docs/data.md)",
                     f->path, why);
}

weft_status weft_data__raw_find(const weft_io_file *f, weft_data__raw *out)
{
    word_count c;
    int64_t    even_high, odd_high, even, odd;
    bool       found;

    *out = (weft_data__raw){WEFT_DTYPE_U16, 0, NULL};
    WEFT_TRY(read_header(f, &found, out));
    if (found) return WEFT_OK;
    WEFT_TRY(check_magic(f));
    WEFT_TRY(count_words(f, &c));
    even_high = c.high[0] + c.high[2];
    odd_high  = c.high[1] + c.high[3];
    even      = c.nonzero[0] + c.nonzero[2];
    odd       = c.nonzero[1] + c.nonzero[3];
    if (c.ascii)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: its bytes are text, no raw tokens: name it x.txt, or set "
                         "data_format: text "
                         "(u16 if they are tokens)",
                         f->path);
    if (f->bytes % 8 == 0 && c.nonzero[0] >= UNSURE && c.nonzero[2] + c.nonzero[3] == 0 &&
        c.high[1] == 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: its tokens are 64-bit integers: write them as u16 or u32 "
                         "(docs/data.md), or "
                         "set data_format: u16 or u32 if they are not",
                         f->path);
    if (is_sided(even_high, odd_high, SURE) || is_sided(even, odd, SURE)) {
        if (f->bytes % 4 != 0)
            return refuse_unsure(
                f, "its tokens look like u32, but its bytes are no multiple of 4");
        *out = (weft_data__raw){WEFT_DTYPE_U32, 0,
                                "u32 by its content: no upper half is 16 or more"};
        return WEFT_OK;
    }
    if (f->bytes % 4 != 0) return WEFT_OK;
    if (is_sided(even_high, odd_high, UNSURE) || is_sided(even, odd, UNSURE))
        return refuse_unsure(f, "too short to tell whether its tokens are u16 or u32");
    if (even_high >= SURE && odd_high * 16 < even_high)
        return refuse_unsure(f, "most of its tokens look like u32, but not all");
    return WEFT_OK;
}
