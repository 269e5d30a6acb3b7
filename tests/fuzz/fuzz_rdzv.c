/* What comes to the rendezvous from who has the token: a guest's record with any numbers, under a
 * right MAC or not; the table of rank 0; addresses; and host:port, which a user writes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/net.h"
#include "comm/rdzv_priv.h"

static const weft_comm_token token = {.key = {{7, 7, 7}}};

/* A guest that has proven itself. */
static void open_guest(rdzv_guest *g, weft_comm_auth *a)
{
    weft_comm_claim claim = weft_comm__rdzv_claim(0);
    weft_comm_key   key;
    size_t          n, most;
    if (weft_comm__rdzv_guest_init(g, &token, 0) || weft_comm__rdzv_key(&token, &key) ||
        weft_comm_auth_start(a, WEFT_COMM_INITIATOR, &key, false, &claim))
        abort();
    for (int m = 0; m < 2; m++) {
        const void *p  = weft_comm_auth_output(a, &n);
        char       *to = weft_comm__rdzv_guest_room(g, &most);
        if (n != most) abort();
        memcpy(to, p, n);
        weft_comm__rdzv_guest_took(g, n);
        p = weft_comm_auth_output(&g->auth, &n);
        weft_comm_auth_feed(a, p, n);
        weft_comm_auth_sent(&g->auth, n);
    }
    if (g->stage != RDZV_HELLO) abort();
}

static void read_record(const uint8_t *p, size_t n, bool sealed, size_t run)
{
    rdzv_guest     g;
    weft_comm_auth a;
    rdzv_hello     h      = {0};
    size_t         bytes  = n > sizeof h ? n - sizeof h : 0, all;
    char          *record = calloc(1, n + sizeof h + sizeof(weft_comm_mac));
    open_guest(&g, &a);
    memcpy(record, p, n);
    memcpy(&h, record, sizeof h);
    if (sealed) { /* the length that is there, the rest as it comes */
        h.bytes = (int64_t)bytes;
        memcpy(record, &h, sizeof h);
        weft_comm_mac mac;
        weft_comm_auth_seal(&a, &h, sizeof h, record + sizeof h, bytes, &mac);
        memcpy(record + sizeof h + bytes, &mac, sizeof mac);
    }
    all = sizeof h + bytes + (sealed ? sizeof(weft_comm_mac) : 0);
    for (size_t at = 0; at < all;) {
        size_t most;
        char  *to = weft_comm__rdzv_guest_room(&g, &most);
        if (!most) break;
        if (most > run) most = run;
        if (most > all - at) most = all - at;
        memcpy(to, record + at, most);
        weft_comm__rdzv_guest_took(&g, most);
        at += most;
    }
    bool fits = sealed && bytes <= WEFT_COMM_RDZV_MAX_BYTES;
    if ((g.stage == RDZV_CAME) != fits) abort();
    if (g.stage == RDZV_CAME && memcmp(g.body, record + sizeof h, bytes)) abort();
    weft_comm__rdzv_guest_fini(&g);
    weft_comm_auth_fini(&a);
    free(record);
}

static void read_table(const uint8_t *p, size_t n, int world)
{
    weft_comm_rdzv_table t;
    char                *text = malloc(n + 1);
    int64_t              sum  = 0;
    memcpy(text, p, n);
    if (weft_comm__rdzv_table_parse(text, (int64_t)n, world, &token, &t) != WEFT_OK)
        return;
    for (int r = 0; r < world; r++) {
        if ((const char *)t.part[r] + t.bytes[r] > text + n) abort();
        sum += t.bytes[r];
    }
    if (sum + WEFT_COMM_NONCE_BYTES + 8 * world != (int64_t)n) abort();
    weft_comm_rdzv_table_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 2) return 0;
    switch (p[0] % 4) {
    case 0:
    case 1: read_record(p + 2, n - 2, p[0] & 1, p[1] + 1u); break;
    case 2: read_table(p + 2, n - 2, p[1] % 16 + 1); break;
    default: {
        char *text = malloc(n);
        memcpy(text, p + 1, n - 1);
        text[n - 1] = 0;
        weft_comm_rdzv_check(text);
        weft_comm__rdzv_is_name(text);
        weft_comm_net_check_address(p + 1, (int64_t)n - 1, p[1] & 1);
        free(text);
    }
    }
    return 0;
}
