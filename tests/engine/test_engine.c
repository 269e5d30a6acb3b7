/* Other engines' words: what is read is what was meant; what is written reads back. */
#include <string.h>

#include "engine/engine.h"
#include "estimate/describe.h"
#include "support/test.h"

static weft_config read_text(weft_engine e, const char *text, int world, weft_arena *a)
{
    weft_config c;
    weft_engine_open(&c);
    assert_ok(weft_engine_read(e, "f", text, strlen(text), world, a, &c, NULL));
    return c;
}

static void refused(weft_engine e, const char *text, const char *why)
{
    weft_arena *a;
    weft_config c;
    assert_ok(weft_arena_create(&a));
    weft_engine_open(&c);
    assert_int_equal(weft_engine_read(e, "f", text, strlen(text), 16, a, &c, NULL),
                     WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), why)) fail_msg("%s: %s", text, weft_error_text());
    weft_arena_destroy(a);
}

static void megatron(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_text   ignored = {0};
    const char *text =
        "torchrun pretrain_gpt.py --num-layers 24 --hidden-size=1024 "
        "--num-attention-heads "
        "16 \\\n --seq-length 2048 --micro-batch-size 2 --global-batch-size 64 --fp16\n"
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
        "--num-layers-per-virtual-pipeline-stage 3 --sequence-parallel --lr 1e-4 "
        "--recompute-granularity 'full' --use-distributed-optimizer --split 949,50,1";
    weft_config c;
    weft_engine_open(&c);
    assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", text, strlen(text), 0, a, &c,
                               &ignored));
    assert_int_equal(c.layers, 24);
    assert_int_equal(c.hidden, 1024);
    assert_int_equal(c.tp, 2);
    assert_int_equal(c.pp, 4);
    assert_int_equal(c.vpp, 2);
    assert_int_equal(c.sp, 1);
    assert_int_equal(c.zero, 1);
    assert_int_equal(c.gated_mlp, 0);
    assert_string_equal(c.recompute, "full");
    assert_string_equal(c.precision, "fp16");
    assert_string_equal(ignored.s, "torchrun pretrain_gpt.py --lr --split");
    weft_text_fini(&ignored);

    c = read_text(
        WEFT_ENGINE_MEGATRON,
        "--num-layers 30 --pipeline-model-parallel-size 4 "
        "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7 "
        "--data-parallel-sharding-strategy optim_grads_params --bf16 --fp8-format e4m3",
        0, a);
    assert_string_equal(c.stage_layers, "7-8-8-7");
    assert_int_equal(c.zero, 3);
    assert_string_equal(c.precision, "fp8");
    weft_arena_destroy(a);
}

/* Some layers run again; the input side and the loss count as layers. */
static void megatron_blocks(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c = read_text(
        WEFT_ENGINE_MEGATRON,
        "--num-layers 46 --pipeline-model-parallel-size 8 "
        "--num-virtual-stages-per-pipeline-rank 3 --recompute-granularity full "
        "--recompute-method block --recompute-num-layers 1 "
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
        8, a);
    assert_int_equal(c.recompute_layers, 3);
    assert_int_equal(c.vpp, 3);
    assert_string_equal(c.stage_layers, "5-6-6-6-6-6-6-5");
    c = read_text(WEFT_ENGINE_MEGATRON,
                  "--num-layers 24 --recompute-granularity full "
                  "--recompute-method uniform --recompute-num-layers 1",
                  8, a);
    assert_true(c.recompute_layers < 1);
    refused(WEFT_ENGINE_MEGATRON, "--recompute-method blocks",
            "--recompute-method blocks: expected block or uniform");
    refused(WEFT_ENGINE_MEGATRON,
            "--num-layers 24 --pipeline-model-parallel-size 8 "
            "--account-for-loss-in-pipeline-split",
            "do not divide by 8 stages");
    weft_arena_destroy(a);
}

