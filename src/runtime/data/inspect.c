/* What is in the data: counted, not guessed.  In: open data.  Out: a few numbers. */
#include <stdlib.h>
#include <string.h>

#include "data/data_priv.h"

#define CHUNK     4096
#define MAX_COUNT (1 << 24) /* ids below this are counted one by one */

typedef struct tally {
    int64_t min, max;
    int64_t count[]; /* MAX_COUNT */
} tally;

static void add(tally *y, const int32_t *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < y->min) y->min = v[i];
        if (v[i] > y->max) y->max = v[i];
        if (v[i] >= 0 && v[i] < MAX_COUNT) y->count[v[i]]++;
    }
}

/* Keeps top_id sorted by count, most first, lower ids before higher ones. */
static void rank(weft_data_info *x, int64_t id, int64_t count)
{
    int k = x->n_top;

    if (k == WEFT_DATA_TOP && x->top_count[k - 1] >= count) return;
    if (k < WEFT_DATA_TOP)
        x->n_top++;
    else
        k--;
    for (; k > 0 && x->top_count[k - 1] < count; k--) {
        x->top_id[k]    = x->top_id[k - 1];
        x->top_count[k] = x->top_count[k - 1];
    }
    x->top_id[k]    = id;
    x->top_count[k] = count;
}

static weft_status add_rows(const weft_data *d, tally *y)
{
    int64_t     seq = weft_data_seq(d);
    int32_t    *v   = malloc(sizeof *v * (size_t)seq);
    weft_status st  = WEFT_OK;

    if (!v) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a row of %lld", (long long)seq);
    for (int64_t i = 0; i < weft_data_samples(d); i++) {
        WEFT_GO(weft_data_fill(d, i, 1, v, NULL));
        add(y, v, seq);
    }
out:
    free(v);
    return st;
}

static weft_status add_stream(const weft_data__stream *s, tally *y)
{
    int32_t v[CHUNK];

    for (int64_t at = 0; at < s->n_token; at += CHUNK) {
        int64_t n = s->n_token - at < CHUNK ? s->n_token - at : CHUNK;

        WEFT_TRY(weft_data__stream_read(s, at, n, v));
        add(y, v, n);
    }
    return WEFT_OK;
}

weft_status weft_data_inspect(const weft_data *d, weft_data_info *out)
{
    const weft_data__stream *s  = weft_data__stream_of(d);
    tally                   *y  = calloc(1, sizeof *y + sizeof y->count[0] * MAX_COUNT);
    weft_data_info           x  = {.format = weft_data_format(d), .n_file = 1};
    weft_status              st = WEFT_OK;

    if (!y) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to count ids");
    y->min = INT64_MAX;
    y->max = INT64_MIN;
    WEFT_GO(s ? add_stream(s, y) : add_rows(d, y));
    WEFT_GO(weft_data_count_labels(d, 0, weft_data_samples(d), &x.n_label));
    x.note     = s ? s->note : NULL;
    x.dtype    = s ? s->dtype : weft_data__rows_dtype(d);
    x.n_file   = s ? s->n_file : 1;
    x.n_token  = weft_data_tokens(d);
    x.n_sample = weft_data_samples(d);
    x.seq      = weft_data_seq(d);
    x.min_id   = y->min;
    x.max_id   = y->max;
    for (int64_t i = 0; i < MAX_COUNT && i <= y->max; i++)
        if (y->count[i]) {
            x.n_distinct++;
            rank(&x, i, y->count[i]);
        }
    if (y->max >= MAX_COUNT) x.n_distinct = -1;
    *out = x;
out:
    free(y);
    return st;
}

void weft_data_info_print(const weft_data_info *x, weft_text *t)
{
    weft_text_add(t, "format    %s, tokens as %s, %lld file%s\n", x->format,
                  weft_dtype_name(x->dtype), (long long)x->n_file,
                  x->n_file == 1 ? "" : "s");
    if (x->note) weft_text_add(t, "note      %s\n", x->note);
    weft_text_add(t, "tokens    %lld\n", (long long)x->n_token);
    weft_text_add(t, "samples   %lld of %lld tokens an epoch, %lld labels that count\n",
                  (long long)x->n_sample, (long long)x->seq, (long long)x->n_label);
    weft_text_add(t, "ids       %lld to %lld", (long long)x->min_id,
                  (long long)x->max_id);
    if (x->n_distinct >= 0)
        weft_text_add(t, ", %lld different", (long long)x->n_distinct);
    weft_text_add(t, "\ncommonest");
    for (int i = 0; i < x->n_top; i++)
        weft_text_add(t, " %lld (%.1f %%)", (long long)x->top_id[i],
                      100.0 * (double)x->top_count[i] / (double)x->n_token);
    weft_text_add(t, "\n");
}

void weft_data_info_print_json(const weft_data_info *x, weft_text *t)
{
    weft_text_add(
        t,
        "{\"format\":\"%s\",\"dtype\":\"%s\",\"files\":%lld,\"tokens\":%lld,"
        "\"seq\":%lld,\"samples\":%lld,\"labels\":%lld,\"min_id\":%lld,\"max_id\":%lld,"
        "\"distinct\":%lld,\"top\":[",
        x->format, weft_dtype_name(x->dtype), (long long)x->n_file, (long long)x->n_token,
        (long long)x->seq, (long long)x->n_sample, (long long)x->n_label,
        (long long)x->min_id, (long long)x->max_id, (long long)x->n_distinct);
    for (int i = 0; i < x->n_top; i++)
        weft_text_add(t, "%s[%lld,%lld]", i ? "," : "", (long long)x->top_id[i],
                      (long long)x->top_count[i]);
    weft_text_add(t, "]");
    if (x->note) {
        weft_text_add(t, ",\"note\":");
        weft_text_put_quoted(t, x->note);
    }
    weft_text_add(t, "}");
}
