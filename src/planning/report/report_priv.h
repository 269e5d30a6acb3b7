/* Inside the room. */
#ifndef WEFT_REPORT_PRIV_H
#define WEFT_REPORT_PRIV_H

#include "report/report.h"

/* data/report.css, data/report.js */
extern const char weft_report_css[], weft_report_js[];

/* What all sections look at. */
typedef struct weft_report__view {
    const weft_report        *r;
    const weft_search_choice *x; /* the plan */
    weft_arena               *a;
    const weft_cost_stage    *stage; /* x->point.pp of them */
    int                       n_used;
    bool                      checked; /* partitioned and simulated */
    double                    step_s, lo, hi, bound_s;
    weft_text                *t;
} weft_report__view;

/* ---- words and numbers ---- */

/* Text of others: markup is escaped, what is no UTF-8 or no character shows as U+FFFD. */
void weft_report__put(weft_text *t, const char *s);
void weft_report__count(weft_text *t, int64_t n); /* 10,240 */
void weft_report__seconds(weft_text *t, double s);
void weft_report__bytes(weft_text *t, double n);
/* The colour of a stage, "#7aa2e3", the same in light and dark; out has 8 bytes. */
void weft_report__stage_color(int stage, int n_stage, char *out);
/* "<i class=b-... style=width>" of a stacked bar: x of all. */
void weft_report__stacked(weft_text *t, const char *color, const char *name, double x,
                          double all);
/* Of n things those to show, at most `most`: the i-th; the first and the last are among them. */
int weft_report__pick(int n, int most, int i);

/* ---- sections ---- */

void weft_report__topology(const weft_report__view *v, const weft_place_run *run,
                           int n_run);
/* WEFT_ERR_MEM alone stops the page: a schedule that cannot be drawn is said to be so. */
weft_status weft_report__timeline(const weft_report__view *v);
void        weft_report__breakdown(const weft_report__view *v);
void        weft_report__memory(const weft_report__view *v);
void        weft_report__runners(const weft_report__view *v);
/* Asks the search again with one thing changed: what would help, what people would do by hand. */
weft_status weft_report__changes(const weft_report__view *v);
void        weft_report__sure(const weft_report__view *v);
/* A line where constants of something here were not measured; else nothing. */
void weft_report__warn(const weft_report__view *v);

#endif
