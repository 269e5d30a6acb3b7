/* Files that several ranks write in place: for any parts, replicas, types and places in a file the
 * bytes are those of the state when it was started, their sums are the files', and an error of any
 * call gives it up without a wait. */
#include "state/cases.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "state/convert.h"
#include "state/snapshot.h"
#include "support/files.h"

enum {
    N_FILE = 2,
    MAX_N  = CASE_TENSORS
};

/* Files of a table's tensors: all of them in the first one, the last three in the second. */
typedef struct layout {
    char               path[N_FILE][300], head[N_FILE][64];
    weft_snapshot_item item[N_FILE][MAX_N];
    weft_snapshot_file file[N_FILE];
} layout;

static weft_dtype pick_type(weft_dtype have, unsigned *seed)
{
    if (have == WEFT_DTYPE_I64 || case_random(seed, 3)) return have;
    return have == WEFT_DTYPE_F32 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
}

static void make_layout(const case_table *t, unsigned *seed, layout *l)
{
    for (int f = 0; f < N_FILE; f++) {
        int n = 0;
        for (int k = f ? 2 : 0; k < CASE_TENSORS; k++)
            l->item[f][n++] =
                (weft_snapshot_item){k, weft_region_whole(&t->tensor[k].shape),
                                     pick_type(t->tensor[k].dtype, seed)};
        memset(l->head[f], 'a' + f, sizeof l->head[f]);
        snprintf(l->path[f], sizeof l->path[f], "%s", test_files_path("file-%d", f));
        l->file[f] = (weft_snapshot_file){.path   = l->path[f],
                                          .head   = l->head[f],
                                          .n_head = case_random(seed, 40),
                                          .item   = l->item[f],
                                          .n_item = n};
    }
}

static char *expect_bytes(const case_table *t, const weft_snapshot_file *f)
{
    char *all = malloc((size_t)weft_snapshot_file_bytes(f) + 1), *to = all;
    memcpy(to, f->head, (size_t)f->n_head);
    to += f->n_head;
    for (int i = 0; i < f->n_item; i++) {
        const weft_state_tensor *x = &t->tensor[f->item[i].tensor];
        for (int64_t k = 0; k < weft_shape_count(&x->shape); k++) {
            uint64_t number = case_number(f->item[i].tensor, k);
            float    value;
            if (x->dtype == f->item[i].dtype) {
                memcpy(to, &number, (size_t)weft_dtype_bytes(x->dtype));
            } else {
                assert_ok(weft_convert_to_f32(x->dtype, &number, 1, &value));
                assert_ok(weft_convert_from_f32(f->item[i].dtype, &value, 1, to));
            }
            to += weft_dtype_bytes(f->item[i].dtype);
        }
    }
    return all;
}

static void make_files(const layout *l)
{
    for (int f = 0; f < N_FILE; f++) test_files_write(l->path[f], "", 0);
}

typedef struct writing {
    weft_holders        *holders;
    weft_state          *state[CASE_MAX_RANK];
    weft_snapshot       *snapshot[CASE_MAX_RANK];
    weft_snapshot_total *total;
} writing;

/* All ranks at once; WEFT_OK: every one of them has written. */
static weft_status write_all(const case_table *t, const layout *l,
                             const weft_snapshot_options *o, bool spoil, writing *w)
{
    weft_status st = WEFT_OK;
    *w             = (writing){.holders = case_holders(t)};
    w->total = calloc((size_t)weft_snapshot_count(l->file, N_FILE) + 1, sizeof *w->total);
    for (int r = 0; r < t->n_rank; r++) assert_ok(case_state(t, r, true, &w->state[r]));
    for (int r = 0; r < t->n_rank && st == WEFT_OK; r++)
        st = weft_snapshot_start(
            &(weft_snapshot_source){w->state[r], t->n_rank > 1 ? w->holders : NULL, r},
            l->file, N_FILE, o, &w->snapshot[r]);
    for (int r = 0; r < t->n_rank && spoil && st == WEFT_OK; r++) {
        const weft_memory *m = weft_state_memory(w->state[r]);
        assert_true(weft_snapshot_wait(w->snapshot[r], WEFT_SNAPSHOT_COPIED, 60));
        memset(weft_memory_host(m), 0xee, (size_t)m->bytes); /* the next update */
    }
    for (int r = 0; r < t->n_rank; r++) {
        int n;
        if (!w->snapshot[r]) continue;
        while (o && o->copied_by_caller &&
               !weft_snapshot_wait(w->snapshot[r], WEFT_SNAPSHOT_COPIED, 0))
            weft_snapshot_copy(w->snapshot[r], 0.01);
        assert_true(weft_snapshot_wait(w->snapshot[r], WEFT_SNAPSHOT_WRITTEN, 60));
        weft_status own = weft_snapshot_status(w->snapshot[r]);
        if (st == WEFT_OK) st = own;
        const weft_snapshot_block *b = weft_snapshot_blocks(w->snapshot[r], &n);
        assert_int_equal(n, weft_snapshot_count(l->file, N_FILE));
        weft_snapshot_add(w->total, b, n);
    }
    return st;
}

