/* What peers send, in memory: heads with any numbers under a right sum, pieces in any order,
 * messages that are expected, kept or given up meanwhile.  The first byte chooses the link: one
 * that takes whole messages in any order, or net_tcp.c reading a stream, which comes in runs of
 * any length. Whatever comes, nothing is written outside of a message, none is complete before
 * all of its bytes came, and none is written to after it was forgotten (posts and their memory
 * are freed). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static ssize_t read_stream(int fd, struct msghdr *m, int flags);
#define recvmsg read_stream
#include "../../src/runtime/comm/net_tcp.c"
#undef recvmsg

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    WORLD     = 3,
    N_POST    = 6,
    FIRST_FD  = 5000, /* that no file has */
    MOST_SENT = 1 << 20,
};

typedef struct input {
    const uint8_t *p;
    size_t         n;
} input;

typedef struct expected {
    net_post *post;
    net_port *port;
    char     *out, *mine;
} expected;

/* What a peer has sent and nobody has read. */
typedef struct stream {
    char  *p;
    size_t n, at;
} stream;

typedef struct fuzz {
    input    in;
    net_end  e;
    net_peer peer[WORLD];
    expected of[N_POST];
    stream   from[WORLD];
    net_flow flow;
    bool     flows;
} fuzz;

static fuzz *f;

static uint64_t take_number(int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) {
        x = x << 8 | (f->in.n ? *f->in.p : 0);
        if (f->in.n) f->in.p++, f->in.n--;
    }
    return x;
}

/* ---- a link made of memory ---- */

static unsigned do_nothing(net_end *e)
{
    (void)e;
    return 0;
}

static void have_no_line(net_end *e, int to)
{
    (void)e, (void)to;
}

static const net_link memory_link = {.name      = "memory",
                                     .piece     = NET_SHORT,
                                     .overtakes = true,
                                     .progress  = do_nothing,
                                     .connect   = have_no_line,
                                     .cut       = have_no_line};

/* ---- a stream made of memory ---- */

static ssize_t read_stream(int fd, struct msghdr *m, int flags)
{
    (void)flags;
    stream *s    = &f->from[fd - FIRST_FD];
    size_t  most = 1 + take_number(1) * 97, sum = 0;
    for (size_t i = 0; i < m->msg_iovlen; i++) {
        size_t k = m->msg_iov[i].iov_len;
        if (k > most - sum) k = most - sum;
        if (k > s->n - s->at) k = s->n - s->at;
        if (k) memcpy(m->msg_iov[i].iov_base, s->p + s->at, k);
        s->at += k;
        sum += k;
    }
    if (sum) return (ssize_t)sum;
    errno = EAGAIN;
    return -1;
}

static void add_to_stream(int from, const void *p, size_t n)
{
    stream *s = &f->from[from];
    if (s->at) memmove(s->p, s->p + s->at, s->n - s->at);
    s->n -= s->at;
    s->at = 0;
    if (s->n + n > MOST_SENT) return;
    s->p = realloc(s->p, s->n + n + 1);
    if (n) memcpy(s->p + s->n, p, n);
    s->n += n;
}

/* ---- messages ---- */

static int64_t some_length(void)
{
    static const int64_t of[] = {0,     1,      3,      4,      64,      100,
                                 65536, 131072, 200000, 524288, 1048576, 70000};
    uint64_t             k    = take_number(1);
    return k < 240 ? of[k % WEFT_COUNT(of)] : (int64_t)take_number(8);
}

static uint64_t some_port(void)
{
    uint64_t k = take_number(1);
    return k < 200 ? (k & 1) | (k & 2 ? UINT64_C(7) << 32 : 0) : take_number(8);
}

static int64_t some_place(void)
{
    static const int64_t of[] = {0, 65536, 131072, 196608, INT64_MAX, INT64_MIN, -1, 1};
    uint64_t             k    = take_number(1);
    if (k < 160) return of[k % WEFT_COUNT(of)];
    return k < 230 ? (int64_t)k - 160 : (int64_t)take_number(8);
}

/* Mostly with the sizes that a head of its kind has. */
static net_head some_head(net_kind *kind)
{
    uint64_t k = take_number(1), odd = take_number(1);
    net_head h = {.port = some_port(), .seq = (uint32_t)take_number(1) % 4};
    *kind      = k < 160 ? NET_DATA : (net_kind)(k % 13);
    bool sized = *kind == NET_DATA;
    h.step     = (uint32_t)take_number(1) % 2;
    if (sized || *kind == NET_OPEN || odd & 1) h.length = some_length();
    if (sized || odd & 2) h.at = some_place();
    if (sized) h.bytes = (uint32_t)(h.length < 65536 ? h.length : 65536);
    if (odd & 4 || *kind == NET_ABORT) h.bytes = (uint32_t)take_number(1);
    if (odd & 8) h.bytes = (uint32_t)take_number(3);
    h.epoch = odd >> 4 == 1;
    h.what  = odd >> 4 == 2;
    return h;
}

static void send_one(void)
{
    net_kind kind;
    int      from   = 1 + (int)take_number(1) % 2;
    net_head h      = some_head(&kind);
    net_end  sender = f->e;
    sender.c.rank   = from;
    weft_comm__net_finish_head(&sender, 0, &h, kind);
    size_t n    = h.bytes < MOST_SENT / 2 ? h.bytes : MOST_SENT / 2;
    char  *data = malloc(n + 1);
    memset(data, 0x41, n);
    if (f->e.link != &memory_link) {
        add_to_stream(from, &h, sizeof h);
        add_to_stream(from, data, n);
    } else {
        char *exact = malloc(n); /* nothing after it may be read */
        if (n) memcpy(exact, data, n);
        if (weft_comm__net_check_head(&f->e, &h))
            weft_comm__net_refuse(&f->e, h.source, "wrong");
        else
            weft_comm__net_arrive(&f->e, &h, n ? exact : NULL);
        free(exact);
    }
    free(data);
}

