#include "control/request.h"

#include <string.h>

static const char *const NAME[WEFT_N_CONTROL_ASK] = {"status", "events", "scale", "drain",
                                                     "state"};

const char *weft_control_ask_name(weft_control_ask ask)
{
    return NAME[ask];
}

bool weft_control_request_reads(const weft_control_request *r)
{
    return r->ask == WEFT_CONTROL_STATUS || r->ask == WEFT_CONTROL_EVENTS ||
           r->ask == WEFT_CONTROL_STATE;
}

void weft_control_request_print(const weft_control_request *r, weft_text *out)
{
    weft_text_add(out, "ask %s\n", NAME[r->ask]);
    if (r->json) weft_text_add(out, "json 1\n");
    if (r->follow) weft_text_add(out, "follow 1\n");
    if (r->n) weft_text_add(out, "n %lld\n", (long long)r->n);
    if (*r->host) weft_text_add(out, "host %s\n", r->host);
}

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(text, word, n);
}

static bool read_number(const char *text, size_t n, int64_t *out)
{
    int64_t x = 0;
    if (!n || n > 9) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        x = 10 * x + (text[i] - '0');
    }
    *out = x;
    return true;
}

static bool read_ask(const char *text, size_t n, weft_control_request *r)
{
    for (int k = 0; k < WEFT_N_CONTROL_ASK; k++)
        if (is_word(text, n, NAME[k])) {
            r->ask = (weft_control_ask)k;
            return true;
        }
    return false;
}

static bool read_host(const char *text, size_t n, weft_control_request *r)
{
    if (!n || n >= sizeof r->host) return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~') return false;
    memcpy(r->host, text, n);
    r->host[n] = 0;
    return true;
}

static bool read_line(const char *key, size_t n_key, const char *text, size_t n,
                      weft_control_request *r)
{
    bool yes = is_word(text, n, "1");
    if (is_word(key, n_key, "ask")) return read_ask(text, n, r);
    if (is_word(key, n_key, "json")) return (r->json = yes);
    if (is_word(key, n_key, "follow")) return (r->follow = yes);
    if (is_word(key, n_key, "n")) return read_number(text, n, &r->n);
    if (is_word(key, n_key, "host")) return read_host(text, n, r);
    return false; /* what is not understood is not half carried out */
}

weft_status weft_control_request_parse(const void *data, size_t bytes,
                                       weft_control_request *out)
{
    const char          *text = data, *end = text + bytes;
    weft_control_request r = {.ask = WEFT_N_CONTROL_ASK};
    while (text < end) {
        const char *stop  = memchr(text, '\n', (size_t)(end - text));
        const char *space = stop ? memchr(text, ' ', (size_t)(stop - text)) : NULL;
        if (!space || !read_line(text, (size_t)(space - text), space + 1,
                                 (size_t)(stop - space - 1), &r))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "a request that this version of weft does not know");
        text = stop + 1;
    }
    if (r.ask == WEFT_N_CONTROL_ASK)
        return WEFT_FAIL(WEFT_ERR_ARG, "a request that asks nothing");
    *out = r;
    return WEFT_OK;
}
