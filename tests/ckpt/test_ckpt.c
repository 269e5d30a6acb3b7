#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "ckpt/ckpt.h"
#include "ckpt/state.h"
#include "support/ckpt_case.h"
#include "support/files.h"
#include "support/test.h"

static void round_trip(void **state)
{
    const char        *dir = test_files_path("deep/er");
    weft_ckpt         *c;
    weft_ckpt_findings found = {0};
    (void)state;

    assert_false(weft_ckpt_any(dir));
    assert_int_equal(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, &found, &c), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "no checkpoint there"));
    assert_int_equal(test_ckpt_save(dir, 20, 3), WEFT_OK);
    assert_true(weft_ckpt_any(dir));
    assert_int_equal(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, &found, &c), WEFT_OK);
    assert_int_equal(weft_ckpt_step(c), 20);
    assert_int_equal(test_ckpt_seed(c), 3);
    assert_non_null(strstr(weft_ckpt_path(c), "deep/er/step-00000020"));
    assert_string_equal(weft_ckpt_text(c, "config.json", NULL), "{}\n");
    assert_null(weft_ckpt_text(c, "nothing.json", NULL));
    assert_null(weft_ckpt_tensors(c, "config.json"));
    weft_ckpt_close(c);
    assert_int_equal(weft_ckpt_open(dir, 7, &found, &c), WEFT_ERR_ARG);
    assert_int_equal(found.warn.n, 0);
    weft_ckpt_findings_fini(&found);
    assert_int_equal(access(test_files_path("deep/er/step-00000020.tmp"), F_OK), -1);
}

/* Steps beyond eight digits sort as numbers, and the newest wins. */
static void newest_wins(void **state)
{
    static const int64_t step[] = {5, 99999999, 100000000, 20};
    const char          *dir    = test_files_path("order");
    int64_t              got;
    weft_ckpt_info      *list;
    int                  n;
    (void)state;

    for (int i = 0; i < 4; i++)
        assert_int_equal(test_ckpt_save(dir, step[i], i), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &got, NULL), 2);
    assert_int_equal(got, 100000000);
    assert_int_equal(weft_ckpt_list(dir, true, &list, &n), WEFT_OK);
    assert_int_equal(n, 4);
    assert_int_equal(list[1].step, 99999999);
    assert_int_equal(list[3].step, 5);
    for (int i = 0; i < n; i++) {
        assert_int_equal(list[i].status, WEFT_OK);
        assert_int_equal(list[i].n_file, 4);
        assert_true(list[i].bytes > 1200);
    }
    assert_string_equal(list[3].dir, "step-00000005");
    free(list);
    assert_int_equal(weft_ckpt_list(test_files_path("nowhere"), false, &list, &n),
                     WEFT_ERR_ARG);
}

static void same_step_again(void **state)
{
    const char *dir = test_files_path("again");
    int64_t     step;
    (void)state;

    for (int i = 0; i < 4; i++) {
        assert_int_equal(test_ckpt_save(dir, 20, i), WEFT_OK);
        assert_int_equal(test_ckpt_newest(dir, &step, NULL), i);
    }
    /* one folder is left */
    assert_int_equal(access(test_files_path("again/step-00000020"), F_OK) == 0,
                     access(test_files_path("again/step-00000020-r2"), F_OK) != 0);
}

static void prunes(void **state)
{
    const char     *dir = test_files_path("prune");
    weft_ckpt_info *list;
    int             n;
    (void)state;

    for (int i = 1; i <= 5; i++) assert_int_equal(test_ckpt_save(dir, i, i), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 5, 0, NULL), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 5, 9, NULL), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 5, 2, NULL), WEFT_OK);
    assert_int_equal(weft_ckpt_list(dir, true, &list, &n), WEFT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(list[1].step, 4);
    free(list);
    assert_int_equal(access(test_files_path("prune/step-00000003"), F_OK), -1);
    assert_int_equal(access(test_files_path("prune/step-00000004"), F_OK), 0);
}

static void flip(const char *path, size_t at)
{
    size_t n;
    char  *p = test_files_read(path, &n);

    p[at] = (char)(p[at] ^ 4);
    test_files_write(path, p, n);
    free(p);
}

/* What was just saved and does not read back protects the older ones; a damaged older one
 * does not count. */