/* Parts of layers that run again: cheap ones are a mode, others are kept by name. */
static void megatron_modules(void **state)
{
    static const char *const words[] = {
        "--recompute-granularity selective --recompute-modules core_attn",
        "--recompute-granularity selective --recompute-modules layernorm",
        "--recompute-granularity selective --recompute-modules mlp layernorm --bf16",
        "--recompute-modules moe_act mlp",
    };
    static const char *const mode[] = {"selective", "light", "light", "none"};
    static const int         of[]   = {-1, -1, WEFT_AGAIN_NORM | WEFT_AGAIN_MLP, -1};
    weft_arena              *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        weft_config c = read_text(WEFT_ENGINE_MEGATRON, words[i], 8, a);
        assert_string_equal(c.recompute, mode[i]);
        assert_int_equal(c.recompute_modules, of[i]);
    }
    refused(WEFT_ENGINE_MEGATRON, "--recompute-modules layernrom",
            "unknown module 'layernrom', did you mean 'layernorm'?");
    weft_arena_destroy(a);
}

static void megatron_mistakes(void **state)
{
    (void)state;
    refused(WEFT_ENGINE_MEGATRON, "--num-layers", "--num-layers needs a value");
    refused(WEFT_ENGINE_MEGATRON, "--num-layers --bf16", "--num-layers needs a value");
    refused(WEFT_ENGINE_MEGATRON, "--num-layers twelve", "expected a whole number");
    refused(WEFT_ENGINE_MEGATRON, "--tensor-model-paralel-size 2",
            "did you mean '--tensor-model-parallel-size'?");
    refused(WEFT_ENGINE_MEGATRON, "--hidden-sze 64", "did you mean '--hidden-size'?");
    refused(WEFT_ENGINE_MEGATRON, "--recompute-granularity some",
            "expected full or selective");
    refused(WEFT_ENGINE_MEGATRON,
            "--num-layers 10 --pipeline-model-parallel-size 2 "
            "--num-layers-per-virtual-pipeline-stage 3",
            "10 layers are not 2 stages of chunks of 3 layers");
}

/* Its own words are not taken for slips of others. */
static void megatron_others(void **state)
{
    weft_arena *a;
    weft_text   ignored = {0};
    weft_config c;
    const char *text = "--vocab-file v.json --num-workers 2 --ckpt-format torch_dist "
                       "--rampup-batch-size 16 16 100 --num-layers 4 "
                       "--grad-reduce-in-bf16";
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_engine_open(&c);
    assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", text, strlen(text), 8, a, &c,
                               &ignored));
    assert_string_equal(ignored.s,
                        "--vocab-file --num-workers --ckpt-format --rampup-batch-size");
    assert_int_equal(c.layers, 4);
    assert_string_equal(c.grad_dtype, "bf16");
    weft_text_fini(&ignored);
    weft_arena_destroy(a);
}

static void deepspeed(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c =
        read_text(WEFT_ENGINE_DEEPSPEED,
                  "{\"train_micro_batch_size_per_gpu\": 4, "
                  "\"gradient_accumulation_steps\": 8, \"bf16\": {\"enabled\": true}, "
                  "\"zero_optimization\": {\"stage\": 2}}",
                  16, a);
    assert_int_equal(c.global_batch, 4 * 8 * 16);
    assert_int_equal(c.micro_batch, 4);
    assert_int_equal(c.zero, 2);
    assert_string_equal(c.precision, "bf16");
    c = read_text(WEFT_ENGINE_DEEPSPEED,
                  "{\"train_batch_size\": \"auto\", "
                  "\"train_micro_batch_size_per_gpu\": 4, "
                  "\"gradient_accumulation_steps\": \"auto\", "
                  "\"fp16\": {\"enabled\": \"auto\"}, "
                  "\"bf16\": {\"enabled\": \"auto\"}}",
                  16, a);
    assert_int_equal(c.global_batch, 4 * 16);
    assert_string_equal(c.precision, "bf16");
    refused(WEFT_ENGINE_DEEPSPEED, "{\"train_batch_size\": \"some\"}",
            "expected an integer");
    refused(WEFT_ENGINE_DEEPSPEED,
            "{\"train_batch_size\": 100, "
            "\"train_micro_batch_size_per_gpu\": 4, "
            "\"gradient_accumulation_steps\": 2}",
            "train_batch_size 100 is not 4 a device x 2 steps x 16 replicas");
    refused(WEFT_ENGINE_DEEPSPEED, "{\"zero_optimization\": {\"stage\": 4}}",
            "not from 0 to 3");
    refused(WEFT_ENGINE_DEEPSPEED, "[]", "expected a JSON object");
    refused(WEFT_ENGINE_DEEPSPEED, "{", "f:1:");
    weft_arena_destroy(a);
}

