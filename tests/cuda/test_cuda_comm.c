/* Communication of tensors in device memory, one test for all backends of the
 * plugin: the bits of the host's collectives, whatever kind, type, shares,
 * lanes and number of tensors; in graphs; with members that come late, die or
 * stop.  Ranks are processes that share a GPU: the stub's, or with
 * WEFT_TEST_GPU=1 the machine's. */
#include "base/flight.h"
#include "comm/device_comm.h"
#include "comm/kill.h"
#include "cuda/gpu_test.h"
#include "plugin/plugin.h"
#include "support/test.h"

#include <sys/mman.h>

enum {
    SLAB_BYTES  = 3 << 20,
    MAX_PART    = 5,
    MAX_BACKEND = 4
};

static const char *backend_name; /* the one under test */
static bool        apart;        /* ranks have a GPU each: the stub's */

/* A rank's device with everything that a test needs. */
typedef struct test_rank {
    rank_state            *r;
    weft_device           *device;
    weft_device_comm      *dc;
    weft_comm_group       *meeting;
    weft_device_group_spec spec;
    weft_device_group     *group;
    weft_memory            slab[2];
    char                  *in, *out, *want; /* of the host */
    int32_t                order[MAX_RANK];
    weft_stream            stream;
} test_rank;

static const weft_device_backend *find_backend(weft_device *d)
{
    const weft_plugin *p = weft_plugin_of(d);
    for (int i = 0; i < p->n_backend; i++)
        if (!strcmp(p->backend[i]->name, backend_name)) return p->backend[i];
    return NULL;
}

static weft_status expect(bool ok, const char *what)
{
    return ok ? WEFT_OK : WEFT_FAIL(WEFT_ERR_INTERNAL, "not so: %s", what);
}

static weft_status open_rank(rank_state *r, test_rank *t)
{
    char host[16];
    *t = (test_rank){.r = r};
    snprintf(host, sizeof host, "rank-%d",
             r->rank); /* NCCL: a GPU for each rank of a host */
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    if (apart) setenv("WEFT_STUB_GPUS", "4", 1);
    if (!test_gpu_start()) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no driver");
    if (!test_gpu_is_real()) setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    WEFT_TRY(weft_plugin_open_device("cuda", apart ? r->rank : 0, &t->device));
    WEFT_TRY(weft_device_comm_open(find_backend(t->device), t->device, r->c, &t->dc));
    WEFT_TRY(expect(t->dc, "an end"));
    for (int i = 0; i < r->n; i++) t->order[i] = i;
    WEFT_TRY(expect(weft_device_comm_joins(t->dc, r->n, t->order), "ranks join"));
    WEFT_TRY(weft_comm_open_group(r->c, r->n, t->order, 7, &t->meeting));
    for (int k = 0; k < 2; k++)
        WEFT_TRY(
            weft_device_alloc(t->device, WEFT_SPACE_DEVICE, SLAB_BYTES, &t->slab[k]));
    t->in   = calloc(1, SLAB_BYTES);
    t->out  = calloc(1, SLAB_BYTES);
    t->want = calloc(1, SLAB_BYTES);
    WEFT_TRY(expect(t->in && t->out && t->want, "memory"));
    t->spec = (weft_device_group_spec){.n       = r->n,
                                       .me      = r->rank,
                                       .rank    = t->order,
                                       .meeting = t->meeting,
                                       .n_slab  = 2,
                                       .slab    = t->slab};
    return t->device->stream_open(t->device, "test", &t->stream);
}

static void close_rank(test_rank *t, bool broken)
{
    if (t->stream.device) (void)t->device->finish(&t->stream);
    if (t->group) t->dc->backend->close_group(t->group, broken);
    if (t->stream.device) t->device->stream_close(&t->stream);
    for (int k = 0; k < 2; k++) weft_device_free(&t->slab[k]);
    weft_device_comm_close(t->dc);
    weft_plugin_close_device(t->device);
    free(t->in);
    free(t->out);
    free(t->want);
}

/* ---- the same bits ---- */

typedef struct test_case {
    weft_collective kind;
    weft_dtype      dtype;
    int             n_part;
    bool            units, lanes, in_place;
    int             off; /* bytes by which tensors are not aligned */
} test_case;

