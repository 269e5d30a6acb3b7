/* weft sample: text from a trained model */
#include "session/sample.h"

#include "cli/cli.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_sample = {
    .name  = "sample",
    .usage = "MODEL [options]",
    .about = "text from a trained byte-level model",
    .more  = "MODEL is a folder with config.json and model.safetensors, or an output "
             "folder of\n"
             "weft train.  The same seed gives the same text.",
    .example =
        "weft sample out/first --prompt 'static int ' --tokens 200 --temperature 0.8",
    .run = run,
};

static int run(int argc, char **argv)
{
    const weft_cli_command *c    = &weft_cli_sample;
    weft_sample_options     o    = {.tokens = 200, .temperature = 0.8, .seed = 1};
    weft_text               text = {0}, t = {0};
    bool                    json = false, ids = false, greedy = false;
    int64_t                 seed = 1, threads = 0;
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"prompt", 'p', WEFT_CLI_TEXT, &o.prompt, "TEXT",
           "what comes before (a newline)"},
          {"tokens", 'n', WEFT_CLI_INT, &o.tokens, "N", "how many to add (200)"},
          {"temperature", 0, WEFT_CLI_REAL, &o.temperature, "X",
           "0: always the likeliest (0.8)"},
          {"greedy", 0, WEFT_CLI_FLAG, &greedy, NULL, "temperature 0"},
          {"top-k", 0, WEFT_CLI_INT, &o.top_k, "N", "only among the N likeliest (all)"},
          {"seed", 0, WEFT_CLI_INT, &seed, "N", "of the draws (1)"},
          {"window", 0, WEFT_CLI_INT, &o.window, "N",
           "tokens the model sees (as many as trained on, or 256)"},
          {"device", 0, WEFT_CLI_TEXT, &o.device, "NAME",
           "cpu, cuda, cuda:N or auto (cpu)"},
          {"threads", 0, WEFT_CLI_INT, &threads, "N", "the cores there are"},
          {"ids", 0, WEFT_CLI_FLAG, &ids, NULL,
           "token ids instead of text, in --prompt too"},
          {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(c, "expected one model");
    if (o.temperature < 0) return weft_cli_usage(c, "--temperature: from 0");
    if (threads > 1024) return weft_cli_usage(c, "--threads: at most 1024");
    if (o.tokens > 1 << 24) return weft_cli_usage(c, "--tokens: at most %d", 1 << 24);
    if (greedy) o.temperature = 0;
    o.seed    = (uint64_t)seed;
    o.threads = (int)threads;

    weft_status st = weft_sample_run(argv[0], &o, ids, &text);
    if (st != WEFT_OK) {
        weft_text_fini(&text);
        return weft_cli_fail(c, st);
    }
    if (!json) return weft_cli_put(c, &text, NULL);
    weft_text_add(&t, "{\"tokens\": %lld, \"text\": ", (long long)o.tokens);
    weft_text_put_quoted(&t, text.s ? text.s : "");
    weft_text_add(&t, "}");
    weft_text_fini(&text);
    return weft_cli_put(c, &t, NULL);
}
