/* Shared memory: ranks that are killed or stopped, memory that is damaged, what is left behind. */
#include "comm/kill.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/un.h>

#include "comm/shm_priv.h"

enum {
    MAX_KILL = 10000,
    GONE_S   = WEFT_TEST_SANITIZED ? 10 : 2,
};

/* WEFT_FAULT_RANK_KILLS asks for more, all of them of one of four ranks. */
static int n_kill(bool *many)
{
    const char *s = getenv("WEFT_FAULT_RANK_KILLS");
    int         n = s ? atoi(s) : 0;
    *many         = n > 0 && n <= MAX_KILL;
    return *many ? n : WEFT_TEST_SANITIZED ? 8 : 25;
}

/* ---- death ---- */

/* All-reduces for ever, of turning sizes, in slabs and out of them, and messages around a ring. */
static weft_status work_for_ever(rank_state *r)
{
    weft_comm_group   *g;
    weft_comm_channel *to, *from;
    void              *slab;
    static float       own[70000];
    int                next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(r->c, next, WEFT_COMM_SEND, 1, 4096, 2, &to));
    WEFT_TRY(weft_comm_open_channel(r->c, prev, WEFT_COMM_RECV, 1, 4096, 2, &from));
    WEFT_TRY(weft_comm_shm_alloc(r->c, 4 << 20, &slab));
    for (int i = 0;; i++) {
        static const int64_t count[] = {1, 1024, 65536, 1 << 20};
        int64_t              n       = count[i % 4];
        void                *p       = i % 3 && n <= 65536 ? own : slab;
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, p, p, n));
        WEFT_TRY(weft_comm_send(r->c, to, own, 4096));
        WEFT_TRY(weft_comm_recv(r->c, from, own, 4096));
        r->count++;
    }
}

static void the_killed_are_named_at_once(void **state)
{
    (void)state;
    static double noticed[MAX_KILL];
    bool          many;
    int           kills = n_kill(&many);
    srand(1);
    for (int i = 0; i < kills; i++)
        noticed[i] = kill_one(SHM, many || i % 2 ? 4 : 2, work_for_ever, GONE_S);
    double median = say_noticed("shm", noticed, kills);
    if (!WEFT_TEST_SANITIZED) assert_true(median < 0.05);
}

static void the_stopped_are_named(void **state)
{
    (void)state;
    stop_one(SHM, 4, work_for_ever);
    /* who waits for rank 1 itself names it; others may have seen those leave */
    assert_non_null(strstr(rank[2].text, "is silent"));
}

/* The process ends without a word while the others wait. */
static weft_status one_exits(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 1) {
        usleep(30000);
        _exit(3);
    }
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static weft_status one_leaves(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 1) {
        usleep(30000);
        return WEFT_OK;
    }
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static void exits_and_leaves_are_noticed(void **state)
{
    (void)state;
    double t0 = weft_clock_s();
    run_ranks(SHM, 3, 60, one_exits);
    assert_string_equal(rank[0].text, "rank 1 died: its process ended");
    assert_string_equal(rank[2].text, "rank 1 died: its process ended");
    run_ranks(SHM, 3, 60, one_leaves);
    for (int k = 0; k < 3; k += 2)
        assert_non_null(strstr(rank[k].text, "rank 1 is silent: it is gone"));
    assert_true(weft_clock_s() - t0 < 20);
}

static void the_launcher_may_report(void **state)
{
    (void)state;
    start_ranks(SHM, 3, 60, work_for_ever);
    assert_true(wait_for_work(3));
    weft_comm_shm_report(shm_world, 2, "killed by signal 11");
    end_ranks(SHM, 3);
    for (int k = 0; k < 3; k++)
        assert_string_equal(rank[k].text, "rank 2 died: killed by signal 11");
}

/* Rank 2 dies; a new process takes its number, and all go on in the next epoch, its slab intact. */
static weft_status survive(rank_state *r)
{
    weft_comm_group *g;
    float            x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, 3, everyone, 5, &g));
    r->count = 1;
    while (r->count == 1 && weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32,
                                                 &x, &x, 1) == WEFT_OK)
        x = 1;
    weft_comm_set_epoch(r->c, 1);
    for (int i = 0; i < 10; i++) {
        x = (float)r->rank;
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1));
        if (x != 3) return WEFT_FAIL(WEFT_ERR_NUMERIC, "%g", (double)x);
    }
    return WEFT_OK;
}

