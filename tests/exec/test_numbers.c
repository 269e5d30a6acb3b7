/* Two runs of one step: a rank that sends other numbers though it has received the same is found;
 * one that passes on what it got from it is not. */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>

#include "support/exec.h"

enum {
    N_RANK = 2
};

/* Gradients are summed; then each rank gathers a part of the norm of what it got. */
static const char text[] =
    "program numbers rank %d of 2 micro 1 lanes 1 {\n"
    "  slab state state 64\n"
    "  slab work work 320\n"
    "  slab staging staging 64\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer g slab work at 0 bytes 64\n"
    "  buffer sum slab work at 64 bytes 64\n"
    "  buffer part slab work at 128 bytes 64\n"
    "  buffer parts slab work at 192 bytes 64\n"
    "  buffer next slab work at 256 bytes 64\n"
    "  buffer x slab staging at 0 bytes 64\n"
    "  group [0,1]\n"
    "  bind param w w f32[8]\n"
    "  bind input x x f32[8]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor read on compute { read x -> (x f32[8]) ; }\n"
    "  actor update on compute {\n"
    "    compute g mul (x f32[8], w f32[8]) -> (g f32[8]) ;\n"
    "    collective sum all_reduce group 0 tag 1 (g f32[8]) -> (sum f32[8]) ;\n"
    "    compute part mul (sum f32[8], sum f32[8]) -> (part f32[8]) ;\n"
    "    collective parts all_gather group 0 tag 2 (part f32[4]) -> (parts f32[8]) ;\n"
    "    commit step ;\n"
    "    compute next mul (sum f32[8], parts f32[8]) -> (next f32[8]) ;\n"
    "    compute w add (w f32[8], next f32[8]) -> (w f32[8]) ;\n"
    "  }\n"
    "  list compute { read 0; update; }\n"
    "}\n";

typedef struct member {
    int rank, wrong; /* the run (from 0) in which it computes a wrong number; -1 none */
    weft_comm  *comm;
    int         n_run;
    bool        other[2]; /* after the second run, after a third like it */
    weft_status st;
} member;

static weft_status give_samples(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    const member *m = user;
    (void)step, (void)micro, (void)n;
    for (int k = 0; k < 8; k++) ((float *)out[0].p)[k] = 1.0f + (float)(m->rank + k);
    if (m->n_run == m->wrong) ((float *)out[0].p)[0] = 1e30f;
    return WEFT_OK;
}

static weft_status hold_step(void *user, int64_t step, int n, const double *value,
                             bool *hold)
{
    (void)user, (void)step, (void)n, (void)value;
    *hold = true;
    return WEFT_OK;
}

static weft_status run_member(member *m)
{
    char              copy[sizeof text + 16];
    const float       w[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    weft_program     *p    = NULL;
    weft_exec        *e    = NULL;
    weft_status       st   = WEFT_OK;
    weft_exec_options o    = {
           .comm = m->comm, .read = give_samples, .commit = hold_step, .user = m};
    snprintf(copy, sizeof copy, text, m->rank);
    WEFT_GO(weft_program_parse("numbers", copy, strlen(copy), &p));
    WEFT_GO(test_exec_create(p, &o, &e));
    WEFT_GO(weft_exec_write(e, "w", 0, NULL, w));
    for (m->n_run = 0; m->n_run < 3; m->n_run++) {
        WEFT_GO(weft_exec_run(e, 5, 1));
        if (m->n_run) m->other[m->n_run - 1] = weft_exec_sent_other(e);
        weft_exec_keep_numbers(e);
    }
out:
    test_exec_destroy(e);
    weft_program_destroy(p);
    return st;
}

static void *run_thread(void *arg)
{
    member *m = arg;
    m->st     = run_member(m);
    return NULL;
}

static void compare_runs(int wrong_rank, int wrong_run, member *m)
{
    weft_comm_local *hub;
    pthread_t        thread[N_RANK];
    assert_ok(weft_comm_local_create(N_RANK, &hub));
    for (int r = 0; r < N_RANK; r++) {
        m[r] = (member){.rank = r, .wrong = r == wrong_rank ? wrong_run : -1};
        assert_ok(weft_comm_local_join(hub, r, 20, &m[r].comm));
        assert_int_equal(pthread_create(&thread[r], NULL, run_thread, &m[r]), 0);
    }
    for (int r = 0; r < N_RANK; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < N_RANK; r++) {
        assert_int_equal(m[r].st, WEFT_OK);
        weft_comm_destroy(m[r].comm);
    }
    weft_comm_local_destroy(hub);
}

static void the_rank_that_computed_them_is_found(void **state)
{
    member m[N_RANK];
    (void)state;
    for (int wrong = 0; wrong < N_RANK; wrong++) {
        compare_runs(wrong, 0, m); /* wrong, right, right */
        for (int r = 0; r < N_RANK; r++) {
            assert_int_equal(m[r].other[0], r == wrong);
            assert_false(m[r].other[1]);
        }
        compare_runs(wrong, 1, m); /* right, wrong, right */
        for (int r = 0; r < N_RANK; r++)
            assert_true(m[r].other[0] == (r == wrong) && m[r].other[1] == (r == wrong));
    }
    compare_runs(-1, 0, m);
    assert_true(!m[0].other[0] && !m[1].other[0] && !m[0].other[1] && !m[1].other[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_computed_them_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
