/* Slabs of shared memory that outlive epochs: what stays, where it is found, pages of it. */
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "comm/shm.h"

enum {
    KEPT_BYTES = 3 << 20,
    N_EPOCH    = 200
};

static weft_comm *join_epoch(const weft_comm_shm *kept, uint32_t epoch)
{
    weft_comm_shm *w;
    weft_comm     *c;
    assert_int_equal(weft_comm_shm_create(1, &w), WEFT_OK);
    weft_comm_shm_set_epoch(w, epoch);
    assert_int_equal(
        weft_comm_shm_join_kept(weft_comm_shm_fd(w), weft_comm_shm_fd(kept), 0, 5, &c),
        WEFT_OK);
    assert_int_equal(c->epoch, epoch);
    weft_comm_shm_destroy(w); /* the rank has it */
    return c;
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static long resident_pages(void)
{
    long  size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &pages), 2);
    fclose(f);
    return pages;
}

static void slabs_outlive_epochs(void **state)
{
    (void)state;
    weft_comm_shm *kept;
    int            before = 0;
    long           pages  = 0;
    int64_t        at     = 0;
    char          *p, *q;
    void          *wrong;
    assert_int_equal(weft_comm_shm_create(1, &kept), WEFT_OK);
    assert_int_equal(atomic_load(&weft_comm_shm_slot_of(kept, 0)->state.step), -1);
    for (uint32_t epoch = 1; epoch <= N_EPOCH; epoch++) {
        weft_comm *c = join_epoch(kept, epoch);
        assert_non_null(weft_comm_shm_kept_slot(c));
        if (epoch == 1) {
            assert_int_equal(weft_comm_shm_alloc(c, KEPT_BYTES, (void **)&p), WEFT_OK);
            assert_int_equal(weft_comm_shm_find(c, p, &at), 0);
            atomic_store(&weft_comm_shm_kept_slot(c)->state.step, 7);
        } else {
            assert_int_equal(weft_comm_shm_adopt(c, at, KEPT_BYTES, (void **)&p),
                             WEFT_OK);
            assert_int_equal((uint8_t)p[KEPT_BYTES - 1], (uint8_t)(epoch - 1));
            assert_int_equal(atomic_load(&weft_comm_shm_kept_slot(c)->state.step), 7);
        }
        memset(p, (int)epoch, KEPT_BYTES);
        assert_int_equal(weft_comm_shm_adopt(c, at, 1, &wrong), WEFT_ERR_ARG); /* late */
        assert_int_equal(weft_comm_shm_alloc(c, KEPT_BYTES, (void **)&q), WEFT_OK);
        for (int k = 0; k < KEPT_BYTES; k += 4093) assert_int_equal(q[k], 0);
        memset(q, 1, KEPT_BYTES);
        weft_comm_shm_free(c, q);
        assert_int_equal(weft_comm_shm_alloc_used(c, KEPT_BYTES, (void **)&q), WEFT_OK);
        for (int k = 0; k < KEPT_BYTES; k += 4093) assert_int_equal(q[k], 1);
        weft_comm_shm_free(c, q);
        assert_true(weft_comm_shm_count_made(c) >= (epoch == 1 ? 2 * KEPT_BYTES : 0));
        assert_true(epoch == 1 || weft_comm_shm_count_made(c) == 0);
        weft_comm_drop(c);
        if (epoch == 20) before = count_descriptors(), pages = resident_pages();
    }
    assert_int_equal(count_descriptors(), before);
    if (!WEFT_TEST_SANITIZED) assert_true(resident_pages() < pages + 200);
    weft_comm *c = join_epoch(kept, N_EPOCH + 1);
    assert_int_equal(weft_comm_shm_adopt(c, INT64_C(1) << 60, 4096, &wrong),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_comm_shm_adopt(c, 1, 4096, &wrong), WEFT_ERR_ARG);
    weft_comm_drop(c);
    weft_comm_shm_destroy(kept);
}