static const test_case cases[] = {
    {WEFT_ALL_REDUCE, WEFT_DTYPE_F32, 0, false, false, false, 0},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_F32, 0, false, false, true, 4},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_BF16, 0, false, false, true, 0},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_BF16, 0, false, true, false, 2},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_F64, 0, false, false, true, 0},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_I64, 0, false, false, false, 0},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_I32, 0, false, false, false, 0},
    {WEFT_ALL_REDUCE, WEFT_DTYPE_F32, MAX_PART, false, true, true, 0},
    {WEFT_REDUCE_SCATTER, WEFT_DTYPE_F32, 0, false, false, false, 0},
    {WEFT_REDUCE_SCATTER, WEFT_DTYPE_F32, 0, true, true, false, 0},
    {WEFT_REDUCE_SCATTER, WEFT_DTYPE_BF16, MAX_PART, true, false, false, 0},
    {WEFT_REDUCE_SCATTER, WEFT_DTYPE_F32, MAX_PART, true, true, false, 4},
    {WEFT_ALL_GATHER, WEFT_DTYPE_F32, 0, false, false, false, 0},
    {WEFT_ALL_GATHER, WEFT_DTYPE_BF16, MAX_PART, true, false, false, 2},
    {WEFT_ALL_GATHER, WEFT_DTYPE_U8, 0, true, false, false, 1},
    {WEFT_ALL_TO_ALL, WEFT_DTYPE_F32, 0, false, false, false, 0},
    {WEFT_BROADCAST, WEFT_DTYPE_F32, 0, false, false, true, 0},
    {WEFT_BROADCAST, WEFT_DTYPE_U8, 0, false, false, false, 3},
    {WEFT_SHIFT, WEFT_DTYPE_BF16, 0, false, false, false, 2},
};

/* of sums: of one share */
static const int64_t counts[MAX_PART] = {40000, 17, 0, 1003, 6};
static const int64_t units[MAX_PART]  = {256, 7, 1, 1000, 1};

static void fill_in(test_rank *t, const test_case *c, int round)
{
    int64_t n = SLAB_BYTES / weft_dtype_bytes(c->dtype);
    for (int64_t k = 0; k < n; k++) {
        int64_t x = (k * 37 + t->r->rank * 101 + round * 11) % 997;
        float   f = 1.0f / (float)(1 + x);
        switch (c->dtype) {
        case WEFT_DTYPE_F32: ((float *)t->in)[k] = f; break;
        case WEFT_DTYPE_F64: ((double *)t->in)[k] = 1.0 / (double)(1 + x); break;
        case WEFT_DTYPE_BF16: {
            uint32_t u;
            memcpy(&u, &f, sizeof u);
            ((uint16_t *)t->in)[k] = (uint16_t)(u >> 16);
            break;
        }
        case WEFT_DTYPE_I32: ((int32_t *)t->in)[k] = (int32_t)x - 400; break;
        case WEFT_DTYPE_I64: ((int64_t *)t->in)[k] = (x - 400) << 33; break;
        default: t->in[k] = (char)x;
        }
    }
}

static const int32_t *shares_of(int n)
{
    static const int32_t three[] = {5, 2, 1};
    return n == 3 ? three : NULL;
}

/* The call on memory that begins at in and out; both hold the same tensors. */
static weft_comm_call call_of(const test_rank *t, const test_case *c, char *in, char *out,
                              weft_comm_part *part)
{
    weft_comm_call call = {.kind = c->kind, .dtype = c->dtype, .n_part = c->n_part};
    int64_t        size = weft_dtype_bytes(c->dtype), at = c->off, n = t->r->n;
    bool           divides = c->kind == WEFT_REDUCE_SCATTER || c->kind == WEFT_ALL_TO_ALL;
    int            terms   = c->lanes ? 4 : 1;
    for (int k = 0; k < (c->n_part ? c->n_part : 1); k++) {
        weft_comm_part *p = &part[k];
        *p      = (weft_comm_part){.in = in + at, .out = out + at, .count = counts[k]};
        p->unit = c->units ? units[k] : 0;
        if (divides && !c->units) p->count *= n;
        if (c->lanes) p->stride = (p->count + 7) / 8 * 8;
        int64_t room = p->count * n * size;
        if (c->lanes && p->stride * terms * size > room) room = p->stride * terms * size;
        at += (room + 255) / 256 * 256;
    }
    if (c->lanes) call.n_lane = 8, call.lane_share = shares_of(t->r->n);
    if (c->n_part)
        call.part = part;
    else
        call.tensor = part[0];
    return call;
}

static weft_status issue(test_rank *t, weft_device_call *call)
{
    return t->dc->backend->run(call, &t->stream, 0);
}

