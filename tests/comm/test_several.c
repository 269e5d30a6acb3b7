/* Several tensors at once: the same bits as one after another, on every transport, wherever their
 * memory lies. */
#include "base/lanes.h"
#include "comm/memory.h"
#include "support/test.h"

enum {
    TENSORS = 7
};

/* Small ones, an empty one, one that is too large to be packed. */
static const int64_t counts[TENSORS] = {17, 1003, 0, 70007, 1, 640, 12};
static const int64_t units[TENSORS]  = {1, 7, 1, 256, 1, 1000, 5};

typedef struct test_case {
    weft_collective kind;
    bool            units, lanes, in_place;
} test_case;

/* Of the lanes of five and more ranks, and of three, some have more than others. */
static const weft_lanes *lanes_of(const rank_state *r, const test_case *c, weft_lanes *d)
{
    static const int32_t three[] = {5, 2, 1};
    *d                           = (weft_lanes){.n_lane = 8, .n = r->n};
    if (r->n == 3) d->share = three;
    return c->lanes ? d : NULL;
}

/* Elements of its result. */
static int64_t result(const rank_state *r, const test_case *c, const weft_comm_part *x)
{
    if (c->kind == WEFT_ALL_REDUCE) return x->count;
    if (c->kind == WEFT_ALL_GATHER) return x->unit ? x->count : x->count * r->n;
    if (!x->unit) return x->count / r->n;
    return weft_comm_share_at(x->count, x->unit, r->n, r->rank + 1) -
           weft_comm_share_at(x->count, x->unit, r->n, r->rank);
}

static weft_status make_part(rank_state *r, const test_case *c, int i, weft_comm_part *x)
{
    weft_lanes        d;
    const weft_lanes *lanes = lanes_of(r, c, &d);
    int64_t           most  = lanes ? weft_lanes_most_terms(lanes) : 1;
    void             *in;
    *x = (weft_comm_part){.count = counts[i], .unit = c->units ? units[i] : 0};
    if (!c->units && c->kind == WEFT_REDUCE_SCATTER) x->count *= r->n;
    x->stride = lanes ? x->count + 3 : 0;
    WEFT_TRY(get(r, (x->count + 3) * most * 4, &in));
    for (int64_t k = 0; k < (x->count + 3) * most; k++)
        ((float *)in)[k] = 1.0f / (float)(1 + (k * 37 + r->rank * 101 + i * 11) % 997);
    x->in = in;
    return get(r, x->count * r->n * 4, &x->out);
}

static weft_comm_call call_of(rank_state *r, weft_comm_group *g, const test_case *c)
{
    weft_lanes     d;
    weft_comm_call call = {.group = g, .kind = c->kind, .dtype = WEFT_DTYPE_F32};
    if (lanes_of(r, c, &d)) call.n_lane = d.n_lane, call.lane_share = d.share;
    return call;
}

static weft_status alone(rank_state *r, weft_comm_group *g, const test_case *c,
                         const weft_comm_part *x, void *out)
{
    weft_comm_call call = call_of(r, g, c);
    call.tensor         = *x;
    call.tensor.out     = out;
    return weft_comm_run(r->c, &call);
}

static weft_status compare(rank_state *r, weft_comm_group *g, const test_case *c,
                           weft_comm_part *part, const weft_comm_room *room)
{
    void          *want[TENSORS];
    weft_comm_call call = call_of(r, g, c);
    for (int i = 0; i < TENSORS; i++) {
        WEFT_TRY(get(r, counts[i] * r->n * r->n * 4, &want[i]));
        WEFT_TRY(alone(r, g, c, &part[i], want[i]));
    }
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    for (int i = 0; i < TENSORS && c->in_place; i++) {
        put(r, part[i].out);
        part[i].out = (void *)part[i].in;
    }
    call.n_part = TENSORS;
    call.part   = part;
    call.room   = *room;
    WEFT_TRY(weft_comm_run(r->c, &call));
    for (int i = 0; i < TENSORS; i++) {
        if (memcmp(want[i], part[i].out, (size_t)result(r, c, &part[i]) * 4))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "%s, tensor %d of %d, rank %d of %d",
                             weft_collective_name(c->kind), i, TENSORS, r->rank, r->n);
        put(r, want[i]);
    }
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static weft_status one_case(rank_state *r, weft_comm_group *g, const test_case *c)
{
    weft_comm_part part[TENSORS];
    weft_comm_room room = {.n = r->n, .me = r->rank};
    weft_comm_call call = call_of(r, g, c);
    for (int i = 0; i < TENSORS; i++) WEFT_TRY(make_part(r, c, i, &part[i]));
    call.n_part = TENSORS;
    call.part   = part;
    room.bytes  = weft_comm_room_bytes(r->c, &call, r->n, r->rank);
    room.p      = calloc(1, (size_t)room.bytes + 1);
    if (c->units) room.bytes /= 64; /* some parts are larger than all of it */
    weft_status st = compare(r, g, c, part, &room);
    for (int i = 0; i < TENSORS; i++) {
        if (part[i].out != part[i].in) put(r, part[i].out);
        put(r, (void *)part[i].in);
    }
    free(room.p);
    return st;
}

static weft_status all_cases(rank_state *r)
{
    static const test_case of[] = {
        {WEFT_ALL_REDUCE, false, false, false},
        {WEFT_ALL_REDUCE, false, false, true},
        {WEFT_ALL_REDUCE, false, true, true},
        {WEFT_REDUCE_SCATTER, false, false, false},
        {WEFT_REDUCE_SCATTER, true, false, false},
        {WEFT_REDUCE_SCATTER, true, true, false},
        {WEFT_ALL_GATHER, false, false, false},
        {WEFT_ALL_GATHER, true, false, false},
    };
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (size_t i = 0; i < WEFT_COUNT(of); i++) WEFT_TRY(one_case(r, g, &of[i]));
    return WEFT_OK;
}

static void the_same_bits(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (where = 0; where < n_memory(over); where++)
            for (int n = 1; n <= 5; n += n == 3 ? 2 : 1) {
                if (!TEST_HERE((int)where + over + n)) continue;
                run_ranks((transport)over, n, 60, all_cases);
                all_ok((transport)over, n);
            }
}

static weft_status other_numbers(rank_state *r)
{
    weft_comm_group *g;
    float           *x = NULL;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(get(r, 64 * 4, (void **)&x));
    weft_comm_part part[3] = {{.in = x, .out = x, .count = 8},
                              {.in = x + 8, .out = x + 8, .count = 8},
                              {.in = x + 16, .out = x + 16, .count = r->rank ? 8 : 0}};
    weft_status    st      = weft_comm_run(r->c, &(weft_comm_call){.group  = g,
                                                                   .kind   = WEFT_ALL_REDUCE,
                                                                   .dtype  = WEFT_DTYPE_F32,
                                                                   .n_part = r->rank ? 3 : 2,
                                                                   .part   = part});
    put(r, x);
    return st;
}

/* In shared memory, where a meeting is for all tensors of it. */
static void members_must_agree_on_how_many(void **state)
{
    (void)state;
    where = SLAB;
    for (int over = 0; over < N_TRANSPORT; over++) {
        if (!has_slabs((transport)over)) continue;
        run_ranks((transport)over, 2, 0.3, other_numbers);
        assert_true(rank[0].st == WEFT_ERR_ARG || rank[1].st == WEFT_ERR_ARG);
        assert_true(rank[0].st != WEFT_OK && rank[1].st != WEFT_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(members_must_agree_on_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
