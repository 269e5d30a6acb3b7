#include "control/hello.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FIRST[] = "weft control\n";

/* ---- print ---- */

static void put_value(weft_text *out, const char *key, const char *value)
{
    if (*value) weft_text_add(out, "%s %s\n", key, value);
}

/* A line each, cut off where it is long, with printing characters alone. */
static void put_keys(weft_text *out, const char *keys)
{
    enum {
        LINE = 240,
        LAST = WEFT_CONTROL_HELLO_MOST - LINE - 8
    };
    for (const char *end; (end = strchr(keys, '\n')) && out->n < LAST; keys = end + 1) {
        char   line[LINE];
        size_t n = (size_t)(end - keys) < LINE ? (size_t)(end - keys) : LINE;
        for (size_t i = 0; i < n; i++)
            line[i] = (char)(keys[i] < ' ' || keys[i] > '~' ? '?' : keys[i]);
        weft_text_add(out, "key %.*s\n", (int)n, line);
    }
}

void weft_control_hello_print(const weft_control_hello *h, weft_text *out)
{
    weft_text_add(out, "%swire %u\nrole %s\nreduction %s\n", FIRST,
                  h->wire ? h->wire : WEFT_CONTROL_WIRE,
                  h->role == WEFT_CONTROL_TOOL ? "tool" : "agent",
                  h->invariant ? "invariant" : "fixed");
    put_value(out, "job", h->job);
    put_value(out, "host", h->host);
    put_value(out, "build", h->build);
    put_value(out, "kernels", h->kernels);
    put_keys(out, h->keys);
}

/* ---- parse ---- */

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(text, word, n);
}

/* Printing characters alone: names go to logs and terminals. */
static bool copy_name(const char *text, size_t n, char out[WEFT_CONTROL_NAME])
{
    if (!n || n >= WEFT_CONTROL_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    memcpy(out, text, n);
    out[n] = 0;
    return true;
}

/* One more line of the job's; one that does not fit is left out. */
static bool add_key(const char *text, size_t n, char keys[WEFT_CONTROL_KEYS])
{
    size_t used = strlen(keys);
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    if (n + 2 > WEFT_CONTROL_KEYS - used) return true;
    memcpy(keys + used, text, n);
    memcpy(keys + used + n, "\n", 2);
    return true;
}

static bool read_wire(const char *text, size_t n, uint32_t *out)
{
    uint32_t x = 0;
    if (!n || n > 6) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        x = 10 * x + (uint32_t)(text[i] - '0');
    }
    *out = x;
    return x > 0;
}

static bool read_choice(const char *text, size_t n, const char *no, const char *yes,
                        bool *out)
{
    *out = is_word(text, n, yes);
    return *out || is_word(text, n, no);
}

static bool read_value(weft_control_hello *h, const char *key, size_t n_key,
                       const char *text, size_t n)
{
    bool yes = false;
    if (is_word(key, n_key, "wire")) return read_wire(text, n, &h->wire);
    if (is_word(key, n_key, "role")) {
        bool fine = read_choice(text, n, "agent", "tool", &yes);
        h->role   = yes ? WEFT_CONTROL_TOOL : WEFT_CONTROL_AGENT;
        return fine;
    }
    if (is_word(key, n_key, "reduction"))
        return read_choice(text, n, "fixed", "invariant", &h->invariant);
    if (is_word(key, n_key, "job")) return copy_name(text, n, h->job);
    if (is_word(key, n_key, "host")) return copy_name(text, n, h->host);
    if (is_word(key, n_key, "build")) return copy_name(text, n, h->build);
    if (is_word(key, n_key, "kernels")) return copy_name(text, n, h->kernels);
    if (is_word(key, n_key, "key")) return add_key(text, n, h->keys);
    return true; /* a newer build's */
}

weft_status weft_control_hello_parse(const void *data, size_t bytes,
                                     weft_control_hello *out)
{
    static const size_t n_first = sizeof FIRST - 1;
    const char         *text = data, *end = text + bytes;
    *out = (weft_control_hello){.role = WEFT_CONTROL_AGENT};
    if (bytes > WEFT_CONTROL_HELLO_MOST || bytes < n_first ||
        memcmp(text, FIRST, n_first))
        return WEFT_FAIL(WEFT_ERR_ARG, "its first message is no hello");
    for (text += n_first; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) return WEFT_FAIL(WEFT_ERR_ARG, "its hello is cut off");
        const char *space = memchr(text, ' ', (size_t)(stop - text));
        if (!space || !read_value(out, text, (size_t)(space - text), space + 1,
                                  (size_t)(stop - space - 1)))
            return WEFT_FAIL(WEFT_ERR_ARG, "its hello has a line that is none");
        text = stop + 1;
    }
    if (!out->wire) return WEFT_FAIL(WEFT_ERR_ARG, "its hello has no wire version");
    return WEFT_OK;
}