static weft_status compare(test_rank *t, const test_case *c, int number)
{
    WEFT_TRY(weft_device_read(t->out, &t->slab[!c->in_place], 0, SLAB_BYTES));
    for (int64_t i = 0; i < SLAB_BYTES; i++)
        if (t->out[i] != t->want[i])
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "case %d, %s: byte %lld differs", number,
                             weft_collective_name(c->kind), (long long)i);
    return WEFT_OK;
}

/* Three rounds with other numbers; the last two by a graph, where the device
 * has them. */
static weft_status run_case(test_rank *t, int number)
{
    const test_case  *c = &cases[number];
    weft_comm_part    part[MAX_PART];
    weft_device_call *prepared = NULL;
    weft_captured     graph    = {0};
    weft_status       st       = WEFT_OK;
    char             *to       = t->slab[!c->in_place].address;
    weft_comm_call    call     = call_of(t, c, t->slab[0].address, to, part);
    WEFT_TRY(t->dc->backend->prepare(t->group, &call, "x", &prepared));
    for (int round = 0; round < 3; round++) {
        fill_in(t, c, round);
        memset(t->want, 0x5a, SLAB_BYTES);
        WEFT_GO(weft_device_write(&t->slab[1], 0, t->want, SLAB_BYTES));
        WEFT_GO(weft_device_write(&t->slab[0], 0, t->in, SLAB_BYTES));
        if (c->in_place) memcpy(t->want, t->in, SLAB_BYTES);
        if (round == 1 && t->device->capture_begin) {
            weft_stream *const s[1] = {&t->stream};
            WEFT_GO(t->device->capture_begin(t->device, s, 1));
            WEFT_GO(issue(t, prepared));
            WEFT_GO(t->device->capture_end(t->device, &graph));
        }
        WEFT_GO(graph.device ? t->device->replay(&t->stream, &graph)
                             : issue(t, prepared));
        call       = call_of(t, c, c->in_place ? t->want : t->in, t->want, part);
        call.group = t->meeting;
        WEFT_GO(weft_comm_run(t->r->c, &call));
        WEFT_GO(t->device->finish(&t->stream));
        WEFT_GO(weft_device_comm_check(t->dc));
        WEFT_GO(compare(t, c, number));
    }
out:
    if (graph.device) t->device->captured_free(&graph);
    t->dc->backend->release(prepared);
    return st;
}

/* ---- rows in bins ---- */

enum {
    ROW_BINS  = 5,
    ROW_WIDTH = 7, /* floats */
    ROW_ROOM  = 4000,
    ROW_TABLE = 1 << 20 /* where the table lies in the second slab */
};

/* Other numbers in every round; bins without rows, and one round where one bin has all. */
static void make_table(int n, int round, int32_t *table)
{
    for (int p = 0; p < n; p++) {
        int32_t *row = table + p * (ROW_BINS + 1);
        row[0]       = 0;
        for (int b = 0; b < ROW_BINS; b++) {
            int32_t rows = (p * 31 + b * 17 + round * 7) % 5 * 40;
            if (round == 2) rows = b == 3 ? 300 : 0;
            row[b + 1] = row[b] + rows;
        }
    }
}

static weft_status run_rows_of(test_rank *t, weft_collective kind, int round,
                               weft_device_call *prepared, const weft_comm_call *call)
{
    int32_t        table[MAX_RANK * (ROW_BINS + 1)];
    weft_comm_call host = *call;
    make_table(t->r->n, round, table);
    fill_in(t, &cases[0], round);
    memset(t->want, 0x5a, SLAB_BYTES);
    memcpy(t->want + ROW_TABLE, table, sizeof table);
    WEFT_TRY(weft_device_write(&t->slab[1], 0, t->want, SLAB_BYTES));
    WEFT_TRY(weft_device_write(&t->slab[0], 0, t->in, SLAB_BYTES));
    WEFT_TRY(issue(t, prepared));
    host.group      = t->meeting;
    host.tensor     = (weft_comm_part){.in = t->in, .out = t->want};
    host.rows.table = table;
    WEFT_TRY(weft_comm_run(t->r->c, &host));
    WEFT_TRY(t->device->finish(&t->stream));
    WEFT_TRY(weft_device_comm_check(t->dc));
    return compare(t, &(test_case){.kind = kind}, 100 + round);
}

