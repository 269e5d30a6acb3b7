/* Meshes and layouts: local regions tile the tensor once for each group of replicas, whatever the
 * layout; text reads back; mistakes are named. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "shard/shard.h"
#include "support/fixture.h"

static uint32_t counter;

static int setup(void **state)
{
    counter = 0;
    return test_arena_setup(state);
}
static int below(int n)
{
    uint32_t key[2] = {11, 0}, ctr[4] = {counter++, 0, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return (int)(w[0] % (uint32_t)n);
}

static weft_mesh random_mesh(void)
{
    static const char *const name[] = {"a", "b", "c"};
    weft_mesh_axis           axis[3];
    weft_mesh                m;
    int                      n = below(4);
    for (int i = 0; i < n; i++)
        axis[i] = (weft_mesh_axis){name[i], 1 + below(4), below(2)};
    assert_ok(weft_mesh_make(arena, "m", n, axis, below(5), &m));
    if (below(2)) { /* ranks in any order */
        int32_t *r = weft_arena_memdup(arena, m.rank, sizeof *r * (size_t)m.n_rank);
        for (int i = m.n_rank - 1; i > 0; i--) {
            int     k = below(i + 1);
            int32_t t = r[i];
            r[i]      = r[k];
            r[k]      = t;
        }
        m.rank = r;
    }
    return m;
}

/* Dimensions of composite size, so that units and periods have something to divide. */
static weft_layout random_layout(const weft_mesh *m, weft_shape *s)
{
    weft_layout l;
    *s = (weft_shape){.n = 1 + below(3)};
    for (int d = 0; d < s->n; d++) s->d[d] = below(8) ? 1 + below(13) : 0;
    if (below(3) == 0) s->d[0] = 3 * (1 + below(4));
    l = weft_layout_replicated(0, s->n);
    for (int a = 0; a < m->n_axis; a++) {
        int what = below(s->n + 2);
        if (what == s->n + 1) continue;
        if (what == s->n) {
            l.unreduced[a] = (uint8_t)(1 + below(3));
            continue;
        }
        weft_layout_cut(&l, what, a, (weft_split_order)below(3));
        if (below(3) == 0) l.split[l.n - 1].unit = 1 + below(3);
        if (what == 0 && s->d[0] % 3 == 0 && s->d[0] && below(2))
            l.split[l.n - 1].unit = 1, l.split[l.n - 1].period = 3;
        else if (what == 0 && s->d[0] % 3 == 0)
            l.split[l.n - 1].unit = 3;
    }
    return l;
}

/* Places with the same coordinates on all axes that do not cut hold one whole tensor together. */
static void check_tiles(const weft_mesh *m, const weft_layout *l, const weft_shape *s)
{
    int64_t n    = weft_shape_count(s);
    int    *seen = WEFT_ARENA_ARRAY(arena, int, n + 1);
    for (int lead = 0; lead < m->n_rank; lead++) {
        int  at[WEFT_MAX_AXIS], c[WEFT_MAX_AXIS];
        bool first = true;
        weft_mesh_coords(m, lead, at);
        for (int i = 0; i < l->n; i++) first = first && at[l->split[i].axis] == 0;
        if (!first) continue;
        memset(seen, 0, sizeof *seen * (size_t)(n + 1));
        for (int p = 0; p < m->n_rank; p++) {
            bool         in = true;
            weft_region *r;
            int          n_r;
            int64_t      count = 0;
            weft_mesh_coords(m, p, c);
            for (int a = 0; a < m->n_axis; a++)
                in = in && (c[a] == at[a] || weft_layout_find(l, a));
            if (!in) continue;
            assert_ok(weft_layout_regions(l, m, s, p, arena, &r, &n_r));
            for (int i = 0; i < n_r; i++) {
                count += weft_region_count(&r[i]);
                for (int64_t e = 0; e < weft_region_count(&r[i]); e++) {
                    int64_t left = e, to = 0, x[WEFT_MAX_DIM];
                    for (int d = s->n - 1; d >= 0; d--) {
                        x[d] = r[i].offset[d] + left % r[i].extent[d];
                        left /= r[i].extent[d];
                    }
                    for (int d = 0; d < s->n; d++) to = to * s->d[d] + x[d];
                    seen[to]++;
                }
            }
            weft_shape local = weft_layout_local(l, m, s, p);
            assert_int_equal(weft_shape_count(&local), count);
        }
        for (int64_t e = 0; e < n; e++)
            if (seen[e] != 1)
                fail_msg("element %ld lies in %d regions", (long)e, seen[e]);
    }
}

