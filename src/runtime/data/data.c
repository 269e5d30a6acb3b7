/* Samples by number.  In: a path and what a sample is.  Out: ids and labels.
 * (1) A sample is a function of (file, seq, seed, number): no state moves.
 * (2) Nothing leaves fill that is not below the vocabulary (or an ignored label). */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/data_priv.h"
#include "store/safetensors.h"

#define SCAN_BYTES (64 << 20) /* up to here all tokens are checked at once, at open */
#define CHUNK      4096       /* elements read at a time */
#define N_HASHED   1024       /* tokens at each end that the id of the data is made of */
#define ALL_HASHED (1 << 24)  /* up to here a content id is of all tokens ... */
#define N_PLACE    256        /* ... above it of so many places, CHUNK tokens each */

const weft_data__stream *weft_data__stream_of(const weft_data *d)
{
    return d->rows ? NULL : &d->stream;
}

weft_dtype weft_data__rows_dtype(const weft_data *d)
{
    return d->ids->dtype;
}

static weft_status find_rows(const char *path, const weft_store_file *f, const char *name,
                             const weft_store_tensor **out)
{
    const weft_store_tensor *t = weft_store_find(f, name);

    if (!t)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: no tensor '%s' (needs input_ids and labels)",
                         path, name);
    if ((t->dtype != WEFT_DTYPE_I32 && t->dtype != WEFT_DTYPE_I64) || t->shape.n != 2)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: '%s' is %s with %d dimensions, not i32 or i64 (n, seq)",
                         path, name, weft_dtype_name(t->dtype), t->shape.n);
    *out = t;
    return WEFT_OK;
}

static weft_status open_rows(const char *path, weft_data *d)
{
    size_t n_json;

    WEFT_TRY(weft_store_open(path, &d->rows));
    WEFT_TRY(weft_io_file_open(weft_store_path(d->rows), true, &d->file));
    (void)weft_store_header(d->rows, &n_json);
    d->n_head = 8 + (int64_t)n_json;
    WEFT_TRY(find_rows(path, d->rows, "input_ids", &d->ids));
    WEFT_TRY(find_rows(path, d->rows, "labels", &d->labels));
    if (!weft_shape_equal(&d->ids->shape, &d->labels->shape))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: input_ids and labels have different shapes",
                         path);
    d->n_sample = d->ids->shape.d[0];
    if (d->seq == 0) d->seq = d->ids->shape.d[1];
    if (d->seq != d->ids->shape.d[1] || d->seq == 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: its rows have %lld tokens, the job's seq is %lld", path,
                         (long long)d->ids->shape.d[1], (long long)d->seq);
    if (d->n_sample == 0) return WEFT_FAIL(WEFT_ERR_ARG, "%s: no rows in it", path);
    return weft_data__rows_find(path, d);
}

/* Can the model take this stream? */
static weft_status check_model(const char *path, const weft_data *d)
{
    char n[WEFT_TEXT_COUNT];

    if (d->o.rows_only)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a stream of tokens, and %s %s: it needs rows with "
                         "labels, a .safetensors file "
                         "with input_ids and labels (docs/data.md)",
                         path, d->o.model, d->o.rows_only);
    if (d->format == WEFT_DATA__TEXT && d->o.no_text)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is text: %s%s %s tokens; weft reads text as bytes: tokenize it first "
            "(four lines of Python: docs/data.md), or set tokenizer: bytes",
            path, d->o.model,
            d->o.has_tokenizer ? " has a tokenizer of" : "'s vocabulary has",
            weft_text_count(d->o.vocab, n));
    return WEFT_OK;
}

static weft_status open_stream(const char *path, bool forced, weft_data *d)
{
    if (d->seq < 1) return WEFT_FAIL(WEFT_ERR_ARG, "%s: seq must be at least 1", path);
    WEFT_TRY(weft_data__stream_open(path, d->format, forced, &d->stream));
    WEFT_TRY(check_model(path, d));
    d->n_sample = d->stream.n_token > 0 ? (d->stream.n_token - 1) / d->seq : 0;
    if (d->n_sample < 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: %lld tokens are too few for one sample of seq + 1 = %lld; take a "
            "shorter seq",
            path, (long long)d->stream.n_token, (long long)d->seq + 1);
    return WEFT_OK;
}

/* Is v an id (or, as a label, to be ignored)? */
static bool is_good(const weft_data *d, int32_t v, bool label)
{
    if (label && v == WEFT_DATA_IGNORE) return true;
    return v >= 0 && (d->o.vocab == 0 || v < d->o.vocab);
}

