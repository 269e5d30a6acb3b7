/* Resharding: every pair of layouts on meshes of up to 6 ranks; the steps give the right
 * numbers, and no fewer bytes are counted than there have to be. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/fixture.h"
#include "support/shard_apply.h"

static weft_mesh mesh_of(const char *text)
{
    weft_lex  x;
    weft_mesh m;
    weft_lex_init(&x, arena, "mesh", text, strlen(text));
    assert_ok(weft_mesh_parse(&x, arena, &m));
    return m;
}

/* ---- all layouts of a mesh ---- */

#define MAX_LAYOUT 256

/* What an axis can do: 0 nothing, 1.. cut dimension 0.. , then cut 0 by zigzag, by cyclic, sum,
 * max */
static int choices(int n_dim)
{
    return 1 + n_dim + 4;
}

static bool apply_choice(weft_layout *l, int axis, int n_dim, int what)
{
    if (what == 0) return true;
    if (what <= n_dim)
        weft_layout_cut(l, what - 1, axis, WEFT_SPLIT_BLOCK);
    else if (what == n_dim + 1)
        weft_layout_cut(l, 0, axis, WEFT_SPLIT_ZIGZAG);
    else if (what == n_dim + 2)
        weft_layout_cut(l, 0, axis, WEFT_SPLIT_CYCLIC);
    else
        l->unreduced[axis] = what == n_dim + 3 ? WEFT_UNREDUCED_SUM : WEFT_UNREDUCED_MAX;
    return true;
}

static int all_layouts(const weft_mesh *m, int mesh, int n_dim, bool fancy,
                       weft_layout *out)
{
    int n = 0, c = fancy ? choices(n_dim) : n_dim + 1, total = 1;
    if (!fancy) c++; /* sums too */
    for (int a = 0; a < m->n_axis; a++) total *= c;
    for (int order = 0; order < (m->n_axis > 1 ? 2 : 1); order++)
        for (int i = 0; i < total; i++) {
            weft_layout l  = weft_layout_replicated(mesh, n_dim);
            int         at = i, kinds = 0, what[WEFT_MAX_AXIS];
            for (int a = 0; a < m->n_axis; a++, at /= c) {
                what[a] = at % c;
                if (!fancy && what[a] == n_dim + 1) what[a] = n_dim + 3;
                if (what[a] >= n_dim + 3) kinds |= 1 << (what[a] - n_dim - 3);
            }
            if (kinds == 3) continue; /* sum and max at once */
            if (order && (what[0] == 0 || what[0] != what[1] || what[0] > n_dim))
                continue;
            for (int a = 0; a < m->n_axis; a++) {
                int axis = order ? m->n_axis - 1 - a : a;
                apply_choice(&l, axis, n_dim, what[axis]);
            }
            assert_true(n < MAX_LAYOUT);
            out[n++] = l;
        }
    return n;
}

/* ---- numbers ---- */

static bool is_max(const weft_layout *l)
{
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (l->unreduced[a] == WEFT_UNREDUCED_MAX) return true;
    return false;
}

/* The coordinates along unreduced axes as one number, and how many there are. */
static int summand(const weft_mesh *m, const weft_layout *l, int place, int *n)
{
    int c[WEFT_MAX_AXIS], k = 0;
    weft_mesh_coords(m, place, c);
    *n = 1;
    for (int a = 0; a < m->n_axis; a++)
        if (l->unreduced[a]) {
            k = k * m->axis[a].size + c[a];
            *n *= m->axis[a].size;
        }
    return k;
}

static double value_at(int64_t e)
{
    return (double)(e * e % 97 + 3);
}
/* Summand k of n of element e: they add up to the value, or the largest is it. */
static double part_of(int64_t e, int k, int n, bool max)
{
    double sum = 0;
    if (n == 1) return value_at(e);
    if (max) return k == (int)(e % n) ? value_at(e) : value_at(e) - 1 - k;
    if (k > 0) return (double)((e + 5 * k) % 31);
    for (int i = 1; i < n; i++) sum += (double)((e + 5 * i) % 31);
    return value_at(e) - sum;
}

static void fill(test_spread *t)
{
    assert_ok(test_spread_mark(arena, t));
    for (int p = 0; p < t->m->n_rank; p++) {
        int n, k = summand(t->m, &t->l, p, &n);
        for (int64_t e = 0; e < weft_shape_count(&t->s); e++)
            t->x[p][e] = part_of(e, k, n, is_max(&t->l));
    }
}

