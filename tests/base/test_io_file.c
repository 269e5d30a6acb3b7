/* A file read piece by piece while others change it: every way in which bytes can be missing is
 * one line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "support/files.h"

static void refuse(const weft_io_file *f, int64_t at, size_t n, const char *text)
{
    char buf[16];

    assert_int_equal(weft_io_file_read(f, at, buf, n), WEFT_ERR_IO);
    if (!strstr(weft_error_text(), text) || !strstr(weft_error_text(), f->path))
        fail_msg("'%s' lacks '%s'", weft_error_text(), text);
}

static void reads_any_piece(void **state)
{
    char path[256], buf[16] = "";
    (void)state;

    snprintf(path, sizeof path, "%s", test_files_path("a"));
    test_files_write(path, "0123456789", 10);
    for (int keep = 0; keep < 2; keep++) {
        weft_io_file f = {0};

        assert_int_equal(weft_io_file_open(path, keep, &f), WEFT_OK);
        assert_int_equal(f.bytes, 10);
        assert_int_equal(weft_io_file_read(&f, 3, buf, 4), WEFT_OK);
        assert_memory_equal(buf, "3456", 4);
        assert_int_equal(weft_io_file_read(&f, 10, buf, 0), WEFT_OK);
        refuse(&f, 8, 3, "truncated");
        weft_io_file_close(&f);
        weft_io_file_close(&f);
    }
}

static void missing_bytes_are_an_error(void **state)
{
    char         path[256], other[256];
    weft_io_file kept = {0}, named = {0};
    int          fd;
    (void)state;

    snprintf(path, sizeof path, "%s", test_files_path("b"));
    snprintf(other, sizeof other, "%s", test_files_path("c"));
    assert_int_equal(weft_io_file_open(path, true, &kept), WEFT_ERR_ARG);
    assert_int_equal(weft_io_file_open(test_files_path("."), true, &kept), WEFT_ERR_ARG);
    test_files_write(path, "0123456789", 10);
    assert_int_equal(weft_io_file_open(path, true, &kept), WEFT_OK);
    assert_int_equal(weft_io_file_open(path, false, &named), WEFT_OK);
    assert_int_equal(truncate(path, 5), 0);
    refuse(&kept, 4, 4, "was truncated while it was being read: it had 10 bytes, now 5");
    refuse(&named, 4, 4, "was truncated while it was being read: it had 10 bytes, now 5");
    test_files_write(other, "0123456789", 10);
    assert_int_equal(rename(other, path), 0);
    refuse(&named, 0, 1, "replaced");
    assert_int_equal(unlink(path), 0);
    refuse(&named, 0, 1, "removed");
    /* a device that fails: a descriptor that cannot be read */
    fd = open("/dev/null", O_WRONLY);
    assert_true(fd >= 0 && dup2(fd, kept.fd) == kept.fd);
    refuse(&kept, 0, 1, "cannot read");
    close(fd);
    weft_io_file_close(&kept);
    weft_io_file_close(&named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_any_piece),
        cmocka_unit_test(missing_bytes_are_an_error),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
