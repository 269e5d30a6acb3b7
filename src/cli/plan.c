/* weft plan: how to train this model on these machines, how long a step takes, and why */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "compile/compile.h"
#include "engine/engine.h"
#include "report/report.h"
#include "search/search.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_plan = {
    .name  = "plan",
    .usage = "--model MODEL --cluster CLUSTER --batch N [--seq N] [PIN=VALUE ...] "
             "[options]",
    .about = "the fastest way to train a model on machines that fits, and why",
    .more =
        "Searches tensor, context, expert, data and pipeline parallelism, uneven "
        "stages,\n"
        "micro-batches, schedules, recomputation, ZeRO and the order of mixed devices\n"
        "together.  What is decided already is pinned: tp cp ep pp dp sp zero "
        "micro_batch\n"
        "chunks recompute recompute_layers schedule stages (7-7-6); a pin is kept or "
        "refused.\n"
        "-o writes a plan file that `weft run` takes as plan: FILE; --emit prints "
        "another\n"
        "engine's own flags.",
    .example =
        "weft plan --model gpt2-large --cluster \"4 x (8 x a100-80g)\" --batch 512 "
        "--seq 1024 tp=2 --explain",
    .run = run,
};

typedef struct words {
    const char *model, *cluster, *framework, *precision, *out, *emit, *html;
    int64_t     batch, seq, best;
    bool        explain, json;
    char      **pin;
    int         n_pin;
} words;

typedef struct job {
    weft_arena          *a;
    weft_cluster        *k;
    weft_model          *m;
    weft_cost_constants *c;
    weft_hardware       *h;
    weft_config          config;
    weft_search_machines machines;
    weft_search_problem  p;
    weft_search_result  *r;
} job;

/* The engine whose overheads and abilities count. */
static const char *engine_of(const words *w)
{
    return w->framework ? w->framework : w->emit ? w->emit : "weft";
}

static const char *framework_of(const words *w)
{
    if (w->framework) return w->framework;
    if (!w->emit) return "weft";
    return !strcmp(w->emit, "megatron")    ? "Megatron-Core"
           : !strcmp(w->emit, "deepspeed") ? "DeepSpeed"
                                           : w->emit;
}

static const char *usual_precision(const weft_search_machines *m)
{
    const char *out = "bf16";
    for (int i = 0; i < m->n; i++) {
        bool bf16 = false, f16 = false;
        for (int r = 0; r < m->kind[i].device.n_rate; r++) {
            bf16 = bf16 || !strcmp(m->kind[i].rate[r].dtype, "bf16");
            f16  = f16 || !strcmp(m->kind[i].rate[r].dtype, "f16");
        }
        if (!bf16 && f16 && strcmp(out, "fp32")) out = "fp16";
        if (!bf16 && !f16) out = "fp32";
    }
    return out;
}

static weft_status prepare(const words *w, job *j)
{
    weft_search_limits l = weft_search_limits_of(engine_of(w));
    weft_engine_open(&j->config);
    WEFT_TRY(weft_arena_create(&j->a));
    WEFT_TRY(weft_cluster_load(w->cluster, NULL, &j->k));
    WEFT_TRY(weft_cost_constants_create(&j->c));
    WEFT_TRY(weft_search_machines_of(j->k, j->c, j->a, &j->machines));
    WEFT_TRY(weft_engine_cluster(j->k, j->a, &j->config, &j->h));
    WEFT_TRY(weft_model_load(
        w->model, &(weft_model_options){.seq = w->seq, .with_loss = true}, &j->m));
    WEFT_TRY(weft_engine_model(j->m, j->a, &j->config));
    if (w->seq) j->config.seq = (int)w->seq;
    j->config.global_batch = (int)w->batch;
    j->config.framework    = framework_of(w);
    if (!strcmp(engine_of(w), "torchtitan"))
        j->config.features = "compile"; /* as it is emitted */
    j->config.precision = w->precision ? w->precision : usual_precision(&j->machines);
    j->config.tp = j->config.pp = j->config.cp = 1;
    WEFT_TRY(weft_config_complete("plan", &j->config));
    j->p = (weft_search_problem){
        .machines = &j->machines, .batch = (int)w->batch, .n_best = (int)w->best};
    weft_search_open(&j->p.pins);
    for (int i = 0; i < w->n_pin; i++)
        WEFT_TRY(weft_search_pin(&j->p.pins, w->pin[i], j->a));
    return weft_search_transformer(&j->config, j->c, &l, j->a, &j->p.model);
}

/* ---- a plan file ---- */

static weft_status shorthand_of(const weft_search_choice *x, weft_shorthand *h)
{
    const weft_cost_variant *v = &x->variant;
    char                     text[256];
    int                      dp = x->point.dp, n = 0;
    if (v->ep > 1 && dp % v->ep)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "a plan file has experts beside replicas: ep=%d does not divide "
                         "dp=%d; pin ep",
                         v->ep, dp);
    n = snprintf(text, sizeof text, "mesh=dp=%d", dp / v->ep);
    if (v->ep > 1) n += snprintf(text + n, sizeof text - (size_t)n, ",ep=%d", v->ep);
    if (v->cp > 1) n += snprintf(text + n, sizeof text - (size_t)n, ",cp=%d", v->cp);
    if (v->tp > 1) n += snprintf(text + n, sizeof text - (size_t)n, ",tp=%d", v->tp);
    snprintf(text + n, sizeof text - (size_t)n, " pp=%d zero=%d sp=%d", x->point.pp,
             x->point.zero, v->sp);
    return weft_shorthand_parse(text, h);
}

