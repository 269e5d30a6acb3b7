/* weft plan as a command: its file is what weft run takes, its mistakes are one line. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "support/test.h"

static char dir[64];

/* The exit code; what was said is in text. */
static int say(const char *words, char *text, size_t n)
{
    char line[2048];
    snprintf(line, sizeof line, "%s %s 2>&1", WEFT_TEST_COMMAND, words);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    size_t got = fread(text, 1, n - 1, f);
    text[got]  = 0;
    while (fgetc(f) != EOF) {
    }
    int st = pclose(f);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static void plans_run(void **state)
{
    static const char *const constraints[] = {"tp=2", "pp=2 stages=3-1", "dp=2 zero=1"};
    char                     words[1024], text[8192];
    (void)state;
    snprintf(words, sizeof words, "%s/text", dir);
    FILE *f = fopen(words, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "line %d of a text to train on\n", i);
    fclose(f);
    for (size_t i = 0; i < WEFT_COUNT(constraints); i += TEST_STRIDE(2)) {
        snprintf(words, sizeof words,
                 "plan --model tiny256 --cluster '1 x (2 x cpu)' --batch 8 --seq 32 "
                 "--precision fp32 %s -o %s/plan.json",
                 constraints[i], dir);
        if (say(words, text, sizeof text)) fail_msg("%s: %s", words, text);
        snprintf(
            words, sizeof words,
            "run --nproc-per-node 2 model=tiny256 data=%s/text batch=8 seq=32 steps=2 "
            "plan=%s/plan.json output=%s/out%zu",
            dir, dir, dir, i);
        if (say(words, text, sizeof text)) fail_msg("%s: %s", words, text);
        assert_non_null(strstr(text, "weights_xxh64"));
    }
}

/* A device without bf16, whose f32 rate is derived. */
static void other_devices(void **state)
{
    static const char *const nodes[] = {"2 x (4 x ascend910)", "1 x (2 x ascend910)"};
    char                     words[128], text[8192];
    (void)state;
    snprintf(words, sizeof words, "plan --model gpt2 --cluster '%s' --batch 32",
             nodes[WEFT_TEST_SANITIZED]);
    if (say(words, text, sizeof text)) fail_msg("%s", text);
    assert_non_null(strstr(text, WEFT_TEST_SANITIZED ? "of 2 devices" : "of 8 devices"));
}

static void mistakes_are_one_line(void **state)
{
    static const struct {
        int         code;
        const char *words, *what;
    } c[] = {
        {2, "plan", "which model? give --model"},
        {2, "plan --model gpt2", "on which machines? give --cluster"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g'", "give --batch"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --emit jax",
         "'jax' is none of: megatron deepspeed torchtitan paddle"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --engine jax",
         "engine 'jax' is none of: weft, megatron, deepspeed, torchtitan, paddle; "},
        {2,
         "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --precision fp8 --engine "
         "megatron",
         "a100-80g has no fp8 products"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --precision fp8",
         "a100-80g has no fp8 products"},
        {2, "plan --model gpt2 --cluster '2 x h100-80g' --batch 8 --precision fp4",
         "weft does not train in fp4"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --precision int4",
         "'int4' is none of: fp32 fp16 bf16 fp8 fp4"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --emit deepspeed pp=2",
         "pp=2: the engine has no words for stages"},
        {2, "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 tp=5",
         "tp=5 does not divide the 12 parts that dimension 2 of "
         "transformer.h.0.attn.c_attn.weight"},
        {2,
         "plan --model gpt2 --cluster '2 x a100-80g' --batch 8 --seq 64 tp=1 "
         "tp_exclude=blocks",
         "tp_exclude=blocks with tp=1: it names what a tp of 2 or more leaves "
         "replicated"},
        {1, "plan --model llama3-8b --cluster '1 x t4' --batch 8 --seq 128",
         "times as many devices would do"},
        {2,
         "plan --model gpt2 --cluster '2 x (2 x a100-80g)' --batch 8 --seq 64 'layers "
         "0..3 "
         "on stage 1' pp=2",
         "layers 0..3 on stage 1: no cut of stages keeps it; stages before and behind it "
         "need a layer each"},
        {2,
         "plan --model gpt2 --cluster '2 x (2 x a100-80g)' --batch 8 --seq 64 'layers "
         "0..3 "
         "on node 1' dp=4",
         "layers 0..3 on node 1: no cut of stages keeps it; the tp x cp x dp devices of "
         "a "
         "stage are to lie within it"},
        {2,
         "plan --model gpt2 --cluster '2 x (2 x a100-80g)' --batch 8 --seq 64 'layers "
         "0..3 "
         "on node 2'",
         "layers 0..3 on node 2: the cluster has nodes 0 to 1"},
        {2,
         "plan --model gpt2 --cluster '2 x (2 x a100-80g)' --batch 8 --seq 64 'layer 12 "
         "on "
         "node 1'",
         "layers 12..12: the model has layers 0 to 11"},
        {2, "plan --model gpt2 --cluster '2 x (2 x a100-80g)' --batch 8 'layer x on y'",
         "expected 'layers 0..3 on node 2'"},
        {2,
         "plan --model tiny256 --cluster '2 x a100-80g' --batch 8 --seq 64 "
         "tp_exclude=tail",
         "tp_exclude=tail: expected input, head, blocks or layers such as 0..3"},
        {2,
         "plan --model tiny256 --cluster '2 x a100-80g' --batch 8 --seq 64 "
         "tp_exclude=head",
         "tp_exclude=head: of this model there are: none; input,head; blocks"},
        {2, "plan --model resnet50 --cluster '8 x a100-80g' --batch 8 --emit megatron",
         "no transformer"},
    };
    char text[8192];
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(c); i += WEFT_TEST_SANITIZED ? TEST_FEW(3) : 1) {
        int code = say(c[i].words, text, sizeof text);
        if (code != c[i].code || !strstr(text, c[i].what))
            fail_msg("%s: %d, %s", c[i].words, code, text);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

/* In a hurry on many devices prices are of a model's sizes: text and JSON say so, and no bound is
 * written down. */
static void fast_says_whose_prices(void **state)
{
    static const struct {
        const char *words, *said;
        bool        sizes;
    } c[] = {
        {"--cluster '5 x (8 x a100-80g)'", "priced by the model's sizes", true},
        {"--cluster '5 x (8 x a100-80g)' --json", "\"priced_by\": \"sizes\"", true},
        {"--cluster '1 x (2 x a100-80g)'", "simulation: the search's word", false},
        {"--cluster '1 x (2 x a100-80g)' --json", "\"priced_by\": \"programs\"", false},
    };
    char words[512], text[16384];
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(c); i += TEST_STRIDE(3)) {
        snprintf(words, sizeof words,
                 "plan --model gpt2 --batch 64 --seq 128 --fast %s -o %s/fast.json",
                 c[i].words, dir);
        if (say(words, text, sizeof text) || !strstr(text, c[i].said))
            fail_msg("%s: %s", words, text);
        snprintf(words, sizeof words, "grep -q '\"bound_s\": ' %s/fast.json", dir);
        assert_true((system(words) == 0) == !c[i].sizes);
    }
}

/* A run on other machines than the plan's is refused, naming both. */
static void machines_are_named(void **state)
{
    char words[1024], text[8192];
    (void)state;
    snprintf(words, sizeof words,
             "plan --model tiny256 --cluster '1 x (2 x cpu)' --batch 8 --seq 32 "
             "--precision fp32 dp=2 -o %s/two.json",
             dir);
    assert_int_equal(say(words, text, sizeof text), 0);
    snprintf(words, sizeof words,
             "run --nproc-per-node 2 model=tiny256 data=%s/text batch=8 seq=32 steps=1 "
             "plan=%s/two.json output=%s/three --cluster '1 x (4 x cpu)'",
             dir, dir, dir);
    assert_int_not_equal(say(words, text, sizeof text), 0);
    if (!strstr(text,
                "two.json is a plan for other machines: 1 x (2 x cpu) there, 1 x (4 "
                "x cpu) here"))
        fail_msg("%s", text);
}

/* Without a word about ranks: planned, and as one rank gives it to the last bit. */
static void runs_what_it_plans(void **state)
{
    char words[1024], text[8192], one[17] = "";
    (void)state;
    for (int n = 1; n <= 4; n += TEST_STRIDE(3)) {
        snprintf(words, sizeof words,
                 "run --nproc-per-node %d model=tiny256 data=%s/text batch=8 seq=32 "
                 "steps=2 micro_batch=1 lanes=4 output=%s/auto%d",
                 n, dir, dir, n);
        if (say(words, text, sizeof text)) fail_msg("%s: %s", words, text);
        const char *hash = strstr(text, "weights_xxh64"), *plan = strstr(text, "plan: ");
        assert_non_null(hash);
        hash += strcspn(hash, " ");
        hash += strspn(hash, " ");
        if (n == 1) memcpy(one, hash, 16);
        if (memcmp(one, hash, 16)) fail_msg("%d ranks: %s, not %s", n, text, one);
        assert_true((n > 1) == (plan != NULL));
        if (!plan) continue;
        char want[32];
        snprintf(want, sizeof want, "plan: %d ranks,", n);
        assert_memory_equal(plan, want, strlen(want));
        assert_non_null(strstr(plan, "s a step predicted; --print-plan shows it"));
    }
}

/* weft train starts ranks where machines say that they help, and trains as one does. */
static void train_starts_ranks(void **state)
{
    static const char *const word[] = {"plan=off", "--cluster '1 x (2 x cpu)'"};
    char                     words[1024], text[8192], hash[2][17] = {"", ""};
    (void)state;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) skip();
    for (int i = 0; i < 2; i++) {
        snprintf(words, sizeof words,
                 "train model=tiny256 data=%s/text batch=8 seq=32 steps=2 micro_batch=4 "
                 "lanes=2 output=%s/train%d %s",
                 dir, dir, i, word[i]);
        if (say(words, text, sizeof text)) fail_msg("%s: %s", words, text);
        const char *at = strstr(text, "weights_xxh64  ");
        assert_non_null(at);
        memcpy(hash[i], at + 15, 16);
        if ((strstr(text, "plan for the machines of 1 x (2 x cpu): 2 ranks,") != NULL) !=
            (i == 1))
            fail_msg("%s: %s", words, text);
    }
    assert_string_equal(hash[0], hash[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_run),           test_plain(other_devices),
        test_sanitized(mistakes_are_one_line), test_plain(fast_says_whose_prices),
        cmocka_unit_test(machines_are_named),  test_sanitized(runs_what_it_plans),
        test_sanitized(train_starts_ranks),
    };
    strcpy(dir, "/tmp/weft_plan_XXXXXX");
    if (!mkdtemp(dir)) return 1;
    int  failed = cmocka_run_group_tests(tests, NULL, NULL);
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    return system(line) || failed;
}
