/* Messages, collectives and readers on a device whose memory the host does not reach. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/exec.h"
#include "support/test.h"

enum {
    N = 2
};

/* Each rank: samples are read into work memory, two lanes of them summed over ranks, and parts of
 * two tensors are gathered, one of them where it is. */
static const char staged_text[] =
    "program staged rank %d of 2 micro 2 lanes 4 {\n"
    "  slab work work 1024\n"
    "  buffer all slab work at 384 bytes 64\n"
    "  buffer own slab work at 448 bytes 64\n"
    "  buffer whole slab work at 512 bytes 64\n"
    "  buffer got slab work at 576 bytes 64\n"
    "  buffer mine slab work at 640 bytes 64\n"
    "  buffer x slab work at 0 bytes 64\n"
    "  buffer g slab work at 64 bytes 64 slots 2 by lane\n"
    "  buffer sum slab work at 256 bytes 64\n"
    "  group [0,1]\n"
    "  bind step_input mine mine f32[4]\n"
    "  bind output all all f32[8]\n"
    "  bind step_input own own f32[2]\n"
    "  bind output whole whole f32[4]\n"
    "  bind output got got f32[4]\n"
    "  bind output sum sum f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor read on compute { read x -> (x f32[4]) ; }\n"
    "  actor add on compute { compute g reduce \"axes=[0]\" (x f32[1,4]) -> (g f32[4]) "
    "add 1 ; }\n"
    "  actor end on compute {\n"
    "    copy all (mine f32[4]) -> (all + %d f32[4]) ;\n"
    "    collective sum all_reduce group 0 lanes 4 tag 1 (g f32[4]) -> (sum f32[4]) ;\n"
    "    collective whole all_gather group 0 tag 2 (own f32[2]) -> (whole f32[4]) ;\n"
    "    collective all all_gather group 0 unit 1 tag 3 (all + %d f32[4]) -> (all "
    "f32[8]) ;\n"
    "    %s\n"
    "  }\n"
    "  list compute { read 0; add 0 first; read 1; add 1 lane 1 first; end; }\n"
    "}\n";

typedef struct rank {
    weft_program *p;
    weft_exec    *e;
    weft_comm    *comm;
    pthread_t     thread;
    weft_status   st;
    char          text[256];
    float         all[8], whole[4], sum[4], got[4];
} rank;

static weft_status give_samples(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    const rank *r = user;
    for (int k = 0; n == 1 && k < 4; k++)
        ((float *)out[0].p)[k] =
            (float)(1 + step + 2 * micro + 10 * k) / (float)(3 + r->p->rank);
    return WEFT_OK;
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    r->st   = weft_exec_run(r->e, 0, 3);
    snprintf(r->text, sizeof r->text, "%s", weft_error_text());
    return NULL;
}

static void open_rank(rank *r, int k, weft_device *d, weft_comm_local *world)
{
    char  text[4096];
    float x[8];
    snprintf(text, sizeof text, staged_text, k, 4 * k, 4 * k,
             k ? "recv got from 0 tag 4 credits 1 -> (got f32[4]) ;"
               : "send got to 1 tag 4 credits 1 (whole f32[4]) ;");
    assert_ok(weft_program_parse("text", text, strlen(text), &r->p));
    assert_ok(weft_program_verify(r->p));
    assert_ok(weft_comm_local_join(world, k, 20, &r->comm));
    assert_ok(test_exec_create(
        r->p,
        &(weft_exec_options){
            .device = {d}, .comm = r->comm, .read = give_samples, .user = r},
        &r->e));
    for (int i = 0; i < 8; i++) x[i] = (float)(i + 100 * k);
    assert_ok(weft_exec_write(r->e, "mine", 0, NULL, x));
    assert_ok(weft_exec_write(r->e, "own", 0, NULL, x));
}

static void run_ranks(rank *r, weft_device *d)
{
    weft_comm_local *world;
    assert_ok(weft_comm_local_create(N, &world));
    for (int k = 0; k < N; k++) open_rank(&r[k], k, d, world);
    for (int k = 0; k < N; k++) pthread_create(&r[k].thread, NULL, rank_main, &r[k]);
    for (int k = 0; k < N; k++) pthread_join(r[k].thread, NULL);
    for (int k = 0; k < N; k++) {
        if (r[k].st != WEFT_OK) fail_msg("rank %d: %s", k, r[k].text);
        assert_ok(weft_exec_read(r[k].e, "all", 0, NULL, r[k].all));
        assert_ok(weft_exec_read(r[k].e, "whole", 0, NULL, r[k].whole));
        assert_ok(weft_exec_read(r[k].e, "sum", 0, NULL, r[k].sum));
        assert_ok(weft_exec_read(r[k].e, "got", 0, NULL, r[k].got));
    }
    for (int k = 0; k < N; k++) {
        test_exec_destroy(r[k].e);
        weft_comm_destroy(r[k].comm);
        weft_program_destroy(r[k].p);
    }
    weft_comm_local_destroy(world);
}

static void host_work_is_staged(void **state)
{
    (void)state;
    rank cpu[N] = {{0}}, guard[N] = {{0}};
    run_ranks(cpu, weft_device_cpu());
    run_ranks(guard, weft_device_guard());
    const float all[8] = {0, 1, 2, 3, 100, 101, 102, 103}, whole[4] = {0, 1, 100, 101};
    for (int k = 0; k < N; k++) {
        assert_memory_equal(guard[k].all, all, sizeof all);
        assert_memory_equal(guard[k].whole, whole, sizeof whole);
        assert_memory_equal(guard[k].sum, cpu[k].sum, sizeof cpu[k].sum);
        assert_true(guard[k].sum[3] > 10);
    }
    assert_memory_equal(guard[1].got, whole, sizeof whole);
}

/* A binding in device memory has no address for the host. */
static void bindings_have_no_address(void **state)
{
    (void)state;
    rank             r;
    weft_comm_local *world;
    weft_view        v;
    float            x[8];
    assert_ok(weft_comm_local_create(N, &world));
    open_rank(&r, 0, weft_device_guard(), world);
    assert_fails(weft_exec_binding(r.e, "mine", 0, &v), WEFT_ERR_ARG,
                 "only the device reaches");
    assert_ok(weft_exec_read(r.e, "mine", 0, NULL, x));
    assert_true(x[3] == 3);
    test_exec_destroy(r.e);
    weft_comm_destroy(r.comm);
    weft_program_destroy(r.p);
    weft_comm_local_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_work_is_staged),
        cmocka_unit_test(bindings_have_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
