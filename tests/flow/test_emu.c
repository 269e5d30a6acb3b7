/* Real plans on emulated devices: every rank's program, compiled from a plan's words, runs in
 * real time on a device that sleeps as long as its cluster says, and takes as long as the
 * simulator said, within 5 %, over links 8 %. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compile/world.h"
#include "sim/fold.h"
#include "support/emu.h"
#include "support/test.h"
#include "support/watch.h"
#include "support/wires.h"

enum {
    MAX_RANK = 64,
    N_STEP   = 2,
    N_TRY    = 8
};

#define LASTS_S         1.0 /* both steps: long against the time that waking a sleeper takes */
#define MESSAGES_LAST_S 3.0 /* with every message of 64 ranks sent */

typedef struct plan_case {
    const char *words, *schedule;
    int         chunks, batch, lanes;
} plan_case;

/* ---- a cluster whose devices are so slow ---- */

/* Everything scales with `slow`, so what is simulated does. */
static weft_cluster *slow_cluster(int n_node, double slow)
{
    char          text[700];
    weft_cluster *c;
    snprintf(text, sizeof text,
             "name: emu\ndevice:\n"
             "  - {name: d, flops: {f32: %.17g}, efficiency: 0.5, mem_Bps: %.17g, "
             "mem_bytes: 1000000000, launch_s: %.17g}\n"
             "link:\n  - {name: l, alpha_s: %.17g, Bps: %.17g}\n"
             "  - {name: m, scope: net, alpha_s: %.17g, Bps: %.17g}\n"
             "node:\n  - {name: n, count: %d, device: d, n_device: 8, link: l, net: m, "
             "n_port: 4}\n",
             1e12 / slow, 1e11 / slow, 1e-6 * slow, 2e-6 * slow, 2e10 / slow, 5e-6 * slow,
             5e9 / slow, n_node);
    if (weft_cluster_parse("emu", text, strlen(text), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

/* A node of eight such devices, and one of eight that take three times as long. */
static weft_cluster *unlike_cluster(double slow)
{
    char          text[900];
    weft_cluster *c;
    snprintf(text, sizeof text,
             "name: emu\ndevice:\n"
             "  - {name: d, flops: {f32: %.17g}, efficiency: 0.5, mem_Bps: %.17g, "
             "mem_bytes: 1000000000, launch_s: %.17g}\n"
             "  - {name: e, flops: {f32: %.17g}, efficiency: 0.5, mem_Bps: %.17g, "
             "mem_bytes: 1000000000, launch_s: %.17g}\n"
             "link:\n  - {name: l, alpha_s: %.17g, Bps: %.17g}\n"
             "  - {name: m, scope: net, alpha_s: %.17g, Bps: %.17g}\n"
             "node:\n  - {name: n, device: d, n_device: 8, link: l, net: m, n_port: 4}\n"
             "  - {name: o, device: e, n_device: 8, link: l, net: m, n_port: 4}\n",
             1e12 / slow, 1e11 / slow, 1e-6 * slow, 1e12 / slow / 3, 1e11 / slow / 3,
             3e-6 * slow, 2e-6 * slow, 2e10 / slow, 5e-6 * slow, 5e9 / slow);
    if (weft_cluster_parse("emu", text, strlen(text), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static double predict(const weft_world *w, const weft_cluster *c)
{
    weft_sim_folded *f;
    if (weft_sim_fold(w, c, &(weft_sim_options){.n_step = N_STEP}, &f) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    double s = f->timeline->total_s;
    weft_sim_folded_destroy(f);
    return s;
}

/* ---- in real time ---- */

/* local[i]: rank i's way without wires, which may be its own. */
static void set_up(const weft_world *w, const weft_cluster *c, weft_device *d,
                   weft_comm_local *world, test_wires *wires, weft_comm **local,
                   test_emu_rank *r)
{
    for (int i = 0; i < w->n; i++) {
        assert_ok(weft_comm_local_join(world, i, 60, &local[i]));
        weft_comm *comm = local[i];
        if (wires) assert_ok(test_wires_join(wires, local[i], &comm));
        test_emu_rank_open(&r[i], w->like[i], d, comm, wires != NULL,
                           (weft_exec_options){.price = test_emu_price, .price_arg = c});
    }
}

static double measure(const weft_world *w, const weft_cluster *c, bool over_wires,
                      double *late_s)
{
    static test_emu_rank r[MAX_RANK];
    weft_comm           *local[MAX_RANK];
    weft_comm_local     *world;
    weft_device         *d;
    test_wires          *wires = NULL;
    assert_true(w->n <= MAX_RANK);
    assert_ok(weft_device_emu_create(&d));
    assert_ok(weft_comm_local_create(w->n, &world));
    if (over_wires) assert_ok(test_wires_create(c, w->n, &wires));
    set_up(w, c, d, world, wires, local, r);
    double s = test_emu_run(r, w->n, N_STEP, late_s);
    for (int i = 0; i < w->n; i++) {
        test_emu_rank_close(&r[i]);
        weft_comm_destroy(r[i].comm);
        if (over_wires) weft_comm_destroy(local[i]);
    }
    test_wires_destroy(wires);
    weft_comm_local_destroy(world);
    weft_device_emu_destroy(d);
    return s;
}

/* ---- plans ---- */

static weft_compiled_world *make_world(const plan_case *x, weft_training *t,
                                       weft_plan **p)
{
    weft_strategy        h;
    weft_compiled_world *w;
    weft_compile_spec    s = weft_compile_spec_default("tiny256", x->batch, 16);
    s.micro_batch          = 1;
    s.lanes                = x->lanes;
    assert_ok(weft_strategy_parse(x->words, &h));
    h.schedule = weft_strategy_word("schedule", x->schedule);
    h.chunks   = x->chunks;
    assert_ok(weft_compile_training(&s, t));
    if (weft_compile_plan(t, &h, 0, p) != WEFT_OK)
        fail_msg("%s: %s", x->words, weft_error_text());
    if (weft_compile_world(t, *p, WEFT_RANKS_EACH, &w) != WEFT_OK)
        fail_msg("%s: %s", x->words, weft_error_text());
    return w;
}

/* How far a run may be from what was said.  Over links replicas drift apart and their messages
 * queue at a port, which the price of a message that shares it with its stage does not know. */
static double tolerance(bool over_wires)
{
    return over_wires ? 0.08 : 0.05;
}

/* True: it ran as long as was said; false: no try did, on a machine that did not keep time. */
static bool runs_as_said(const plan_case *x, const weft_world *w, const weft_cluster *c,
                         bool over_wires)
{
    double said = predict(w, c), took = 0, late_s = INFINITY;
    int    n_kept = 0;
    bool   near   = false;
    for (int i = 0; i < N_TRY && !near; i++) {
        took = measure(w, c, over_wires, &late_s);
        near = fabs(took / said - 1) < tolerance(over_wires);
        n_kept += late_s <= TEST_WATCH_TRUST_S;
    }
    bool kept = near || n_kept > 1; /* one that is off may be chance */
    print_message("%s %s%s: %d ranks, sim %.4f s, emu %.4f s, %+.2f %%%s\n", x->words,
                  x->schedule, over_wires ? " over links" : "", w->n, said, took,
                  100 * (took / said - 1),
                  kept ? "" : ", sleepers woke late: not counted");
    if (kept && !near)
        fail_msg("%s: more than %.0f %% apart", x->words, 100 * tolerance(over_wires));
    return kept;
}

static bool run_case(const plan_case *x, bool over_wires)
{
    weft_training        t;
    weft_plan           *p;
    weft_compiled_world *w     = make_world(x, &t, &p);
    int                  n     = w->world.n;
    weft_cluster        *fast  = slow_cluster((n + 7) / 8, 1);
    double               lasts = over_wires && n > 16 ? MESSAGES_LAST_S : LASTS_S;
    weft_cluster        *c = slow_cluster((n + 7) / 8, lasts / predict(&w->world, fast));
    assert_true(fabs(predict(&w->world, c) / lasts - 1) < 1e-6);
    bool kept = runs_as_said(x, &w->world, c, over_wires);
    weft_cluster_destroy(fast);
    weft_cluster_destroy(c);
    weft_compiled_world_destroy(w);
    weft_plan_destroy(p);
    weft_training_fini(&t);
    return kept;
}

static void run_cases(const plan_case *x, size_t n, bool over_wires)
{
    int n_kept = 0;
    for (size_t i = 0; i < n; i++) n_kept += run_case(&x[i], over_wires);
    if (n_kept) return;
    print_message("skipped: this machine is too busy to wake sleepers up in time\n");
    skip();
}

static void sixteen_devices(void **state)
{
    (void)state;
    const plan_case table[] = {
        {"dp=16", "1f1b", 1, 16, 16},
        {"dp=4 pp=4", "1f1b", 1, 32, 8},
        {"dp=4 pp=4", "gpipe", 1, 32, 8},
        {"dp=4 pp=4", "zb-h1", 1, 32, 8},
        {"dp=8 pp=2", "interleaved", 2, 32, 8},
        {"dp=2 tp=4 pp=2 zero=1", "1f1b", 1, 8, 4},
        {"dp=16 zero=3", "1f1b", 1, 16, 16},
    };
    run_cases(table, WEFT_COUNT(table), false);
}

static void sixty_four_devices(void **state)
{
    (void)state;
    const plan_case table[] = {
        {"dp=64", "1f1b", 1, 64, 64},
        {"dp=16 pp=4", "1f1b", 1, 64, 16},
    };
    run_cases(table, WEFT_COUNT(table), false);
}

/* The same where messages and collectives last as long as links take to carry them. */
static void links_that_take_their_time(void **state)
{
    (void)state;
    const plan_case table[] = {
        {"dp=16", "1f1b", 1, 16, 16},
        {"dp=16 zero=3", "1f1b", 1, 16, 16},
        {"dp=4 pp=4", "1f1b", 1, 32, 4},
        {"dp=4 tp=4", "1f1b", 1, 8, 4},
        {"dp=2 tp=4 pp=2 zero=1", "1f1b", 1, 8, 2},
        {"dp=16 tp=4", "1f1b", 1, 16, 16},
        {"dp=8 tp=4 pp=2", "1f1b", 1, 32, 8},
    };
    run_cases(table, WEFT_COUNT(table), true);
}

/* Half of the devices take three times as long: with shares of three and one the step takes about
 * half of what equal ones take. */
static void shares_by_speed(void **state)
{
    const plan_case equal  = {"dp=16", "1f1b", 1, 256, 32};
    const plan_case shares = {"dp=16 batch_split=3,3,3,3,3,3,3,3,1,1,1,1,1,1,1,1", "1f1b",
                              1, 256, 32};
    weft_training   t, u;
    weft_plan      *p, *q;
    weft_compiled_world *a = make_world(&equal, &t, &p), *b = make_world(&shares, &u, &q);
    weft_cluster        *fast = unlike_cluster(1);
    weft_cluster        *c    = unlike_cluster(2 * LASTS_S / predict(&a->world, fast));
    (void)state;
    double less = predict(&b->world, c) / predict(&a->world, c);
    print_message("shares of 3 and 1: %.3f of the step of equal ones\n", less);
    assert_true(less < 0.6);
    bool kept = runs_as_said(&equal, &a->world, c, false);
    kept      = runs_as_said(&shares, &b->world, c, false) || kept;
    weft_compiled_world_destroy(a);
    weft_compiled_world_destroy(b);
    weft_plan_destroy(p);
    weft_plan_destroy(q);
    weft_training_fini(&t);
    weft_training_fini(&u);
    weft_cluster_destroy(fast);
    weft_cluster_destroy(c);
    if (!kept) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_devices),
        cmocka_unit_test(shares_by_speed),
        cmocka_unit_test(sixty_four_devices),
        cmocka_unit_test(links_that_take_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
