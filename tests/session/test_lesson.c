/* What teachers and learners agree on without a word: blocks of the state, shares, who teaches; and
 * rows of bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile/compile.h"
#include "session/lesson.h"
#include "session/program_state.h"
#include "support/test.h"

static void rows_of_bytes(void **state)
{
    enum {
        N   = 5,
        ALL = 1 + 64 + 3 + 700 + 32
    };
    static const int64_t bytes[N] = {1, 64, 3, 700, 32};
    static char          memory[N][1024], flat[ALL], out[ALL];
    weft_arena          *a;
    weft_spans           s;
    (void)state;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_spans_create(a, N + 1, &s));
    for (int k = 0; k < N; k++) weft_spans_add(&s, memory[k], bytes[k]);
    weft_spans_add(&s, memory[0], 0); /* nothing */
    assert_int_equal(s.n, N);
    assert_int_equal(s.bytes, ALL);
    for (int i = 0; i < ALL; i++) flat[i] = (char)(i * 37 + 11);
    for (int64_t at = 0; at < ALL; at += 7)
        weft_spans_write(&s, at, ALL - at < 7 ? ALL - at : 7, flat + at);
    for (int64_t lo = 0; lo <= ALL; lo += 13)
        for (int64_t n = 0; lo + n <= ALL; n += 29) {
            memset(out, 0, sizeof out);
            weft_spans_read(&s, lo, n, out);
            assert_memory_equal(out, flat + lo, (size_t)n);
        }
    weft_arena_destroy(a);
}

static void shares_cover_all(void **state)
{
    static const int64_t bytes[] = {0, 1, 63, 64, 65, 1000, 1 << 20};
    (void)state;
    for (size_t b = 0; b < WEFT_COUNT(bytes); b++)
        for (int n = 1; n <= WEFT_LESSON_TEACHERS; n++) {
            int64_t at = 0, lo, hi;
            for (int k = 0; k < n; k++) {
                weft_lesson_share(bytes[b], n, k, &lo, &hi);
                assert_int_equal(lo, at);
                assert_true(hi >= lo);
                at = hi;
            }
            assert_int_equal(at, bytes[b]);
        }
}

static void teachers_are_spread(void **state)
{
    (void)state;
    for (int first = 1; first < 40; first++) {
        int n = weft_lesson_n_teacher(first), before = -1;
        assert_true(n >= 1 && n <= WEFT_LESSON_TEACHERS && n <= first);
        for (int k = 0; k < n; k++) {
            int r = weft_lesson_teacher(first, k);
            assert_true(r > before && r < first);
            before = r;
        }
    }
    assert_int_equal(weft_lesson_teacher(8, 3), 6);
}

/* A state as a program has it, and its blocks. */
typedef struct side {
    weft_plan        *plan;
    weft_compiled     made;
    weft_state       *state;
    weft_tail         tail;
    weft_lesson_state row;
} side;

static void open_side(const weft_training *t, const char *words, weft_arena *a, side *x)
{
    int rank = 0;
    *x       = (side){0};
    if (words) {
        weft_strategy s;
        assert_ok(weft_strategy_parse(words, &s));
        rank = weft_strategy_world(&s) - 1;
        assert_ok(weft_compile_plan(t, &s, rank + 1, &x->plan));
    }
    assert_ok(weft_compile_program(t, x->plan, rank, &x->made));
    assert_ok(weft_program_find_tail(x->made.program, a, &x->tail));
    assert_ok(weft_program_state_create(&x->made, NULL, weft_device_cpu(), &x->state));
    assert_ok(weft_lesson_state_make(x->state, x->made.program, &x->tail, a, &x->row));
}

static void close_side(side *x)
{
    weft_state_destroy(x->state);
    weft_compiled_fini(&x->made);
    weft_plan_destroy(x->plan);
}

