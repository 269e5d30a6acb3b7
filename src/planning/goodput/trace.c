/* Traces as text. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "goodput/goodput.h"

enum {
    MAX_EVENT = 1 << 20,
    MAX_NAME  = 63
};

typedef struct reader {
    const char         *file;
    int                 line;
    weft_goodput_trace *t;
    char (*name)[MAX_NAME + 1];
    bool  *there;
    int    cap, n_there;
    double last_s;
} reader;

static weft_status bad_line(const reader *r, const char *why)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s:%d: %s; a line is milliseconds,add|remove|replace,host", r->file,
                     r->line, why);
}

/* A name's index; a new one gets the next. */
static weft_status find_host(reader *r, const char *name, int *host)
{
    for (*host = 0; *host < r->t->n_host; ++*host)
        if (!strcmp(r->name[*host], name)) return WEFT_OK;
    if (r->t->n_host == WEFT_GOODPUT_MAX_HOST) return bad_line(r, "more than 4096 hosts");
    memcpy(r->name[r->t->n_host++], name, strlen(name) + 1);
    return WEFT_OK;
}

static weft_status add_event(reader *r, weft_goodput_event e)
{
    weft_goodput_trace *t = r->t;
    if (e.replaces && !r->there[e.host])
        return bad_line(r, "a host that is not there has a process replaced");
    if (!e.replaces && r->there[e.host] == e.adds)
        return bad_line(r, e.adds ? "a host that is there comes again"
                                  : "a host that is not there goes");
    if (t->n == MAX_EVENT) return bad_line(r, "more than a million events");
    if (t->n == r->cap) {
        r->cap     = r->cap ? 2 * r->cap : 64;
        void *more = realloc(t->event, sizeof *t->event * (size_t)r->cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d events", r->cap);
        t->event = more;
    }
    t->event[t->n++] = e;
    if (e.replaces) return WEFT_OK;
    r->there[e.host] = e.adds;
    r->n_there += e.adds ? 1 : -1;
    if (r->n_there > t->most) t->most = r->n_there;
    return WEFT_OK;
}

static weft_status read_line(reader *r, char *line)
{
    char  *verb = strchr(line, ','), *host = verb ? strchr(verb + 1, ',') : NULL;
    double ms;
    int    index;
    if (!host) return bad_line(r, "fewer than three fields");
    *verb++ = *host++ = 0;
    if (!weft_text_read_double(line, &ms) || !(ms >= 0 && ms < 1e15))
        return bad_line(r, "the time is no number of milliseconds");
    if (ms < r->last_s) return bad_line(r, "it is earlier than the line before");
    if (strcmp(verb, "add") && strcmp(verb, "remove") && strcmp(verb, "replace"))
        return bad_line(r, "neither add nor remove nor replace");
    if (!*host || strlen(host) > MAX_NAME) return bad_line(r, "a name of 1 to 63 bytes");
    r->last_s = ms;
    WEFT_TRY(find_host(r, host, &index));
    return add_event(r, (weft_goodput_event){.at_s     = ms / 1e3,
                                             .adds     = !strcmp(verb, "add"),
                                             .replaces = !strcmp(verb, "replace"),
                                             .host     = index});
}

static weft_status read_lines(reader *r, const char *text, size_t n)
{
    const char *end = text + n;
    for (const char *at = text, *next; at < end; at = next) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t      k  = (size_t)((nl ? nl : end) - at);
        char        line[256];
        next = nl ? nl + 1 : end;
        r->line++;
        if (k && at[k - 1] == '\r') k--;
        if (!k || *at == '#') continue;
        if (k >= sizeof line || memchr(at, 0, k)) return bad_line(r, "it is too long");
        memcpy(line, at, k);
        line[k] = 0;
        WEFT_TRY(read_line(r, line));
    }
    return r->t->n ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "%s: no events", r->file);
}

weft_status weft_goodput_parse(const char *name, const char *text, size_t n,
                               weft_goodput_trace *out)
{
    reader      r  = {.file = name, .t = out};
    weft_status st = WEFT_OK;
    *out           = (weft_goodput_trace){0};
    r.name         = calloc(WEFT_GOODPUT_MAX_HOST, sizeof *r.name);
    r.there        = calloc(WEFT_GOODPUT_MAX_HOST, sizeof *r.there);
    if (!r.name || !r.there) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for a trace"));
    WEFT_GO(read_lines(&r, text, n));
out:
    free(r.name);
    free(r.there);
    if (st != WEFT_OK) weft_goodput_trace_fini(out);
    return st;
}

void weft_goodput_trace_fini(weft_goodput_trace *t)
{
    free(t->event);
    *t = (weft_goodput_trace){0};
}
