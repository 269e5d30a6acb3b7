/* TLS between ranks: the same messages and sums, nothing readable on the wire, and a rank that
 * does not encrypt is told so. */
#include <sys/uio.h>

#include "ranks.h"

#include <errno.h>
#include "comm/net_priv.h"
#include "comm/net_tcp.h"

/* ---- one connection, without ranks ---- */

typedef struct wire {
    net_end     end;
    tcp_secure *at[2];
    int         fd[2];
} wire;

static void open_wire(wire *w, uint8_t number)
{
    weft_comm_key key = {{number}};
    *w                = (wire){0};
    assert_int_equal(weft_comm__tcp_secure_keys(&w->end, &key), WEFT_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, w->fd), 0);
    for (int k = 0; k < 2; k++) w->at[k] = weft_comm__tcp_secure_open(&w->end, k);
    for (int done[2] = {0}, k = 0; done[0] <= 0 || done[1] <= 0; k ^= 1) {
        if (done[k] <= 0) done[k] = weft_comm__tcp_secure_drive(w->at[k], w->fd[k]);
        assert_true(done[k] >= 0);
    }
}

static void close_wire(wire *w)
{
    for (int k = 0; k < 2; k++) {
        weft_comm__tcp_secure_close(w->at[k], w->fd[k]);
        close(w->fd[k]);
    }
    weft_comm_tls_close(w->end.tls);
}

static void nothing_is_readable_on_the_wire(void **state)
{
    static char  text[50000], back[50000], raw[8192];
    wire         w;
    size_t       sent = 0, got = 0;
    struct iovec v[2];
    (void)state;
    for (size_t i = 0; i < sizeof text; i++) text[i] = "secret weights"[i % 14];
    open_wire(&w, 1);
    while (got < sizeof text) {
        if (sent < sizeof text) { /* in two pieces, as a head and its data */
            size_t  half = (sizeof text - sent) / 2;
            ssize_t k;
            v[0] = (struct iovec){text + sent, half};
            v[1] = (struct iovec){text + sent + half, sizeof text - sent - half};
            k    = weft_comm__tcp_secure_send(w.at[0], w.fd[0], v, 2);
            if (k > 0) sent += (size_t)k;
        } else if (weft_comm__tcp_secure_has_output(w.at[0])) {
            assert_true(weft_comm__tcp_secure_send(w.at[0], w.fd[0], v, 0) <= 0);
        }
        ssize_t n = recv(w.fd[1], raw, sizeof raw, MSG_PEEK | MSG_DONTWAIT);
        assert_true(n < 14 || !memmem(raw, (size_t)n, "secret", 6));
        v[0]      = (struct iovec){back + got, sizeof back - got};
        ssize_t k = weft_comm__tcp_secure_recv(w.at[1], w.fd[1], v, 1);
        if (k > 0) got += (size_t)k;
    }
    assert_memory_equal(text, back, sizeof text);
    assert_false(weft_comm__tcp_secure_has_input(w.at[1]));
    close_wire(&w);
}

/* A changed byte ends the connection; so does its end, which reads as the end. */
static void a_changed_byte_is_not_taken(void **state)
{
    char         text[64] = "abc", raw[256];
    wire         w;
    struct iovec v = {text, sizeof text};
    (void)state;
    open_wire(&w, 1);
    assert_int_equal(weft_comm__tcp_secure_send(w.at[0], w.fd[0], &v, 1), sizeof text);
    ssize_t n = recv(w.fd[1], raw, sizeof raw, 0);
    assert_true(n > (ssize_t)sizeof text);
    raw[n / 2] ^= 1;
    assert_int_equal(send(w.fd[0], raw, (size_t)n, 0), n);
    assert_int_equal(weft_comm__tcp_secure_recv(w.at[1], w.fd[1], &v, 1), -1);
    assert_int_equal(errno, EBADMSG);
    close_wire(&w);
    open_wire(&w, 1);
    weft_comm__tcp_secure_close(w.at[0], w.fd[0]);
    w.at[0] = NULL;
    assert_int_equal(weft_comm__tcp_secure_recv(w.at[1], w.fd[1], &v, 1), 0);
    close_wire(&w);
}

/* ---- ranks ---- */

static weft_status add_up(rank_state *r)
{
    enum {
        N = 200003
    };
    weft_comm_group *g;
    float           *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out);
    int              wrong = 0;
    if (!in || !out) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (!strstr(r->c->transport, "tls"))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "over %s", r->c->transport);
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 0, &g));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) in[i] = (float)(r->rank + i % 1000 + round);
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_F32, in, out, N));
        for (int i = 0; i < N; i++)
            wrong += out[i] != (float)(r->n * (r->n - 1) / 2 + r->n * (i % 1000 + round));
    }
    free(in);
    free(out);
    return wrong ? WEFT_FAIL(WEFT_ERR_NUMERIC, "%d numbers are wrong", wrong) : WEFT_OK;
}

static void sums_of_ranks(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        run_ranks(n == 2 ? TCP : BOTH, n, 60, add_up);
        all_ok(n == 2 ? TCP : BOTH, n);
    }
}

static void a_rank_in_clear_text_is_told(void **state)
{
    weft_comm  *c;
    const void *p;
    int64_t     bytes;
    (void)state;
    assert_int_equal(
        weft_comm_net_open(
            &(weft_comm_net_options){.world = 2, .device = "lo", .by = "tcp"}, &c),
        WEFT_OK);
    weft_comm_net_address(c, &p, &bytes);
    assert_int_equal(weft_comm_net_check_address(p, bytes, true), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "it does not talk over tls"));
    weft_comm_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_readable_on_the_wire),
        cmocka_unit_test(a_changed_byte_is_not_taken),
        cmocka_unit_test(sums_of_ranks),
        cmocka_unit_test(a_rank_in_clear_text_is_told),
    };
    setenv("WEFT_NET", "tls", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