static void prune_needs_a_whole_newest(void **state)
{
    const char        *dir   = test_files_path("guard");
    weft_ckpt_findings found = {0};
    weft_ckpt_info    *list;
    int                n;
    (void)state;

    for (int i = 1; i <= 4; i++) assert_int_equal(test_ckpt_save(dir, i, i), WEFT_OK);
    flip(test_files_path("guard/step-00000004/model.safetensors"), 1000);
    assert_int_equal(weft_ckpt_prune(dir, 4, 1, &found), WEFT_OK);
    assert_non_null(strstr(found.warn.s, "STEP 4 IS DAMAGED"));
    assert_int_equal(weft_ckpt_list(dir, true, &list, &n), WEFT_OK);
    assert_int_equal(n, 4);
    assert_int_equal(list[0].status, WEFT_ERR_ARG);
    assert_non_null(strstr(list[0].why, "block 0"));
    free(list);
    weft_ckpt_findings_fini(&found);
    flip(test_files_path("guard/step-00000004/model.safetensors"), 1000);
    flip(test_files_path("guard/MANIFEST-00000003"), 20);
    assert_int_equal(weft_ckpt_prune(dir, 4, 2, NULL),
                     WEFT_OK); /* 4 and 2; the damaged 3 lies between */
    assert_int_equal(weft_ckpt_list(dir, false, &list, &n), WEFT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(list[2].step, 2);
    free(list);
}

static int n_steps(const char *dir)
{
    weft_ckpt_info *list;
    int             n;

    assert_int_equal(weft_ckpt_list(dir, false, &list, &n), WEFT_OK);
    free(list);
    return n;
}

/* A run that went on from step 5, because 10 is damaged: it saves and prunes, 10 is never
 * counted, never deleted while it is newer, reported once, and replaced when the run comes
 * there.  A manifest that is empty does no more harm. */
static void damaged_newer_ones_block_nothing(void **state)
{
    const char        *dir = test_files_path("newer");
    const char        *bad = test_files_path("newer/step-00000010/optimizer.safetensors");
    weft_ckpt_findings found = {0};
    weft_ckpt         *c;
    const char        *text;
    int64_t            step;
    int                n;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 5, 5), WEFT_OK);
    assert_int_equal(test_ckpt_save(dir, 10, 10), WEFT_OK);
    flip(bad, 300);
    test_files_write(test_files_path("newer/MANIFEST-99999999"), "", 0);
    assert_int_equal(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, &found, &c), WEFT_OK);
    assert_int_equal(weft_ckpt_step(c), 5);
    weft_ckpt_close(c);
    assert_true(weft_ckpt_next_warning(&found, &text, &n));
    assert_non_null(strstr(text, "STEP 99999999 IS DAMAGED"));
    assert_true(weft_ckpt_next_warning(&found, &text, &n));
    assert_non_null(strstr(text, "STEP 10 IS DAMAGED"));
    for (int i = 6; i <= 9; i++) {
        assert_int_equal(test_ckpt_save(dir, i, i), WEFT_OK);
        assert_int_equal(weft_ckpt_prune(dir, i, 2, &found), WEFT_OK);
        assert_int_equal(n_steps(dir), 4); /* two whole ones, and those two */
        assert_int_equal(test_ckpt_newest(dir, &step, NULL), i);
    }
    assert_int_equal(test_ckpt_save(dir, 10, 11), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 10, 2, &found), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &step, NULL), 11);
    assert_int_equal(step, 10);
    assert_int_equal(n_steps(dir), 3);
    assert_int_equal(access(bad, F_OK), -1); /* the damaged one was ours */
    assert_false(weft_ckpt_next_warning(&found, &text, &n));
    weft_ckpt_findings_fini(&found);
}

/* One whose bytes changed keeps its lengths, and yet does not count once the run is past it;
 * then it is deleted like any other that is old. */
