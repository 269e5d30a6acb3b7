/* What a rank leaves for the process after it: cards that are there or not, a plan, places. */
#include <string.h>

#include "comm/membership.h"
#include "comm/shm.h"
#include "compile/compile.h"
#include "session/kept.h"
#include "support/test.h"

static weft_comm *join_epoch(weft_comm_shm *kept, weft_comm_shm **epoch, uint32_t number)
{
    weft_comm *c;
    assert_ok(weft_comm_shm_create(1, epoch));
    weft_comm_shm_set_epoch(*epoch, number);
    assert_ok(weft_comm_shm_join_kept(weft_comm_shm_fd(*epoch), weft_comm_shm_fd(kept), 0,
                                      10, &c));
    return c;
}

static void leave_epoch(weft_comm *c, weft_comm_shm *epoch)
{
    weft_comm_drop(c);
    weft_comm_shm_destroy(epoch);
}

static void put_card(weft_kept *k, int64_t step, double loss)
{
    weft_kept_card c = {.started = 1, .steps = step, .row = {.step = step, .loss = loss}};
    weft_kept_put_card(k, &c);
}

static void a_new_process_finds_it(void **state)
{
    weft_training     t;
    weft_compiled     made = {0};
    weft_compile_spec spec = weft_compile_spec_default("tiny256", 1, 8);
    weft_comm_shm    *kept, *epoch;
    weft_kept        *k;
    int64_t           at[WEFT_KEPT_MAX_SLAB] = {0}, bytes;
    (void)state;
    assert_ok(weft_compile_training(&spec, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &made));
    weft_kept_need need = {.plan       = "a plan",
                           .plan_bytes = 6,
                           .program    = made.program,
                           .n_thread   = 2,
                           .journals   = true};
    assert_ok(weft_comm_shm_create(1, &kept));
    weft_comm *c = join_epoch(kept, &epoch, 1);
    assert_null(weft_kept_find(c));
    assert_false(weft_kept_adopt(c, &need, &k));
    assert_ok(weft_kept_create(c, &need, &k));
    assert_null(weft_kept_find(c)); /* not described yet */
    for (int i = 0; i < made.program->n_slab; i++) at[i] = 4096 * i;
    weft_kept_describe(k, c, &need, at, NULL);
    put_card(k, 6, 0.5);
    put_card(k, 7, 0.25);
    leave_epoch(c, epoch);

    c                      = join_epoch(kept, &epoch, 2);
    const weft_kept *there = weft_kept_find(c);
    assert_non_null(there);
    assert_memory_equal(weft_kept_plan(there, &bytes), "a plan", 6);
    assert_int_equal(bytes, 6);
    assert_true(weft_kept_find_card(there, 6)->row.loss == 0.5);
    assert_int_equal(weft_kept_newest(there)->steps, 7);
    assert_null(weft_kept_find_card(there, 8));
    assert_int_equal(weft_kept_slabs(there, made.program)[1], 4096);
    need.n_thread = 3; /* another journal */
    assert_false(weft_kept_adopt(c, &need, &k));
    need.n_thread = 2;
    assert_true(weft_kept_adopt(c, &need, &k));
    put_card(k, 4, 1); /* all went back: step 7 is no more */
    assert_null(weft_kept_find_card(k, 7));
    assert_int_equal(weft_kept_newest(k)->steps, 4);
    weft_comm_shm_slot *slot = weft_comm_shm_slot_of(kept, 0);
    atomic_store(&slot->snapshot[1].bytes, 4096);
    atomic_store(&slot->snapshot[1].table_bytes, 64);
    weft_comm_shm_distrust(slot);
    assert_null(weft_kept_find(c));
    /* nor is a snapshot's memory there for the next one */
    assert_int_equal(atomic_load(&slot->snapshot[1].bytes), 0);
    assert_int_equal(atomic_load(&slot->snapshot[1].table_bytes), 0);
    leave_epoch(c, epoch);
    weft_comm_shm_destroy(kept);
    weft_compiled_fini(&made);
    weft_training_fini(&t);
}

/* A record of another plan takes the place of the one that is there at once, with its cards: a
 * process that is killed at any moment leaves one of both. */
