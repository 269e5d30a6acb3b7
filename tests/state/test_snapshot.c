/* Files that several ranks write in place: for any parts, replicas, types and places in a file the
 * bytes are those of the state when it was started, their sums are the files', and an error of any
 * call gives it up without a wait.  The same out of memory that host code does not reach, with and
 * without a second state that takes all of the first. */
#include "state/cases.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "state/convert.h"
#include "state/snapshot.h"
#include "support/files.h"
#include "support/test.h"

enum {
    N_FILE = 2,
    MAX_N  = 8 /* items of a file */
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
    weft_state          *state[CASE_MAX_RANK], *copy[CASE_MAX_RANK];
    weft_snapshot       *snapshot[CASE_MAX_RANK];
    weft_snapshot_total *total;
    uint64_t             hash[CASE_MAX_RANK][MAX_N]; /* of items of the first file */
} writing;

/* How a rank's state is kept and copied. */
typedef enum way {
    ON_HOST,
    COPIED_ON_HOST, /* into a second one */
    ON_DEVICE,      /* host code does not reach it */
    COPIED_ON_DEVICE,
    COPIED_TO_HOST, /* out of the device's memory into pinned memory */
    N_WAY
} way;

/* The same in memory of the guard device. */
static void move_to_guard(weft_state **s)
{
    const weft_memory *from = weft_state_memory(*s);
    weft_state        *to;
    assert_ok(weft_state_create(weft_device_guard(), from->bytes, &to));
    for (int k = 0; k < weft_state_count(*s); k++)
        assert_ok(weft_state_add(to, weft_state_at(*s, k)));
    assert_ok(weft_device_write(weft_state_memory(to), 0, from->address, from->bytes));
    weft_state_destroy(*s);
    *s = to;
}

static void make_state(const case_table *t, int rank, way how, writing *w)
{
    assert_ok(case_state(t, rank, true, &w->state[rank]));
    if (how >= ON_DEVICE) move_to_guard(&w->state[rank]);
    if (how == ON_HOST || how == ON_DEVICE) return;
    assert_ok(weft_state_create_like(
        w->state[rank], how == COPIED_TO_HOST ? WEFT_SPACE_PINNED : WEFT_SPACE_DEVICE,
        &w->copy[rank]));
}

/* As the next update does. */
static void spoil_state(const weft_state *s)
{
    const weft_memory *m     = weft_state_memory(s);
    char              *other = malloc((size_t)m->bytes + 1);
    memset(other, 0xee, (size_t)m->bytes);
    assert_ok(weft_device_write(m, 0, other, m->bytes));
    free(other);
}

/* All ranks at once; WEFT_OK: every one of them has written. */
static weft_status write_all(const case_table *t, const layout *l,
                             const weft_snapshot_options *o, way how, writing *w)
{
    weft_snapshot_options own_o = {0};
    weft_status           st    = WEFT_OK;
    *w                          = (writing){.holders = case_holders(t)};
    w->total = calloc((size_t)weft_snapshot_count(l->file, N_FILE) + 1, sizeof *w->total);
    for (int r = 0; r < t->n_rank; r++) make_state(t, r, how, w);
    if (o) own_o = *o;
    for (int r = 0; r < t->n_rank && st == WEFT_OK; r++) {
        own_o.copy      = w->copy[r];
        own_o.n_writer  = r % 3;
        own_o.item_hash = w->hash[r];
        st              = weft_snapshot_start(
                         &(weft_snapshot_source){w->state[r], t->n_rank > 1 ? w->holders : NULL, r},
                         l->file, N_FILE, &own_o, &w->snapshot[r]);
    }
    for (int r = 0; r < t->n_rank && st == WEFT_OK; r++) {
        assert_true(weft_snapshot_wait(w->snapshot[r], WEFT_SNAPSHOT_COPIED, 60));
        spoil_state(w->state[r]);
    }
    for (int r = 0; r < t->n_rank; r++) {
        int n;
        if (!w->snapshot[r]) continue;
        assert_true(weft_snapshot_wait(w->snapshot[r], WEFT_SNAPSHOT_WRITTEN, 60));
        weft_status own = weft_snapshot_status(w->snapshot[r]);
        if (st == WEFT_OK) st = own;
        const weft_snapshot_block *b = weft_snapshot_blocks(w->snapshot[r], &n);
        assert_int_equal(n, weft_snapshot_count(l->file, N_FILE));
        weft_snapshot_add(w->total, b, n);
    }
    return st;
}