static void check_blocks(const side *x)
{
    int64_t before = 0, all = 0, at = 0;
    for (int k = 0; k < x->row.n_block; k++) {
        assert_true(x->row.end[k] > before &&
                    x->row.end[k] - before <= WEFT_LESSON_CHUNK);
        before = x->row.end[k];
    }
    assert_int_equal(before, x->row.row.bytes);
    for (int i = 0; i < weft_state_count(x->state); i++) {
        const weft_state_tensor *t = weft_state_at(x->state, i);
        if (t->part) all += weft_part_count(t->part) * weft_dtype_bytes(t->dtype);
    }
    assert_int_equal(all, x->row.row.bytes);
    for (int64_t n; at < all; at += n) {
        n = weft_lesson_piece(&x->row, at);
        assert_true(n > 0 && n <= WEFT_LESSON_CHUNK);
    }
    assert_int_equal(at, all);
}

static void check_state_shares(const side *x)
{
    for (int n = 1; n <= WEFT_LESSON_TEACHERS; n++) {
        int64_t at = 0, lo, hi;
        for (int k = 0; k < n; k++) {
            weft_lesson_state_share(&x->row, n, k, &lo, &hi);
            assert_int_equal(lo, at);
            for (int64_t p = lo; p < hi; p += weft_lesson_piece(&x->row, p))
                if (p + weft_lesson_piece(&x->row, p) > hi) break;
            at = hi;
        }
        assert_int_equal(at, x->row.row.bytes);
    }
}

/* The same element of a parameter and of its moments are in one block. */
static void check_together(const side *x, const char *name)
{
    char        moment[64];
    const char *p[3];
    snprintf(moment, sizeof moment, "%s.m", name);
    int w = weft_state_find(x->state, name), m = weft_state_find(x->state, moment);
    assert_true(w >= 0 && m >= 0);
    int64_t n = weft_part_count(weft_state_at(x->state, w)->part);
    for (int64_t e = 0; e < n; e += n / 7 + 1) {
        int block[2] = {-1, -1};
        p[0]         = (char *)weft_state_memory(x->state)->address +
               weft_state_at(x->state, w)->offset + 4 * e;
        p[1] = (char *)weft_state_memory(x->state)->address +
               weft_state_at(x->state, m)->offset + 4 * e;
        for (int k = 0; k < x->row.row.n; k++)
            for (int q = 0; q < 2; q++) {
                const weft_span *s = &x->row.row.span[k];
                if (p[q] < s->p || p[q] >= s->p + s->bytes) continue;
                block[q] = 0;
                while (x->row.end[block[q]] <= s->from) block[q]++;
            }
        assert_true(block[0] >= 0);
        assert_int_equal(block[0], block[1]);
    }
}

static void blocks_of_a_state(void **state)
{
    weft_compile_spec c = weft_compile_spec_default("tiny256", 4, 8);
    weft_training     t;
    weft_arena       *a;
    side              one, two;
    (void)state;
    c.micro_batch = 1;
    c.lanes       = 4;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_compile_training(&c, &t));
    open_side(&t, NULL, a, &one);
    open_side(&t, "dp=2", a, &two);
    check_blocks(&one);
    check_state_shares(&one);
    check_together(&one, "transformer.wpe.weight");
    check_together(&one, "transformer.h.0.mlp.c_fc.bias");
    assert_true(one.row.hash == two.row.hash);
    assert_true(one.tail.hash == two.tail.hash);
    close_side(&one);
    close_side(&two);
    weft_training_fini(&t);
    weft_arena_destroy(a);
}

static void what_keeps_up(void **state)
{
    char text[160] = "";
    (void)state;
    assert_true(weft_lesson_keeps_up(1 << 30, 1 << 20, 1, 1, text, sizeof text));
    assert_true(weft_lesson_keeps_up(100 << 20, 1 << 30, 1, 0.5, text, sizeof text));
    assert_false(weft_lesson_keeps_up(1 << 30, 1 << 30, 1, 0.5, text, sizeof text));
    assert_non_null(strstr(text, "would take 1 s, and a step takes 0.5 s"));
    assert_true(weft_lesson_patience_s(0) < weft_lesson_patience_s(100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_bytes),       cmocka_unit_test(shares_cover_all),
        cmocka_unit_test(teachers_are_spread), cmocka_unit_test(blocks_of_a_state),
        cmocka_unit_test(what_keeps_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
