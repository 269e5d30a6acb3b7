/* What the search leaves out for its time: on machines with few measured times, where a piece of
 * work may take less than its share of the whole, the answer is that of a search which leaves
 * nothing out, and the bound is one. */
#include <math.h>

#include "planner/rows.h"
#include "support/rows.h"
#include "support/test.h"

static uint64_t draw(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % (uint64_t)n;
}

/* From a twentieth of what the kind of device would take to twenty times that. */
static double stretched(uint64_t *r, double s)
{
    return s * pow(20, (double)draw(r, 2001) / 1000 - 1);
}

/* A machine of which one to four sizes of work were measured. */
static weft_cluster *few_times(uint64_t *r, int n_device)
{
    static const char *const product[] = {"matmul nn+add", "matmul nn", "matmul nt",
                                          "matmul tn", "matmul nn+add+gelu"};
    static const char *const other[]   = {"layer_norm", "add", "gelu", "stream"};
    weft_text                t         = {0};
    weft_cluster            *c;
    int                      n = 1 + (int)draw(r, 4);
    weft_text_add(&t,
                  "name: few\ndevice:\n  - {name: mine, like: a100-80g}\nnode:\n"
                  "  - {name: box, count: 1, device: mine, n_device: %d, link: nvlink3}\n"
                  "timing:\n",
                  n_device);
    for (int i = 0; i < n; i++) {
        int m = 64 << draw(r, 6), k = 64 << draw(r, 5), w = 64 << draw(r, 6);
        if (draw(r, 3))
            weft_text_add(
                &t, "  - {device: mine, work: \"%s\", size: [%d, %d, %d], s: %.3g}\n",
                product[draw(r, 5)], m, w, k,
                stretched(r, 1e-6 + 2.0 * m * w * k / 2e14));
        else
            weft_text_add(&t, "  - {device: mine, work: %s, size: [%d], s: %.3g}\n",
                          other[draw(r, 4)], m * w, stretched(r, 1e-6 + m * w / 1e12));
    }
    if (draw(r, 2))
        weft_text_add(
            &t, "  - {link: nvlink3, work: all_reduce, n: 2, size: [65536], s: %.3g}\n",
            stretched(r, 1e-5));
    assert_ok(weft_cluster_parse("few", t.s, t.n, &c));
    weft_text_fini(&t);
    return c;
}

static void ask(const weft_compile_spec *s, weft_cluster *c, int batch, int number)
{
    weft_search_limits   l = weft_search_limits_of("weft");
    weft_arena          *a;
    weft_search_machines hw;
    weft_search_problem  p = {.machines = &hw, .batch = batch, .n_best = 1};
    weft_search_result  *quick, *whole;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_planner_machines(c, a, &hw));
    test_rows_open(s, c, &l, a, &p.model);
    weft_search_open(&p.constraints);
    assert_ok(weft_search_run(&p, &quick));
    p.exhaustive = true;
    p.n_best     = 30;
    assert_ok(weft_search_run(&p, &whole));
    double best = whole->choice[0].score.step_s, found = quick->choice[0].score.step_s;
    if (quick->bound_s > best * (1 + 1e-9) || found > best * (1 + 1e-9)) {
        weft_text t = {0};
        assert_ok(weft_cluster_print(c, &t));
        fail_msg("case %d: found %.9g s, bound %.9g, but there is one of %.9g on\n%s",
                 number, found, quick->bound_s, best, t.s);
    }
    weft_search_destroy(quick);
    weft_search_destroy(whole);
    weft_planner_rows_fini(&p.model);
    weft_arena_destroy(a);
}

static void few_times_mislead_no_bound(void **state)
{
    (void)state;
    for (int i = 0; i < (TEST_LONG ? 6 : WEFT_TEST_SANITIZED ? 1 : 2); i++) {
        uint64_t          r = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        weft_cluster     *c = few_times(&r, 2 << draw(&r, 2));
        weft_compile_spec s = weft_compile_spec_default(draw(&r, 2) ? "gpt2" : "tiny256",
                                                        8, draw(&r, 2) ? 128 : 32);
        s.micro_batch = 0;
        ask(&s, c, 8, i);
        weft_cluster_destroy(c);
    }
}

/* A product that was measured at a twentieth of its rate is fused with the bias only where it is
 * not cut. */
static void a_slow_product_is_cut(void **state)
{
    static const char text[] =
        "name: slow\ndevice:\n  - {name: mine, like: a100-80g}\nnode:\n"
        "  - {name: box, count: 1, device: mine, n_device: 8, link: nvlink3}\ntiming:\n"
        "  - {device: mine, work: \"matmul nn+add\", size: [512, 1024, 256], s: "
        "2.1e-05}\n";
    weft_compile_spec s = weft_compile_spec_default("gpt2-large", 16, 1024);
    weft_cluster     *c;
    (void)state;
    if (WEFT_TEST_SANITIZED) skip(); /* nothing but more of the same */
    s.dtype       = "bf16";
    s.micro_batch = 0;
    assert_ok(weft_cluster_parse("slow", text, sizeof text - 1, &c));
    ask(&s, c, 16, -1);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_product_is_cut),
        cmocka_unit_test(few_times_mislead_no_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
