/* weft plan: how to train this model on these machines, how long a step takes, and why */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/pool.h"
#include "cli/check_own.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "planner/planner.h"
#include "report/report.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_plan = {
    .name  = "plan",
    .usage = "--model MODEL --cluster CLUSTER --batch N [--seq N] [CONSTRAINT=VALUE ...] "
             "[options]",
    .about = "the fastest way to train a model on machines that fits, and why",
    .more =
        "Searches tensor, context, expert, data and pipeline parallelism, uneven "
        "stages,\n"
        "micro-batches, schedules, recomputation, ZeRO and the order of mixed devices\n"
        "together.  What is decided already is a constraint, kept or refused: tp cp ep "
        "pp "
        "dp sp\n"
        "zero overlap_param_gather micro_batch chunks recompute recompute_layers "
        "schedule\n"
        "stages (7-7-6) batch_split (3x4,1x4: lanes of each replica on mixed devices)\n"
        "tp_exclude (blocks: layers that tp leaves replicated; none) reduction (fixed: "
        "zero=2\n"
        "and 3 sum gradients in shards; auto: on several GPUs, on unlike devices and "
        "where nothing\nelse fits) offload (optimizer: a GPU's optimizer states in the "
        "host's memory; left out:\nwhere nothing else fits) copies (2: each part of the "
        "state in "
        "two ranks' memory); of layers too:\n"
        "\"layers 0..3 on stage 0\", \"layers 0..3 on node 2\".\n"
        "The best of the search are partitioned, checked for the exact memory of every "
        "rank and\n"
        "simulated; the fastest that fits is the plan.  -o writes a file that `weft run` "
        "takes as\n"
        "plan: FILE; --emit prints another engine's own flags.",
    .example =
        "weft plan --model gpt2-large --cluster \"4 x (8 x a100-80g)\" --batch 512 "
        "--seq 1024 tp=2 --explain",
    .run = run,
};

enum {
    USUAL = -1 /* --best: not said */
};

typedef struct words {
    const char *model, *cluster, *framework, *precision, *out, *emit, *html, *was;
    int64_t     batch, seq, best, threads;
    bool        explain, json, fast;
    char      **constraint;
    int         n_constraint;
} words;

typedef struct job {
    weft_arena             *arena;
    weft_model_source      *source; /* read once, for every model that is built */
    weft_cluster           *cluster;
    weft_plan              *was;
    weft_planner_request    request;
    weft_planner_workspace *workspace;
    weft_planner_answer    *answer;
    weft_planner_workspace *used; /* that the answer is of */
} job;

/* The plan before is of this model: with its own cut of the batch the graph is the same. */
static weft_status check_was(const words *w, const weft_model_source *source,
                             const weft_plan *was)
{
    weft_compile_spec s = weft_compile_spec_default(w->model, was->of.batch, was->of.seq);
    weft_model       *m = NULL;
    s.source            = source;
    s.micro_batch       = was->of.micro_batch;
    s.dtype             = was->of.dtype;
    weft_status st      = weft_compile_model(&s, &m);
    bool        same    = st == WEFT_OK && m->graph_hash == was->of.graph_hash;
    weft_model_destroy(m);
    if (same) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "--was %s is a plan of another model: %s there, %s here; without "
                     "--was ranks are placed anew",
                     w->was, was->of.model, w->model);
}

/* Reduction is no part of the search space. */
weft_status weft_cli_constrain(weft_planner_request *q, const char *word, weft_arena *a)
{
    static const char key[] = "reduction=";
    if (strncmp(word, key, strlen(key)))
        return weft_search_constrain(&q->constraints, word, a);
    int k = weft_reduction_parse(word + strlen(key));
    if (k < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "reduction: '%s' is none of: invariant fixed auto",
                         word + strlen(key));
    q->spec.reduction = (weft_reduction)k;
    return WEFT_OK;
}

static weft_status prepare(const words *w, job *j)
{
    weft_planner_request *q = &j->request;
    WEFT_TRY(weft_arena_create(&j->arena));
    WEFT_TRY(weft_cluster_load(w->cluster, NULL, &j->cluster));
    WEFT_TRY(weft_model_source_open(w->model, &j->source));
    q->spec             = weft_compile_spec_default(w->model, w->batch, w->seq);
    q->spec.source      = j->source;
    q->spec.micro_batch = q->spec.lanes = 0;
    q->spec.reduction                   = WEFT_REDUCTION_AUTO;
    q->spec.dtype                       = NULL;
    q->cluster                          = j->cluster;
    q->engine                           = w->framework ? w->framework : w->emit;
    q->precision                        = w->precision;
    q->n_best                           = w->best == USUAL ? 0 : (int)w->best;
    q->fast                             = w->fast;
    q->with_plan                        = w->out != NULL;
    q->with_timeline                    = w->html != NULL;
    q->n_thread = w->threads ? (int)w->threads : weft_pool_cores();
    if (w->was) WEFT_TRY(weft_plan_load(w->was, &j->was));
    if (w->was) WEFT_TRY(check_was(w, j->source, j->was));
    q->was = j->was;
    weft_search_open(&q->constraints);
    for (int i = 0; i < w->n_constraint; i++)
        WEFT_TRY(weft_cli_constrain(q, w->constraint[i], j->arena));
    return WEFT_OK;
}