static void check_uncounted(weft_engine e, const char *text, const char *want,
                            weft_arena *a)
{
    weft_text   t = {0};
    weft_config c = read_text(e, text, 8, a);
    weft_engine_put_uncounted(&c, &t);
    assert_string_equal(t.n ? t.s : "", want);
    weft_text_fini(&t);
}

/* Offloading to the host decides memory and time: it is told apart from what is passed over. */
static void offload_is_uncounted(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    check_uncounted(
        WEFT_ENGINE_DEEPSPEED,
        "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 3, "
        "\"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": "
        "{\"device\": \"nvme\"}}}",
        "zero_optimization.offload_optimizer, zero_optimization.offload_param", a);
    check_uncounted(WEFT_ENGINE_DEEPSPEED,
                    "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 3, "
                    "\"offload_optimizer\": {\"device\": \"none\"}}}",
                    "", a);
    check_uncounted(WEFT_ENGINE_TORCHTITAN,
                    "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\n"
                    "enable_cpu_offload = true\n",
                    "training.enable_cpu_offload", a);
    check_uncounted(WEFT_ENGINE_MEGATRON,
                    "--num-layers 4 --hidden-size 512 --seq-length 128 "
                    "--optimizer-cpu-offload",
                    "--optimizer-cpu-offload", a);
    weft_arena_destroy(a);
}

/* core_v0.19.0: 4 * 4096 * 2 / 3 is cut to a multiple of 64. */
static void megatron_feed_forward(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c = read_text(WEFT_ENGINE_MEGATRON,
                              "--num-layers 4 --hidden-size 4096 --swiglu", 8, a);
    assert_int_equal(c.ffn_hidden, 10880);
    c = read_text(WEFT_ENGINE_MEGATRON, "--num-layers 4 --hidden-size 4096", 8, a);
    assert_int_equal(c.ffn_hidden, 16384);
    weft_arena_destroy(a);
}

/* Slips of the hand are mistakes, what is not read is named, what changes nothing is not. */
static void keys_are_seen(void **state)
{
    static const char text[] =
        "{\"train_batch_size\": 64, \"gradient_clipping\": 1, \"optimizer\": {\"type\": "
        "\"Adam\"}, \"activation_checkpointing\": {\"x\": 1}, \"zero_optimization\": "
        "{\"stage\": 1, \"overlap_comm\": true, \"sub_group_size\": 5}}";
    weft_arena *a;
    weft_text   ignored = {0};
    weft_config c;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_engine_open(&c);
    assert_ok(weft_engine_read(WEFT_ENGINE_DEEPSPEED, "f", text, sizeof text - 1, 8, a,
                               &c, &ignored));
    assert_string_equal(ignored.s,
                        "activation_checkpointing zero_optimization.sub_group_size");
    refused(WEFT_ENGINE_DEEPSPEED, "{\"train_batchsize\": 64}",
            "f:1: unknown key 'train_batchsize', did you mean 'train_batch_size'?");
    refused(WEFT_ENGINE_TORCHTITAN, "[parallelism]\ntensor_paralel_degree = 2",
            "f:2: unknown key 'parallelism.tensor_paralel_degree', did you mean "
            "'tensor_parallel_degree'?");
    weft_text_fini(&ignored);
    weft_arena_destroy(a);
}

static void torchtitan(void **state)
{
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c = read_text(WEFT_ENGINE_TORCHTITAN,
                              "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\n"
                              "local_batch_size = 2\nseq_len = 8192\ncompile = true\n"
                              "[parallelism]\ntensor_parallel_degree = 2\n"
                              "[activation_checkpoint]\nmode = 'full'",
                              16, a);
    assert_int_equal(c.layers, 32);
    assert_int_equal(c.dp, 8);
    assert_int_equal(c.zero, 3);
    assert_int_equal(c.global_batch, 16);
    assert_string_equal(c.recompute, "full");
    assert_string_equal(c.features, "compile");
    refused(WEFT_ENGINE_TORCHTITAN, "[model]\nname = 'x'\nflavor = 'y'",
            "give its config.json");
    refused(WEFT_ENGINE_TORCHTITAN, "[parallelism]\ntensor_parallel_degree = 3",
            "16 devices are no multiple of");
    refused(WEFT_ENGINE_TORCHTITAN, "[parallelism]\ntensor_parallel_degree = 'a'",
            "expected an integer");
    weft_arena_destroy(a);
}

