/* Records that ranks send each other while they compare what they run.
 *
 * They come from other processes, perhaps of another version, perhaps not of ours at all: each is
 * read here before anything in it is used as a number, an index or a text.  WEFT_ERR_PEER: a rank
 * sent what no rank sends; all ranks are told so. */
#ifndef WEFT_SESSION_AGREE_PRIV_H
#define WEFT_SESSION_AGREE_PRIV_H

#include "session/agree.h"

/* How many lines of text a rank has, and what is in them. */
typedef struct agree_digest {
    uint64_t hash;
    int64_t  n;
} agree_digest;

typedef struct agree_entry {
    char text[256];
} agree_entry;

/* A line of one rank, as all ranks see it. */
typedef struct agree_row {
    uint64_t key, digest, weight;
    int64_t  first, n_call;
    int32_t  rank, line;
} agree_row;

/* Who is in a line, in its own words, and the first that lacks it (-1: nobody). */
typedef struct agree_party {
    char    who[120];
    int32_t lacks, message;
    int32_t tag, unused;
} agree_party;

/* What rank 0 found when it walked through all programs. */
typedef struct agree_verdict {
    int32_t st, unused;
    char    text[1024];
} agree_verdict;

/* n[r] of every rank: 0 to limit of what.  *most: the largest. */
weft_status weft_agree__read_counts(const weft_agree *a, const int64_t *n, int64_t limit,
                                    const char *what, int64_t *most);
weft_status weft_agree__read_digests(const weft_agree *a, const agree_digest *d);
/* One of each rank: texts that end. */
weft_status weft_agree__read_entries(const weft_agree *a, const agree_entry *e);
/* n[r] rows of rank r, from r * most on; those with calls are moved to the front, *n_row of them.
 */
weft_status weft_agree__read_rows(const weft_agree *a, const int64_t *n, int64_t most,
                                  agree_row *row, int64_t *n_row);
/* What rank `from` says. */
weft_status weft_agree__read_party(const weft_agree *a, int from, const agree_party *p);
weft_status weft_agree__read_verdict(const weft_agree *a, const agree_verdict *v);

#endif