/* One rank alone has hashed the items of the first file. */
static void check_hashes(const case_table *t, const layout *l, const writing *w)
{
    char *want = expect_bytes(t, &l->file[0]), *at = want + l->file[0].n_head;
    if (t->n_rank == 1) assert_true(weft_snapshot_hashed(w->snapshot[0]));
    for (int i = 0; i < l->file[0].n_item && t->n_rank == 1; i++) {
        const weft_snapshot_item *x = &l->file[0].item[i];
        size_t n = (size_t)(weft_region_count(&x->region) * weft_dtype_bytes(x->dtype));
        assert_int_equal(w->hash[0][i], weft_hash_xxh64(at, n, 0));
        at += n;
    }
    free(want);
}

static void end_writing(const case_table *t, writing *w)
{
    for (int r = 0; r < t->n_rank; r++) weft_snapshot_close(w->snapshot[r]);
    for (int r = 0; r < t->n_rank; r++) weft_state_destroy(w->state[r]);
    for (int r = 0; r < t->n_rank; r++) weft_state_destroy(w->copy[r]);
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
        case_table t;
        layout     l;
        writing    w;
        int        n = 1 + case_random(&seed, 6);
        case_random_table(&t, &seed, n, 30, n);
        for (int k = 0; k < CASE_TENSORS && n == 1; k++)
            case_whole_part(&t.at[k][0], &t.tensor[k].shape);
        make_layout(&t, &seed, &l);
        make_files(&l);
        assert_ok(write_all(&t, &l, NULL, (way)(round % N_WAY), &w));
        check_files(&t, &l, &w);
        check_hashes(&t, &l, &w);
        end_writing(&t, &w);
    }
}

/* Files of several blocks: replicas write alternate blocks, columns share every one of them; there
 * are fewer buffers than blocks, and the state changes as soon as it is copied. */
static void many_blocks(void **state)
{
    static const struct {
        int n_rank, dim;
        way how;
    } run[]       = {{1, -1, ON_HOST},
                     {3, -1, COPIED_ON_DEVICE},
                     {2, 0, ON_HOST},
                     {2, 1, COPIED_TO_HOST},
                     {3, 1, ON_HOST}};
    unsigned seed = 5;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(run); i += WEFT_TEST_SANITIZED ? TEST_FEW(3) : 1) {
        case_table t = {.n_rank = run[i].n_rank};
        layout     l;
        writing    w;
        int        writers = 0;
        case_shapes(&t, &seed, 30);
        t.tensor[2].shape = (weft_shape){2, {1511, 1103}};
        t.tensor[3].shape = t.tensor[2].shape;
        for (int k = 0; k < CASE_TENSORS; k++)
            for (int r = 0; r < t.n_rank; r++)
                case_shard(&t.at[k][r], &t.tensor[k].shape, run[i].dim, r, t.n_rank);
        make_layout(&t, &seed, &l);
        make_files(&l);
        assert_ok(write_all(&t, &l, &(weft_snapshot_options){.staging_bytes = 1},
                            run[i].how, &w));
        check_files(&t, &l, &w);
        check_hashes(&t, &l, &w);
        for (int r = 0; r < t.n_rank; r++)
            writers += weft_snapshot_bytes(w.snapshot[r]) > 1 << 20;
        assert_int_equal(writers, t.n_rank);
        end_writing(&t, &w);
    }
}