#define LLAMA "[model]\nname = 'llama3'\nflavor = '8B'\n"
#define TRAIN "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"

/* By torchtitan's releases: what switches float8 on does, a table that only says how does not. */
static void torchtitan_float8(void **state)
{
    static const struct {
        const char *text, *precision;
    } file[] = {
        /* v0.1.0's llama3_70b.toml: converters commented out */
        {LLAMA TRAIN "[float8]\nenable_fsdp_float8_all_gather = false\n", "bf16"},
        {LLAMA TRAIN "[quantize.linear.float8]\nrecipe_name = 'rowwise'\n", "bf16"},
        {LLAMA "converters = []\n" TRAIN "[float8]\n", "bf16"},
        {LLAMA "converters = ['float8']\n" TRAIN, "fp8"},
        {LLAMA "converters = 'float8'\n" TRAIN, "fp8"},
        {LLAMA "converters = 'something, float8'\n" TRAIN, "fp8"},
        {LLAMA "converters = ['quantize.linear.float8']\n" TRAIN, "fp8"},
        {LLAMA "converters = ['quantize.dense.float8']\n" TRAIN, "fp8"},
        {LLAMA "converters = ['quantize.linear.mx']\n" TRAIN, "fp8"},
        {LLAMA "converters = ['quantize.grouped_mm.float8']\n" TRAIN, "bf16"},
        {LLAMA "converters = ['float8']\n" TRAIN "[float8]\nemulate = true\n", "bf16"},
        {LLAMA TRAIN "[float8]\nenable_float8_linear = true\n", "fp8"},
        {LLAMA TRAIN "[float8]\nenable_float8_linear = false\n", "bf16"},
        {LLAMA TRAIN "enable_fp8_linear = true\n", "fp8"},
        {LLAMA TRAIN "mixed_precision_param = 'float32'\n", "fp32"},
    };
    weft_arena *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    for (size_t i = 0; i < WEFT_COUNT(file); i++) {
        weft_config c = read_text(WEFT_ENGINE_TORCHTITAN, file[i].text, 8, a);
        if (strcmp(c.precision, file[i].precision))
            fail_msg("%s: %s, not %s", file[i].text, c.precision, file[i].precision);
    }
    weft_cluster     *k;
    weft_device_kind *hopper, *blackwell;
    assert_ok(weft_cluster_load("1 x (8 x h100-80g) + 1 x (8 x b200)", NULL, &k));
    hopper    = &k->device[k->node[0].device];
    blackwell = &k->device[k->node[1].device];
    weft_config c =
        read_text(WEFT_ENGINE_TORCHTITAN, LLAMA "converters = ['mx']\n" TRAIN, 8, a);
    assert_int_equal(weft_engine_know_formats(hopper, &c), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "h100-80g has no MX formats"));
    assert_ok(weft_engine_know_formats(blackwell, &c));
    c = read_text(WEFT_ENGINE_TORCHTITAN, LLAMA "converters = ['float8']\n" TRAIN, 8, a);
    assert_ok(weft_engine_know_formats(hopper, &c));
    weft_cluster_destroy(k);
    refused(WEFT_ENGINE_TORCHTITAN, LLAMA "converters = ['flaot8']\n" TRAIN,
            "f:4: model.converters: 'flaot8' is not known, did you mean 'float8'?");
    refused(WEFT_ENGINE_TORCHTITAN, LLAMA "converters = [8]\n" TRAIN,
            "expected a list of names");
    weft_arena_destroy(a);
}

/* A configuration that was read, written as its plan. */
static weft_status emit(weft_engine e, const weft_config *c, weft_text *t)
{
    weft_engine_plan p;
    weft_arena      *a;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_engine_plan_of(c, a, &p));
    weft_status st = weft_engine_emit(e, c, &p, t);
    weft_arena_destroy(a);
    return st;
}

