/* Walks over a part of a region: against taking every element by itself, for parts in several
 * runs. */
#include "support/test.h"

#include <stdlib.h>

#include "tensor/part.h"

enum {
    MOST = 512
};

typedef struct seen {
    int64_t at[MOST], last;
    int     n;
} seen;

static weft_status note(void *arg, int64_t at, int64_t index, int64_t n)
{
    seen *s = arg;
    assert_true(n > 0 && index > s->last); /* in order, nothing twice */
    for (int64_t i = 0; i < n; i++) s->at[index + i] = at + i;
    s->last = index + n - 1;
    s->n += (int)n;
    return WEFT_OK;
}

/* Where position x of dimension d lies in the part, by looking; -1 nowhere. */
static int64_t find(const weft_part *p, int d, int64_t x, int64_t *size)
{
    int64_t at = -1;
    *size      = 0;
    for (int k = 0; k < p->n[d]; k++)
        for (int64_t i = p->run[d][k].lo; i < p->run[d][k].hi; i++, ++*size)
            if (i == x) at = *size;
    return at;
}

static void check(const weft_part *p, const weft_region *r, int64_t first, int64_t n)
{
    seen s     = {.last = -1};
    int  count = 0;
    for (int i = 0; i < MOST; i++) s.at[i] = -1;
    s.last = first - 1;
    assert_ok(weft_part_walk(p, r, first, n, note, &s));
    for (int64_t i = 0; i < weft_region_count(r); i++) {
        int64_t want = 0, left = i, stride = 1;
        for (int d = r->global.n - 1; d >= 0 && want >= 0; d--) {
            int64_t size, x = find(p, d, r->offset[d] + left % r->extent[d], &size);
            want = x < 0 ? -1 : want + x * stride;
            stride *= size;
            left /= r->extent[d];
        }
        if (i < first || i >= first + n) want = -1;
        assert_true(s.at[i] == want);
        count += want >= 0;
    }
    assert_int_equal(s.n, count);
}

/* A region that is found is where a walk finds it; one in the part's single runs is found. */
static void check_place(const weft_part *p, const weft_region *r)
{
    weft_part_place place;
    seen            s       = {.last = -1};
    bool            one_run = true, found = weft_part_find(p, r, &place);
    for (int d = 0; d < r->global.n; d++) one_run = one_run && p->n[d] == 1;
    assert_ok(weft_part_walk(p, r, 0, weft_region_count(r), note, &s));
    if (!found) {
        assert_true(s.n < weft_region_count(r) || !one_run);
        return;
    }
    assert_int_equal(s.n, weft_region_count(r));
    for (int64_t i = 0; i < s.n; i++) {
        int64_t at = place.at, left = i;
        for (int d = r->global.n - 1; d >= 0; d--) {
            at += left % r->extent[d] * place.stride[d];
            left /= r->extent[d];
        }
        assert_true(s.at[i] == at);
    }
}

static void every_element_once(void **state)
{
    unsigned seed = 1;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        weft_part     p = {0};
        weft_interval run[4][3];
        weft_region   r = {0};
        int           n = rand_r(&seed) % 4;
        p.shape.n = r.global.n = n;
        for (int d = 0; d < n; d++) {
            int64_t size = 1 + rand_r(&seed) % 7, at = 0;
            bool    whole = rand_r(&seed) % 2;
            r.global.d[d] = p.shape.d[d] = size;
            p.run[d]                     = run[d];
            if (whole) run[d][p.n[d]++] = (weft_interval){0, size};
            while (!whole && p.n[d] < 3 && at < size) {
                int64_t lo = at + rand_r(&seed) % 3, hi = lo + 1 + rand_r(&seed) % 3;
                at = hi + 1;
                if (lo < size)
                    run[d][p.n[d]++] = (weft_interval){lo, hi < size ? hi : size};
            }
            r.offset[d] = rand_r(&seed) % 2 ? 0 : rand_r(&seed) % size;
            r.extent[d] = r.offset[d] ? 1 + rand_r(&seed) % (size - r.offset[d]) : size;
        }
        int64_t all = weft_region_count(&r), first = rand_r(&seed) % all;
        check(&p, &r, 0, all);
        check_place(&p, &r);
        check(&p, &r, first, 1 + rand_r(&seed) % (all - first));
    }
}

