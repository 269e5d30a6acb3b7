/* What was measured or recommended in tables: nanotron's grid, NVIDIA's recipes, ERNIE's weak
 * scaling. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rediscover.h"

/* ---- nanotron's grid ---- */

typedef struct cell {
    const char *name;
    double      best_s, picked_s, predicted_s, of_best_s;
    char        picked[64], best[64];
} cell;

static void put_row(const weft_config *c, char *out, size_t n)
{
    snprintf(out, n, "tp%d pp%d dp%d mb%d zero%d", c->tp, c->pp, c->dp, c->micro_batch,
             c->zero);
}

/* Of each (model, size) the row predicted fastest of those predicted to fit, beside the fastest
 * measured. */
weft_status bench_cells(const bench *b)
{
    weft_csv *csv  = NULL;
    weft_text path = {0};
    cell      x[40];
    int       n = 0, within = 0;
    weft_text_add(&path, "%s/calibrate/nanotron.csv", b->dir);
    WEFT_TRY(weft_csv_load(path.s, &csv));
    for (int i = 0; i < csv->n_row; i++) {
        const char *name = weft_csv_cell(csv, i, weft_csv_column(csv, "group"));
        double      s    = atof(weft_csv_cell(csv, i, weft_csv_column(csv, "step_s")));
        bool ok = !strcmp(weft_csv_cell(csv, i, weft_csv_column(csv, "status")), "ok");
        weft_config     c;
        weft_prediction y;
        int             k = 0;
        if (!*name ||
            !strcmp(weft_csv_cell(csv, i, weft_csv_column(csv, "suspect")), "1"))
            continue;
        WEFT_TRY(weft_config_read(csv, i, &c));
        WEFT_TRY(weft_estimate_row(b->h, b->k, &c, &y));
        while (k < n && strcmp(x[k].name, name)) k++;
        if (k == 40) break;
        if (k == n)
            x[n++] = (cell){.name        = name,
                            .best_s      = INFINITY,
                            .picked_s    = NAN,
                            .predicted_s = INFINITY};
        if (ok && s < x[k].best_s) {
            x[k].best_s    = s;
            x[k].of_best_s = y.step_s;
            put_row(&c, x[k].best, sizeof x[k].best);
        }
        if (y.fits && y.step_s < x[k].predicted_s) {
            x[k].predicted_s = y.step_s;
            x[k].picked_s    = ok ? s : NAN;
            put_row(&c, x[k].picked, sizeof x[k].picked);
        }
    }
    printf("\nnanotron's grid: the cell predicted fastest beside the fastest measured\n\n"
           "| cell | measured best | picked | measured, over the best "
           "|\n|---|---|---|---|\n");
    for (int k = 0; k < n; k++) {
        double over = x[k].picked_s / x[k].best_s - 1;
        within += over <= 0.03;
        printf("| %s | %s, %.3g s | %s | ", x[k].name + 9, x[k].best, x[k].best_s,
               strcmp(x[k].best, x[k].picked) ? x[k].picked : "the same");
        if (isnan(over))
            printf("did not run |\n");
        else
            printf("%.1f %% |\n", 100 * over);
    }
    printf("\nWithin 3 %%: %d of %d.\n", within, n);
    weft_csv_destroy(csv);
    weft_text_fini(&path);
    return WEFT_OK;
}

/* ---- recipes ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The row's degrees fixed, next to everything open, both within the same engine; weights are
 * sharded only where the recipe does. */
