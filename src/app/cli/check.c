/* weft check: will what I run now fit, how fast, what would help */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/check_own.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "estimate/estimate.h"
#include "search/advice.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_check = {
    .name  = "check",
    .usage = "--megatron ARGS | --deepspeed FILE | --torchtitan FILE | --weft KEYS  "
             "--cluster CLUSTER [options]",
    .about = "does a configuration of an engine fit, how fast is it, what would help",
    .more =
        "Reads what people run today and says, before anything runs, what it read, "
        "whether it fits, the\n"
        "time of a step with its 90 % interval, tokens a second and device, what the "
        "step\n"
        "is made of, and the three changes of one knob that would gain most.\n"
        "A DeepSpeed file says nothing of the model: give --model and --seq.\n"
        "--weft \"dp=2 micro_batch=8 recompute=selective\" is our own engine, with "
        "--model, "
        "--batch and\n--seq: its programs are made, their memory counted and a step "
        "simulated, by measured\ninstructions where the cluster has them (weft cluster "
        "calibrate).\n"
        "Exits with 1 where it does not fit.\n"
        "--measured compares: a run far above the interval has a fault worth finding.",
    .example =
        "weft check --megatron \"--num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32\n"
        "      --seq-length 2048 --micro-batch-size 1 --global-batch-size 512 --bf16\n"
        "      --tensor-model-parallel-size 8\" --cluster \"8 x (8 x a100-80g)\"",
    .run = run,
};

enum {
    N_CHANGE = 3 /* that are printed */
};

typedef struct job {
    weft_config          c;
    weft_hardware       *h;
    weft_cost_constants *k;
    weft_prediction      now;
    weft_search_limits   can; /* what the engine has options for */
    weft_search_advice   advice;
    bool                 vocab_assumed, heads_assumed; /* nothing that was read says */
} job;

/* ---- what is said ---- */

static double tokens_per_device(const job *j, double step_s)
{
    return (double)j->c.global_batch * j->c.seq / step_s /
           ((double)j->c.dp * j->c.tp * j->c.pp * j->c.cp);
}

static void say_parts(const weft_cost_part *p, int n, const char *unit, double scale,
                      weft_text *t)
{
    for (int i = 0; i < n; i++)
        if (p[i].x / scale >= 0.005)
            weft_text_add(t, "  %-22s %8.2f %s\n", p[i].name, p[i].x / scale, unit);
}

/* What was read, in one line: a misreading shows here and not only as a wrong answer. */
static void put_understood(const job *j, weft_text *t)
{
    const weft_config *c     = &j->c;
    int                micro = c->micro_batch > 0 ? c->micro_batch : j->now.micro_batch;
    weft_text_add(t, "read: %s, %d layers, hidden %d, ffn %d, %d heads%s", c->framework,
                  c->layers, c->hidden,
                  c->experts > 0 ? c->moe_ffn_hidden : c->ffn_hidden, c->heads,
                  j->heads_assumed ? " (not said: assumed)" : "");
    if (c->kv_heads != c->heads) weft_text_add(t, ", %d kv heads", c->kv_heads);
    if (c->experts > 0)
        weft_text_add(t, ", %d experts, %d a token", c->experts, c->experts_topk);
    weft_text_add(t,
                  ", vocabulary %d%s: %.4g billion parameters; tp=%d cp=%d pp=%d dp=%d",
                  c->vocab, j->vocab_assumed ? " (not said: assumed)" : "",
                  weft_config_params(c) / 1e9, c->tp, c->cp, c->pp, c->dp);
    if (c->experts > 0) weft_text_add(t, " ep=%d", c->ep);
    if (c->vpp > 1) weft_text_add(t, " chunks=%d", c->vpp);
    weft_text_add(
        t, " zero=%d, micro-batch %d%s, batch %d of %d tokens, %s, recompute %s\n",
        c->zero, micro, c->micro_batch > 0 ? "" : " (not said: the best)",
        c->global_batch, c->seq, c->precision, *c->recompute ? c->recompute : "not said");
}

