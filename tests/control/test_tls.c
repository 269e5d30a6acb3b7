/* TLS below the frames: certificates, a proven peer that sends garbage, memory that runs out. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "control/control_priv.h"
#include "pair.h"
#include "support/count_alloc.h"

/* ---- certificates ---- */

typedef struct identity {
    EVP_PKEY *key;
    X509     *cert;
    char      cert_file[64], key_file[64];
} identity;

static char folder[] = "/tmp/weft-tls-XXXXXX";

/* A key, and a certificate that the CA signs (NULL: itself); written as PEM. */
static identity make_identity(const char *name, const identity *ca)
{
    identity id = {.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    FILE    *f;
    assert_true(id.key && id.cert && X509_set_version(id.cert, 2));
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), ca ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(id.cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(id.cert, X509_get_subject_name(ca ? ca->cert : id.cert));
    X509_set_pubkey(id.cert, id.key);
    if (!ca) {
        X509_EXTENSION *e =
            X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "critical,CA:TRUE");
        assert_true(e && X509_add_ext(id.cert, e, -1));
        X509_EXTENSION_free(e);
    }
    assert_true(X509_sign(id.cert, ca ? ca->key : id.key, EVP_sha256()));
    snprintf(id.cert_file, sizeof id.cert_file, "%s/%s.pem", folder, name);
    snprintf(id.key_file, sizeof id.key_file, "%s/%s.key", folder, name);
    f = fopen(id.cert_file, "w");
    assert_true(f && PEM_write_X509(f, id.cert));
    fclose(f);
    f = fopen(id.key_file, "w");
    assert_true(f && PEM_write_PrivateKey(f, id.key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    return id;
}

static void free_identity(identity *id)
{
    unlink(id->cert_file);
    unlink(id->key_file);
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

static weft_control_options with_certificate(const identity *id, const identity *ca,
                                             bool listens)
{
    return (weft_control_options){
        .listen = listens ? "127.0.0.1:0" : NULL,
        .tls    = {.cert = id->cert_file, .key = id->key_file, .ca = ca->cert_file},
        .self   = hello_of(listens ? "beta" : "alpha")};
}

static void expect_refused(weft_control *a, weft_control *b, const char *at_a,
                           const char *at_b)
{
    weft_control_event e;
    connect_planes(a, b);
    /* in TLS 1.3 a client may be done before the server has looked at its certificate */
    expect_event(b, a, WEFT_CONTROL_REFUSED, &e);
    if (!strstr(e.text, at_b)) fail_msg("no '%s' in '%s'", at_b, e.text);
    expect_event(a, b, WEFT_CONTROL_CLOSED, &e);
    if (!strstr(e.text, at_a)) fail_msg("no '%s' in '%s'", at_a, e.text);
    weft_control_close(a);
    weft_control_close(b);
}

static void certificates_of_one_ca(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    identity ca = make_identity("ca", NULL), other = make_identity("other", NULL);
    identity one = make_identity("one", &ca), two = make_identity("two", &ca);
    identity bad = make_identity("bad", &other);

    weft_control_options oa = with_certificate(&one, &ca, false);
    weft_control_options ob = with_certificate(&two, &ca, true);
    weft_control        *a = open_plane(&oa), *b = open_plane(&ob);
    int64_t              to_b, to_a;
    weft_control_event   e;
    open_both(a, b, &to_b, &to_a);
    assert_int_equal(weft_control_send(a, to_b, 5, "abc", 3), WEFT_OK);
    expect_event(b, a, WEFT_CONTROL_FRAME, &e);
    assert_true(e.frame == 5 && e.bytes == 3);
    weft_control_close(a);
    weft_control_close(b);

    /* one of another CA; a token; and, to a side with a token, a certificate */
    weft_control_options oc = with_certificate(&bad, &ca, false);
    expect_refused(open_plane(&oc), open_plane(&ob), "refused this side's certificate",
                   "not one of this side's CA");
    weft_comm_token token = token_of(1);
    expect_refused(open_host("a", &token, false), open_plane(&ob),
                   "it shows a certificate", "");
    expect_refused(open_plane(&oa), open_host("b", &token, true), "refused this side's",
                   "");

    /* files that do not belong together, or are not there */
    oc.tls.key = one.key_file;
    assert_int_equal(weft_control_open(&oc, &a), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "--tls-key"));
    oc.tls.key = "/nonexistent";
    assert_int_equal(weft_control_open(&oc, &a), WEFT_ERR_ARG);
    oc.tls.key = NULL;
    assert_int_equal(weft_control_open(&oc, &a), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "--tls-key is missing"));
    free_identity(&ca);
    free_identity(&other);
    free_identity(&one);
    free_identity(&two);
    free_identity(&bad);
    rmdir(folder);
}

/* ---- a peer that holds the token and sends garbage ---- */

typedef struct proven {
    weft_comm_tls    *tls;
    weft_comm_tls_end channel;
} proven;

static void prove(weft_control *b, proven *p)
{
    weft_comm_token      token = token_of(1);
    weft_control_options o     = {.token = &token, .self = hello_of("alpha")};
    weft_comm_tls_io     io;
    *p = (proven){0};
    assert_int_equal(weft_control__tls_open(&o, &p->tls), WEFT_OK);
    p->channel = (weft_comm_tls_end){.tls = p->tls, .fd = connect_raw(b)};
    while ((io = weft_comm_tls_handshake(&p->channel)) == WEFT_COMM_TLS_AGAIN)
        weft_control_serve(b, weft_clock_s());
    assert_int_equal(io, WEFT_COMM_TLS_DONE);
}

static void say(proven *p, const void *data, size_t n)
{
    size_t sent;
    assert_int_equal(weft_comm_tls_write(&p->channel, data, n, &sent),
                     WEFT_COMM_TLS_DONE);
    assert_int_equal(sent, n);
}

static void say_hello(proven *p)
{
    weft_text            t     = {0};
    weft_control__buffer frame = {0};
    weft_control_hello   hello = hello_of("alpha");
    weft_control_hello_print(&hello, &t);
    assert_int_equal(weft_control__frame_put(&frame, WEFT_CONTROL__HELLO, t.s, t.n),
                     WEFT_OK);
    say(p, frame.byte, frame.n);
    weft_control__buffer_fini(&frame);
    weft_text_fini(&t);
}

static void leave(proven *p)
{
    int fd = p->channel.fd;
    weft_comm_tls_end_fini(&p->channel);
    weft_comm_tls_close(p->tls);
    close(fd);
}

static void garbage_of_a_proven_peer_closes_it(void **state)
{
    static const uint8_t no_hello[]   = {3, 0, 0, 0, 9, 0, 0, 0, 'a', 'b', 'c'};
    static const uint8_t long_hello[] = {0xff, 0xff, 0, 0, 1, 0, 0, 0};
    static const uint8_t bad_hello[]  = {3, 0, 0, 0, 1, 0, 0, 0, 'a', 'b', 'c'};
    static const uint8_t too_long[]   = {1, 0, 0x10, 0, 17, 0, 0, 0};
    static const uint8_t ours[]       = {0, 0, 0, 0, 2, 0, 0, 0};
    static const struct {
        const uint8_t *data;
        size_t         n;
        bool           opens;
        const char    *why;
    } list[] = {
        {no_hello, sizeof no_hello, false, "no hello"},
        {long_hello, sizeof long_hello, false, "no hello"},
        {bad_hello, sizeof bad_hello, false, "no hello"},
        {too_long, sizeof too_long, true, "no frame"},
        {ours, sizeof ours, true, "no frame"},
    };
    weft_comm_token token = token_of(1);
    weft_control   *b     = open_host("beta", &token, true);
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        weft_control_event e;
        proven             p;
        prove(b, &p);
        if (list[k].opens) {
            say_hello(&p);
            expect_event(b, NULL, WEFT_CONTROL_OPENED, &e);
            assert_string_equal(e.hello->host, "alpha");
        }
        say(&p, list[k].data, list[k].n);
        expect_event(b, NULL, list[k].opens ? WEFT_CONTROL_CLOSED : WEFT_CONTROL_REFUSED,
                     &e);
        if (!strstr(e.text, list[k].why)) fail_msg("%zu: '%s'", k, e.text);
        leave(&p);
    }
    weft_control_close(b);
}

