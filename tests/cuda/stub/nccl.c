/* libnccl.so.2 of the tests: the symbols of plugin/cuda/library.h.  Ranks are processes that share
 * a file of memory, which the unique id names; what is given to a stream of the stub driver moves
 * bytes when the stream runs, and other streams go on while it waits.
 *
 * It refuses what the real library refuses or hangs on: calls that differ between ranks or come in
 * another order, a communicator that is used before all ranks have come, or destroyed while graphs
 * have its calls.  The first call between two ranks, and the first collective, are in progress
 * until the others have given theirs: connections are made then.  Its sums go from the last rank to
 * the first, each rounded: not our order.
 *
 *     WEFT_STUB_NCCL_VERSION=22809     what it says it is
 *     WEFT_STUB_NCCL_ABSENT=r          rank r of a communicator never comes
 *     WEFT_STUB_NCCL_FAIL=n            call n of this process fails
 *     WEFT_STUB_NCCL_ASYNC=n           ... is accepted, and its communicator has an error then */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "stub/call.h"

enum {
    OK             = 0,
    CUDA_ERROR     = 1,
    SYSTEM_ERROR   = 2,
    INTERNAL_ERROR = 3,
    BAD_ARGUMENT   = 4,
    BAD_USAGE      = 5,
    REMOTE_ERROR   = 6,
    IN_PROGRESS    = 7,
    I8             = 0,
    U8             = 1,
    I32            = 2,
    I64            = 4,
    F32            = 7,
    BF16           = 9,
    MAX_RANK       = 16,
    MAX_ENTRY      = 1024,
    BOX_BYTES      = 1 << 16,
    ID_BYTES       = 128
};
static const unsigned config_magic = 0xcafebeefu;

typedef struct unique_id {
    char name[ID_BYTES];
} unique_id;

typedef struct config {
    size_t   size;
    unsigned magic, version;
    int      blocking;
} config;

/* Bytes from one rank to another, in order. */
typedef struct box {
    _Atomic uint64_t sent, taken;
    char             data[BOX_BYTES];
} box;

typedef struct world {
    _Atomic int n_rank, n_joined;
    _Atomic int there[MAX_RANK];
    /* first calls that were given: of a pair [from][to] by sender and receiver; collectives */
    _Atomic int asked[MAX_RANK][MAX_RANK][2], n_asked;
    box         way[MAX_RANK][MAX_RANK]; /* [from][to] */
} world;

typedef enum call_kind {
    SEND,
    RECV,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    BROADCAST
} call_kind;

typedef struct communicator {
    world      *w;
    char        name[ID_BYTES];
    int         n, me;
    bool        blocking, dead, asked; /* asked: it gave a collective */
    int         error;                 /* asynchronous */
    const void *running;
    uint64_t    sequence; /* of calls so far */
    char        text[200];
} communicator;

typedef struct entry {
    call_kind   kind;
    int         type, peer;
    const char *in;
    char       *out;
    size_t      count;
} entry;

/* What goes before the bytes of every transfer. */
typedef struct head {
    uint64_t sequence, bytes;
    int32_t  kind, type;
} head;

typedef struct transfer {
    int      peer;
    bool     sends;
    head     h;
    char    *p;
    size_t   done; /* head and bytes */
    uint64_t end;  /* of the box, once all of it is there */
} transfer;

/* While a batch runs. */
typedef struct batch_state {
    int       n;
    transfer *way;
    char     *scratch; /* what came to be added */
} batch_state;

/* The calls of a group on one communicator and stream.  The driver keeps it as bytes. */
typedef struct batch {
    communicator *c; /* first: stub_gpu_graphs_with looks for it */
    int           n;
    batch_state  *state;
    entry         e[];
} batch;

static _Thread_local int   depth, n_pending;
static _Thread_local entry pending[MAX_ENTRY];
static _Thread_local struct {
    communicator *c;
    void         *stream;
} pending_on[MAX_ENTRY];
static _Thread_local char last_error[200];
static _Atomic int        n_call;

static int number(const char *name, int other)
{
    const char *x = getenv(name);
    return x && *x ? atoi(x) : other;
}

static int fail(communicator *c, int code, const char *why)
{
    snprintf(last_error, sizeof last_error, "%s", why);
    if (c) {
        c->error = code;
        snprintf(c->text, sizeof c->text, "%s", why);
    }
    return code;
}