static void a_new_process_takes_over(void **state)
{
    (void)state;
    start_ranks(SHM, 3, 20, survive);
    while (rank[0].count + rank[1].count + rank[2].count < 3) usleep(1000);
    kill(rank[2].pid, SIGKILL);
    waitpid(rank[2].pid, NULL, 0);
    rank[2].pid = fork();
    if (!rank[2].pid) {
        weft_comm *c;
        rank[2].st = weft_comm_shm_join(weft_comm_shm_fd(shm_world), 2, 20, &c);
        if (rank[2].st == WEFT_OK) {
            rank[2].c     = c;
            rank[2].count = 2;
            weft_comm_set_epoch(c, 1);
            weft_comm_group *g;
            float            x = 2;
            rank[2].st         = weft_comm_open_group(c, 3, everyone, 5, &g);
            for (int i = 0; i < 10 && rank[2].st == WEFT_OK; i++, x = 2)
                rank[2].st = weft_comm_collective(c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32,
                                                  &x, &x, 1);
            weft_comm_destroy(c);
        }
        rank[2].ended = 1;
        _exit(0);
    }
    end_ranks(SHM, 3);
    all_ok(SHM, 3);
}

/* ---- more ranks than processors: who is awake works for all ---- */

/* This process and the ranks to come share n of the processors; 0: all again. */
static void crowd(size_t n)
{
    static cpu_set_t all;
    cpu_set_t        few;
    if (!CPU_COUNT(&all)) assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&few);
    for (size_t i = 0, k = 0; i < CPU_SETSIZE && k < n; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &few), k++;
    assert_int_equal(sched_setaffinity(0, sizeof few, n ? &few : &all), 0);
}

static float number(int r, int64_t k, int turn)
{
    return 1.0f / (float)(1 + (k * 37 + r * 101 + turn) % 997);
}

/* Element k of the sum of n, by the tree. */
static float tree(int n, int64_t k, int turn)
{
    float x[MAX_RANK];
    for (int r = 0; r < n; r++) x[r] = number(r, k, turn);
    for (int d = 1; d < n; d *= 2)
        for (int i = 0; i + d < n; i += 2 * d) x[i] += x[i + d];
    return x[0];
}

static weft_status differs(const rank_state *r, const char *what, int64_t k)
{
    return WEFT_FAIL(WEFT_ERR_NUMERIC, "rank %d: %s, element %d", r->rank, what, (int)k);
}

static weft_status all_kinds(rank_state *r, weft_comm_group *g, float *in, float *out,
                             int64_t part, int turn)
{
    weft_comm *c = r->c;
    int64_t    n = part * r->n, me = r->rank;
    for (int64_t k = 0; k < n; k++) in[k] = number(r->rank, k, turn);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_REDUCE_SCATTER, WEFT_DTYPE_F32, in, out, n));
    for (int64_t k = 0; k < part; k++)
        if (out[k] != tree(r->n, me * part + k, turn))
            return differs(r, "reduce_scatter", k);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_ALL_TO_ALL, WEFT_DTYPE_F32, in, out, n));
    for (int64_t k = 0; k < n; k++)
        if (out[k] != number((int)(k / part), me * part + k % part, turn))
            return differs(r, "all_to_all", k);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_SHIFT, WEFT_DTYPE_F32, in, out, n));
    for (int64_t k = 0; k < n; k++)
        if (out[k] != number((r->rank + r->n - 1) % r->n, k, turn))
            return differs(r, "shift", k);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_F32, in, out, n));
    WEFT_TRY(weft_comm_collective(c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, in, in, n));
    for (int64_t k = 0; k < n; k++) {
        if (out[k] != number(0, k, turn)) return differs(r, "broadcast", k);
        if (in[k] != tree(r->n, k, turn)) return differs(r, "all_reduce", k);
    }
    for (int64_t k = 0; k < part; k++) in[k] = number(r->rank, k, turn);
    WEFT_TRY(weft_comm_collective(c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F32, in, out, part));
    for (int64_t k = 0; k < n; k++)
        if (out[k] != number((int)(k / part), k % part, turn))
            return differs(r, "all_gather", k);
    return WEFT_OK;
}

