/* weft sim: programs in virtual time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lanes.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/sim_events.h"
#include "cli/sim_say.h"
#include "cli/spec.h"
#include "compile/world.h"
#include "engine/engine.h"
#include "planner/planner.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_sim = {
    .name  = "sim",
    .usage = "MODEL [KEY=VALUE ...] | PROGRAM.prog ... [options]",
    .about =
        "run a step in virtual time: how long, what fills it, a timeline for Perfetto",
    .more =
        "MODEL is a folder with config.json or a preset, compiled as weft lower does "
        "it.\n"
        "A strategy (dp=2 tp=2 pp=2 zero=1 overlap_param_gather=0.7 sp=true "
        "tp_exclude=head cp_comm=ring\n"
        "schedule=1f1b chunks=2, as in a job: weft help job) or a plan file make\n"
        "it a job of many ranks; those that do the same at the same time are simulated "
        "once.\n"
        "Program texts hold the ranks of one job, in order, in one file or several.\n"
        "Without --cluster the machine is one node of devices like this host.  Without\n"
        "--dtype GPUs that have bf16 are simulated in it, all other devices in fp32.\n"
        "Exits with 1 where a rank does not fit its device.\n"
        "With --events a job goes through a trace of hosts that come and go instead, "
        "with\n"
        "a plan for each number of them: its goodput (committed steps over wall time), "
        "and\n"
        "what takes the rest.",
    .example = "weft sim gpt2 dp=2 tp=2 pp=2 zero=1 --batch 8 --seq 64 --cluster \"2 "
               "x (4 x a100-80g)\" -o timeline.json",
    .run     = run,
};

enum {
    MAX_FILE = 256,
    MAX_RANK = 1 << 16
};

typedef struct options {
    weft_cli_spec       spec;
    const char         *model, *cluster, *plan, *out;
    char                words[512]; /* of a strategy */
    weft_strategy       strategy;
    bool                json, each;
    int64_t             steps;
    weft_cli_sim_events events;
} options;

typedef struct job {
    weft_training        training;
    weft_compiled        made;
    weft_plan           *plan;
    weft_compiled_world *ranks;
    int                  n_set;
    weft_program       **set[MAX_FILE]; /* parsed ones, by file */
    int                  n_of[MAX_FILE];
    const weft_program **program;
    weft_world           world;
    weft_cluster        *cluster;
} job;

static bool is_program(const char *word)
{
    size_t n = strlen(word);
    return n > 5 && !strcmp(word + n - 5, ".prog");
}

/* ---- programs ---- */

static weft_status read_program(job *j, const char *path)
{
    char  *text;
    size_t n;
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_PIPES | WEFT_IO_LARGE, &text, &n));
    weft_status st =
        weft_program_parse_set(path, text, n, &j->set[j->n_set], &j->n_of[j->n_set]);
    free(text);
    WEFT_TRY(st);
    int k = j->n_set++;
    if (j->world.n + j->n_of[k] > MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: more than %d programs", path, MAX_RANK);
    void *more =
        realloc(j->program, sizeof *j->program * (size_t)(j->world.n + j->n_of[k]));
    if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d programs", j->n_of[k]);
    j->program = more;
    for (int i = 0; i < j->n_of[k]; i++) j->program[j->world.n++] = j->set[k][i];
    return WEFT_OK;
}

static weft_status read_programs(job *j, char **word, int n)
{
    for (int i = 0; i < n; i++) WEFT_TRY(read_program(j, word[i]));
    j->world.like = j->program;
    return weft_program_verify_all(j->program, j->world.n);
}

static weft_status make_one(job *j, const weft_compile_spec *s)
{
    WEFT_TRY(weft_compile_training(s, &j->training));
    WEFT_TRY(weft_compile_program(&j->training, NULL, 0, &j->made));
    j->program = malloc(sizeof *j->program);
    if (!j->program) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a program");
    j->program[0] = j->made.program;
    j->world      = (weft_world){.n = 1, .like = j->program};
    return weft_program_verify_all(j->program, 1);
}