/* Every number of the plan comes back; words that only describe the run need not. */
static void same_plan(weft_engine e, const weft_config *c, int world, weft_arena *a)
{
    weft_text   t = {0};
    weft_config b;
    assert_ok(emit(e, c, &t));
    weft_engine_open(&b);
    b.layers = e == WEFT_ENGINE_DEEPSPEED ? c->layers : -1;
    assert_ok(weft_engine_read(e, "f", t.s, t.n, world, a, &b, NULL));
    assert_int_equal(b.tp, c->tp);
    assert_int_equal(b.pp, c->pp);
    assert_int_equal(b.sp, c->sp);
    assert_int_equal(b.zero, c->zero);
    assert_int_equal(b.micro_batch, c->micro_batch);
    assert_int_equal(b.global_batch, c->global_batch);
    assert_string_equal(b.precision, c->precision);
    if (e == WEFT_ENGINE_MEGATRON) {
        assert_int_equal(b.vpp, c->vpp);
        assert_int_equal(b.kv_heads, c->kv_heads);
        assert_int_equal(b.ffn_hidden, c->ffn_hidden);
        assert_int_equal(b.vocab, c->vocab);
        assert_int_equal(b.tied_embedding, c->tied_embedding);
        assert_string_equal(b.stage_layers, c->stage_layers);
    }
    if (e != WEFT_ENGINE_DEEPSPEED) {
        assert_int_equal(b.layers, c->layers);
        assert_int_equal(b.hidden, c->hidden);
        assert_int_equal(b.seq, c->seq);
        assert_string_equal(b.recompute, c->recompute);
        assert_int_equal(b.recompute_modules, c->recompute_modules);
    }
    weft_text_fini(&t);
}

static void what_is_written_reads_back(void **state)
{
    weft_arena *a;
    weft_text   t = {0};
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c = read_text(WEFT_ENGINE_TORCHTITAN,
                              "[model]\nname = 'llama3'\nflavor = '70B'\n[training]\n"
                              "local_batch_size = 4\nseq_len = 4096\n[parallelism]\n"
                              "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\n"
                              "pipeline_parallel_microbatch_size = 2\n"
                              "[activation_checkpoint]\nmode = 'selective'",
                              128, a);
    assert_ok(weft_config_complete("f", &c));
    same_plan(WEFT_ENGINE_TORCHTITAN, &c, 128, a);
    c.vpp          = 4;
    c.stage_layers = "19-21-21-19";
    same_plan(WEFT_ENGINE_MEGATRON, &c, 128, a);
    c.recompute = "light";
    same_plan(WEFT_ENGINE_MEGATRON, &c, 128, a);
    c.recompute_modules = WEFT_AGAIN_UP | WEFT_AGAIN_SHARED;
    same_plan(WEFT_ENGINE_MEGATRON, &c, 128, a);
    c.recompute_modules = -1;
    assert_int_equal(emit(WEFT_ENGINE_DEEPSPEED, &c, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "no words for pp=4"));
    c.pp = c.vpp   = 1;
    c.tp           = 1;
    c.sp           = 0;
    c.dp           = 128;
    c.global_batch = 512;
    c.stage_layers = "";
    same_plan(WEFT_ENGINE_DEEPSPEED, &c, 128, a);
    c.ep = 8;
    assert_int_equal(emit(WEFT_ENGINE_DEEPSPEED, &c, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "no words for ep=8"));
    c.ep = 1;
    assert_int_equal(emit(WEFT_ENGINE_TORCHTITAN, &c, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "no words for recompute=light"));
    c.recompute = "full";
    t.n         = 0;
    c.experts   = 8; /* of the sizes of a flavour without experts */
    assert_ok(emit(WEFT_ENGINE_TORCHTITAN, &c, &t));
    assert_non_null(strstr(t.s, "flavor = \"name-yours\"")); /* stops torchtitan */
    c.experts = -1;
    assert_ok(emit(WEFT_ENGINE_PADDLE, &c, &t));
    assert_non_null(strstr(t.s, "\"sharding_degree\": 128"));
    weft_text_fini(&t);
    weft_arena_destroy(a);
}