/* Every call that works comes by here. */
static int enter(communicator *c)
{
    int n = ++n_call;
    if (n == number("WEFT_STUB_NCCL_FAIL", 0))
        return fail(NULL, SYSTEM_ERROR, "the stub was told to fail");
    if (n == number("WEFT_STUB_NCCL_ASYNC", 0) && c)
        fail(c, REMOTE_ERROR, "the stub was told to lose its peer");
    if (c && c->dead) return fail(NULL, BAD_ARGUMENT, "a communicator that is gone");
    return OK;
}

static size_t size_of(int type)
{
    return type <= U8 ? 1 : type == BF16 ? 2 : type == I64 ? 8 : 4;
}

/* ---- sums ---- */

static float read_bf16(const char *p)
{
    uint16_t h;
    uint32_t u;
    float    f;
    memcpy(&h, p, sizeof h);
    u = (uint32_t)h << 16;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void write_bf16(char *p, float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u += 0x7fffu + (u >> 16 & 1);
    uint16_t h = (uint16_t)(u >> 16);
    memcpy(p, &h, sizeof h);
}

static void add(char *to, const char *from, int type, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char       *t = to + i * size_of(type);
        const char *f = from + i * size_of(type);
        if (type == F32) {
            float a, b;
            memcpy(&a, t, sizeof a), memcpy(&b, f, sizeof b);
            a += b;
            memcpy(t, &a, sizeof a);
        } else if (type == BF16) {
            write_bf16(t, read_bf16(t) + read_bf16(f));
        } else if (type == I64) {
            int64_t a, b;
            memcpy(&a, t, sizeof a), memcpy(&b, f, sizeof b);
            a += b;
            memcpy(t, &a, sizeof a);
        } else {
            int32_t a, b;
            memcpy(&a, t, sizeof a), memcpy(&b, f, sizeof b);
            a += b;
            memcpy(t, &a, sizeof a);
        }
    }
}

/* ---- a batch: transfers, then sums ---- */

static void add_transfer(batch_state *s, communicator *c, const entry *e, int peer,
                         bool sends, const char *p, size_t bytes, uint64_t sequence)
{
    (void)c;
    s->way[s->n++] = (transfer){
        .peer  = peer,
        .sends = sends,
        .p     = (char *)(uintptr_t)p,
        /* a send meets a receive */
        .h = {sequence, bytes, e->kind == RECV ? SEND : (int32_t)e->kind, e->type}};
}

static void open_entry(batch_state *s, communicator *c, const entry *e, char **scratch,
                       uint64_t sequence)
{
    size_t bytes = e->count * size_of(e->type);
    if (e->kind == SEND) add_transfer(s, c, e, e->peer, true, e->in, bytes, 0);
    if (e->kind == RECV) add_transfer(s, c, e, e->peer, false, e->out, bytes, 0);
    if (e->kind == SEND || e->kind == RECV) return;
    for (int r = 0; r < c->n; r++) {
        bool        root = e->kind != BROADCAST || c->me == e->peer;
        const char *from = e->in;
        char       *to   = e->out;
        if (e->kind == REDUCE_SCATTER) from += (size_t)r * bytes;
        if (e->kind == ALL_GATHER) to += (size_t)r * bytes;
        if (e->kind == REDUCE_SCATTER || e->kind == ALL_REDUCE) {
            to = *scratch;
            *scratch += bytes;
        }
        if (root) add_transfer(s, c, e, r, true, from, bytes, sequence);
        if (e->kind != BROADCAST || r == e->peer)
            add_transfer(s, c, e, r, false, to, bytes, sequence);
    }
}

static bool adds(const entry *e)
{
    return e->kind == REDUCE_SCATTER || e->kind == ALL_REDUCE;
}

static batch_state *open_batch(batch *b)
{
    batch_state *s     = calloc(1, sizeof *s);
    size_t       bytes = 1;
    for (int i = 0; i < b->n; i++)
        if (adds(&b->e[i]))
            bytes += b->e[i].count * size_of(b->e[i].type) * (size_t)b->c->n;
    s->way        = calloc((size_t)b->n * 2 * MAX_RANK, sizeof *s->way);
    s->scratch    = malloc(bytes);
    char *scratch = s->scratch;
    for (int i = 0; i < b->n; i++) {
        bool collective = b->e[i].kind > RECV;
        open_entry(s, b->c, &b->e[i], &scratch, collective ? ++b->c->sequence : 0);
    }
    return s;
}

