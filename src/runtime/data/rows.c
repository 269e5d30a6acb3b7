/* What a file of rows says beside input_ids and labels.  weft applies none of it, so it is accepted
 * where that makes no difference, and refused (decoder_input_ids: warned of) where it would:
 *
 *     attention_mask      may hide only what cannot be noticed: in causal models padding at the
 *                         end of a row, which no token before it sees, with labels of -100
 *     token_type_ids      0: models see type 0 everywhere
 *     position_ids        0, 1, 2, ... in every row
 *     decoder_input_ids   the labels one to the right, after the decoder's start */
#include "data/data_priv.h"

enum {
    CHUNK = 4096 /* elements read at a time */
};

static const char *const extra_name[WEFT_DATA__N_EXTRA] = {
    [WEFT_DATA__MASK]      = "attention_mask",
    [WEFT_DATA__TYPES]     = "token_type_ids",
    [WEFT_DATA__POSITIONS] = "position_ids",
    [WEFT_DATA__DECODER]   = "decoder_input_ids",
};

static bool is_integer(weft_dtype t)
{
    switch (t) {
    case WEFT_DTYPE_I8:
    case WEFT_DTYPE_U8:
    case WEFT_DTYPE_BOOL:
    case WEFT_DTYPE_I16:
    case WEFT_DTYPE_U16:
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_U32:
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U64: return true;
    default: return false;
    }
}

weft_status weft_data__rows_find(const char *path, weft_data *d)
{
    for (int i = 0; i < WEFT_DATA__N_EXTRA; i++) {
        const weft_store_tensor *t = weft_store_find(d->rows, extra_name[i]);

        if (t && (!weft_shape_equal(&t->shape, &d->ids->shape) || !is_integer(t->dtype)))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: %s is not of integers with the shape of input_ids",
                             path, extra_name[i]);
        d->extra[i] = t;
    }
    return WEFT_OK;
}

bool weft_data__rows_knows(const weft_data *d, const weft_store_tensor *t)
{
    for (int i = 0; i < WEFT_DATA__N_EXTRA; i++)
        if (d->extra[i] == t) return true;
    return false;
}

weft_status weft_data__read_elements(const weft_data *d, const weft_store_tensor *t,
                                     int64_t at, int64_t n, int32_t *out)
{
    int64_t w = weft_dtype_bytes(t->dtype);

    return weft_data__read(&d->file, t->dtype, d->n_head + t->begin + at * w, n, out);
}

/* Elements first .. first + n - 1 of the mask of a row; *padding: some came before. */
static weft_status check_mask(const weft_data *d, int64_t row, int64_t first, int64_t n,
                              const int32_t *v, const int32_t *labels, bool *padding)
{
    bool causal = d->o.labels != WEFT_DATA_LABELS_SAME;

    for (int64_t i = 0; i < n; i++) {
        *padding = *padding || v[i] == 0;
        if (!*padding) continue;
        if (causal && v[i] == 0 && labels[first + i] == WEFT_DATA_IGNORE) continue;
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: row %lld: attention_mask is not applied, and here it "
                         "decides: %s; write rows without %s",
                         weft_store_path(d->rows), (long long)row,
                         !causal ? "without a causal mask every token sees the padding"
                         : v[i] != 0 ? "tokens follow the padding"
                                     : "a masked token has a label that counts",
                         causal && v[i] == 0 ? "such labels (-100 there)"
                                             : "such padding");
    }
    return WEFT_OK;
}

static weft_status refuse_value(const weft_data *d, weft_data__extra kind, int64_t row,
                                int64_t at, int32_t is, int32_t want)
{
    static const char *const why[WEFT_DATA__N_EXTRA] = {
        [WEFT_DATA__TYPES] = "every token has type 0 here: write rows of one segment",
        [WEFT_DATA__POSITIONS] =
            "position t of a row has number t here, and attention runs over the whole "
            "row: write one sequence to a row",
    };

    return WEFT_FAIL(WEFT_ERR_ARG, "%s: row %lld: %s is %d at position %lld, not %d: %s",
                     weft_store_path(d->rows), (long long)row, extra_name[kind], is,
                     (long long)at, want, why[kind]);
}

weft_status weft_data__rows_check(const weft_data *d, int64_t row, const int32_t *labels)
{
    int32_t v[CHUNK];
    bool    padding = false;

    if (d->o.labels == WEFT_DATA_LABELS_STORED) return WEFT_OK;
    for (int k = 0; k < WEFT_DATA__N_EXTRA; k++) {
        weft_data__extra kind = (weft_data__extra)k;

        if (!d->extra[k] || kind == WEFT_DATA__DECODER) continue;
        for (int64_t at = 0; at < d->seq; at += CHUNK) {
            int64_t n = d->seq - at < CHUNK ? d->seq - at : CHUNK;

            WEFT_TRY(weft_data__read_elements(d, d->extra[k], row * d->seq + at, n, v));
            if (kind == WEFT_DATA__MASK)
                WEFT_TRY(check_mask(d, row, at, n, v, labels, &padding));
            for (int64_t i = 0; i < n && kind != WEFT_DATA__MASK; i++) {
                int32_t want = kind == WEFT_DATA__TYPES ? 0 : (int32_t)(at + i);

                if (v[i] != want) return refuse_value(d, kind, row, at + i, v[i], want);
            }
        }
    }
    return WEFT_OK;
}

weft_status weft_data__rows_compare_decoder(const weft_data *d, int64_t row,
                                            const int32_t *labels, bool *differs)
{
    const weft_store_tensor *t = d->extra[WEFT_DATA__DECODER];
    int32_t                  v[CHUNK];

    for (int64_t at = 0; t && d->o.decoder && at < d->seq && !*differs; at += CHUNK) {
        int64_t n = d->seq - at < CHUNK ? d->seq - at : CHUNK;

        WEFT_TRY(weft_data__read_elements(d, t, row * d->seq + at, n, v));
        for (int64_t i = 0; i < n; i++) {
            int32_t before = at + i ? labels[at + i - 1] : d->o.decoder_start;

            *differs = *differs || v[i] != (before >= 0 ? before : d->o.decoder_pad);
        }
    }
    return WEFT_OK;
}