/* Tensors that are aligned in memory as they are in the files, some of them several times. */
static void make_aligned(case_table *t, int n_rank, layout *l)
{
    static const char head[WEFT_IO_ALIGN];
    static const int  order[] = {4, 2, 4, 3, 4, 4};
    unsigned          seed    = 7;
    *t                        = (case_table){.n_rank = n_rank};
    case_shapes(t, &seed, 30);
    t->tensor[1].shape = (weft_shape){1, {1008}}; /* with the scalar 4096 bytes */
    t->tensor[2].shape = t->tensor[3].shape = (weft_shape){2, {64, 128}};
    t->tensor[4].shape                      = (weft_shape){3, {8, 96, 1024}}; /* 6 MB */
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < n_rank; r++)
            case_whole_part(&t->at[k][r], &t->tensor[k].shape);
    make_layout(t, &seed, l);
    for (size_t i = 0; i < WEFT_COUNT(order); i++)
        l->item[0][i] =
            (weft_snapshot_item){order[i], weft_region_whole(&t->tensor[order[i]].shape),
                                 t->tensor[order[i]].dtype};
    for (int f = 0; f < N_FILE; f++)
        l->file[f] = (weft_snapshot_file){.path   = l->path[f],
                                          .head   = head,
                                          .n_head = sizeof head,
                                          .item   = l->item[0],
                                          .n_item = f ? 4 : (int)WEFT_COUNT(order)};
    make_files(l);
}

/* Whole blocks go to the file out of the state, which changes as soon as it may: of 7 + 4 blocks
 * all but the first of a file, which has its head, and the last, which is not full.  Where the
 * state may change at any time the last 4 are copied, unless threads that write wait for them. */
static void in_place(void **state)
{
    static const struct {
        int    n_rank;
        double expect_s;
        int    least; /* blocks */
    } run[] = {{1, -1, 7}, {2, -1, 7}, {1, 0, 5}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(run); i += TEST_STRIDE(3)) {
        weft_snapshot_options o = {.staging_bytes = 1, .expect_s = run[i].expect_s};
        case_table            t;
        layout                l;
        writing               w;
        int64_t               bytes  = 0;
        int                   direct = -1;
        make_aligned(&t, run[i].n_rank, &l);
        assert_ok(weft_io_open_direct(l.path[0], &direct));
        assert_ok(write_all(&t, &l, &o, ON_HOST, &w));
        for (int r = 0; r < run[i].n_rank; r++)
            bytes += weft_snapshot_in_place_bytes(w.snapshot[r]);
        if (direct < 0) assert_int_equal(bytes, 0);
        if (direct >= 0) assert_in_range(bytes / WEFT_STORE_BLOCK, run[i].least, 7);
        if (direct >= 0) close(direct);
        check_files(&t, &l, &w);
        check_hashes(&t, &l, &w);
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
    assert_ok(write_all(&t, &l, NULL, ON_HOST, &w));
    memset(w.total, 0, sizeof *w.total * (size_t)weft_snapshot_count(l.file, N_FILE));
    const weft_snapshot_block *b = weft_snapshot_blocks(w.snapshot[0], &n);
    weft_snapshot_add(w.total, b, n);
    assert_false(weft_snapshot_hashed(w.snapshot[0]));
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
        weft_status st = write_all(&t, &l, NULL, ON_HOST, &w);
        reached        = weft_io_calls() - before >= n;
        weft_io_fail_at(0, 0, false);
        assert_int_equal(st, reached ? WEFT_ERR_FULL : WEFT_OK);
        if (reached) assert_non_null(strstr(weft_error_text(), "No space left"));
        end_writing(&t, &w);
    }
    assert_true(n > 3 * 2 * 4);
    weft_snapshot_options o = {.before = fail_before};
    make_files(&l);
    assert_int_equal(write_all(&t, &l, &o, COPIED_ON_DEVICE, &w), WEFT_ERR_FULL);
    assert_non_null(strstr(weft_error_text(), "no room was reserved"));
    end_writing(&t, &w);
    unlink(l.path[0]);
    rmdir(test_files_path("nowhere"));
    snprintf(l.path[0], sizeof l.path[0], "%s", test_files_path("nowhere/file"));
    assert_int_equal(write_all(&t, &l, NULL, ON_HOST, &w), WEFT_ERR_ARG);
    end_writing(&t, &w);
}