static void damaged_older_ones_do_not_count(void **state)
{
    const char        *dir   = test_files_path("past");
    weft_ckpt_findings found = {0};
    int64_t            step;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 10, 10), WEFT_OK);
    flip(test_files_path("past/step-00000010/optimizer.safetensors"), 300);
    assert_int_equal(test_ckpt_save(dir, 9, 9), WEFT_OK);
    assert_int_equal(test_ckpt_save(dir, 12, 12), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 12, 2, &found), WEFT_OK);
    assert_int_equal(n_steps(dir), 3); /* 12 and 9, with 10 between */
    assert_non_null(strstr(found.warn.s, "STEP 10 IS DAMAGED"));
    flip(test_files_path("past/step-00000012/optimizer.safetensors"), 300);
    assert_int_equal(test_ckpt_newest(dir, &step, NULL),
                     9); /* still there to go on from */
    flip(test_files_path("past/step-00000012/optimizer.safetensors"), 300);
    assert_int_equal(test_ckpt_save(dir, 15, 15), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 15, 2, &found), WEFT_OK);
    assert_int_equal(n_steps(dir), 2);
    weft_ckpt_findings_fini(&found);
}

/* What a save that did not finish left is removed by the next one: temporary names, and a
 * folder that is recorded as ours.  Other folders are not, also where they look like ours. */
static void sweeps(void **state)
{
    const char        *dir   = test_files_path("sweep");
    weft_ckpt_findings found = {0};
    weft_ckpt_file     f     = {.name = "a", .text = "x", .n_text = 1};
    size_t             n;
    char              *p;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 1, 1), WEFT_OK);
    mkdir(test_files_path("sweep/step-00000002.tmp"), 0777);
    test_files_write(test_files_path("sweep/step-00000002.tmp/x"), "x", 1);
    assert_int_equal(test_ckpt_save(dir, 3, 3), WEFT_OK); /* renamed, never committed: */
    assert_int_equal(rename(test_files_path("sweep/MANIFEST-00000003"),
                            test_files_path("sweep/MANIFEST-00000003.tmp")),
                     0);
    p = test_files_read(test_files_path("sweep/MANIFEST-00000001"), &n); /* spoken for */
    test_files_write(test_files_path("sweep/MANIFEST-00000001-old.tmp"), p, n);
    free(p);
    mkdir(test_files_path("sweep/step-00000007"), 0777); /* copied there by a person */
    test_files_write(test_files_path("sweep/step-00000007/model.safetensors"), "x", 1);
    mkdir(test_files_path("sweep/step-00000001-r2"), 0777);
    mkdir(test_files_path("sweep/step-00000001-mine"), 0777);
    mkdir(test_files_path("sweep/notes"), 0777);
    test_files_write(test_files_path("sweep/MANIFEST-00000002.tmp"), "x", 1);
    test_files_write(test_files_path("sweep/MANIFEST-old"), "x", 1);
    assert_int_equal(weft_ckpt_save(dir, 4, &f, 1, &found), WEFT_OK);
    assert_int_equal(access(test_files_path("sweep/step-00000002.tmp"), F_OK), -1);
    assert_int_equal(access(test_files_path("sweep/step-00000003"), F_OK), -1);
    assert_int_equal(access(test_files_path("sweep/MANIFEST-00000003.tmp"), F_OK), -1);
    assert_int_equal(access(test_files_path("sweep/MANIFEST-00000002.tmp"), F_OK), -1);
    assert_int_equal(access(test_files_path("sweep/MANIFEST-00000001-old.tmp"), F_OK),
                     -1);
    assert_int_equal(access(test_files_path("sweep/step-00000001"), F_OK), 0);
    assert_int_equal(access(test_files_path("sweep/step-00000001-mine"), F_OK), 0);
    assert_int_equal(access(test_files_path("sweep/notes"), F_OK), 0);
    assert_int_equal(access(test_files_path("sweep/MANIFEST-old"), F_OK), 0);
    assert_int_equal(
        access(test_files_path("sweep/step-00000007/model.safetensors"), F_OK), 0);
    assert_int_equal(access(test_files_path("sweep/step-00000001-r2"), F_OK), 0);
    assert_non_null(
        strstr(found.warn.s, "sweep/step-00000007: no manifest names this folder"));
    assert_non_null(strstr(found.warn.s, "step-00000001-r2: no manifest"));
    assert_null(strstr(found.warn.s, "mine"));
    /* also when the run comes to that step, and when it has left it behind */
    assert_int_equal(test_ckpt_save(dir, 7, 7), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, NULL, NULL), 7);
    assert_int_equal(test_ckpt_save(dir, 8, 8), WEFT_OK);
    assert_int_equal(weft_ckpt_prune(dir, 8, 1, &found), WEFT_OK);
    assert_int_equal(access(test_files_path("sweep/step-00000007-r2"), F_OK), -1);
    assert_int_equal(
        access(test_files_path("sweep/step-00000007/model.safetensors"), F_OK), 0);
    weft_ckpt_findings_fini(&found);
}