static void check(const test_spread *t, const weft_layout *to, const char *what)
{
    weft_layout plain = *to;
    test_spread want;
    memset(plain.unreduced, 0, sizeof plain.unreduced);
    assert_ok(test_spread_make(arena, t->m, &plain, &t->s, &want));
    assert_ok(test_spread_mark(arena, &want));
    for (int p = 0; p < t->m->n_rank; p++)
        for (int64_t e = 0; e < weft_shape_count(&t->s); e++) {
            int    n, at[WEFT_MAX_AXIS], c[WEFT_MAX_AXIS];
            double sum = is_max(to) ? -INFINITY : 0;
            if (want.has[p][e] != t->has[p][e])
                fail_msg("%s: place %d has other elements", what, p);
            if (!want.has[p][e]) continue;
            weft_mesh_coords(t->m, p, at);
            summand(t->m, to, p, &n);
            for (int q = 0; q < t->m->n_rank; q++) {
                bool in = true;
                weft_mesh_coords(t->m, q, c);
                for (int a = 0; a < t->m->n_axis; a++)
                    in = in && (to->unreduced[a] || c[a] == at[a]);
                if (in) sum = is_max(to) ? fmax(sum, t->x[q][e]) : sum + t->x[q][e];
            }
            if (fabs(sum - value_at(e)) > 1e-9)
                fail_msg("%s: place %d element %ld is %g, not %g", what, p, (long)e, sum,
                         value_at(e));
        }
}

/* ---- the fewest bytes, element by element ---- */

static int64_t fewest(const test_spread *in, const weft_layout *to)
{
    test_spread      want;
    const weft_mesh *b      = in->m;
    int64_t          sum    = 0;
    weft_layout      f      = in->l;
    uint32_t         kept   = 0;
    int              n_kept = 1, n_part = 1;
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (f.unreduced[a] && f.unreduced[a] == to->unreduced[a]) {
            kept |= 1u << a;
            n_kept *= b->axis[a].size;
        } else if (f.unreduced[a]) {
            n_part *= in->m->axis[a].size;
        }
    assert_ok(test_spread_make(arena, b, to, &in->s, &want));
    assert_ok(test_spread_mark(arena, &want));
    for (int64_t e = 0; e < weft_shape_count(&in->s); e++)
        for (int k = 0; k < n_kept; k++) {
            int  n_line = 0, n_near = 0, line[64];
            bool near[64];
            for (int p = 0; p < b->n_rank; p++) {
                int c[WEFT_MAX_AXIS], kk = 0, id = 0, at = -1;
                weft_mesh_coords(b, p, c);
                for (int a = 0; a < b->n_axis; a++) {
                    if (kept >> a & 1) kk = kk * b->axis[a].size + c[a];
                    if (!to->unreduced[a] || kept >> a & 1) id = id * 8 + c[a];
                }
                if (kk != k || !want.has[p][e]) continue;
                for (int i = 0; i < n_line; i++)
                    if (line[i] == id) at = i;
                if (at < 0) {
                    at       = n_line++;
                    line[at] = id;
                    near[at] = false;
                }
                near[at] = near[at] || in->has[p][e];
            }
            for (int i = 0; i < n_line; i++) n_near += near[i];
            if (!n_line) continue;
            if (n_part == 1)
                sum += n_line - n_near;
            else
                sum += n_part - 1 + n_line - (n_near ? 1 : 0);
        }
    return sum * 4;
}

/* ---- pairs ---- */

static const char *const step_name[] = {"slice",          "spread",     "all_gather",
                                        "reduce_scatter", "all_reduce", "all_to_all"};

typedef struct tally {
    int     n;
    int64_t bytes, bound;
    int     kind[WEFT_COUNT(step_name)];
} tally;

static void count_step(tally *y, const weft_reshard_step *s)
{
    for (size_t i = 0; i < WEFT_COUNT(step_name); i++)
        y->kind[i] += !strcmp(step_name[i], weft_step_name(s));
}