static weft_status run_rows(test_rank *t, weft_collective kind)
{
    weft_device_call *prepared = NULL;
    weft_status       st       = WEFT_OK;
    char             *second   = t->slab[1].address;
    weft_comm_call    call     = {.kind   = kind,
                                  .dtype  = WEFT_DTYPE_F32,
                                  .tensor = {.in = t->slab[0].address, .out = second},
                                  .rows   = {.width   = ROW_WIDTH,
                                             .n_bin   = ROW_BINS,
                                             .table   = (int32_t *)(void *)(second + ROW_TABLE),
                                             .in_rows = ROW_ROOM,
                                             .out_rows = ROW_ROOM}};
    if (!t->dc->backend->takes(kind, WEFT_DTYPE_F32)) return WEFT_OK;
    WEFT_TRY(t->dc->backend->prepare(t->group, &call, "x", &prepared));
    for (int round = 0; round < 3 && st == WEFT_OK; round++)
        st = run_rows_of(t, kind, round, prepared, &call);
    t->dc->backend->release(prepared);
    return st;
}

static weft_status run_cases(rank_state *r)
{
    test_rank   t;
    weft_status st = open_rank(r, &t);
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    for (int k = 0; k < (int)WEFT_COUNT(cases) && st == WEFT_OK; k++)
        if (t.dc->backend->takes(cases[k].kind, cases[k].dtype)) st = run_case(&t, k);
    if (st == WEFT_OK) st = run_rows(&t, WEFT_SEND_ROWS);
    if (st == WEFT_OK) st = run_rows(&t, WEFT_RETURN_ROWS);
    close_rank(&t, st != WEFT_OK);
    return st;
}

static void the_bits_of_the_host(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += TEST_FEW(2)) {
        run_ranks(SHM, n, 30, run_cases);
        all_ok(SHM, n);
    }
}

/* ---- messages ---- */

enum {
    MESSAGE  = 70001,
    MESSAGES = 5, /* a step */
    SLOTS    = 2,
    STEPS    = 4
};

/* As many as there are slots end before the receiver begins. */
static weft_status give_alone(test_rank *t, weft_device_call **call)
{
    char one = 1, all[MAX_RANK];
    for (int k = 0; k < SLOTS && t->r->rank == 0; k++)
        WEFT_TRY(t->dc->backend->run(call[k], &t->stream, k));
    if (t->r->rank == 0) WEFT_TRY(t->device->finish(&t->stream));
    WEFT_TRY(weft_comm_collective(t->r->c, t->meeting, WEFT_ALL_GATHER, WEFT_DTYPE_U8,
                                  &one, all, 1));
    for (int k = t->r->rank ? 0 : SLOTS; k < MESSAGES; k++)
        WEFT_TRY(t->dc->backend->run(call[k], &t->stream, k));
    return WEFT_OK;
}

/* The first step plainly, the second captured, later ones replayed. */
static weft_status issue_messages(test_rank *t, weft_device_call **call, int step,
                                  weft_captured *graph)
{
    weft_stream *s[1] = {&t->stream};
    if (step == 0) return give_alone(t, call);
    if (step == 1) {
        WEFT_TRY(t->device->capture_begin(t->device, s, 1));
        for (int k = 0; k < MESSAGES; k++)
            WEFT_TRY(t->dc->backend->run(call[k], &t->stream, k));
        WEFT_TRY(t->device->capture_end(t->device, graph));
    }
    return t->device->replay(&t->stream, graph);
}

static weft_status run_messages_of(test_rank *t, weft_device_call **call,
                                   weft_captured *graph)
{
    bool send = t->r->rank == 0;
    for (int k = 0; k < MESSAGES; k++) {
        weft_memory at;
        WEFT_TRY(weft_memory_part(&t->slab[0], k * 80000 + 3, MESSAGE, &at));
        WEFT_TRY(t->dc->backend->prepare_message(
            t->group, send ? WEFT_COMM_SEND : WEFT_COMM_RECV, &at, "x", &call[k]));
    }
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < SLAB_BYTES; i++) t->in[i] = (char)(i * 7 + step);
        if (send) WEFT_TRY(weft_device_write(&t->slab[0], 0, t->in, SLAB_BYTES));
        WEFT_TRY(issue_messages(t, call, step, graph));
        WEFT_TRY(t->device->finish(&t->stream));
        WEFT_TRY(weft_device_comm_check(t->dc));
        WEFT_TRY(weft_device_read(t->out, &t->slab[0], 0, SLAB_BYTES));
        for (int k = 0; k < MESSAGES; k++)
            WEFT_TRY(
                expect(!memcmp(t->in + k * 80000 + 3, t->out + k * 80000 + 3, MESSAGE),
                       "a message as it was sent"));
    }
    return WEFT_OK;
}

