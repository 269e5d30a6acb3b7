/* weft graph: a model's graph as text */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/spec.h"
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
static void summary(const weft_model *m, const weft_graph *g, weft_text *t)
{
    weft_text_add(t, "{\"name\": ");
    weft_text_put_quoted(t, g->name);
    weft_text_add(t, ", \"nodes\": %d, \"values\": %d, \"weights\": %lld, \"flops\": ",
                  g->n_node, g->n_value, (long long)weft_model_weights(m));
    weft_text_put_double(t, weft_model_flops(m));
    weft_text_add(t, ", \"hash\": \"%016llx\"}", (unsigned long long)weft_graph_hash(g));
}

static int print(const char *model, const weft_cli_spec *s, bool train, bool logits,
                 bool json, const char *out)
{
    const weft_cli_command *c    = &weft_cli_graph;
    weft_model_options      o    = {.batch     = s->spec.micro_batch,
                                    .seq       = s->spec.seq,
                                    .with_loss = !logits,
                                    .dropout   = s->dropout};
    weft_training           made = {0};
    weft_text               t    = {0};
    char                   *text = NULL;
    weft_status             st   = train ? weft_compile_training(&s->spec, &made)
                                         : weft_model_load(model, &o, &made.model);
    const weft_graph *g = train ? made.graph : made.model ? made.model->graph : NULL;
    if (st == WEFT_OK && json) summary(made.model, g, &t);
    if (st == WEFT_OK && !json) st = weft_graph_to_text(g, &text);
    if (text) weft_text_put(&t, text, strlen(text));
    free(text);
    weft_training_fini(&made);
    return st == WEFT_OK ? weft_cli_put(c, &t, out) : weft_cli_fail(c, st);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c    = &weft_cli_graph;
    weft_cli_spec           s    = {.batch = 0};
    const char             *out  = NULL;
    bool                    json = false, logits = false, train = false, list = false;
    int                     n_word                      = 0;
    weft_cli_option         option[WEFT_CLI_N_SPEC + 5] = {
                {"train", 0, WEFT_CLI_FLAG, &train, NULL,
                 "the whole step: backward and update too"},
                {"logits", 0, WEFT_CLI_FLAG, &logits, NULL, "no labels in, logits out"},
                {"presets", 0, WEFT_CLI_FLAG, &list, NULL, "the names of the presets"},
                {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "instead of standard output"},
                {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line that sums it up"},
    };
    weft_cli_spec_options(&s, option + 5);
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (list) return presets(json);
    if (n_word != 1) return weft_cli_usage(c, "expected one model");
    if (train && logits)
        return weft_cli_usage(c, "--train needs the loss, --logits leaves it out");
    code = weft_cli_spec_resolve(c, &s, argv[0]);
    return code >= 0 ? code : print(argv[0], &s, train, logits, json, out);
}
