#include "session/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/io.h"

struct weft_metrics {
    int       fd;
    int64_t   kept; /* lines, when it was opened */
    char      path[4096];
    weft_text line;
};

/* The step of a whole, valid line, or -1. */
static int64_t step_of(const char *line, size_t n)
{
    weft_doc *d    = NULL;
    int64_t   step = -1;
    if (weft_doc_parse_json("metrics.jsonl", line, n, &d) != WEFT_OK) return -1;
    if (weft_doc_get_int(d, weft_doc_root(d), "step", &step) != WEFT_OK) step = -1;
    weft_doc_destroy(d);
    return step;
}

/* How many bytes at the front are lines of steps 1 .. done, in order; *last: of these. */
static size_t kept(const char *text, size_t n, int64_t done, int64_t *last)
{
    size_t  at   = 0;
    int64_t want = 1;
    while (at < n && want <= done) {
        const char *end = memchr(text + at, '\n', n - at);
        if (!end || step_of(text + at, (size_t)(end - text) - at) != want) break;
        at = (size_t)(end - text) + 1;
        want++;
    }
    *last = want - 1;
    return at;
}

weft_status weft_metrics_open(const char *dir, int64_t done, bool fences,
                              weft_metrics **out)
{
    char         *text = NULL;
    size_t        n = 0, keep = 0;
    weft_status   st = WEFT_OK;
    weft_metrics *m  = calloc(1, sizeof *m);
    if (!m) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    m->fd = -1;
    snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", dir);
    if (weft_io_exists(m->path)) {
        WEFT_GO(weft_io_read_as(m->path, WEFT_IO_LARGE, &text, &n));
        keep = kept(text, n, done, &m->kept);
        if (keep < n || fences) WEFT_GO(weft_io_replace_file(m->path, text, keep));
    }
    WEFT_GO(weft_io_open_write(m->path, false, &m->fd));
    if (lseek(m->fd, 0, SEEK_END) < 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "%s: cannot append", m->path));
    weft_text_add(&m->line, "%1024s", ""); /* room for any line, once */
    WEFT_GO(weft_text_status(&m->line));
    *out = m;
    m    = NULL;
out:
    free(text);
    if (m) weft_metrics_close(m);
    return st;
}

void weft_metrics_print(const weft_metrics_row *r, weft_text *t)
{
    weft_text_add(t, "{\"step\": %lld", (long long)r->step);
    weft_text_put_member(t, "loss", r->loss);
    weft_text_put_member(t, "grad_norm", r->grad_norm);
    weft_text_put_member(t, "lr", r->lr);
    weft_text_put_member(t, "tokens_per_s", r->tokens_per_s);
    weft_text_put_member(t, "step_ms", r->step_ms);
    weft_text_add(t, ", \"labels\": %lld", (long long)r->labels);
    if (r->skipped) weft_text_add(t, ", \"skipped\": true");
    if (!isnan(r->eval_loss)) weft_text_put_member(t, "eval_loss", r->eval_loss);
    for (int i = 0; i < r->n_load; i++)
        weft_text_add(t, "%s%.3f%s", i ? ", " : ", \"expert_load\": [",
                      (double)r->load[i], i + 1 < r->n_load ? "" : "]");
    weft_text_add(t, "}");
}

static weft_status write_line(weft_metrics *m)
{
    weft_text_put(&m->line, "\n", 1);
    WEFT_TRY(weft_text_status(&m->line));
    return weft_io_write(m->fd, m->path, m->line.s, m->line.n);
}

weft_status weft_metrics_add(weft_metrics *m, const weft_metrics_row *r)
{
    m->line.n = 0;
    weft_metrics_print(r, &m->line);
    return write_line(m);
}

weft_status weft_metrics_add_text(weft_metrics *m, const char *object, size_t n)
{
    m->line.n = 0;
    weft_text_put(&m->line, object, n);
    return write_line(m);
}

int64_t weft_metrics_kept(const weft_metrics *m)
{
    return m->kept;
}

weft_status weft_metrics_close(weft_metrics *m)
{
    if (!m) return WEFT_OK;
    weft_status st = m->fd >= 0 ? weft_io_close(m->fd, m->path) : WEFT_OK;
    weft_text_fini(&m->line);
    free(m);
    return st;
}