/* ---- a device that copies when it is told to ---- */

static weft_device  slow;
static _Atomic int  n_pass; /* copies that it still makes before it waits */
static _Atomic bool open_gate;
static _Atomic int  n_fail; /* the copy that fails; 0: none does */

static weft_status copy_slowly(weft_device *d, weft_stream *s, const weft_memory *to,
                               const weft_memory *from)
{
    if (atomic_fetch_sub(&n_pass, 1) <= 0)
        while (!atomic_load(&open_gate))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (atomic_load(&n_fail) && atomic_fetch_sub(&n_fail, 1) == 1)
        return WEFT_FAIL(WEFT_ERR_IO, "the device is lost");
    return weft_device_cpu()->copy(d, s, to, from);
}

/* One rank's state in memory of that device. */
static void make_slow_state(case_table *t, layout *l, weft_state **out)
{
    unsigned    seed = 4;
    weft_state *s;
    *t               = (case_table){.n_rank = 1};
    slow             = *weft_device_cpu();
    slow.copy        = copy_slowly;
    slow.name        = "slow";
    slow.host_access = false;
    atomic_store(&open_gate, true);
    atomic_store(&n_fail, 0);
    case_shapes(t, &seed, 30);
    t->tensor[2].shape = t->tensor[3].shape = (weft_shape){2, {611, 1103}};
    for (int k = 0; k < CASE_TENSORS; k++)
        case_whole_part(&t->at[k][0], &t->tensor[k].shape);
    make_layout(t, &seed, l);
    make_files(l);
    assert_ok(case_state(t, 0, true, &s));
    assert_ok(weft_state_create(&slow, weft_state_memory(s)->bytes, out));
    for (int k = 0; k < weft_state_count(s); k++)
        assert_ok(weft_state_add(*out, weft_state_at(s, k)));
    memcpy(weft_state_memory(*out)->address, weft_state_memory(s)->address,
           (size_t)weft_state_memory(s)->bytes);
    weft_state_destroy(s);
}

static void spoil_slow_state(const weft_state *s)
{
    const weft_memory *m = weft_state_memory(s);
    memset(m->address, 0xee, (size_t)m->bytes);
}

static void given_up(void **state)
{
    case_table     t;
    layout         l;
    weft_state    *s, *copy;
    weft_snapshot *p;
    (void)state;
    make_slow_state(&t, &l, &s);
    assert_ok(weft_state_create_like(s, WEFT_SPACE_DEVICE, &copy));
    for (int k = 0; k < 2; k++) {
        weft_snapshot_options o = {.copy = k ? copy : NULL};
        atomic_store(&open_gate, false);
        atomic_store(&n_pass, 0);
        assert_ok(weft_snapshot_start(&(weft_snapshot_source){s, NULL, 0}, l.file, N_FILE,
                                      &o, &p));
        assert_false(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, 0));
        weft_snapshot_cancel(p, "another view");
        assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, 0));
        atomic_store(&open_gate, true);
        assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 60));
        assert_int_equal(weft_snapshot_status(p), WEFT_ERR_IO);
        assert_string_equal(weft_error_text(), "another view");
        weft_snapshot_close(p);
    }
    weft_state_destroy(copy);
    weft_state_destroy(s);
}

/* With a second state the first may change when the device has copied it, before there is any
 * block of it. */
