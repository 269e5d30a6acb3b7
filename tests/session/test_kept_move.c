/* Moves between the slots of an agent's memory.  Ranks are processes, killed at any moment of a
 * move, one or all of them, again and again on the way to other plans: what was held is never lost.
 * In batches the memory file never has many more pages than before or after. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/shm.h"
#include "session/kept_move.h"
#include "session/program_state.h"
#include "state/move_batches.h"
#include "state/move_check.h"

enum {
    MAX_RANK = 4,
    STEP     = 7,
    TIMEOUT  = 20,
    TAG      = 1 << 20,
    LOST     = 10, /* exit code: a peer is lost */
};

static weft_training  training;
static weft_comm_shm *kept;
static uint32_t       epoch_number;

typedef struct view {
    const char *plan;
    int         n_rank;
    bool        first, in_batches;
    int         turn;           /* rank r has slot r + turn, modulo all */
    const char *fail[MAX_RANK]; /* failpoint of each rank, or NULL */
} view;

/* What ranks found, for the test. */
typedef struct result {
    int64_t peak_bytes, n_batch, largest, moved;
} result;

static result *found; /* shared; of each rank */

static const struct plan_case {
    const char *plan;
    int         n_rank;
} plans[] = {{"dp=1", 1},        {"dp=4 zero=3", 4},      {"pp=2", 2},
             {"dp=2 zero=1", 2}, {"dp=2 pp=2 zero=1", 4}, {"dp=3 zero=2", 3},
             {"dp=3", 3},        {"pp=2 copies=2", 2},    {"dp=4 zero=1 copies=2", 4},
             {"dp=2", 2}};

/* ---- a rank ---- */

static float number_of(int tensor, int64_t i)
{
    return (float)(tensor * 131 + i % 100003);
}

/* The whole tensor, element by element in its own type's width. */
static void fill_numbers(const weft_state_tensor *t, int tensor, char *to)
{
    int64_t size = weft_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++) {
        float  x       = number_of(tensor, i);
        char   bits[8] = {0};
        size_t n       = size < 8 ? (size_t)size : 8;
        memcpy(bits, &x, sizeof x);
        memcpy(to + i * size, bits, n);
    }
}

/* write: fills what the state has; else: has it these numbers? */
static weft_status walk_numbers(weft_state *s, bool write)
{
    for (int k = 0; s && k < weft_state_count(s); k++) {
        const weft_state_tensor *t = weft_state_at(s, k);
        weft_region              r = weft_region_whole(&t->shape);
        size_t n    = (size_t)(weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype));
        char  *want = malloc(n + 1), *have = malloc(n + 1);
        if (!want || !have) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        fill_numbers(t, k, want);
        memcpy(have, want, n);
        WEFT_TRY(write ? weft_state_write(s, k, &r, want)
                       : weft_state_read(s, k, &r, have));
        bool same = !memcmp(want, have, n);
        free(want);
        free(have);
        if (!same) return WEFT_FAIL(WEFT_ERR_NUMERIC, "%s differs", t->name);
    }
    return WEFT_OK;
}

/* One rank in one membership. */
typedef struct rank_run {
    const view      *view;
    int              rank;
    weft_compiled    made;
    weft_comm       *comm;
    weft_comm_group *group;
    weft_kept_states from;
    weft_state      *to, *empty;
    weft_holders    *holders, *standby;
    weft_mover_side  side; /* of what ranks hold for each other */
} rank_run;

static weft_status meet(rank_run *r)
{
    return weft_comm_collective(r->comm, r->group, WEFT_BARRIER, WEFT_DTYPE_F32, NULL,
                                NULL, 0);
}

static weft_status connect(rank_run *r, int epoch_fd)
{
    static const int32_t all[MAX_RANK] = {0, 1, 2, 3};
    weft_strategy        y;
    weft_plan           *plan;
    WEFT_TRY(weft_strategy_parse(r->view->plan, &y));
    WEFT_TRY(weft_compile_plan(&training, &y, 0, &plan));
    WEFT_TRY(weft_compile_program(&training, plan, r->rank, &r->made));
    WEFT_TRY(weft_comm_shm_join_kept(epoch_fd, weft_comm_shm_fd(kept), r->rank, TIMEOUT,
                                     &r->comm));
    return weft_comm_open_group(r->comm, r->comm->world, all, TAG, &r->group);
}

/* What ranks hold for each other, where the plan has such. */
static weft_status list_standby(rank_run *r, weft_kept_move *m)
{
    weft_state *standby = weft_state_standby(r->to, 0);
    if (!strstr(r->view->plan, "pp=2 copies")) return WEFT_OK;
    if (!standby) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no standby replica");
    WEFT_TRY(weft_holders_exchange(standby, r->comm, r->group, &r->standby));
    r->side      = (weft_mover_side){standby, r->standby};
    m->standby   = &r->side;
    m->n_standby = 1;
    return WEFT_OK;
}