static weft_status work_for_each_other(rank_state *r)
{
    /* alone, shared, too large */
    static const int64_t part[] = {1, 100, 1024, 5000, 17000};
    weft_comm_group     *g;
    void                *in, *out;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_shm_alloc(r->c, 17000 * 4 * r->n, &in));
    WEFT_TRY(weft_comm_shm_alloc(r->c, 17000 * 4 * r->n, &out));
    for (int i = 0; i < 20; i++) WEFT_TRY(all_kinds(r, g, in, out, part[i % 5], i));
    /* in private memory of one, so that nobody can do it for all */
    static float own[400];
    float       *p = r->rank == 1 ? own : in, *q = r->rank == 1 ? own + 200 : out;
    return all_kinds(r, g, p, q, 10, 0);
}

static void the_awake_work_for_all(void **state)
{
    (void)state;
    for (int n = 3; n <= 5; n++)
        for (size_t cpu = 1; cpu <= 2; cpu++) {
            crowd(cpu);
            run_ranks(SHM, n, 60, work_for_each_other);
            crowd(0);
            all_ok(SHM, n);
        }
}

/* Work so slow that most kills and stops meet it under way. */
static weft_status work_slowly(rank_state *r)
{
    weft_comm_group *g;
    void            *p;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_shm_alloc(r->c, 256 << 10, &p));
    for (;; r->count++)
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_BF16, p, p,
                                      r->count % 2 ? 128 << 10 : 8 << 10));
}

static void who_dies_at_work_is_named(void **state)
{
    (void)state;
    double noticed[12];
    int    kills = WEFT_TEST_SANITIZED ? 6 : 12;
    srand(2);
    for (int i = 0; i < kills; i++) {
        crowd((size_t)(1 + i % 2));
        noticed[i] = kill_one(SHM, 4, work_slowly, GONE_S);
        crowd(0);
    }
    say_noticed("shm, crowded", noticed, kills);
    for (size_t cpu = 1; cpu <= 2; cpu++) {
        crowd(cpu);
        stop_one(SHM, 4, work_slowly);
        crowd(0);
        int named = 0;
        for (int k = 0; k < 4; k++)
            named += strstr(rank[k].text, "rank 1 is silent") != 0;
        assert_true(named > 0);
    }
}

/* ---- slabs ---- */

static weft_status share_result(rank_state *r)
{
    weft_comm_group *g;
    void            *in, *mine;
    int64_t          at[2] = {0}, count = 300000;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_shm_alloc(r->c, count * 4, &in));
    if (!r->rank) {
        WEFT_TRY(weft_comm_shm_alloc(r->c, count * 4 * r->n, &mine));
        at[0] = weft_comm_shm_find(r->c, mine, &at[1]);
    }
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BROADCAST, WEFT_DTYPE_I64, at, at, 2));
    float *out = weft_comm_shm_at(r->c, (int)at[0], at[1]);
    for (int64_t k = 0; k < count; k++)
        ((float *)in)[k] = (float)(k % 1000) + (float)r->rank;
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, in, out, count));
    float ranks = (float)(r->n * (r->n - 1) / 2);
    for (int64_t k = 0; k < count; k++)
        if (out[k] != (float)(k % 1000) * (float)r->n + ranks)
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "sum %d", (int)k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F32, in, out, count));
    for (int64_t k = 0; k < count * r->n; k += 7)
        if (out[k] != (float)(k % count % 1000) + (float)(k / count))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "gathered %d", (int)k);
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static void one_result_for_all(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        run_ranks(SHM, n, 60, share_result);
        all_ok(SHM, n);
    }
}