static weft_status run_messages(rank_state *r)
{
    test_rank         t;
    weft_device_call *call[MESSAGES] = {NULL};
    weft_captured     graph          = {0};
    weft_status       st             = open_rank(r, &t);
    t.spec.bytes                     = MESSAGE;
    t.spec.credits                   = SLOTS;
    if (st == WEFT_OK && !t.dc->backend->messages) {
        close_rank(&t, false);
        return WEFT_OK; /* the host carries them */
    }
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    if (st == WEFT_OK) st = run_messages_of(&t, call, &graph);
    if (graph.device) t.device->captured_free(&graph);
    for (int k = 0; k < MESSAGES; k++)
        if (call[k]) t.dc->backend->release(call[k]);
    close_rank(&t, st != WEFT_OK);
    return st;
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    run_ranks(SHM, 2, 30, run_messages);
    all_ok(SHM, 2);
}

/* Every member works then, and kernels give the signals. */
static void gpus_apart_do_the_same(void **state)
{
    (void)state;
    if (test_gpu_is_real() || strcmp(backend_name, "peer") != 0) return;
    apart = true;
    run_ranks(SHM, 3, 30, run_cases);
    all_ok(SHM, 3);
    run_ranks(SHM, 2, 30, run_messages);
    all_ok(SHM, 2);
    apart = false;
}

/* ---- members that do not come ---- */

static int64_t limit_ms; /* of waits; 0: as the communicator's */

static weft_status sum_for_ever(rank_state *r)
{
    test_rank         t;
    weft_comm_part    part[MAX_PART];
    weft_device_call *prepared = NULL;
    weft_status       st       = open_rank(r, &t);
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    if (st == WEFT_OK) {
        atomic_store(&t.dc->limit_ms, limit_ms);
        weft_comm_call call =
            call_of(&t, &cases[1], t.slab[0].address, t.slab[0].address, part);
        st = t.dc->backend->prepare(t.group, &call, "x", &prepared);
    }
    while (st == WEFT_OK) {
        st = issue(&t, prepared);
        if (st == WEFT_OK) st = t.device->finish(&t.stream);
        if (st == WEFT_OK) st = weft_device_comm_check(t.dc);
        r->count++;
    }
    char text[256];
    snprintf(text, sizeof text, "%s", weft_error_text());
    t.dc->backend->release(prepared);
    close_rank(&t, true);
    return WEFT_FAIL(st, "%s", text);
}

static void a_killed_member_ends_all(void **state)
{
    double noticed[3];
    (void)state;
    for (int k = 0; k < 3; k++) noticed[k] = kill_one(SHM, 3, sum_for_ever, 5);
    say_noticed(backend_name, noticed, 3);
}

static void a_stopped_member_ends_all(void **state)
{
    (void)state;
    /* the real one takes longer to connect than stop_one gives */
    if (test_gpu_is_real() && !strcmp(backend_name, "nccl")) skip();
    stop_one(SHM, 3, sum_for_ever);
}

/* ... long before the communicator would give up. */
static void a_limit_of_waits_is_kept(void **state)
{
    (void)state;
    limit_ms = 500;
    stop_one_after(SHM, 3, 60, sum_for_ever);
    limit_ms = 0;
}

static weft_flight_ring flight; /* of the rank's process */

/* What a dump has: the call that is under way, and nothing where there is none. */
static bool is_recorded(const weft_flight_ring *f, bool waits)
{
    const weft_flight_entry *x = &f->entry[0];
    if (!waits) return f->n == 0;
    return f->n == 1 && !strcmp(x->op, "all_reduce") && !strcmp(x->name, "grads") &&
           x->step == 7 && x->seq == 7 && x->ended_ns == 0 &&
           f->now.group[x->group].tag == 9;
}