/* A key of the strategy that is set changes what is written, or is refused: none is dropped. */
static void no_key_is_dropped(void **state)
{
    static const struct {
        const char *text;
        unsigned    refused; /* by engines, as bits */
    } plan[] = {{"dp=8 tp=2 sp=true zero=3", 1 << WEFT_ENGINE_DEEPSPEED},
                {"dp=8 cp=2 zero=3", 1 << WEFT_ENGINE_DEEPSPEED},
                {"dp=8 pp=2 zero=3", 1 << WEFT_ENGINE_DEEPSPEED},
                {"dp=4 ep=2 zero=3", 1 << WEFT_ENGINE_DEEPSPEED},
                {"dp=8 zero=1", 1 << WEFT_ENGINE_TORCHTITAN},
                {"dp=8 pp=2 zero=3 schedule=zb-h1", 15},
                {"dp=8 zero=3 tp=2 sp=true tp_exclude=head", 15},
                {"dp=8 zero=2 overlap_param_gather=0.5", 15},
                {"dp=8 cp=2 zero=3 cp_comm=ring", 15},
                {"dp=8 zero=3 batch_split=3x4,1x4", 15}};
    weft_engine_plan none;
    weft_arena      *a;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c  = read_text(WEFT_ENGINE_TORCHTITAN, LLAMA TRAIN, 8, a);
    c.dp           = 8;
    c.global_batch = 64;
    assert_ok(weft_config_complete("f", &c));
    assert_ok(weft_engine_plan_of(&c, a, &none));
    c.dp = 16; /* a plan may leave devices idle */
    for (int e = 0; e < WEFT_N_ENGINE; e++)
        for (size_t i = 0; i < WEFT_COUNT(plan); i++) {
            weft_engine_plan p;
            weft_text        t = {0}, without = {0};
            assert_ok(weft_engine_emit((weft_engine)e, &c, &none, &without));
            p = none;
            assert_ok(weft_strategy_parse(plan[i].text, &p.strategy));
            weft_status st = weft_engine_emit((weft_engine)e, &c, &p, &t);
            if ((st != WEFT_OK) != (plan[i].refused >> e & 1))
                fail_msg("%s, %s: %s", weft_engine_name((weft_engine)e), plan[i].text,
                         st == WEFT_OK ? t.s : weft_error_text());
            if (st == WEFT_OK) assert_string_not_equal(t.s, without.s);
            weft_text_fini(&t);
            weft_text_fini(&without);
        }
    weft_arena_destroy(a);
}

/* In 8 bits, resharded or not, with experts: the same configuration comes back. */
static void torchtitan_float8_reads_back(void **state)
{
    weft_arena *a;
    weft_text   t = {0};
    (void)state;
    assert_ok(weft_arena_create(&a));
    for (int pp = 1; pp <= 4; pp += 3)
        for (int zero = 2; zero <= 3; zero++) {
            weft_config c  = read_text(WEFT_ENGINE_TORCHTITAN,
                                       LLAMA "converters = ['float8']\n" TRAIN, 32, a);
            c.pp           = pp;
            c.dp           = 32 / pp;
            c.zero         = zero;
            c.zero_group   = -1;
            c.global_batch = 64;
            assert_ok(weft_config_complete("f", &c));
            same_plan(WEFT_ENGINE_TORCHTITAN, &c, 32, a);
            t.n = 0;
            assert_ok(emit(WEFT_ENGINE_TORCHTITAN, &c, &t));
            assert_non_null(strstr(t.s, "converters = [\"quantize.linear.float8\"]"));
            same_plan(WEFT_ENGINE_MEGATRON, &c, 32, a);
            c.precision = "fp16";
            assert_int_equal(emit(WEFT_ENGINE_TORCHTITAN, &c, &t), WEFT_ERR_ARG);
            assert_non_null(strstr(weft_error_text(), "no words for fp16"));
        }
    weft_text_fini(&t);
    weft_arena_destroy(a);
}

/* Layers of two widths do not go into other engines' sizes; everything else counts its parameters
 * right. */
static void models_that_cannot_be_told(void **state)
{
    static const struct {
        const char *name;
        double      params; /* without positions */
    } preset[] = {{"gpt2", 123653376},
                  {"gpt3-175b", 174579093504},
                  {"llama3-8b", 8030261248},
                  {"llama3-405b", 405853388800},
                  {"mixtral-8x7b", 46702792704}};
    weft_arena *a;
    weft_model *m;
    weft_config c;
    (void)state;
    assert_ok(weft_arena_create(&a));
    for (size_t i = 0; i < WEFT_COUNT(preset); i++) {
        assert_ok(weft_model_load(preset[i].name, &(weft_model_options){.seq = 128}, &m));
        weft_engine_open(&c);
        assert_ok(weft_engine_model(m, a, &c));
        assert_true(weft_config_params(&c) == preset[i].params);
        weft_model_destroy(m);
    }
    weft_engine_open(&c);
    assert_ok(
        weft_model_load("ernie3-titan-260b", &(weft_model_options){.seq = 128}, &m));
    assert_int_equal(weft_engine_model(m, a, &c), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "has 261.6 billion parameters"));
    assert_non_null(strstr(weft_error_text(), "a model with 471.6"));
    weft_model_destroy(m);
    weft_arena_destroy(a);
}

