/* Text by bytes.  In: a file, a folder or a pattern.  Out: their bytes, end to end, in the order
 * of their paths (by bytes).
 *
 *     a file, a pattern's matches   must be text: by their endings (kind.c) and their first bytes
 *     in a folder                   hidden names, links to folders and binary files are left out;
 *                                   so is text with an unknown ending, unless it is most of what
 *                                   is there: then the folder is refused, as it is where it holds
 *                                   tokens, records or a model
 *     data_format: text             takes a file as it is, and of a folder everything without a
 *     NUL near its start */
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data_priv.h"

enum {
    MAX_FILES = 30000,
    KEEP_FD   = 8,       /* with more files, each is opened when it is read */
    LOOK      = 1 << 14, /* bytes of a file that show whether it is text */
    LOOK_NUL  = 4096,
};

typedef struct text_name {
    const char *path;
    bool        walked; /* found in a folder, not named by the user */
} text_name;

typedef struct text_files {
    weft_data__stream *s;
    bool               forced;
    text_name         *name;
    int                n, cap;
    const char        *left; /* a text file that was left out for its ending */
    int                n_left, n_binary;
} text_files;

static weft_status push(text_files *t, const char *path, bool walked)
{
    if (t->n >= MAX_FILES)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "more than %d text files; join them first with weft data convert", MAX_FILES);
    WEFT_TRY(weft_arena_grow(t->s->arena, (void **)&t->name, &t->cap, t->n + 1,
                             sizeof t->name[0]));
    t->name[t->n++] = (text_name){weft_arena_strdup(t->s->arena, path), walked};
    return weft_arena_status(t->s->arena);
}

static weft_status refuse_model(const char *path)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is a model folder (it holds config.json), not data; "
                     "data_format: text reads the text in it",
                     path);
}

/* A config.json below the folder that was named: a model's, or one of a program's? */
static weft_status check_config(const text_files *t, const char *dir, const char *path)
{
    char  *text = NULL;
    size_t n    = 0;
    bool   model;

    if (t->forced || strcmp(strrchr(path, '/'), "/config.json")) return WEFT_OK;
    if (weft_io_read_file(path, &text, &n) != WEFT_OK) return WEFT_OK;
    model = strstr(text, "\"model_type\"") || strstr(text, "\"architectures\"");
    free(text);
    return model ? refuse_model(dir) : WEFT_OK;
}

static weft_status walk(text_files *t, const char *dir, int depth)
{
    DIR        *d  = opendir(dir);
    weft_status st = WEFT_OK;

    if (!d) return WEFT_FAIL(WEFT_ERR_ARG, "%s: the folder cannot be read", dir);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat info;
        char       *path;

        if (e->d_name[0] == '.') continue;
        path = weft_arena_printf(t->s->arena, "%s/%s", dir, e->d_name);
        WEFT_GO(weft_arena_status(t->s->arena));
        if (lstat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode) && depth < 64) WEFT_GO(walk(t, path, depth + 1));
        if (S_ISREG(info.st_mode) && info.st_size > 0) {
            WEFT_GO(check_config(t, dir, path));
            WEFT_GO(push(t, path, true));
        }
    }
out:
    closedir(d);
    return st;
}

static weft_status check_folder(const text_files *t, const char *path)
{
    char *config = weft_arena_printf(t->s->arena, "%s/config.json", path);

    WEFT_TRY(weft_arena_status(t->s->arena));
    if (t->forced || !weft_io_exists(config)) return WEFT_OK;
    return refuse_model(path);
}

static weft_status collect(text_files *t, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return push(t, path, false);
    WEFT_TRY(check_folder(t, path));
    return walk(t, path, 0);
}

static weft_status expand(text_files *t, const char *pattern)
{
    glob_t      g  = {0};
    weft_status st = WEFT_OK;

    if (glob(pattern, 0, NULL, &g) != 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no file has such a name", pattern));
    for (size_t i = 0; i < g.gl_pathc; i++) WEFT_GO(collect(t, g.gl_pathv[i]));
out:
    globfree(&g);
    return st;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const text_name *)a)->path, ((const text_name *)b)->path);
}

