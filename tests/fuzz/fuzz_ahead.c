/* Any bytes as a brief, which another host may have sent, as a request to the process that makes
 * plans ahead, and as its answers: what is taken lies within its bounds and prints as what was
 * read; an answer that was altered is none. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "session/ahead.h"
#include "session/brief.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_within(const char *text, size_t n, const char *piece, size_t bytes)
{
    if (piece < text || bytes > n || (size_t)(piece - text) > n - bytes) abort();
}

static void read_brief(const char *text, size_t n)
{
    weft_brief b;
    weft_text  t = {0};
    if (weft_brief_parse(text, n, &b) != WEFT_OK) return;
    if (b.micro_batch < 1 || b.lanes < 1) abort();
    check_within(text, n, b.plan, b.plan_bytes);
    check_within(text, n, b.ahead, b.ahead_bytes);
    weft_brief_print(&b, &t);
    if (t.n != n || memcmp(t.s, text, n) != 0) abort();
    weft_text_fini(&t);
}

static void read_request(const char *text, size_t n)
{
    weft_ahead_request q, back;
    weft_text          a = {0}, b = {0};
    if (weft_ahead_parse_request(text, n, &q) != WEFT_OK) return;
    weft_ahead_print_request(&q, &a);
    if (weft_ahead_parse_request(a.s, a.n, &back) != WEFT_OK) abort();
    weft_ahead_print_request(&back, &b);
    if (a.n != b.n || memcmp(a.s, b.s, a.n) != 0) abort();
    if (q.n_view)
        weft_ahead_add_likely(&q, q.view[0].n_host, q.view[0].count, 1 << 10, 8, n & 1);
    weft_ahead_request_fini(&q);
    weft_ahead_request_fini(&back);
    weft_text_fini(&a);
    weft_text_fini(&b);
}

/* An answer that stands is found again by its counts. */
static void find_again(const weft_ahead_answer *a)
{
    weft_ahead_answer found, changed = *a;
    weft_text         t        = {0};
    const int         counts[] = {3, 2};
    changed.n_host             = 2;
    changed.count              = counts;
    weft_ahead_print_answer(&changed, &t);
    if (!weft_ahead_find(t.s, t.n, 2, counts, &found) || found.changes != a->changes ||
        found.step_s != a->step_s || found.was_step_s != a->was_step_s ||
        found.move_s != a->move_s || found.pages != a->pages ||
        found.plan_bytes != a->plan_bytes ||
        memcmp(found.plan, a->plan, a->plan_bytes) != 0)
        abort();
    weft_text_fini(&t);
}

static void read_answers(const char *text, size_t n)
{
    weft_ahead_answer a;
    const int         counts[] = {2, 2};
    size_t            at = 0, was = 0;
    int               n_rank;
    while (weft_ahead_next(text, n, &at, &n_rank, &a)) {
        if (at <= was || at > n || n_rank < a.n_host) abort();
        check_within(text, n, a.plan, a.plan_bytes);
        find_again(&a);
        was = at;
    }
    if (weft_ahead_find(text, n, 2, counts, &a))
        check_within(text, n, a.plan, a.plan_bytes);
}

/* With the hash that it has to have: what is in it is looked at. */
static void print_answer(const uint8_t *data, size_t n)
{
    int       count[4];
    weft_text t    = {0};
    size_t    head = 4 + 2 * sizeof(double);
    if (n < head) return;
    weft_ahead_answer a = {.n_host     = 1 + data[0] % 4,
                           .count      = count,
                           .changes    = data[1] & 1,
                           .plan       = (const char *)data + head,
                           .plan_bytes = n - head};
    for (int k = 0; k < 4; k++) count[k] = data[2] >> 2 * k & 3;
    memcpy(&a.step_s, data + 4, sizeof a.step_s);
    memcpy(&a.was_step_s, data + 4 + sizeof(double), sizeof a.was_step_s);
    weft_ahead_print_answer(&a, &t);
    weft_ahead_print_answer(&a, &t);
    read_answers(t.s, t.n);
    if (t.n) t.s[data[3] % t.n] ^= 1;
    read_answers(t.s, t.n);
    weft_text_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    read_brief((const char *)data, n);
    read_request((const char *)data, n);
    read_answers((const char *)data, n);
    print_answer(data, n);
    return 0;
}