/* Boxes of a part have its elements, each once; a copy is equal to it. */
static void boxes_tile_a_part(void **state)
{
    weft_interval run[2][3]       = {{{0, 2}, {5, 6}}, {{1, 3}, {3, 4}, {6, 9}}};
    weft_part     p               = {.shape = {.n = 3, .d = {6, 4, 9}},
                                     .n     = {2, 1, 3},
                                     .run   = {run[0], (weft_interval[]){{0, 4}}, run[1]}};
    int           hits[6 * 4 * 9] = {0}, count = 0;
    (void)state;
    assert_int_equal(weft_part_boxes(&p), 6);
    for (int64_t k = 0; k < weft_part_boxes(&p); k++) {
        weft_region r = weft_part_box(&p, k);
        for (int64_t i = 0; i < weft_region_count(&r); i++) {
            int64_t x[3], left = i;
            for (int d = 2; d >= 0; d--) {
                x[d] = r.offset[d] + left % r.extent[d];
                left /= r.extent[d];
            }
            assert_int_equal(hits[(x[0] * 4 + x[1]) * 9 + x[2]]++, 0);
            count++;
        }
    }
    assert_int_equal(count, weft_part_count(&p));
    assert_int_equal(count, 3 * 4 * 6);
    weft_arena *a;
    assert_ok(weft_arena_create(&a));
    const weft_part *copy = weft_part_copy(&p, a);
    assert_true(weft_part_equal(copy, &p));
    run[1][2].hi = 8;
    assert_false(weft_part_equal(copy, &p));
    weft_arena_destroy(a);
}

/* Chunks follow each other in the region's order, none is larger than asked for, all of them
 * together are the region. */
static void chunks_follow_each_other(void **state)
{
    unsigned seed = 7;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        weft_region r = {.global = {.n = rand_r(&seed) % 5}}, box;
        for (int d = 0; d < r.global.n; d++) {
            r.global.d[d] = 1 + rand_r(&seed) % 5;
            r.offset[d]   = rand_r(&seed) % (int)r.global.d[d];
            r.extent[d]   = rand_r(&seed) % (int)(r.global.d[d] - r.offset[d] + 1);
        }
        int64_t most = 1 + rand_r(&seed) % 40, at = 0, before = 0;
        while (weft_region_next_chunk(&r, most, &at, &box)) {
            int64_t n = weft_region_count(&box), stride = 1, first = 0, last = 0;
            assert_true(n > 0 && n <= most && at - before == n);
            for (int d = r.global.n - 1; d >= 0;
                 d--) { /* its corners in the region's order */
                int64_t lo = box.offset[d] - r.offset[d], hi = lo + box.extent[d] - 1;
                assert_true(lo >= 0 && hi < r.extent[d]);
                first += lo * stride;
                last += hi * stride;
                stride *= r.extent[d];
            }
            assert_int_equal(first, before);
            assert_int_equal(last, at - 1);
            before = at;
        }
        assert_int_equal(at, weft_region_count(&r));
    }
}

/* Boxes of a range follow each other, none is empty, all of them together are the range; there are
 * few of them: at most two for each dimension. */
static void boxes_of_a_range(void **state)
{
    unsigned seed = 17;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        weft_region r = {.global = {.n = rand_r(&seed) % 5}}, box;
        for (int d = 0; d < r.global.n; d++) {
            r.global.d[d] = 1 + rand_r(&seed) % 5;
            r.offset[d]   = rand_r(&seed) % (int)r.global.d[d];
            r.extent[d]   = 1 + rand_r(&seed) % (int)(r.global.d[d] - r.offset[d]);
        }
        int64_t all = weft_region_count(&r), at = rand_r(&seed) % (int)(all + 1);
        int64_t end = at + rand_r(&seed) % (int)(all - at + 1), before = at;
        int     n_box = 0;
        while (weft_region_next_box(&r, &at, end, &box)) {
            int64_t stride = 1, first = 0, last = 0;
            for (int d = r.global.n - 1; d >= 0; d--) {
                int64_t lo = box.offset[d] - r.offset[d], hi = lo + box.extent[d] - 1;
                assert_true(lo >= 0 && lo <= hi && hi < r.extent[d]);
                first += lo * stride;
                last += hi * stride;
                stride *= r.extent[d];
            }
            assert_int_equal(first, before);
            assert_int_equal(last, at - 1);
            assert_int_equal(at - before, weft_region_count(&box));
            before = at;
            n_box++;
        }
        assert_int_equal(at, end);
        assert_true(n_box <= 2 * r.global.n + 1);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(every_element_once),
        cmocka_unit_test(boxes_tile_a_part),
        cmocka_unit_test(chunks_follow_each_other),
        cmocka_unit_test(boxes_of_a_range),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