static void a_copy_lets_go(void **state)
{
    case_table  t;
    layout      l;
    weft_state *s, *copy;
    writing     w = {.total = NULL};
    int         n;
    (void)state;
    make_slow_state(&t, &l, &s);
    assert_ok(weft_state_create_like(s, WEFT_SPACE_DEVICE, &copy));
    for (int k = 0; k < 2; k++) {
        weft_snapshot_options o = {.copy = k ? copy : NULL};
        atomic_store(&open_gate, false);
        atomic_store(&n_pass, 1);
        assert_ok(weft_snapshot_start(&(weft_snapshot_source){s, NULL, 0}, l.file, N_FILE,
                                      &o, &w.snapshot[0]));
        assert_int_equal(
            weft_snapshot_wait(w.snapshot[0], WEFT_SNAPSHOT_COPIED, k ? 60 : 0.05), k);
        if (k) spoil_slow_state(s);
        assert_int_equal(weft_snapshot_bytes(w.snapshot[0]), 0);
        atomic_store(&open_gate, true);
        assert_true(weft_snapshot_wait(w.snapshot[0], WEFT_SNAPSHOT_WRITTEN, 60));
        assert_ok(weft_snapshot_status(w.snapshot[0]));
        const weft_snapshot_block *b = weft_snapshot_blocks(w.snapshot[0], &n);
        w.total                      = calloc((size_t)n + 1, sizeof *w.total);
        weft_snapshot_add(w.total, b, n);
        check_files(&t, &l, &w);
        weft_snapshot_close(w.snapshot[0]);
        free(w.total);
    }
    weft_state_destroy(copy);
    weft_state_destroy(s);
}

static weft_status find_keep(void *arg, weft_state **keep)
{
    *keep = arg;
    return WEFT_OK;
}

/* A snapshot without files, into memory that stays: the state may change when it is copied, the
 * bytes are those of the start. */
static void kept_without_files(void **state)
{
    case_table     t;
    layout         l;
    weft_state    *s, *copy, *keep;
    weft_snapshot *p;
    (void)state;
    make_slow_state(&t, &l, &s);
    const weft_memory *m    = weft_state_memory(s);
    void              *want = malloc((size_t)m->bytes);
    memcpy(want, m->address, (size_t)m->bytes);
    assert_ok(weft_state_create_like(s, WEFT_SPACE_DEVICE, &copy));
    assert_ok(weft_state_create_like(s, WEFT_SPACE_PINNED, &keep));
    for (int k = 0; k < 2; k++) {
        weft_snapshot_options o = {
            .copy = k ? copy : NULL, .find_keep = find_keep, .arg = keep, .n_writer = 1};
        spoil_slow_state(keep);
        memcpy(m->address, want, (size_t)m->bytes);
        atomic_store(&open_gate, false);
        atomic_store(&n_pass, k);
        assert_ok(
            weft_snapshot_start(&(weft_snapshot_source){s, NULL, 0}, NULL, 0, &o, &p));
        assert_int_equal(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, k ? 60 : 0.05), k);
        if (k) spoil_slow_state(s);
        assert_false(weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 0));
        atomic_store(&open_gate, true);
        assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 60));
        assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_COPIED, 0));
        assert_ok(weft_snapshot_status(p));
        assert_memory_equal(weft_state_memory(keep)->address, want, (size_t)m->bytes);
        weft_snapshot_close(p);
    }
    free(want);
    weft_state_destroy(copy);
    weft_state_destroy(keep);
    weft_state_destroy(s);
}

/* The device fails at the first copy, and at later ones: of the state, of blocks. */
static void a_device_fails(void **state)
{
    case_table     t;
    layout         l;
    weft_state    *s, *copy;
    weft_snapshot *p;
    (void)state;
    make_slow_state(&t, &l, &s);
    assert_ok(weft_state_create_like(s, WEFT_SPACE_DEVICE, &copy));
    for (int k = 0; k < 6; k++) {
        weft_snapshot_options o = {.copy = k % 2 ? copy : NULL};
        atomic_store(&n_fail, 1 + k / 2);
        assert_ok(weft_snapshot_start(&(weft_snapshot_source){s, NULL, 0}, l.file, N_FILE,
                                      &o, &p));
        assert_true(weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 60));
        assert_int_equal(weft_snapshot_status(p), WEFT_ERR_IO);
        assert_string_equal(weft_error_text(), "the device is lost");
        weft_snapshot_close(p);
    }
    weft_state_destroy(copy);
    weft_state_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_parts),
        test_plain(many_blocks),
        test_plain(in_place),
        cmocka_unit_test(a_missing_rank_is_found),
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(given_up),
        cmocka_unit_test(a_copy_lets_go),
        cmocka_unit_test(kept_without_files),
        cmocka_unit_test(a_device_fails),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