static void try_pair(const weft_mesh *m, const weft_layout *from, const weft_layout *to,
                     const weft_shape *s, tally *y)
{
    weft_type    t = {WEFT_DTYPE_F32, *s};
    weft_reshard r;
    test_spread  in, out;
    weft_text    w = {0};
    if (is_max(from) != is_max(to) && (is_max(from) || is_max(to))) {
        weft_layout l = is_max(from) ? *to : *from;
        for (int i = 0; i < WEFT_MAX_AXIS; i++)
            if (l.unreduced[i]) return; /* sums do not become maxima */
    }
    if (is_max(to) && !is_max(from)) return; /* neutral elements of our test are zeros */
    weft_layout_print(from, m, &w);
    weft_text_add(&w, " to ");
    weft_layout_print(to, m, &w);
    if (weft_reshard_collectives(m, 0, from, to, &t, arena, &r) != WEFT_OK)
        fail_msg("%s: %s", w.s, weft_error_text());
    assert_ok(test_spread_make(arena, m, from, s, &in));
    fill(&in);
    if (test_spread_reshard(arena, &r, &in, &out) != WEFT_OK)
        fail_msg("%s: %s", w.s, weft_error_text());
    check(&out, to, w.s);
    int64_t bound = fewest(&in, to);
    if (r.bytes < bound)
        fail_msg("%s: %ld bytes, there are %ld", w.s, (long)r.bytes, (long)bound);
    y->n++;
    y->bytes += r.bytes;
    y->bound += bound;
    for (int i = 0; i < r.n_step; i++) count_step(y, &r.step[i]);
    weft_text_fini(&w);
}

static void try_all(const char *text, const weft_shape *s, bool fancy, tally *y)
{
    weft_arena *keep = arena;
    weft_mesh   m    = mesh_of(text);
    weft_layout l[MAX_LAYOUT];
    int         n = all_layouts(&m, 0, s->n, fancy, l);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            assert_ok(weft_arena_create(&arena));
            try_pair(&m, &l[i], &l[k], s, y);
            weft_arena_destroy(arena);
        }
    arena = keep;
}

static void all_pairs(void **state)
{
    (void)state;
    tally      y = {0};
    weft_shape s = {.n = 2, .d = {5, 3}}, even = {.n = 2, .d = {12, 6}};
    for (int e = 0; e < 2; e++) {
        const weft_shape *p = e ? &even : &s;
        try_all("mesh m [a=2] from 0", p, true, &y);
        try_all("mesh m [a=3] from 0", p, true, &y);
        try_all("mesh m [a=4] from 0", p, true, &y);
        try_all("mesh m [a=5] from 0", p, true, &y);
        try_all("mesh m [a=6] from 0", p, true, &y);
        try_all("mesh m [a=2, b=2] from 0", p, !e, &y);
        try_all("mesh m [a=2, b=3] from 0", p, false, &y);
        try_all("mesh m [a=3, b=2] from 0", p, false, &y);
    }
    print_message("%d pairs, bytes %.4f of the fewest, steps", y.n,
                  (double)y.bytes / (double)y.bound);
    for (size_t i = 0; i < WEFT_COUNT(step_name); i++) {
        print_message(" %s %d", step_name[i], y.kind[i]);
        assert_true(y.kind[i] > 0);
    }
    print_message("\n");
    assert_true(y.n > 3000);
}

/* ---- by example ---- */

static weft_layout layout_of(const weft_mesh *m, const char *text)
{
    weft_lex    x;
    weft_layout l;
    weft_lex_init(&x, arena, "layout", text, strlen(text));
    assert_ok(weft_layout_parse(&x, m, 0, &l));
    return l;
}

static void expect(const char *mesh, const char *from, const char *to, const char *want)
{
    weft_mesh    m = mesh_of(mesh);
    weft_layout  f = layout_of(&m, from), t = layout_of(&m, to);
    weft_type    ty = {WEFT_DTYPE_F32, {.n = 2, .d = {64, 64}}};
    weft_reshard r;
    char         got[256] = "";
    assert_ok(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r));
    for (int i = 0; i < r.n_step; i++) {
        strcat(got, i ? " " : "");
        strcat(got, weft_step_name(&r.step[i]));
    }
    if (strcmp(got, want)) fail_msg("%s to %s: %s, expected %s", from, to, got, want);
}

static void the_usual_ones(void **state)
{
    (void)state;
    const char *m = "mesh m [dp=2, tp=4] from 0";
    expect(m, "[*, *]", "[dp, *]", "slice");
    expect(m, "[dp, *]", "[*, *]", "all_gather");
    expect(m, "[dp, *]", "[*, dp]", "all_to_all");
    expect(m, "[dp, *] sum(tp)", "[dp, *]", "all_reduce");
    expect(m, "[*, *] sum(tp)", "[*, *]", "all_reduce");
    expect(m, "[dp, *] sum(tp)", "[dp tp, *]", "reduce_scatter");
    expect(m, "[dp tp, *]", "[dp, *]", "all_gather");
    expect(m, "[*, *] sum(dp)", "[*, *] sum(dp)", "");
    expect(m, "[dp, *]", "[dp unit 2, *]", ""); /* even: the same slices */
    expect(m, "[*, tp]", "[*, *] sum(tp)", "spread");
    expect(m, "[dp, *] pair(tp)", "[dp, *]", "all_reduce");
}

