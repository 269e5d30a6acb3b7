#include "comm/tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* AES-GCM is good for 2^24.5 records under one key (RFC 8446, 5.5): keys change well before. */
static const int64_t REKEY_BYTES = INT64_C(64) << 30;

struct weft_comm_tls {
    SSL_CTX              *server, *client;
    BIO_METHOD           *socket;
    bool                  certificates;
    weft_comm_tls_options o; /* files are not kept */
};

/* ---- keys ---- */

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

/* A server: which key?  None: the handshake goes on without, and fails without a certificate. */
static int find_session(SSL *ssl, const unsigned char *id, size_t n, SSL_SESSION **out)
{
    weft_comm_tls_end           *end = SSL_get_app_data(ssl);
    const weft_comm_tls_options *o   = &end->tls->o;
    *out                             = NULL;
    for (int k = 0; k < o->n_psk; k++) {
        if (n != strlen(o->psk[k].id) || memcmp(o->psk[k].id, id, n) != 0) continue;
        end->psk = k;
        *out     = make_session(ssl, &o->psk[k].key);
        return *out != NULL;
    }
    snprintf(end->why, sizeof end->why, "%s",
             o->explain ? o->explain(o->psk[0].id, (const char *)id, n)
                        : "it has another key");
    return 1;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id,
                       size_t *n, SSL_SESSION **out)
{
    const weft_comm_tls_end *end = SSL_get_app_data(ssl);
    const weft_comm_tls_psk *psk = &end->tls->o.psk[0];
    (void)digest; /* SHA-256: the only cipher suite has it */
    *id  = (const unsigned char *)psk->id;
    *n   = strlen(psk->id);
    *out = make_session(ssl, &psk->key);
    return *out != NULL;
}

/* ---- the socket below: no SIGPIPE ---- */

static int write_socket(BIO *bio, const char *p, int n)
{
    weft_comm_tls_end *end = BIO_get_data(bio);
    ssize_t            did = send(end->fd, p, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (did >= 0) return (int)did;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_retry_write(bio);
    else
        end->error = errno;
    return -1;
}

static int read_socket(BIO *bio, char *p, int n)
{
    weft_comm_tls_end *end = BIO_get_data(bio);
    ssize_t            did = recv(end->fd, p, (size_t)n, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (did == 0) end->ended = true;
    if (did >= 0) return (int)did;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_retry_read(bio);
    else
        end->error = errno;
    return -1;
}

static long control_socket(BIO *bio, int what, long number, void *p)
{
    const weft_comm_tls_end *end = BIO_get_data(bio);
    (void)number;
    (void)p;
    if (what == BIO_CTRL_EOF) return end->ended;
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

static weft_status use_certificates(SSL_CTX *ctx, const weft_comm_tls_options *o)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, o->cert) != 1)
        return fail_file("--tls-cert", o->cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, o->key, SSL_FILETYPE_PEM) != 1)
        return fail_file("--tls-key", o->key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "--tls-key %s does not belong to --tls-cert %s",
                         o->key, o->cert);
    if (SSL_CTX_load_verify_file(ctx, o->ca) != 1) return fail_file("--tls-ca", o->ca);
    return WEFT_OK;
}

static weft_status make_context(const weft_comm_tls *t, bool server,
                                const weft_comm_tls_options *o, SSL_CTX **out)
{
    SSL_CTX *ctx = *out = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_set_num_tickets(ctx, 0))
        return fail_openssl("a context for TLS 1.3");
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* A server with a token has no certificate and asks for none: it needs the PSK to go on. */
    if (t->certificates || !server)
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (t->certificates) return use_certificates(ctx, o);
    if (!SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256"))
        return fail_openssl("TLS_AES_128_GCM_SHA256");
    if (server)
        SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    else
        SSL_CTX_set_psk_use_session_callback(ctx, use_session);
    return WEFT_OK;
}

weft_status weft_comm_tls_open(const weft_comm_tls_options *o, weft_comm_tls **out)
{
    weft_comm_tls *t  = NULL;
    weft_status    st = WEFT_OK;
    ERR_clear_error();
    t = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for TLS");
    t->certificates = o->cert;
    t->o            = *o;
    t->o.cert = t->o.key = t->o.ca = NULL;
    t->socket                      = make_socket_method();
    if (!t->socket) WEFT_GO(fail_openssl("a BIO"));
    WEFT_GO(make_context(t, true, o, &t->server));
    WEFT_GO(make_context(t, false, o, &t->client));
    *out = t;
out:
    if (st != WEFT_OK) weft_comm_tls_close(t);
    return st;
}

void weft_comm_tls_close(weft_comm_tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->server);
    SSL_CTX_free(t->client);
    BIO_meth_free(t->socket);
    OPENSSL_cleanse(t->o.psk, sizeof t->o.psk);
    free(t);
}

/* ---- one connection ---- */