static void check_text(const weft_mesh *m, const weft_layout *l)
{
    weft_text   t = {0};
    weft_lex    x;
    weft_mesh   m2;
    weft_layout l2;
    weft_mesh_print(m, &t);
    weft_text_add(&t, " ");
    weft_layout_print(l, m, &t);
    assert_ok(weft_text_status(&t));
    weft_lex_init(&x, arena, "text", t.s, t.n);
    assert_ok(weft_mesh_parse(&x, arena, &m2));
    assert_ok(weft_layout_parse(&x, &m2, 0, &l2));
    assert_int_equal(x.tok, WEFT_TOK_END);
    if (!weft_mesh_equal(m, &m2) || !weft_layout_equal(l, &l2)) fail_msg("%s", t.s);
    weft_text_fini(&t);
}

static void random_layouts_tile(void **state)
{
    (void)state;
    int n_uneven = 0;
    for (int i = 0; i < 10000; i++) {
        weft_arena_destroy(arena);
        assert_ok(weft_arena_create(&arena));
        weft_mesh   m = random_mesh();
        weft_shape  s;
        weft_layout l = random_layout(&m, &s);
        if (weft_layout_verify(&l, &m, &s) != WEFT_OK) { /* cuts across each other */
            i--;
            continue;
        }
        check_tiles(&m, &l, &s);
        check_text(&m, &l);
        weft_shape a = weft_layout_local(&l, &m, &s, 0),
                   b = weft_layout_local(&l, &m, &s, m.n_rank - 1);
        n_uneven += !weft_shape_equal(&a, &b);
    }
    assert_true(n_uneven > 1000);
}

static void the_rule_for_sizes(void **state)
{
    (void)state;
    weft_mesh   m;
    weft_shape  s = {.n = 1, .d = {5}};
    weft_layout l = weft_layout_replicated(0, 1);
    assert_ok(weft_mesh_make(arena, "m", 1, &(weft_mesh_axis){"a", 3, 0}, 0, &m));
    weft_layout_cut(&l, 0, 0, WEFT_SPLIT_BLOCK);
    const int64_t want[] = {2, 2, 1};
    for (int p = 0; p < 3; p++)
        assert_int_equal(weft_layout_local(&l, &m, &s, p).d[0], want[p]);
    s.d[0]             = 300; /* by 256: one whole unit, one short one, nothing */
    l.split[0].unit    = 256;
    const int64_t w2[] = {256, 44, 0};
    for (int p = 0; p < 3; p++)
        assert_int_equal(weft_layout_local(&l, &m, &s, p).d[0], w2[p]);
}

static void zigzag_has_two(void **state)
{
    (void)state;
    weft_mesh    m;
    weft_shape   s = {.n = 2, .d = {8, 3}};
    weft_layout  l = weft_layout_replicated(0, 2);
    weft_region *r;
    int          n;
    assert_ok(weft_mesh_make(arena, "m", 1, &(weft_mesh_axis){"cp", 2, 0}, 0, &m));
    weft_layout_cut(&l, 0, 0, WEFT_SPLIT_ZIGZAG);
    assert_ok(weft_layout_regions(&l, &m, &s, 0, arena, &r, &n));
    assert_int_equal(n, 2);
    assert_int_equal(r[0].offset[0], 0);
    assert_int_equal(r[1].offset[0], 6);
    assert_ok(weft_layout_regions(&l, &m, &s, 1, arena, &r, &n));
    assert_int_equal(n, 1); /* its two runs touch */
    assert_int_equal(r[0].offset[0], 2);
    assert_int_equal(r[0].extent[0], 4);
}