static weft_status make_ranks(job *j, options *o)
{
    WEFT_TRY(weft_compile_training(&o->spec.spec, &j->training));
    if (!j->plan) WEFT_TRY(weft_compile_plan(&j->training, &o->strategy, 0, &j->plan));
    if (weft_plan_world(j->plan) > MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "the plan has %d ranks, more than %d",
                         weft_plan_world(j->plan), MAX_RANK);
    WEFT_TRY(weft_compile_world(
        &j->training, j->plan, o->each ? WEFT_RANKS_EACH : WEFT_RANKS_FOLDED, &j->ranks));
    j->world = j->ranks->world;
    return WEFT_OK;
}

static weft_status build(job *j, options *o, char **word, int n)
{
    if (n && is_program(word[0]))
        WEFT_TRY(read_programs(j, word, n));
    else if (o->words[0] || j->plan)
        WEFT_TRY(make_ranks(j, o));
    else
        WEFT_TRY(make_one(j, &o->spec.spec));
    weft_cluster_measured none = {.n_device = j->world.n};
    return j->cluster ? WEFT_OK : weft_cluster_this_host(&none, &j->cluster);
}

static bool has_bf16(const weft_device_kind *d)
{
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, "bf16")) return true;
    return false;
}

/* Where it is not given: bf16 on GPUs that all have it, as weft plan takes it.  Those with fp16
 * alone are simulated in fp32: programs of ours have no fp16. */
const char *weft_cli_usual_dtype(const weft_cluster *c)
{
    bool cpus = true;
    for (int i = 0; i < c->n_node; i++)
        cpus = cpus && weft_cluster_is_cpu(&c->device[c->node[i].device]);
    if (cpus) return "fp32";
    for (int i = 0; i < c->n_node; i++)
        if (!has_bf16(&c->device[c->node[i].device])) return "fp32";
    return "bf16";
}

static weft_status open_cluster(job *j, options *o)
{
    if (!o->cluster) return WEFT_OK;
    WEFT_TRY(weft_cluster_load(o->cluster, NULL, &j->cluster));
    if (!o->spec.dtype) o->spec.dtype = weft_cli_usual_dtype(j->cluster);
    return WEFT_OK;
}

static void fini(job *j)
{
    for (int i = 0; i < j->n_set; i++) weft_program_destroy_set(j->set[i], j->n_of[i]);
    free(j->program);
    weft_compiled_fini(&j->made);
    weft_compiled_world_destroy(j->ranks);
    weft_training_fini(&j->training);
    weft_plan_destroy(j->plan);
    weft_cluster_destroy(j->cluster);
}

/* ---- words ---- */

/* Keys of a job that are options here. */
static bool is_option(const char *word)
{
    static const char *const key[] = {
        "batch=",     "seq=",   "micro_batch=", "lanes=", "recompute=",
        "reduction=", "dtype=", "cluster=",     "plan=",  "offload="};
    for (size_t i = 0; i < WEFT_COUNT(key); i++)
        if (!strncmp(word, key[i], strlen(key[i]))) return true;
    return false;
}

static int say_option(const char *word)
{
    char key[16];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
    for (char *c = key; *c; c++)
        if (*c == '_') *c = '-';
    return weft_cli_usage(&weft_cli_sim, "%s is no key of a strategy: write --%s %s",
                          word, key, strchr(word, '=') + 1);
}

/* key=value of a plan into o; -1 to go on, else an exit code. */
static int read_word(options *o, const char *word)
{
    size_t n = strlen(o->words);
    if (is_option(word)) {
        return say_option(word);
    } else if (n + strlen(word) + 2 > sizeof o->words) {
        return weft_cli_usage(&weft_cli_sim, "strategy: more than %d characters",
                              (int)sizeof o->words - 2);
    } else {
        snprintf(o->words + n, sizeof o->words - n, "%s%s", n ? " " : "", word);
    }
    return -1;
}