static bool begin_channel(weft_comm_tls_end *end)
{
    SSL *ssl = SSL_new(end->server ? end->tls->server : end->tls->client);
    BIO *bio = ssl ? BIO_new(end->tls->socket) : NULL;
    if (!bio || !SSL_set_app_data(ssl, end)) {
        BIO_free(bio);
        SSL_free(ssl);
        return false;
    }
    BIO_set_data(bio, end);
    SSL_set_bio(ssl, bio, bio);
    if (end->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    end->ssl = ssl;
    return true;
}

/* Did the other side say why it ends?  A client of TLS 1.3 may hear of its certificate after its
 * own handshake. */
static bool explain_alert(weft_comm_tls_end *end)
{
    unsigned long code = ERR_peek_error();
    int           n    = ERR_GET_REASON(code);
    if (n < SSL_AD_REASON_OFFSET || n >= SSL_AD_REASON_OFFSET + 256) return false;
    snprintf(
        end->why, sizeof end->why, "it refused this side's %s (%s): both sides need %s",
        end->tls->certificates ? "certificate" : "token", ERR_reason_error_string(code),
        end->tls->certificates ? "certificates of one CA" : "the same token file");
    return true;
}

static const char *name_error(void)
{
    unsigned long code   = ERR_peek_error();
    const char   *reason = code ? ERR_reason_error_string(code) : NULL;
    return reason ? reason : "no reason given";
}

/* What a failed handshake means, unless find_session has said it. */
static void explain_handshake(weft_comm_tls_end *end)
{
    if (*end->why) return;
    if (end->error)
        snprintf(end->why, sizeof end->why, "%s", strerror(end->error));
    else if (explain_alert(end))
        return;
    else if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        snprintf(end->why, sizeof end->why, "%s",
                 end->tls->certificates
                     ? "its certificate is not one of this side's CA"
                     : "it shows a certificate, and this side has a token: give "
                       "--tls-cert, --tls-key and --tls-ca to both sides or to none");
    else if (end->ended)
        snprintf(end->why, sizeof end->why,
                 "it closed the connection before it had proven itself");
    else
        snprintf(end->why, sizeof end->why,
                 "it does not prove a %s by TLS 1.3 (%s): is it weft?",
                 end->tls->certificates ? "certificate" : "token", name_error());
}

static void explain_end(weft_comm_tls_end *end, int code)
{
    if (end->error)
        snprintf(end->why, sizeof end->why, "%s", strerror(end->error));
    else if (end->ended || code == SSL_ERROR_ZERO_RETURN)
        snprintf(end->why, sizeof end->why, "it closed the connection");
    else if (!explain_alert(end))
        snprintf(end->why, sizeof end->why,
                 "what it sent is no TLS record of this connection (%s)", name_error());
}

static weft_comm_tls_io read_code(weft_comm_tls_end *end, int rc, bool handshake)
{
    int code       = SSL_get_error(end->ssl, rc);
    end->wants_out = code == SSL_ERROR_WANT_WRITE;
    if (code == SSL_ERROR_ZERO_RETURN) end->ended = true;
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
        return WEFT_COMM_TLS_AGAIN;
    if (handshake)
        explain_handshake(end);
    else
        explain_end(end, code);
    ERR_clear_error();
    return WEFT_COMM_TLS_GONE;
}

weft_comm_tls_io weft_comm_tls_handshake(weft_comm_tls_end *end)
{
    ERR_clear_error();
    if (!end->ssl && !begin_channel(end)) {
        snprintf(end->why, sizeof end->why, "no memory for TLS on this host");
        ERR_clear_error();
        return WEFT_COMM_TLS_GONE;
    }
    int rc = SSL_do_handshake(end->ssl);
    if (rc != 1) return read_code(end, rc, true);
    end->wants_out = false;
    /* With a token a handshake that used no PSK proves nothing, whatever certificates say. */
    if (end->tls->certificates || SSL_session_reused(end->ssl)) return WEFT_COMM_TLS_DONE;
    snprintf(end->why, sizeof end->why, "it has not proven the token");
    return WEFT_COMM_TLS_GONE;
}

weft_comm_tls_io weft_comm_tls_read(weft_comm_tls_end *end, void *p, size_t most,
                                    size_t *got)
{
    ERR_clear_error();
    int rc = SSL_read_ex(end->ssl, p, most, got);
    return rc == 1 ? WEFT_COMM_TLS_DONE : read_code(end, rc, false);
}

size_t weft_comm_tls_pending(const weft_comm_tls_end *end)
{
    return (size_t)SSL_pending(end->ssl);
}

weft_comm_tls_io weft_comm_tls_write(weft_comm_tls_end *end, const void *p, size_t bytes,
                                     size_t *sent)
{
    ERR_clear_error();
    int rc = SSL_write_ex(end->ssl, p, bytes, sent);
    if (rc != 1) return read_code(end, rc, false);
    end->wants_out = false;
    end->n_written += (int64_t)*sent;
    if (end->n_written >= REKEY_BYTES) { /* with the next record */
        (void)SSL_key_update(end->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
        end->n_written = 0;
    }
    return WEFT_COMM_TLS_DONE;
}

void weft_comm_tls_end_fini(weft_comm_tls_end *end)
{
    if (!end->ssl) return;
    ERR_clear_error();
    if (SSL_is_init_finished(end->ssl) && !*end->why) (void)SSL_shutdown(end->ssl);
    SSL_free(end->ssl);
    ERR_clear_error();
    end->ssl = NULL;
}
