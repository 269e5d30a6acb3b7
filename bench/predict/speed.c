/* Points scored a second: a table of variants of one model, every legal point of a cluster, step
 * time and memory.
 *
 *     build/bench_predict_speed DIR
 *
 * DIR: the folder with hardware.csv and network.csv. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "estimate/describe.h"
#include "estimate/hardware.h"

enum {
    MAX_VARIANT = 512
};

static weft_cost_variant variant[MAX_VARIANT];
static weft_cost_row     row[MAX_VARIANT * WEFT_LAYER_N];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fill(const weft_config *c, weft_cost_table *t)
{
    int n = 0;
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int cp = 1; cp <= 4; cp *= 2)
            for (int sp = 0; sp < 2; sp++)
                for (int mb = 1; mb <= 8; mb *= 2)
                    for (int r = 0; r < 3; r++)
                        variant[n++] =
                            (weft_cost_variant){.tp          = tp,
                                                .cp          = cp,
                                                .ep          = 1,
                                                .sp          = sp > 0,
                                                .micro_batch = mb,
                                                .recompute   = (weft_cost_recompute)r};
    t->n_variant = n;
    for (int v = 0; v < n; v++)
        for (int k = 0; k < WEFT_LAYER_N; k++) {
            weft_description x;
            if (k == WEFT_LAYER_EXPERTS) continue;
            weft_describe(c, &variant[v], &t->engine, (weft_layer_class)k, "bf16", "bf16",
                          &x);
            weft_cost_fill(&x.layer, variant[v].recompute, false, t->device, t->fabric,
                           &t->engine, &row[v * WEFT_LAYER_N + k]);
        }
    return n;
}

int main(int argc, char **argv)
{
    weft_hardware       *h;
    weft_cost_constants *k;
    if (argc < 2 || weft_hardware_load(argv[1], &h) != WEFT_OK ||
        weft_cost_constants_create(&k) != WEFT_OK)
        return fprintf(stderr, "usage: speed DIR\n"), 2;
    weft_config c  = {.attn            = "full",
                      .layers          = 96,
                      .hidden          = 12288,
                      .heads           = 96,
                      .kv_heads        = 96,
                      .head_dim        = 128,
                      .ffn_hidden      = 49152,
                      .vocab           = 51200,
                      .seq             = 2048,
                      .flash_attention = 1,
                      .tied_embedding  = 1};
    int         at = weft_hardware_device(h, "h100-80g"), devices = 1024, batch = 1536;
    if (at < 0) return fprintf(stderr, "no h100-80g in %s\n", argv[1]), 1;
    weft_cost_constants_device(k, &h->device[at]);
    weft_cost_fabric  f   = {.domain = 8};
    weft_cost_segment seg = {WEFT_LAYER_DENSE, c.layers};
    weft_cost_constants_link(k, "nvlink4", 4.5e11, &f.in);
    weft_cost_constants_link(k, "ib ndr", 5e10, &f.out);
    weft_cost_table t = {.n_class     = WEFT_LAYER_N,
                         .first       = WEFT_LAYER_INPUT,
                         .last        = WEFT_LAYER_HEAD,
                         .n_segment   = 1,
                         .segment     = &seg,
                         .variant     = variant,
                         .n_device    = 1,
                         .device      = &h->device[at],
                         .fabric      = &f,
                         .row         = row,
                         .grad_bytes  = 4,
                         .param_bytes = 2,
                         .tied        = true};
    weft_cost_constants_engine(k, "Megatron-Core", &t.engine);
    double start = now();
    int    n     = fill(&c, &t);
    double made  = now();
    long   count = 0, fits = 0;
    double best = INFINITY;
    for (int rounds = 0; rounds < 20; rounds++)
        for (int v = 0; v < n; v++)
            for (int pp = 1; pp <= 96; pp++) {
                int cut = variant[v].tp * variant[v].cp * pp;
                if (devices % cut) continue;
                int dp = devices / cut;
                if (batch % (dp * variant[v].micro_batch)) continue;
                for (int chunks = 1; chunks <= 12; chunks++) {
                    if (chunks > 1 && (pp < 2 || 96 % (pp * chunks))) continue;
                    for (int zero = 0; zero < 4; zero++) {
                        weft_cost_point p = {.variant = v,
                                             .dp      = dp,
                                             .pp      = pp,
                                             .chunks  = chunks,
                                             .n_micro =
                                                 batch / dp / variant[v].micro_batch,
                                             .zero = zero};
                        weft_cost_score s;
                        weft_cost_score_point(&t, &p, &s);
                        count++;
                        if (s.mem_bytes > s.mem_limit) continue;
                        fits++;
                        best = s.step_s < best ? s.step_s : best;
                    }
                }
            }
    double end = now();
    printf(
        "%d rows in %.1f ms; %ld points, %ld fit, %.2f million a second; best %.3f s\n",
        n, 1e3 * (made - start), count, fits, 1e-6 * (double)count / (end - made), best);
    weft_hardware_destroy(h);
    weft_cost_constants_destroy(k);
    return 0;
}