static void end_writing(const case_table *t, writing *w)
{
    for (int r = 0; r < t->n_rank; r++) weft_snapshot_close(w->snapshot[r]);
    for (int r = 0; r < t->n_rank; r++) weft_state_destroy(w->state[r]);
    weft_holders_destroy(w->holders);
    free(w->total);
}

static void check_files(const case_table *t, const layout *l, const writing *w)
{
    weft_store_sum sum[N_FILE];
    assert_ok(weft_snapshot_sum(l->file, N_FILE, w->total, sum));
    for (int f = 0; f < N_FILE; f++) {
        size_t n;
        char *got = test_files_read(l->path[f], &n), *want = expect_bytes(t, &l->file[f]);
        assert_int_equal(n, weft_snapshot_file_bytes(&l->file[f]));
        if (memcmp(got, want, n)) fail_msg("file %d differs", f);
        for (int64_t k = 0; k < sum[f].n_block; k++) {
            size_t at   = (size_t)k * WEFT_STORE_BLOCK;
            size_t left = n - at < WEFT_STORE_BLOCK ? n - at : WEFT_STORE_BLOCK;
            assert_int_equal(sum[f].crc[k], weft_hash_crc32c(0, got + at, left));
        }
        free(got);
        free(want);
        weft_store_sum_fini(&sum[f]);
    }
}

static void any_parts(void **state)
{
    unsigned seed = 11;
    (void)state;
    for (int round = 0; round < (WEFT_TEST_SANITIZED ? 40 : 150); round++) {
        case_table            t;
        layout                l;
        writing               w;
        int                   n = 1 + case_random(&seed, 6);
        weft_snapshot_options o = {.copied_by_caller = round % 3 == 0};
        case_random_table(&t, &seed, n, 30, n);
        for (int k = 0; k < CASE_TENSORS && n == 1; k++)
            case_whole_part(&t.at[k][0], &t.tensor[k].shape);
        make_layout(&t, &seed, &l);
        make_files(&l);
        assert_ok(write_all(&t, &l, &o, !o.copied_by_caller, &w));
        check_files(&t, &l, &w);
        end_writing(&t, &w);
    }
}

/* Files of several blocks: replicas write alternate blocks, columns share every one of them; there
 * are fewer buffers than blocks, and the state changes as soon as it is copied. */
static void many_blocks(void **state)
{
    static const struct {
        int n_rank, dim;
    } way[]       = {{1, -1}, {3, -1}, {2, 0}, {3, 1}};
    unsigned seed = 5;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(way); i++) {
        case_table t = {.n_rank = way[i].n_rank};
        layout     l;
        writing    w;
        int        writers = 0;
        case_shapes(&t, &seed, 30);
        t.tensor[2].shape = (weft_shape){2, {1511, 1103}};
        t.tensor[3].shape = t.tensor[2].shape;
        for (int k = 0; k < CASE_TENSORS; k++)
            for (int r = 0; r < t.n_rank; r++)
                case_shard(&t.at[k][r], &t.tensor[k].shape, way[i].dim, r, t.n_rank);
        make_layout(&t, &seed, &l);
        make_files(&l);
        assert_ok(
            write_all(&t, &l, &(weft_snapshot_options){.staging_bytes = 1}, true, &w));
        check_files(&t, &l, &w);
        for (int r = 0; r < t.n_rank; r++)
            writers += weft_snapshot_bytes(w.snapshot[r]) > 1 << 20;
        assert_int_equal(writers, t.n_rank);
        end_writing(&t, &w);
    }
}

