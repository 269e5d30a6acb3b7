/* weft data inspect | convert */
#include "data/data.h"

#include <string.h>
#include <strings.h>

#include "cli/cli.h"

static const weft_cli_command inspect_command = {
    .name  = "data inspect",
    .usage = "PATH [options]",
    .about =
        "what a token file holds: format, tokens, samples, range of ids, commonest ids",
    .example = "weft data inspect train.bin --seq 1024 --vocab 50257 --json",
};

/* Samples of 1024 tokens, or of all there are where they are fewer. */
static weft_status open_usual(const char *path, weft_data_options *o, weft_data **d)
{
    weft_data_info info;
    o->seq = 1024;
    if (weft_data_open(path, o, d) == WEFT_OK) return WEFT_OK;
    o->seq = 1;
    WEFT_TRY(weft_data_open(path, o, d));
    weft_status st = weft_data_inspect(*d, &info);
    weft_data_close(*d);
    *d = NULL;
    WEFT_TRY(st);
    o->seq = info.n_token - 1;
    return weft_data_open(path, o, d);
}

static int inspect(int argc, char **argv)
{
    const weft_cli_command *c = &inspect_command;
    weft_data_options       o = {.seq = 0};
    weft_data_info          info;
    weft_data              *d        = NULL;
    weft_text               t        = {0};
    bool                    json     = false;
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"seq", 0, WEFT_CLI_INT, &o.seq, "N",
           "tokens in a sample (1024, or all there are)"},
          {"vocab", 0, WEFT_CLI_INT, &o.vocab, "N", "refuse ids that are not below N"},
          {"format", 0, WEFT_CLI_TEXT, &o.format, "NAME",
           "bin, u16, u32, megatron, safetensors or text; left out: by its name"},
          {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(c, "expected one path");

    size_t      len  = strlen(argv[0]);
    bool        rows = len > 12 && !strcasecmp(argv[0] + len - 12, ".safetensors");
    weft_status st =
        o.seq || rows ? weft_data_open(argv[0], &o, &d) : open_usual(argv[0], &o, &d);
    if (st == WEFT_OK) st = weft_data_inspect(d, &info);
    if (st == WEFT_OK) {
        if (json)
            weft_data_info_print_json(&info, &t);
        else
            weft_data_info_print(&info, &t);
    }
    weft_data_close(d);
    return st == WEFT_OK ? weft_cli_put(c, &t, NULL) : weft_cli_fail(c, st);
}

static const weft_cli_command convert_command = {
    .name    = "data convert",
    .usage   = "FROM TO [options]",
    .about   = "tokens of one format written as another: bin (raw u16), u32 or megatron "
               "(.bin + .idx)",
    .example = "weft data convert src/ corpus.bin --from text",
};

static int convert(int argc, char **argv)
{
    const weft_cli_command *c    = &convert_command;
    const char             *from = NULL, *to = NULL;
    bool                    json     = false;
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"from", 0, WEFT_CLI_TEXT, &from, "NAME",
           "format of FROM; left out: by its name"},
          {"to", 0, WEFT_CLI_TEXT, &to, "NAME", "format of TO; left out: by its name"},
          {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line of JSON"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 2) return weft_cli_usage(c, "expected two paths, FROM and TO");

    bool        bytes = weft_data_is_text(argv[0], from);
    weft_status st    = weft_data_convert(argv[0], from, argv[1], to);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    weft_data *d = NULL;
    /* what was written as u16 is not to be looked at once more */
    weft_data_options o = {.seq = 1, .format = to && strcmp(to, "bin") ? to : NULL};
    size_t            n = strlen(argv[1]);
    if (!o.format && !(n > 4 && !strcasecmp(argv[1] + n - 4, ".idx"))) o.format = "u16";
    st = weft_data_open(argv[1], &o, &d);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    weft_text t = {0};
    weft_text_add(&t, json ? "{\"path\": " : "");
    if (json)
        weft_text_put_quoted(&t, argv[1]);
    else
        weft_text_add(&t, "%s", argv[1]);
    weft_text_add(&t, json ? ", \"tokens\": %lld" : ": %lld tokens",
                  (long long)weft_data_tokens(d));
    if (bytes)
        weft_text_add(&t, json
                              ? ", \"bytes\": true"
                              : ", one a byte: for models whose tokens are bytes; others "
                                "need those of their tokenizer (docs/data.md)");
    weft_text_add(&t, json ? "}" : "");
    weft_data_close(d);
    return weft_cli_put(c, &t, NULL);
}

static int run(int argc, char **argv);

const weft_cli_command weft_cli_data = {
    .name    = "data",
    .usage   = "inspect PATH | convert FROM TO",
    .about   = "look at token files, convert them",
    .more    = "weft data inspect --help and weft data convert --help say more.",
    .example = "weft data inspect train.bin",
    .run     = run,
};

static int run(int argc, char **argv)
{
    int n_word = 0;
    if (argc > 0 && !strcmp(argv[0], "inspect")) return inspect(argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "convert")) return convert(argc - 1, argv + 1);
    int code = weft_cli_parse(&weft_cli_data, NULL, 0, argc, argv, &n_word);
    return code >= 0 ? code
                     : weft_cli_usage(&weft_cli_data, "expected inspect or convert");
}
