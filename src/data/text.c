/* Text by bytes.  In: a file, a folder or a pattern.  Out: their bytes, end to end, in
 * the order of their paths (by bytes).  In folders hidden names, links to folders and
 * files with a NUL near their start (no text) are left out. */
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data_priv.h"

#define MAX_FILES 30000 /* each one is a map; the system allows some 65,000 */

typedef struct names {
    const char **s;
    int          n, cap;
} names;

static weft_status push(weft_data__stream *s, names *v, const char *path)
{
    if (v->n >= MAX_FILES)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "more than %d text files; join them first with weft data convert", MAX_FILES);
    WEFT_TRY(
        weft_arena_grow(s->arena, (void **)&v->s, &v->cap, v->n + 1, sizeof v->s[0]));
    v->s[v->n++] = weft_arena_strdup(s->arena, path);
    return weft_arena_status(s->arena);
}

static weft_status walk(weft_data__stream *s, names *v, const char *dir, int depth)
{
    DIR        *d  = opendir(dir);
    weft_status st = WEFT_OK;

    if (!d) return WEFT_FAIL(WEFT_ERR_ARG, "%s: the folder cannot be read", dir);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat info;
        char       *path;

        if (e->d_name[0] == '.') continue;
        path = weft_arena_printf(s->arena, "%s/%s", dir, e->d_name);
        WEFT_GO(weft_arena_status(s->arena));
        if (lstat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode) && depth < 64) WEFT_GO(walk(s, v, path, depth + 1));
        if (S_ISREG(info.st_mode) && info.st_size > 0) WEFT_GO(push(s, v, path));
    }
out:
    closedir(d);
    return st;
}

static weft_status collect(weft_data__stream *s, names *v, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return push(s, v, path);
    return walk(s, v, path, 0);
}

static weft_status expand(weft_data__stream *s, names *v, const char *pattern)
{
    glob_t      g  = {0};
    weft_status st = WEFT_OK;

    if (glob(pattern, 0, NULL, &g) != 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no file has such a name", pattern));
    for (size_t i = 0; i < g.gl_pathc; i++) WEFT_GO(collect(s, v, g.gl_pathv[i]));
out:
    globfree(&g);
    return st;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

weft_status weft_data__text_open(const char *path, weft_data__stream *s)
{
    names       v = {0};
    struct stat info;
    int         file;
    bool        one;

    s->dtype = WEFT_DTYPE_U8;
    if (!weft_io_exists(path) && strpbrk(path, "*?["))
        WEFT_TRY(expand(s, &v, path));
    else
        WEFT_TRY(collect(s, &v, path));
    one = stat(path, &info) != 0 || !S_ISDIR(info.st_mode);
    if (v.n > 1) qsort(v.s, (size_t)v.n, sizeof v.s[0], by_bytes);
    for (int i = 0; i < v.n; i++) {
        weft_io_map *m;

        WEFT_TRY(weft_data__stream_add_file(s, v.s[i], &file));
        m = &s->map[file];
        if (!(one && v.n == 1) && m->n && memchr(m->p, 0, m->n < 4096 ? m->n : 4096)) {
            weft_io_unmap(m);
            s->n_file--;
            continue;
        }
        WEFT_TRY(weft_data__stream_add_piece(s, file, 0, (int64_t)m->n));
    }
    if (s->n_token == 0) return WEFT_FAIL(WEFT_ERR_ARG, "%s: no text in it", path);
    return WEFT_OK;
}