/* The bytes at offset x->done of head and data, as far as the box has room or content. */
static bool move_some(communicator *c, transfer *x)
{
    box   *b     = x->sends ? &c->w->way[c->me][x->peer] : &c->w->way[x->peer][c->me];
    head   got   = x->h;
    size_t whole = sizeof x->h + x->h.bytes;
    bool   moved = false;
    while (x->done < whole) {
        uint64_t sent = b->sent, taken = b->taken;
        uint64_t at = x->sends ? sent % BOX_BYTES : taken % BOX_BYTES;
        size_t   n  = x->sends ? BOX_BYTES - (sent - taken) : sent - taken;
        if (n > BOX_BYTES - at) n = BOX_BYTES - at;
        bool   in_head = x->done < sizeof x->h;
        size_t left    = in_head ? sizeof x->h - x->done : whole - x->done;
        /* a head is moved whole: boxes are multiples of it only by luck, so byte for byte */
        if (n > left) n = left;
        if (!n) return moved;
        char *mine = in_head ? (x->sends ? (char *)&x->h : (char *)&got) + x->done
                             : x->p + (x->done - sizeof x->h);
        if (x->sends) {
            memcpy(b->data + at, mine, n);
            b->sent += n;
            x->end = b->sent;
        } else {
            if (in_head && memcmp((char *)&x->h + x->done, b->data + at, n)) {
                fail(c, BAD_USAGE, "calls of two ranks differ");
                return true;
            }
            if (!in_head) memcpy(mine, b->data + at, n);
            b->taken += n;
        }
        x->done += n;
        moved = true;
    }
    return moved;
}

/* A send ends when the receiver has all of it: the real one may wait for that, too. */
static bool is_over(const communicator *c, const transfer *x)
{
    if (x->done < sizeof x->h + x->h.bytes) return false;
    return !x->sends || c->w->way[c->me][x->peer].taken >= x->end;
}

/* The first unfinished transfer of each peer and direction; true: all are over. */
static bool move_all(communicator *c, batch_state *s)
{
    bool over = true, busy[2][MAX_RANK] = {{false}};
    for (int i = 0; i < s->n && !c->error; i++) {
        transfer *x = &s->way[i];
        if (is_over(c, x) || busy[x->sends][x->peer]) continue;
        move_some(c, x);
        if (is_over(c, x)) continue;
        busy[x->sends][x->peer] = true;
        over                    = false;
    }
    return over;
}

static void add_terms(batch *b)
{
    const char *scratch = b->state->scratch;
    for (int i = 0; i < b->n; i++) {
        const entry *e     = &b->e[i];
        size_t       bytes = e->count * size_of(e->type);
        if (!adds(e)) continue;
        memcpy(e->out, scratch + bytes * (size_t)(b->c->n - 1), bytes);
        for (int r = b->c->n - 2; r >= 0; r--)
            add(e->out, scratch + bytes * (size_t)r, e->type, e->count);
        scratch += bytes * (size_t)b->c->n;
    }
}

static int poll_batch(void *args)
{
    batch        *b = args;
    communicator *c = b->c;
    if (c->dead || c->error) { /* aborted: work ends, results are anything */
        if (b->state) free(b->state->way), free(b->state->scratch), free(b->state);
        b->state   = NULL;
        c->running = NULL;
        return 0;
    }
    if (c->running && c->running != b) return 1;
    if (!b->state) b->state = open_batch(b);
    c->running = b;
    if (!move_all(c, b->state)) return 1;
    if (!c->error) add_terms(b);
    free(b->state->way), free(b->state->scratch), free(b->state);
    b->state   = NULL;
    c->running = NULL;
    return 0;
}

static const char *name_of(const batch *b)
{
    static const char *const names[] = {"ncclSend",      "ncclRecv",
                                        "ncclAllGather", "ncclReduceScatter",
                                        "ncclAllReduce", "ncclBroadcast"};
    return b->n > 1 ? "ncclGroup" : names[b->e[0].kind];
}

