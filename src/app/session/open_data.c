/* The job's data, opened for its model.  In: paths and keys of the job.  Out: open data that the
 * model can be trained on, or one line that says why not. */
#include <string.h>

#include "base/doc.h"
#include "session/session_priv.h"

static weft_data_options base_options(const weft_job *j)
{
    return (weft_data_options){
        .seq = j->seq, .format = strcmp(j->data_format, "auto") ? j->data_format : NULL};
}

/* Rows of a safetensors file say how long a sequence is where the job does not. */
weft_status weft_session__find_seq(weft_job *j)
{
    weft_data        *d = NULL;
    weft_data_options o = base_options(j);
    if (j->seq) return WEFT_OK;
    WEFT_TRY(weft_data_open(j->data, &o, &d));
    j->seq = weft_data_seq(d);
    weft_data_close(d);
    return WEFT_OK;
}

weft_status weft_session__content_id(const weft_job *j, const char *path, uint64_t *out)
{
    weft_data        *d = NULL;
    weft_data_options o = base_options(j);
    WEFT_TRY(weft_data_open(path, &o, &d));
    *out = weft_data_content_id(d);
    weft_data_close(d);
    return WEFT_OK;
}

static bool is_causal(const weft_model *m)
{
    return m->kind == WEFT_MODEL_LM && m->causal;
}

/* What a checkpoint says of labels_shifted; one written before the key was there took labels as
 * next tokens. */
static bool has_key(const weft_session *s)
{
    weft_doc *d    = NULL;
    bool      have = false;
    if (!s->checkpoint.extra ||
        weft_doc_parse_json("state.json", s->checkpoint.extra,
                            strlen(s->checkpoint.extra), &d) != WEFT_OK)
        return false;
    const weft_node *job = weft_node_get(weft_doc_root(d), "job");
    if (job && job->kind == WEFT_NODE_MAP)
        have = weft_node_get(job, "labels_shifted") != NULL;
    weft_doc_destroy(d);
    return have;
}

static weft_status check_labels(const weft_session *s, const char *path,
                                const weft_data *d)
{
    bool training = path == s->job.data;
    /* a checkpoint that was written with it goes on: it made no difference */
    if (!weft_data_is_rows(d) && training && s->job.labels_shifted && !s->resume)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "labels_shifted: true is for the labels of a .safetensors file; "
                         "%s is a stream of tokens, which has none: leave it out",
                         path);
    if (!weft_data_is_rows(d)) return WEFT_OK;
    if (training && !weft_data_has_labels(d))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: no label in it counts (all that a position learns are %d): "
                         "nothing would be learned",
                         path, WEFT_DATA_IGNORE);
    if (s->job.labels_shifted && !is_causal(s->now->made.model))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "labels_shifted: true is for causal models; the labels of %s are "
            "for %s, which learns labels[t] at position t: leave it out",
            path, s->job.model);
    if (s->resume && !s->job.labels_shifted && is_causal(s->now->made.model) &&
        !has_key(s))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s was written by a weft that took the labels of %s as next "
                         "tokens: set labels_shifted: true to continue like that, or "
                         "--fresh to start anew with labels aligned with input_ids",
                         weft_ckpt_path(s->resume), path);
    return WEFT_OK;
}

static weft_status open_data(const weft_session *s, const char *path, bool shuffle,
                             weft_data **out)
{
    const weft_model *m     = s->now->made.model;
    weft_data_options o     = base_options(&s->job);
    bool              bytes = !strcmp(s->job.tokenizer, "bytes");
    weft_data        *d     = NULL;
    o.vocab                 = m->info.vocab;
    o.shuffle               = shuffle;
    o.seed                  = (uint64_t)s->job.seed;
    o.model                 = s->job.model;
    o.no_text               = !bytes && !weft_model_is_of_bytes(m);
    o.has_tokenizer         = weft_model_has_tokenizer(m);
    o.decoder               = m->kind == WEFT_MODEL_ENCDEC;
    o.decoder_start         = m->decoder_start;
    o.decoder_pad           = m->decoder_pad;
    if (!is_causal(m))
        o.labels = WEFT_DATA_LABELS_SAME;
    else
        o.labels = s->job.labels_shifted ? WEFT_DATA_LABELS_NEXT : WEFT_DATA_LABELS_SHIFT;
    if (m->kind == WEFT_MODEL_ENCDEC)
        o.rows_only = "is an encoder-decoder";
    else if (!m->causal)
        o.rows_only = "has no causal mask";
    WEFT_TRY(weft_data_open(path, &o, &d));
    weft_status st = check_labels(s, path, d);
    if (st == WEFT_OK)
        *out = d;
    else
        weft_data_close(d);
    return st;
}

weft_status weft_session__open_data(weft_session *s, const char *path, bool shuffle,
                                    weft_data **out)
{
    return weft_session__outcome(s, *out ? WEFT_OK : open_data(s, path, shuffle, out));
}

void weft_session__say_data(weft_session *s, const char *path, const weft_data *d)
{
    weft_text t = {0};
    weft_data_describe(d, &t);
    if (t.s) weft_say_info(&s->say, "data %s: %s", path, t.s);
    t.n = 0;
    weft_data_warn(d, &t);
    for (char *line = t.n ? t.s : NULL, *end; line && (end = strchr(line, '\n'));
         line       = end + 1) {
        *end = 0;
        weft_say_warn(&s->say, "data %s: %s", path, line);
    }
    weft_text_fini(&t);
}