/* Model and plan words out of argv; -1 to go on. */
static int read_words(options *o, char **word, int n)
{
    int code = -1, given = 0;
    for (int i = 0; i < n && code < 0; i++) {
        if (strchr(word[i], '=')) {
            given++;
            code = read_word(o, word[i]);
        } else if (o->model) {
            return weft_cli_usage(&weft_cli_sim, "expected one model, got %s and %s",
                                  o->model, word[i]);
        } else {
            o->model = word[i];
        }
    }
    if (code >= 0) return code;
    if (!o->model) return weft_cli_usage(&weft_cli_sim, "expected a model or programs");
    if (given && o->plan)
        return weft_cli_usage(&weft_cli_sim, "--plan has a strategy already");
    if (given && !o->words[0]) snprintf(o->words, sizeof o->words, "pp=1");
    return -1;
}

/* Where it is not said: one micro-batch a step for each stage of each pipeline, lanes for all
 * data-parallel ranks. */
static weft_status cut_batch(options *o)
{
    weft_cli_spec *s = &o->spec;
    WEFT_TRY(weft_strategy_parse(o->words, &o->strategy));
    int64_t dp    = o->strategy.dp ? o->strategy.dp : 1,
            of    = weft_strategy_lanes(&o->strategy);
    int64_t n     = (of ? of : dp) * o->strategy.pp;
    int64_t batch = s->batch ? s->batch : 1;
    if (batch < dp)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "dp=%lld ranks have nothing to share in --batch %lld",
                         (long long)dp, (long long)batch);
    if (!s->micro_batch && batch % n)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "--batch %lld is no multiple of %lld (%s * pp); set --micro-batch",
            (long long)batch, (long long)n, of ? "lanes of batch_split" : "dp");
    if (!s->micro_batch) s->micro_batch = batch / n;
    if (!s->lanes) s->lanes = (int)of;
    if (s->lanes) return WEFT_OK;
    s->lanes = weft_lanes_default(dp, batch / s->micro_batch);
    return WEFT_OK;
}

static weft_status open_plan(job *j, options *o)
{
    weft_cli_spec *s = &o->spec;
    WEFT_TRY(weft_plan_load(o->plan, &j->plan));
    s->batch       = j->plan->of.batch;
    s->seq         = j->plan->of.seq;
    s->micro_batch = j->plan->of.micro_batch;
    s->lanes       = j->plan->of.lanes;
    if (!s->dtype) s->dtype = j->plan->of.dtype;
    return WEFT_OK;
}

/* ---- the command ---- */

static weft_status simulate(const job *j, const options *o, weft_text *out,
                            weft_text *trace, bool *fits)
{
    weft_sim_options         how   = {.n_step = (int)o->steps};
    const weft_model        *m     = j->training.model;
    const weft_compile_spec *s     = &o->spec.spec;
    weft_cli_sim_asked       asked = {m ? s->model : NULL, s->dtype ? s->dtype : "fp32",
                                s->batch, m ? m->seq : 0, s->micro_batch};
    weft_sim_folded *f  = NULL;
    weft_status      st = WEFT_OK;
    WEFT_GO(weft_sim_fold(&j->world, j->cluster, &how, &f));
    *fits = weft_cli_sim_fits(f, j->cluster);
    if (o->out) WEFT_GO(weft_cli_sim_trace(f, &j->world, trace));
    if (o->json)
        WEFT_GO(weft_cli_sim_json(f, &j->world, j->cluster, &asked, out));
    else
        WEFT_GO(weft_cli_sim_print(f, &j->world, j->cluster, &asked, out));
    if (!o->json && o->spec.dtype && !strcmp(o->spec.dtype, "bf16"))
        weft_engine_tell_precision(j->cluster, "bf16", true, out);
out:
    weft_sim_folded_destroy(f);
    return st;
}