static void fini(job *j)
{
    weft_planner_destroy(j->answer);
    weft_planner_workspace_destroy(j->workspace);
    weft_plan_destroy(j->was);
    weft_cluster_destroy(j->cluster);
    weft_model_source_destroy(j->source);
    weft_arena_destroy(j->arena);
}

/* ---- what is said ---- */

/* Ranks from..end - 1 lie on devices one after another. */
static void put_run(const weft_cluster *c, const int *device, int from, int end)
{
    int first = weft_cluster_node(c, device[from], NULL),
        last  = weft_cluster_node(c, device[end - 1], NULL);
    fprintf(stderr, "# rank%s %d", end - from > 1 ? "s" : "", from);
    if (end - from > 1) fprintf(stderr, " to %d", end - 1);
    fprintf(stderr, ": %s, node%s %d", weft_cluster_device(c, device[from])->name,
            last > first ? "s" : "", first);
    if (last > first) fprintf(stderr, " to %d", last);
    fprintf(stderr, ", device%s %d", end - from > 1 ? "s" : "", device[from]);
    if (end - from > 1) fprintf(stderr, " to %d", device[end - 1]);
    fprintf(stderr, "\n");
}

/* Other engines take devices in the order they are given: which these are, beside the flags (for
 * they are no part of them), where it is not simply the first ones. */
static void put_order(const job *j)
{
    const weft_cluster   *c     = j->cluster;
    const weft_placement *p     = &j->answer->placement.p;
    bool                  plain = weft_planner_problem(j->used)->machines->n == 1;
    for (int r = 0; r < p->n_rank; r++) plain = plain && p->device[r] == r;
    if (!plain) fprintf(stderr, "# start ranks on devices in this order:\n");
    for (int r = 0, e; !plain && r < p->n_rank; r = e) {
        const weft_device_kind *d = weft_cluster_device(c, p->device[r]);
        for (e = r + 1; e < p->n_rank && p->device[e] == p->device[e - 1] + 1 &&
                        weft_cluster_device(c, p->device[e]) == d;)
            e++;
        put_run(c, p->device, r, e);
    }
}

static weft_status emit(const words *w, const job *j, weft_text *t)
{
    weft_engine        e;
    const weft_config *c    = weft_planner_config(j->used);
    weft_engine_plan   p    = weft_search_engine_plan(&j->answer->tried[0]->choice);
    weft_text          line = {0};
    weft_engine_find(w->emit, &e);
    WEFT_TRY(weft_engine_emit(e, c, &p, t));
    weft_engine_tell_precision(j->cluster, c->precision, weft_planner_is_rows(j->used),
                               &line);
    if (line.n) fprintf(stderr, "# %s", line.s);
    weft_text_fini(&line);
    put_order(j);
    return WEFT_OK;
}

static weft_status write_page(const words *w, const job *j, weft_text *t)
{
    weft_planner_workspace *work    = j->used;
    const weft_config      *c       = weft_planner_config(work);
    weft_text               untimed = {0};
    weft_status             st      = WEFT_OK;
    weft_planner_print_untimed(work, &untimed);
    WEFT_GO(weft_text_status(&untimed));
    weft_report r = {.model     = w->model,
                     .where     = w->cluster,
                     .precision = c->precision,
                     .engine    = c->framework,
                     .untimed   = untimed.s,
                     .seq       = c->seq,
                     .flops     = (double)w->batch * weft_planner_flops(work),
                     .cluster   = j->cluster,
                     .constants = weft_planner_constants(work),
                     .problem   = weft_planner_problem(work),
                     .result    = j->answer->search,
                     .place     = &j->answer->placement,
                     .answer    = j->answer,
                     .is_rows   = weft_planner_is_rows(work),
                     .timeline  = j->answer->timeline};
    WEFT_GO(weft_report_html(&r, t));
out:
    weft_text_fini(&untimed);
    return st;
}

static weft_status say(const words *w, job *j, weft_text *out, weft_text *file,
                       weft_text *page)
{
    WEFT_TRY(prepare(w, j));
    WEFT_TRY(weft_planner_workspace_create(&j->request, &j->workspace));
    WEFT_TRY(weft_planner_decide(j->workspace, &j->answer));
    WEFT_TRY(weft_planner_workspace_for(j->workspace, j->answer, &j->used));
    if (w->out) WEFT_TRY(weft_plan_print(j->answer->plan, file));
    if (w->html) WEFT_TRY(write_page(w, j, page));
    if (w->emit) return emit(w, j, out);
    if (w->json) return weft_planner_print_json(j->used, j->answer, out);
    return weft_planner_print(j->used, j->answer, w->explain, out);
}