/* What would be written is another model's, or the engine has none like it. */
static void models_that_engines_lack(void **state)
{
    static const struct {
        const char *model, *engine, *why; /* NULL: it can */
    } ask[] = {
        {"gpt2", "megatron", NULL},
        {"gpt2", "deepspeed", NULL},
        {"gpt2", "torchtitan", "torchtitan has no model like gpt2 (GPT-2)"},
        {"bert-large", "megatron", "bert-large is a masked language model: Megatron-LM"},
        {"bert-large", "torchtitan", "torchtitan has none"},
        {"bert-large", "deepspeed", NULL},
        {"tests/fixtures/families/mistral", "megatron", "attends to the last "},
        {"tests/fixtures/families/mistral", "torchtitan", "has no such window"},
        {"tests/fixtures/families/qwen2", "torchtitan", "biases of q, k and v"},
        {"llama3-8b", "torchtitan", NULL},
        {"mixtral-8x7b", "torchtitan", NULL},
    };
    weft_model *m;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(ask); i++) {
        /* 4: as wide as the window of the qwen2 here */
        int seq = strstr(ask[i].model, "qwen2") ? 4 : 16;
        assert_ok(weft_model_load(ask[i].model, &(weft_model_options){.seq = seq}, &m));
        weft_status st = weft_engine_can_train(ask[i].engine, m);
        assert_int_equal(st, ask[i].why ? WEFT_ERR_ARG : WEFT_OK);
        if (ask[i].why && !strstr(weft_error_text(), ask[i].why))
            fail_msg("%s: %s", ask[i].model, weft_error_text());
        weft_model_destroy(m);
    }
}

/* Another rotary base than the flavour's is another model. */
static void flavours_have_their_base(void **state)
{
    weft_arena *a;
    weft_text   t = {0};
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_config c  = read_text(WEFT_ENGINE_TORCHTITAN, LLAMA TRAIN, 32, a);
    c.dp           = 32;
    c.global_batch = 64;
    assert_ok(weft_config_complete("f", &c));
    assert_ok(emit(WEFT_ENGINE_TORCHTITAN, &c, &t));
    assert_non_null(strstr(t.s, "name = \"llama3\""));
    t.n           = 0;
    c.rotary_base = 10000;
    assert_ok(emit(WEFT_ENGINE_TORCHTITAN, &c, &t));
    assert_null(strstr(t.s, "name = \"llama3\""));
    weft_text_fini(&t);
    weft_arena_destroy(a);
}

static void a_cluster_is_tables(void **state)
{
    weft_cluster  *k;
    weft_hardware *h;
    weft_arena    *a;
    weft_config    c;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_engine_open(&c);
    assert_ok(weft_cluster_load("4 x (8 x v100-32g) + 2 x (8 x h100-80g)", NULL, &k));
    assert_ok(weft_engine_cluster(k, a, &c, &h));
    assert_string_equal(c.hw, "v100-32g*32+h100-80g*16");
    assert_int_equal(c.n_node, 6);
    assert_int_equal(h->n_device, 2);
    assert_true(h->net[1].intra_Bps > h->net[0].intra_Bps);
    weft_hardware_destroy(h);
    weft_cluster_destroy(k);
    weft_arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron),
        cmocka_unit_test(megatron_blocks),
        cmocka_unit_test(megatron_modules),
        cmocka_unit_test(megatron_mistakes),
        cmocka_unit_test(megatron_others),
        cmocka_unit_test(offload_is_uncounted),
        cmocka_unit_test(megatron_feed_forward),
        cmocka_unit_test(models_that_engines_lack),
        cmocka_unit_test(flavours_have_their_base),
        cmocka_unit_test(deepspeed),
        cmocka_unit_test(keys_are_seen),
        cmocka_unit_test(torchtitan),
        cmocka_unit_test(torchtitan_float8),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(no_key_is_dropped),
        cmocka_unit_test(torchtitan_float8_reads_back),
        cmocka_unit_test(models_that_cannot_be_told),
        cmocka_unit_test(a_cluster_is_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
