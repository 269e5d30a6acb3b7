/* weft cluster: look at machines */
#include "cluster/cluster.h"

#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

static int show(int argc, char **argv);
static int kinds(int argc, char **argv);
static int run(int argc, char **argv);

static const weft_cli_command show_command = {
    .name  = "cluster show",
    .usage = "CLUSTER [options]",
    .about = "what a description of machines means: devices, links, health",
    .more =
        "CLUSTER is a file (YAML, JSON, Paddle's cluster.json) or one line:\n"
        "  12 x (8 x a100-80g)                       12 nodes of 8, their usual links\n"
        "  12 x (8 x a100-80g, nvlink3), 8 x ib-hdr  the links named, 8 ports a node\n"
        "  4 x (8 x v100-32g) + 4 x (8 x h100-80g)   two kinds of nodes\n"
        "--change applies one event: cordon node 3; degrade node 5 device 2 speed 0.5\n"
        "link 0.25 why PCIe errors; restore node 3; remove node 4; add 2 x (8 x "
        "h100-80g);\nshare node 0 ranks 4 (its one device, by ranks that take turns).",
    .example = "weft cluster show \"12 x (8 x a100-80g)\" --yaml -o cluster.yaml",
    .run     = show,
};

static const weft_cli_command kinds_command = {
    .name  = "cluster kinds",
    .usage = "[options]",
    .about = "the kinds of devices and links that can be named, and where their numbers "
             "are from",
    .example = "weft cluster kinds",
    .run     = kinds,
};

const weft_cli_command weft_cli_cluster = {
    .name    = "cluster",
    .usage   = "show | kinds | discover | calibrate ...",
    .about   = "look at machines: what a description means, which kinds are known, how "
               "fast this one is",
    .more    = "weft cluster show CLUSTER    devices, links, health of a description\n"
               "weft cluster kinds           device and link kinds that can be named\n"
               "weft cluster discover        what is on this host\n"
               "weft cluster calibrate       how fast this host is, measured\n"
               "weft cluster COMMAND --help tells more.",
    .example = "weft cluster show \"12 x (8 x a100-80g)\"",
    .run     = run,
};

static int load(const weft_cli_command *cmd, const char *what, const char *more,
                const char *event, weft_cluster **out)
{
    weft_cluster *c, *next;
    weft_status   st = weft_cluster_load(what, more, &c);
    if (st == WEFT_OK && event) {
        st = weft_cluster_change(c, event, &next);
        weft_cluster_destroy(c);
        if (st == WEFT_OK) c = next;
    }
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    *out = c;
    return -1;
}

static int show(int argc, char **argv)
{
    const weft_cli_command *cmd  = &show_command;
    const char             *more = NULL, *out = NULL, *event = NULL;
    bool                    yaml     = false;
    int                     n_word   = 0;
    weft_cluster           *c        = NULL;
    weft_text               t        = {0};
    const weft_cli_option   option[] = {
          {"kinds", 0, WEFT_CLI_TEXT, &more, "FILE", "more device and link kinds, as YAML"},
          {"change", 0, WEFT_CLI_TEXT, &event, "EVENT", "one event, before it is shown"},
          {"yaml", 0, WEFT_CLI_FLAG, &yaml, NULL, "the whole as YAML, which reads back"},
          {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "write it there"},
    };
    int code = weft_cli_parse(cmd, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(cmd, "expected one cluster");
    code = load(cmd, argv[0], more, event, &c);
    if (code >= 0) return code;
    weft_status st = yaml ? weft_cluster_print(c, &t) : weft_cluster_describe(c, &t);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? weft_cli_put(cmd, &t, out) : weft_cli_fail(cmd, st);
}

static int kinds(int argc, char **argv)
{
    const weft_cli_command *cmd    = &kinds_command;
    const char             *more   = NULL;
    bool                    yaml   = false;
    int                     n_word = 0;
    weft_cluster           *c;
    weft_text               t        = {0};
    const weft_cli_option   option[] = {
          {"kinds", 0, WEFT_CLI_TEXT, &more, "FILE", "more of them, as YAML"},
          {"yaml", 0, WEFT_CLI_FLAG, &yaml, NULL, "as YAML"},
    };
    int code = weft_cli_parse(cmd, option, 2, argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(cmd, "expected no words");
    weft_status st = weft_cluster_kinds(more, &c);
    if (st != WEFT_OK) return weft_cli_fail(cmd, st);
    st = yaml ? weft_cluster_print(c, &t) : weft_cluster_describe(c, &t);
    weft_cluster_destroy(c);
    return st == WEFT_OK ? weft_cli_put(cmd, &t, NULL) : weft_cli_fail(cmd, st);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *sub[8] = {&show_command, &kinds_command};
    const char             *names[8];
    int                     n = 2, n_word;
    for (int i = 0; weft_cli_cluster_more[i]; i++) sub[n++] = weft_cli_cluster_more[i];
    for (int i = 0; i < n; i++) names[i] = sub[i]->name + strlen("cluster ");
    for (int i = 0; argc && i < n; i++)
        if (!strcmp(argv[0], names[i])) return sub[i]->run(argc - 1, argv + 1);
    int code = weft_cli_parse(&weft_cli_cluster, NULL, 0, argc, argv, &n_word);
    if (code >= 0) return code;
    if (!n_word) return weft_cli_usage(&weft_cli_cluster, "expected a command");
    const char *near = weft_suggest(argv[0], names, n);
    return weft_cli_usage(&weft_cli_cluster, "unknown command '%s'%s%s%s", argv[0],
                          near ? ", did you mean '" : "", near ? near : "",
                          near ? "'?" : "");
}
