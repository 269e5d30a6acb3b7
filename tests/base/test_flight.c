/* A flight recorder: events in order with the numbers of their groups, views, damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/flight.h"

static weft_flight_ring *ring;

static int open_ring(void **state)
{
    (void)state;
    ring = calloc(1, sizeof *ring);
    return ring ? 0 : -1;
}

static int close_ring(void **state)
{
    (void)state;
    weft_flight_share(NULL, 0);
    free(ring);
    return 0;
}

static int64_t begin_collective(int32_t tag, int n, const int32_t *rank)
{
    return weft_flight_begin(&(weft_flight_event){.kind   = WEFT_FLIGHT_COLLECTIVE,
                                                  .op     = "all_reduce",
                                                  .name   = "grad",
                                                  .step   = 5,
                                                  .bytes  = 64,
                                                  .tag    = tag,
                                                  .n_rank = n,
                                                  .rank   = rank});
}

static void expect_json(void)
{
    weft_text t = {0};
    weft_doc *d;
    weft_flight_print(ring, ring->now.epoch, &t);
    assert_int_equal(weft_doc_parse_json("dump", t.s, t.n, &d), WEFT_OK);
    weft_doc_destroy(d);
    weft_text_fini(&t);
}

static void calls_are_numbered_by_group(void **state)
{
    static const int32_t both[] = {0, 1}, other[] = {0, 2};
    (void)state;
    assert_int_equal(begin_collective(1, 2, both), -1); /* nobody looks */
    weft_flight_end(-1);
    weft_flight_share(ring, 3);
    assert_true(weft_flight_is_on());
    weft_flight_begin_view(2, 3, 4);
    for (int k = 0; k < 3; k++) weft_flight_end(begin_collective(1, 2, both));
    begin_collective(1, 2, other);
    begin_collective(7, 2, both);
    assert_int_equal(ring->n, 5);
    assert_int_equal(ring->now.n_group, 3);
    assert_int_equal(ring->entry[2].seq, 2);
    assert_int_equal(ring->entry[3].seq, 0);
    assert_true(ring->entry[2].ended_ns >= ring->entry[2].begun_ns);
    assert_int_equal(ring->entry[4].ended_ns, 0);
    weft_flight_event message = {
        .kind = WEFT_FLIGHT_RECV, .tag = 1, .n_rank = 2, .rank = both};
    weft_flight_begin(&message);
    message.kind = WEFT_FLIGHT_SEND;
    weft_flight_begin(&message);
    assert_int_equal(ring->entry[5].group, ring->entry[6].group); /* both ends of one */
    assert_int_equal(ring->entry[6].seq, 0);
    weft_flight_begin_view(3, 3, 4); /* counts begin anew */
    begin_collective(1, 2, both);
    assert_int_equal(ring->entry[7].seq, 0);
    assert_int_equal(ring->entry[7].epoch, 3);
    expect_json();
    weft_flight_share(ring, 3); /* another process in the same place */
    assert_int_equal(ring->n, 0);
}

static char *print_view(uint32_t epoch)
{
    weft_text t = {0};
    weft_flight_print(ring, epoch, &t);
    assert_int_equal(weft_text_status(&t), WEFT_OK);
    return t.s;
}

static int count_text(const char *s, const char *part)
{
    int n = 0;
    while ((s = strstr(s, part))) n++, s++;
    return n;
}

/* A view that has ended is printed as it was, also when its ranks are in the next one. */
static void a_view_outlives_the_next_one(void **state)
{
    static const int32_t both[] = {0, 1}, three[] = {0, 1, 2};
    (void)state;
    weft_flight_share(ring, 0);
    weft_flight_begin_view(4, 1, 3);
    weft_flight_end(begin_collective(1, 3, three));
    begin_collective(1, 3, three);
    char *was = print_view(4);
    weft_flight_begin_view(5, 0, 2);
    weft_flight_end(begin_collective(2, 2, both));
    const char *head  = "\"rank\": 1, \"world\": 3, \"epoch\": 4",
               *ranks = "\"ranks\": [0, 1, 2]";
    for (uint32_t epoch = 4; epoch <= 5; epoch++) {
        char *s = print_view(epoch);
        assert_int_equal(count_text(s, "\"kind\""), epoch == 4 ? 2 : 3);
        assert_int_equal(count_text(s, head), epoch == 4);
        assert_int_equal(count_text(s, ranks), epoch == 4);
        assert_int_equal(count_text(s, "\"group\""), epoch == 4 ? 2 : 1);
        if (epoch == 4)
            assert_string_equal(strstr(s, "\"groups\""), strstr(was, "\"groups\""));
        free(s);
    }
    free(was);
}

static void the_last_ones_stay(void **state)
{
    int32_t rank[WEFT_FLIGHT_RANKS + 10];
    (void)state;
    for (int k = 0; k < WEFT_FLIGHT_RANKS + 10; k++) rank[k] = k;
    weft_flight_share(ring, 0);
    for (int k = 0; k < WEFT_FLIGHT_ENTRIES + 100; k++) {
        weft_flight_event e = {.kind = WEFT_FLIGHT_TASK, .step = k, .name = "a\"b\n\xff"};
        weft_flight_end(weft_flight_begin(&e));
    }
    for (int k = 0; k < WEFT_FLIGHT_GROUPS + 5; k++) /* more than are remembered */
        begin_collective(k, WEFT_FLIGHT_RANKS + 10, rank);
    assert_int_equal(ring->now.n_group, WEFT_FLIGHT_GROUPS);
    expect_json();
}

/* What a process that crashed has left. */
static void damage_prints_as_json(void **state)
{
    (void)state;
    srand(7);
    for (int k = 0; k < 20; k++) {
        unsigned char *p = (unsigned char *)ring;
        for (size_t i = 0; i < sizeof *ring; i++) p[i] = (unsigned char)rand();
        expect_json();
    }
}

static void rings_in_one_memory(void **state)
{
    weft_flight_ring *own;
    int               fd = memfd_create("rings", MFD_CLOEXEC);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 2 * (off_t)sizeof *own), 0);
    assert_int_equal(weft_flight_map(fd, 1, &own), WEFT_OK);
    own->now.rank = 9;
    munmap(own - 1, 2 * sizeof *own);
    assert_int_equal(weft_flight_map(fd, 2, &own), WEFT_ERR_ARG);
    assert_int_equal(weft_flight_map(fd, -1, &own), WEFT_ERR_ARG);
    assert_int_equal(weft_flight_map(-1, 0, &own), WEFT_ERR_ARG);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_numbered_by_group, open_ring,
                                        close_ring),
        cmocka_unit_test_setup_teardown(a_view_outlives_the_next_one, open_ring,
                                        close_ring),
        cmocka_unit_test_setup_teardown(the_last_ones_stay, open_ring, close_ring),
        cmocka_unit_test_setup_teardown(damage_prints_as_json, open_ring, close_ring),
        cmocka_unit_test(rings_in_one_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
