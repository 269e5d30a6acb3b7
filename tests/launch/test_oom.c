/* The kernel's counts of processes that it killed for want of memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "launch/oom.h"
#include "support/files.h"

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(test_files_path("%s", name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_folders(void)
{
    static const char *const list[] = {"proc",   "proc/self",     "sys",
                                       "sys/fs", "sys/fs/cgroup", "sys/fs/cgroup/job"};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        assert_int_equal(mkdir(test_files_path("%s", list[k]), 0777), 0);
}

static void groups_count_before_the_machine(void **state)
{
    char root[512];
    (void)state;
    make_folders();
    snprintf(root, sizeof root, "%s", test_files_path("proc"));
    root[strlen(root) - strlen("/proc")] = 0;
    assert_int_equal(weft_oom_count(root), -1);
    write_text("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
    assert_int_equal(weft_oom_count(root), 7);
    write_text("proc/self/cgroup", "3:memory:/old\n0::/job\n");
    assert_int_equal(weft_oom_count(root), 7); /* the group does not count */
    write_text("sys/fs/cgroup/job/memory.events", "low 0\noom 9\noom_kill 2\n");
    assert_int_equal(weft_oom_count(root), 2);
    write_text("sys/fs/cgroup/job/memory.events", "oom_kill\n");
    assert_int_equal(weft_oom_count(root), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_count_before_the_machine)};
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
