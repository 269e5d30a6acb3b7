/* A rank process reads its model once, whatever the job asks for, and builds the model and its
 * training graph once; where the planner chooses, it builds no training graph twice.  Counted where
 * the linker puts these functions in front of the library's (--wrap), and of the command by its
 * openings of config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "graph/train.h"
#include "model/model.h"
#include "support/files.h"
#include "support/member.h"
#include "support/test.h"
#include "weft/session.h"

enum {
    MAX_KEY   = 24,
    MAX_GRAPH = 256
};

/* ---- counting ---- */

typedef struct counts {
    weft_status st;
    int         sources, models, graphs;
    int         again; /* graphs that had been built before */
    char        text[256];
} counts;

static counts seen;

weft_status __real_weft_model_source_open(const char *what, weft_model_source **out);
weft_status __wrap_weft_model_source_open(const char *what, weft_model_source **out);
weft_status __wrap_weft_model_source_open(const char *what, weft_model_source **out)
{
    seen.sources++;
    return __real_weft_model_source_open(what, out);
}

weft_status __real_weft_model_load(const char *what, const weft_model_options *o,
                                   weft_model **out);
weft_status __wrap_weft_model_load(const char *what, const weft_model_options *o,
                                   weft_model **out);
weft_status __wrap_weft_model_load(const char *what, const weft_model_options *o,
                                   weft_model **out)
{
    seen.sources++;
    return __real_weft_model_load(what, o, out);
}

weft_status __real_weft_model_build(const weft_model_source  *s,
                                    const weft_model_options *o, weft_model **out);
weft_status __wrap_weft_model_build(const weft_model_source  *s,
                                    const weft_model_options *o, weft_model **out);
weft_status __wrap_weft_model_build(const weft_model_source  *s,
                                    const weft_model_options *o, weft_model **out)
{
    seen.models++;
    return __real_weft_model_build(s, o, out);
}

/* What tells the training graphs of one job apart. */
static void note_graph(const weft_graph *model, const weft_train_options *o)
{
    static uint64_t built[MAX_GRAPH];
    uint64_t        x = weft_graph_hash(model) ^ (uint64_t)o->recompute << 32 ^
                 (uint64_t)o->n_micro << 40;
    for (int i = 0; i < seen.graphs && i < MAX_GRAPH; i++) seen.again += built[i] == x;
    if (seen.graphs < MAX_GRAPH) built[seen.graphs] = x;
    seen.graphs++;
}

weft_status __real_weft_graph_make_training(const weft_graph         *model,
                                            const weft_train_options *o,
                                            weft_training_graph      *out);
weft_status __wrap_weft_graph_make_training(const weft_graph         *model,
                                            const weft_train_options *o,
                                            weft_training_graph      *out);
weft_status __wrap_weft_graph_make_training(const weft_graph         *model,
                                            const weft_train_options *o,
                                            weft_training_graph      *out)
{
    note_graph(model, o);
    return __real_weft_graph_make_training(model, o, out);
}

/* ---- one rank ---- */

static void run_job(const char *dir, const char *name, int n_key, const char *const *key,
                    const weft_membership_source *member)
{
    char                 output[512], data[512], eval[600];
    const char          *all[MAX_KEY] = {output,   data,      eval,      "model=tiny256",
                                         "seq=16", "batch=8", "steps=2", "threads=1"};
    int                  n            = 8;
    weft_job            *job          = NULL;
    weft_session_options o            = {.quiet = true, .member = member};
    weft_session_result  r            = {0};
    snprintf(output, sizeof output, "output=%s/%s", dir, name);
    snprintf(data, sizeof data, "data=%s/text", dir);
    snprintf(eval, sizeof eval, "eval={data: %s/text, every: 1, batches: 2}", dir);
    for (int i = 0; i < n_key; i++) all[n++] = key[i];
    seen    = (counts){0};
    seen.st = weft_job_load(NULL, n, all, &job);
    if (seen.st == WEFT_OK) seen.st = weft_session_run(job, &o, &r);
    if (seen.st != WEFT_OK)
        snprintf(seen.text, sizeof seen.text, "%s", weft_error_text());
    weft_job_destroy(job);
}