static weft_status allocate(rank_state *r)
{
    void   *p[20];
    int64_t at;
    for (int i = 0; i < 20; i++) {
        int64_t bytes = i % 5 == 4 ? 5 << 20 : 1 + i * 3000;
        WEFT_TRY(weft_comm_shm_alloc(r->c, bytes, &p[i]));
        for (int64_t k = 0; k < bytes; k++)
            if (((char *)p[i])[k]) return WEFT_FAIL(WEFT_ERR_INTERNAL, "not zero");
        memset(p[i], 1 + i, (size_t)bytes);
        if ((uintptr_t)p[i] % 4096 || (i % 5 == 4 && (uintptr_t)p[i] % (2 << 20)))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "not aligned");
        if (weft_comm_shm_find(r->c, p[i], &at) != r->rank ||
            weft_comm_shm_at(r->c, r->rank, at) != p[i])
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "not found");
        if (i % 3 == 2) weft_comm_shm_free(r->c, p[i - 1]);
        if (i >= 4 && i % 3 != 1 && *(char *)p[i - 4] != i - 3 && (i - 4) % 3 != 1)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "overwritten");
    }
    if (weft_comm_shm_find(r->c, &at, &at) != -1)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "the stack is in a slab");
    void *much;
    if (weft_comm_shm_alloc(r->c, INT64_C(1) << 50, &much) != WEFT_ERR_MEM)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "a petabyte was given");
    weft_comm_shm_free(r->c, NULL);
    return WEFT_OK;
}

static void slabs_are_zero_and_aligned(void **state)
{
    (void)state;
    run_ranks(SHM, 2, 20, allocate);
    all_ok(SHM, 2);
}

/* ---- damage ---- */

static void other_files_are_refused(void **state)
{
    (void)state;
    weft_comm_shm *w;
    weft_comm     *c;
    int            fd = memfd_create("x", MFD_CLOEXEC);
    assert_int_equal(weft_comm_shm_join(fd, 0, 1, &c), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_shm_join(-1, 0, 1, &c), WEFT_ERR_ARG);
    char noise[sizeof(shm_head)];
    for (int round = 0; round < 200; round++) { /* every part of a head damaged */
        assert_int_equal(weft_comm_shm_create(2, &w), WEFT_OK);
        assert_true(pread(weft_comm_shm_fd(w), noise, sizeof noise, 0) == sizeof noise);
        weft_comm_shm_destroy(w);
        size_t at = (size_t)round % offsetof(shm_head, verdict);
        if (at >= 48) continue; /* padding */
        noise[at] = (char)(noise[at] ^ (1 + round));
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(ftruncate(fd, 1 << 20), 0);
        assert_true(pwrite(fd, noise, sizeof noise, 0) == sizeof noise);
        assert_int_equal(weft_comm_shm_join(fd, 0, 1, &c), WEFT_ERR_ARG);
    }
    close(fd);
    assert_int_equal(weft_comm_shm_create(0, &w), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_shm_create(100000, &w), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_shm_create(2, &w), WEFT_OK);
    assert_int_equal(weft_comm_shm_join(weft_comm_shm_fd(w), 2, 1, &c), WEFT_ERR_ARG);
    assert_int_equal(weft_comm_shm_join(weft_comm_shm_fd(w), 1, 0.05, &c), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_text(), "rank 0 is silent: it has not joined"));
    weft_comm_shm_destroy(w);
}

/* Rank 1 writes nonsense where its messages and calls lie; rank 0 must end in an error. */
static weft_status scribble(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    float              x[64] = {0};
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_SEND : WEFT_COMM_RECV, 1, 256, 1, &ch));
    if (!r->rank) {
        r->count       = 1;
        weft_status st = weft_comm_recv(r->c, ch, x, 256);
        if (st == WEFT_OK) return WEFT_FAIL(WEFT_ERR_INTERNAL, "nonsense was received");
        return weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, x, x, 64) ==
                       WEFT_OK
                   ? WEFT_FAIL(WEFT_ERR_INTERNAL, "nonsense was added")
                   : WEFT_OK;
    }
    shm_end *e = shm_of(r->c);
    while (!rank[0].count) usleep(1000);
    unsigned seed = 7;
    for (uint64_t at = e->head->heap_at;
         at < e->head->heap_used && at < e->head->heap_at + 8192; at++)
        e->base[at] = (char)rand_r(&seed);
    return WEFT_OK;
}

static void nonsense_from_a_peer(void **state)
{
    (void)state;
    run_ranks(SHM, 2, 0.5, scribble);
    all_ok(SHM, 2);
}