/* ---- judge ---- */

static const char *name_host(const weft_control_hello *h)
{
    return *h->host ? h->host : "a host without a name";
}

/* Which of these differs: the first that does. */
static const char *find_difference(const weft_control_hello *a,
                                   const weft_control_hello *b, const char **of_a,
                                   const char **of_b)
{
    if (strcmp(a->build, b->build) != 0) {
        *of_a = a->build, *of_b = b->build;
        return "build";
    }
    if (strcmp(a->kernels, b->kernels) != 0) {
        *of_a = a->kernels, *of_b = b->kernels;
        return "kernel set";
    }
    return NULL;
}

/* "batch is 8" of a key, in the other side's lines; NULL: it is not there. */
static const char *find_key(const char *keys, const char *name, size_t n_name)
{
    for (const char *end; (end = strchr(keys, '\n')); keys = end + 1)
        if ((size_t)(end - keys) >= n_name && !memcmp(keys, name, n_name)) return keys;
    return NULL;
}

/* The first line of a that b lacks, or has with another value; its value in each.  false: none. */
static bool find_other_key(const char *a, const char *b, char name[64], char of_a[128],
                           char of_b[128])
{
    for (const char *end; (end = strchr(a, '\n')); a = end + 1) {
        const char *is = memmem(a, (size_t)(end - a), " is ", 4);
        if (!is) continue;
        size_t      n    = (size_t)(is - a) + 4;
        const char *line = find_key(b, a, n);
        size_t      n_b  = line ? (size_t)(strchr(line, '\n') - line) : 0;
        if (n_b == (size_t)(end - a) && !memcmp(a, line, n_b)) continue;
        snprintf(name, 64, "%.*s", (int)(n - 4), a);
        snprintf(of_a, 128, "%.*s", (int)(end - a - (ptrdiff_t)n), a + n);
        snprintf(of_b, 128, "%.*s", line ? (int)(n_b - n) : 9,
                 line ? line + n : "not given");
        return true;
    }
    return false;
}

static void describe_jobs(const weft_control_hello *a, const weft_control_hello *b,
                          char *text, size_t size)
{
    char name[64], of_a[128], of_b[128];
    bool found = find_other_key(a->keys, b->keys, name, of_a, of_b) ||
                 find_other_key(b->keys, a->keys, name, of_b, of_a);
    if (*a->keys && *b->keys && found)
        snprintf(text, size,
                 "other job: %s is %s on %s, %s on %s; give all hosts the same job, or "
                 "each job its own port and output",
                 name, of_a, name_host(a), of_b, name_host(b));
    else
        snprintf(text, size,
                 "other job: '%s' on %s, '%s' on %s; give each job its own port", a->job,
                 name_host(a), b->job, name_host(b));
}

bool weft_control_hello_admits(const weft_control_hello *a, const weft_control_hello *b,
                               char *text, size_t size)
{
    uint32_t    wire_a = a->wire ? a->wire : WEFT_CONTROL_WIRE;
    uint32_t    wire_b = b->wire ? b->wire : WEFT_CONTROL_WIRE;
    const char *of_a = "", *of_b = "";
    bool        tool = a->role == WEFT_CONTROL_TOOL || b->role == WEFT_CONTROL_TOOL;
    *text            = 0;
    if (wire_a != wire_b) {
        snprintf(text, size,
                 "other wire version: %u on %s, %u on %s; use one version of weft",
                 wire_a, name_host(a), wire_b, name_host(b));
        return false;
    }
    if (strcmp(a->job, b->job) != 0 && !(tool && (!*a->job || !*b->job))) {
        describe_jobs(a, b, text, size);
        return false;
    }
    if (tool) return true;
    const char *what = find_difference(a, b, &of_a, &of_b);
    if (!what) return true;
    bool strict = a->invariant || b->invariant;
    snprintf(text, size, "other %s: %s on %s, %s on %s; %s", what, of_a, name_host(a),
             of_b, name_host(b),
             strict ? "reduction: invariant needs the same on all hosts: install it, or "
                      "set reduction=fixed"
                    : "bits may differ from a run with one of them alone");
    return !strict;
}
