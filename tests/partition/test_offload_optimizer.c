/* Updates on the host: the same bits as without, for any plan; what moves to host memory, and in
 * which chunks.  Every program is verified: without an edge of the ring it is refused. */
#include <string.h>

#include "partition/passes.h"
#include "support/plans.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name

typedef struct offload_case {
    const char      *model;
    test_job_options o;
    test_plan        x;
    test_plan_how    how;
    bool waits; /* ranks gather what was updated: the next step waits for all of it */
} offload_case;

static int64_t bytes_of(const weft_program *p, weft_slab_kind k)
{
    return weft_program_bytes(p, k);
}

static int count_firings(const weft_program *p, const char *stream)
{
    for (int k = 0; k < p->n_stream; k++)
        if (!strcmp(p->stream[k].name, stream)) return p->stream[k].n_firing;
    return 0;
}

static bool is_on(const weft_program *p, int actor, const char *stream)
{
    return !strcmp(p->stream[p->actor[actor].stream].name, stream);
}

/* Pieces of the next step that wait for a chunk of their own: actors of the compute stream. */
static int count_waiting(const weft_program *p)
{
    bool seen[1024] = {false};
    int  n          = 0;
    for (int i = 0; i < p->n_edge; i++) {
        const weft_edge *e = &p->edge[i];
        if (!e->delay || !is_on(p, e->from, "copy_in") || seen[e->to]) continue;
        assert_true(is_on(p, e->to, "compute"));
        seen[e->to] = true;
        n++;
    }
    return n;
}

/* Copies of gradients that begin before the actor with the commit point is over. */
static int count_early(const weft_program *p)
{
    int commit, instr, n = 0;
    assert_true(weft_program_find_commit(p, &commit, &instr));
    for (int i = 0; i < p->n_edge; i++)
        if (is_on(p, p->edge[i].to, "copy_out") && is_on(p, p->edge[i].from, "compute"))
            n += p->edge[i].from != commit;
    return n;
}

/* Without offloading and with it. */
static void check_gradients(const offload_case *c, int64_t gradient_bytes)
{
    weft_program *plain[TEST_MAX_RANK], *moved[TEST_MAX_RANK];
    test_job      j;
    test_plan_how how = c->how, with = c->how;
    how.offload_bytes           = 0;
    with.offload_gradient_bytes = gradient_bytes;
    test_job_open(&j, c->model, c->o);
    int n = test_plan_programs(&j, c->x, &how, plain);
    test_plan_programs(&j, c->x, &with, moved);
    int64_t state = 0, host = 0, chunks = 0, work = 0;
    for (int r = 0; r < n; r++) {
        const weft_program *a = plain[r], *b = moved[r];
        assert_true(bytes_of(a, WEFT_SLAB_HOST_STATE) == 0);
        assert_true(bytes_of(b, WEFT_SLAB_HOST_STATE) > 0);
        assert_true(bytes_of(a, WEFT_SLAB_STATE) ==
                    bytes_of(b, WEFT_SLAB_STATE) + bytes_of(b, WEFT_SLAB_HOST_STATE));
        int64_t more = bytes_of(b, WEFT_SLAB_WORK) - bytes_of(a, WEFT_SLAB_WORK);
        assert_true(strstr(c->x.words, "zero") ? more >= 0 : more == 0);
        work += more;
        assert_true(bytes_of(a, WEFT_SLAB_STAGING) == bytes_of(b, WEFT_SLAB_STAGING));
        assert_true(count_firings(b, "update") > 3); /* the ring goes round */
        if (c->waits)
            assert_int_equal(count_waiting(b), 0);
        else
            assert_true(count_waiting(b) > 0);
        bool early = gradient_bytes && !c->waits && !c->how.reduce_bytes &&
                     c->o.n_micro == 1 && c->x.n_lane == 1;
        assert_true(early == (count_early(b) > 0));
        state += bytes_of(b, WEFT_SLAB_STATE);
        host += bytes_of(b, WEFT_SLAB_HOST_STATE);
        chunks += count_firings(b, "update");
    }
    print_message(
        "%s %s: %lld bytes of states on the host, %lld on devices, %lld more of "
        "work, %lld chunks\n",
        c->model, c->x.words, (long long)host, (long long)state, (long long)work,
        (long long)chunks);
    test_result want = test_job_run(&j, plain, n, 1), got = test_job_run(&j, moved, n, 2);
    if (memcmp(&got, &want, sizeof got) != 0)
        fail_msg("%s %s: other bits with updates on the host", c->model, c->x.words);
    test_job_close(&j);
}

/* Gradients through the ring, and in memory of their own. */
static void check_case(const offload_case *c)
{
    check_gradients(c, 0);
    check_gradients(c, 1 << 30);
}

static void same_bits_for_every_plan(void **state)
{
    static const offload_case all[] = {
        {FAMILY("gpt2"),
         {.seq = 12, .n_micro = 4},
         {"dp=1", 1, 1, NULL},
         {.offload_bytes = 3000},
         false},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 2, .dtype = WEFT_DTYPE_BF16, .bad_step = 2},
         {"dp=2", 2, 1, NULL},
         {.offload_bytes = 3000, .reduce_bytes = 3000},
         false},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000},
         true},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .bad_step = 1},
         {"dp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000, .gather_bytes = 3000},
         true},
        {FAMILY("gpt2"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=3", 4, 1, NULL},
         {.offload_bytes = 1000, .gather_bytes = 3000},
         true},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=2 overlap_param_gather=0.6", 4, 1, NULL},
         {.offload_bytes = 1000, .gather_bytes = 3000},
         true},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16, .bad_step = 2},
         {"pp=2", 4, 1, NULL},
         {.offload_bytes = 1000},
         false},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 pp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000, .gather_bytes = 3000, .reduce_bytes = 3000},
         true},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 tp=2 zero=3 sp=true", 4, 1, NULL},
         {.offload_bytes = 1000, .gather_bytes = 3000},
         false},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(all); i++) check_case(&all[i]);
}

static void same_bits_for_every_optimizer(void **state)
{
    static const char *const name[] = {"sgd", "adam", "adagrad", "adamw"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(name); i++)
        check_case(&(offload_case){
            FAMILY("gpt2"),
            {.seq = 12, .n_micro = 1, .dtype = WEFT_DTYPE_BF16, .optimizer = name[i]},
            {"dp=1", 1, 1, NULL},
            {.offload_bytes = 2000},
            false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_every_plan),
        cmocka_unit_test(same_bits_for_every_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
