/* CSV in; see csv.h. */
#include "estimate/csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"

typedef struct reader {
    const char *at, *end, *file;
    int         line;
    weft_arena *arena;
} reader;

/* One cell up to ',', a line's end or the end; steps over the comma.  *last: it ended the record.
 */
static weft_status read_cell(reader *r, const char **out, bool *last)
{
    char *s, *w;
    if (r->at < r->end && *r->at == '"') {
        int         line = r->line;
        const char *p    = ++r->at;
        while (p < r->end && (*p != '"' || (p + 1 < r->end && p[1] == '"')))
            p += *p == '"' ? 2 : 1;
        if (p >= r->end)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: a quote is not closed", r->file, line);
        w = s = weft_arena_alloc(r->arena, (size_t)(p - r->at) + 1);
        if (!s) return weft_arena_status(r->arena);
        for (; r->at < p; r->at++) {
            if (*r->at == '\n') r->line++;
            if (*r->at == '"') r->at++;
            *w++ = *r->at;
        }
        r->at++;
    } else {
        const char *p = r->at;
        while (p < r->end && *p != ',' && *p != '\n' && *p != '\r') p++;
        s = weft_arena_strndup(r->arena, r->at, (size_t)(p - r->at));
        if (!s) return weft_arena_status(r->arena);
        r->at = p;
    }
    *out  = s;
    *last = true;
    if (r->at < r->end && *r->at == ',') {
        r->at++;
        *last = false;
        return WEFT_OK;
    }
    if (r->at < r->end && *r->at == '\r') r->at++;
    if (r->at < r->end && *r->at == '\n')
        r->at++, r->line++;
    else if (r->at < r->end)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: expected a comma after the cell '%.40s'",
                         r->file, r->line, s);
    return WEFT_OK;
}

static weft_status read_record(reader *r, const char ***cell, int *cap, int *n)
{
    bool last = false;
    for (*n = 0; !last; ++*n) {
        WEFT_TRY(weft_arena_grow(r->arena, (void **)cell, cap, *n + 1, sizeof(char *)));
        WEFT_TRY(read_cell(r, &(*cell)[*n], &last));
    }
    return WEFT_OK;
}

static bool blank(const char **cell, int n)
{
    return n == 1 && !cell[0][0];
}

static weft_status read_rows(reader *r, weft_csv *c)
{
    const char **cell = NULL;
    int          cap = 0, n = 0, room = 0, lines = 0;
    while (r->at < r->end) {
        int line = r->line;
        WEFT_TRY(read_record(r, &cell, &cap, &n));
        if (blank(cell, n)) continue;
        if (!c->column) {
            c->n_column = n;
            c->column   = weft_arena_memdup(c->arena, cell, sizeof(char *) * (size_t)n);
            if (!c->column) return weft_arena_status(c->arena);
            continue;
        }
        if (n > c->n_column)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %d cells under %d columns", r->file,
                             line, n, c->n_column);
        int row = c->n_row++;
        WEFT_TRY(weft_arena_grow(c->arena, (void **)&c->cell, &room,
                                 c->n_row * c->n_column, sizeof(char *)));
        WEFT_TRY(
            weft_arena_grow(c->arena, (void **)&c->line, &lines, c->n_row, sizeof(int)));
        for (int i = 0; i < c->n_column; i++)
            c->cell[row * c->n_column + i] = i < n ? cell[i] : "";
        c->line[row] = line;
        if (c->n_row > 1 << 22 || (int64_t)c->n_row * c->n_column > 1 << 28)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: too many rows", r->file);
    }
    if (!c->column)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: there is no header line", r->file);
    return WEFT_OK;
}

weft_status weft_csv_parse(const char *file, const char *text, size_t n, weft_csv **out)
{
    weft_arena *a;
    WEFT_TRY(weft_arena_create(&a));
    weft_csv *c = WEFT_ARENA_NEW(a, weft_csv);
    reader    r = {.at = text, .end = text + n, .line = 1, .arena = a};
    if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) r.at += 3;
    weft_status st = weft_arena_status(a);
    if (st == WEFT_OK && memchr(text, 0, n))
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: this is no text (it has a NUL byte)", file);
    if (st == WEFT_OK) {
        c->arena = a;
        c->file = r.file = weft_arena_strdup(a, file);
        st               = weft_arena_status(a);
    }
    if (st == WEFT_OK) st = read_rows(&r, c);
    if (st != WEFT_OK) {
        weft_arena_destroy(a);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status weft_csv_load(const char *path, weft_csv **out)
{
    char  *text;
    size_t n;
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_PIPES, &text, &n));
    weft_status st = weft_csv_parse(path, text, n, out);
    free(text);
    return st;
}

void weft_csv_destroy(weft_csv *c)
{
    if (c) weft_arena_destroy(c->arena);
}

int weft_csv_column(const weft_csv *c, const char *name)
{
    for (int i = 0; i < c->n_column; i++)
        if (!strcmp(c->column[i], name)) return i;
    return -1;
}

const char *weft_csv_cell(const weft_csv *c, int row, int column)
{
    return column < 0 ? "" : c->cell[row * c->n_column + column];
}
