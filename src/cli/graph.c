/* weft graph: a model's graph as text */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "graph/graph.h"
#include "model/model.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_graph = {
    .name  = "graph",
    .usage = "MODEL [options]",
    .about = "print a model's graph: forward, or the whole training step",
    .more =
        "MODEL is a folder with config.json, a config.json, a .graph file or a preset\n"
        "(weft graph --presets lists them).  The text reads back: weft graph x.graph.",
    .example = "weft graph gpt2 --batch 4 --seq 64 --train -o gpt2.graph",
    .run     = run,
};

static int presets(bool json)
{
    weft_text t = {0};
    for (int i = 0; weft_model_preset(i); i++) {
        weft_text_add(&t, json ? "%s" : "%s%s\n", json ? (i ? ", " : "[") : "",
                      json ? "" : weft_model_preset(i));
        if (json) weft_text_put_quoted(&t, weft_model_preset(i));
    }
    if (json) weft_text_add(&t, "]");
    return weft_cli_put(&weft_cli_graph, &t, NULL);
}

/* What a graph is, in one line. */
static void summary(const weft_model *m, weft_text *t)
{
    const weft_graph *g = m->graph;
    weft_text_add(t, "{\"name\": ");
    weft_text_put_quoted(t, g->name);
    weft_text_add(t, ", \"nodes\": %d, \"values\": %d, \"weights\": %lld, \"flops\": ",
                  g->n_node, g->n_value, (long long)weft_model_weights(m));
    weft_text_put_double(t, weft_model_flops(m));
    weft_text_add(t, ", \"hash\": \"%016llx\"}", (unsigned long long)weft_graph_hash(g));
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c    = &weft_cli_graph;
    weft_model_options      o    = {.with_loss = true};
    weft_model             *m    = NULL;
    weft_text               t    = {0};
    char                   *text = NULL;
    const char             *out = NULL, *dtype = NULL;
    bool                    json = false, logits = false, list = false;
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"batch", 0, WEFT_CLI_INT, &o.batch, "N", "sequences of a micro-batch (1)"},
          {"seq", 0, WEFT_CLI_INT, &o.seq, "N",
           "tokens of a sequence (what the model allows)"},
          {"dtype", 0, WEFT_CLI_TEXT, &dtype, "NAME", "fp32 or bf16 (fp32)"},
          {"dropout", 0, WEFT_CLI_FLAG, &o.dropout, NULL,
           "with the configuration's dropout"},
          {"logits", 0, WEFT_CLI_FLAG, &logits, NULL, "no labels in, logits out"},
          {"presets", 0, WEFT_CLI_FLAG, &list, NULL, "the names of the presets"},
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "instead of standard output"},
          {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line that sums it up"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (list) return presets(json);
    if (n_word != 1) return weft_cli_usage(c, "expected one model");
    if (dtype && !weft_dtype_parse(dtype, &o.dtype))
        return weft_cli_usage(c, "--dtype: '%s' is none of: fp32 bf16", dtype);
    o.with_loss = !logits;

    weft_status st = weft_model_load(argv[0], &o, &m);
    if (st == WEFT_OK && json) summary(m, &t);
    if (st == WEFT_OK && !json) st = weft_graph_to_text(m->graph, &text);
    if (text) weft_text_put(&t, text, strlen(text));
    free(text);
    weft_model_destroy(m);
    return st == WEFT_OK ? weft_cli_put(c, &t, out) : weft_cli_fail(c, st);
}