/* ---- leftovers ---- */

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int  n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int maps_of_weft(void)
{
    char  line[512];
    FILE *f = fopen("/proc/self/maps", "r");
    int   n = 0;
    while (fgets(line, sizeof line, f)) n += strstr(line, "memfd:weft") != NULL;
    fclose(f);
    return n;
}

static weft_status a_little(rank_state *r)
{
    weft_comm_group *g;
    void            *p;
    float            x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_shm_alloc(r->c, 3 << 20, &p));
    return weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x, 1);
}

static void nothing_is_left(void **state)
{
    (void)state;
    int files = open_files();
    run_ranks(SHM_THREADS, 4, 20, a_little);
    all_ok(SHM_THREADS, 4);
    run_ranks(SHM, 4, 20, a_little);
    all_ok(SHM, 4);
    assert_int_equal(open_files(), files);
    assert_int_equal(maps_of_weft(), 0);
}

/* ---- without a launcher ---- */

static void ranks_of_others_meet(void **state)
{
    (void)state;
    char  key[64];
    pid_t p[4];
    snprintf(key, sizeof key, "test-%d", (int)getpid());
    for (int i = 0; i < 4; i++) {
        p[i] = fork();
        if (p[i]) continue;
        int              fd;
        weft_comm       *c;
        weft_comm_group *g;
        float            x = 1;
        if (i < 2) usleep(30000);
        bool ok = weft_comm_shm_meet(key, i, 4, 20, &fd) == WEFT_OK &&
                  weft_comm_shm_join(fd, i, 20, &c) == WEFT_OK && !close(fd) &&
                  weft_comm_open_group(c, 4, everyone, 0, &g) == WEFT_OK &&
                  weft_comm_collective(c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, &x, &x,
                                       1) == WEFT_OK &&
                  x == 4;
        if (!ok) fprintf(stderr, "%s\n", weft_error_text());
        if (ok) weft_comm_destroy(c);
        _exit(!ok);
    }
    for (int i = 0; i < 4; i++) {
        int how = 1;
        waitpid(p[i], &how, 0);
        assert_int_equal(how, 0);
    }
    int fd;
    assert_int_equal(weft_comm_shm_meet(key, 1, 2, 0.05, &fd), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_text(), "local rank 0 is silent"));
    assert_int_equal(weft_comm_shm_meet(key, 0, 2, 0.05, &fd), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_text(), "local rank 1 is silent"));
}

/* Another user has taken the name: nobody gets in, and the error says who it is. */
static void who_takes_the_name_is_named(void **state)
{
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char               key[64];
    int                ready[2], fd;
    if (getuid()) skip(); /* only root can be another user */
    snprintf(key, sizeof key, "test-taken-%d", (int)getpid());
    int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "weft-0-%s", key);
    assert_int_equal(pipe(ready), 0);
    pid_t p = fork();
    if (!p) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where an assertion ends the parent */
        int s = setuid(12345) ? -1 : socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(s, (struct sockaddr *)&a,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) ||
            listen(s, 8) || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char x;
    close(ready[1]);
    assert_int_equal(read(ready[0], &x, 1), 1);
    for (int me = 0; me < 2; me++) {
        assert_int_not_equal(weft_comm_shm_meet(key, me, 2, 2, &fd), WEFT_OK);
        assert_non_null(strstr(weft_error_text(), "of user 12345 holds the name"));
    }
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
    close(ready[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_killed_are_named_at_once),
        cmocka_unit_test(the_stopped_are_named),
        cmocka_unit_test(exits_and_leaves_are_noticed),
        cmocka_unit_test(the_launcher_may_report),
        cmocka_unit_test(a_new_process_takes_over),
        cmocka_unit_test(the_awake_work_for_all),
        cmocka_unit_test(who_dies_at_work_is_named),
        cmocka_unit_test(one_result_for_all),
        cmocka_unit_test(slabs_are_zero_and_aligned),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(nonsense_from_a_peer),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(ranks_of_others_meet),
        cmocka_unit_test(who_takes_the_name_is_named),
    };
    if (N_TRANSPORT < (int)SHM) return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