/* Bytes that are no records of this connection: below TLS, after it was opened. */
static void bytes_on_the_wire_that_are_not_ours(void **state)
{
    weft_comm_token    token = token_of(1);
    weft_control      *b     = open_host("beta", &token, true);
    weft_control_event e;
    proven             p;
    uint8_t            junk[64];
    (void)state;
    prove(b, &p);
    say_hello(&p);
    expect_event(b, NULL, WEFT_CONTROL_OPENED, &e);
    memset(junk, 0x17, sizeof junk);
    assert_int_equal(send(p.channel.fd, junk, sizeof junk, 0), sizeof junk);
    expect_event(b, NULL, WEFT_CONTROL_CLOSED, &e);
    assert_non_null(strstr(e.text, "no TLS record"));
    leave(&p);
    /* half-closed after it was opened */
    prove(b, &p);
    say_hello(&p);
    expect_event(b, NULL, WEFT_CONTROL_OPENED, &e);
    shutdown(p.channel.fd, SHUT_WR);
    expect_event(b, NULL, WEFT_CONTROL_CLOSED, &e);
    assert_non_null(strstr(e.text, "closed the connection"));
    leave(&p);
    weft_control_close(b);
}

/* ---- memory that runs out ---- */

/* A connection is opened and a frame is sent; the n-th allocation fails.  It works, or there is a
 * reason; nothing crashes, and the next one works. */
