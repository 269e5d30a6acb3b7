/* src/planning/cost/own_memory.c: whole steps as they are planned, beside goals. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compile/compile.h"
#include "cost/cost.h"
#include "support/test.h"

static const char config[] =
    "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\",\n"
    " \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, "
    "\"attn_pdrop\": 0,\n"
    " \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"tie_word_embeddings\": true,\n"
    " \"n_positions\": 1024, \"n_embd\": 2048, \"n_head\": 16, \"n_layer\": 24,\n"
    " \"vocab_size\": 50304}\n";

/* GPT 1.3B on an H200, 8 sequences of 1,024 tokens in bf16. */
static double plan_gib(const char *model, weft_strategy_recompute recompute)
{
    weft_device_kind  device   = {.name = "h200-141g", .vendor = ""};
    weft_training     training = {0};
    weft_compiled     compiled = {0};
    weft_compile_spec spec     = weft_compile_spec_default(model, 8, 1024);
    spec.dtype                 = "bf16";
    spec.recompute             = recompute;
    spec.optimizer.clip        = 0;
    weft_compile_for_cuda(&spec);
    assert_ok(weft_compile_training(&spec, &training));
    assert_ok(weft_compile_program(&training, NULL, 0, &compiled));
    double gib = (double)weft_cost_program_bytes(compiled.program, &device) / (1 << 30);
    weft_compiled_fini(&compiled);
    weft_training_fini(&training);
    return gib;
}

static void gpt_of_1300_million(void **state)
{
    char folder[] = "/tmp/weft-memory-XXXXXX", file[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/config.json", folder);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(config, f) >= 0);
    assert_int_equal(fclose(f), 0);
    double all       = plan_gib(folder, WEFT_STRATEGY_KEEP);
    double selective = plan_gib(folder, WEFT_STRATEGY_SELECTIVE);
    unlink(file);
    rmdir(folder);
    if (all > 31.8 || selective > 25.5)
        fail_msg("%.3f GiB (31.8 allowed), recompute=selective %.3f (25.5 allowed)", all,
                 selective);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt_of_1300_million)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
