#include "cli/spec.h"

#include <stdio.h>
#include <string.h>

void weft_cli_spec_options(weft_cli_spec *s, weft_cli_option *row)
{
    const weft_cli_option all[WEFT_CLI_N_SPEC] = {
        {"batch", 0, WEFT_CLI_INT, &s->batch, "N", "sequences in a step (1)"},
        {"seq", 0, WEFT_CLI_INT, &s->seq, "N",
         "tokens in a sequence (what the model allows)"},
        {"micro-batch", 0, WEFT_CLI_INT, &s->micro_batch, "N",
         "sequences in a micro-batch (the batch)"},
        {"lanes", 0, WEFT_CLI_INT, &s->lanes, "N",
         "partial sums of the gradient, a power of two: the same bits for up to N "
         "data-parallel ranks, one more gradient held for each doubling above dp (the "
         "smallest from dp on)"},
        {"reduction", 0, WEFT_CLI_TEXT, &s->reduction, "NAME",
         "invariant, or fixed: zero=2 and 3 sum gradients in shards (invariant)"},
        {"dtype", 0, WEFT_CLI_TEXT, &s->dtype, "NAME",
         "fp32, bf16, or fp8: bf16 with the linear layers' matmuls in fp8 (fp32)"},
        {"fp8-format", 0, WEFT_CLI_TEXT, &s->fp8_format, "NAME",
         "e4m3, or hybrid: gradients of results in e5m2 (e4m3)"},
        {"optimizer", 0, WEFT_CLI_TEXT, &s->optimizer, "NAME",
         "adamw, adam, sgd, adagrad or lamb (adamw)"},
        {"clip", 0, WEFT_CLI_REAL, &s->clip, "X",
         "gradients are scaled down to this norm; 0: never (1)"},
        {"recompute", 0, WEFT_CLI_TEXT, &s->recompute, "NAME",
         "none, selective or full (none)"},
        {"offload", 0, WEFT_CLI_TEXT, &s->offload, "NAME",
         "none, or optimizer: a GPU's optimizer states in the host's memory (none)"},
        {"dropout", 0, WEFT_CLI_FLAG, &s->dropout, NULL,
         "with the configuration's dropout"},
    };
    s->clip = -1;
    memcpy(row, all, sizeof all);
}

/* value is one of words, or not given. */
static int word_of(const weft_cli_command *c, const char *option, const char *words,
                   const char *value, const char **out)
{
    char padded[128], want[64];
    if (!value) return -1;
    snprintf(padded, sizeof padded, " %s ", words);
    snprintf(want, sizeof want, " %s ", value);
    if (!strstr(padded, want))
        return weft_cli_usage(c, "--%s: '%s' is none of: %s", option, value, words);
    *out = value;
    return -1;
}

int weft_cli_spec_resolve(const weft_cli_command *c, weft_cli_spec *s, const char *model)
{
    int64_t batch         = s->batch ? s->batch : 1,
            micro         = s->micro_batch ? s->micro_batch : batch;
    const char *recompute = NULL, *offload = NULL;
    s->spec = weft_compile_spec_default(model, batch, s->seq);
    if (batch % micro)
        return weft_cli_usage(c, "--micro-batch %lld does not divide --batch %lld",
                              (long long)micro, (long long)batch);
    s->spec.micro_batch = micro;
    if (s->lanes) s->spec.lanes = s->lanes;
    s->spec.dropout = s->dropout;
    if (s->clip >= 0) s->spec.optimizer.clip = s->clip;
    const char *hint = s->dtype ? weft_compile_dtype_hint(s->dtype) : NULL;
    if (hint) return weft_cli_usage(c, "--dtype: %s", hint);
    int code = word_of(c, "dtype", "fp32 bf16 fp8", s->dtype, &s->spec.dtype);
    if (code < 0)
        code =
            word_of(c, "fp8-format", "e4m3 hybrid", s->fp8_format, &s->spec.fp8_format);
    if (code < 0 && s->fp8_format && !weft_compile_fp8_formats(&s->spec))
        return weft_cli_usage(c, "--fp8-format is for --dtype fp8");
    if (code < 0)
        code = word_of(c, "optimizer", "adamw adam sgd adagrad lamb", s->optimizer,
                       &s->spec.optimizer.name);
    if (code < 0)
        code = word_of(c, "recompute", "none selective full", s->recompute, &recompute);
    if (recompute)
        s->spec.recompute =
            (weft_strategy_recompute)weft_strategy_word("recompute", recompute);
    if (code < 0) code = word_of(c, "offload", "none optimizer", s->offload, &offload);
    if (offload)
        s->spec.offload = (weft_strategy_offload)weft_strategy_word("offload", offload);
    const char *reduction = "invariant";
    if (code < 0)
        code = word_of(c, "reduction", "invariant fixed", s->reduction, &reduction);
    if (!strcmp(reduction, "fixed")) s->spec.reduction = WEFT_REDUCTION_FIXED;
    return code;
}