static bool try_once(weft_control *a, weft_control *b, int64_t n)
{
    weft_control_event e;
    char               at[32];
    int64_t            peer = 0, to_a = 0;
    bool               whole = false;
    snprintf(at, sizeof at, "127.0.0.1:%d", weft_control_port(b));
    if (!weft_test_alloc_fail_at(n)) return true;
    bool fine = weft_control_connect(a, at, weft_clock_s(), &peer) == WEFT_OK;
    for (int k = 0; fine && !whole && k < 400; k++) {
        struct pollfd p[2] = {{.fd = weft_control_fd(a), .events = POLLIN},
                              {.fd = weft_control_fd(b), .events = POLLIN}};
        (void)poll(p, 2, 1);
        weft_control_serve(a, weft_clock_s());
        weft_control_serve(b, weft_clock_s());
        while (weft_control_next(a, &e)) {
            if (e.kind == WEFT_CONTROL_CLOSED) fine = false;
            if (e.kind == WEFT_CONTROL_OPENED)
                (void)weft_control_send(a, peer, 3, "abc", 3);
        }
        while (weft_control_next(b, &e)) {
            if (e.kind == WEFT_CONTROL_OPENED) to_a = e.peer;
            if (e.kind == WEFT_CONTROL_FRAME) whole = true;
        }
    }
    weft_test_alloc_fail_at(0);
    weft_control_end(a, peer);
    if (to_a) weft_control_end(b, to_a);
    for (int k = 0; k < 3; k++) {
        weft_control_serve(a, weft_clock_s());
        weft_control_serve(b, weft_clock_s());
        while (weft_control_next(a, &e) || weft_control_next(b, &e)) continue;
    }
    return whole;
}

static void every_failing_allocation_is_survived(void **state)
{
    weft_comm_token token = token_of(1);
    weft_control   *a     = open_host("alpha", &token, false),
                 *b       = open_host("beta", &token, true);
    (void)state;
    assert_true(try_once(a, b, 0)); /* tables that OpenSSL makes once */
    int64_t before = weft_test_allocs(), n_failed = 0;
    assert_true(try_once(a, b, 0));
    int64_t n = weft_test_allocs() - before;
    for (int64_t k = 1; k <= n; k += k < 40 ? 1 : 7) n_failed += !try_once(a, b, k);
    if (!WEFT_TEST_SANITIZED) assert_true(n_failed > 0);
    assert_true(try_once(a, b, 0));
    weft_control_close(a);
    weft_control_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_of_one_ca),
        cmocka_unit_test(garbage_of_a_proven_peer_closes_it),
        cmocka_unit_test(bytes_on_the_wire_that_are_not_ours),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
