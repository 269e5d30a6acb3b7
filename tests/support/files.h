/* Files for tests: a scratch folder, whole files in and out. */
#ifndef TEST_SUPPORT_FILES_H
#define TEST_SUPPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* A fresh folder under TMPDIR; test_files_end removes it with all in it. */
const char *test_files_begin(void);
void        test_files_end(void);
/* The same for cmocka, around a test or all of them. */
int test_files_setup(void **state);
int test_files_teardown(void **state);
#define with_files(test)                                                                 \
    cmocka_unit_test_setup_teardown(test, test_files_setup, test_files_teardown)
/* "folder/name"; 64 answers stay valid at a time. */
const char *test_files_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void  test_files_write(const char *path, const void *p, size_t n);
char *test_files_read(const char *path, size_t *n); /* NUL-terminated; free() it */
bool  test_files_same(const char *a, const char *b);
void  test_files_copy_tree(const char *from, const char *to);
void  test_files_remove(const char *path); /* with all in it, if it is there */

#endif