static bool is_precision(const char *s)
{
    static const char *const known[] = {"fp32", "fp16", "bf16", "fp8", "fp4"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(s, known[i])) return true;
    return false;
}

static int check_words(const weft_cli_command *cmd, const words *w)
{
    weft_engine e;
    if (!w->model) return weft_cli_usage(cmd, "which model? give --model");
    if (!w->cluster || !*w->cluster)
        return weft_cli_usage(cmd, "on which machines? give --cluster");
    if (!w->batch)
        return weft_cli_usage(cmd, "how many sequences in a step? give --batch");
    if (w->batch > 100000000 || w->seq > 100000000)
        return weft_cli_usage(cmd, "--batch, --seq: at most 100000000");
    if ((w->best < 1 && w->best != USUAL) || w->best > 100)
        return weft_cli_usage(cmd, "--best: from 1 to 100");
    if (w->threads < 0 || w->threads > 64)
        return weft_cli_usage(cmd, "--threads: from 1 to 64");
    if (w->precision && !is_precision(w->precision))
        return weft_cli_usage(
            cmd, "--precision: '%.40s' is none of: fp32 fp16 bf16 fp8 fp4", w->precision);
    if (w->emit && !weft_engine_find(w->emit, &e))
        return weft_cli_usage(
            cmd, "--emit: '%s' is none of: megatron deepspeed torchtitan paddle",
            w->emit);
    return -1;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_plan;
    words                   w   = {.best = USUAL};
    weft_text               t = {0}, file = {0}, page = {0};
    weft_cli_option         option[] = {
                {"model", 0, WEFT_CLI_TEXT, &w.model, "MODEL", "config.json or a preset"},
                {"cluster", 0, WEFT_CLI_TEXT, &w.cluster, "CLUSTER",
                 "a file, or one line: \"8 x (8 x h100-80g)\""},
                {"batch", 0, WEFT_CLI_INT, &w.batch, "N", "sequences of a step"},
                {"seq", 0, WEFT_CLI_INT, &w.seq, "N", "tokens of a sequence"},
                {"engine", 0, WEFT_CLI_TEXT, &w.framework, "NAME",
                 "the engine whose overheads and abilities count (weft)"},
                {"precision", 0, WEFT_CLI_TEXT, &w.precision, "NAME",
                 "fp32, fp16, bf16, fp8, fp4 (what the devices do best of the 16 bits)"},
                {"best", 0, WEFT_CLI_INT, &w.best, "N", "plans to check and tell of (5)"},
                {"threads", 0, WEFT_CLI_INT, &w.threads, "N",
                 "plans to check at the same time (as many as cores)"},
                {"explain", 0, WEFT_CLI_FLAG, &w.explain, NULL,
                 "placement, and the ways people would try by hand"},
                {"fast", 0, WEFT_CLI_FLAG, &w.fast, NULL,
                 "do not partition and simulate what the search finds"},
                {"json", 0, WEFT_CLI_FLAG, &w.json, NULL, "one JSON object"},
                {"output", 'o', WEFT_CLI_TEXT, &w.out, "FILE", "a plan file"},
                {"html", 0, WEFT_CLI_TEXT, &w.html, "FILE",
                 "a page to look at: topology, timeline, memory, runners-up"},
                {"was", 0, WEFT_CLI_TEXT, &w.was, "FILE",
                 "the plan before a loss: ranks stay where it has them"},
                {"emit", 0, WEFT_CLI_TEXT, &w.emit, "ENGINE",
                 "megatron, deepspeed, torchtitan or paddle"},
    };
    int code =
        weft_cli_parse(cmd, option, (int)WEFT_COUNT(option), argc, argv, &w.n_constraint);
    if (code >= 0) return code;
    w.constraint = argv;
    code         = check_words(cmd, &w);
    if (code >= 0) return code;
    weft_heap_keep();
    job        *j = calloc(1, sizeof *j);
    weft_status st =
        j ? say(&w, j, &t, &file, &page) : WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    if (j) fini(j);
    free(j);
    if (st == WEFT_OK && w.out) {
        code = weft_cli_put(cmd, &file, w.out);
        if (code != WEFT_EXIT_OK) return code;
    }
    if (st == WEFT_OK && w.html) {
        code = weft_cli_put(cmd, &page, w.html);
        if (code != WEFT_EXIT_OK) return code;
    }
    if (st == WEFT_OK) return weft_cli_put(cmd, &t, NULL);
    weft_text_fini(&t);
    weft_text_fini(&file);
    weft_text_fini(&page);
    return weft_cli_fail(cmd, st);
}