static weft_status recipe(const bench *b, const weft_config *c, bool same_micro,
                          double *regret)
{
    weft_search_limits   l = weft_search_limits_of(c->framework);
    weft_search_machines m;
    weft_search_result  *r = NULL, *own = NULL;
    weft_text            t = {0}, u = {0};
    weft_status          st = WEFT_OK;
    if (c->zero < 2) l.zero = l.zero_pp = 3;
    l.layout = true;
    WEFT_TRY(bench_machines(b, c->hw, c->net, c->n_node, c->dev_per_node, &m));
    weft_search_problem p = {.machines = &m, .batch = c->global_batch, .n_best = 1};
    weft_search_open(&p.constraints);
    if (same_micro) p.constraints.micro_batch = c->micro_batch;
    WEFT_TRY(weft_search_transformer(c, b->k, &l, b->a, &p.model));
    WEFT_TRY(weft_search_run(&p, &r));
    weft_search_fix(&p.constraints, WEFT_KEY_tp, c->tp);
    weft_search_fix(&p.constraints, WEFT_KEY_cp, c->cp);
    weft_search_fix(&p.constraints, WEFT_KEY_ep, c->ep);
    weft_search_fix(&p.constraints, WEFT_KEY_pp, c->pp);
    weft_search_fix(&p.constraints, WEFT_KEY_dp, c->dp);
    weft_search_fix(&p.constraints, WEFT_KEY_zero, c->zero);
    p.constraints.micro_batch = c->micro_batch;
    if (c->pp > 1 && c->vpp > 0) weft_search_fix(&p.constraints, WEFT_KEY_chunks, c->vpp);
    WEFT_GO(weft_search_run(&p, &own));
    *regret = own->choice[0].score.step_s / r->choice[0].score.step_s - 1;
    bench_put_choice(&r->choice[0], &t);
    bench_put_choice(&own->choice[0], &u);
    if (b->show)
        printf("%s %s %s L%d h%d e%d gbs %d seq %d %s | %s | %.4g s | %s | %.4g s | %.1f "
               "%%\n",
               c->id, c->hw, c->framework, c->layers, c->hidden, c->experts,
               c->global_batch, c->seq, c->features, u.s, own->choice[0].score.step_s,
               t.s, r->choice[0].score.step_s, 100 * *regret);
out:
    weft_text_fini(&t);
    weft_text_fini(&u);
    weft_search_destroy(r);
    weft_search_destroy(own);
    return st;
}

weft_status bench_recipes(const bench *b)
{
    weft_csv *csv  = NULL;
    weft_text path = {0};
    int       n[2] = {0}, within[2] = {0}, none = 0;
    double    all[2][400];
    weft_text_add(&path, "%s/calibrate/bridge.csv", b->dir);
    /* recipes fill the memory to the brim, and what they need is known to a tenth */
    WEFT_TRY(weft_cost_constants_set(b->k, "engine.megatron-bridge.mem_limit", 1.0));
    WEFT_TRY(
        weft_cost_constants_set(b->k, "engine.megatron-bridge-26.06.mem_limit", 1.0));
    WEFT_TRY(weft_csv_load(path.s, &csv));
    for (int i = 0; i < csv->n_row && i < 400; i++) {
        weft_config c;
        WEFT_TRY(weft_config_read(csv, i, &c));
        if (!strcmp(weft_csv_cell(csv, i, weft_csv_column(csv, "suspect")), "1"))
            continue;
        for (int k = 0; k < 2; k++) {
            double *x = &all[k][n[k]];
            if (recipe(b, &c, k, x) != WEFT_OK) {
                none += k;
                if (b->show) printf("%s: %s\n", c.id, weft_error_text());
                continue;
            }
            within[k] += *x <= 0.03;
            n[k]++;
        }
    }
    printf("\nNVIDIA's recipes (Megatron-Bridge, %d rows; %d that the model says do not "
           "fit are left out)\n\n| | within 3 %% | median | nine in ten below | most |\n"
           "|---|---|---|---|---|\n",
           n[0] + none, none);
    for (int k = 0; k < 2; k++) {
        qsort(all[k], (size_t)n[k], sizeof **all, by_size);
        printf("| %s | %d of %d | %.1f %% | %.1f %% | %.1f %% |\n",
               k ? "at the recipe's micro-batch" : "all open", within[k], n[k],
               100 * all[k][n[k] / 2], 100 * all[k][n[k] * 9 / 10],
               100 * all[k][n[k] - 1]);
    }
    weft_csv_destroy(csv);
    weft_text_fini(&path);
    return WEFT_OK;
}

/* ---- ERNIE 3.0 Titan ---- */

typedef struct network {
    const char *name;
    double      taper;  /* of the switch over pods of 64 nodes */
    double      spread; /* standard deviation of a device's speed */
} network;

