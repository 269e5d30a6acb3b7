/* Two ways to prove oneself, the same records afterwards:
 *   token          an external PSK derived from it, with a fresh Diffie-Hellman key (psk_dhe_ke);
 *                  its identity is derived from the token as well, so that a server knows which of
 *                  its keys is meant and can say what is wrong.  There are no certificates, so a
 *                  side without the key cannot finish a handshake.
 *   certificates   both sides show one that their CA has signed. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "control/tls_priv.h"

enum {
    ID_BYTES = 16,
    MAX_ID   = 64,
};

/* What a token opens: its key, and the name that is sent for it. */
typedef struct psk {
    weft_comm_key key;
    char          id[MAX_ID]; /* empty: there is none */
} psk;

struct weft_control__tls {
    SSL_CTX    *server, *client;
    BIO_METHOD *socket;
    bool        certificates;
    bool        insecure;
    psk         full, reader;
};

/* ---- keys ---- */

static const char SECURE_ID[] = "weft1 token ", INSECURE_ID[] = "weft1 insecure ";

static weft_status derive_psk(const weft_comm_token *token, psk *out)
{
    weft_comm_key id;
    WEFT_TRY(weft_comm_key_derive(&token->key, "weft control id", NULL, 0, &id));
    int n = snprintf(out->id, sizeof out->id, "%s",
                     token->insecure ? INSECURE_ID : SECURE_ID);
    for (int i = 0; i < ID_BYTES; i++)
        n += snprintf(out->id + n, sizeof out->id - (size_t)n, "%02x", id.byte[i]);
    return weft_comm_key_derive(&token->key, "weft control psk", NULL, 0, &out->key);
}

static SSL_SESSION *make_session(SSL *ssl, const weft_comm_key *key)
{
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const SSL_CIPHER          *cipher  = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION               *session = SSL_SESSION_new();
    if (session && cipher &&
        SSL_SESSION_set1_master_key(session, key->byte, sizeof key->byte) &&
        SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static bool is_id(const psk *p, const unsigned char *id, size_t n)
{
    return *p->id && n == strlen(p->id) && !memcmp(p->id, id, n);
}

static const char *explain_id(const weft_control__tls *t, const unsigned char *id,
                              size_t n)
{
    bool insecure =
        n >= sizeof INSECURE_ID - 1 && !memcmp(id, INSECURE_ID, sizeof INSECURE_ID - 1);
    bool secure =
        n >= sizeof SECURE_ID - 1 && !memcmp(id, SECURE_ID, sizeof SECURE_ID - 1);
    if (insecure && !t->insecure)
        return "it runs with --insecure-network, and this side has a token";
    if (secure && t->insecure)
        return "it has a token, and this side runs with --insecure-network";
    if (secure) return "it has another token: copy the same token file to all hosts";
    return "it does not speak this protocol: is it weft, of this version?";
}

/* A server: which key?  None: the handshake goes on without, and fails without a certificate. */
static int find_session(SSL *ssl, const unsigned char *id, size_t n, SSL_SESSION **out)
{
    weft_control__channel *ch = SSL_get_app_data(ssl);
    const psk             *p  = is_id(&ch->tls->full, id, n)     ? &ch->tls->full
                                : is_id(&ch->tls->reader, id, n) ? &ch->tls->reader
                                                                 : NULL;
    *out                      = NULL;
    if (!p) {
        snprintf(ch->why, sizeof ch->why, "%s", explain_id(ch->tls, id, n));
        return 1;
    }
    ch->known      = true;
    ch->reads_only = p == &ch->tls->reader;
    *out           = make_session(ssl, &p->key);
    return *out != NULL;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id,
                       size_t *n, SSL_SESSION **out)
{
    weft_control__channel *ch = SSL_get_app_data(ssl);
    (void)digest; /* SHA-256: the only cipher suite has it */
    *id  = (const unsigned char *)ch->tls->full.id;
    *n   = strlen(ch->tls->full.id);
    *out = make_session(ssl, &ch->tls->full.key);
    return *out != NULL;
}

/* ---- the socket below: no SIGPIPE ---- */

static int write_socket(BIO *bio, const char *p, int n)
{
    weft_control__channel *ch  = BIO_get_data(bio);
    ssize_t                did = send(ch->fd, p, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (did >= 0) return (int)did;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_retry_write(bio);
    else
        ch->error = errno;
    return -1;
}

static int read_socket(BIO *bio, char *p, int n)
{
    weft_control__channel *ch  = BIO_get_data(bio);
    ssize_t                did = recv(ch->fd, p, (size_t)n, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (did == 0) ch->ended = true;
    if (did >= 0) return (int)did;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_retry_read(bio);
    else
        ch->error = errno;
    return -1;
}

static long control_socket(BIO *bio, int what, long number, void *p)
{
    const weft_control__channel *ch = BIO_get_data(bio);
    (void)number;
    (void)p;
    if (what == BIO_CTRL_EOF) return ch->ended;
    return what == BIO_CTRL_FLUSH || what == BIO_CTRL_DUP;
}

static int create_socket(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *make_socket_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket of weft");
    if (m && BIO_meth_set_write(m, write_socket) && BIO_meth_set_read(m, read_socket) &&
        BIO_meth_set_ctrl(m, control_socket) && BIO_meth_set_create(m, create_socket))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- contexts ---- */

static weft_status fail_openssl(const char *what)
{
    unsigned long code   = ERR_peek_last_error();
    const char   *reason = code ? ERR_reason_error_string(code) : NULL;
    weft_status   st     = WEFT_FAIL(WEFT_ERR_INTERNAL, "OpenSSL: %s: %s", what,
                               reason ? reason : "no reason given");
    ERR_clear_error();
    return st;
}

static weft_status fail_file(const char *option, const char *file)
{
    unsigned long code   = ERR_peek_last_error();
    const char   *reason = code ? ERR_reason_error_string(code) : NULL;
    weft_status   st     = WEFT_FAIL(WEFT_ERR_ARG, "%s %s: %s", option, file,
                               reason ? reason : "it cannot be read");
    ERR_clear_error();
    return st;
}

static weft_status use_certificates(SSL_CTX *ctx, const weft_control_certificates *tls)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, tls->cert) != 1)
        return fail_file("--tls-cert", tls->cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, tls->key, SSL_FILETYPE_PEM) != 1)
        return fail_file("--tls-key", tls->key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "--tls-key %s does not belong to --tls-cert %s",
                         tls->key, tls->cert);
    if (SSL_CTX_load_verify_file(ctx, tls->ca) != 1)
        return fail_file("--tls-ca", tls->ca);
    return WEFT_OK;
}

static weft_status make_context(const weft_control__tls *t, bool server,
                                const weft_control_certificates *tls, SSL_CTX **out)
{
    SSL_CTX *ctx = *out = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_set_num_tickets(ctx, 0))
        return fail_openssl("a context for TLS 1.3");
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* A server with a token has no certificate and asks for none: it needs the PSK to go on. */
    if (t->certificates || !server)
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (t->certificates) return use_certificates(ctx, tls);
    if (!SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256"))
        return fail_openssl("TLS_AES_128_GCM_SHA256");
    if (server)
        SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    else
        SSL_CTX_set_psk_use_session_callback(ctx, use_session);
    return WEFT_OK;
}

static weft_status check_options(const weft_control_options *o)
{
    int n = !!o->tls.cert + !!o->tls.key + !!o->tls.ca;
    if (n && n < 3)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "--tls-cert, --tls-key and --tls-ca go together: %s "
                         "is missing",
                         !o->tls.cert  ? "--tls-cert"
                         : !o->tls.key ? "--tls-key"
                                       : "--tls-ca");
    if (!n && !o->token)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "control: neither a token nor certificates");
    return WEFT_OK;
}

