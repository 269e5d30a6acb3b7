/* Walks over a part of a region: against taking every element by itself, for parts in several
 * runs. */
#include "support/test.h"

#include <stdlib.h>

#include "session/parts.h"

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
static int64_t find(const weft_compiled_part *p, int d, int64_t x, int64_t *size)
{
    int64_t at = -1;
    *size      = 0;
    for (int k = 0; k < p->n[d]; k++)
        for (int64_t i = p->run[d][k].lo; i < p->run[d][k].hi; i++, ++*size)
            if (i == x) at = *size;
    return at;
}

static void check(const weft_compiled_part *p, const weft_region *r, int64_t first,
                  int64_t n)
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

static void every_element_once(void **state)
{
    unsigned seed = 1;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        weft_compiled_part p = {.type = {.dtype = WEFT_DTYPE_F32}};
        weft_interval      run[4][3];
        weft_region        r = {0};
        int                n = rand_r(&seed) % 4;
        p.type.shape.n = r.global.n = n;
        for (int d = 0; d < n; d++) {
            int64_t size = 1 + rand_r(&seed) % 7, at = 0;
            bool    whole = rand_r(&seed) % 2;
            r.global.d[d] = p.type.shape.d[d] = size;
            p.run[d]                          = run[d];
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
        check(&p, &r, first, 1 + rand_r(&seed) % (all - first));
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(every_element_once),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