/* ---- what is expected ---- */

static void expect_one(void)
{
    expected *x = NULL;
    for (int i = 0; i < N_POST && !x; i++)
        if (!f->of[i].post) x = &f->of[i];
    int      source = 1 + (int)take_number(1) % 2;
    uint64_t id     = (take_number(1) & 1) | (take_number(1) & 1 ? UINT64_C(7) << 32 : 0);
    int64_t  length = some_length();
    bool     adds   = (take_number(1) & 3) == 0;
    if (!x || length < 0 || length > MOST_SENT) return;
    if (adds) length = length / 4 * 4;
    x->port      = weft_comm__net_port(&f->e, id & NET_IS_GROUP ? NET_GROUP : NET_IN,
                                  id & NET_IS_GROUP ? -1 : source, id);
    x->out       = calloc(1, (size_t)length + 1);
    x->mine      = adds ? calloc(1, (size_t)length + 1) : NULL;
    x->post      = malloc(sizeof *x->post);
    *x->post     = (net_post){.source     = source,
                              .epoch      = x->port->epoch,
                              .seq        = (uint32_t)take_number(1) % 4,
                              .step       = (uint32_t)take_number(1) % 2,
                              .length     = length,
                              .out        = x->out,
                              .mine       = x->mine,
                              .mine_first = length & 8,
                              .dtype      = WEFT_DTYPE_F32};
    x->out       = realloc(x->out, (size_t)length + !length);
    x->post->out = x->out;
    weft_comm__net_expect(&f->e, x->port, x->post, take_number(1) & 1);
}

static void forget_one(int i)
{
    expected *x = &f->of[i];
    if (!x->post) return;
    if (x->post->first > x->post->length) abort();
    for (int64_t k = 0; x->post->done && k < x->post->length; k++)
        if (x->out[k] != 0x41) abort(); /* complete, and a byte never came */
    weft_comm__net_forget(&f->e, x->port, x->post);
    free(x->post);
    free(x->out);
    free(x->mine);
    *x = (expected){0};
}

static void flow_one(void)
{
    static const char data[70000];
    int               to = 1 + (int)take_number(1) % 2;
    uint64_t          id = take_number(1) & 1 ? UINT64_C(7) << 32 : 0;
    if (f->flows) weft_comm__net_stop(&f->e, &f->flow);
    net_port *port =
        weft_comm__net_port(&f->e, id ? NET_GROUP : NET_OUT, id ? -1 : to, id);
    f->flow = (net_flow){.to      = to,
                         .port    = id,
                         .epoch   = port->epoch,
                         .seq     = (uint32_t)take_number(1) % 4,
                         .p       = data,
                         .unasked = NET_SHORT,
                         .length  = sizeof data};
    weft_comm__net_start(&f->e, port, &f->flow);
    f->flows = true;
}

static void renew_one(void)
{
    int       source = 1 + (int)take_number(1) % 2;
    net_port *p      = weft_comm__net_port(&f->e, NET_IN, source, take_number(1) & 1);
    if (take_number(1) & 1) p->most_ahead = 2, p->most_bytes = 100000;
    if (take_number(1) & 1) p->seq++;
    if (take_number(1) & 1) weft_comm__net_renew(&f->e, p, p->epoch + 1);
}

/* ---- */

static void connect_one(int from)
{
    if (f->e.link == &memory_link || inlet_of(&f->e, from)) return;
    f->from[from].n = f->from[from].at = 0;
    open_inlet(&f->e, from, FIRST_FD + from, NULL);
}

static void step(void)
{
    uint64_t op = take_number(1);
    switch (op % 16) {
    case 0:
    case 1:
    case 2: expect_one(); break;
    case 3: forget_one((int)(op / 16) % N_POST); break;
    case 4: flow_one(); break;
    case 5: renew_one(); break;
    case 6: connect_one(1 + (int)(op / 16) % 2); break;
    case 7:
    case 8:
    case 9: weft_comm__net_pump(&f->e); break;
    default: send_one(); break;
    }
}

static void open_end(bool streams)
{
    net_end *e    = &f->e;
    *e            = (net_end){.link      = streams ? &weft_comm__net_tcp : &memory_link,
                              .efd       = -1,
                              .kick      = -1,
                              .nudge     = -1,
                              .keeper    = -1,
                              .most_held = 1 << 20,
                              .peer      = f->peer};
    e->c          = (weft_comm){.world = WORLD, .timeout_s = 1, .impl = e};
    e->outbox_end = &e->outbox;
    e->bounce     = malloc((size_t)e->link->piece);
    if (!streams) return;
    tcp_state *s   = calloc(1, sizeof *s);
    e->link_state  = s;
    s->listener.fd = s->listener.reserve_fd = -1;
    for (int r = 1; r < WORLD; r++) connect_one(r);
}

static void close_end(void)
{
    net_end *e = &f->e;
    for (int i = 0; i < N_POST; i++) forget_one(i);
    if (f->flows) weft_comm__net_stop(e, &f->flow);
    if (e->link_state) close_link(e);
    weft_comm__net_free_ports(e);
    for (int r = 0; r < WORLD; r++) {
        if (f->peer[r].held || f->peer[r].n_ready)
            abort(); /* counted and never given back */
        free(f->from[r].p);
    }
    free(e->bounce);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static fuzz one;
    memset(&one, 0, sizeof one);
    f     = &one;
    f->in = (input){data, n};
    open_end(take_number(1) & 1);
    for (int i = 0; i < 400 && f->in.n; i++) step();
    close_end();
    return 0;
}
