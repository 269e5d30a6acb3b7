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

/* Without offloading and with it. */
static void check_case(const offload_case *c)
{
    weft_program *plain[TEST_MAX_RANK], *moved[TEST_MAX_RANK];
    test_job      j;
    test_plan_how how = c->how;
    how.offload_bytes = 0;
    test_job_open(&j, c->model, c->o);
    int n = test_plan_programs(&j, c->x, &how, plain);
    test_plan_programs(&j, c->x, &c->how, moved);
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

static void same_bits_for_every_plan(void **state)
{
    static const offload_case all[] = {
        {FAMILY("gpt2"),
         {.seq = 12, .n_micro = 4},
         {"dp=1", 1, 1, NULL},
         {.offload_bytes = 3000, .offload_gradient_bytes = 1 << 30}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 2, .dtype = WEFT_DTYPE_BF16, .bad_step = 2},
         {"dp=2", 2, 1, NULL},
         {.offload_bytes = 3000, .offload_gradient_bytes = 1 << 30, .reduce_bytes = 3000}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .bad_step = 1},
         {"dp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30, .gather_bytes = 3000}},
        {FAMILY("gpt2"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=3", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30, .gather_bytes = 3000}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 zero=2 overlap_param_gather=0.6", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30, .gather_bytes = 3000}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16, .bad_step = 2},
         {"pp=2", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 pp=2 zero=1", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30, .gather_bytes = 3000, .reduce_bytes = 3000}},
        {FAMILY("llama"),
         {.seq = 12, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 tp=2 zero=3 sp=true", 4, 1, NULL},
         {.offload_bytes = 1000, .offload_gradient_bytes = 1 << 30, .gather_bytes = 3000}},
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
            {.offload_bytes = 2000, .offload_gradient_bytes = 1 << 30}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_every_plan),
        cmocka_unit_test(same_bits_for_every_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