/* A folder with samples of a format that is not read as text. */
static weft_status refuse_folder(const text_files *t, const char *path, const char *file)
{
    const char *ending = weft_data__ending(file);
    int         n      = 0;

    for (int i = 0; i < t->n; i++)
        n += !strcmp(weft_data__ending(t->name[i].path), ending);
    if (weft_data__kind_of(file) == WEFT_DATA__KIND_TOKENS)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a folder of %d .%s file%s, such as %s: one file of "
                         "tokens is read, not a folder "
                         "of them: join them into one, or set data_format: text to read "
                         "the text there "
                         "(docs/data.md)",
                         path, n, ending, n == 1 ? "" : "s", file);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s holds %d .%s file%s, such as %s, which weft does not read: turn "
                     "them into one .bin "
                     "(docs/data.md), or set data_format: text to read the text there",
                     path, n, ending, n == 1 ? "" : "s", file);
}

/* json, csv and tsv are in many folders of source code: not reason enough to refuse one. */
static bool is_common(const char *path)
{
    const char *e = weft_data__ending(path);

    return !strcmp(e, "json") || !strcmp(e, "csv") || !strcmp(e, "tsv");
}

/* *take: is file i of the stream, opened by name[k], text that is to be read? */
static weft_status judge(text_files *t, const char *path, const text_name *name,
                         const weft_io_file *f, bool *take)
{
    weft_data__kind kind = weft_data__kind_of(name->path);
    uint8_t         buf[LOOK];
    int64_t         n = f->bytes < LOOK ? f->bytes : LOOK, bad;

    *take = true;
    if (!name->walked && !t->forced && kind != WEFT_DATA__KIND_TEXT &&
        kind != WEFT_DATA__KIND_PLAIN)
        return weft_data__refuse_kind(name->path);
    if (name->walked && !t->forced &&
        (kind == WEFT_DATA__KIND_TOKENS ||
         (kind == WEFT_DATA__KIND_FOREIGN && !is_common(name->path))))
        return refuse_folder(t, path, name->path);
    if (!name->walked && t->forced) return WEFT_OK;
    WEFT_TRY(weft_io_file_read(f, 0, buf, (size_t)n));
    if (t->forced) {
        *take = !memchr(buf, 0, (size_t)(n < LOOK_NUL ? n : LOOK_NUL));
        t->n_binary += !*take;
        return WEFT_OK;
    }
    bad = weft_data__find_binary(buf, n);
    if (bad >= 0 && !name->walked)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: byte %lld is 0x%02x, which no text has; data_format: text "
                         "reads it anyway",
                         name->path, (long long)bad, buf[bad]);
    *take = bad < 0 && (kind == WEFT_DATA__KIND_TEXT || kind == WEFT_DATA__KIND_PLAIN);
    t->n_binary += bad >= 0;
    if (bad < 0 && !*take) {
        t->left = name->path;
        t->n_left++;
    }
    return WEFT_OK;
}

static weft_status add_files(text_files *t, const char *path)
{
    weft_data__stream *s = t->s;

    for (int i = 0; i < t->n; i++) {
        bool take;
        int  file;

        WEFT_TRY(weft_data__stream_add_file(s, t->name[i].path, &file));
        WEFT_TRY(judge(t, path, &t->name[i], &s->file[file], &take));
        if (take) {
            WEFT_TRY(weft_data__stream_add_piece(s, file, 0, s->file[file].bytes));
        } else {
            weft_io_file_close(&s->file[file]);
            s->n_file--;
        }
    }
    if (t->n_left > s->n_file)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: %d of its files have endings that weft does not know as "
                         "text, such as %s; "
                         "%d do: set data_format: text to read all of them",
                         path, t->n_left, t->left, s->n_file);
    return WEFT_OK;
}

weft_status weft_data__text_open(const char *path, bool forced, weft_data__stream *s)
{
    text_files t = {.s = s, .forced = forced};

    s->dtype = WEFT_DTYPE_U8;
    if (!weft_io_exists(path) && strpbrk(path, "*?["))
        WEFT_TRY(expand(&t, path));
    else
        WEFT_TRY(collect(&t, path));
    s->keep_fd = t.n <= KEEP_FD;
    if (t.n > 1) qsort(t.name, (size_t)t.n, sizeof t.name[0], compare_names);
    WEFT_TRY(add_files(&t, path));
    if (s->n_token == 0) return WEFT_FAIL(WEFT_ERR_ARG, "%s: no text in it", path);
    if (t.n_left || t.n_binary)
        s->note = weft_arena_printf(
            s->arena, "left out: %d binary files, %d with an unknown ending%s%s",
            t.n_binary, t.n_left, t.left ? ", such as " : "", t.left ? t.left : "");
    return weft_arena_status(s->arena);
}