static void put_understood_json(const job *j, weft_text *t)
{
    const weft_config *c     = &j->c;
    int                micro = c->micro_batch > 0 ? c->micro_batch : j->now.micro_batch;
    weft_text_add(t, " \"read\": {\"engine\": ");
    weft_text_put_quoted(t, c->framework);
    weft_text_add(t,
                  ", \"layers\": %d, \"hidden\": %d, \"ffn\": %d, \"heads\": %d, "
                  "\"kv_heads\": %d, \"vocab\": %d, \"vocab_said\": %s, \"experts\": %d, "
                  "\"params\": %.0f,\n",
                  c->layers, c->hidden,
                  c->experts > 0 ? c->moe_ffn_hidden : c->ffn_hidden, c->heads,
                  c->kv_heads, c->vocab, j->vocab_assumed ? "false" : "true", c->experts,
                  weft_config_params(c));
    weft_text_add(t,
                  "  \"tp\": %d, \"cp\": %d, \"pp\": %d, \"dp\": %d, \"ep\": %d, "
                  "\"chunks\": %d, \"zero\": %d, \"micro_batch\": %d, "
                  "\"micro_batch_said\": %s, \"batch\": %d, \"seq\": %d, "
                  "\"precision\": \"%s\", \"recompute\": \"%s\"},\n",
                  c->tp, c->cp, c->pp, c->dp, c->ep, c->vpp > 0 ? c->vpp : 1, c->zero,
                  micro, c->micro_batch > 0 ? "true" : "false", c->global_batch, c->seq,
                  c->precision, c->recompute);
}

/* What decides memory and time and is not counted stands with the verdict, not in the last line. */
static void put_verdict(const job *j, weft_text *t)
{
    const weft_prediction *p         = &j->now;
    weft_text              uncounted = {0};
    weft_engine_put_uncounted(&j->c, &uncounted);
    weft_text_add(t, "%s%s: %.1f of %.1f GB on the fullest device (stage %d)\n",
                  p->fits ? "fits" : "DOES NOT FIT",
                  uncounted.n ? " without offloading" : "", p->mem_bytes / 1e9,
                  p->score.mem_limit / 1e9, p->score.tightest);
    if (uncounted.n)
        weft_text_add(t,
                      "not counted: %s: with it a device holds less than this, and the "
                      "step is longer\n",
                      uncounted.s);
    weft_text_fini(&uncounted);
}

static void say(const job *j, double measured, const weft_text *ignored, weft_text *t)
{
    const weft_prediction *p = &j->now;
    const weft_cost_score *s = &p->score;
    weft_cost_part         time[WEFT_COST_N_TIME], mem[WEFT_COST_N_MEMORY];
    weft_cost_time_parts(s, time);
    weft_cost_memory_parts(s, mem);
    put_understood(j, t);
    put_verdict(j, t);
    if (!*j->c.recompute && p->recompute == WEFT_RECOMPUTE_FULL)
        weft_text_add(t, "recomputation is not said: %s\n",
                      p->fits
                          ? "without any it would not fit, so as many layers run again "
                            "as need be; if all do:"
                          : "all layers run again");
    say_parts(mem, (int)WEFT_COUNT(mem), "GB", 1e9, t);
    weft_text_add(t, "step %.3g s (90 %%: %.3g to %.3g), %.0f tokens/s a device\n",
                  p->step_s, p->step_lo, p->step_hi, tokens_per_device(j, p->step_s));
    say_parts(time, (int)WEFT_COUNT(time), "s", 1, t);
    if (measured > 0)
        weft_text_add(
            t, "measured %.3g s, %.2f of the prediction%s\n", measured,
            measured / p->step_s,
            measured > p->step_hi   ? ": slower than it should be; look for a slow "
                                      "device or link"
            : measured < p->step_lo ? ": faster than the model thinks possible; tell "
                                      "`weft cluster calibrate`"
                                    : ": as expected");
    if (j->advice.n_change)
        weft_text_add(t,
                      p->fits ? "what would help most:\n" : "what would make it fit:\n");
    else if (p->fits)
        weft_text_add(t, "no change of one knob would gain anything\n");
    else
        weft_text_add(t, "no change of one knob makes it fit; %s\n  %s\n",
                      j->advice.any_fits ? "this plan does:" : "nothing here does:",
                      j->advice.plan);
    for (int i = 0; i < j->advice.n_change; i++) {
        const weft_search_change *x = &j->advice.change[i];
        weft_text_add(t, "  %-34s %.3g s", x->text, x->predicted.step_s);
        if (p->fits)
            weft_text_add(t, " (%.1f %% faster)\n",
                          100 * (p->step_s / x->predicted.step_s - 1));
        else
            weft_text_add(t, " (fits in %.1f GB)\n", x->predicted.mem_bytes / 1e9);
    }
    if (ignored->n) weft_text_add(t, "not looked at: %s\n", ignored->s);
}

