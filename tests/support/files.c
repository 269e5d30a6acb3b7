#include "support/files.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];

static void die(const char *what, const char *path)
{
    fprintf(stderr, "tests/support/files: %s: ", path);
    perror(what);
    _exit(1);
}

const char *test_files_begin(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root, sizeof root, "%s/weft-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) die("mkdtemp", root);
    return root;
}

static void walk(const char *path, const char *to)
{
    struct stat st;
    DIR        *d;

    if (lstat(path, &st) != 0) return;
    if (!S_ISDIR(st.st_mode)) {
        if (to) {
            size_t n;
            char  *p = test_files_read(path, &n);
            test_files_write(to, p, n);
            free(p);
        } else {
            unlink(path);
        }
        return;
    }
    if (to && mkdir(to, 0777) != 0) die("mkdir", to);
    d = opendir(path);
    if (!d) die("opendir", path);
    for (struct dirent *e; (e = readdir(d));) {
        char sub[1024], sub_to[1024];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (to) snprintf(sub_to, sizeof sub_to, "%s/%s", to, e->d_name);
        walk(sub, to ? sub_to : NULL);
    }
    closedir(d);
    if (!to) rmdir(path);
}

void test_files_remove(const char *path)
{
    walk(path, NULL);
}

void test_files_end(void)
{
    if (root[0]) walk(root, NULL);
    root[0] = 0;
}

int test_files_setup(void **state)
{
    (void)state;
    test_files_begin();
    return 0;
}

int test_files_teardown(void **state)
{
    (void)state;
    test_files_end();
    return 0;
}

void test_files_copy_tree(const char *from, const char *to)
{
    walk(from, to);
}

const char *test_files_path(const char *fmt, ...)
{
    static char     ring[64][1024];
    static unsigned next;
    char           *s = ring[next++ % 64];
    int             n = snprintf(s, 1024, "%s/", root);
    va_list         ap;

    va_start(ap, fmt);
    vsnprintf(s + n, (size_t)(1024 - n), fmt, ap);
    va_end(ap);
    return s;
}

void test_files_write(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || (n && fwrite(p, 1, n, f) != n) || fclose(f) != 0) die("write", path);
}

char *test_files_read(const char *path, size_t *n)
{
    FILE  *f   = fopen(path, "rb");
    char  *s   = NULL;
    size_t cap = 0, k;

    *n = 0;
    if (!f) die("read", path);
    do {
        s = realloc(s, (cap += 65536) + 1);
        if (!s) die("realloc", path);
        k = fread(s + *n, 1, cap - *n, f);
        *n += k;
    } while (k > 0);
    fclose(f);
    s[*n] = 0;
    return s;
}

bool test_files_same(const char *a, const char *b)
{
    size_t n, m;
    char  *p = test_files_read(a, &n), *q = test_files_read(b, &m);
    bool   same = n == m && memcmp(p, q, n) == 0;

    free(p);
    free(q);
    return same;
}
