/* A whole table: rows read once, predicted as often as constants change.
 *
 *     weft_estimate_batch *b;
 *     WEFT_TRY(weft_estimate_batch_load("rows.csv", "hardware-dir", &b));
 *     for (int i = 0; i < weft_estimate_batch_count(b); i++)
 *         if (weft_estimate_batch_row(b, constants, i, &p) != WEFT_OK) ... weft_error_text()
 *         names file and line
 */
#ifndef WEFT_ESTIMATE_BATCH_H
#define WEFT_ESTIMATE_BATCH_H

#include "estimate/estimate.h"

typedef struct weft_estimate_batch weft_estimate_batch;

weft_status weft_estimate_batch_load(const char *table, const char *hardware,
                                     weft_estimate_batch **out);
void        weft_estimate_batch_destroy(weft_estimate_batch *b);
/* Devices as c measured them (hardware.h).  WEFT_ERR_ARG: it measured none of the table's. */
weft_status weft_estimate_batch_learn(weft_estimate_batch *b, const weft_cluster *c);
int         weft_estimate_batch_count(const weft_estimate_batch *b);
const char *weft_estimate_batch_id(const weft_estimate_batch *b, int i);
weft_status weft_estimate_batch_row(const weft_estimate_batch *b,
                                    const weft_cost_constants *c, int i,
                                    weft_prediction *out);
/* Rows row[0..n): 6 numbers each (step_s, mem_bytes, fits, step_lo, step_hi, kind of engine); NAN
 * for a bad row.  For fitting. */
void weft_estimate_batch_run(const weft_estimate_batch *b, const weft_cost_constants *c,
                             const int *row, int n, double *out);

#endif
