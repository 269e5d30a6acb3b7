/* The handshake and the MACs.  Every MAC is HMAC-SHA256 over parts, each after its length, the
 * first being a label, so that no two purposes share an input. */
#include "comm/auth.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>
#include <sys/random.h>

enum {
    VERSION = 1,
    /* places in message 1 */
    AT_VERSION = 8,
    AT_MODE    = 12,
    AT_CLAIM   = 16,
    AT_NONCE   = 32,
    /* places in message 2; magic, version and mode are as in message 1 */
    AT_NONCE_2 = 16,
    AT_MAC     = 48,
};

static const uint8_t magic[8] = {'w', 'e', 'f', 't', 'a', 'u', 't', 'h'};

/* ---- MACs ---- */

typedef struct part {
    const void *p;
    size_t      bytes;
} part;

static bool add_part(EVP_MAC_CTX *c, const void *p, size_t bytes)
{
    uint64_t n = bytes;
    uint8_t  size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)(n >> 8 * i);
    return EVP_MAC_update(c, size, sizeof size) &&
           (!bytes || EVP_MAC_update(c, p, bytes));
}

/* False: libcrypto failed; out is zero then, which no MAC is compared with. */
static bool compute_mac(const weft_comm_key *key, const char *label, const part *parts,
                        int n_part, uint8_t out[WEFT_COMM_MAC_BYTES])
{
    char       digest[] = "SHA256";
    OSSL_PARAM param[]  = {
         OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
         OSSL_PARAM_construct_end()};
    EVP_MAC     *kind = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *c    = kind ? EVP_MAC_CTX_new(kind) : NULL;
    size_t       n    = 0;
    bool         ok   = c && EVP_MAC_init(c, key->byte, sizeof key->byte, param) &&
              add_part(c, label, strlen(label));
    for (int i = 0; ok && i < n_part; i++) ok = add_part(c, parts[i].p, parts[i].bytes);
    ok = ok && EVP_MAC_final(c, out, &n, WEFT_COMM_MAC_BYTES) && n == WEFT_COMM_MAC_BYTES;
    if (!ok) memset(out, 0, WEFT_COMM_MAC_BYTES);
    EVP_MAC_CTX_free(c);
    EVP_MAC_free(kind);
    return ok;
}

static weft_status fail_crypto(void)
{
    return WEFT_FAIL(WEFT_ERR_INTERNAL,
                     "OpenSSL's HMAC-SHA256 failed: is libcrypto whole?");
}

weft_status weft_comm_key_derive(const weft_comm_key *from, const char *label,
                                 const void *context, size_t bytes, weft_comm_key *out)
{
    part          p = {context, bytes};
    weft_comm_key made;
    bool          ok = compute_mac(from, label, &p, 1, made.byte);
    *out             = made;
    weft_comm_key_wipe(&made);
    return ok ? WEFT_OK : fail_crypto();
}

weft_status weft_comm_key_public(weft_comm_key *out)
{
    static const weft_comm_key zero;
    return weft_comm_key_derive(&zero, "weft insecure network", NULL, 0, out);
}

void weft_comm_key_wipe(weft_comm_key *key)
{
    OPENSSL_cleanse(key, sizeof *key);
}

