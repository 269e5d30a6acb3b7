/* Text through the command: every tests/golden/<name>.txt is a list of
 *
 *     $ data inspect tests/golden/abc.txt      arguments of weft, by a shell in the root of the
 *     tree | a line of standard output              <*> stands for any text within a line
 *     ! a line of standard error
 *     ? 2                                      the exit code, 0 where it is not given
 *     % cp a $T/b                              a shell command before the next case
 *     $$ or %%                                 left out by the sanitized run: seconds of the same
 *     # a comment
 *
 * $T is a scratch folder, $W (in % lines) the command.  WEFT_GOLDEN_UPDATE=1 prints what came
 * instead of failing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/text.h"
#include "support/files.h"
#include "support/test.h"

static bool matches(const char *want, const char *got)
{
    const char *star = strstr(want, "<*>");
    if (!star) return !strcmp(want, got);
    size_t n = (size_t)(star - want);
    if (strncmp(want, got, n)) return false;
    for (got += n;; got++) {
        if (matches(star + 3, got)) return true;
        if (!*got) return false;
    }
}

/* Lines of text, each behind a mark, added to t. */
static void add_lines(weft_text *t, char mark, char *text)
{
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        bool last = !*end;
        *end      = 0;
        weft_text_add(t, line[0] ? "%c %s\n" : "%c\n", mark, line);
        if (last) break;
    }
}

static void prepare(const char *command)
{
    weft_text cmd = {0};
    weft_text_add(&cmd, "T=%s; export T; W=%s; %s", test_files_path("."),
                  WEFT_TEST_COMMAND, command);
    if (system(cmd.s)) fail_msg("failed: %s", command);
    weft_text_fini(&cmd);
}

static void run(const char *args, weft_text *got)
{
    weft_text cmd = {0};
    size_t    n;
    weft_text_add(&cmd, "T=%s; export T; %s %s >$T/out.txt 2>$T/err.txt </dev/null",
                  test_files_path("."), WEFT_TEST_COMMAND, args);
    int   rc  = system(cmd.s);
    char *out = test_files_read(test_files_path("out.txt"), &n);
    char *err = test_files_read(test_files_path("err.txt"), &n);
    add_lines(got, '|', out);
    add_lines(got, '!', err);
    weft_text_add(got, "? %d\n", WIFEXITED(rc) ? WEXITSTATUS(rc) : -1);
    free(out);
    free(err);
    weft_text_fini(&cmd);
}

static void compare(const char *file, const char *args, char *want, char *got)
{
    char *w, *g, *sw = NULL, *sg = NULL;
    if (getenv("WEFT_GOLDEN_UPDATE")) {
        printf("$ %s\n%s\n", args, got);
        return;
    }
    w = strtok_r(want, "\n", &sw);
    for (g = strtok_r(got, "\n", &sg); g; g = strtok_r(NULL, "\n", &sg)) {
        if (!w || !matches(w, g))
            fail_msg("%s: weft %s\n  expected: %s\n  got:      %s", file, args,
                     w ? w : "nothing more", g);
        w = strtok_r(NULL, "\n", &sw);
    }
    if (w) fail_msg("%s: weft %s\n  expected: %s\n  got nothing more", file, args, w);
}

static void check(const char *file, const char *args, weft_text *want)
{
    weft_text got = {0};
    if (!want->s || !strstr(want->s, "? ")) weft_text_add(want, "? 0\n");
    run(args, &got);
    compare(file, args, want->s, got.s);
    weft_text_fini(&got);
    want->n = 0;
    if (want->s) want->s[0] = 0;
}

/* Sanitized: of what all ranks of a job refuse every fourth, as many processes start for it. */
static bool is_left_out(const char *command)
{
    static int n_refused;
    if (!WEFT_TEST_SANITIZED || TEST_LONG || !strstr(command, "; sh $T/once $?"))
        return false;
    return n_refused++ % 4 != 0;
}

static void run_file(const char *file)
{
    size_t    n;
    char     *text = test_files_read(file, &n), *save = NULL, *args = NULL;
    weft_text want = {0};
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        if (strchr("$%", l[0])) {
            bool  twice   = l[1] == l[0];
            char *command = twice && WEFT_TEST_SANITIZED ? NULL : l + 2 + twice;
            if (args) check(file, args, &want);
            args = l[0] == '$' && command && !is_left_out(command) ? command : NULL;
            if (l[0] == '%' && command) prepare(command);
        } else if (args && strchr("|!?", l[0])) {
            weft_text_add(&want, "%s\n", l);
        }
    }
    if (args) check(file, args, &want);
    weft_text_fini(&want);
    free(text);
}

static void test_all(void **s)
{
    (void)s;
    glob_t g;
    assert_int_equal(glob("tests/golden/*.txt", 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        if (!TEST_HERE(i)) continue;
        test_files_begin();
        run_file(g.gl_pathv[i]);
        test_files_end();
    }
    globfree(&g);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