static weft_status say_bad(const weft_data *d, const char *what, const char *path,
                           int64_t pos, int64_t v)
{
    if (d->o.vocab == 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s %lld is %lld, which is no token id", path,
                         what, (long long)pos, (long long)v);
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s: %s %lld is %lld, but the vocabulary has %lld ids (0..%lld): the data were "
        "made for another model",
        path, what, (long long)pos, (long long)v, (long long)d->o.vocab,
        (long long)d->o.vocab - 1);
}

static weft_status check_stream(const weft_data *d, int64_t at, int64_t n,
                                const int32_t *v)
{
    const char *path;
    int64_t     pos, id;
    uint32_t    most = 0;
    uint32_t    end  = d->o.vocab ? (uint32_t)d->o.vocab : (uint32_t)INT32_MAX + 1;

    for (int64_t i = 0; i < n; i++) most = (uint32_t)v[i] > most ? (uint32_t)v[i] : most;
    if (most < end) return WEFT_OK;
    for (int64_t i = 0; i < n; i++)
        if (!is_good(d, v[i], false)) {
            WEFT_TRY(weft_data__stream_token(&d->stream, at + i, &path, &pos, &id));
            return say_bad(d, "token", path, pos, id);
        }
    return WEFT_OK;
}

static weft_status check_rows(const weft_data *d, const weft_store_tensor *t, int64_t row,
                              const int32_t *v)
{
    bool    label = t == d->labels;
    int64_t w     = weft_dtype_bytes(t->dtype);
    uint8_t buf[8];

    for (int64_t i = 0; i < d->seq; i++)
        if (!is_good(d, v[i], label)) {
            int64_t at = row * d->seq + i;

            WEFT_TRY(weft_io_file_read(&d->file, d->n_head + t->begin + at * w, buf,
                                       (size_t)w));
            return say_bad(d, label ? "element of labels" : "element of input_ids",
                           weft_store_path(d->rows), at,
                           weft_data__integer(t->dtype, buf));
        }
    return WEFT_OK;
}

static weft_status read_row(const weft_data *d, const weft_store_tensor *t, int64_t row,
                            int32_t *out)
{
    WEFT_TRY(weft_data__read_elements(d, t, row * d->seq, d->seq, out));
    return check_rows(d, t, row, out);
}

void weft_data_locate(const weft_data *d, int64_t g, int64_t *epoch, int64_t *index)
{
    *epoch = g / d->n_sample;
    *index = g % d->n_sample;
    if (d->o.shuffle) *index = weft_data_permute(d->o.seed, *epoch, d->n_sample, *index);
}

static weft_status fill_rows(const weft_data *d, int64_t row, int32_t *ids,
                             int32_t *labels)
{
    WEFT_TRY(read_row(d, d->ids, row, ids));
    if (!labels) return WEFT_OK;
    WEFT_TRY(read_row(d, d->labels, row, labels));
    WEFT_TRY(weft_data__rows_check(d, row, labels));
    if (d->o.labels == WEFT_DATA_LABELS_SHIFT) {
        memmove(labels, labels + 1, (size_t)(d->seq - 1) * sizeof labels[0]);
        labels[d->seq - 1] = WEFT_DATA_IGNORE;
    }
    return WEFT_OK;
}

static weft_status fill_stream(const weft_data *d, int64_t index, int32_t *ids,
                               int32_t *labels)
{
    int64_t at = index * d->seq;

    WEFT_TRY(weft_data__stream_read(&d->stream, at, d->seq, ids));
    WEFT_TRY(check_stream(d, at, d->seq, ids));
    if (!labels) return WEFT_OK;
    memcpy(labels, ids + 1, (size_t)(d->seq - 1) * sizeof labels[0]);
    WEFT_TRY(weft_data__stream_read(&d->stream, at + d->seq, 1, labels + d->seq - 1));
    return check_stream(d, at + d->seq, 1, labels + d->seq - 1);
}

weft_status weft_data_fill(const weft_data *d, int64_t first, int64_t n, int32_t *ids,
                           int32_t *labels)
{
    if (first < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "sample %lld asked for", (long long)first);
    for (int64_t i = 0; i < n; i++) {
        int32_t *to = labels ? labels + i * d->seq : NULL;
        int64_t  epoch, index;

        weft_data_locate(d, first + i, &epoch, &index);
        WEFT_TRY(d->rows ? fill_rows(d, index, ids + i * d->seq, to)
                         : fill_stream(d, index, ids + i * d->seq, to));
    }
    return WEFT_OK;
}