/* One rank of three slots, which has the last one. */
static weft_comm *join_last_slot(weft_comm_shm *kept, uint32_t epoch)
{
    static const int order[] = {2, 1, 0};
    weft_comm_shm   *w;
    weft_comm       *c;
    assert_int_equal(weft_comm_shm_create(3, &w), WEFT_OK);
    weft_comm_shm_set_epoch(w, epoch);
    weft_comm_shm_set_slots(w, 1, order);
    assert_int_equal(
        weft_comm_shm_join_kept(weft_comm_shm_fd(w), weft_comm_shm_fd(kept), 0, 5, &c),
        WEFT_OK);
    for (int k = 0; k < 3; k++) assert_int_equal(weft_comm_shm_slot_at(c, k), order[k]);
    weft_comm_shm_destroy(w);
    return c;
}

static void ranks_have_the_slots_of_their_epoch(void **state)
{
    (void)state;
    weft_comm_shm *kept;
    void          *p;
    int64_t        at = -1;
    assert_int_equal(weft_comm_shm_create(3, &kept), WEFT_OK);
    weft_comm *c = join_last_slot(kept, 1);
    assert_int_equal(c->world, 1);
    assert_int_equal(weft_comm_shm_own_slot(c), 2);
    assert_int_equal(weft_comm_shm_slot_at(c, 3), -1);
    assert_ptr_equal(weft_comm_shm_kept_slot(c), weft_comm_shm_kept_slot_of(c, 2));
    assert_int_equal(weft_comm_shm_alloc(c, 4096, &p), WEFT_OK);
    assert_int_equal(weft_comm_shm_find(c, p, &at), 2);
    assert_ptr_equal(weft_comm_shm_reach(c, 2, at, 4096), p);
    memset(p, 7, 4096);
    weft_comm_drop(c);
    c = join_last_slot(kept, 2);
    assert_int_equal(weft_comm_shm_adopt(c, at, 4096, &p), WEFT_OK); /* it stays there */
    assert_int_equal(*(char *)p, 7);
    weft_comm_drop(c);
    weft_comm_shm_destroy(kept);
}

/* Of memory that need not be zero the pages that are there stay, the others are made. */
static void holes_are_filled(void **state)
{
    enum {
        BYTES = 16 << 20,
        HOLE  = 5 << 20,
        AT    = 7 << 20
    };
    weft_comm_shm *kept;
    char          *p;
    (void)state;
    assert_int_equal(weft_comm_shm_create(1, &kept), WEFT_OK);
    weft_comm *c = join_epoch(kept, 1);
    assert_int_equal(weft_comm_shm_alloc(c, BYTES, (void **)&p), WEFT_OK);
    assert_true(weft_comm_shm_count_made(c) == BYTES);
    memset(p, 1, BYTES);
    weft_comm_shm_give_back(c, p + AT, HOLE);
    weft_comm_shm_free(c, p);
    assert_int_equal(weft_comm_shm_alloc_used(c, BYTES, (void **)&p), WEFT_OK);
    assert_true(weft_comm_shm_count_made(c) == BYTES + HOLE);
    assert_true(weft_comm_shm_count_range(c, p, BYTES) == BYTES);
    for (int k = 0; k < BYTES; k += 4093)
        assert_int_equal(p[k], k < AT || k >= AT + HOLE);
    weft_comm_drop(c);
    weft_comm_shm_destroy(kept);
}

/* An epoch knows where the next one will have its memory, and makes the pages of it, under what is
 * in use, too. */
