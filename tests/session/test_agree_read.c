/* Ranks compare what they run, and one of them sends what no rank sends: the other ends with one
 * line that names it. */
#include "comm/ranks.h"

#include <stdlib.h>

#include "program/talk.h"
#include "session/agree_priv.h"

static const char stages[] =
    "program a rank 0 of 2 micro 1 lanes 1 { group [0,1]\n"
    "stream compute compute device 0 threads 0\n"
    "actor x on compute { collective s barrier group 0 tag 9 ; }\n"
    "list compute { x 0; } }\n"
    "program b rank 1 of 2 micro 1 lanes 1 { group [0,1]\n"
    "stream compute compute device 0 threads 0\n"
    "actor x on compute { collective s barrier group 0 tag 9 ; }\n"
    "list compute { x 0; } }\n";

typedef struct attack {
    const char *name, *says;
    weft_status (*run)(const weft_agree *a);
    bool texts;
} attack;

static const attack *current;

/* ---- the hostile rank ---- */

static weft_status gather(const weft_agree *a, const void *mine, size_t n, void *all)
{
    return weft_comm_collective(a->comm, a->group, WEFT_ALL_GATHER, WEFT_DTYPE_F32, mine,
                                all, (int64_t)(n / 4));
}

/* As if programs differ: a balance, a number of lines, and lines. */
static weft_status send_rows(const weft_agree *a, int64_t n, agree_row row)
{
    uint64_t balance = 12345, both[2];
    int64_t  count[2], most;
    WEFT_TRY(gather(a, &balance, sizeof balance, both));
    WEFT_TRY(gather(a, &n, sizeof n, count));
    most = count[0] > count[1] ? count[0] : count[1];
    if (most > 100) return WEFT_OK;
    agree_row *mine = calloc((size_t)most, sizeof *mine),
              *all  = calloc(2 * (size_t)most, sizeof *all);
    for (int64_t k = 0; k < most; k++) {
        mine[k]      = row;
        mine[k].line = (int32_t)k;
    }
    weft_status st = gather(a, mine, sizeof *mine * (size_t)most, all);
    free(mine);
    free(all);
    return st;
}

static const agree_row good_row = {
    .key = 1, .digest = 2, .weight = 3, .first = -1, .n_call = 1, .rank = 1};

static weft_status send_rank(const weft_agree *a, int32_t rank_said)
{
    agree_row   r = good_row;
    agree_party p = {0}, all[2];
    r.rank        = rank_said;
    WEFT_TRY(send_rows(a, 1, r));
    return gather(a, &p, sizeof p, all);
}

static weft_status rank_of_none(const weft_agree *a)
{
    return send_rank(a, -50000000);
}

static weft_status rank_too_high(const weft_agree *a)
{
    return send_rank(a, 2000000000);
}

static weft_status many_calls(const weft_agree *a)
{
    agree_row r = good_row;
    r.n_call    = INT64_MAX;
    return send_rows(a, 1, r);
}

static weft_status many_lines(const weft_agree *a)
{
    return send_rows(a, INT64_MAX / 4, good_row);
}

static weft_status fewer_than_none(const weft_agree *a)
{
    return send_rows(a, -1, good_row);
}

static weft_status send_party(const weft_agree *a, int fill, int32_t lacks)
{
    agree_party p = {.lacks = lacks}, all[2];
    memset(p.who, fill, sizeof p.who);
    WEFT_TRY(send_rows(a, 1, good_row));
    return gather(a, &p, sizeof p, all);
}

static weft_status who_without_end(const weft_agree *a)
{
    return send_party(a, 'A', 0);
}

static weft_status lacks_none(const weft_agree *a)
{
    return send_party(a, 0, 77);
}

static weft_status entry_without_end(const weft_agree *a)
{
    agree_entry e, all[2];
    memset(&e, 'A', sizeof e);
    WEFT_TRY(send_party(a, 0, 0));
    return gather(a, &e, sizeof e, all);
}

