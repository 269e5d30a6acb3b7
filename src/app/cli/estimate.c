/* weft estimate: predictions for a table of configurations */
#include "estimate/batch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_estimate = {
    .name  = "estimate",
    .usage = "--table ROWS.csv --hardware DIR [options]",
    .about = "step time and memory of a table of training configurations",
    .more =
        "Writes id,step_s,mem_bytes,fits,step_lo,step_hi: seconds of a step, bytes of "
        "the\n"
        "fullest device, whether that fits, and a 90 % interval of the seconds.\n"
        "--cluster FILE: devices that weft cluster calibrate measured are as it says.\n"
        "DIR holds hardware.csv (devices) and network.csv (nodes and wires).  A knob "
        "that a\n"
        "row leaves empty (dp, micro_batch, vpp, recompute) is the best that fits.  A "
        "row\n"
        "that cannot be read is named on standard error and left empty.\n"
        "--explain ID breaks the prediction of one row down.  --set changes a constant:\n"
        "engine.NAME.TERM, device.NAME.TERM or link.NAME.TERM; --constants lists them.",
    .example = "weft estimate --table rows.csv --hardware machines > predictions.csv",
    .run     = run,
};

static void put_row(const char *id, const weft_prediction *p, weft_text *t)
{
    bool quote = strpbrk(id, ",\"\n\r") != NULL;
    if (quote) weft_text_put(t, "\"", 1);
    for (const char *s = id; *s; s++) {
        if (*s == '"') weft_text_put(t, "\"", 1);
        weft_text_put(t, s, 1);
    }
    if (quote) weft_text_put(t, "\"", 1);
    if (p)
        weft_text_add(t, ",%.6g,%.0f,%d,%.6g,%.6g\n", p->step_s, p->mem_bytes, p->fits,
                      p->step_lo, p->step_hi);
    else
        weft_text_add(t, ",,,,,\n");
}

static void put_json(const char *id, const weft_prediction *p, bool first, weft_text *t)
{
    weft_text_add(t, "%s\n {\"id\": ", first ? "[" : ",");
    weft_text_put_quoted(t, id);
    if (p)
        weft_text_add(t,
                      ", \"step_s\": %.6g, \"mem_bytes\": %.0f, \"fits\": %s, "
                      "\"step_lo\": %.6g, \"step_hi\": %.6g",
                      p->step_s, p->mem_bytes, p->fits ? "true" : "false", p->step_lo,
                      p->step_hi);
    weft_text_add(t, "}");
}

static void explain(const char *id, const weft_prediction *p, weft_text *t)
{
    const weft_cost_score *s = &p->score;
    weft_text_add(t, "%s: %.6g s a step (90 %%: %.6g to %.6g)\n", id, p->step_s,
                  p->step_lo, p->step_hi);
    weft_text_add(t, "  micro-batch %d, %d chunk%s a stage, recompute %s\n",
                  p->micro_batch, p->chunks, p->chunks > 1 ? "s" : "",
                  weft_cost_recompute_name(p->recompute));
    weft_cost_part time[WEFT_COST_N_TIME], mem[WEFT_COST_N_MEMORY];
    weft_cost_time_parts(s, time);
    weft_cost_memory_parts(s, mem);
    for (size_t i = 0; i < WEFT_COUNT(time); i++)
        weft_text_add(t, "  %-22s %11.6f s %5.1f %%\n", time[i].name, time[i].x,
                      100 * time[i].x / p->step_s);
    weft_text_add(t, "  %.2f GiB on a device of stage %d, %s (limit %.2f)\n",
                  p->mem_bytes / 1073741824, s->tightest,
                  p->fits ? "fits" : "does not fit", s->mem_limit / 1073741824);
    for (size_t i = 0; i < WEFT_COUNT(mem); i++)
        weft_text_add(t, "  %-22s %11.3f GiB\n", mem[i].name, mem[i].x / 1073741824);
}

/* The value of key=value words, one after another in list, parted by commas. */
static weft_status set_all(weft_cost_constants *c, const char *list)
{
    char key[160];
    while (list && *list) {
        size_t n = strcspn(list, ","), k = strcspn(list, "=");
        double v;
        char   value[64];
        if (k >= n || k >= sizeof(key) || n - k - 1 >= sizeof(value))
            return WEFT_FAIL(WEFT_ERR_ARG, "--set: expected NAME=VALUE, got '%.60s'",
                             list);
        snprintf(key, sizeof(key), "%.*s", (int)k, list);
        snprintf(value, sizeof(value), "%.*s", (int)(n - k - 1), list + k + 1);
        if (!weft_text_read_double(value, &v) || !isfinite(v))
            return WEFT_FAIL(WEFT_ERR_ARG, "--set %s: '%s' is no number", key, value);
        WEFT_TRY(weft_cost_constants_set(c, key, v));
        list += n + (list[n] == ',');
    }
    return WEFT_OK;
}

