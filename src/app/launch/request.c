/* A request as text, one value a line with its length in bytes before it, since paths may hold
 * anything:
 *
 *     weft-request 0.1.0
 *     file 8 job.yaml
 *     assign 9 steps=100
 *     timeout_s 2 60
 *     end 1c291ca3                 CRC32C of the lines above */
#include "launch/request.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "weft/base.h"

typedef enum value_kind {
    VALUE_TEXT, /* const char *; left out where it is NULL */
    VALUE_FLAG, /* bool; left out where it is false */
    VALUE_REAL, /* double */
} value_kind;

typedef struct request_field {
    const char *name;
    value_kind  kind;
    size_t      at; /* offset in weft_launch_request */
} request_field;

#define FIELD(name, kind)                                                                \
    {                                                                                    \
#name, VALUE_##kind, offsetof(weft_launch_request, name)                         \
    }
static const request_field fields[] = {
    FIELD(file, TEXT),      FIELD(allow, TEXT),        FIELD(trace, TEXT),
    FIELD(command, TEXT),   FIELD(fresh, FLAG),        FIELD(quiet, FLAG),
    FIELD(json, FLAG),      FIELD(check, FLAG),        FIELD(check_s, REAL),
    FIELD(timeout_s, REAL), FIELD(io_timeout_s, REAL), FIELD(min_rank, REAL),
    FIELD(min_host, REAL),  FIELD(replay, TEXT),
};
#undef FIELD

static const char HEAD[] = "weft-request " WEFT_VERSION "\n";

enum {
    MAX_BYTES = 16 << 20 /* a command line is at most 2 MB */
};

/* ---- as text ---- */

static void print_value(const char *name, const char *value, weft_text *t)
{
    weft_text_add(t, "%s %zu ", name, strlen(value));
    weft_text_put(t, value, strlen(value));
    weft_text_put(t, "\n", 1);
}

static void print_real(const char *name, double x, weft_text *t)
{
    weft_text number = {0};
    weft_text_put_double(&number, x);
    print_value(name, number.s ? number.s : "", t);
    weft_text_fini(&number);
}

void weft_launch_request_print(const weft_launch_request *q, weft_text *t)
{
    size_t from = t->n;
    weft_text_put(t, HEAD, sizeof HEAD - 1);
    for (size_t i = 0; i < WEFT_COUNT(fields); i++) {
        const void *p = (const char *)q + fields[i].at;
        if (fields[i].kind == VALUE_REAL)
            print_real(fields[i].name, *(const double *)p, t);
        else if (fields[i].kind == VALUE_FLAG && *(const bool *)p)
            print_value(fields[i].name, "1", t);
        else if (fields[i].kind == VALUE_TEXT && *(const char *const *)p)
            print_value(fields[i].name, *(const char *const *)p, t);
    }
    for (int i = 0; i < q->n_assign; i++) print_value("assign", q->assign[i], t);
    if (weft_text_status(t) == WEFT_OK)
        weft_text_add(t, "end %08x\n", weft_hash_crc32c(0, t->s + from, t->n - from));
}

/* One line: the name and the value of it that are there. */
typedef struct request_line {
    const char *name, *value;
    size_t      n_name, n_value;
} request_line;

/* False: no such line, or one that goes beyond the end. */
static bool read_line(const char **at, const char *end, request_line *out)
{
    const char *p = *at, *space = memchr(p, ' ', (size_t)(end - p));
    size_t      n = 0;
    if (!space) return false;
    out->name   = p;
    out->n_name = (size_t)(space - p);
    for (p = space + 1; p < end && isdigit((unsigned char)*p) && n < MAX_BYTES; p++)
        n = 10 * n + (size_t)(*p - '0');
    if (p == space + 1 || p == end || *p != ' ' || (size_t)(end - p) < n + 2)
        return false;
    out->value   = p + 1;
    out->n_value = n;
    *at          = p + 1 + n + 1;
    return p[1 + n] == '\n' && !memchr(out->value, 0, n);
}

static bool is_named(const request_line *l, const char *name)
{
    return l->n_name == strlen(name) && !memcmp(l->name, name, l->n_name);
}

static bool store_value(const request_line *l, const request_field *f, weft_arena *a,
                        weft_launch_request *out)
{
    void       *p    = (char *)out + f->at;
    const char *text = weft_arena_strndup(a, l->value, l->n_value);
    if (!text) return false;
    switch (f->kind) {
    case VALUE_TEXT: *(const char **)p = text; return true;
    case VALUE_FLAG: *(bool *)p = true; return !strcmp(text, "1");
    case VALUE_REAL: return weft_text_read_double(text, (double *)p);
    }
    return false;
}

