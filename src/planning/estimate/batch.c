/* Whole tables; see batch.h. */
#include "estimate/batch.h"

#include <math.h>

struct weft_estimate_batch {
    weft_csv      *csv;
    weft_hardware *hardware;
    weft_config   *config;
    bool          *good;
};

weft_status weft_estimate_batch_load(const char *table, const char *hardware,
                                     weft_estimate_batch **out)
{
    weft_csv            *csv = NULL;
    weft_hardware       *hw  = NULL;
    weft_estimate_batch *b;
    weft_status          st = WEFT_OK;
    WEFT_GO(weft_csv_load(table, &csv));
    if (weft_csv_column(csv, "id") < 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s:1: there is no column 'id'", table));
    WEFT_GO(weft_hardware_load(hardware, &hw));
    b = WEFT_ARENA_NEW(csv->arena, weft_estimate_batch);
    if (b) {
        b->csv      = csv;
        b->hardware = hw;
        b->config   = WEFT_ARENA_ARRAY(csv->arena, weft_config, csv->n_row + 1);
        b->good     = WEFT_ARENA_ARRAY(csv->arena, bool, csv->n_row + 1);
    }
    WEFT_GO(weft_arena_status(csv->arena));
    for (int i = 0; i < csv->n_row; i++)
        b->good[i] = weft_config_read(csv, i, &b->config[i]) == WEFT_OK;
    *out = b;
    return WEFT_OK;
out:
    weft_csv_destroy(csv);
    weft_hardware_destroy(hw);
    return st;
}

void weft_estimate_batch_destroy(weft_estimate_batch *b)
{
    if (!b) return;
    weft_hardware_destroy(b->hardware);
    weft_csv_destroy(b->csv); /* b lives in its arena */
}

weft_status weft_estimate_batch_learn(weft_estimate_batch *b, const weft_cluster *c)
{
    int n;
    WEFT_TRY(weft_hardware_learn(b->hardware, c, &n));
    return n ? WEFT_OK
             : WEFT_FAIL(
                   WEFT_ERR_ARG,
                   "cluster %s has measured no device of hardware.csv: weft cluster "
                   "calibrate does",
                   c->name);
}

int weft_estimate_batch_count(const weft_estimate_batch *b)
{
    return b->csv->n_row;
}

const char *weft_estimate_batch_id(const weft_estimate_batch *b, int i)
{
    return weft_csv_cell(b->csv, i, weft_csv_column(b->csv, "id"));
}

weft_status weft_estimate_batch_row(const weft_estimate_batch *b,
                                    const weft_cost_constants *c, int i,
                                    weft_prediction *out)
{
    weft_config again;
    if (!b->good[i]) return weft_config_read(b->csv, i, &again); /* says why */
    weft_status st = weft_estimate_row(b->hardware, c, &b->config[i], out);
    return st == WEFT_OK ? st
                         : weft_fail_in(st, "%s:%d: ", b->csv->file, b->csv->line[i]);
}

void weft_estimate_batch_run(const weft_estimate_batch *b, const weft_cost_constants *c,
                             const int *row, int n, double *out)
{
    for (int i = 0; i < n; i++, out += 6) {
        weft_prediction p;
        weft_status     st = weft_estimate_batch_row(b, c, row[i], &p);
        out[0]             = st == WEFT_OK ? p.step_s : NAN;
        out[1]             = st == WEFT_OK ? p.mem_bytes : NAN;
        out[2]             = st == WEFT_OK && p.fits;
        out[3]             = st == WEFT_OK ? p.step_lo : NAN;
        out[4]             = st == WEFT_OK ? p.step_hi : NAN;
        out[5] = weft_cost_kind_of(c, WEFT_COST_ENGINE, b->config[row[i]].framework);
    }
}