static weft_status make_plan(const words *w, const job *j, weft_plan **out)
{
    static const char *const  again[]    = {"none", "selective", "full"};
    static const char *const  schedule[] = {"1f1b", "gpipe", "zb-h1"};
    const weft_search_choice *x          = &j->r->choice[0];
    weft_compile_spec s = weft_compile_spec_default(w->model, w->batch, j->config.seq);
    weft_shorthand    h;
    int               n_stage = x->point.pp * x->point.chunks, lane = 1;
    int              *layers = WEFT_ARENA_ARRAY(j->a, int, n_stage);
    WEFT_TRY(weft_arena_status(j->a));
    for (int i = 0; i < n_stage; i++) layers[i] = weft_search_chunk_layers(x, i);
    WEFT_TRY(shorthand_of(x, &h));
    while (lane < x->point.dp || (lane < 8 && lane * 2 <= x->point.dp * x->point.n_micro))
        lane *= 2;
    s.micro_batch = x->variant.micro_batch;
    s.recompute   = again[x->variant.recompute];
    s.lanes       = lane;
    WEFT_TRY(weft_compile_plan_layers(
        &s, &h, x->point.chunks > 1 ? "interleaved" : schedule[x->point.schedule],
        x->point.chunks, x->point.pp > 1 ? layers : NULL, 0, out));
    (*out)->predicted.step_s = x->score.step_s;
    return WEFT_OK;
}

static weft_status write_plan(const words *w, const job *j, weft_text *t)
{
    weft_plan  *p = NULL;
    weft_status st;
    WEFT_TRY(make_plan(w, j, &p));
    st = weft_plan_print(p, t);
    weft_plan_destroy(p);
    return st;
}

/* ---- what is said ---- */

static weft_status emit(const words *w, job *j, weft_text *t)
{
    weft_engine e;
    weft_engine_find(w->emit, &e);
    WEFT_TRY(weft_search_config(&j->r->choice[0], &j->machines, j->a, &j->config));
    return weft_engine_emit(e, &j->config, t);
}

static weft_status write_page(const words *w, job *j, weft_text *t)
{
    weft_planner_placement at;
    WEFT_TRY(weft_planner_place(&j->p, &j->r->choice[0], j->k, NULL, j->a, &at));
    weft_report r  = {.model     = w->model,
                      .where     = w->cluster,
                      .precision = j->config.precision,
                      .engine    = framework_of(w),
                      .seq       = j->config.seq,
                      .flops     = (double)w->batch * weft_model_flops(j->m),
                      .cluster   = j->k,
                      .constants = j->c,
                      .problem   = &j->p,
                      .result    = j->r,
                      .place     = &at};
    weft_status st = weft_report_html(&r, t);
    weft_planner_placement_fini(&at);
    return st;
}

static weft_status say(const words *w, job *j, weft_text *out, weft_text *file,
                       weft_text *page)
{
    WEFT_TRY(prepare(w, j));
    WEFT_TRY(weft_search_run(&j->p, &j->r));
    if (w->out) WEFT_TRY(write_plan(w, j, file));
    if (w->html) WEFT_TRY(write_page(w, j, page));
    if (w->emit) return emit(w, j, out);
    if (w->json) return weft_search_print_json(&j->p, j->r, out);
    return weft_search_print(&j->p, j->r, w->explain, out);
}

static int check_words(const weft_cli_command *cmd, const words *w)
{
    weft_engine e;
    if (!w->model) return weft_cli_usage(cmd, "which model? give --model");
    if (!w->cluster) return weft_cli_usage(cmd, "on which machines? give --cluster");
    if (!w->batch)
        return weft_cli_usage(cmd, "how many sequences in a step? give --batch");
    if (w->batch > 100000000 || w->seq > 100000000)
        return weft_cli_usage(cmd, "--batch, --seq: at most 100000000");
    if (w->best > 100) return weft_cli_usage(cmd, "--best: at most 100");
    if (w->emit && !weft_engine_find(w->emit, &e))
        return weft_cli_usage(
            cmd, "--emit: '%s' is none of: megatron deepspeed torchtitan paddle",
            w->emit);
    return -1;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_plan;
    words                   w   = {0};
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
                 "fp32, fp16, bf16, fp8 (what the devices do best of the 16 bits)"},
                {"best", 0, WEFT_CLI_INT, &w.best, "N", "plans to tell of (5)"},
                {"explain", 0, WEFT_CLI_FLAG, &w.explain, NULL,
                 "placement, and the ways people would try by hand"},
                {"json", 0, WEFT_CLI_FLAG, &w.json, NULL, "one JSON object"},
                {"output", 'o', WEFT_CLI_TEXT, &w.out, "FILE", "a plan file"},
                {"html", 0, WEFT_CLI_TEXT, &w.html, "FILE",
                 "a page to look at: topology, timeline, memory, runners-up"},
                {"emit", 0, WEFT_CLI_TEXT, &w.emit, "ENGINE",
                 "megatron, deepspeed, torchtitan or paddle"},
    };
    int code = weft_cli_parse(cmd, option, (int)WEFT_COUNT(option), argc, argv, &w.n_pin);
    if (code >= 0) return code;
    w.pin = argv;
    code  = check_words(cmd, &w);
    if (code >= 0) return code;
    job *j = calloc(1, sizeof *j);
    if (!j) return weft_cli_fail(cmd, WEFT_FAIL(WEFT_ERR_MEM, "no memory"));
    weft_status st = say(&w, j, &t, &file, &page);
    weft_search_destroy(j->r);
    weft_cost_constants_destroy(j->c);
    weft_hardware_destroy(j->h);
    weft_model_destroy(j->m);
    weft_cluster_destroy(j->k);
    weft_arena_destroy(j->a);
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