static weft_status move_state(rank_run *r)
{
    const view    *v    = r->view;
    weft_move_list list = {0};
    weft_kept_move m    = {.comm        = r->comm,
                           .group       = r->group,
                           .step        = STEP,
                           .from        = &r->from,
                           .in_batches  = v->in_batches,
                           .tag         = TAG + 1,
                           .standby_tag = TAG + 2};
    WEFT_TRY(weft_kept_states_open(r->comm, weft_device_default(), STEP, &r->from));
    WEFT_TRY(meet(r));
    if (v->in_batches) weft_kept_give_back_rest(r->comm, STEP);
    WEFT_TRY(weft_program_state_open_kept(&r->made, r->comm, weft_device_default(), false,
                                          v->in_batches, true, &r->to));
    WEFT_TRY(weft_holders_exchange(r->to, r->comm, r->group, &r->holders));
    if (!r->from.holders) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no slot holds anything");
    WEFT_TRY(weft_move_plan(r->from.holders, r->holders, -1, &list));
    WEFT_TRY(weft_move_verify(&list, r->from.holders, r->holders));
    weft_move_list_fini(&list);
    m.to = (weft_mover_side){r->to, r->holders};
    WEFT_TRY(list_standby(r, &m));
    WEFT_TRY(weft_kept_move_run(&m));
    found[r->rank] =
        (result){m.peak_bytes, m.n_batch, weft_move_largest(r->holders), m.copied};
    WEFT_TRY(meet(r));
    weft_failpoint("test.settle");
    weft_program_state_settle(r->comm, v->in_batches);
    return WEFT_OK;
}

static weft_status run_rank(rank_run *r, int epoch_fd)
{
    WEFT_TRY(connect(r, epoch_fd));
    weft_program_state_reserve(r->comm, r->view->first ? -1 : STEP, false);
    if (!r->view->first) {
        WEFT_TRY(move_state(r));
        if (!weft_program_state_is_whole(r->comm))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "a tensor is not marked");
    } else {
        WEFT_TRY(weft_program_state_open_kept(&r->made, r->comm, weft_device_default(),
                                              false, false, false, &r->to));
        WEFT_TRY(walk_numbers(r->to, true));
        WEFT_TRY(walk_numbers(weft_state_standby(r->to, 0), true));
        atomic_store(&weft_program_state_slot(r->comm)->state.step, STEP);
    }
    WEFT_TRY(walk_numbers(r->to, false));
    WEFT_TRY(walk_numbers(weft_state_standby(r->to, 0), false));
    return meet(r);
}

static void be_rank(const view *v, int rank, int epoch_fd)
{
    rank_run    r  = {.view = v, .rank = rank};
    weft_status st = WEFT_OK;
    if (v->fail[rank]) st = weft_failpoint_arm(v->fail[rank], NULL);
    if (st == WEFT_OK) st = run_rank(&r, epoch_fd);
    if (st != WEFT_OK && st != WEFT_ERR_PEER)
        fprintf(stderr, "%s, rank %d: %s\n", v->plan, rank, weft_error_text());
    if (st != WEFT_OK && r.comm) weft_comm_abort(r.comm, "another rank ended");
    _exit(st == WEFT_OK ? 0 : st == WEFT_ERR_PEER ? LOST : 1);
}

/* ---- views ---- */

/* true: all ranks have their state. */
static bool run_view(const view *v)
{
    weft_comm_shm *epoch;
    pid_t          pid[MAX_RANK];
    int            slot[MAX_RANK], n_done = 0, n_failed = 0, how;
    assert_ok(weft_comm_shm_create(MAX_RANK, &epoch));
    weft_comm_shm_set_epoch(epoch, ++epoch_number);
    for (int r = 0; r < MAX_RANK; r++) slot[r] = (r + v->turn) % MAX_RANK;
    weft_comm_shm_set_slots(epoch, v->n_rank, slot);
    memset(found, 0, sizeof *found * MAX_RANK);
    for (int r = 0; r < v->n_rank; r++) {
        pid[r] = fork();
        if (!pid[r]) be_rank(v, r, weft_comm_shm_fd(epoch));
    }
    for (int k = 0; k < v->n_rank; k++) {
        pid_t who = wait(&how);
        int   r   = 0;
        while (r < v->n_rank && pid[r] != who) r++;
        if (WIFSIGNALED(how)) weft_comm_shm_report(epoch, r, "killed");
        n_done += WIFEXITED(how) && !WEXITSTATUS(how);
        n_failed += WIFEXITED(how) && WEXITSTATUS(how) && WEXITSTATUS(how) != LOST;
        n_failed += WIFSIGNALED(how) && WTERMSIG(how) != SIGKILL;
    }
    assert_int_equal(n_failed, 0);
    weft_comm_shm_destroy(epoch);
    if (n_done != v->n_rank) return false;
    for (int r = v->n_rank; r < MAX_RANK;
         r++) { /* as the agent does, when all are ready */
        weft_comm_shm_distrust(weft_comm_shm_slot_of(kept, slot[r]));
        weft_comm_shm_clear_slab(kept, slot[r]);
    }
    return true;
}

