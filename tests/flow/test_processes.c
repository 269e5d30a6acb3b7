/* Processes that share memory train like one, to the last bit: the whole session, with a resume. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "support/files.h"
#include "support/member.h"
#include "support/test.h"
#include "weft/session.h"

typedef struct outcome {
    weft_status st;
    uint64_t    weights;
    double      loss, grad_norm;
    char        words[256];
} outcome;

static outcome train(const char *dir, const char *name, int steps,
                     const weft_membership_source *member)
{
    char                 output[512], data[512], n_steps[32];
    const char          *assign[] = {output,
                                     data,
                                     n_steps,
                                     "model=tiny256",
                                     "seq=16",
                                     "batch=8",
                                     "lanes=4",
                                     "micro_batch=1",
                            strcmp(name, "many") ? "pp=1" : "plan=off",
                                     "threads=1",
                                     "shuffle=true",
                                     "optimizer.lr=0.001",
                                     "checkpoint={every: 2, keep: 2}"};
    weft_job            *job      = NULL;
    weft_session_options o        = {.quiet = true, .member = member};
    weft_session_result  r        = {0};
    outcome              out      = {0};
    snprintf(output, sizeof output, "output=%s/%s", dir, name);
    snprintf(data, sizeof data, "data=%s/text", dir);
    snprintf(n_steps, sizeof n_steps, "steps=%d", steps);
    out.st = weft_job_load(NULL, (int)WEFT_COUNT(assign), assign, &job);
    if (out.st == WEFT_OK) out.st = weft_session_run(job, &o, &r);
    snprintf(out.words, sizeof out.words, "%s",
             out.st == WEFT_OK ? "" : weft_error_text());
    weft_job_destroy(job);
    out.weights = r.weights_xxh64, out.loss = r.loss, out.grad_norm = r.grad_norm;
    return out;
}

/* Runs a rank in a process of its own and sends back what came out. */
static void rank_main(int fd, int rank, int world, const char *dir, const char *name,
                      int steps, int pipe)
{
    test_member m;
    outcome     out = train(dir, name, steps, test_member_init(&m, fd, rank, world));
    _exit(write(pipe, &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
}

static void train_ranks(const char *dir, const char *name, int world, int steps,
                        outcome *out)
{
    weft_comm_shm *w;
    int            p[8][2];
    assert_ok(weft_comm_shm_create(world, &w));
    for (int r = 0; r < world; r++) {
        assert_int_equal(pipe(p[r]), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            rank_main(weft_comm_shm_fd(w), r, world, dir, name, steps, p[r][1]);
        close(p[r][1]);
    }
    for (int r = 0; r < world; r++) {
        assert_int_equal(read(p[r][0], &out[r], sizeof *out), sizeof *out);
        close(p[r][0]);
    }
    while (wait(NULL) > 0) continue;
    weft_comm_shm_destroy(w);
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

static void processes_train_like_one(void **state)
{
    const char *dir = *state;
    outcome     out[4];
    write_text(dir);
    outcome one = train(dir, "one", 6, NULL);
    if (one.st != WEFT_OK) fail_msg("%s", one.words);
    for (int world = 2; world <= 4; world++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", world);
        for (int steps = 3; steps <= 6; steps += 3) { /* the second time it resumes */
            train_ranks(dir, name, world, steps, out);
            for (int r = 0; r < world; r++)
                if (out[r].st != WEFT_OK)
                    fail_msg("rank %d of %d: %s", r, world, out[r].words);
        }
        for (int r = 0; r < world; r++) {
            assert_true(out[r].weights == one.weights);
            assert_true(out[r].loss == one.loss && out[r].grad_norm == one.grad_norm);
        }
    }
}

/* A job that one rank refuses ends on all of them. */
static void too_many_ranks_are_told(void **state)
{
    const char *dir = *state;
    outcome     out[8];
    write_text(dir);
    train_ranks(dir, "many", 8, 2, out);
    int refused = 0;
    for (int r = 0; r < 8; r++) {
        assert_true(out[r].st == WEFT_ERR_ARG || out[r].st == WEFT_ERR_PEER);
        refused += strstr(out[r].words, "set lanes to at least 8") != NULL;
    }
    assert_true(refused > 0);
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
        cmocka_unit_test_setup_teardown(processes_train_like_one, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many_ranks_are_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
