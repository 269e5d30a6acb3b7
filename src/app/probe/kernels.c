/* Our own kernels as PTX, which the driver compiles for whatever GPU it has: reads and writes of
 * long arrays, sixteen bytes a thread at a time, as element-wise work does. */
#include "base/text.h"
#include "probe/cuda_priv.h"

const weft_probe__stream weft_probe__streams[WEFT_PROBE_N_STREAM] = {
    {"read", 1, 0},  /* what a sum or a norm reads */
    {"scale", 1, 1}, /* y = a x */
    {"add", 2, 1},   /* z = x + y */
    {"update", 4,
     3}, /* an Adam step: weight, gradient and two moments; all but the gradient written */
};

/* %rd1: where this thread reads and writes, %rd2: from array to array. */
static void put_body(weft_text *t, const weft_probe__stream *s)
{
    weft_text_add(t, " mov.u64 %%rd8, %%rd7;\n");
    for (int i = 0; i < s->n_read; i++) {
        weft_text_add(t, " ld.global.v4.f32 {%%f%d, %%f%d, %%f%d, %%f%d}, [%%rd8];\n",
                      4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
        weft_text_add(t, " add.u64 %%rd8, %%rd8, %%rd2;\n");
    }
    for (int i = 0; i < s->n_read; i++)
        for (int k = 0; k < 4; k++)
            weft_text_add(t, " fma.rn.f32 %%f%d, %%f%d, 0f3F000000, %%f%d;\n", 16 + k,
                          4 * i + k, 16 + k);
    weft_text_add(t, " mov.u64 %%rd8, %%rd7;\n");
    for (int i = 0; i < s->n_write; i++) {
        weft_text_add(t, " st.global.v4.f32 [%%rd8], {%%f16, %%f17, %%f18, %%f19};\n"
                         " add.u64 %%rd8, %%rd8, %%rd2;\n");
    }
    if (s->n_write) /* each element on its own; where nothing is written, a sum */
        for (int k = 0; k < 4; k++)
            weft_text_add(t, " mov.f32 %%f%d, 0f00000000;\n", 16 + k);
}

/* What is only read would be left out by a compiler unless it might be asked for. */
static void put_end(weft_text *t)
{
    weft_text_add(t, " add.f32 %%f16, %%f16, %%f17;\n add.f32 %%f18, %%f18, %%f19;\n"
                     " add.f32 %%f16, %%f16, %%f18;\n"
                     " setp.neu.f32 %%p2, %%f16, 0f4996B439;\n @%%p2 ret;\n"
                     " st.global.f32 [%%rd1], %%f16;\n ret;\n}\n");
}

static void put_kernel(weft_text *t, const weft_probe__stream *s)
{
    weft_text_add(t,
                  ".visible .entry %s(.param .u64 base, .param .u64 stride, .param .u64 "
                  "count)\n{\n .reg .pred %%p<3>;\n .reg .b32 %%r<5>;\n .reg .b64 "
                  "%%rd<9>;\n .reg .f32 %%f<20>;\n",
                  s->name);
    weft_text_add(t, " ld.param.u64 %%rd1, [base];\n cvta.to.global.u64 %%rd1, %%rd1;\n"
                     " ld.param.u64 %%rd2, [stride];\n ld.param.u64 %%rd3, [count];\n"
                     " mov.u32 %%r1, %%ctaid.x;\n mov.u32 %%r2, %%ntid.x;\n"
                     " mov.u32 %%r3, %%tid.x;\n mov.u32 %%r4, %%nctaid.x;\n"
                     " mul.wide.u32 %%rd4, %%r1, %%r2;\n cvt.u64.u32 %%rd5, %%r3;\n"
                     " add.u64 %%rd4, %%rd4, %%rd5;\n mul.wide.u32 %%rd6, %%r4, %%r2;\n");
    for (int k = 0; k < 4; k++) weft_text_add(t, " mov.f32 %%f%d, 0f00000000;\n", 16 + k);
    weft_text_add(t,
                  "again_%s:\n setp.ge.u64 %%p1, %%rd4, %%rd3;\n @%%p1 bra done_%s;\n"
                  " shl.b64 %%rd7, %%rd4, 4;\n add.u64 %%rd7, %%rd1, %%rd7;\n",
                  s->name, s->name);
    put_body(t, s);
    weft_text_add(t, " add.u64 %%rd4, %%rd4, %%rd6;\n bra again_%s;\ndone_%s:\n", s->name,
                  s->name);
    put_end(t);
}

weft_status weft_probe__kernels(weft_text *t)
{
    weft_text_add(t, ".version 6.0\n.target sm_50\n.address_size 64\n"
                     ".visible .entry nothing()\n{\n ret;\n}\n");
    for (int i = 0; i < WEFT_PROBE_N_STREAM; i++) put_kernel(t, &weft_probe__streams[i]);
    return weft_text_status(t);
}
