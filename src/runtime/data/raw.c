/* What integers a .bin holds.  In: a file.  Out: u16 or u32, and where they begin; or a line that
 * says why it is refused.
 *
 *     llm.c's header          256 i32: magic, version, number of tokens; then the tokens
 *     raw u16, raw u32        nothing but tokens: distinguished by their 16-bit words, of all of
 *                             the file up to 64 MiB, of 64 places in a larger one
 *
 * In u32 tokens below 2^20 every odd word (the upper half) is below 16.  In u16 tokens neither
 * place is special, so n words of 16 and more that are all at even places have a chance of 1 in
 * 2^n: from SURE such words on the file is u32, from UNSURE on it is refused, below that it is
 * u16.  The same for words that are not 0.  Pairs of words that are a small negative i32 (-1, -100)
 * say nothing about the others: they are counted apart. */
#include <string.h>

#include "data/data_priv.h"

enum {
    N_HEADER = 1024,
    LOOK     = 1 << 20, /* bytes looked at in one place */
    N_PLACE  = 64,
    CHUNK    = 1 << 14, /* a multiple of 8 */
    HIGH     = 16,      /* upper halves of ids below 2^20 are below it */
    SURE     = 32,
    UNSURE   = 8,
    MIN_TEXT = 64, /* so many bytes, all of them ASCII text, are no u16 tokens */
};

/* Of words at places 0, 1, 2 and 3 modulo 4: how many are not 0, how many are HIGH or more, in
 * either order of bytes. */
typedef struct word_count {
    int64_t nonzero[4], high[4], high_big[4];
    int64_t negative; /* pairs that are a small negative i32, in no other count */
    bool    ascii;    /* every byte so far is ASCII text */
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

/* What else llm.c writes, with headers of the same length. */
static const struct {
    int64_t     magic;
    const char *what;
} llmc_other[] = {
    {20240326, "weights of llm.c"},          {20240327, "a debugging state of llm.c"},
    {20240328, "a tokenizer of llm.c"},      {20240522, "an evaluation set of llm.c"},
    {20240527, "a training state of llm.c"},
};

static weft_status check_other(const weft_io_file *f, int64_t magic)
{
    for (size_t i = 0; i < WEFT_COUNT(llmc_other); i++)
        if (magic == llmc_other[i].magic)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s holds %s, no tokens to train on; set data_format: u16 or "
                "u32 if it is (docs/data.md)",
                f->path, llmc_other[i].what);
    return WEFT_OK;
}

/* *found: it has such a header. */
static weft_status read_header(const weft_io_file *f, bool *found, weft_data__raw *out)
{
    uint8_t head[12];

    *found = false;
    if (f->bytes < N_HEADER) return WEFT_OK;
    WEFT_TRY(weft_io_file_read(f, 0, head, sizeof head));
    WEFT_TRY(check_other(f, get_i32(head)));
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

/* Python's objects: a protocol, an opcode that may follow it, and the end. */
static weft_status check_pickle(const weft_io_file *f, const uint8_t head[8])
{
    static const char first[] = "}](c)XKMJNG\x8a\x8c\x95";
    uint8_t           last;

    if (f->bytes < 8 || head[0] != 0x80 || head[1] < 2 || head[1] > 5) return WEFT_OK;
    if (!head[2] || !strchr(first, head[2])) return WEFT_OK;
    WEFT_TRY(weft_io_file_read(f, f->bytes - 1, &last, 1));
    if (last != '.') return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is a Python pickle, no raw tokens; set data_format: u16 or u32 "
                     "if it is (docs/data.md)",
                     f->path);
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
                       {"\x1f\x8b\x08", 3, "compressed by gzip"},
                       {"\xfd\x37zXZ", 5, "compressed by xz"},
                       {"\x89HDF\r\n", 6, "an HDF5 file"},
                       {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", 8, "weights of PyTorch"},
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
    return check_pickle(f, head);
}

static void count_word(const uint8_t *p, int place, word_count *c)
{
    c->nonzero[place] += (p[0] | p[1]) != 0;
    c->high[place] += p[0] >= HIGH || p[1] != 0;
    c->high_big[place] += p[1] >= HIGH || p[0] != 0;
}

/* n bytes that begin at a multiple of 8 in the file. */
static void count_chunk(const uint8_t *p, int64_t n, word_count *c)
{
    if (c->ascii) c->ascii = weft_data__find_binary(p, n) < 0;
    for (int64_t i = 0; i < n && c->ascii; i++) c->ascii = p[i] < 128;
    for (int64_t i = 0; i + 1 < n; i += 4) {
        int place = (int)(i / 2 % 4);

        if (i + 3 < n && p[i + 1] == 0xff && p[i + 2] == 0xff && p[i + 3] == 0xff) {
            c->negative++;
            continue;
        }
        count_word(p + i, place, c);
        if (i + 3 < n) count_word(p + i + 2, place + 1, c);
    }
}

static weft_status count_words(const weft_io_file *f, word_count *c)
{
    uint8_t buf[CHUNK];
    bool    all  = f->bytes <= (int64_t)LOOK * N_PLACE;
    int64_t step = all ? LOOK : (f->bytes - LOOK) / (N_PLACE - 1) / 8 * 8;

    *c = (word_count){.ascii = f->bytes >= MIN_TEXT};
    for (int64_t first = 0, k = 0; first < f->bytes && k < N_PLACE; first += step, k++) {
        int64_t end = f->bytes - first < LOOK ? f->bytes : first + LOOK;

        for (int64_t at = first; at < end; at += CHUNK) {
            int64_t n = end - at < CHUNK ? end - at : CHUNK;

            WEFT_TRY(weft_io_file_read(f, at, buf, (size_t)n));
            count_chunk(buf, n, c);
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
    int64_t    even_high, odd_high, even_big, odd_big, even, odd;
    bool       found;

    *out = (weft_data__raw){WEFT_DTYPE_U16, 0, NULL};
    WEFT_TRY(read_header(f, &found, out));
    if (found) return WEFT_OK;
    WEFT_TRY(check_magic(f));
    WEFT_TRY(count_words(f, &c));
    even_high = c.high[0] + c.high[2];
    odd_high  = c.high[1] + c.high[3];
    even_big  = c.high_big[0] + c.high_big[2];
    odd_big   = c.high_big[1] + c.high_big[3];
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
    if (f->bytes % 4 == 0 &&
        (is_sided(odd_big, even_big, SURE) || is_sided(odd, even, SURE)))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: its tokens look like big-endian integers of 32 or 64 bits: "
                         "write them as little-endian u16 or u32 (docs/data.md), or set "
                         "data_format: u16 if they are u16",
                         f->path);
    if (is_sided(even_high, odd_high, SURE) || is_sided(even, odd, SURE)) {
        if (c.negative)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s: its tokens are 32-bit integers, and %lld of those looked "
                "at are negative (-1, -100), which are no ids: write a stream "
                "without them, or rows with labels (docs/data.md)",
                f->path, (long long)c.negative);
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