static void say_json(const job *j, double measured, const weft_text *ignored,
                     weft_text *t)
{
    const weft_prediction *p         = &j->now;
    const weft_cost_score *s         = &p->score;
    weft_text              uncounted = {0};
    weft_text_add(
        t,
        "{\"fits\": %s, \"mem_bytes\": %.0f, \"mem_limit\": %.0f, \"step_s\": %.6g, "
        "\"step_lo\": %.6g, \"step_hi\": %.6g, \"tokens_per_s_device\": %.6g,\n",
        p->fits ? "true" : "false", p->mem_bytes, s->mem_limit, p->step_s, p->step_lo,
        p->step_hi, tokens_per_device(j, p->step_s));
    put_understood_json(j, t);
    weft_text_add(
        t,
        " \"breakdown\": {\"compute_s\": %.6g, \"again_s\": %.6g, \"comm_s\": %.6g, "
        "\"host_s\": %.6g, \"p2p_s\": %.6g, \"bubble_s\": %.6g, \"dp_s\": %.6g, "
        "\"optimizer_s\": %.6g, \"fixed_s\": %.6g},\n",
        s->compute_s, s->again_s, s->comm_s, s->host_s, s->p2p_s, s->bubble_s, s->dp_s,
        s->optimizer_s, s->fixed_s);
    if (measured > 0) weft_text_add(t, " \"measured_s\": %.6g,\n", measured);
    weft_text_add(t, " \"not_counted\": ");
    weft_engine_put_uncounted(&j->c, &uncounted);
    weft_text_put_quoted(t, uncounted.n ? uncounted.s : "");
    weft_text_fini(&uncounted);
    weft_text_add(t, ",\n \"not_looked_at\": ");
    weft_text_put_quoted(t, ignored->n ? ignored->s : "");
    if (j->advice.plan) {
        weft_text_add(
            t, ",\n \"%s\": ", j->advice.any_fits ? "plan_that_fits" : "nothing_fits");
        weft_text_put_quoted(t, j->advice.plan);
    }
    weft_text_add(t, ",\n \"changes\": [");
    for (int i = 0; i < j->advice.n_change; i++) {
        const weft_search_change *x = &j->advice.change[i];
        weft_text_add(t, "%s{\"change\": \"%s\", \"step_s\": %.6g, \"mem_bytes\": %.0f}",
                      i ? ", " : "", x->text, x->predicted.step_s,
                      x->predicted.mem_bytes);
    }
    weft_text_add(t, "]}\n");
}

/* ---- the command ---- */

typedef struct words {
    const char *text[WEFT_N_ENGINE]; /* by engine: arguments or a file */
    const char *cluster, *model, *measured, *framework, *own;
    int64_t     seq, batch;
    bool        json;
} words;

static weft_status read_engine(const words *w, int world, weft_arena *a, job *j,
                               weft_text *ignored)
{
    for (int e = 0; e < WEFT_N_ENGINE; e++) {
        char  *file = NULL;
        size_t n;
        if (!w->text[e]) continue;
        j->can = weft_search_limits_of(weft_engine_name((weft_engine)e));
        if (e == WEFT_ENGINE_MEGATRON)
            return weft_engine_read((weft_engine)e, "--megatron", w->text[e],
                                    strlen(w->text[e]), world, a, &j->c, ignored);
        WEFT_TRY(weft_io_read_as(w->text[e], WEFT_IO_PIPES, &file, &n));
        weft_status st = weft_engine_read((weft_engine)e, w->text[e], file, n, world, a,
                                          &j->c, ignored);
        free(file);
        return st;
    }
    return WEFT_OK;
}

