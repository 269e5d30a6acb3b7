/* What the host does of a step is priced by its memory and its link, timed or assumed. */
#include "cost/cost.h"
#include "support/test.h"

static const char text[] =
    "program one rank 0 of 2 micro 1 lanes 1 {\n"
    "  slab work work 4000000\n"
    "  slab there host_state 4000000\n"
    "  slab ring host_work 4000000\n"
    "  buffer g slab work at 0 bytes 4000000\n"
    "  buffer p slab there at 0 bytes 4000000\n"
    "  buffer h slab ring at 0 bytes 4000000\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor a on compute {\n"
    "    copy g (g f32[1000000]) -> (h f32[1000000]) ;\n"
    "    compute u add (h f32[1000000], p f32[1000000]) -> (p f32[1000000]) ;\n"
    "    compute d add (g f32[1000000], g f32[1000000]) -> (g f32[1000000]) ;\n"
    "  }\n"
    "}\n";

static weft_cluster *make_cluster(const char *link, const char *timing)
{
    weft_cluster *c;
    weft_text     t = {0};
    weft_text_add(&t,
                  "name: one\nversion: 1\ndevice:\n  - {name: gpu, like: h100-80g, "
                  "launch_s: 0}\nlink:\n  - {name: nvlink, alpha_s: 0, Bps: 4.5e11}\n%s"
                  "node:\n  - {name: box, count: 1, device: gpu, n_device: 2, link: "
                  "nvlink}\n",
                  link);
    weft_text_add(&t, "%s", timing);
    if (weft_cluster_parse("one", t.s, t.n, &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_text_fini(&t);
    return c;
}

static void check_prices(const char *link, const char *timing, double copy_s,
                         double update_s)
{
    weft_program *p;
    weft_cluster *c = make_cluster(link, timing);
    double        s;
    if (weft_program_parse("one", text, sizeof text - 1, &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    const weft_instr *i = p->actor[0].instr;
    assert_ok(weft_cost_instr(p, &i[0], c, &s));
    assert_true(s > 0.999 * copy_s && s < 1.001 * copy_s);
    assert_ok(weft_cost_instr(p, &i[1], c, &s));
    assert_true(s > 0.999 * update_s && s < 1.001 * update_s);
    assert_ok(weft_cost_instr(p, &i[2], c, &s)); /* the device's own */
    assert_true(s < 1e-5);
    /* slabs of the host are not the device's */
    assert_true(weft_cost_program_bytes(p, weft_cluster_device(c, 0)) == 4000000);
    weft_program_destroy(p);
    weft_cluster_destroy(c);
}

static void by_bandwidth(void **state)
{
    (void)state;
    const char *to_host = "  - {name: to-host, alpha_s: 0, Bps: 1e10, share: 0.8}\n";
    check_prices("", "", 4e6 / 2.5e10, 2 * 12e6 / 2e11); /* two ranks share the memory */
    check_prices(to_host, "", 4e6 / 8e9, 2 * 12e6 / 2e11);
    check_prices(to_host,
                 "timing:\n  - {device: gpu, work: \"host copy\", size: [1000], s: 1}\n"
                 "  - {device: gpu, work: \"host update\", size: [2000], s: 1}\n",
                 4e3, 12e3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_bandwidth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