/* planned: by the planner, which builds models and graphs of few layers, too. */
static void check_counts(const char *what, bool planned, const counts *c)
{
    if (c->st != WEFT_OK) fail_msg("%s: %s", what, c->text);
    if (c->sources != 1) fail_msg("%s: the model was read %d times", what, c->sources);
    if (c->again)
        fail_msg("%s: of %d training graphs %d were built before", what, c->graphs,
                 c->again);
    if (!planned && (c->models != 1 || c->graphs != 1))
        fail_msg("%s: %d models, %d training graphs built", what, c->models, c->graphs);
}

static void write_text(const char *dir)
{
    char  path[512];
    FILE *f;
    snprintf(path, sizeof path, "%s/text", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "%d bottles of beer on the wall\n", i * i);
    fclose(f);
}

/* ---- jobs ---- */

typedef struct job_case {
    const char *name;
    int         world;
    int         n_key;
    const char *key[8];
} job_case;

static const job_case cases[] = {
    {"alone", 1, 0, {NULL}},
    {"alone, bf16", 1, 2, {"dtype=bf16", "micro_batch=2"}},
    {"replicas", 2, 2, {"plan=off", "lanes=2"}},
    {"tensors", 2, 1, {"tp=2"}},
    {"zero", 2, 2, {"dp=2", "zero=3"}},
    {"stages", 2, 2, {"pp=2", "micro_batch=2"}},
    /* candidates of other lanes have trainings of their own */
    {"planned", 2, 1, {"lanes=2"}},
    {"planned, given", 2, 2, {"micro_batch=2", "lanes=2"}},
};

static void run_rank(int fd, int rank, const char *dir, const job_case *c, int to)
{
    test_member m;
    run_job(dir, c->name, c->n_key, c->key, test_member_init(&m, fd, rank, c->world));
    _exit(write(to, &seen, sizeof seen) == (ssize_t)sizeof seen ? 0 : 1);
}

static void run_ranks(const char *dir, const job_case *c)
{
    weft_comm_shm *w;
    int            p[2];
    assert_ok(weft_comm_shm_create(c->world, &w));
    assert_int_equal(pipe(p), 0);
    for (int r = 0; r < c->world; r++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) run_rank(weft_comm_shm_fd(w), r, dir, c, p[1]);
    }
    close(p[1]);
    for (int r = 0; r < c->world; r++) {
        counts got;
        assert_int_equal(read(p[0], &got, sizeof got), sizeof got);
        check_counts(c->name, !strncmp(c->name, "planned", 7), &got);
    }
    close(p[0]);
    while (wait(NULL) > 0) continue;
    weft_comm_shm_destroy(w);
}

/* Each job twice: it starts, and it resumes with more steps. */
static void sessions_build_once(void **state)
{
    const char *dir = *state;
    write_text(dir);
    for (size_t i = 0; i < WEFT_COUNT(cases); i++)
        if (cases[i].world > 1) {
            run_ranks(dir, &cases[i]);
            job_case more          = cases[i];
            more.key[more.n_key++] = "steps=4";
            run_ranks(dir, &more);
        } else {
            run_job(dir, cases[i].name, cases[i].n_key, cases[i].key, NULL);
            check_counts(cases[i].name, false, &seen);
        }
}

/* ---- the command ---- */

