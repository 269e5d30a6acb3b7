#include "support/emu.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "cost/cost.h"
#include "support/exec.h"
#include "support/test.h"
#include "support/watch.h"

void test_emu_rank_open(test_emu_rank *r, const weft_program *p, weft_device *d,
                        weft_comm *comm, bool wires, weft_exec_options o)
{
    r->comm = comm;
    assert_ok(test_carrier_create(p, comm, wires, &r->carrier));
    o.device[0] = d;
    o.comm      = comm;
    o.carry     = test_carry;
    o.carry_arg = r->carrier;
    if (!o.price) o.price = weft_exec_stated_seconds;
    assert_ok(test_exec_create(p, &o, &r->e));
}

void test_emu_rank_close(test_emu_rank *r)
{
    test_exec_destroy(r->e);
    test_carrier_destroy(r->carrier);
}

void test_emu_open(test_emu *e, weft_program **p, int n, int trace)
{
    assert_true(n <= TEST_EMU_RANKS);
    e->n = n;
    assert_ok(weft_device_emu_create(&e->device));
    assert_ok(weft_comm_local_create(n, &e->world));
    for (int i = 0; i < n; i++) {
        weft_comm *comm;
        assert_ok(weft_comm_local_join(e->world, i, 30, &comm));
        test_emu_rank_open(&e->rank[i], p[i], e->device, comm, false,
                           (weft_exec_options){.trace = trace});
    }
}

void test_emu_close(test_emu *e)
{
    for (int i = 0; i < e->n; i++) {
        test_emu_rank_close(&e->rank[i]);
        weft_comm_destroy(e->rank[i].comm);
    }
    weft_comm_local_destroy(e->world);
    weft_device_emu_destroy(e->device);
}

static void *rank_main(void *arg)
{
    test_emu_rank *r = arg;
    r->begin_s       = weft_clock_s();
    r->st            = weft_exec_run(r->e, 0, r->n_step);
    r->end_s         = weft_clock_s();
    snprintf(r->text, sizeof r->text, "%s", weft_error_text());
    return NULL;
}

double test_emu_run(test_emu_rank *r, int n, int n_step, double *late_s)
{
    double     begin = INFINITY, end = 0;
    test_watch w;
    test_watch_start(&w);
    for (int i = 0; i < n; i++) {
        r[i].n_step = n_step;
        pthread_create(&r[i].thread, NULL, rank_main, &r[i]);
    }
    for (int i = 0; i < n; i++) pthread_join(r[i].thread, NULL);
    *late_s = test_watch_stop(&w);
    *late_s = fmax(*late_s, w.waited_s / n);
    for (int i = 0; i < n; i++) {
        if (r[i].st != WEFT_OK) fail_msg("rank %d: %s", i, r[i].text);
        begin = fmin(begin, r[i].begin_s);
        end   = fmax(end, r[i].end_s);
    }
    return end - begin;
}

weft_status test_emu_price(const weft_program *p, const weft_instr *i, const void *arg,
                           double *seconds)
{
    return weft_cost_instr(p, i, arg, seconds);
}
