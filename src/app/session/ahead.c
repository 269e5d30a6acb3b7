#include "session/ahead.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- views ---- */

static bool is_same(int n, const int *a, int m, const int *b)
{
    return n == m && !memcmp(a, b, sizeof *a * (size_t)n);
}

bool weft_ahead_add_view(weft_ahead_request *q, int n_host, const int *count)
{
    if (q->n_view == WEFT_AHEAD_MAX_VIEW || n_host < 1 || n_host > WEFT_AHEAD_MAX_HOST)
        return false;
    for (int k = 0; k < q->n_view; k++)
        if (is_same(q->view[k].n_host, q->view[k].count, n_host, count)) return false;
    int *copy = malloc(sizeof *copy * (size_t)n_host);
    if (!copy) return false;
    memcpy(copy, count, sizeof *copy * (size_t)n_host);
    q->view[q->n_view++] = (weft_ahead_view){n_host, copy};
    return true;
}

/* Host i with another number of ranks; 0: without it. */
static void add_changed(weft_ahead_request *q, int n_host, const int *count, int i,
                        int ranks)
{
    int x[WEFT_AHEAD_MAX_HOST + 1], n = 0;
    for (int k = 0; k <= n_host; k++) {
        int c = k == i ? ranks : k < n_host ? count[k] : 0;
        if (c > 0) x[n++] = c;
    }
    (void)weft_ahead_add_view(q, n, x);
}

void weft_ahead_add_likely(weft_ahead_request *q, int n_host, const int *count,
                           int most_rank, int most_local, bool one_host)
{
    int sum = 0;
    if (n_host < 1 || n_host > WEFT_AHEAD_MAX_HOST) return;
    for (int k = 0; k < n_host; k++) sum += count[k];
    if (one_host) {
        if (sum > 1) add_changed(q, n_host, count, 0, sum - 1);
        if (sum < most_rank) add_changed(q, n_host, count, 0, sum + 1);
        return;
    }
    /* equal hosts give the same view, which is added once */
    for (int k = n_host - 1; n_host > 1 && k >= 0; k--)
        add_changed(q, n_host, count, k, 0);
    if (sum + most_local <= most_rank) add_changed(q, n_host, count, n_host, most_local);
    for (int k = n_host - 1; k >= 0 && q->n_view < WEFT_AHEAD_MAX_VIEW; k--)
        if (count[k] > 1) add_changed(q, n_host, count, k, count[k] - 1);
}

/* ---- reading ---- */

/* Words and pieces of a text, from its beginning on. */
typedef struct text_reader {
    const char *text;
    size_t      n, at;
} text_reader;

/* The next word; false: there is none that fits. */
static bool read_word(text_reader *r, char *word, size_t size)
{
    size_t n = 0;
    while (r->at < r->n && (r->text[r->at] == ' ' || r->text[r->at] == '\n')) r->at++;
    while (r->at < r->n && r->text[r->at] != ' ' && r->text[r->at] != '\n' &&
           n + 1 < size)
        word[n++] = r->text[r->at++];
    word[n] = 0;
    return n > 0 && r->at < r->n; /* something follows every word */
}

static bool read_name(text_reader *r, const char *name)
{
    char word[16];
    return read_word(r, word, sizeof word) && !strcmp(word, name);
}

static bool read_int(text_reader *r, int64_t least, int64_t most, int64_t *out)
{
    char word[24], *end;
    if (!read_word(r, word, sizeof word)) return false;
    long long x = strtoll(word, &end, 10);
    *out        = x;
    return end != word && !*end && x >= least && x <= most;
}

static bool read_number(text_reader *r, double *out)
{
    char word[40];
    return read_word(r, word, sizeof word) && weft_text_read_double(word, out) &&
           *out >= 0;
}

/* So many bytes behind the end of the line. */
static bool read_bytes(text_reader *r, int64_t n, const char **out)
{
    if (r->at >= r->n || r->text[r->at] != '\n' || (uint64_t)n > r->n - r->at - 1)
        return false;
    *out = r->text + r->at + 1;
    r->at += 1 + (size_t)n;
    return true;
}

static bool read_counts(text_reader *r, int *n_host, int *count)
{
    int64_t n, x;
    if (!read_int(r, 1, WEFT_AHEAD_MAX_HOST, &n)) return false;
    for (int k = 0; k < (int)n; k++) {
        if (!read_int(r, 1, 1 << 16, &x)) return false;
        count[k] = (int)x;
    }
    *n_host = (int)n;
    return true;
}

static void put_counts(weft_text *t, int n_host, const int *count)
{
    weft_text_add(t, "%d", n_host);
    for (int k = 0; k < n_host; k++) weft_text_add(t, " %d", count[k]);
}

/* ---- requests ---- */

void weft_ahead_print_request(const weft_ahead_request *q, weft_text *t)
{
    weft_text_add(t, "ahead 2 %d %d %d ", q->n_core, q->min_host, q->min_rank);
    weft_text_put_double(t, q->horizon_s);
    weft_text_add(t, " ");
    weft_text_put_double(t, q->pause_s);
    weft_text_add(t, " %d\n", q->n_view);
    for (int k = 0; k < q->n_view; k++) {
        weft_text_add(t, "view ");
        put_counts(t, q->view[k].n_host, q->view[k].count);
        weft_text_add(t, "\n");
    }
    weft_text_add(t, "job %zu\n", q->job_bytes);
    weft_text_put(t, q->job, q->job_bytes);
    weft_text_add(t, "\nplan %zu\n", q->plan_bytes);
    weft_text_put(t, q->plan, q->plan_bytes);
    weft_text_add(t, "\n");
}