/* Runs the command: n processes open the model's config.json, each of them once. */
static void check_openings(const char *dir, const char *command, int n)
{
    char  to[512], line[2][32];
    int   seen_lines = 0;
    FILE *f;
    snprintf(to, sizeof to, "%s/opens", dir);
    unlink(to);
    setenv("COUNT_OPENS_OF", "/model/config.json", 1);
    setenv("COUNT_OPENS_TO", to, 1);
    setenv("LD_PRELOAD", WEFT_TEST_COUNT_OPENS, 1);
    int code = system(command);
    unsetenv("LD_PRELOAD");
    if (code) fail_msg("%s: %d", command, code);
    f = fopen(to, "r");
    assert_non_null(f);
    while (seen_lines < 2 && fgets(line[seen_lines], sizeof *line, f)) seen_lines++;
    assert_int_equal(seen_lines, n);
    assert_int_equal(fgetc(f), EOF);
    if (n > 1) assert_string_not_equal(line[0], line[1]);
    fclose(f);
}

static void write_config(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 64, "
               "\"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2, \"resid_pdrop\": 0, "
               "\"embd_pdrop\": 0, \"attn_pdrop\": 0}\n");
    fclose(f);
}

static void commands_read_the_model_once(void **state)
{
    const char *dir = *state;
    char        path[512], keys[2048], command[4096];
    if (WEFT_TEST_SANITIZED) skip(); /* sanitizers have to be loaded first */
    write_text(dir);
    snprintf(path, sizeof path, "%s/model", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/model/config.json", dir);
    write_config(path);
    snprintf(keys, sizeof keys,
             "model=%s/model data=%s/text eval.data=%s/text eval.every=1 eval.batches=2 "
             "seq=16 batch=8 steps=2 threads=1 init=random",
             dir, dir, dir);
    snprintf(command, sizeof command, "%s train --quiet %s output=%s/a >/dev/null",
             WEFT_TEST_COMMAND, keys, dir);
    check_openings(dir, command, 1);
    snprintf(command, sizeof command,
             "%s run --nproc-per-node 2 --quiet %s plan=off lanes=2 output=%s/b "
             ">/dev/null",
             WEFT_TEST_COMMAND, keys, dir);
    check_openings(dir, command, 2);
    snprintf(command, sizeof command,
             "%s run --nproc-per-node 2 --quiet %s output=%s/c >/dev/null",
             WEFT_TEST_COMMAND, keys, dir); /* planned */
    check_openings(dir, command, 2);
}

/* Commands that build models of several batches, sequences and numbers of layers. */
static void planning_reads_the_model_once(void **state)
{
    static const char *const command[] = {
        "plan --cluster '2 x (2 x a100-80g)' --batch 16 --seq 32 -o %s/plan.json",
        "plan --cluster '1 x (2 x a100-80g)' --batch 16 --seq 32 --was %s/plan.json",
        "plan --cluster '2 x (2 x a100-80g)' --batch 16 --seq 32 --emit megatron",
        ("plan --cluster '1 x (2 x a100-80g) + 1 x (2 x v100-32g)' --batch 16 --seq 32 "
         "--html %s/plan.html --json"),
        "sim --cluster '1 x (2 x a100-80g)' --batch 16 --seq 32 dp=2",
    };
    const char *dir = *state;
    char        path[512], with[1024], all[2048];
    if (WEFT_TEST_SANITIZED) skip();
    snprintf(path, sizeof path, "%s/model", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/model/config.json", dir);
    write_config(path);
    for (size_t i = 0; i < WEFT_COUNT(command); i++) {
        const char *dollar = strstr(command[i], "%s");
        size_t      n      = dollar ? (size_t)(dollar - command[i]) : strlen(command[i]);
        snprintf(with, sizeof with, "%.*s%s%s", (int)n, command[i], dollar ? dir : "",
                 dollar ? dollar + 2 : "");
        snprintf(all, sizeof all, "%s %s --model %s/model >/dev/null", WEFT_TEST_COMMAND,
                 with, dir);
        check_openings(dir, all, 1);
    }
}

static int setup(void **state)
{
    *state = (void *)(uintptr_t)test_files_begin();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_files_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sessions_build_once, setup, teardown),
        cmocka_unit_test_setup_teardown(commands_read_the_model_once, setup, teardown),
        cmocka_unit_test_setup_teardown(planning_reads_the_model_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
