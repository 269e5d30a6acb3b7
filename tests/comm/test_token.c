/* The token file: made once, for its owner only, and read only if it is so. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/token.h"

static char dir[64], file[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-token-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(file, sizeof file, "%s/token", dir);
    unsetenv("WEFT_TOKEN_FILE");
    unsetenv("WEFT_INSECURE_NETWORK");
    setenv("XDG_CONFIG_HOME", dir, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char rm[128];
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    return system(rm);
}

static void put(const char *text, mode_t mode)
{
    unlink(file);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void refuses(const char *why)
{
    weft_comm_token t;
    assert_int_equal(weft_comm_token_read(file, &t), WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), why))
        fail_msg("'%s' is not in: %s", why, weft_error_text());
    assert_non_null(strstr(weft_error_text(), file));
}

#define TEXT "0123456789abcdef0123456789abcdef"

static void a_new_one_is_random_and_private(void **state)
{
    (void)state;
    struct stat     s;
    weft_comm_token a, b;
    umask(0);
    assert_int_equal(weft_comm_token_create(file), WEFT_OK);
    umask(022);
    assert_int_equal(stat(file, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
    assert_int_equal(s.st_size, 65);
    assert_int_equal(weft_comm_token_read(file, &a), WEFT_OK);
    assert_int_equal(weft_comm_token_create(file),
                     WEFT_ERR_ARG); /* and it is as it was */
    assert_non_null(strstr(weft_error_text(), "never overwritten"));
    assert_int_equal(weft_comm_token_read(file, &b), WEFT_OK);
    assert_memory_equal(&a.key, &b.key, sizeof a.key);
    unlink(file);
    assert_int_equal(symlink("/nowhere/else", file),
                     0); /* a prepared name is not followed */
    assert_int_equal(weft_comm_token_create(file), WEFT_ERR_ARG);
    unlink(file);
    assert_int_equal(weft_comm_token_create(file), WEFT_OK);
    assert_int_equal(weft_comm_token_read(file, &b), WEFT_OK);
    assert_memory_not_equal(&a.key, &b.key, sizeof a.key);
    assert_false(a.insecure);
}

static void what_others_could_read_is_refused(void **state)
{
    (void)state;
    static const mode_t open_mode[] = {0640, 0604, 0660, 0644, 0620, 0601, 0777};
    for (size_t i = 0; i < WEFT_COUNT(open_mode); i++) {
        put(TEXT, open_mode[i]);
        refuses("chmod 600");
    }
    put(TEXT, 0400);
    weft_comm_token t;
    assert_int_equal(weft_comm_token_read(file, &t), WEFT_OK);
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 12345, 0), 0);
        refuses("belongs to user 12345");
    }
}

static void what_is_no_token_is_refused(void **state)
{
    (void)state;
    char            large[4200];
    weft_comm_token t, u;
    unlink(file);
    refuses("No such file");
    put("", 0600);
    refuses("has 0 characters, at least 32");
    put("  0123456789abcdef0123456789abcde\n\n", 0600);
    refuses("has 31 characters");
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    put(large, 0600);
    refuses("more than 4096");
    large[64] = 0;
    put(large, 0600);
    refuses("is no random text");
    put("0123456789abcdef 123456789abcdef0", 0600); /* as no tool writes it */
    refuses("is no random text");
    put("0123456789abcdef\1"
        "123456789abcdef0",
        0600);
    refuses("is no random text");
    unlink(file);
    assert_int_equal(mkfifo(file, 0600), 0); /* and no waiting for a writer */
    refuses("not a regular file");
    unlink(file);
    assert_int_equal(mkdir(file, 0700), 0);
    refuses("not a regular file");
    rmdir(file);
    put(TEXT, 0600);
    assert_int_equal(weft_comm_token_read(file, &t), WEFT_OK);
    put("\n " TEXT "\r\n", 0600); /* what an editor adds does not count */
    assert_int_equal(weft_comm_token_read(file, &u), WEFT_OK);
    assert_memory_equal(&t, &u, sizeof t);
}

static weft_status find(const char *option, bool insecure, weft_comm_token *t)
{
    return weft_comm_token_find(
        &(weft_comm_token_options){.file = option, .insecure = insecure}, t);
}

static void options_win_over_variables_and_these_over_the_default(void **state)
{
    (void)state;
    weft_comm_token t, by_default;
    char            path[256], missing[160];
    snprintf(missing, sizeof missing, "%s/none", dir);
    unlink(file);
    assert_int_equal(find(NULL, false, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "weft token"));
    assert_non_null(strstr(weft_error_text(), "--insecure-network"));
    assert_int_equal(weft_comm_token_default(path, sizeof path), WEFT_OK);
    assert_int_equal(weft_comm_token_create(path), WEFT_OK); /* with its folder */
    assert_int_equal(find(NULL, false, &by_default), WEFT_OK);
    put(TEXT, 0600);
    setenv("WEFT_TOKEN_FILE", file, 1);
    assert_int_equal(find(NULL, false, &t), WEFT_OK);
    assert_memory_not_equal(&t.key, &by_default.key, sizeof t.key);
    assert_int_equal(find(path, false, &t), WEFT_OK);
    assert_memory_equal(&t.key, &by_default.key, sizeof t.key);
    assert_int_equal(find(NULL, true, &t), WEFT_OK);
    assert_true(t.insecure);
    setenv("WEFT_TOKEN_FILE", missing, 1); /* named and not there: no falling back */
    assert_int_equal(find(NULL, false, &t), WEFT_ERR_ARG);
    setenv("WEFT_INSECURE_NETWORK", "1", 1);
    assert_int_equal(find(NULL, false, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "contradict"));
    assert_int_equal(find(path, false, &t), WEFT_OK);
    assert_false(t.insecure);
    assert_int_equal(find(path, true, &t), WEFT_ERR_ARG);
    unsetenv("WEFT_TOKEN_FILE");
    assert_int_equal(find(NULL, false, &t), WEFT_OK);
    assert_true(t.insecure);
    setenv("WEFT_INSECURE_NETWORK", "0", 1);
    assert_int_equal(find(NULL, false, &t), WEFT_OK);
    assert_false(t.insecure);
    setenv("WEFT_INSECURE_NETWORK", "yes", 1);
    assert_int_equal(find(NULL, false, &t), WEFT_ERR_ARG);
}

/* Ranks of one membership prove the token and its key: another key, epoch or token is another
 * proof, and the same ones are the same. */
static void a_key_of_each_membership(void **state)
{
    (void)state;
    weft_comm_token t[5]                        = {0};
    uint8_t         key[2][WEFT_COMM_KEY_BYTES] = {{1}, {2}};
    for (int i = 0; i < 5; i++) t[i].key.byte[0] = i == 4;
    assert_int_equal(weft_comm_token_bind(&t[0], key[0], 3), WEFT_OK);
    assert_int_equal(weft_comm_token_bind(&t[1], key[0], 3), WEFT_OK);
    assert_int_equal(weft_comm_token_bind(&t[2], key[1], 3), WEFT_OK);
    assert_int_equal(weft_comm_token_bind(&t[3], key[0], 4), WEFT_OK);
    assert_int_equal(weft_comm_token_bind(&t[4], key[0], 3), WEFT_OK);
    assert_memory_equal(&t[0].key, &t[1].key, sizeof t[0].key);
    for (int i = 2; i < 5; i++)
        assert_memory_not_equal(&t[0].key, &t[i].key, sizeof t[0].key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_of_each_membership),
        cmocka_unit_test_setup_teardown(a_new_one_is_random_and_private, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_others_could_read_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_token_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            options_win_over_variables_and_these_over_the_default, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
