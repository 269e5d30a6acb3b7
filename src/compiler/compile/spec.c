/* Specs as values: this needs no compiler, so readers of job files can be built without one. */
#include <string.h>

#include "compile/compile.h"

weft_compile_spec weft_compile_spec_default(const char *model, int64_t batch, int64_t seq)
{
    return (weft_compile_spec){
        .model       = model,
        .seq         = seq,
        .batch       = batch,
        .micro_batch = batch,
        .lanes       = 1,
        .dtype       = "fp32",
        .optimizer   = {"adamw", 1e-4, {0.9, 0.999}, 1e-8, 0.01, 0, 1}};
}

void weft_compile_for_cuda(weft_compile_spec *s)
{
    s->row_elements = 64;
    s->head_rows    = 4096;
    s->join_width   = 2048;
    s->align_bytes  = 256;
    s->rewrites     = true;
    s->fusions      = WEFT_FUSION_RESIDUAL | WEFT_FUSION_NORM_SUMS | WEFT_FUSION_COPY |
                 WEFT_FUSION_LARGEST | WEFT_FUSION_ROTARY;
}

const char *weft_compile_dtype_hint(const char *name)
{
    static const char *const half[]  = {"fp16", "f16", "float16", "half", "F16"};
    static const char *const eight[] = {"f8",      "float8",  "fp8_e4m3",  "fp8_e5m2",
                                        "f8_e4m3", "f8_e5m2", "fp8_hybrid"};
    for (size_t i = 0; i < WEFT_COUNT(half); i++)
        if (!strcmp(name, half[i])) return "fp16 is not supported yet: use bf16";
    for (size_t i = 0; i < WEFT_COUNT(eight); i++)
        if (!strcmp(name, eight[i]))
            return "it is fp8 here, with fp8_format: e4m3 or hybrid";
    return NULL;
}

bool weft_compile_is_bf16(const char *dtype)
{
    return !strcmp(dtype, "bf16") || !strcmp(dtype, "fp8");
}

const char *weft_compile_dtype_of(const char *precision)
{
    if (!strcmp(precision, "fp32")) return "fp32";
    return strcmp(precision, "fp8") ? "bf16" : "fp8";
}

const char *weft_compile_fp8_formats(const weft_compile_spec *s)
{
    if (strcmp(s->dtype ? s->dtype : "", "fp8")) return NULL;
    return s->fp8_format && !strcmp(s->fp8_format, "hybrid") ? "e4m3,e4m3,e5m2"
                                                             : "e4m3,e4m3,e4m3";
}