static bool read_piece(text_reader *r, const char *name, char **out, size_t *n)
{
    int64_t     bytes;
    const char *text;
    if (!read_name(r, name) || !read_int(r, 0, 1 << 30, &bytes) ||
        !read_bytes(r, bytes, &text))
        return false;
    *out = malloc((size_t)bytes + 1);
    if (!*out) return false;
    memcpy(*out, text, (size_t)bytes);
    (*out)[bytes] = 0;
    *n            = (size_t)bytes;
    return true;
}

static bool read_request(text_reader *r, weft_ahead_request *q)
{
    int64_t version, n_core, n_view, min_host, min_rank;
    int     count[WEFT_AHEAD_MAX_HOST], n_host;
    if (!read_name(r, "ahead") || !read_int(r, 2, 2, &version) ||
        !read_int(r, 0, 1 << 20, &n_core) ||
        !read_int(r, 0, WEFT_AHEAD_MAX_HOST, &min_host) ||
        !read_int(r, 0, 1 << 20, &min_rank) || !read_number(r, &q->horizon_s) ||
        !read_number(r, &q->pause_s) || !read_int(r, 0, WEFT_AHEAD_MAX_VIEW, &n_view))
        return false;
    q->n_core   = (int)n_core;
    q->min_host = (int)min_host;
    q->min_rank = (int)min_rank;
    for (int k = 0; k < (int)n_view; k++)
        if (!read_name(r, "view") || !read_counts(r, &n_host, count) ||
            !weft_ahead_add_view(q, n_host, count))
            return false;
    return read_piece(r, "job", &q->job, &q->job_bytes) &&
           read_piece(r, "plan", &q->plan, &q->plan_bytes);
}

weft_status weft_ahead_parse_request(const char *text, size_t n, weft_ahead_request *out)
{
    text_reader r = {text, n, 0};
    *out          = (weft_ahead_request){0};
    if (read_request(&r, out)) return WEFT_OK;
    weft_ahead_request_fini(out);
    return WEFT_FAIL(WEFT_ERR_ARG, "not a request for plans");
}

void weft_ahead_request_fini(weft_ahead_request *q)
{
    for (int k = 0; k < q->n_view; k++) free(q->view[k].count);
    free(q->job);
    free(q->plan);
    *q = (weft_ahead_request){0};
}

/* ---- answers ---- */

/* answer HOSTS COUNTS.. CHANGES STEP WAS BYTES HASH\nplan\n; the hash is of all before it and of
 * the plan. */
static uint64_t hash_answer(const char *head, size_t n, const char *plan, size_t bytes)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    weft_hash_add(&h, head, n);
    weft_hash_add(&h, plan, bytes);
    return weft_hash_value(&h);
}

void weft_ahead_print_answer(const weft_ahead_answer *a, weft_text *t)
{
    size_t at = t->n;
    weft_text_add(t, "answer ");
    put_counts(t, a->n_host, a->count);
    weft_text_add(t, " %d ", a->changes);
    weft_text_put_double(t, a->step_s);
    weft_text_add(t, " ");
    weft_text_put_double(t, a->was_step_s);
    weft_text_add(t, " ");
    weft_text_put_double(t, a->move_s);
    weft_text_add(t, " ");
    weft_text_put_double(t, a->pages);
    weft_text_add(t, " %zu", a->plan_bytes);
    if (weft_text_status(t) != WEFT_OK) return;
    uint64_t hash = hash_answer(t->s + at, t->n - at, a->plan, a->plan_bytes);
    weft_text_add(t, " %016" PRIx64 "\n", hash);
    weft_text_put(t, a->plan, a->plan_bytes);
    weft_text_add(t, "\n");
}

static bool read_answer(text_reader *r, int *count, weft_ahead_answer *out)
{
    char    word[24];
    int64_t changes, bytes;
    while (r->at < r->n && r->text[r->at] == '\n') r->at++;
    size_t begin = r->at;
    *out         = (weft_ahead_answer){.count = count};
    if (!read_name(r, "answer") || !read_counts(r, &out->n_host, count) ||
        !read_int(r, 0, 1, &changes) || !read_number(r, &out->step_s) ||
        !read_number(r, &out->was_step_s) || !read_number(r, &out->move_s) ||
        !read_number(r, &out->pages) || !read_int(r, 0, 1 << 30, &bytes))
        return false;
    size_t head = r->at - begin;
    if (!read_word(r, word, sizeof word) || !read_bytes(r, bytes, &out->plan))
        return false;
    out->changes    = changes;
    out->plan_bytes = (size_t)bytes;
    return strtoull(word, NULL, 16) ==
           hash_answer(r->text + begin, head, out->plan, out->plan_bytes);
}

bool weft_ahead_find(const char *text, size_t n, int n_host, const int *count,
                     weft_ahead_answer *out)
{
    text_reader r = {text, n, 0};
    int         found[WEFT_AHEAD_MAX_HOST];
    while (read_answer(&r, found, out))
        if (is_same(out->n_host, found, n_host, count)) {
            out->count = count;
            return true;
        }
    return false;
}

bool weft_ahead_next(const char *text, size_t n, size_t *at, int *n_rank,
                     weft_ahead_answer *out)
{
    text_reader r = {text, n, *at};
    int         found[WEFT_AHEAD_MAX_HOST];
    if (!read_answer(&r, found, out)) return false;
    *n_rank = 0;
    for (int k = 0; k < out->n_host; k++) *n_rank += found[k];
    out->count = NULL;
    *at        = r.at;
    return true;
}