weft_status weft_comm_random(void *out, size_t bytes)
{
    uint8_t *p = out;
    while (bytes) {
        ssize_t n = getrandom(p, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return WEFT_FAIL(WEFT_ERR_IO, "no random bytes: getrandom: %s",
                             strerror(errno));
        p += n;
        bytes -= (size_t)n;
    }
    return WEFT_OK;
}

/* ---- messages ---- */

static void put_u32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_start(const weft_comm_auth *a, uint8_t *p)
{
    memcpy(p, magic, sizeof magic);
    put_u32(p + AT_VERSION, VERSION);
    put_u32(p + AT_MODE, a->insecure);
}

static void put_claim(const weft_comm_claim *c, uint8_t *p)
{
    put_u32(p, c->purpose);
    put_u32(p + 4, (uint32_t)c->from);
    put_u32(p + 8, (uint32_t)c->to);
    put_u32(p + 12, c->epoch);
}

static void expect_bytes(weft_comm_auth *a, int bytes)
{
    a->n_in     = 0;
    a->in_bytes = (uint8_t)bytes;
}

static void put_out(weft_comm_auth *a, const void *p, int bytes)
{
    memcpy(a->out, p, (size_t)bytes);
    a->n_out     = 0;
    a->out_bytes = (uint8_t)bytes;
}

static void end_handshake(weft_comm_auth *a, weft_comm_auth_state state,
                          weft_comm_auth_reason reason)
{
    a->state  = state;
    a->reason = reason;
    expect_bytes(a, 0);
    weft_comm_key_wipe(&a->key);
}

/* A MAC over T. */
static bool compute_proof(weft_comm_auth *a, const char *label, uint8_t *out)
{
    part p = {a->script, WEFT_COMM__AUTH_FIRST + AT_MAC};
    return compute_mac(&a->key, label, &p, 1, out);
}

static bool is_proven(weft_comm_auth *a, const char *label, const uint8_t *mac)
{
    uint8_t want[WEFT_COMM_MAC_BYTES];
    bool    ok = compute_proof(a, label, want) && !CRYPTO_memcmp(want, mac, sizeof want);
    OPENSSL_cleanse(want, sizeof want);
    return ok;
}

/* Keys for records, one for each direction. */
static bool make_keys(weft_comm_auth *a)
{
    bool           first = a->role == WEFT_COMM_INITIATOR;
    weft_comm_key *from  = first ? &a->sends : &a->expects;
    weft_comm_key *to    = first ? &a->expects : &a->sends;
    return compute_proof(a, "weft records of the initiator", from->byte) &&
           compute_proof(a, "weft records of the responder", to->byte);
}

/* What is said in clear about the other side serves messages to people only: the MACs decide. */
static weft_comm_auth_reason read_start(const weft_comm_auth *a, const uint8_t *p)
{
    if (memcmp(p, magic, sizeof magic)) return WEFT_COMM_AUTH_NOT_WEFT;
    if (get_u32(p + AT_VERSION) != VERSION) return WEFT_COMM_AUTH_VERSION;
    if (get_u32(p + AT_MODE) > 1) return WEFT_COMM_AUTH_NOT_WEFT;
    if (get_u32(p + AT_MODE) != a->insecure) return WEFT_COMM_AUTH_MODE;
    return WEFT_COMM_AUTH_NO_REASON;
}

static weft_comm_auth_reason read_claim(weft_comm_auth *a, const uint8_t *p)
{
    weft_comm_claim c = {.purpose = get_u32(p),
                         .from    = (int32_t)get_u32(p + 4),
                         .to      = (int32_t)get_u32(p + 8),
                         .epoch   = get_u32(p + 12)};
    if (c.purpose != a->claim.purpose || c.to != a->claim.to ||
        c.epoch != a->claim.epoch || (a->claim.from >= 0 && c.from != a->claim.from))
        return WEFT_COMM_AUTH_NOT_WEFT;
    a->claim.from = c.from;
    return WEFT_COMM_AUTH_NO_REASON;
}

/* Message 1 came.  Who speaks our protocol with other settings gets message 2 all the same, to
 * learn that. */
static void answer_first(weft_comm_auth *a)
{
    uint8_t              *second = a->script + WEFT_COMM__AUTH_FIRST;
    weft_comm_auth_reason reason = read_start(a, a->in);
    memcpy(a->script, a->in, WEFT_COMM__AUTH_FIRST);
    if (reason == WEFT_COMM_AUTH_NO_REASON) reason = read_claim(a, a->in + AT_CLAIM);
    if (reason == WEFT_COMM_AUTH_NOT_WEFT) {
        end_handshake(a, WEFT_COMM_AUTH_FAILED, reason);
        return;
    }
    put_start(a, second);
    if (weft_comm_random(second + AT_NONCE_2, WEFT_COMM_NONCE_BYTES) != WEFT_OK ||
        !compute_proof(a, "weft responder", second + AT_MAC)) {
        end_handshake(a, WEFT_COMM_AUTH_FAILED, WEFT_COMM_AUTH_BROKEN);
        return;
    }
    put_out(a, second, WEFT_COMM__AUTH_SECOND);
    if (reason == WEFT_COMM_AUTH_NO_REASON)
        expect_bytes(a, WEFT_COMM__AUTH_THIRD);
    else
        end_handshake(a, WEFT_COMM_AUTH_FAILED, reason);
}

/* Message 2 came. */
static void answer_second(weft_comm_auth *a)
{
    uint8_t               proof[WEFT_COMM_MAC_BYTES];
    weft_comm_auth_reason reason = read_start(a, a->in);
    memcpy(a->script + WEFT_COMM__AUTH_FIRST, a->in, WEFT_COMM__AUTH_SECOND);
    if (reason == WEFT_COMM_AUTH_NO_REASON &&
        !is_proven(a, "weft responder", a->in + AT_MAC))
        reason = WEFT_COMM_AUTH_PROOF;
    if (reason == WEFT_COMM_AUTH_NO_REASON && !compute_proof(a, "weft initiator", proof))
        reason = WEFT_COMM_AUTH_BROKEN;
    if (reason != WEFT_COMM_AUTH_NO_REASON) {
        end_handshake(a, WEFT_COMM_AUTH_FAILED, reason);
        return;
    }
    put_out(a, proof, WEFT_COMM__AUTH_THIRD);
    expect_bytes(a, WEFT_COMM__AUTH_FOURTH);
}

/* Message 3 came, or 4: the last one that is read. */
static void read_last(weft_comm_auth *a)
{
    uint8_t               proof[WEFT_COMM_MAC_BYTES];
    bool                  first  = a->role == WEFT_COMM_INITIATOR;
    weft_comm_auth_reason reason = WEFT_COMM_AUTH_NO_REASON;
    if (!is_proven(a, first ? "weft admitted" : "weft initiator", a->in))
        reason = WEFT_COMM_AUTH_PROOF;
    else if (!make_keys(a) || (!first && !compute_proof(a, "weft admitted", proof)))
        reason = WEFT_COMM_AUTH_BROKEN;
    if (reason == WEFT_COMM_AUTH_NO_REASON && !first)
        put_out(a, proof, WEFT_COMM__AUTH_FOURTH);
    end_handshake(a,
                  reason == WEFT_COMM_AUTH_NO_REASON ? WEFT_COMM_AUTH_DONE
                                                     : WEFT_COMM_AUTH_FAILED,
                  reason);
}

weft_status weft_comm_auth_start(weft_comm_auth *a, weft_comm_auth_role role,
                                 const weft_comm_key *key, bool insecure,
                                 const weft_comm_claim *claim)
{
    *a = (weft_comm_auth){
        .role = role, .insecure = insecure, .claim = *claim, .key = *key};
    if (role == WEFT_COMM_RESPONDER) {
        expect_bytes(a, WEFT_COMM__AUTH_FIRST);
        return WEFT_OK;
    }
    put_start(a, a->script);
    put_claim(claim, a->script + AT_CLAIM);
    WEFT_TRY(weft_comm_random(a->script + AT_NONCE, WEFT_COMM_NONCE_BYTES));
    put_out(a, a->script, WEFT_COMM__AUTH_FIRST);
    expect_bytes(a, WEFT_COMM__AUTH_SECOND);
    return WEFT_OK;
}

void weft_comm_auth_fini(weft_comm_auth *a)
{
    OPENSSL_cleanse(a, sizeof *a);
}

bool weft_comm_auth_begun(const weft_comm_auth *a)
{
    return a->role == WEFT_COMM_RESPONDER && a->out_bytes > 0;
}

size_t weft_comm_auth_wants(const weft_comm_auth *a)
{
    return (size_t)(a->in_bytes - a->n_in);
}

size_t weft_comm_auth_feed(weft_comm_auth *a, const void *p, size_t bytes)
{
    size_t n = weft_comm_auth_wants(a);
    if (n > bytes) n = bytes;
    if (n) memcpy(a->in + a->n_in, p, n);
    a->n_in = (uint8_t)(a->n_in + n);
    if (!n || a->n_in < a->in_bytes) return n;
    if (a->in_bytes == WEFT_COMM__AUTH_SECOND)
        answer_second(a);
    else if (a->in_bytes == WEFT_COMM__AUTH_FIRST)
        answer_first(a);
    else
        read_last(a);
    return n;
}

const void *weft_comm_auth_output(const weft_comm_auth *a, size_t *bytes)
{
    *bytes = (size_t)(a->out_bytes - a->n_out);
    return a->out + a->n_out;
}

void weft_comm_auth_sent(weft_comm_auth *a, size_t bytes)
{
    a->n_out = (uint8_t)(a->n_out + bytes);
}

const char *weft_comm_auth_why(const weft_comm_auth *a)
{
    switch (a->reason) {
    case WEFT_COMM_AUTH_NO_REASON: break;
    case WEFT_COMM_AUTH_NOT_WEFT: return "it does not speak weft's protocol";
    case WEFT_COMM_AUTH_VERSION: return "it is another version of weft";
    case WEFT_COMM_AUTH_MODE:
        return a->insecure
                   ? "it has a token, and this side was started with --insecure-network"
                   : "it was started with --insecure-network, and this side has a token";
    case WEFT_COMM_AUTH_PROOF: return "it has another token";
    case WEFT_COMM_AUTH_BROKEN: return "OpenSSL's HMAC-SHA256 failed on this host";
    }
    if (a->role == WEFT_COMM_RESPONDER && a->in_bytes == WEFT_COMM__AUTH_THIRD)
        return "it did not prove that it has the token; has it another one?";
    return "it did not finish the handshake";
}

/* ---- records ---- */

static bool compute_record(const weft_comm_key *key, uint64_t number, const void *head,
                           size_t head_bytes, const void *body, size_t body_bytes,
                           uint8_t *out)
{
    uint8_t count[8];
    part    parts[] = {{count, sizeof count}, {head, head_bytes}, {body, body_bytes}};
    for (int i = 0; i < 8; i++) count[i] = (uint8_t)(number >> 8 * i);
    return compute_mac(key, "weft record", parts, 3, out);
}

weft_status weft_comm_auth_seal(weft_comm_auth *a, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes, weft_comm_mac *out)
{
    if (a->state != WEFT_COMM_AUTH_DONE)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "a record before the handshake is done");
    if (!compute_record(&a->sends, a->n_sealed++, head, head_bytes, body, body_bytes,
                        out->byte))
        return fail_crypto();
    return WEFT_OK;
}

bool weft_comm_auth_verify(weft_comm_auth *a, const void *head, size_t head_bytes,
                           const void *body, size_t body_bytes, const weft_comm_mac *mac)
{
    uint8_t want[WEFT_COMM_MAC_BYTES];
    bool    ok = a->state == WEFT_COMM_AUTH_DONE &&
              compute_record(&a->expects, a->n_verified++, head, head_bytes, body,
                             body_bytes, want) &&
              !CRYPTO_memcmp(want, mac->byte, sizeof want);
    OPENSSL_cleanse(want, sizeof want);
    return ok;
}