weft_status weft_data_count_labels(const weft_data *d, int64_t first, int64_t n,
                                   int64_t *out)
{
    int32_t v[CHUNK];
    /* labels[0] teaches nothing */
    int64_t skip  = d->o.labels == WEFT_DATA_LABELS_SHIFT ? 1 : 0;
    int64_t count = 0;

    for (int64_t i = 0; i < n && d->rows; i++) {
        int64_t epoch, index;

        weft_data_locate(d, first + i, &epoch, &index);
        for (int64_t at = skip, k; at < d->seq; at += k) {
            k = d->seq - at < CHUNK ? d->seq - at : CHUNK;
            WEFT_TRY(weft_data__read_elements(d, d->labels, index * d->seq + at, k, v));
            for (int64_t j = 0; j < k; j++) count += v[j] != WEFT_DATA_IGNORE;
        }
    }
    *out = d->rows ? count : n * d->seq;
    return WEFT_OK;
}

/* Where all of it is cheap to look at, a bad id is known before the first step. */
static weft_status scan_stream(weft_data *d)
{
    int32_t v[CHUNK];

    if (!d->rows && d->stream.n_token * weft_dtype_bytes(d->stream.dtype) <= SCAN_BYTES)
        for (int64_t at = 0; at < d->stream.n_token; at += CHUNK) {
            int64_t n = d->stream.n_token - at < CHUNK ? d->stream.n_token - at : CHUNK;

            WEFT_TRY(weft_data__stream_read(&d->stream, at, n, v));
            WEFT_TRY(check_stream(d, at, n, v));
            for (int64_t i = 0; i < n; i++)
                d->max_id = v[i] > d->max_id ? v[i] : d->max_id;
        }
    return WEFT_OK;
}

static weft_status scan_rows(weft_data *d)
{
    int32_t    *v  = NULL;
    weft_status st = WEFT_OK;

    if (!d->rows || d->ids->bytes > SCAN_BYTES) return WEFT_OK;
    v = malloc(sizeof *v * (size_t)d->seq * 2);
    if (!v)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a row of %lld", (long long)d->seq);
    d->n_label = 0;
    for (int64_t i = 0; i < d->n_sample; i++) {
        WEFT_GO(fill_rows(d, i, v, v + d->seq));
        WEFT_GO(weft_data__rows_compare_decoder(d, i, v + d->seq, &d->decoder_differs));
        for (int64_t k = 0; k < d->seq; k++)
            d->n_label += v[d->seq + k] != WEFT_DATA_IGNORE;
    }
out:
    free(v);
    return st;
}

/* Elements at .. at + n - 1 of the tokens or, labels, of the labels. */
static weft_status read_some(const weft_data *d, bool labels, int64_t at, int64_t n,
                             int32_t *out)
{
    if (!d->rows) return weft_data__stream_read(&d->stream, at, n, out);
    return weft_data__read_elements(d, labels ? d->labels : d->ids, at, n, out);
}

/* Number of tokens, then the first and the last N_HASHED of them. */
static weft_status identify(const weft_data *d, uint64_t *out)
{
    int64_t         n       = weft_data_tokens(d);
    int64_t         k       = n < N_HASHED ? n : N_HASHED;
    int64_t         from[2] = {0, n - k};
    int32_t         v[N_HASHED];
    weft_hash_state h;

    weft_hash_init(&h, (uint64_t)n);
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(read_some(d, false, from[i], k, v));
        weft_hash_add(&h, v, (size_t)k * sizeof v[0]);
    }
    *out = weft_hash_value(&h);
    return WEFT_OK;
}

static weft_status identify_content(const weft_data *d, uint64_t *out)
{
    int64_t         n       = weft_data_tokens(d);
    bool            all     = n <= ALL_HASHED;
    int64_t         n_place = all ? (n + CHUNK - 1) / CHUNK : N_PLACE;
    int32_t         v[CHUNK];
    weft_hash_state h;

    weft_hash_init(&h, (uint64_t)n);
    for (int labels = 0; labels < (d->rows ? 2 : 1); labels++)
        for (int64_t i = 0; i < n_place; i++) {
            int64_t at = all ? i * CHUNK : (n - CHUNK) / (N_PLACE - 1) * i;
            int64_t k  = n - at < CHUNK ? n - at : CHUNK;

            if (!all && i == n_place - 1) at = n - CHUNK;
            WEFT_TRY(read_some(d, labels != 0, at, k, v));
            weft_hash_add(&h, v, (size_t)k * sizeof v[0]);
        }
    *out = weft_hash_value(&h);
    return WEFT_OK;
}

weft_status weft_data_open(const char *path, const weft_data_options *o, weft_data **out)
{
    weft_data  *d  = calloc(1, sizeof *d);
    weft_status st = WEFT_OK;

    if (!d) return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to open it", path);
    d->o      = *o;
    d->seq    = o->seq;
    d->max_id = d->n_label = -1;
    WEFT_GO(weft_data__format_of(path, o->format, &d->format));
    d->o.format = weft_data__format_name(d->format);
    if (o->seq < 0 || o->seq > INT32_MAX || o->vocab < 0 || o->vocab > INT32_MAX)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: seq %lld or vocabulary %lld is impossible",
                          path, (long long)o->seq, (long long)o->vocab));
    WEFT_GO(d->format == WEFT_DATA__SAFETENSORS
                ? open_rows(path, d)
                : open_stream(path, o->format != NULL, d));
    WEFT_GO(scan_stream(d));
    WEFT_GO(scan_rows(d));
    WEFT_GO(identify(d, &d->id));
    WEFT_GO(identify_content(d, &d->content_id));
    *out = d;