/* Rank 1 is there, and does not come to the second sum of step 7: its GPU hangs, or it computes. */
static weft_status stay_away(rank_state *r)
{
    test_rank         t;
    weft_comm_part    part[MAX_PART];
    weft_device_call *sum[2] = {NULL, NULL};
    char              text[512];
    weft_flight_share(&flight, r->rank);
    weft_status st = open_rank(r, &t);
    t.spec.tag     = 9;
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    for (int k = 0; k < 2 && st == WEFT_OK; k++) {
        weft_comm_call call =
            call_of(&t, &cases[1], t.slab[0].address, t.slab[0].address, part);
        st = t.dc->backend->prepare(t.group, &call, k ? "grads" : "norm", &sum[k]);
    }
    if (st == WEFT_OK) atomic_store(&t.dc->limit_ms, 600);
    if (st == WEFT_OK) atomic_store(&t.dc->step, 7);
    for (int k = 0; k < 2 && st == WEFT_OK && (k == 0 || r->rank != 1); k++) {
        st = issue(&t, sum[k]);
        if (st == WEFT_OK) st = t.device->finish(&t.stream);
        if (st == WEFT_OK) st = weft_device_comm_check(t.dc);
    }
    for (int k = 0; k < 2000 && st == WEFT_OK; k++) {
        usleep(10000);
        st = weft_comm_check(r->c);
    }
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (!is_recorded(&flight, r->rank != 1)) snprintf(text, sizeof text, "the dump");
    for (int k = 0; k < 2; k++) t.dc->backend->release(sum[k]);
    close_rank(&t, true);
    return WEFT_FAIL(st, "%s", text);
}

static void check_missing(transport over)
{
    run_ranks(over, 3, 30, stay_away);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rank[i].st, WEFT_ERR_PEER);
        if (!strstr(rank[i].text, "rank 1 is silent: rank ") ||
            !strstr(rank[i].text, " waited 0.6 s in all_reduce 'grads' of step 7 by ") ||
            !strstr(rank[i].text, "(tag 9, ranks 0, 1, 2) on cuda:") ||
            !strstr(rank[i].text, "; missing: 1"))
            fail_msg("rank %d: %s", i, rank[i].text);
    }
}

static void the_call_and_who_is_missing_are_named(void **state)
{
    (void)state;
    check_missing(SHM);
    if (strcmp(backend_name, "nccl") != 0) return;
    check_missing(TCP); /* it is told over the network */
}

/* Whoever waits is let go, and writes nothing. */
static weft_status wait_in_vain(rank_state *r)
{
    test_rank         t;
    weft_comm_part    part[MAX_PART];
    weft_device_call *prepared = NULL;
    weft_status       st       = open_rank(r, &t);
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    memset(t.want, 0x5a, SLAB_BYTES);
    if (st == WEFT_OK) st = weft_device_write(&t.slab[1], 0, t.want, SLAB_BYTES);
    if (st == WEFT_OK) {
        weft_comm_call call =
            call_of(&t, &cases[0], t.slab[0].address, t.slab[1].address, part);
        st = t.dc->backend->prepare(t.group, &call, "x", &prepared);
    }
    if (st == WEFT_OK && r->rank == 0) st = issue(&t, prepared);
    if (st == WEFT_ERR_PEER && strstr(weft_error_text(), "of the test"))
        st = WEFT_OK; /* NCCL connects in its first call: it ended there */
    if (st == WEFT_OK && r->rank == 0) st = t.device->finish(&t.stream);
    if (st == WEFT_OK && r->rank != 0) usleep(100000);
    if (st == WEFT_OK && r->rank != 0) weft_comm_abort(r->c, "of the test");
    if (st == WEFT_OK && r->rank == 0)
        st = expect(weft_device_comm_check(t.dc) == WEFT_ERR_PEER &&
                        strstr(weft_error_text(), "of the test"),
                    "the reason of the abort");
    if (st == WEFT_OK) st = compare(&t, &cases[0], 0);
    t.dc->backend->release(prepared);
    close_rank(&t, true);
    return st;
}

static void after_an_abort_nothing_is_written(void **state)
{
    (void)state;
    run_ranks(SHM, 2, 30, wait_in_vain);
    all_ok(SHM, 2);
}

/* ---- memory of other processes ---- */

