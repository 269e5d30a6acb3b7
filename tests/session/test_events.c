/* Event files: what is written is what TensorBoard's format says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "session/events.h"
#include "support/files.h"

static char *event_file(const char *dir, size_t *n)
{
    DIR           *d = opendir(dir);
    struct dirent *e;
    char          *text = NULL;
    while ((e = readdir(d)))
        if (!strncmp(e->d_name, "events.out.tfevents.", 20))
            text = test_files_read(test_files_path("%s", e->d_name), n);
    closedir(d);
    return text;
}

static uint64_t le(const char *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--) x = x << 8 | (uint8_t)p[i];
    return x;
}

static uint32_t mask(uint32_t c)
{
    return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

/* Every record's length and both checksums hold; the scalar is where the format puts it.  Readers
 * drop steps behind `done` of older files, also where a run begins again from nothing. */
static void check_events(int64_t done)
{
    const char  *dir  = test_files_begin();
    const char   step = (char)(done + 1);
    weft_events *e;
    size_t       n, at = 0;
    int          n_record = 0;
    assert_int_equal(weft_events_open(dir, done, &e), WEFT_OK);
    assert_int_equal(
        weft_events_add(e, done + 1,
                        (weft_events_scalar[]){{"loss", 2.5}, {"grad_norm", 1}}, 2),
        WEFT_OK);
    assert_int_equal(weft_events_close(e), WEFT_OK);
    char *b = event_file(dir, &n);
    assert_non_null(b);
    for (; at < n; n_record++) {
        uint64_t    len  = le(b + at, 8);
        const char *body = b + at + 12 + 9; /* after the wall time */
        assert_true(at + 16 + len <= n);
        assert_int_equal(le(b + at + 8, 4), mask(weft_hash_crc32c(0, b + at, 8)));
        assert_int_equal(le(b + at + 12 + len, 4),
                         mask(weft_hash_crc32c(0, b + at + 12, len)));
        assert_int_equal(body[0], 0x10);
        assert_int_equal(body[1], n_record == 0 ? 0 : step);
        if (n_record == 0)
            assert_memory_equal(body + 2,
                                "\x1a\x0d"
                                "brain.Event:2",
                                15);
        if (n_record == 1) assert_memory_equal(body + 2, "\x3a\x02\x08\x01", 4);
        if (n_record == 2)
            assert_memory_equal(body + 2,
                                "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x20\x40", 15);
        at += 16 + len;
    }
    assert_int_equal(n_record, 4);
    free(b);
    test_files_end();
}

static void test_events(void **s)
{
    (void)s;
    check_events(3);
    check_events(0);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