static void even_units_are_equal(void **state)
{
    (void)state;
    weft_mesh   m;
    weft_shape  s = {.n = 1, .d = {24}};
    weft_layout a = weft_layout_replicated(0, 1), b;
    assert_ok(weft_mesh_make(arena, "m", 1, &(weft_mesh_axis){"a", 3, 0}, 0, &m));
    weft_layout_cut(&a, 0, 0, WEFT_SPLIT_BLOCK);
    b               = a;
    b.split[0].unit = 4;
    assert_true(weft_layout_same(&a, &b, &m, &s));
    assert_false(weft_layout_equal(&a, &b));
    b.split[0].unit = 6;
    assert_false(weft_layout_same(&a, &b, &m, &s));
}

static void mistakes_are_named(void **state)
{
    (void)state;
    weft_mesh      m;
    weft_shape     s       = {.n = 2, .d = {4, 6}};
    weft_mesh_axis axis[2] = {{"dp", 2, 0}, {"tp", 2, 0}};
    weft_layout    l       = weft_layout_replicated(0, 2);
    assert_ok(weft_mesh_make(arena, "m", 2, axis, 0, &m));
    weft_layout_cut(&l, 0, 0, WEFT_SPLIT_BLOCK);
    weft_layout_cut(&l, 1, 0, WEFT_SPLIT_BLOCK);
    assert_fails(weft_layout_verify(&l, &m, &s), WEFT_ERR_ARG, "axis dp is used twice");
    l.n            = 1;
    l.unreduced[0] = WEFT_UNREDUCED_SUM;
    assert_fails(weft_layout_verify(&l, &m, &s), WEFT_ERR_ARG,
                 "both cuts and is unreduced");
    l.unreduced[0] = 0;
    l.split[0].dim = 2;
    assert_fails(weft_layout_verify(&l, &m, &s), WEFT_ERR_ARG, "cuts dimension 2 of 2");
    axis[1].name = "dp";
    assert_fails(weft_mesh_make(arena, "m", 2, axis, 0, &m), WEFT_ERR_ARG, "twice");
    axis[1] = (weft_mesh_axis){"zigzag", 2, 0};
    assert_fails(weft_mesh_make(arena, "m", 2, axis, 0, &m), WEFT_ERR_ARG, "no name for");
    m.rank = (int32_t[]){0, 1, 2, 1};
    assert_fails(weft_mesh_verify(&m), WEFT_ERR_ARG, "rank 1 stands there twice");
}

static void marks_read_back(void **state)
{
    (void)state;
    weft_mesh      m;
    weft_mesh_axis axis[2] = {{"dp", 2, 0}, {"tp", 2, 0}};
    const char    *text =
        "mark \"h.*.c_fc.weight\" [dp unit 256 ?, tp] never(dp) rest priority 1";
    weft_lex  x;
    weft_mark k;
    weft_text t = {0};
    assert_ok(weft_mesh_make(arena, "m", 2, axis, 0, &m));
    weft_lex_init(&x, arena, "text", text, strlen(text));
    assert_ok(weft_mark_parse(&x, &m, &k));
    weft_mark_print(&k, &m, &t);
    assert_string_equal(t.s, text);
    weft_text_fini(&t);
    assert_true(weft_mark_matches(&k, "h.11.mlp.c_fc.weight"));
    assert_false(weft_mark_matches(&k, "h.11.mlp.c_fc.weight.m"));
    assert_int_equal(k.open, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_layouts_tile, setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(the_rule_for_sizes, setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(zigzag_has_two, setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(even_units_are_equal, setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_named, setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(marks_read_back, setup, test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