static void list_constants(const weft_cost_constants *c, weft_text *t)
{
    static const char *const name[] = {"device", "link", "engine"};
    for (int f = 0; f < WEFT_COST_N_FAMILY; f++)
        for (int k = 0; k < weft_cost_n_kind(c, (weft_cost_family)f); k++)
            for (int i = 0; i < weft_cost_n_term((weft_cost_family)f); i++) {
                bool   own;
                double v = weft_cost_value(c, (weft_cost_family)f, k, i, &own);
                const weft_cost_term *x = weft_cost_term_at((weft_cost_family)f, i);
                if (own)
                    weft_text_add(t, "%s.%s.%s=%.6g  %s%s%s\n", name[f],
                                  weft_cost_kind_name(c, (weft_cost_family)f, k), x->name,
                                  v, x->unit, *x->unit ? "  " : "", x->about);
            }
}

static weft_status predict(const weft_estimate_batch *b, const weft_cost_constants *c,
                           const char *only, bool json, weft_text *t, int *n_bad)
{
    bool first = true;
    if (!only && !json) weft_text_add(t, "id,step_s,mem_bytes,fits,step_lo,step_hi\n");
    for (int i = 0; i < weft_estimate_batch_count(b); i++) {
        const char     *id = weft_estimate_batch_id(b, i);
        weft_prediction p;
        if (only && strcmp(only, id)) continue;
        weft_status st = weft_estimate_batch_row(b, c, i, &p);
        if (st != WEFT_OK && st != WEFT_ERR_ARG) return st;
        if (st != WEFT_OK) {
            fprintf(stderr, "weft estimate: %s\n", weft_error_text());
            ++*n_bad;
        }
        if (only && st == WEFT_OK)
            explain(id, &p, t);
        else if (json)
            put_json(id, st == WEFT_OK ? &p : NULL, first, t);
        else if (!only)
            put_row(id, st == WEFT_OK ? &p : NULL, t);
        first = false;
    }
    if (json) weft_text_add(t, first ? "[]" : "\n]");
    if (only && first)
        return WEFT_FAIL(WEFT_ERR_ARG, "--explain: there is no row '%s'", only);
    return weft_text_status(t);
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_estimate;
    const char *table = NULL, *hardware = NULL, *out = NULL, *only = NULL, *set = NULL;
    const char *cluster = NULL;
    bool        json = false, constants = false;
    int         n_word = 0, n_bad = 0;
    weft_text   t                 = {0};
    weft_estimate_batch *b        = NULL;
    weft_cost_constants *k        = NULL;
    weft_cluster        *measured = NULL;
    weft_status          st       = WEFT_OK;
    weft_cli_option      option[] = {
             {"table", 0, WEFT_CLI_TEXT, &table, "FILE", "configurations, as CSV"},
             {"hardware", 0, WEFT_CLI_TEXT, &hardware, "DIR", "hardware.csv and network.csv"},
             {"cluster", 0, WEFT_CLI_TEXT, &cluster, "FILE", "devices as it measured them"},
             {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "write there"},
             {"explain", 0, WEFT_CLI_TEXT, &only, "ID", "break the step of one row down"},
             {"set", 0, WEFT_CLI_TEXT, &set, "K=V,...", "other constants than the built-in"},
             {"constants", 0, WEFT_CLI_FLAG, &constants, NULL, "list the constants"},
             {"json", 0, WEFT_CLI_FLAG, &json, NULL, "a list of objects"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(c, "unexpected '%s'", argv[0]);
    if (!constants && (!table || !hardware))
        return weft_cli_usage(c, "expected --table and --hardware");
    WEFT_GO(weft_cost_constants_create(&k));
    WEFT_GO(set_all(k, set));
    if (constants) {
        list_constants(k, &t);
    } else {
        WEFT_GO(weft_estimate_batch_load(table, hardware, &b));
        if (cluster) WEFT_GO(weft_cluster_load(cluster, NULL, &measured));
        if (cluster) WEFT_GO(weft_estimate_batch_learn(b, measured));
        WEFT_GO(predict(b, k, only, json, &t, &n_bad));
        if (n_bad && n_bad == weft_estimate_batch_count(b))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no row can be read", table));
    }
out:
    weft_estimate_batch_destroy(b);
    weft_cluster_destroy(measured);
    weft_cost_constants_destroy(k);
    if (st != WEFT_OK) {
        weft_text_fini(&t);
        return weft_cli_fail(c, st);
    }
    return weft_cli_put(c, &t, out);
}