static weft_status make_keys(weft_control__tls *t, const weft_control_options *o)
{
    t->insecure = o->token->insecure;
    WEFT_TRY(derive_psk(o->token, &t->full));
    if (!o->reader) return WEFT_OK;
    WEFT_TRY(derive_psk(o->reader, &t->reader));
    if (strcmp(t->full.id, t->reader.id) != 0) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "the token that only reads is the job's token: make "
                                   "another with weft token FILE");
}

weft_status weft_control__tls_open(const weft_control_options *o, weft_control__tls **out)
{
    weft_control__tls *t  = NULL;
    weft_status        st = WEFT_OK;
    WEFT_TRY(check_options(o));
    ERR_clear_error();
    t = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for TLS");
    t->certificates = o->tls.cert;
    t->socket       = make_socket_method();
    if (!t->socket) WEFT_GO(fail_openssl("a BIO"));
    if (!t->certificates) WEFT_GO(make_keys(t, o));
    WEFT_GO(make_context(t, true, &o->tls, &t->server));
    WEFT_GO(make_context(t, false, &o->tls, &t->client));
    *out = t;
out:
    if (st != WEFT_OK) weft_control__tls_close(t);
    return st;
}

void weft_control__tls_close(weft_control__tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->server);
    SSL_CTX_free(t->client);
    BIO_meth_free(t->socket);
    weft_comm_key_wipe(&t->full.key);
    weft_comm_key_wipe(&t->reader.key);
    free(t);
}

/* ---- one connection ---- */

