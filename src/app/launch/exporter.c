#include "launch/exporter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"

static void put_label(weft_text *t, const char *name, const char *value)
{
    weft_text_add(t, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            weft_text_add(t, "\\n");
        else if (*value == '"' || *value == '\\')
            weft_text_add(t, "\\%c", *value);
        else
            weft_text_put(t, value, 1);
    }
    weft_text_add(t, "\"");
}

static void put_head(weft_text *t, const char *name, const char *type, const char *help)
{
    weft_text_add(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* With the labels that all values have; further ones follow, and end_value. */
static void begin_value(const weft_exporter_job *j, weft_text *t, const char *name)
{
    weft_text_add(t, "%s{", name);
    put_label(t, "job", j->job);
    weft_text_add(t, ",");
    put_label(t, "host", j->host);
}

static void put_more(weft_text *t, const char *name, const char *value)
{
    weft_text_add(t, ",");
    put_label(t, name, value);
}

static void end_value(weft_text *t, double x)
{
    weft_text_add(t, "} ");
    weft_text_put_double(t, x);
    weft_text_add(t, "\n");
}

/* more: a further label, or NULL. */
static void put_value(const weft_exporter_job *j, weft_text *t, const char *name,
                      const char *more, const char *is, double x)
{
    begin_value(j, t, name);
    if (more) put_more(t, more, is);
    end_value(t, x);
}

static void put_one(const weft_exporter_job *j, weft_text *t, const char *name,
                    const char *help, double x)
{
    put_head(t, name, "gauge", help);
    put_value(j, t, name, NULL, NULL, x);
}

/* ---- status.json ---- */

/* NAN: it has none. */
static double get_number(const weft_doc *d, const char *key)
{
    const weft_node *n = weft_node_get(weft_doc_root(d), key);
    double           x;
    if (!n || n->kind == WEFT_NODE_NULL ||
        weft_doc_get_double(d, weft_doc_root(d), key, &x) != WEFT_OK)
        return NAN;
    return x;
}

static void put_status(const weft_exporter_job *j, const weft_doc *d, weft_text *t)
{
    static const struct {
        const char *key, *name, *help;
    } list[] = {
        {"steps", "weft_steps", "Steps of the job."},
        {"loss", "weft_loss", "Loss of the last step."},
        {"step_s", "weft_step_seconds", "Median of the newest steps."},
        {"predicted_step_s", "weft_predicted_step_seconds", "What the plan predicts."},
        {"tokens_per_s", "weft_tokens_per_second", "Tokens of a step by its median."},
        {"saved_step", "weft_checkpoint_step", "Step of the newest checkpoint."},
        {"copies", "weft_copies",
         "Hosts (on one host: ranks) that hold each part of the state, at least."},
    };
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        double x = get_number(d, list[k].key);
        if (isfinite(x)) put_one(j, t, list[k].name, list[k].help, x);
    }
    double saved_s = get_number(d, "saved_time");
    if (isfinite(saved_s))
        put_one(j, t, "weft_checkpoint_age_seconds", "Since the newest checkpoint.",
                j->now_s > saved_s ? j->now_s - saved_s : 0);
}

/* NULL: there is none.  *text is what it borrows. */
static weft_doc *read_status(const weft_exporter_job *j, char **text)
{
    char      path[4352];
    size_t    n;
    weft_doc *d = NULL;
    snprintf(path, sizeof path, "%s/status.json", j->folder);
    if (!*j->folder || !weft_io_exists(path)) return NULL;
    if (weft_io_read_file(path, text, &n) == WEFT_OK &&
        weft_doc_parse_json(path, *text, n, &d) == WEFT_OK &&
        weft_doc_root(d)->kind == WEFT_NODE_MAP)
        return d;
    weft_doc_destroy(d);
    return NULL;
}

/* ---- what the launcher knows ---- */

static void put_ranks(const weft_exporter_job *j, weft_text *t)
{
    char name[16];
    put_head(t, "weft_rank_alive", "gauge", "1: the rank has a process.");
    for (int r = 0; r < j->n_rank; r++) {
        snprintf(name, sizeof name, "%d", j->first + r);
        put_value(j, t, "weft_rank_alive", "rank", name, j->rank[r].alive);
    }
    if (j->is_program) return; /* its steps are not known */
    put_head(t, "weft_rank_step", "gauge", "The last step that the rank has committed.");
    for (int r = 0; r < j->n_rank; r++) {
        snprintf(name, sizeof name, "%d", j->first + r);
        put_value(j, t, "weft_rank_step", "rank", name, (double)j->rank[r].step);
    }
}

/* Ranks count them only where there is an agent. */
static double find_step(const weft_exporter_job *j, const weft_doc *d)
{
    double step = d ? get_number(d, "step") : 0;
    if (!isfinite(step)) step = 0;
    for (int r = 0; r < j->n_rank; r++)
        if ((double)j->rank[r].step > step) step = (double)j->rank[r].step;
    return step;
}

static void put_incidents(const weft_exporter_job *j, weft_text *t)
{
    put_head(t, "weft_incidents_total", "counter", "Incidents so far.");
    for (int k = 0; k < j->n_cause; k++) {
        begin_value(j, t, "weft_incidents_total");
        put_more(t, "cause", j->cause[k].cause);
        put_more(t, "level", j->cause[k].level);
        end_value(t, (double)j->cause[k].n);
    }
    if (!j->n_phase) return;
    put_head(t, "weft_recovery_seconds", "gauge",
             "Phases of the last incident after which a step was committed.");
    for (int k = 0; k < j->n_phase; k++)
        put_value(j, t, "weft_recovery_seconds", "phase", j->phase[k].name,
                  j->phase[k].seconds);
}

void weft_exporter_count(weft_exporter_counts *c, const char *cause, const char *level)
{
    int k = 0;
    while (k < c->n && (strcmp(c->of[k].cause, cause) || strcmp(c->of[k].level, level)))
        k++;
    if (k == WEFT_EXPORTER_MAX_CAUSE) return;
    if (k == c->n) {
        snprintf(c->of[k].cause, sizeof c->of->cause, "%s", cause);
        snprintf(c->of[c->n++].level, sizeof c->of->level, "%s", level);
    }
    c->of[k].n++;
}

void weft_exporter_print(const weft_exporter_job *j, weft_text *t)
{
    char     *text = NULL;
    weft_doc *d    = read_status(j, &text);
    if (!j->is_program)
        put_one(j, t, "weft_step", "The last committed step.", find_step(j, d));
    if (d) put_status(j, d, t);
    weft_doc_destroy(d);
    free(text);
    put_one(j, t, "weft_view_epoch", "Epoch of the newest view.", j->epoch);
    put_one(j, t, "weft_hosts", "Hosts of the newest view.", j->n_host);
    put_one(j, t, "weft_ranks", "Ranks on this host.", j->n_rank);
    put_ranks(j, t);
    if (j->is_program) {
        put_head(t, "weft_restarts_total", "counter",
                 "Times that all ranks of the program were started again.");
        put_value(j, t, "weft_restarts_total", NULL, NULL, j->n_restart);
    }
    put_incidents(j, t);
}