/* What one rank did not write is missed, whatever the file holds there. */
static void a_missing_rank_is_found(void **state)
{
    unsigned       seed = 3;
    case_table     t;
    layout         l;
    writing        w;
    weft_store_sum sum[N_FILE];
    int            n;
    (void)state;
    case_random_table(&t, &seed, 2, 20, 2);
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < 2; r++) case_shard(&t.at[k][r], &t.tensor[k].shape, 0, r, 2);
    make_layout(&t, &seed, &l);
    make_files(&l);
    assert_ok(write_all(&t, &l, NULL, false, &w));
    memset(w.total, 0, sizeof *w.total * (size_t)weft_snapshot_count(l.file, N_FILE));
    const weft_snapshot_block *b = weft_snapshot_blocks(w.snapshot[0], &n);
    weft_snapshot_add(w.total, b, n);
    assert_int_equal(weft_snapshot_sum(l.file, N_FILE, w.total, sum), WEFT_ERR_INTERNAL);
    assert_non_null(strstr(weft_error_text(), "ranks wrote"));
    end_writing(&t, &w);
}

static weft_status fail_before(void *arg)
{
    (void)arg;
    return WEFT_FAIL(WEFT_ERR_FULL, "no room was reserved");
}

/* Every call fails once: it ends, says why, and reads the state no more. */
static void each_call_fails(void **state)
{
    unsigned   seed = 9;
    case_table t;
    layout     l;
    writing    w;
    int        n = 1;
    (void)state;
    case_random_table(&t, &seed, 3, 20, 3);
    make_layout(&t, &seed, &l);
    for (bool reached = true; reached; n++) {
        make_files(&l);
        int64_t before = weft_io_calls();
        weft_io_fail_at(n, ENOSPC, false);
        weft_status st = write_all(&t, &l, NULL, true, &w);
        reached        = weft_io_calls() - before >= n;
        weft_io_fail_at(0, 0, false);
        assert_int_equal(st, reached ? WEFT_ERR_FULL : WEFT_OK);
        if (reached) assert_non_null(strstr(weft_error_text(), "No space left"));
        end_writing(&t, &w);
    }
    assert_true(n > 3 * 2 * 4);
    weft_snapshot_options o = {.before = fail_before};
    make_files(&l);
    assert_int_equal(write_all(&t, &l, &o, true, &w), WEFT_ERR_FULL);
    assert_non_null(strstr(weft_error_text(), "no room was reserved"));
    end_writing(&t, &w);
    unlink(l.path[0]);
    rmdir(test_files_path("nowhere"));
    snprintf(l.path[0], sizeof l.path[0], "%s", test_files_path("nowhere/file"));
    assert_int_equal(write_all(&t, &l, NULL, false, &w), WEFT_ERR_ARG);
    end_writing(&t, &w);
}

static void given_up(void **state)
{
    unsigned              seed = 4;
    case_table            t;
    layout                l;
    weft_state           *s;
    weft_snapshot        *p;
    weft_snapshot_options o = {.copied_by_caller = true};
    (void)state;
    case_random_table(&t, &seed, 1, 20, 1);
    for (int k = 0; k < CASE_TENSORS; k++)
        case_whole_part(&t.at[k][0], &t.tensor[k].shape);
    make_layout(&t, &seed, &l);
    make_files(&l);
    assert_ok(case_state(&t, 0, true, &s));
    assert_ok(
        weft_snapshot_start(&(weft_snapshot_source){s, NULL, 0}, l.file, N_FILE, &o, &p));
    assert_false(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, 0));
    weft_snapshot_cancel(p, "another view");
    assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, 0));
    assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 60));
    assert_int_equal(weft_snapshot_status(p), WEFT_ERR_IO);
    assert_string_equal(weft_error_text(), "another view");
    weft_snapshot_close(p);
    weft_state_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_parts),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(a_missing_rank_is_found),
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(given_up),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