static bool begin_channel(weft_control__channel *ch)
{
    SSL *ssl = SSL_new(ch->server ? ch->tls->server : ch->tls->client);
    BIO *bio = ssl ? BIO_new(ch->tls->socket) : NULL;
    if (!bio || !SSL_set_app_data(ssl, ch)) {
        BIO_free(bio);
        SSL_free(ssl);
        return false;
    }
    BIO_set_data(bio, ch);
    SSL_set_bio(ssl, bio, bio);
    if (ch->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    ch->ssl = ssl;
    return true;
}

/* Did the other side say why it ends?  A client of TLS 1.3 may hear of its certificate after its
 * own handshake. */
static bool explain_alert(weft_control__channel *ch)
{
    unsigned long code = ERR_peek_error();
    int           n    = ERR_GET_REASON(code);
    if (n < SSL_AD_REASON_OFFSET || n >= SSL_AD_REASON_OFFSET + 256) return false;
    snprintf(
        ch->why, sizeof ch->why, "it refused this side's %s (%s): both sides need %s",
        ch->tls->certificates ? "certificate" : "token", ERR_reason_error_string(code),
        ch->tls->certificates ? "certificates of one CA" : "the same token file");
    return true;
}

static const char *name_error(void)
{
    unsigned long code   = ERR_peek_error();
    const char   *reason = code ? ERR_reason_error_string(code) : NULL;
    return reason ? reason : "no reason given";
}

/* What a failed handshake means, unless find_session has said it. */
static void explain_handshake(weft_control__channel *ch)
{
    if (*ch->why) return;
    if (ch->error)
        snprintf(ch->why, sizeof ch->why, "%s", strerror(ch->error));
    else if (explain_alert(ch))
        return;
    else if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        snprintf(ch->why, sizeof ch->why, "%s",
                 ch->tls->certificates
                     ? "its certificate is not one of this side's CA"
                     : "it shows a certificate, and this side has a token: give "
                       "--tls-cert, --tls-key and --tls-ca to both sides or to none");
    else if (ch->ended)
        snprintf(ch->why, sizeof ch->why,
                 "it closed the connection before it had proven itself");
    else
        snprintf(ch->why, sizeof ch->why,
                 "it does not prove a %s by TLS 1.3 (%s): is it weft?",
                 ch->tls->certificates ? "certificate" : "token", name_error());
}

static void explain_end(weft_control__channel *ch, int code)
{
    if (ch->error)
        snprintf(ch->why, sizeof ch->why, "%s", strerror(ch->error));
    else if (ch->ended || code == SSL_ERROR_ZERO_RETURN)
        snprintf(ch->why, sizeof ch->why, "it closed the connection");
    else if (!explain_alert(ch))
        snprintf(ch->why, sizeof ch->why,
                 "what it sent is no TLS record of this connection (%s)", name_error());
}

static weft_control__io read_code(weft_control__channel *ch, int rc, bool handshake)
{
    int code      = SSL_get_error(ch->ssl, rc);
    ch->wants_out = code == SSL_ERROR_WANT_WRITE;
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
        return WEFT_CONTROL__AGAIN;
    if (handshake)
        explain_handshake(ch);
    else
        explain_end(ch, code);
    ERR_clear_error();
    return WEFT_CONTROL__GONE;
}

weft_control__io weft_control__channel_handshake(weft_control__channel *ch)
{
    ERR_clear_error();
    if (!ch->ssl && !begin_channel(ch)) {
        snprintf(ch->why, sizeof ch->why, "no memory for TLS on this host");
        ERR_clear_error();
        return WEFT_CONTROL__GONE;
    }
    int rc = SSL_do_handshake(ch->ssl);
    if (rc != 1) return read_code(ch, rc, true);
    ch->wants_out = false;
    /* With a token a handshake that used no PSK proves nothing, whatever certificates say. */
    if (ch->tls->certificates || SSL_session_reused(ch->ssl)) return WEFT_CONTROL__DONE;
    snprintf(ch->why, sizeof ch->why, "it has not proven the token");
    return WEFT_CONTROL__GONE;
}

weft_control__io weft_control__channel_read(weft_control__channel *ch, void *p,
                                            size_t most, size_t *got)
{
    ERR_clear_error();
    int rc = SSL_read_ex(ch->ssl, p, most, got);
    return rc == 1 ? WEFT_CONTROL__DONE : read_code(ch, rc, false);
}

weft_control__io weft_control__channel_write(weft_control__channel *ch, const void *p,
                                             size_t bytes, size_t *sent)
{
    ERR_clear_error();
    int rc = SSL_write_ex(ch->ssl, p, bytes, sent);
    if (rc == 1) ch->wants_out = false;
    return rc == 1 ? WEFT_CONTROL__DONE : read_code(ch, rc, false);
}

void weft_control__channel_fini(weft_control__channel *ch)
{
    if (!ch->ssl) return;
    ERR_clear_error();
    if (SSL_is_init_finished(ch->ssl) && !*ch->why) (void)SSL_shutdown(ch->ssl);
    SSL_free(ch->ssl);
    ERR_clear_error();
    ch->ssl = NULL;
}