static int read_options(options *o, int argc, char **argv, int *n_word)
{
    weft_cli_option option[WEFT_CLI_N_SPEC + WEFT_CLI_N_EVENTS + 8] = {
        {"cluster", 0, WEFT_CLI_TEXT, &o->cluster, "CLUSTER",
         "the machines: a file or one line"},
        {"model", 0, WEFT_CLI_TEXT, &o->model, "MODEL", "the model, instead of a word"},
        {"plan", 0, WEFT_CLI_TEXT, &o->plan, "FILE", "a plan, instead of words"},
        {"each", 0, WEFT_CLI_FLAG, &o->each, NULL, "compile every rank by itself"},
        {"steps", 0, WEFT_CLI_INT, &o->steps, "N", "steps to simulate (2)"},
        {"output", 'o', WEFT_CLI_TEXT, &o->out, "FILE", "the timeline, for Perfetto"},
        {"trace", 0, WEFT_CLI_TEXT, &o->out, "FILE", "the same"},
        {"json", 0, WEFT_CLI_FLAG, &o->json, NULL, "one line that sums it up"},
    };
    weft_cli_spec_options(&o->spec, option + 8);
    weft_cli_events_options(&o->events, option + 8 + WEFT_CLI_N_SPEC);
    for (size_t i = 8; i < WEFT_COUNT(option); i++)
        if (!strcmp(option[i].name, "micro-batch"))
            option[i].help = "sequences in a micro-batch (batch / (dp * pp))";
    int code = weft_cli_parse(&weft_cli_sim, option, (int)WEFT_COUNT(option), argc, argv,
                              n_word);
    if (code >= 0) return code;
    if (*n_word > MAX_FILE)
        return weft_cli_usage(&weft_cli_sim, "more than %d words", MAX_FILE);
    if (o->steps < 1 || o->steps > 1000000)
        return weft_cli_usage(&weft_cli_sim, "--steps: from 1 to 1000000");
    return *n_word && is_program(argv[0]) ? -1 : read_words(o, argv, *n_word);
}

/* A job through a trace. */
static int run_events(options *o, int n_word)
{
    const weft_cli_command *c = &weft_cli_sim;
    if (!o->model || o->words[0] || o->plan || n_word > 1)
        return weft_cli_usage(c,
                              "--events: a model alone; each number of hosts gets a plan "
                              "of its own");
    int code = weft_cli_spec_resolve(c, &o->spec, o->model);
    return code >= 0 ? code
                     : weft_cli_events_run(c, &o->events, &o->spec, o->cluster, o->json);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_sim;
    static job              j; /* large */
    options                 o = {.steps = 2, .events = weft_cli_events_default()};
    weft_text               t = {0}, trace = {0};
    int                     n_word = 0;
    bool                    fits   = true;
    weft_status             st     = WEFT_OK;
    int                     code   = read_options(&o, argc, argv, &n_word);
    if (code >= 0) return code;
    if (o.events.file) return run_events(&o, n_word);
    if (o.words[0]) st = cut_batch(&o);
    if (st == WEFT_OK && o.plan) st = open_plan(&j, &o);
    if (st == WEFT_OK) st = open_cluster(&j, &o);
    if (st == WEFT_OK) {
        code = weft_cli_spec_resolve(c, &o.spec, o.model ? o.model : argv[0]);
        if (code >= 0) {
            fini(&j);
            return code;
        }
        if (j.plan)
            o.spec.spec.recompute = (weft_strategy_recompute)j.plan->strategy.recompute;
        if (j.cluster && weft_cluster_is_cuda(j.cluster)) /* as jobs there have them */
            weft_compile_for_cuda(&o.spec.spec);
        st = build(&j, &o, argv, n_word);
    }
    if (st == WEFT_OK) st = simulate(&j, &o, &t, &trace, &fits);
    fini(&j);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    if (o.out) {
        code = weft_cli_put(c, &trace, o.out);
        if (code != WEFT_EXIT_OK) return code;
    }
    code = weft_cli_put(c, &t, NULL);
    return code == WEFT_EXIT_OK && !fits ? WEFT_EXIT_FAILED : code;
}