static int64_t count_pages(void)
{
    struct stat s;
    assert_int_equal(fstat(weft_comm_shm_fd(kept), &s), 0);
    return (int64_t)s.st_blocks * 512;
}

static void open_job(void)
{
    weft_compile_spec s = weft_compile_spec_default("tiny256", 8, 16);
    s.micro_batch       = 1;
    s.lanes             = 4;
    assert_ok(weft_compile_training(&s, &training));
    assert_ok(weft_comm_shm_create(MAX_RANK, &kept));
    found = mmap(NULL, sizeof *found * MAX_RANK, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(found != MAP_FAILED);
}

static void close_job(void)
{
    munmap(found, sizeof *found * MAX_RANK);
    weft_comm_shm_destroy(kept);
    weft_training_fini(&training);
}

/* ---- tests ---- */

/* Bytes of pages: before, at most, after. */
static void check_peak(const view *v, int64_t before, int64_t after)
{
    int64_t peak = 0, bound = before > after ? before : after;
    for (int r = 0; r < v->n_rank; r++)
        if (found[r].peak_bytes > peak) peak = found[r].peak_bytes;
    bound += v->n_rank * (found[0].largest + (1 << 20)); /* tables, pages at borders */
    if (v->in_batches)
        assert_in_range(peak, 1, bound);
    else
        assert_true(peak >= before + after / 2);
}

/* Every pair of layouts that differ, there and back. */
static void memory_is_bounded(void **state)
{
    static const struct plan_case way[] = {
        {"dp=4 zero=3", 4},      {"pp=2", 2}, {"dp=1", 1}, {"dp=3 zero=2", 3},
        {"dp=2 pp=2 zero=1", 4}, {"dp=1", 1}};
    (void)state;
    open_job();
    assert_true(run_view(&(view){.plan = "dp=1", .n_rank = 1, .first = true}));
    for (int i = 0; i < (int)(sizeof way / sizeof *way); i++) {
        int64_t before = count_pages();
        view    v = {.plan = way[i].plan, .n_rank = way[i].n_rank, .in_batches = true};
        assert_true(run_view(&v));
        assert_true(found[0].n_batch > 3);
        check_peak(&v, before, count_pages());
    }
    int64_t before = count_pages(); /* all at once: both are there */
    view    v      = {.plan = "pp=2", .n_rank = 2};
    assert_true(run_view(&v));
    assert_int_equal(found[0].n_batch, 1);
    check_peak(&v, before, before);
    close_job();
}

static const char *const points[] = {"move.chunk", "move.there", "move.all_there",
                                     "move.gone", "test.settle"};

/* Some rank, or all of them, is killed somewhere in it. */
static void draw_kills(view *v, unsigned *seed, char text[][64])
{
    bool all = rand_r(seed) % 3 == 0;
    int  one = rand_r(seed) % v->n_rank;
    for (int r = 0; r < v->n_rank; r++) {
        const char *at    = points[(unsigned)rand_r(seed) % 5];
        int         nth   = 1 + rand_r(seed) % (strcmp(at, "test.settle") ? 8 : 1);
        bool        often = v->in_batches || !strcmp(at, "move.chunk");
        snprintf(text[r], 64, "%s:kill:nth=%d", at, often ? nth : 1);
        v->fail[r] = all || r == one ? text[r] : NULL;
    }
}

static void nothing_is_lost(void **state)
{
    int      n_plan = (int)(sizeof plans / sizeof *plans), n_broken = 0, n_view = 0;
    unsigned seed = 11;
    char     text[MAX_RANK][64];
    (void)state;
    open_job();
    assert_true(run_view(&(view){.plan = "dp=2 zero=1", .n_rank = 2, .first = true}));
    for (int round = 0; round < (WEFT_TEST_SANITIZED ? 4 : 16); round++) {
        int n_kill = rand_r(&seed) % 6;
        for (int k = 0; k <= n_kill; k++) {
            const struct plan_case *p = &plans[rand_r(&seed) % n_plan];
            view                    v = {.plan       = p->plan,
                                         .n_rank     = p->n_rank,
                                         .in_batches = rand_r(&seed) % 4 > 0,
                                         .turn = rand_r(&seed) % 3 ? 0 : rand_r(&seed) % MAX_RANK};
            if (k < n_kill) draw_kills(&v, &seed, text);
            bool done = run_view(&v);
            assert_true(done || k < n_kill);
            n_broken += !done;
            n_view++;
        }
    }
    print_message("%d moves, %d of them broken off\n", n_view, n_broken);
    assert_true(n_broken > n_view / 4);
    close_job();
}

int main(void)
{
    const struct CMUnitTest test[] = {
        test_plain(memory_is_bounded),
        cmocka_unit_test(nothing_is_lost),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