/* Nothing is known of the folder of a manifest that cannot be read: it stays, with a
 * warning, and the step is saved again beside it. */
static void a_broken_manifest_is_replaced(void **state)
{
    const char        *dir   = test_files_path("broken");
    weft_ckpt_findings found = {0};
    int64_t            step;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
    assert_int_equal(truncate(test_files_path("broken/MANIFEST-00000010"), 40), 0);
    assert_int_equal(test_ckpt_save(dir, 10, 2), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &step, &found), 2);
    assert_int_equal(step, 10);
    assert_int_equal(found.warn.n, 0);
    assert_int_equal(weft_ckpt_tidy(dir, false, &found), WEFT_OK);
    assert_non_null(strstr(found.warn.s, "broken/step-00000010: no manifest"));
    assert_int_equal(access(test_files_path("broken/step-00000010/state.json"), F_OK), 0);
    weft_ckpt_findings_fini(&found);
}

static void a_folder_for_a_manifest_is_moved(void **state)
{
    const char        *dir   = test_files_path("folder");
    weft_ckpt_findings found = {0};
    int64_t            step;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 5, 1), WEFT_OK);
    assert_int_equal(mkdir(test_files_path("folder/MANIFEST-00000010"), 0700), 0);
    assert_int_equal(test_ckpt_save(dir, 10, 2), WEFT_OK);
    assert_int_equal(test_ckpt_newest(dir, &step, &found), 2);
    assert_int_equal(step, 10);
    weft_ckpt_findings_fini(&found);
}

/* A record may name only what a save of its step makes. */
static void a_record_names_no_other_folder(void **state)
{
    const char *dir = test_files_path("record");
    size_t      n;
    char       *p;
    (void)state;

    assert_int_equal(test_ckpt_save(dir, 1, 1), WEFT_OK);
    assert_int_equal(test_ckpt_save(dir, 2, 2), WEFT_OK);
    p = test_files_read(test_files_path("record/MANIFEST-00000001"), &n);
    test_files_write(test_files_path("record/MANIFEST-00000009.tmp"), p, n);
    free(p);
    assert_int_equal(test_ckpt_save(dir, 3, 3), WEFT_OK);
    assert_int_equal(access(test_files_path("record/MANIFEST-00000009.tmp"), F_OK), -1);
    assert_int_equal(access(test_files_path("record/step-00000001/state.json"), F_OK), 0);
}

/* Several blocks, and the header of another file kept. */
static void large_and_like(void **state)
{
    size_t             n    = 3 * (size_t)WEFT_STORE_BLOCK + 17;
    uint8_t           *p    = malloc(n);
    weft_store_item    it[] = {{"w", WEFT_DTYPE_U8, {1, {(int64_t)n}}, {.data = p}},
                               {"v", WEFT_DTYPE_U8, {1, {2}}, {.data = "ab"}}};
    const char        *dir  = test_files_path("large");
    weft_store_file   *like;
    weft_ckpt         *c;
    weft_ckpt_findings found = {0};
    (void)state;

    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(i % 251);
    assert_int_equal(weft_store_write(test_files_path("like.safetensors"),
                                      &(weft_store_spec){.item = it, .n_item = 2}),
                     WEFT_OK);
    assert_int_equal(weft_store_open(test_files_path("like.safetensors"), &like),
                     WEFT_OK);
    assert_int_equal(weft_ckpt_save(dir, 1,
                                    &(weft_ckpt_file){.name    = "model.safetensors",
                                                      .tensors = {.like = like}},
                                    1, NULL),
                     WEFT_OK);
    assert_true(
        test_files_same(test_files_path("like.safetensors"),
                        test_files_path("large/step-00000001/model.safetensors")));
    weft_store_close(like);
    assert_int_equal(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, &found, &c), WEFT_OK);
    assert_memory_equal(
        weft_store_find(weft_ckpt_tensors(c, "model.safetensors"), "w")->data, p, n);
    weft_ckpt_close(c);
    flip(test_files_path("large/step-00000001/model.safetensors"),
         2 * (size_t)WEFT_STORE_BLOCK + 5);
    assert_int_equal(weft_ckpt_open(dir, WEFT_CKPT_NEWEST, &found, &c), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "block 2 of 4"));
    assert_non_null(strstr(found.warn.s, "STEP 1 IS DAMAGED"));
    weft_ckpt_findings_fini(&found);
    free(p);
}

