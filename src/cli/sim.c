/* weft sim: programs in virtual time */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/spec.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_sim = {
    .name  = "sim",
    .usage = "MODEL | PROGRAM.prog ... [options]",
    .about =
        "run a step in virtual time: how long, what fills it, a timeline for Perfetto",
    .more = "MODEL is a folder with config.json or a preset, compiled as weft lower does "
            "it.\n"
            "Program texts hold the ranks of one job, in order, in one file or several.\n"
            "Without --cluster the machine is one device like this host.",
    .example = "weft sim tiny256 --batch 8 --seq 128 -o timeline.json",
    .run     = run,
};

enum {
    MAX_RANK = 256
};

typedef struct world {
    weft_compiled       made;
    int                 n;
    int                 n_set;
    weft_program      **set[MAX_RANK]; /* parsed ones, by file */
    int                 n_of[MAX_RANK];
    const weft_program *program[MAX_RANK];
    weft_cluster       *cluster;
} world;

static bool is_program(const char *word)
{
    size_t n = strlen(word);
    return n > 5 && !strcmp(word + n - 5, ".prog");
}

static weft_status read_program(world *w, const char *path)
{
    char  *text;
    size_t n;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st =
        weft_program_parse_set(path, text, n, &w->set[w->n_set], &w->n_of[w->n_set]);
    free(text);
    WEFT_TRY(st);
    int k = w->n_set++;
    if (w->n + w->n_of[k] > MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: more than %d programs", path, MAX_RANK);
    for (int i = 0; i < w->n_of[k]; i++) w->program[w->n++] = w->set[k][i];
    return WEFT_OK;
}

static weft_status read_cluster(world *w, const char *what)
{
    weft_cluster_measured none = {.n_device = w->n};
    return what ? weft_cluster_load(what, NULL, &w->cluster)
                : weft_cluster_this_host(&none, &w->cluster);
}

static weft_status build(world *w, const weft_compile_spec *s, char **word, int n,
                         const char *cluster)
{
    if (is_program(word[0])) {
        for (int i = 0; i < n; i++) WEFT_TRY(read_program(w, word[i]));
    } else {
        WEFT_TRY(weft_compile_training(s, &w->made));
        w->program[w->n++] = w->made.program;
    }
    WEFT_TRY(weft_program_verify_all(w->program, w->n));
    return read_cluster(w, cluster);
}

static void fini(world *w)
{
    for (int i = 0; i < w->n_set; i++) weft_program_destroy_set(w->set[i], w->n_of[i]);
    weft_compiled_fini(&w->made);
    weft_cluster_destroy(w->cluster);
}

static void summary(const weft_timeline *t, weft_text *out)
{
    weft_text_add(out, "{\"ranks\": %d, \"steps\": %d, \"step_ms\": ", t->n_program,
                  t->n_step);
    weft_text_put_double(out, 1e3 * t->step_s);
    weft_text_add(out, ", \"total_ms\": ");
    weft_text_put_double(out, 1e3 * t->total_s);
    weft_text_add(out, ", \"compute_idle\": [");
    for (int i = 0; i < t->n_program; i++) {
        if (i) weft_text_add(out, ", ");
        weft_text_put_double(out, weft_timeline_idle_s(t, i, WEFT_STREAM_COMPUTE) /
                                      t->total_s);
    }
    weft_text_add(out, "]}");
}

static weft_status simulate(const world *w, int64_t steps, const char *file, bool json,
                            weft_text *out, weft_text *trace)
{
    weft_sim_options o  = {.n_step = (int)steps};
    weft_timeline   *t  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(weft_sim_run(w->program, w->n, w->cluster, &o, &t));
    if (file) WEFT_GO(weft_timeline_json(t, trace));
    if (json)
        summary(t, out);
    else
        WEFT_GO(weft_timeline_print(t, out));
out:
    weft_timeline_destroy(t);
    return st;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_sim;
    weft_cli_spec           s = {.batch = 0};
    static world            w; /* large */
    weft_text               t = {0}, trace = {0};
    const char             *out = NULL, *cluster = NULL;
    bool                    json                        = false;
    int64_t                 steps                       = 2;
    int                     n_word                      = 0;
    weft_cli_option         option[WEFT_CLI_N_SPEC + 5] = {
                {"cluster", 0, WEFT_CLI_TEXT, &cluster, "CLUSTER",
                 "the machines: a file or one line"},
                {"steps", 0, WEFT_CLI_INT, &steps, "N", "steps to simulate (2)"},
                {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "the timeline, for Perfetto"},
                {"trace", 0, WEFT_CLI_TEXT, &out, "FILE", "the same"},
                {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line that sums it up"},
    };
    weft_cli_spec_options(&s, option + 5);
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word < 1) return weft_cli_usage(c, "expected a model or programs");
    if (n_word > MAX_RANK) return weft_cli_usage(c, "more than %d programs", MAX_RANK);
    if (n_word > 1 && !is_program(argv[0]))
        return weft_cli_usage(c, "expected one model");
    if (steps < 1 || steps > 1000000)
        return weft_cli_usage(c, "--steps: from 1 to 1000000");
    code = weft_cli_spec_resolve(c, &s, argv[0]);
    if (code >= 0) return code;

    weft_status st = build(&w, &s.spec, argv, n_word, cluster);
    if (st == WEFT_OK) st = simulate(&w, steps, out, json, &t, &trace);
    fini(&w);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (out) {
        code = weft_cli_put(c, &trace, out);
        if (code != WEFT_EXIT_OK) return code;
    }
    return weft_cli_put(c, &t, NULL);
}
