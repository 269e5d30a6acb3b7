/* The records of a rendezvous: what a guest sends, what rank 0 answers.  No sockets here. */
#include <stdlib.h>
#include <string.h>

#include "comm/rdzv_priv.h"

static weft_status no_memory(void)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

weft_status weft_comm__rdzv_key(const weft_comm_token *token, weft_comm_key *out)
{
    return weft_comm_key_derive(&token->key, "weft rendezvous", NULL, 0, out);
}

weft_comm_claim weft_comm__rdzv_claim(uint32_t epoch)
{
    /* the guest's rank is in its record, which has a MAC */
    return (weft_comm_claim){.purpose = WEFT_COMM_FOR_RDZV, .epoch = epoch};
}

/* ---- a guest at rank 0 ---- */

weft_status weft_comm__rdzv_guest_init(rdzv_guest *g, const weft_comm_token *token,
                                       uint32_t epoch)
{
    weft_comm_key   key;
    weft_comm_claim claim = weft_comm__rdzv_claim(epoch);
    *g                    = (rdzv_guest){.stage = RDZV_PROVES};
    WEFT_TRY(weft_comm__rdzv_key(token, &key));
    weft_status st = weft_comm_auth_start(&g->auth, WEFT_COMM_RESPONDER, &key,
                                          token->insecure, &claim);
    weft_comm_key_wipe(&key);
    return st;
}

void weft_comm__rdzv_guest_fini(rdzv_guest *g)
{
    weft_comm_auth_fini(&g->auth);
    free(g->body);
    g->body = NULL;
}

static int64_t body_bytes(const rdzv_guest *g)
{
    return g->hello.bytes + WEFT_COMM_MAC_BYTES;
}

char *weft_comm__rdzv_guest_room(rdzv_guest *g, size_t *most)
{
    switch (g->stage) {
    case RDZV_PROVES: *most = weft_comm_auth_wants(&g->auth); return g->in;
    case RDZV_HELLO:
        *most = sizeof g->hello - (size_t)g->n_in;
        return (char *)&g->hello + g->n_in;
    case RDZV_BODY: *most = (size_t)(body_bytes(g) - g->n_in); return g->body + g->n_in;
    case RDZV_CAME:
    case RDZV_WRONG: break;
    }
    *most = 0;
    return g->in;
}

/* The length is the one field that is used before the MAC is checked: within its bound, to know
 * how much to read. */
static void begin_body(rdzv_guest *g)
{
    bool fits = g->hello.bytes >= 0 && g->hello.bytes <= WEFT_COMM_RDZV_MAX_BYTES;
    g->body   = fits ? malloc((size_t)body_bytes(g)) : NULL;
    g->n_in   = 0;
    g->stage  = g->body ? RDZV_BODY : RDZV_WRONG;
}

static void end_body(rdzv_guest *g)
{
    weft_comm_mac mac;
    memcpy(&mac, g->body + g->hello.bytes, sizeof mac);
    bool ours = weft_comm_auth_verify(&g->auth, &g->hello, sizeof g->hello, g->body,
                                      (size_t)g->hello.bytes, &mac);
    g->stage  = ours ? RDZV_CAME : RDZV_WRONG;
}

void weft_comm__rdzv_guest_took(rdzv_guest *g, size_t bytes)
{
    if (g->stage == RDZV_PROVES) {
        weft_comm_auth_feed(&g->auth, g->in, bytes);
        if (g->auth.state == WEFT_COMM_AUTH_DONE) g->stage = RDZV_HELLO;
        if (g->auth.state == WEFT_COMM_AUTH_FAILED) g->stage = RDZV_WRONG;
        return;
    }
    g->n_in += (int64_t)bytes;
    if (g->stage == RDZV_HELLO && g->n_in == (int64_t)sizeof g->hello)
        begin_body(g);
    else if (g->stage == RDZV_BODY && g->n_in == body_bytes(g))
        end_body(g);
}

const char *weft_comm__rdzv_guest_why(const rdzv_guest *g)
{
    if (g->auth.state != WEFT_COMM_AUTH_DONE) return weft_comm_auth_why(&g->auth);
    return g->stage == RDZV_WRONG ? "its record is damaged"
                                  : "it left before its record was complete";
}

/* ---- the table ---- */

weft_status weft_comm__rdzv_table_print(const uint8_t *nonce, int world,
                                        const rdzv_part *part, char **out, int64_t *n)
{
    int64_t sizes = (int64_t)sizeof(int64_t) * world,
            bytes = WEFT_COMM_NONCE_BYTES + sizes;
    for (int r = 0; r < world; r++) bytes += part[r].bytes;
    char *text = malloc((size_t)bytes), *p = text;
    if (!text) return no_memory();
    memcpy(p, nonce, WEFT_COMM_NONCE_BYTES);
    p += WEFT_COMM_NONCE_BYTES;
    for (int r = 0; r < world; r++, p += sizeof(int64_t))
        memcpy(p, &part[r].bytes, sizeof(int64_t));
    for (int r = 0; r < world; p += part[r].bytes, r++)
        if (part[r].bytes) memcpy(p, part[r].p, (size_t)part[r].bytes);
    *out = text;
    *n   = bytes;
    return WEFT_OK;
}

static weft_status fail_table(void)
{
    return WEFT_FAIL(WEFT_ERR_PEER, "the table that rank 0 sent is damaged");
}

static weft_status find_parts(const char *text, int64_t n, weft_comm_rdzv_table *out)
{
    int64_t at = WEFT_COMM_NONCE_BYTES + (int64_t)sizeof(int64_t) * out->world;
    if (at > n) return fail_table();
    for (int r = 0; r < out->world; r++) {
        memcpy(&out->bytes[r], text + WEFT_COMM_NONCE_BYTES + sizeof(int64_t) * (size_t)r,
               sizeof(int64_t));
        out->part[r] = text + at;
        if (out->bytes[r] < 0 || out->bytes[r] > n - at) return fail_table();
        at += out->bytes[r];
    }
    return at == n ? WEFT_OK : fail_table();
}

weft_status weft_comm__rdzv_table_parse(char *text, int64_t n, int world,
                                        const weft_comm_token *token,
                                        weft_comm_rdzv_table  *out)
{
    weft_status st = WEFT_OK;
    *out           = (weft_comm_rdzv_table){.world = world, .memory = text};
    out->part      = calloc((size_t)world, sizeof *out->part);
    out->bytes     = calloc((size_t)world, sizeof *out->bytes);
    if (!out->part || !out->bytes) WEFT_GO(no_memory());
    WEFT_GO(find_parts(text, n, out));
    st = weft_comm_key_derive(&token->key, "weft membership", text, WEFT_COMM_NONCE_BYTES,
                              &out->membership);
out:
    if (st != WEFT_OK) weft_comm_rdzv_table_fini(out);
    return st;
}

void weft_comm_rdzv_table_fini(weft_comm_rdzv_table *t)
{
    weft_comm_key_wipe(&t->membership);
    free(t->part);
    free(t->bytes);
    free(t->memory);
    *t = (weft_comm_rdzv_table){0};
}
