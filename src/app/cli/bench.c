/* weft bench: how fast a training step is */
#include <stdlib.h>
#include <string.h>

#include "session/bench.h"

#include "cli/cli.h"
#include "cli/spec.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_bench = {
    .name  = "bench",
    .usage = "MODEL | comm [options]",
    .about = "time training steps of a model on random data; bench comm: collectives",
    .more  = "MODEL is a preset or a folder with config.json.  gflops counts the model's "
             "products,\n"
             "attention and convolutions, backward twice forward, over the median step;\n"
             "peak_gflops is an fp32 product of 2048 x 2048 x 2048 in the same process.",
    .example = "weft bench gpt2 --batch 4 --seq 64 --threads 2 --steps 12 --json",
    .run     = run,
};

static void print_json(const char *model, const weft_bench_result *r, weft_text *t)
{
    weft_text_add(t, "{\"model\": ");
    weft_text_put_quoted(t, model);
    weft_text_add(
        t, ", \"batch\": %lld, \"seq\": %lld, \"micro_batch\": %lld, \"threads\": %d",
        (long long)r->batch, (long long)r->seq, (long long)r->micro_batch, r->threads);
    weft_text_add(t, ", \"steps\": %lld, \"step_ms_median\": ", (long long)r->steps);
    weft_text_put_double(t, r->step_ms_median);
    weft_text_add(t, ", \"step_ms_min\": ");
    weft_text_put_double(t, r->step_ms_min);
    for (int64_t i = 0; i < r->steps; i++) {
        weft_text_add(t, i ? ", " : ", \"step_ms\": [");
        weft_text_put_double(t, r->step_ms[i]);
    }
    weft_text_add(t, "], \"gflops\": ");
    weft_text_put_double(t, r->gflops);
    weft_text_add(t, ", \"peak_gflops\": ");
    weft_text_put_double(t, r->peak_gflops);
    weft_text_add(t, ", \"tokens_per_s\": ");
    weft_text_put_double(t, r->tokens_per_s);
    weft_text_add(t, ", \"loss\": ");
    weft_text_put_double(t, r->loss);
    for (int k = 0; r->has_classes && k < WEFT_N_CLASS; k++) {
        weft_text_add(t, "%s\"%s\": ", k ? ", " : ", \"classes\": {",
                      weft_class_name((weft_class)k));
        weft_text_put_double(t, r->class_ms[k]);
    }
    if (r->has_classes) weft_text_add(t, "}");
    weft_text_add(t, ", \"weights\": %lld, \"mem_peak_bytes\": %lld}",
                  (long long)r->weights, (long long)r->mem_peak_bytes);
}

static void print_text(const char *model, const weft_bench_result *r, weft_text *t)
{
    weft_text_add(t, "%s, %.1f M weights, batch %lld", model, 1e-6 * (double)r->weights,
                  (long long)r->batch);
    if (r->seq) weft_text_add(t, " x %lld", (long long)r->seq);
    weft_text_add(t, ", micro_batch %lld, %d thread%s\n", (long long)r->micro_batch,
                  r->threads, r->threads == 1 ? "" : "s");
    weft_text_add(t, "  step    %.1f ms median, %.1f ms best of %lld\n",
                  r->step_ms_median, r->step_ms_min, (long long)r->steps);
    weft_text_add(t, "  rate    %.1f GFLOP/s", r->gflops);
    if (r->peak_gflops > 0)
        weft_text_add(t, ", %.0f %% of %.1f", 100 * r->gflops / r->peak_gflops,
                      r->peak_gflops);
    weft_text_add(t, "; %.0f %s/s\n", r->tokens_per_s, r->seq ? "tokens" : "samples");
    for (int k = 0; r->has_classes && k < WEFT_N_CLASS; k++)
        weft_text_add(t, "%s %s %.2f ms", k ? "," : "  classes",
                      weft_class_name((weft_class)k), r->class_ms[k]);
    if (r->has_classes) weft_text_add(t, "\n");
    weft_text_add(t, "  memory  %.1f MB\n", 1e-6 * (double)r->mem_peak_bytes);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_bench;
    weft_cli_spec           s = {.batch = 0};
    weft_bench_result       r;
    weft_text               t     = {0};
    const char             *trace = NULL, *device = NULL;
    bool                    json  = false;
    int64_t                 steps = 12, threads = 0;
    int                     n_word                      = 0;
    weft_cli_option         option[WEFT_CLI_N_SPEC + 5] = {
                {"steps", 0, WEFT_CLI_INT, &steps, "N",
                 "timed steps, after one that is not (12)"},
                {"threads", 0, WEFT_CLI_INT, &threads, "N", "the cores there are"},
                {"device", 0, WEFT_CLI_TEXT, &device, "NAME", "cpu, cuda, cuda:N or auto (cpu)"},
                {"trace", 0, WEFT_CLI_TEXT, &trace, "FILE",
                 "timeline of the last step, for Perfetto"},
                {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON"},
    };
    weft_cli_spec_options(&s, option + 5);
    if (argc > 0 && !strcmp(argv[0], "comm"))
        return weft_cli_bench_comm.run(argc - 1, argv + 1);
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(c, "expected one model");
    if (steps < 1 || steps > 1000000)
        return weft_cli_usage(c, "--steps: from 1 to 1000000");
    if (threads > 1024) return weft_cli_usage(c, "--threads: at most 1024");
    code = weft_cli_spec_resolve(c, &s, argv[0]);
    if (code >= 0) return code;

    weft_status st = weft_bench_run(
        &s.spec, &(weft_bench_options){steps, (int)threads, device, trace}, &r);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (*r.warning) weft_cli_log(true, r.warning);
    if (json)
        print_json(argv[0], &r, &t);
    else
        print_text(argv[0], &r, &t);
    free(r.step_ms);
    return weft_cli_put(c, &t, NULL);
}
