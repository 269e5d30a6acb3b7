/* Data that get shorter under weft train and weft run: a line that names the file, exit 1, no
 * signal.  A rank that hears of it from another one says so in a line of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/text.h"
#include "support/files.h"

#define TRUNCATED "was truncated while it was being read: it had 40000 bytes, now 4096\n"

enum {
    N = 20000
};

/* Truncates the data once the first step is written down. */
static const char script[] =
    "%s %s model=tests/fixtures/gpt2/init data=%s seq=12 batch=4 micro_batch=1 threads=1 "
    "shuffle=true steps=100000000 output=%s -q >%s 2>&1 & p=$!\n"
    "for i in $(seq 1200); do test -s %s/metrics.jsonl && break; sleep 0.05; done\n"
    "truncate -s 4096 %s\n"
    "for i in $(seq 1200); do kill -0 $p 2>/dev/null || break; sleep 0.05; done\n"
    "kill -9 $p 2>/dev/null\n"
    "wait $p\n";

static void check(const char *command, const char *name, int ranks)
{
    static uint16_t token[N];
    char            data[256], out[256], log[256];
    weft_text       t = {0};
    size_t          n;

    for (int i = 0; i < N; i++) token[i] = (uint16_t)(i * 7 % 61);
    snprintf(data, sizeof data, "%s", test_files_path("%s.bin", name));
    snprintf(out, sizeof out, "%s", test_files_path("%s", name));
    snprintf(log, sizeof log, "%s", test_files_path("%s.log", name));
    test_files_write(data, token, sizeof token);
    weft_text_add(&t, script, WEFT_TEST_COMMAND, command, data, out, log, out, data);
    int   how  = system(t.s);
    char *said = test_files_read(log, &n);
    int   line = 0, named = 0;
    for (char *at = said; *at; at++) line += *at == '\n';
    for (char *at = said; (at = strstr(at, TRUNCATED)); at++) named++;
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 1 || !named || named != line ||
        line > ranks)
        fail_msg("%s: %d: %s", command, WIFEXITED(how) ? WEXITSTATUS(how) : -1, said);
    free(said);
    weft_text_fini(&t);
}

static void one_process(void **state)
{
    (void)state;
    check("train plan=off", "one", 1);
}

static void two_ranks(void **state)
{
    (void)state;
    check("run --nproc-per-node 2 dp=2", "two", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_process),
                                       cmocka_unit_test(two_ranks)};
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