static weft_status read_seconds(const char *s, double *out)
{
    char *end;
    *out = 0;
    if (!s) return WEFT_OK;
    *out = strtod(s, &end);
    if (end == s || (strcmp(end, "s") && *end) || !(*out > 0) || !isfinite(*out))
        return WEFT_FAIL(WEFT_ERR_ARG, "--measured %.40s: expected seconds, as in 12.3s",
                         s);
    return WEFT_OK;
}

static weft_status all_said(const weft_config *c)
{
    if (c->layers < 0 || c->hidden < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "the sizes of the model are not said: give --model");
    if (c->seq < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "the length of a sequence is not said: give --seq");
    if (c->global_batch < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "the batch of a step is not said: give --batch");
    return WEFT_OK;
}

/* Every replica takes as many whole micro-batches. */
static weft_status deals_out(const weft_config *c)
{
    int micro = c->micro_batch > 0 ? c->micro_batch : 1;
    if (c->global_batch % ((int64_t)micro * c->dp))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "a batch of %d is not micro-batches of %d on each of %d replicas",
            c->global_batch, micro, c->dp);
    return WEFT_OK;
}

static weft_status check(const words *w, job *j, weft_arena *a, weft_text *out)
{
    weft_cluster *k       = NULL;
    weft_model   *m       = NULL;
    weft_text     ignored = {0};
    double        measured;
    weft_status   st = WEFT_OK;
    weft_engine_open(&j->c);
    WEFT_GO(read_seconds(w->measured, &measured));
    WEFT_GO(weft_cluster_load(w->cluster, NULL, &k));
    WEFT_GO(weft_engine_cluster(k, a, &j->c, &j->h));
    if (w->model) {
        WEFT_GO(weft_model_load(w->model, &(weft_model_options){.seq = w->seq}, &m));
        WEFT_GO(weft_engine_model(m, a, &j->c));
    }
    WEFT_GO(read_engine(w, weft_cluster_count(k), a, j, &ignored));
    if (w->seq) j->c.seq = (int)w->seq;
    if (w->batch) j->c.global_batch = (int)w->batch;
    if (w->framework) j->c.framework = w->framework;
    WEFT_GO(all_said(&j->c));
    j->vocab_assumed = j->c.vocab < 0;
    j->heads_assumed = j->c.heads < 0;
    WEFT_GO(weft_config_complete("check", &j->c));
    if ((int64_t)j->c.dp * j->c.tp * j->c.pp * j->c.cp != weft_cluster_count(k))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                          "dp %d x tp %d x pp %d x cp %d are not the %d devices "
                          "of the cluster",
                          j->c.dp, j->c.tp, j->c.pp, j->c.cp, weft_cluster_count(k)));
    WEFT_GO(deals_out(&j->c));
    WEFT_GO(weft_cost_constants_create(&j->k));
    if (w->framework) WEFT_GO(weft_engine_know(j->k, w->framework));
    for (int i = 0; i < j->h->n_device; i++)
        WEFT_GO(weft_engine_know_formats(&j->h->device[i], &j->c));
    WEFT_GO(weft_estimate_row(j->h, j->k, &j->c, &j->now));
    WEFT_GO(weft_search_advise(&(weft_search_advice_request){.config    = &j->c,
                                                             .now       = &j->now,
                                                             .hardware  = j->h,
                                                             .constants = j->k,
                                                             .cluster   = k,
                                                             .limits    = &j->can,
                                                             .n_most    = N_CHANGE},
                               a, &j->advice));
    size_t from = out->n;
    if (!w->json) weft_engine_tell_unmeasured(k, j->k, j->c.framework, out);
    if (out->n > from) weft_text_add(out, "\n");
    if (!w->json) weft_engine_tell_precision(k, j->c.precision, false, out);
    if (w->json)
        say_json(j, measured, &ignored, out);
    else
        say(j, measured, &ignored, out);
    WEFT_GO(weft_text_status(out));
