/* Megatron's .idx.  In: bytes nobody vouches for.  Out: a checked view of them, or one
 * line. */
#include "data/idx.h"

#include <string.h>

#define N_MAGIC  9
#define N_HEADER 34

static const char magic[N_MAGIC] = "MMIDIDX\0";

/* Megatron's type codes; 6 and 7 are floating point and no tokens. */
static const struct {
    uint8_t    code;
    weft_dtype dtype;
} code[] = {{1, WEFT_DTYPE_U8},  {2, WEFT_DTYPE_I8},  {3, WEFT_DTYPE_I16},
            {4, WEFT_DTYPE_I32}, {5, WEFT_DTYPE_I64}, {8, WEFT_DTYPE_U16}};

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

int32_t weft_data_idx_length(const weft_data_idx *x, int64_t seq)
{
    const uint8_t *p = x->length + 4 * seq;

    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}

int64_t weft_data_idx_offset(const weft_data_idx *x, int64_t seq)
{
    return (int64_t)get_u64(x->offset + 8 * seq);
}

static weft_status parse_header(const char *name, const uint8_t *p, size_t n,
                                weft_data_idx *x)
{
    uint64_t version, n_seq, n_doc, rest = n - N_HEADER;

    if (n < N_HEADER || memcmp(p, magic, N_MAGIC) != 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: not a Megatron index (no MMIDIDX at its start)", name);
    version = get_u64(p + 9);
    if (version != 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: Megatron index of version %llu, only 1 is known", name,
                         (unsigned long long)version);
    for (size_t i = 0;; i++) {
        if (i == WEFT_COUNT(code))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: type code %d is no integer type", name,
                             p[17]);
        x->dtype = code[i].dtype;
        if (code[i].code == p[17]) break;
    }
    n_seq = get_u64(p + 18);
    n_doc = get_u64(p + 26);
    if (n_seq > rest / 12 || n_doc > (rest - 12 * n_seq) / 8)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: truncated: %llu sequences and %llu documents do not fit in it", name,
            (unsigned long long)n_seq, (unsigned long long)n_doc);
    rest -= 12 * n_seq + 8 * n_doc;
    if (rest != 0 && rest != n_seq) /* one mode byte a sequence may follow */
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %llu bytes too many at its end", name,
                         (unsigned long long)rest);
    x->n_seq  = (int64_t)n_seq;
    x->n_doc  = (int64_t)n_doc;
    x->length = p + N_HEADER;
    x->offset = x->length + 4 * n_seq;
    x->doc    = x->offset + 8 * n_seq;
    return WEFT_OK;
}

weft_status weft_data_idx_parse(const char *name, const void *p, size_t n, int64_t n_bin,
                                weft_data_idx *out)
{
    weft_data_idx x    = {0};
    int64_t       last = 0, w;

    WEFT_TRY(parse_header(name, p, n, &x));
    w = weft_dtype_bytes(x.dtype);
    for (int64_t i = 0; i < x.n_seq; i++) {
        int64_t len = weft_data_idx_length(&x, i), at = weft_data_idx_offset(&x, i);

        if (len < 0 || at < 0 || at > n_bin || len * w > n_bin - at)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s: sequence %lld (%lld tokens at byte %lld) lies outside the .bin of "
                "%lld bytes",
                name, (long long)i, (long long)len, (long long)at, (long long)n_bin);
    }
    for (int64_t i = 0; i < x.n_doc; i++) {
        int64_t d = (int64_t)get_u64(x.doc + 8 * i);

        if (d < last || d > x.n_seq)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: document %lld begins at sequence %lld of %lld", name,
                             (long long)i, (long long)d, (long long)x.n_seq);
        last = d;
    }
    *out = x;
    return WEFT_OK;
}

static void put(weft_text *t, uint64_t v, int n)
{
    char b[8];

    for (int i = 0; i < n; i++) b[i] = (char)(v >> (8 * i));
    weft_text_put(t, b, (size_t)n);
}

weft_status weft_data_idx_print(weft_dtype dtype, const int64_t *cut, int64_t n_cut,
                                weft_text *t)
{
    int64_t w = weft_dtype_bytes(dtype);
    uint8_t c = 0;

    for (size_t i = 0; i < WEFT_COUNT(code); i++)
        if (code[i].dtype == dtype) c = code[i].code;
    if (!c)
        return WEFT_FAIL(WEFT_ERR_ARG, "no Megatron index for %s",
                         weft_dtype_name(dtype));
    weft_text_put(t, magic, N_MAGIC);
    put(t, 1, 8);
    put(t, c, 1);
    put(t, (uint64_t)n_cut, 8);
    put(t, (uint64_t)n_cut + 1, 8);
    for (int64_t i = 0; i < n_cut; i++) {
        if (cut[i + 1] - cut[i] > INT32_MAX)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "a sequence of %lld tokens is too long for a Megatron "
                             "index",
                             (long long)(cut[i + 1] - cut[i]));
        put(t, (uint64_t)(cut[i + 1] - cut[i]), 4);
    }
    for (int64_t i = 0; i < n_cut; i++) put(t, (uint64_t)(cut[i] * w), 8);
    for (int64_t i = 0; i <= n_cut; i++) put(t, (uint64_t)i, 8);
    return weft_text_status(t);
}