out:
    if (st != WEFT_OK) weft_data_close(d);
    return st;
}

void weft_data_close(weft_data *d)
{
    if (!d) return;
    weft_data__stream_fini(&d->stream);
    weft_io_file_close(&d->file);
    weft_store_close(d->rows);
    free(d);
}

int64_t weft_data_samples(const weft_data *d)
{
    return d->n_sample;
}

int64_t weft_data_tokens(const weft_data *d)
{
    return d->rows ? d->n_sample * d->seq : d->stream.n_token;
}

int64_t weft_data_seq(const weft_data *d)
{
    return d->seq;
}

const char *weft_data_format(const weft_data *d)
{
    return d->o.format;
}

uint64_t weft_data_id(const weft_data *d)
{
    return d->id;
}

uint64_t weft_data_content_id(const weft_data *d)
{
    return d->content_id;
}

bool weft_data_has_labels(const weft_data *d)
{
    return d->n_label != 0;
}

bool weft_data_is_rows(const weft_data *d)
{
    return d->rows != NULL;
}

/* What a file of rows holds that nothing is done with. */
static void describe_unused(const weft_data *d, weft_text *t)
{
    int n = 0;

    for (int i = 0; i < weft_store_count(d->rows); i++) {
        const weft_store_tensor *x = weft_store_at(d->rows, i);

        if (x == d->ids || x == d->labels || weft_data__rows_knows(d, x)) continue;
        weft_text_add(t, "%s%s", n++ ? ", " : "; not used: ", x->name);
    }
}

void weft_data_describe(const weft_data *d, weft_text *t)
{
    static const char *const taken[] = {
        [WEFT_DATA_LABELS_STORED] = "as they stand",
        [WEFT_DATA_LABELS_SAME]   = "of the same position",
        [WEFT_DATA_LABELS_SHIFT] =
            "shifted here, as Hugging Face does: position t learns labels[t + 1]",
        [WEFT_DATA_LABELS_NEXT] = "are next tokens already (labels_shifted: true)",
    };
    char n[WEFT_TEXT_COUNT];

    weft_text_add(t, "%s, tokens as %s, %s tokens", d->o.format,
                  d->rows                        ? weft_dtype_name(d->ids->dtype)
                  : d->format == WEFT_DATA__TEXT ? "bytes"
                                                 : weft_dtype_name(d->stream.dtype),
                  weft_text_count(weft_data_tokens(d), n));
    if (d->rows) {
        weft_text_add(t, "; labels %s", taken[d->o.labels]);
        describe_unused(d, t);
    } else if (d->stream.note) {
        weft_text_add(t, "; %s", d->stream.note);
    }
}

enum {
    MIN_BYTES = 1024 /* so many tokens, all of them below 256, are perhaps bytes */
};

void weft_data_warn(const weft_data *d, weft_text *t)
{
    char n[WEFT_TEXT_COUNT];

    if (d->rows) {
        weft_text unused = {0};

        describe_unused(d, &unused);
        if (unused.n) weft_text_add(t, "%s\n", unused.s + strlen("; "));
        if (d->decoder_differs)
            weft_text_add(t,
                          "decoder_input_ids are not used, and differ from what the "
                          "decoder sees: the labels, one to the right (docs/data.md)\n");
        weft_text_fini(&unused);
        return;
    }
    if (d->format == WEFT_DATA__TEXT) return;
    if (d->stream.dtype == WEFT_DTYPE_U16 && d->o.vocab > UINT16_MAX + 1)
        weft_text_add(
            t,
            "its tokens are u16, which holds ids below 65,536, and the vocabulary "
            "of %s has %s: were larger ids truncated? (docs/data.md)\n",
            d->o.model ? d->o.model : "the model", weft_text_count(d->o.vocab, n));
    if (d->o.no_text && d->o.vocab > 256 && d->max_id >= 0 && d->max_id < 256 &&
        d->stream.n_token >= MIN_BYTES)
        weft_text_add(
            t,
            "all its ids are below 256, as those of text read as bytes, and the "
            "vocabulary of %s has %s: is it tokenized for this model? "
            "(docs/data.md)\n",
            d->o.model ? d->o.model : "the model", weft_text_count(d->o.vocab, n));
}