out:
    weft_text_fini(&ignored);
    weft_model_destroy(m);
    weft_cluster_destroy(k);
    return st;
}

static int run_own(const weft_cli_command *cmd, const words *w)
{
    weft_cli_own_check o    = {.words   = w->own,
                               .model   = w->model,
                               .cluster = w->cluster,
                               .batch   = w->batch,
                               .seq     = w->seq,
                               .json    = w->json};
    weft_text          out  = {0};
    bool               fits = false;
    if (!w->model || !w->batch)
        return weft_cli_usage(cmd, "--weft: give --model and --batch");
    weft_status st = read_seconds(w->measured, &o.measured_s);
    if (st == WEFT_OK) st = weft_cli_check_own(&o, &fits, &out);
    if (st != WEFT_OK) {
        weft_text_fini(&out);
        return weft_cli_fail(cmd, st);
    }
    int code = weft_cli_put(cmd, &out, NULL);
    return code == WEFT_EXIT_OK && !fits ? WEFT_EXIT_FAILED : code;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *cmd = &weft_cli_check;
    words                   w   = {0};
    int                     n_word, n = 0;
    weft_text               out      = {0};
    weft_arena             *a        = NULL;
    const weft_cli_option   option[] = {
          {"megatron", 0, WEFT_CLI_TEXT, &w.text[WEFT_ENGINE_MEGATRON], "ARGS",
           "Megatron-LM's arguments, as one word"},
          {"deepspeed", 0, WEFT_CLI_TEXT, &w.text[WEFT_ENGINE_DEEPSPEED], "FILE",
           "a DeepSpeed JSON file"},
          {"torchtitan", 0, WEFT_CLI_TEXT, &w.text[WEFT_ENGINE_TORCHTITAN], "FILE",
           "a torchtitan TOML file"},
          {"weft", 0, WEFT_CLI_TEXT, &w.own, "KEYS",
           "keys of our own engine's strategy, as one word"},
          {"cluster", 0, WEFT_CLI_TEXT, &w.cluster, "CLUSTER",
           "a file, or one line: \"8 x (8 x h100-80g)\""},
          {"model", 0, WEFT_CLI_TEXT, &w.model, "MODEL",
           "config.json or a preset, for sizes"},
          {"seq", 0, WEFT_CLI_INT, &w.seq, "N", "tokens of a sequence"},
          {"batch", 0, WEFT_CLI_INT, &w.batch, "N", "sequences of a step"},
          {"engine", 0, WEFT_CLI_TEXT, &w.framework, "NAME",
           "the engine and release whose overheads to take"},
          {"measured", 0, WEFT_CLI_TEXT, &w.measured, "SECONDS",
           "what a step really takes"},
          {"json", 0, WEFT_CLI_FLAG, &w.json, NULL, "one JSON object"},
    };
    int code = weft_cli_parse(cmd, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    for (int e = 0; e < WEFT_N_ENGINE; e++) n += w.text[e] != NULL;
    n += w.own != NULL;
    if (n_word || n != 1)
        return weft_cli_usage(
            cmd, "expected one of --megatron, --deepspeed, --torchtitan, --weft");
    if (!w.cluster) return weft_cli_usage(cmd, "on which machines? give --cluster");
    if (w.own) return run_own(cmd, &w);
    job *j = calloc(1, sizeof *j);
    if (!j) return weft_cli_fail(cmd, WEFT_FAIL(WEFT_ERR_MEM, "no memory"));
    weft_status st = weft_arena_create(&a);
    if (st == WEFT_OK) st = check(&w, j, a, &out);
    bool fits = j->now.fits;
    weft_cost_constants_destroy(j->k);
    weft_hardware_destroy(j->h);
    free(j);
    weft_arena_destroy(a);
    if (st == WEFT_OK) {
        code = weft_cli_put(cmd, &out, NULL);
        return code == WEFT_EXIT_OK && !fits ? WEFT_EXIT_FAILED : code;
    }
    weft_text_fini(&out);
    return weft_cli_fail(cmd, st);
}