static void another_plan_takes_its_place(void **state)
{
    weft_training     t;
    weft_compiled     made = {0};
    weft_compile_spec spec = weft_compile_spec_default("tiny256", 1, 8);
    weft_comm_shm    *kept, *epoch;
    weft_kept        *k, *before;
    int64_t           at[WEFT_KEPT_MAX_SLAB] = {0}, bytes;
    (void)state;
    assert_ok(weft_compile_training(&spec, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &made));
    weft_kept_need need = {
        .plan = "a plan", .plan_bytes = 6, .program = made.program, .n_thread = 1};
    assert_ok(weft_comm_shm_create(1, &kept));
    weft_comm *c = join_epoch(kept, &epoch, 1);
    assert_null(weft_kept_reserve(c));
    assert_ok(weft_kept_create(c, &need, &k));
    weft_kept_describe(k, c, &need, at, NULL);
    put_card(k, 7, 0.25);
    leave_epoch(c, epoch);

    c         = join_epoch(kept, &epoch, 2);
    need.plan = "b plan"; /* as long */
    assert_false(weft_kept_adopt(c, &need, &k));
    before = weft_kept_reserve(c);
    assert_non_null(before);
    assert_ok(weft_kept_create(c, &need, &k));
    assert_ptr_not_equal(before, k);
    assert_memory_equal(weft_kept_plan(weft_kept_find(c), &bytes), "a plan", 6);
    assert_int_equal(weft_kept_newest(weft_kept_find(c))->steps, 7);
    weft_kept_describe(k, c, &need, at, before);
    weft_kept_close(c, before);
    assert_memory_equal(weft_kept_plan(weft_kept_find(c), &bytes), "b plan", 6);
    assert_true(weft_kept_find_card(weft_kept_find(c), 7)->row.loss == 0.25);
    assert_ptr_equal(weft_kept_find_of(c, 0), weft_kept_find(c));
    assert_null(weft_kept_find_of(c, 1));
    leave_epoch(c, epoch);
    weft_comm_shm_destroy(kept);
    weft_compiled_fini(&made);
    weft_training_fini(&t);
}

/* A process in no membership reads what a rank has left, and makes pages for its own slot. */
static void a_new_rank_reads_and_prepares(void **state)
{
    weft_training     t;
    weft_compiled     made = {0};
    weft_compile_spec spec = weft_compile_spec_default("tiny256", 1, 8);
    weft_comm_shm    *kept, *epoch;
    weft_kept        *k;
    int64_t           at[WEFT_KEPT_MAX_SLAB] = {0}, bytes = 8 << 20;
    void             *p;
    (void)state;
    assert_ok(weft_compile_training(&spec, &t));
    assert_ok(weft_compile_program(&t, NULL, 0, &made));
    weft_kept_need need = {
        .plan = "a plan", .plan_bytes = 6, .program = made.program, .n_thread = 1};
    assert_ok(weft_comm_shm_create(1, &kept));
    int fd = weft_comm_shm_fd(kept);
    assert_true(weft_kept_room(&need) >
                weft_program_bytes(made.program, WEFT_SLAB_STATE));
    assert_int_equal(weft_comm_shm_prepare_slab(fd, 1, bytes), WEFT_ERR_ARG);
    assert_ok(weft_comm_shm_prepare_slab(fd, 0, bytes));
    assert_int_equal(weft_comm_shm_prepare_slab(fd, 0, bytes), WEFT_ERR_ARG); /* once */
    weft_comm          *c    = join_epoch(kept, &epoch, 1);
    weft_comm_shm_slot *slot = weft_comm_shm_kept_slot(c);
    assert_int_equal(atomic_load(&slot->clean_to), bytes);
    assert_ok(weft_kept_create(c, &need, &k)); /* in those pages */
    assert_true(atomic_load(&slot->clean_from) > 0);
    weft_kept_describe(k, c, &need, at, NULL);
    memset(k, 1, 64); /* what was given away is cleared when it is given again */
    weft_kept_close(c, k);
    assert_ok(weft_comm_shm_alloc(c, 4096, &p));
    assert_ptr_equal(p, k);
    for (int i = 0; i < 64; i++) assert_int_equal(((char *)p)[i], 0);
    leave_epoch(c, epoch);
    weft_comm_shm_destroy(kept);
    weft_compiled_fini(&made);
    weft_training_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_process_finds_it),
        cmocka_unit_test(another_plan_takes_its_place),
        cmocka_unit_test(a_new_rank_reads_and_prepares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