static void refuses(void **state)
{
    static const char *const name[] = {"", ".", "..", "a/b", ".x", "a b", "a\nb"};
    const char              *dir    = test_files_path("refuse");
    weft_ckpt_file           two[2] = {{.name = "a", .text = "x", .n_text = 1},
                                       {.name = "a", .text = "y", .n_text = 1}};
    (void)state;

    for (size_t i = 0; i < WEFT_COUNT(name); i++)
        assert_int_equal(
            weft_ckpt_save(dir, 1,
                           &(weft_ckpt_file){.name = name[i], .text = "x", .n_text = 1},
                           1, NULL),
            WEFT_ERR_ARG);
    assert_int_equal(weft_ckpt_save(dir, 1, two, 2, NULL), WEFT_ERR_ARG);
    assert_int_equal(weft_ckpt_save(dir, -1, two, 1, NULL), WEFT_ERR_ARG);
    assert_false(weft_ckpt_any(dir));
    two[0].n_text = 0; /* an empty file is fine */
    assert_int_equal(weft_ckpt_save(dir, 0, two, 1, NULL), WEFT_OK);
    assert_true(weft_ckpt_any(dir));
}

static void state_round_trip(void **state)
{
    weft_ckpt_state a = {.step          = 20,
                         .sample        = 160,
                         .seed          = -5,
                         .batch         = 8,
                         .micro_batch   = 2,
                         .lanes         = 4,
                         .seq           = 64,
                         .data_id       = 0xfedcba9876543210u,
                         .graph_hash    = 1,
                         .weights_xxh64 = UINT64_MAX,
                         .kernel_set    = "cpu-avx2 \"x\"",
                         .extra         = "{\"a\": [1, 2.5, null]}"};
    weft_ckpt_state b;
    weft_text       t = {0}, u = {0};
    (void)state;

    assert_int_equal(weft_ckpt_state_print(&a, &t), WEFT_OK);
    assert_int_equal(weft_ckpt_state_parse("state.json", t.s, t.n, &b), WEFT_OK);
    assert_int_equal(weft_ckpt_state_print(&b, &u), WEFT_OK);
    assert_string_equal(t.s, u.s);
    assert_int_equal(b.sample, 160);
    assert_int_equal(b.seed, -5);
    assert_true(b.data_id == a.data_id && b.weights_xxh64 == UINT64_MAX);
    assert_string_equal(b.extra, a.extra);
    weft_ckpt_state_fini(&b);
    weft_text_fini(&t);
    weft_text_fini(&u);
    assert_int_equal(weft_ckpt_state_parse("state.json", "{}", 2, &b), WEFT_ERR_ARG);
    assert_int_equal(weft_ckpt_state_parse("state.json", "[1]", 3, &b), WEFT_ERR_ARG);
    assert_int_equal(
        weft_ckpt_state_parse("state.json", "{\"format\":1,\"step\":\"x\"}", 23, &b),
        WEFT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(newest_wins),
        cmocka_unit_test(same_step_again),
        cmocka_unit_test(prunes),
        cmocka_unit_test(prune_needs_a_whole_newest),
        cmocka_unit_test(damaged_newer_ones_block_nothing),
        cmocka_unit_test(damaged_older_ones_do_not_count),
        cmocka_unit_test(sweeps),
        cmocka_unit_test(a_broken_manifest_is_replaced),
        cmocka_unit_test(a_folder_for_a_manifest_is_moved),
        cmocka_unit_test(a_record_names_no_other_folder),
        test_plain(large_and_like),
        cmocka_unit_test(refuses),
        cmocka_unit_test(state_round_trip),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
