/* What a build is called: the commit that it was made from, and the version alone where there is
 * no git; the header that says it is written once for each commit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/build.h"
#include "support/test.h"

static void the_commit_follows_the_version(void **state)
{
    (void)state;
    assert_string_equal(weft_cli_build(), WEFT_VERSION);
    assert_string_equal(weft_cli_commit(), "");
    weft_cli_set_commit("1234567-dirty");
    assert_string_equal(weft_cli_build(), WEFT_VERSION " 1234567-dirty");
    assert_string_equal(weft_cli_commit(), "1234567-dirty");
    weft_cli_set_commit("");
    assert_string_equal(weft_cli_build(), WEFT_VERSION);
}

static void run(const char *folder, const char *command)
{
    char line[400];
    snprintf(
        line, sizeof line,
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_CEILING_DIRECTORIES=/tmp; cd %s && { "
        "%s; } >/dev/null 2>&1",
        folder, command);
    if (system(line)) fail_msg("%s", line);
}

/* The header, in a file of its own; *made: when it was written. */
static const char *write_header(const char *tool, const char *folder,
                                struct timespec *made)
{
    static char text[200];
    char        command[400], path[200];
    struct stat s;
    snprintf(command, sizeof command, "%s src h", tool);
    run(folder, command);
    snprintf(path, sizeof path, "%s/h", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_int_equal(stat(path, &s), 0);
    *made = s.st_mtim;
    return text;
}

static void the_header_is_written_once(void **state)
{
    (void)state;
    char folder[] = "/tmp/weft-build-XXXXXX", tool[300], first[200], again[200];
    struct timespec a, b;
    if (system("git --version >/dev/null 2>&1")) skip();
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(tool, sizeof tool - 32));
    strcat(tool, "/tools/build_id.sh");
    run(folder, "mkdir src && echo 1 >src/file");
    assert_string_equal(write_header(tool, folder, &a), "#define WEFT_BUILD \"\"\n");
    run(folder, "git init -q src && cd src && git add file && git -c user.name=a -c "
                "user.email=a@b commit -q -m one");
    snprintf(first, sizeof first, "%s", write_header(tool, folder, &a));
    assert_true(strlen(first) > strlen("#define WEFT_BUILD \"\"\n") + 6);
    assert_null(strstr(first, "dirty"));
    assert_string_equal(write_header(tool, folder, &b), first);
    assert_true(a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec);
    run(folder, "echo 2 >src/file");
    snprintf(again, sizeof again, "%s", write_header(tool, folder, &b));
    assert_memory_equal(again, first, strlen(first) - 2);
    assert_non_null(strstr(again, "-dirty\"\n"));
    /* a folder in a repository of somebody else */
    run(folder, "mkdir src/src");
    char below[120];
    snprintf(below, sizeof below, "%s/src", folder);
    assert_string_equal(write_header(tool, below, &b), "#define WEFT_BUILD \"\"\n");
    run("/tmp", strcat(strcpy(tool, "rm -rf "), folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_commit_follows_the_version),
        cmocka_unit_test(the_header_is_written_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