/* Pending calls of one communicator and stream, in order. */
static int give_batch(communicator *c, void *stream)
{
    batch *b = malloc(sizeof *b + sizeof *b->e * (size_t)n_pending);
    *b       = (batch){.c = c};
    for (int i = 0; i < n_pending; i++)
        if (pending_on[i].c == c && pending_on[i].stream == stream)
            b->e[b->n++] = pending[i];
    int code = stub_poll(stream, name_of(b), poll_batch, b,
                         sizeof *b + sizeof *b->e * (size_t)b->n);
    free(b);
    return code ? fail(c, CUDA_ERROR, "the stub driver refuses") : OK;
}

/* ---- connections ---- */

static void ask(communicator *c, const entry *e)
{
    if (e->kind == SEND) c->w->asked[c->me][e->peer][0] = 1;
    if (e->kind == RECV) c->w->asked[e->peer][c->me][1] = 1;
    if (e->kind <= RECV || c->asked) return;
    c->asked = true;
    c->w->n_asked++;
}

static bool is_connected(const communicator *c)
{
    for (int r = 0; r < c->n; r++) {
        _Atomic int *to = c->w->asked[c->me][r], *from = c->w->asked[r][c->me];
        if ((to[0] && !to[1]) || (from[1] && !from[0])) return false;
    }
    return !c->asked || c->w->n_asked >= c->n;
}

static int connect_pending(void)
{
    int code = OK;
    for (int i = 0; i < n_pending; i++) ask(pending_on[i].c, &pending[i]);
    for (int i = 0; i < n_pending; i++) {
        while (pending_on[i].c->blocking && !is_connected(pending_on[i].c)) usleep(100);
        if (!is_connected(pending_on[i].c)) code = IN_PROGRESS;
    }
    return code;
}

static int give_pending(void)
{
    int code = OK, connected = connect_pending();
    for (int i = 0; i < n_pending && !code; i++) {
        bool seen = false;
        for (int k = 0; k < i && !seen; k++)
            seen = pending_on[k].c == pending_on[i].c &&
                   pending_on[k].stream == pending_on[i].stream;
        if (!seen) code = give_batch(pending_on[i].c, pending_on[i].stream);
    }
    n_pending = 0;
    return code ? code : connected;
}

static int put_call(communicator *c, void *stream, entry e)
{
    int code = enter(c);
    if (code) return code;
    if (c->w->n_joined < c->n)
        return fail(NULL, BAD_USAGE, "the communicator is not ready");
    if (e.peer < 0 || e.peer >= c->n || !stream || n_pending == MAX_ENTRY)
        return fail(NULL, BAD_ARGUMENT, "invalid argument");
    pending_on[n_pending].c      = c;
    pending_on[n_pending].stream = stream;
    pending[n_pending++]         = e;
    if (depth) return OK;
    return give_pending();
}

/* ---- the library ---- */

#define API __attribute__((visibility("default")))
#define ROW(result, name, parameters)                                                    \
    API result name parameters;                                                          \
    API result name parameters

ROW(int, ncclGetVersion, (int *version))
{
    *version = number("WEFT_STUB_NCCL_VERSION", 22809);
    return OK;
}

