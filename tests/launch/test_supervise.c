/* Programs of another engine under the launcher: variables, restarts, ends.  The program is sh. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/supervise.h"
#include "support/files.h"

enum {
    N_RANK = 3
};

/* Runs a script on n ranks, with what it is to write to in FOLDER; its exit code. */
static int supervise(int n, const char *script, int max_restarts)
{
    char *program[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    int   code      = -1;
    setenv("FOLDER", test_files_path("."), 1);
    weft_launch_options o = {.program      = program,
                             .max_restarts = max_restarts,
                             .log_dir      = test_files_path(".")};
    assert_int_equal(weft_launch_supervise(n, &o, &code), WEFT_OK);
    return code;
}

/* A file of the test's folder; "" where it is not there. */
static const char *read_text(const char *name)
{
    static char text[8192];
    FILE       *f = fopen(test_files_path("%s", name), "r");
    size_t      n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

static void variables_are_torchruns(void **state)
{
    (void)state;
    assert_int_equal(
        supervise(N_RANK,
                  "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK "
                  "$MASTER_ADDR ${MASTER_PORT:+port} $TORCHELASTIC_RESTART_COUNT of "
                  "$TORCHELASTIC_MAX_RESTARTS ${WEFT_RANK-none}\" >> $FOLDER/seen",
                  2),
        0);
    const char *text = read_text("seen");
    assert_int_equal(count(text, "\n"), N_RANK);
    assert_non_null(strstr(text, "1/3 1/3 0 127.0.0.1 port 0 of 2 none\n"));
    assert_string_equal(read_text("incidents.jsonl"), "");
}

/* Ranks beyond those of the sizes are not started, and all sizes are variables. */
static void sizes_say_which_ranks_run(void **state)
{
    char *program[] = {"sh", "-c",
                       "echo \"$RANK/$WORLD_SIZE $LOCAL_WORLD_SIZE dp $WEFT_DP tp "
                       "$WEFT_TP cp $WEFT_CP ep $WEFT_EP pp $WEFT_PP "
                       "${WEFT_ACCUMULATION_STEPS-none}\" >> $FOLDER/seen",
                       NULL};
    int   code      = -1;
    (void)state;
    setenv("FOLDER", test_files_path("."), 1);
    weft_launch_sizes   s = {1, 8, .tp = 2, .cp = 1, .ep = 1, .pp = 1};
    weft_launch_options o = {.program = program, .sizes = &s};
    assert_int_equal(weft_launch_supervise(5, &o, &code), WEFT_OK);
    assert_int_equal(code, 0);
    assert_int_equal(count(read_text("seen"), "\n"), 4);
    assert_int_equal(count(read_text("seen"), "/4 4 dp 2 tp 2 cp 1 ep 1 pp 1 none\n"), 4);
    s.batch = 24;
    assert_int_equal(weft_launch_supervise(2, &o, &code), WEFT_OK);
    assert_int_equal(count(read_text("seen"), "/2 2 dp 1 tp 2 cp 1 ep 1 pp 1 24\n"), 2);
    s.min_dp = 2;
    assert_int_equal(weft_launch_supervise(3, &o, &code), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "the sizes need at least 4"));
}

static void all_start_again_until_they_succeed(void **state)
{
    (void)state;
    assert_int_equal(
        supervise(N_RANK,
                  "echo \"$RANK $TORCHELASTIC_RESTART_COUNT $MASTER_PORT\" >> "
                  "$FOLDER/seen\n"
                  "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\n"
                  "[ $RANK = 1 ] && kill -9 $$\n"
                  "sleep 100",
                  3),
        0);
    for (int r = 0; r < N_RANK; r++) { /* in the last round, all of them */
        char line[16];
        snprintf(line, sizeof line, "%d 2 ", r);
        assert_int_equal(count(read_text("seen"), line), 1);
    }
    const char *incidents = read_text("incidents.jsonl");
    assert_int_equal(count(incidents, "\"what\": \"killed by signal 9 (SIGKILL)\""), 2);
    assert_int_equal(count(incidents, "\"rank\": 1, "), 2);
    assert_int_equal(count(incidents, "\"decided\": \"restart\""), 2);
}

static void restarts_have_an_end(void **state)
{
    (void)state;
    assert_int_equal(
        supervise(N_RANK, "echo x >> $FOLDER/seen; [ $RANK = 2 ] && exit 5; sleep 100",
                  1),
        1);
    const char *incidents = read_text("incidents.jsonl");
    assert_int_equal(count(incidents, "\n"), 2);
    assert_int_equal(count(incidents, "\"what\": \"exit code 5\""), 2);
    assert_int_equal(
        count(incidents, "\"decided\": \"end\", \"why\": \"no restart is left\""), 1);
}

static void a_missing_program_is_not_tried_again(void **state)
{
    char               *program[] = {"/nonexistent/program", NULL};
    int                 code      = -1;
    weft_launch_options o         = {
                .program = program, .max_restarts = 5, .log_dir = test_files_path(".")};
    (void)state;
    assert_int_equal(weft_launch_supervise(1, &o, &code), WEFT_OK);
    assert_int_equal(code, 1);
    const char *incidents = read_text("incidents.jsonl");
    assert_int_equal(count(incidents, "\n"), 1);
    assert_non_null(strstr(incidents, "the program cannot be started"));
}

/* As long as a process is there and no zombie. */
static bool is_alive(const char *pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (!fgets(line, sizeof line, f)) *line = 0;
    fclose(f);
    return *line && !strstr(line, ") Z ");
}

/* A rank leaves a process behind: it is gone when all is over. */
static void nothing_is_left_behind(void **state)
{
    char pid[16];
    int  n = 0, read;
    (void)state;
    assert_int_equal(supervise(N_RANK, "sleep 100 & echo $! >> $FOLDER/seen; exit 0", 0),
                     0);
    for (const char *at = read_text("seen"); sscanf(at, "%15s%n", pid, &read) == 1;
         at += read, n++)
        for (int k = 0; is_alive(pid); k++) { /* killed, and not gone yet */
            assert_true(k < 1000);
            usleep(10000);
        }
    assert_int_equal(n, N_RANK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(variables_are_torchruns),
        with_files(sizes_say_which_ranks_run),
        with_files(all_start_again_until_they_succeed),
        with_files(restarts_have_an_end),
        with_files(a_missing_program_is_not_tried_again),
        with_files(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
