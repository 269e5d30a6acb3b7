#include "session/agree_priv.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_COUNT = 1 << 30 /* of lines, and of calls in one line */
};

static weft_status refuse_rank(const weft_agree *a, int rank, const char *what)
{
    char line[200];
    snprintf(line, sizeof line,
             "rank %d failed: where ranks compare what they run, it sent %s",
             weft_comm_name(a->comm, rank), what);
    weft_comm_abort(a->comm, line);
    return WEFT_FAIL(WEFT_ERR_PEER, "%s", line);
}

static bool has_end(const char *text, size_t n)
{
    return memchr(text, 0, n) != NULL;
}

weft_status weft_agree__read_counts(const weft_agree *a, const int64_t *n, int64_t limit,
                                    const char *what, int64_t *most)
{
    char text[100];
    *most = 0;
    for (int r = 0; r < a->comm->world; r++) {
        if (n[r] < 0 || n[r] > limit) {
            snprintf(text, sizeof text, "%lld as its number of %s", (long long)n[r],
                     what);
            return refuse_rank(a, r, text);
        }
        if (n[r] > *most) *most = n[r];
    }
    return WEFT_OK;
}

weft_status weft_agree__read_digests(const weft_agree *a, const agree_digest *d)
{
    for (int r = 0; r < a->comm->world; r++)
        if (d[r].n < 0 || d[r].n > MOST_COUNT)
            return refuse_rank(a, r, "a number of lines out of range");
    return WEFT_OK;
}

weft_status weft_agree__read_entries(const weft_agree *a, const agree_entry *e)
{
    for (int r = 0; r < a->comm->world; r++)
        if (!has_end(e[r].text, sizeof e[r].text))
            return refuse_rank(a, r, "a text without an end");
    return WEFT_OK;
}

weft_status weft_agree__read_rows(const weft_agree *a, const int64_t *n, int64_t most,
                                  agree_row *row, int64_t *n_row)
{
    *n_row = 0;
    for (int r = 0; r < a->comm->world; r++)
        for (int64_t k = 0; k < n[r]; k++) {
            const agree_row *x = &row[r * most + k];
            if (x->rank != r || x->line != k)
                return refuse_rank(a, r, "calls in the name of another rank");
            if (x->n_call < 0 || x->n_call > MOST_COUNT || x->first < -1)
                return refuse_rank(a, r, "a number of calls out of range");
            if (x->n_call) row[(*n_row)++] = *x;
        }
    return WEFT_OK;
}

weft_status weft_agree__read_party(const weft_agree *a, int from, const agree_party *p)
{
    if (!has_end(p->who, sizeof p->who))
        return refuse_rank(a, from, "a text without an end");
    if (p->lacks < -1 || p->lacks >= a->comm->world)
        return refuse_rank(a, from, "the number of a rank that there is not");
    return WEFT_OK;
}

weft_status weft_agree__read_verdict(const weft_agree *a, const agree_verdict *v)
{
    if (v->st < WEFT_OK || v->st > WEFT_ERR_INTERNAL)
        return refuse_rank(a, 0, "a status that there is not");
    if (!has_end(v->text, sizeof v->text))
        return refuse_rank(a, 0, "a text without an end");
    return WEFT_OK;
}
