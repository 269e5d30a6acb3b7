/* A CSV file with a header line (RFC 4180: quotes, quoted newlines), read-only, every row with
 * its line. */
#ifndef WEFT_ESTIMATE_CSV_H
#define WEFT_ESTIMATE_CSV_H

#include "base/arena.h"

typedef struct weft_csv {
    weft_arena  *arena;
    const char  *file;
    int          n_column, n_row;
    const char **column;
    const char **cell; /* [row][column]; "" where a row is short */
    int         *line; /* of each row */
} weft_csv;

weft_status weft_csv_parse(const char *file, const char *text, size_t n, weft_csv **out);
weft_status weft_csv_load(const char *path, weft_csv **out);
void        weft_csv_destroy(weft_csv *c);

int         weft_csv_column(const weft_csv *c, const char *name);  /* -1: none */
const char *weft_csv_cell(const weft_csv *c, int row, int column); /* "" for column -1 */

#endif