ROW(const char *, ncclGetErrorString, (int code))
{
    static const char *const text[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return code >= 0 && code <= IN_PROGRESS ? text[code] : "unknown result code";
}

ROW(const char *, ncclGetLastError, (communicator * c))
{
    return c && c->text[0] ? c->text : last_error;
}

static int open_world(const char *name, bool creates, world **out)
{
    char path[200];
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    int f = open(path, O_RDWR | (creates ? O_CREAT | O_EXCL : 0), 0600);
    if (f < 0 || (creates && ftruncate(f, sizeof(world)))) {
        if (f >= 0) close(f);
        return fail(NULL, SYSTEM_ERROR, "the memory of the unique id cannot be opened");
    }
    *out = mmap(NULL, sizeof(world), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    close(f);
    return *out == MAP_FAILED ? fail(NULL, SYSTEM_ERROR, "no memory to share") : OK;
}

static void remove_name(const communicator *c)
{
    char path[200];
    snprintf(path, sizeof path, "/dev/shm/%s", c->name);
    (void)unlink(path);
}

ROW(int, ncclGetUniqueId, (unique_id * id))
{
    uint64_t r[2];
    world   *w;
    int      code = enter(NULL);
    if (code) return code;
    if (getrandom(r, sizeof r, 0) != sizeof r) return SYSTEM_ERROR;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "weft-stub-nccl-%016llx%016llx",
             (unsigned long long)r[0], (unsigned long long)r[1]);
    code = open_world(id->name, true, &w);
    if (!code) munmap(w, sizeof *w);
    return code;
}

ROW(int, ncclCommInitRankConfig,
    (communicator * *out, int n, unique_id id, int me, const config *o))
{
    int code = enter(NULL);
    if (code) return code;
    if (n < 1 || n > MAX_RANK || me < 0 || me >= n || o->magic != config_magic ||
        o->size < sizeof *o || o->version < 21400)
        return fail(NULL, BAD_ARGUMENT, "invalid argument");
    communicator *c = calloc(1, sizeof *c);
    *c              = (communicator){.n = n, .me = me, .blocking = o->blocking != 0};
    snprintf(c->name, sizeof c->name, "%.*s", ID_BYTES - 1, id.name);
    code = open_world(c->name, false, &c->w);
    if (!code && atomic_exchange(&c->w->there[me], 1))
        code = fail(NULL, BAD_USAGE, "a rank of the communicator is there twice");
    if (code) {
        free(c);
        return code;
    }
    *out = c;
    if (number("WEFT_STUB_NCCL_ABSENT", -1) != me && ++c->w->n_joined == n)
        remove_name(c);
    while (c->blocking && c->w->n_joined < n) usleep(100);
    return c->blocking ? OK : IN_PROGRESS;
}

ROW(int, ncclCommGetAsyncError, (communicator * c, int *code))
{
    bool ready = c->w->n_joined >= c->n && is_connected(c);
    *code      = c->error ? c->error : ready ? OK : IN_PROGRESS;
    return OK;
}

/* The struct stays: streams may still have its work. */
static int leave(communicator *c)
{
    if (c->w->n_joined < c->n) remove_name(c);
    c->dead = true;
    return OK;
}

ROW(int, ncclCommAbort, (communicator * c))
{
    return leave(c);
}

ROW(int, ncclCommFinalize, (communicator * c))
{
    int code = enter(c);
    return code ? code : c->blocking ? OK : IN_PROGRESS;
}

ROW(int, ncclCommDestroy, (communicator * c))
{
    int (*graphs_with)(const void *);
    int   code   = enter(c);
    void *symbol = stub_find("stub_gpu_graphs_with");
    if (code) return code;
    memcpy(&graphs_with, &symbol, sizeof symbol);
    if (symbol && graphs_with(c)) {
        fprintf(stderr,
                "stub: ncclCommDestroy of a communicator that graphs use would hang\n");
        abort();
    }
    return leave(c);
}

ROW(int, ncclGroupStart, (void))
{
    depth++;
    return OK;
}

ROW(int, ncclGroupEnd, (void))
{
    if (!depth) return fail(NULL, BAD_USAGE, "ncclGroupEnd without ncclGroupStart");
    return --depth ? OK : give_pending();
}

ROW(int, ncclSend,
    (const void *p, size_t n, int type, int peer, communicator *c, void *stream))
{
    return put_call(c, stream, (entry){SEND, type, peer, p, NULL, n});
}

ROW(int, ncclRecv, (void *p, size_t n, int type, int peer, communicator *c, void *stream))
{
    return put_call(c, stream, (entry){RECV, type, peer, NULL, p, n});
}

ROW(int, ncclAllGather,
    (const void *in, void *out, size_t n, int type, communicator *c, void *stream))
{
    return put_call(c, stream, (entry){ALL_GATHER, type, 0, in, out, n});
}

ROW(int, ncclReduceScatter,
    (const void *in, void *out, size_t n, int type, int kind, communicator *c,
     void *stream))
{
    if (kind) return fail(NULL, BAD_ARGUMENT, "the stub only sums");
    return put_call(c, stream, (entry){REDUCE_SCATTER, type, 0, in, out, n});
}

ROW(int, ncclAllReduce,
    (const void *in, void *out, size_t n, int type, int kind, communicator *c,
     void *stream))
{
    if (kind) return fail(NULL, BAD_ARGUMENT, "the stub only sums");
    return put_call(c, stream, (entry){ALL_REDUCE, type, 0, in, out, n});
}

ROW(int, ncclBroadcast,
    (const void *in, void *out, size_t n, int type, int root, communicator *c,
     void *stream))
{
    return put_call(c, stream, (entry){BROADCAST, type, root, in, out, n});
}