/* Balances with rank 0's, so that rank 0 walks through both programs. */
static weft_status send_calls(const weft_agree *a, int64_t n, const char *text)
{
    weft_program **p;
    int            n_program;
    weft_arena    *arena;
    weft_talk      talk;
    WEFT_TRY(weft_program_parse_set("t", stages, sizeof stages - 1, &p, &n_program));
    WEFT_TRY(weft_arena_create(&arena));
    WEFT_TRY(weft_talk_make(p[1], arena, &talk));
    uint64_t balance = weft_talk_balance(&talk), both[2];
    int64_t  count[2];
    weft_arena_destroy(arena);
    weft_program_destroy_set(p, n_program);
    WEFT_TRY(gather(a, &balance, sizeof balance, both));
    WEFT_TRY(gather(a, &n, sizeof n, count));
    int64_t most = (count[0] > count[1] ? count[0] : count[1]) + 3;
    most         = most / 4 * 4;
    if (most > 10000) return WEFT_OK;
    char *mine = calloc(1, (size_t)most), *all = calloc(2, (size_t)most);
    if (text) memcpy(mine, text, strlen(text));
    weft_status st = gather(a, mine, (size_t)most, all);
    free(mine);
    free(all);
    return st;
}

static weft_status call_of_no_group(const weft_agree *a)
{
    static const char text[] =
        "program b rank 1 of 2 micro 1 lanes 1 { group [0,1]\n"
        "stream compute compute device 0 threads 0\n"
        "actor x on compute { collective s barrier group 99999999 tag 9 ; }\n"
        "list compute { x 0; } }\n";
    agree_verdict v;
    WEFT_TRY(send_calls(a, sizeof text - 1, text));
    WEFT_TRY(weft_comm_collective(a->comm, a->group, WEFT_BROADCAST, WEFT_DTYPE_F32, &v,
                                  &v, sizeof v / 4));
    return weft_comm_collective(a->comm, a->group, WEFT_BARRIER, WEFT_DTYPE_F32, NULL,
                                NULL, 0);
}

static weft_status calls_of_no_size(const weft_agree *a)
{
    return send_calls(a, -1, NULL);
}

static weft_status text_without_end(const weft_agree *a)
{
    agree_digest d = {.hash = 7, .n = 1}, both[2];
    agree_entry  e, all[2];
    memset(&e, 'A', sizeof e);
    WEFT_TRY(gather(a, &d, sizeof d, both));
    return gather(a, &e, sizeof e, all);
}

static weft_status lines_below_none(const weft_agree *a)
{
    agree_digest d = {.hash = 7, .n = INT64_MIN}, both[2];
    return gather(a, &d, sizeof d, both);
}

/* ---- */

static weft_status compare(rank_state *r)
{
    static const char *const text[] = {"a is 1"};
    weft_program           **p;
    int                      n;
    weft_agree               a = {.comm = r->c};
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &a.group));
    if (r->rank) {
        weft_status st = current->run(&a);
        for (int i = 0; i < 5000 && !rank[0].ended; i++) usleep(1000);
        return st;
    }
    if (current->texts) return weft_agree_texts(&a, "the plan", 1, text);
    WEFT_TRY(weft_program_parse_set("t", stages, sizeof stages - 1, &p, &n));
    weft_status st = weft_agree_programs(&a, p[0]);
    weft_program_destroy_set(p, n);
    return st;
}

static void run_all(const attack *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        current = &a[i];
        run_ranks(TCP, 2, 8, compare);
        if (!rank[0].ended) fail_msg("%s: rank 0 is gone without a word", a[i].name);
        if (rank[0].st == WEFT_OK || !strstr(rank[0].text, a[i].says))
            fail_msg("%s: expected '%s', rank 0 says '%s'", a[i].name, a[i].says,
                     rank[0].text);
    }
}

#define SENT "rank 1 failed: where ranks compare what they run, it sent "

static void numbers_of_a_peer_are_no_index(void **state)
{
    static const attack a[] = {
        {"rank", SENT "calls in the name of another rank", rank_of_none, false},
        {"high rank", SENT "calls in the name of another rank", rank_too_high, false},
        {"calls", SENT "a number of calls out of range", many_calls, false},
        {"lines", SENT "2305843009213693951 as its number of lines", many_lines, false},
        {"no lines", SENT "-1 as its number of lines", fewer_than_none, false},
        {"lacks", SENT "the number of a rank that there is not", lacks_none, false},
        {"group", "is not in group 99999999", call_of_no_group, false},
        {"bytes", SENT "-1 as its number of bytes", calls_of_no_size, false},
        {"digest", SENT "a number of lines out of range", lines_below_none, true},
    };
    (void)state;
    run_all(a, WEFT_COUNT(a));
}

static void texts_of_a_peer_end(void **state)
{
    static const attack a[] = {
        {"who", SENT "a text without an end", who_without_end, false},
        {"entry", SENT "a text without an end", entry_without_end, false},
        {"line", SENT "a text without an end", text_without_end, true},
    };
    (void)state;
    run_all(a, WEFT_COUNT(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_peer_are_no_index),
        cmocka_unit_test(texts_of_a_peer_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
