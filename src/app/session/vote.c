/* The words of a vote.
 *
 *     0         counts of 16 bits: stop, interrupt, newer, not finite
 *     1 .. 8    of each bit of the norm how many ranks have it set, 16 bits each
 *     9 .. 11   samples read, sum of their hashes, sum of the hashes that are due
 *     12 .. 19  busy microseconds of 16 ranks, 32 bits each
 *     20        a slow link: 1 + the rank it goes to (16 bits), its rate and its usual rate in
 *               10 KB/s (24 bits each) */
#include "session/vote.h"

#include <string.h>

#include "base/hash.h"
#include "program/program.h"

enum {
    FLAGS,
    NORM,
    N_READ = NORM + 8,
    READ,
    DUE,
    BUSY,
    LINK = BUSY + WEFT_VOTE_BUSY_RANKS / 2
};

static const double LINK_UNIT = 1e4; /* bytes a second */

_Static_assert(WEFT_VOTE_WORDS * sizeof(uint64_t) == WEFT_COMMIT_BYTES,
               "what the cost model prices");

static void put_count(uint64_t *word, int k, bool set)
{
    word[k / 4] |= (uint64_t)set << k % 4 * 16;
}

static int get_count(const uint64_t *word, int k)
{
    return (int)(word[k / 4] >> k % 4 * 16 & 0xffff);
}

/* The first of the ranks whose turn it is. */
static int find_turn(int64_t step, int world)
{
    int n_turn = (world + WEFT_VOTE_BUSY_RANKS - 1) / WEFT_VOTE_BUSY_RANKS;
    return (int)(step % n_turn) * WEFT_VOTE_BUSY_RANKS;
}

static uint32_t to_us(double s)
{
    double us = s * 1e6;
    return us > 0 && us < (double)UINT32_MAX ? (uint32_t)us : us > 0 ? UINT32_MAX : 0;
}

static uint64_t pack_rate(double rate)
{
    const uint64_t most = (1u << 24) - 1;
    double         x    = rate / LINK_UNIT;
    return x < 1 ? 1 : x < (double)most ? (uint64_t)x : most;
}

static uint64_t pack_link(const weft_slow_link *x)
{
    return (uint64_t)(x->to + 1) << 48 | pack_rate(x->rate) << 24 |
           pack_rate(x->usual_rate);
}

static weft_slow_link unpack_link(uint64_t word)
{
    return (weft_slow_link){.to         = (int)(word >> 48) - 1,
                            .rate       = LINK_UNIT * (double)(word >> 24 & 0xffffff),
                            .usual_rate = LINK_UNIT * (double)(word & 0xffffff)};
}

void weft_vote_pack(const weft_vote *v, int world, uint64_t word[WEFT_VOTE_WORDS])
{
    uint32_t bits;
    int      slot = v->rank - find_turn(v->step, world);
    memset(word, 0, WEFT_VOTE_WORDS * sizeof *word);
    memcpy(&bits, &v->norm, sizeof bits);
    put_count(word + FLAGS, 0, v->stop);
    put_count(word + FLAGS, 1, v->interrupt);
    put_count(word + FLAGS, 2, v->newer);
    put_count(word + FLAGS, 3, !v->finite);
    for (int k = 0; k < 32; k++) put_count(word + NORM, k, bits >> k & 1);
    word[N_READ] = v->n_read;
    word[READ]   = v->read;
    word[DUE]    = v->due;
    if (slot >= 0 && slot < WEFT_VOTE_BUSY_RANKS)
        word[BUSY + slot / 2] = (uint64_t)to_us(v->busy_s) << slot % 2 * 32;
    if (v->link.usual_rate > 0 && v->rank == weft_vote_link_turn(v->step, world))
        word[LINK] = pack_link(&v->link);
}

void weft_vote_unpack(const uint64_t word[WEFT_VOTE_WORDS], int world, int64_t step,
                      weft_vote_sum *out)
{
    *out = (weft_vote_sum){.n_stop       = get_count(word + FLAGS, 0),
                           .n_interrupt  = get_count(word + FLAGS, 1),
                           .n_newer      = get_count(word + FLAGS, 2),
                           .n_not_finite = get_count(word + FLAGS, 3),
                           .same_norm    = true,
                           .n_read       = word[N_READ],
                           .read         = word[READ],
                           .due          = word[DUE],
                           .first_busy   = find_turn(step, world),
                           .link_from    = -1};
    for (int k = 0; k < 32; k++) {
        int n = get_count(word + NORM, k);
        if (n && n != world) out->same_norm = false;
    }
    out->n_busy = world - out->first_busy;
    if (out->n_busy > WEFT_VOTE_BUSY_RANKS) out->n_busy = WEFT_VOTE_BUSY_RANKS;
    for (int k = 0; k < out->n_busy; k++)
        out->busy_s[k] = (float)(uint32_t)(word[BUSY + k / 2] >> k % 2 * 32) / 1e6f;
    if (!word[LINK]) return;
    out->link      = unpack_link(word[LINK]);
    out->link_from = weft_vote_link_turn(step, world);
}

uint64_t weft_vote_hash(int64_t epoch, int64_t index, int64_t step)
{
    int64_t x[3] = {epoch, index, step};
    return weft_hash_xxh64(x, sizeof x, 0);
}

bool weft_vote_is_read(const weft_vote_sum *v, uint64_t n_sample)
{
    if (!n_sample || v->n_read % n_sample) return !n_sample && !v->n_read;
    return v->n_read > 0 && v->read == v->n_read / n_sample * v->due;
}