static bool store_line(const request_line *l, unsigned *seen, weft_arena *a,
                       weft_launch_request *out)
{
    for (size_t i = 0; i < WEFT_COUNT(fields); i++) {
        if (!is_named(l, fields[i].name)) continue;
        if (*seen & 1u << i) return false;
        *seen |= 1u << i;
        return store_value(l, &fields[i], a, out);
    }
    return false;
}

/* What comes before the last line, whose number it must have. */
static bool check_end(const char *text, size_t n, const char **end)
{
    char last[32];
    int  len = snprintf(last, sizeof last, "end %08x\n", 0u);
    if (n < (size_t)len) return false;
    *end = text + n - len;
    snprintf(last, sizeof last, "end %08x\n", weft_hash_crc32c(0, text, n - (size_t)len));
    return !memcmp(*end, last, (size_t)len);
}

static bool read_lines(const char *at, const char *end, weft_arena *a,
                       weft_launch_request *out)
{
    const char **assign = NULL;
    int          cap    = 0;
    unsigned     seen   = 0;
    request_line l;
    while (at < end) {
        if (!read_line(&at, end, &l)) return false;
        if (!is_named(&l, "assign")) {
            if (!store_line(&l, &seen, a, out)) return false;
            continue;
        }
        if (weft_arena_grow(a, (void **)&assign, &cap, out->n_assign + 1,
                            sizeof *assign) != WEFT_OK)
            return false;
        assign[out->n_assign++] = weft_arena_strndup(a, l.value, l.n_value);
    }
    out->assign = assign;
    return true;
}

weft_status weft_launch_request_parse(const char *text, size_t n, weft_arena *a,
                                      weft_launch_request *out)
{
    weft_launch_request q   = {0};
    const char         *end = NULL;
    if (n < sizeof HEAD - 1 || memcmp(text, HEAD, sizeof HEAD - 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "no request of weft %s: it begins with '%.*s'",
                         WEFT_VERSION, (int)strnlen(text, n < 40 ? n : 40), text);
    bool good =
        check_end(text, n, &end) && read_lines(text + sizeof HEAD - 1, end, a, &q);
    WEFT_TRY(weft_arena_status(a));
    if (!good) return WEFT_FAIL(WEFT_ERR_ARG, "a request that is damaged");
    *out = q;
    return WEFT_OK;
}

/* ---- from process to process ---- */

static weft_status fail_errno(const char *what)
{
    return WEFT_FAIL(WEFT_ERR_IO, "the request of ranks: %s: %s", what, strerror(errno));
}

static weft_status write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return fail_errno("write");
        p += k;
        n -= (size_t)k;
    }
    return WEFT_OK;
}

weft_status weft_launch_request_seal(const weft_launch_request *q, int *out)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    int         fd = memfd_create("weft-request", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return fail_errno("memfd_create");
    weft_launch_request_print(q, &t);
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(write_all(fd, t.s, t.n));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
        WEFT_GO(fail_errno("seal"));
    *out = fd;
    fd   = -1;
out:
    if (fd >= 0) close(fd);
    weft_text_fini(&t);
    return st;
}

/* All ranks share the descriptor's position, so they read by offset. */
static weft_status read_sealed(int fd, weft_arena *a, weft_launch_request *out)
{
    struct stat s;
    int         seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_WRITE) || fstat(fd, &s) || s.st_size > MAX_BYTES)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "WEFT_REQUEST_FD: descriptor %d is no request of a launcher",
                         fd);
    size_t n = (size_t)s.st_size, got = 0;
    char  *text = weft_arena_alloc(a, n + 1);
    WEFT_TRY(weft_arena_status(a));
    while (got < n) {
        ssize_t k = pread(fd, text + got, n - got, (off_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return fail_errno("read");
        got += (size_t)k;
    }
    return weft_launch_request_parse(text, n, a, out);
}

weft_status weft_launch_request_find(weft_arena *a, weft_launch_request *out, bool *found)
{
    const char *name = getenv("WEFT_REQUEST_FD");
    char       *end;
    *found = name != NULL;
    if (!name) return WEFT_OK;
    long fd = strtol(name, &end, 10);
    if (end == name || *end || fd < 3 || fd > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_REQUEST_FD is '%s', expected a descriptor",
                         name);
    weft_status st = read_sealed((int)fd, a, out);
    if (st == WEFT_OK) close((int)fd);
    unsetenv("WEFT_REQUEST_FD"); /* it is of this process alone */
    return st;
}