static weft_status share_memory(rank_state *r)
{
    test_rank          t;
    weft_status        st = open_rank(r, &t);
    weft_memory        part, other = {0};
    weft_memory_handle mine = {{0}}, all[2];
    char               byte = (char)(1 + r->rank), got[2] = {0};
    if (st != WEFT_OK) goto out;
    weft_device *d = t.device;
    WEFT_GO(weft_memory_part(&t.slab[1], 4096 + 100, 5000, &part));
    WEFT_GO(weft_device_write(&part, 7, &byte, 1));
    WEFT_GO(d->export_memory(d, &part, &mine));
    WEFT_GO(weft_comm_collective(r->c, t.meeting, WEFT_ALL_GATHER, WEFT_DTYPE_U8, &mine,
                                 all, sizeof mine));
    WEFT_GO(d->import_memory(d, &all[!r->rank], &other));
    WEFT_GO(expect(other.bytes == 5000, "its size"));
    WEFT_GO(weft_device_read(got, &other, 7, 1));
    WEFT_GO(expect(got[0] == (char)(2 - r->rank), "the other's byte"));
    WEFT_GO(weft_device_write(&other, 8, &byte, 1));
    WEFT_GO(weft_comm_collective(r->c, t.meeting, WEFT_ALL_GATHER, WEFT_DTYPE_U8, &byte,
                                 got, 1));
    WEFT_GO(weft_device_read(got, &part, 8, 1));
    WEFT_GO(expect(got[0] == (char)(2 - r->rank), "written by the other"));
    mine.bytes[0] ^= 85;
    mine.bytes[5] ^= 85;
    WEFT_GO(expect(d->import_memory(d, &mine, &part) != WEFT_OK,
                   "a handle that leads nowhere"));
out:
    if (other.address) t.device->import_close(t.device, &all[!r->rank], &other);
    WEFT_TRY(st);
    WEFT_TRY(weft_comm_collective(r->c, t.meeting, WEFT_ALL_GATHER, WEFT_DTYPE_U8, &byte,
                                  got, 1));
    close_rank(&t, false);
    return WEFT_OK;
}

static void memory_is_exported_and_imported(void **state)
{
    (void)state;
    run_ranks(SHM, 2, 30, share_memory);
    all_ok(SHM, 2);
}

/* ---- speed ---- */

enum {
    SPEED_BYTES = 256 << 20,
    SPEED_CALLS = 20,
    SPEED_SIZES = 4
};
static const int speed_mb[SPEED_SIZES] = {1, 16, 64, 256};

/* Seconds of one all_reduce; of one that is replayed; of one through the host. */
typedef struct test_speed {
    double plain_s, replayed_s, host_s;
} test_speed;

static test_speed *speeds; /* of rank 0, shared with its process */

static weft_status finish_checked(test_rank *t)
{
    WEFT_TRY(t->device->finish(&t->stream));
    return weft_device_comm_check(t->dc);
}

/* The mean of SPEED_CALLS after two.  graph NULL: issued. */
static weft_status time_calls(test_rank *t, weft_device_call *call,
                              const weft_captured *graph, double *seconds)
{
    double start = 0;
    for (int k = 0; k < SPEED_CALLS + 2; k++) {
        if (k == 2) {
            WEFT_TRY(finish_checked(t));
            start = weft_clock_s();
        }
        WEFT_TRY(graph ? t->device->replay(&t->stream, graph) : issue(t, call));
    }
    WEFT_TRY(finish_checked(t));
    *seconds = (weft_clock_s() - start) / SPEED_CALLS;
    return WEFT_OK;
}

/* As the executor does it without a backend: to pinned memory, the host's collective, and back. */
static weft_status time_host(test_rank *t, const weft_memory *m, const weft_memory *host,
                             double *seconds)
{
    weft_device *d     = t->device;
    double       start = 0;
    for (int k = 0; k < 3; k++) {
        if (k == 1) start = weft_clock_s();
        WEFT_TRY(d->copy(d, NULL, host, m));
        WEFT_TRY(weft_comm_collective(t->r->c, t->meeting, WEFT_ALL_REDUCE,
                                      WEFT_DTYPE_F32, host->address, host->address,
                                      m->bytes / 4));
        WEFT_TRY(d->copy(d, NULL, m, host));
    }
    *seconds = (weft_clock_s() - start) / 2;
    return WEFT_OK;
}