static void scalars_are_reduced_at_once(void **state)
{
    (void)state;
    weft_mesh    m = mesh_of("mesh m [dp=4, tp=2] from 0");
    weft_layout  f = layout_of(&m, "[] sum(dp) sum(tp)"), t = layout_of(&m, "[]");
    weft_type    ty = {WEFT_DTYPE_F64, {.n = 0}};
    weft_reshard r;
    assert_ok(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r));
    assert_int_equal(r.n_step, 1);
    assert_true(weft_step_is(&r.step[0], WEFT_ALL_REDUCE));
    assert_int_equal(r.step[0].axes, 3);
    assert_int_equal(r.bytes, 14 * 8);
    f = layout_of(&m, "[] sum(dp)"); /* no messages of its own for a number */
    assert_ok(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r));
    assert_int_equal(r.n_step, 1);
    assert_true(weft_step_is(&r.step[0], WEFT_ALL_REDUCE));
}

static void quick_ones(void **state)
{
    (void)state;
    weft_mesh    m = mesh_of("mesh m [dp=4, tp=2] from 0");
    weft_layout  f = layout_of(&m, "[*, *] sum(dp)"), t = layout_of(&m, "[dp unit 2, *]");
    weft_type    ty = {WEFT_DTYPE_F32, {.n = 2, .d = {768, 3}}};
    weft_reshard r;
    assert_ok(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r));
    assert_int_equal(r.n_step, 1);
    assert_true(weft_step_is(&r.step[0], WEFT_REDUCE_SCATTER));
}

/* Ranks along the lanes have other micro-batches: they cannot help, whatever it saves. */
static void lanes_stand_still(void **state)
{
    (void)state;
    weft_mesh    m  = mesh_of("mesh m [dp=2, tp=4] from 0");
    weft_layout  f  = layout_of(&m, "[*, *, *] sum(tp)");
    weft_layout  t  = layout_of(&m, "[*, tp, *]");
    weft_type    ty = {WEFT_DTYPE_F32, {.n = 3, .d = {1, 1024, 4096}}};
    weft_reshard r;
    assert_ok(weft_reshard_collectives(&m, 1, &f, &t, &ty, arena, &r));
    for (int i = 0; i < r.n_step; i++) assert_int_equal(r.step[i].axes & 1, 0);
    assert_int_equal(r.n_step, 1);
}

static void slow_links_are_spared(void **state)
{
    (void)state;
    /* unreduced over both: scatter inside first, so that little crosses the slow links */
    weft_mesh   m   = mesh_of("mesh m [node=2 link 1, gpu=4] from 0");
    weft_layout f   = layout_of(&m, "[*, *] sum(node) sum(gpu)"),
                t   = layout_of(&m, "[*, *]");
    weft_type    ty = {WEFT_DTYPE_F32, {.n = 2, .d = {4096, 4096}}};
    weft_reshard r;
    assert_ok(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r));
    int64_t whole = 4 * 4096 * 4096, slow = 0;
    for (int i = 0; i < r.n_step; i++)
        if (r.step[i].axes & 1) slow += r.step[i].bytes;
    assert_true(slow > 0 && slow <= 2 * whole);
}

static void ragged_rows_stay(void **state)
{
    (void)state;
    weft_mesh    m = mesh_of("mesh m [ep=2] from 0");
    weft_layout  f = layout_of(&m, "[ep own, *]"), t = layout_of(&m, "[*, *]");
    weft_type    ty = {WEFT_DTYPE_F32, {.n = 2, .d = {8, 8}}};
    weft_reshard r;
    assert_fails(weft_reshard_collectives(&m, 0, &f, &t, &ty, arena, &r), WEFT_ERR_ARG,
                 "stay where they are");
    assert_ok(weft_reshard_collectives(&m, 0, &f, &f, &ty, arena, &r));
    assert_int_equal(r.n_step, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(all_pairs),
        with_arena(the_usual_ones),
        with_arena(scalars_are_reduced_at_once),
        with_arena(quick_ones),
        with_arena(lanes_stand_still),
        with_arena(slow_links_are_spared),
        with_arena(ragged_rows_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