static weft_status ernie_machines(const bench *b, const network *w, int n_node,
                                  weft_search_machines *m)
{
    weft_cluster *k = NULL;
    weft_text     t = {0};
    weft_status   st;
    weft_text_add(
        &t,
        "name: ernie\ndevice:\n  - {name: npu, like: ascend910}\nlink:\n"
        "  - {name: hccs, alpha_s: 1e-05, Bps: 3e10}\n"
        "  - {name: roce, scope: net, alpha_s: 6e-06, Bps: 1.25e10}\nnode:\n"
        "  - {name: box, count: %d, device: npu, n_device: 8, link: hccs, net: "
        "roce, n_port: 8}\nswitch:\n  - {name: pod, span: 64, alpha_s: 0, taper: "
        "1}\n  - {name: spine, span: 0, alpha_s: 1e-06, oversubscription: %g}\n",
        n_node, w->taper);
    st = weft_cluster_parse("ernie", t.s, t.n, &k);
    if (st == WEFT_OK) st = weft_search_machines_of(k, b->k, b->a, m);
    /* every step waits for the slowest of all */
    double slow = 1 - w->spread * sqrt(2 * log(8.0 * n_node));
    for (int i = 0; st == WEFT_OK && i < m->kind[0].device.n_rate; i++)
        m->kind[0].rate[i].flops *= slow;
    if (st == WEFT_OK) m->kind[0].device.mem_Bps *= slow;
    weft_cluster_destroy(k);
    weft_text_fini(&t);
    return st;
}

static weft_status ernie_step(const bench *b, const network *w, int n_node, double each,
                              bool by_hand, double *rate, char *plan, size_t n)
{
    weft_search_limits   l = weft_search_limits_of("paddle");
    weft_search_machines m;
    weft_search_result  *r = NULL;
    weft_config          x;
    weft_text            t     = {0};
    int                  batch = (int)(8 * n_node * each);
    sizes                z     = {48, 12288, 192, 0, 16 * 12288, 51200, 512, batch};
    bench_config(&x, "Paddle", &z);
    x.precision = "fp16";
    WEFT_TRY(ernie_machines(b, w, n_node, &m));
    WEFT_TRY(weft_config_complete("ernie", &x));
    weft_search_problem p = {.machines = &m, .batch = batch, .n_best = 1};
    weft_search_open(&p.constraints);
    weft_search_fix(&p.constraints, WEFT_KEY_tp, by_hand ? 8 : -1);
    weft_search_fix(&p.constraints, WEFT_KEY_pp, by_hand ? 10 : -1);
    weft_search_fix(&p.constraints, WEFT_KEY_cp, by_hand ? 1 : -1);
    WEFT_TRY(weft_search_transformer(&x, b->k, &l, b->a, &p.model));
    WEFT_TRY(weft_search_run(&p, &r));
    *rate = batch / r->choice[0].score.step_s / n_node;
    bench_put_choice(&r->choice[0], &t);
    snprintf(plan, n, "%s", t.s);
    weft_text_fini(&t);
    weft_search_destroy(r);
    return WEFT_OK;
}

weft_status bench_ernie(const bench *b)
{
    static const network net[] = {
        {"no switch in the way, all alike", 1, 0},
        {"0.8 of the ports over pods of 512, speeds spread by 1 %", 0.8, 0.01},
        {"two thirds, 2 %", 0.667, 0.02},
        {"half, 2 %", 0.5, 0.02}};
    static const double each[] = {0.5, 1, 2};
    double              low = 1e9, high = 0;
    printf("\nERNIE 3.0 Titan 260B (48 layers, 12,288 wide, feed-forward 16 times as "
           "wide), ascend910, "
           "sequences of 512: weak scaling from 480 devices; the paper says 91.7 %% on "
           "1,920\n\n| network | sequences a device | tp8 pp10, 1,920 | planned, 1,920 | "
           "3,840 | plan on 1,920 "
           "| over tp8 pp10 |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < WEFT_COUNT(net); i++)
        for (size_t k = 0; k < WEFT_COUNT(each); k++) {
            double hand[2], own[3];
            char   plan[256], at[256];
            for (int n = 0; n < 2; n++)
                WEFT_TRY(ernie_step(b, &net[i], n ? 240 : 60, each[k], true, &hand[n],
                                    plan, sizeof plan));
            for (int n = 0; n < 3; n++) {
                WEFT_TRY(ernie_step(b, &net[i],
                                    n == 0   ? 60
                                    : n == 1 ? 240
                                             : 480,
                                    each[k], false, &own[n], plan, sizeof plan));
                if (n == 1) memcpy(at, plan, sizeof at);
            }
            low  = fmin(low, hand[1] / hand[0]);
            high = fmax(high, hand[1] / hand[0]);
            printf("| %s | %g | %.1f %% | %.1f %% | %.1f %% | %s | %.2f times |\n",
                   net[i].name, each[k], 100 * hand[1] / hand[0], 100 * own[1] / own[0],
                   100 * own[2] / own[0], at, own[1] / hand[1]);
        }
    printf("\nBand of the fixed plan: %.1f to %.1f %%.\n", 100 * low, 100 * high);
    return WEFT_OK;
}