static weft_status time_size(test_rank *t, const weft_memory *host, int k)
{
    weft_status       st    = WEFT_OK;
    weft_device_call *call  = NULL;
    weft_captured     graph = {0};
    weft_stream      *s[1]  = {&t->stream};
    weft_memory       m, pinned;
    test_speed        x = {0};
    WEFT_TRY(weft_memory_part(&t->slab[0], 0, (int64_t)speed_mb[k] << 20, &m));
    WEFT_TRY(weft_memory_part(host, 0, m.bytes, &pinned));
    weft_comm_call sum = {
        .kind   = WEFT_ALL_REDUCE,
        .dtype  = WEFT_DTYPE_F32,
        .tensor = {.in = m.address, .out = m.address, .count = m.bytes / 4}};
    WEFT_TRY(t->dc->backend->prepare(t->group, &sum, "x", &call));
    WEFT_GO(time_calls(t, call, NULL, &x.plain_s));
    WEFT_GO(t->device->capture_begin(t->device, s, 1));
    WEFT_GO(issue(t, call));
    WEFT_GO(t->device->capture_end(t->device, &graph));
    WEFT_GO(time_calls(t, call, &graph, &x.replayed_s));
    WEFT_GO(time_host(t, &m, &pinned, &x.host_s));
    if (t->r->rank == 0) speeds[k] = x;
out:
    if (graph.device) t->device->captured_free(&graph);
    t->dc->backend->release(call);
    return st;
}

static weft_status measure_sums(rank_state *r)
{
    test_rank   t;
    weft_memory host = {0};
    int64_t     most = test_gpu_is_real() ? SPEED_BYTES : SLAB_BYTES;
    weft_status st   = open_rank(r, &t);
    if (st == WEFT_OK) weft_device_free(&t.slab[0]);
    if (st == WEFT_OK)
        st = weft_device_alloc(t.device, WEFT_SPACE_DEVICE, most, &t.slab[0]);
    if (st == WEFT_OK) st = weft_device_alloc(t.device, WEFT_SPACE_PINNED, most, &host);
    t.spec.largest = most;
    if (st == WEFT_OK) st = t.dc->backend->open_group(t.dc, &t.spec, &t.group);
    for (int k = 0; k < SPEED_SIZES && st == WEFT_OK; k++)
        if ((int64_t)speed_mb[k] << 20 <= most) st = time_size(&t, &host, k);
    weft_device_free(&host);
    close_rank(&t, st != WEFT_OK);
    return st;
}

/* Two ranks on one GPU.  Memory: both tensors are read and written, 4 n bytes.  Link: two tensors
 * cross it in each direction. */
static void sums_of_two_ranks(void **state)
{
    (void)state;
    speeds = mmap(NULL, sizeof *speeds * SPEED_SIZES, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(speeds != MAP_FAILED);
    run_ranks(SHM, 2, 60, measure_sums);
    all_ok(SHM, 2);
    for (int k = 0; k < SPEED_SIZES && speeds[k].plain_s > 0; k++) {
        double gb = 1e-9 * (double)((int64_t)speed_mb[k] << 20), s = speeds[k].replayed_s;
        print_message(
            "all_reduce of %d MB by %s: %.3f ms, in a graph %.3f ms: %.1f GB/s, "
            "memory %.0f GB/s, a link %.1f GB/s each way; through the host %.2f ms\n",
            speed_mb[k], backend_name, 1e3 * speeds[k].plain_s, 1e3 * s, gb / s,
            4 * gb / s, 2 * gb / s, 1e3 * speeds[k].host_s);
    }
    munmap(speeds, sizeof *speeds * SPEED_SIZES);
}

/* [BACKEND] [speed | PATTERN]: speed: how fast, on a GPU; PATTERN: tests of such names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest speed[] = {cmocka_unit_test(sums_of_two_ranks)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_exported_and_imported),
        cmocka_unit_test(the_bits_of_the_host),
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(gpus_apart_do_the_same),
        cmocka_unit_test(after_an_abort_nothing_is_written),
        cmocka_unit_test(a_killed_member_ends_all),
        cmocka_unit_test(a_stopped_member_ends_all),
        cmocka_unit_test(a_limit_of_waits_is_kept),
        cmocka_unit_test(the_call_and_who_is_missing_are_named),
    };
    static const char *const backends[] = {"peer", "nccl", "staged"};
    int                      failed     = 0;
    if (argc > 2 && strcmp(argv[2], "speed") != 0) cmocka_set_test_filter(argv[2]);
    for (size_t k = 0; k < WEFT_COUNT(backends); k++) {
        backend_name = backends[k];
        if (argc > 1 && strcmp(argv[1], "speed") != 0 &&
            strcmp(argv[1], backend_name) != 0)
            continue;
        if (argc > 1 && !strcmp(argv[argc - 1], "speed"))
            failed += cmocka_run_group_tests_name(backend_name, speed, NULL, NULL);
        else
            failed += cmocka_run_group_tests_name(backend_name, tests, NULL, NULL);
    }
    return failed;
}