static void memory_is_made_ahead(void **state)
{
    enum {
        STATE = 3 << 20,
        WORK  = 5 << 20,
        N     = 3
    };
    static const int64_t want[N] = {100, 9 << 20, 4097};
    weft_comm_shm       *kept;
    weft_comm_shm_range  keep[3] = {{0}}, next[N], none;
    void                *p, *q;
    (void)state;
    assert_int_equal(weft_comm_shm_create(1, &kept), WEFT_OK);
    weft_comm *c = join_epoch(kept, 1);
    assert_int_equal(weft_comm_shm_alloc(c, STATE, &p), WEFT_OK);
    assert_int_equal(weft_comm_shm_alloc(c, WORK, &q), WEFT_OK);
    memset(p, 1, STATE);
    memset(q, 2, WORK);
    assert_int_equal(weft_comm_shm_find(c, p, &keep[1].at), 0);
    keep[1].bytes = STATE;
    keep[2] = (weft_comm_shm_range){-1, 4096}; /* of a slot that describes nothing */
    assert_int_equal(weft_comm_shm_foresee(c, keep, 3, want, N, next), WEFT_OK);
    assert_int_equal(
        weft_comm_shm_foresee(c, keep, 3, &(int64_t){INT64_C(1) << 60}, 1, &none),
        WEFT_OK);
    assert_int_equal(none.at, -1);
    assert_int_equal(weft_comm_shm_make_ahead(c, none), WEFT_ERR_ARG);
    for (int k = 0; k < N; k++)
        assert_int_equal(weft_comm_shm_make_ahead(c, next[k]), WEFT_OK);
    for (int k = 0; k < STATE; k += 4093) assert_int_equal(((char *)p)[k], 1);
    for (int k = 0; k < WORK; k += 4093) assert_int_equal(((char *)q)[k], 2);
    weft_comm_drop(c);
    c = join_epoch(kept, 2);
    assert_int_equal(weft_comm_shm_adopt(c, keep[1].at, STATE, &p), WEFT_OK);
    for (int k = 0; k < N; k++) {
        int64_t at = -1;
        assert_int_equal(weft_comm_shm_alloc_used(c, want[k], &q), WEFT_OK);
        assert_int_equal(weft_comm_shm_find(c, q, &at), 0);
        assert_int_equal(at, next[k].at);
    }
    assert_int_equal(weft_comm_shm_count_made(c), 0);
    weft_comm_drop(c);
    weft_comm_shm_destroy(kept);
}

/* Memory without pages, which are made and given back by ranges; a page that has other bytes, too,
 * stays. */
static void pages_come_and_go(void **state)
{
    enum {
        BYTES = 16 << 20,
        PAGE  = 4096,
        FROM  = 100, /* within a page */
        SOME  = 5 << 20
    };
    weft_comm_shm *kept;
    void          *q;
    char          *p, *next;
    (void)state;
    assert_int_equal(weft_comm_shm_create(1, &kept), WEFT_OK);
    weft_comm *c = join_epoch(kept, 1);
    assert_int_equal(weft_comm_shm_alloc(c, BYTES, &q), WEFT_OK);
    memset(q, 1, BYTES);
    weft_comm_shm_free(c, q);
    assert_true(weft_comm_shm_count_free(c) == BYTES); /* they are used again */
    int64_t before = weft_comm_shm_count_pages(c) - BYTES;
    assert_int_equal(weft_comm_shm_reserve(c, BYTES / 2, &q), WEFT_OK);
    p = q;
    assert_true(weft_comm_shm_count_free(c) == BYTES / 2);
    weft_comm_shm_give_back_free(c);
    assert_true(weft_comm_shm_count_pages(c) == before);
    for (int k = 0; k < BYTES / 2; k += PAGE) assert_int_equal(p[k], 0);
    weft_comm_shm_give_back(c, p, BYTES / 2); /* what was read, if that made pages */
    assert_int_equal(weft_comm_shm_make_pages(c, p + FROM, SOME), WEFT_OK);
    assert_int_equal(weft_comm_shm_count_range(c, p, BYTES / 2), SOME + PAGE);
    memset(p, 3, SOME + PAGE);
    assert_int_equal(weft_comm_shm_alloc(c, PAGE, &q), WEFT_OK);
    next  = q;
    *next = 4;
    weft_comm_shm_give_back(c, p + FROM, SOME); /* but for the pages at its ends */
    assert_int_equal(weft_comm_shm_count_range(c, p, BYTES / 2), 2 * PAGE);
    assert_true(p[0] == 3 && p[PAGE - 1] == 3 && p[SOME + FROM] == 3 && *next == 4);
    assert_int_equal(p[PAGE], 0);
    weft_comm_shm_give_back_from(c, 0, 0);
    assert_int_equal(*next, 0);
    weft_comm_drop(c);
    weft_comm_shm_destroy(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_outlive_epochs),
        cmocka_unit_test(ranks_have_the_slots_of_their_epoch),
        cmocka_unit_test(holes_are_filled),
        cmocka_unit_test(memory_is_made_ahead),
        cmocka_unit_test(pages_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
