#include "launch/sizes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 1 << 20,
    MOST_BATCH = 1 << 30
};

/* ---- from text ---- */

/* A whole number from 1 to most; *end: what follows it. */
static bool read_number(const char *text, int64_t most, int64_t *out, const char **end)
{
    char *stop;
    errno       = 0;
    long long x = strtoll(text, &stop, 10);
    if (*text < '0' || *text > '9' || errno || x < 1 || x > most) return false;
    *out = x;
    *end = stop;
    return true;
}

/* "4", "2:4" */
static bool read_span(const char *text, int *min, int *max)
{
    const char *end;
    int64_t     least, most;
    if (!read_number(text, MOST_RANKS, &least, &end)) return false;
    most = least;
    if (*end == ':' && !read_number(end + 1, MOST_RANKS, &most, &end)) return false;
    *min = (int)least;
    *max = (int)most;
    return !*end && least <= most;
}

static bool read_size(const char *text, int *out)
{
    int max;
    return read_span(text, out, &max) && !strchr(text, ':');
}

static bool read_sequences(const char *text, int64_t *out)
{
    const char *end;
    return read_number(text, MOST_BATCH, out, &end) && !*end;
}

static weft_status read_word(const char *word, weft_launch_sizes *s)
{
    const char *value = strchr(word, '=');
    char        name[16];
    size_t      n    = value ? (size_t)(value - word) : sizeof name;
    bool        good = false;
    struct {
        const char *name;
        int        *out;
    } size[] = {{"tp", &s->tp}, {"cp", &s->cp}, {"ep", &s->ep}, {"pp", &s->pp}};
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 0, word);
    for (size_t k = 0; k < WEFT_COUNT(size); k++)
        if (!strcmp(name, size[k].name)) good = read_size(value + 1, size[k].out);
    if (!strcmp(name, "dp")) good = read_span(value + 1, &s->min_dp, &s->max_dp);
    if (!strcmp(name, "batch")) good = read_sequences(value + 1, &s->batch);
    if (!strcmp(name, "micro_batch")) good = read_sequences(value + 1, &s->micro_batch);
    if (good) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "'%.64s' before --: either a job, or sizes of the program: dp=N or "
                     "dp=MIN:MAX, tp, cp, ep, pp, batch, micro_batch, each from 1",
                     word);
}

/* ---- numbers of ranks ---- */

/* Ranks of one replica, not above MOST_RANKS by much. */
static int64_t count_replica(const weft_launch_sizes *s)
{
    int64_t n = (int64_t)s->tp * s->cp;
    return n > MOST_RANKS ? n : n * s->pp;
}

static bool is_possible(const weft_launch_sizes *s, int64_t dp)
{
    int64_t micro = s->micro_batch ? s->micro_batch : 1;
    return dp * s->cp % s->ep == 0 && (!s->batch || s->batch % (micro * dp) == 0);
}

int weft_launch_sizes_dp(const weft_launch_sizes *s, int n_rank)
{
    int64_t dp = n_rank / count_replica(s);
    if (dp > s->max_dp) dp = s->max_dp;
    while (dp >= s->min_dp && !is_possible(s, dp)) dp--;
    return dp >= s->min_dp ? (int)dp : 0;
}

int weft_launch_sizes_least(const weft_launch_sizes *s)
{
    for (int64_t dp = s->min_dp; dp <= s->max_dp; dp++) {
        if (dp * count_replica(s) > MOST_RANKS) return 0;
        if (is_possible(s, dp)) return weft_launch_sizes_world(s, (int)dp);
    }
    return 0;
}

int weft_launch_sizes_world(const weft_launch_sizes *s, int dp)
{
    return (int)(dp * count_replica(s));
}

int64_t weft_launch_sizes_accumulation(const weft_launch_sizes *s, int dp)
{
    int64_t micro = s->micro_batch ? s->micro_batch : 1;
    return dp ? s->batch / (micro * dp) : 0;
}

void weft_launch_sizes_print(const weft_launch_sizes *s, int dp, weft_text *t)
{
    weft_text_add(t, "dp=%d", dp);
    if (s->tp > 1) weft_text_add(t, " tp=%d", s->tp);
    if (s->cp > 1) weft_text_add(t, " cp=%d", s->cp);
    if (s->ep > 1) weft_text_add(t, " ep=%d", s->ep);
    if (s->pp > 1) weft_text_add(t, " pp=%d", s->pp);
}

weft_status weft_launch_sizes_parse(int n, char *const *word, weft_launch_sizes *out)
{
    weft_launch_sizes s = {
        .min_dp = 1, .max_dp = MOST_RANKS, .tp = 1, .cp = 1, .ep = 1, .pp = 1};
    for (int i = 0; i < n; i++) WEFT_TRY(read_word(word[i], &s));
    if (s.micro_batch && !s.batch)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "micro_batch=%lld: give batch, the sequences of all ranks, too",
                         (long long)s.micro_batch);
    if (!weft_launch_sizes_least(&s))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "sizes: no dp from %d to %d, with at most %d ranks, where dp x "
                         "micro_batch divides batch and ep divides dp x cp",
                         s.min_dp, s.max_dp, MOST_RANKS);
    *out = s;
    return WEFT_OK;
}
