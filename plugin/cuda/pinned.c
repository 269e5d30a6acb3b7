/* The table of pinned algorithms: read once, searched by every product's prepare. */
#include "pinned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pinned_row {
    weft_cuda_pinned_key key;
    weft_cuda_blas_algo  algo;
} pinned_row;

static pinned_row *row;
static int         n_row, cap_row;
static uint64_t    table_hash;

void (*weft_cuda_tuner)(const weft_cuda_trial *t, const weft_cuda_blas_offer *offer,
                        int n_offer, weft_cuda_blas_algo *out);

static bool read_row(const char *line, pinned_row *r)
{
    weft_cuda_pinned_key *k = &r->key;
    int                   n = 0;
    memset(r, 0, sizeof *r);
    if (sscanf(line,
               "%d %d %d %d %d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %d %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 "%n",
               &k->type[0], &k->type[1], &k->type[2], &k->trans[0], &k->trans[1], &k->m,
               &k->n, &k->k, &k->batch, &k->epilogue, &k->align[0], &k->align[1],
               &k->align[2], &k->align[3], &n) != 14)
        return false;
    for (int i = 0; i < 8; i++) {
        int used = 0;
        if (sscanf(line + n, " %" SCNx64 "%n", &r->algo.word[i], &used) != 1)
            return false;
        n += used;
    }
    return true;
}

static uint64_t hash_text(const char *s) /* FNV-1a */
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 1099511628211u;
    return h;
}

static weft_status add_row(const pinned_row *r)
{
    if (n_row == cap_row) {
        pinned_row *more = realloc(row, sizeof *row * (size_t)(cap_row + 64));
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for pinned algorithms");
        row = more;
        cap_row += 64;
    }
    row[n_row++] = *r;
    return WEFT_OK;
}

weft_status weft_cuda_pinned_add(const weft_cuda_pinned_key *key,
                                 const weft_cuda_blas_algo  *algo)
{
    return add_row(&(pinned_row){.key = *key, .algo = *algo});
}

weft_status weft_cuda_pinned_read(const char *text, const char *name)
{
    int line = 0;
    free(row);
    row   = NULL;
    n_row = cap_row = 0;
    table_hash      = 0;
    for (const char *s = text; s && *s; s += strcspn(s, "\n"), s += *s == '\n') {
        pinned_row r;
        line++;
        if (*s == '#' || *s == '\n') continue;
        if (!read_row(s, &r))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: not a pinned algorithm", name, line);
        WEFT_TRY(add_row(&r));
    }
    if (text) table_hash = hash_text(text);
    return WEFT_OK;
}

static bool equal_keys(const weft_cuda_pinned_key *a, const weft_cuda_pinned_key *b)
{
    return !memcmp(a->type, b->type, sizeof a->type) &&
           !memcmp(a->trans, b->trans, sizeof a->trans) && a->m == b->m && a->n == b->n &&
           a->k == b->k && a->batch == b->batch && a->epilogue == b->epilogue &&
           !memcmp(a->align, b->align, sizeof a->align);
}

bool weft_cuda_pinned_find(const weft_cuda_pinned_key *key, weft_cuda_blas_algo *out)
{
    for (int i = 0; i < n_row; i++)
        if (equal_keys(key, &row[i].key)) {
            *out = row[i].algo;
            return true;
        }
    return false;
}

uint64_t weft_cuda_pinned_hash(void)
{
    return table_hash;
}

int weft_cuda_pinned_print(const weft_cuda_pinned_key *k, const weft_cuda_blas_algo *algo,
                           char *text, size_t bytes)
{
    int n = snprintf(text, bytes,
                     "%d\t%d\t%d\t%d\t%d\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64
                     "\t%d\t%u\t%u\t%u\t%u",
                     k->type[0], k->type[1], k->type[2], k->trans[0], k->trans[1], k->m,
                     k->n, k->k, k->batch, k->epilogue, k->align[0], k->align[1],
                     k->align[2], k->align[3]);
    for (int i = 0; i < 8 && n > 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "\t%" PRIx64, algo->word[i]);
    return n;
}
