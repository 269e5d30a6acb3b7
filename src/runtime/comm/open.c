/* Opening and closing of channels and groups.
 *
 * An end knows what it has opened under which key.  A key that was closed begins a new instance at
 * the next opening, which has nothing in common with the last one: members may close and open at
 * their own pace, as long as each does so equally often. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/call_priv.h"

/* A key: 'g', tag, ranks of a group; 'c', tag, sender, receiver of a channel. */
typedef struct weft_comm_opened {
    struct weft_comm_opened *next;
    void                    *handle; /* NULL: closed */
    int                      n_open;
    uint32_t                 instance;
    int64_t                  bytes; /* of a channel */
    int                      credits;
    int                      n_key;
    int32_t                  key[];
} opened;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock held; NULL: no memory. */
static opened *find_opened(weft_comm *c, const int32_t *key, int n_key)
{
    size_t  bytes = sizeof *key * (size_t)n_key;
    opened *o;
    for (o = c->opened; o; o = o->next)
        if (o->n_key == n_key && !memcmp(o->key, key, bytes)) return o;
    o = calloc(1, sizeof *o + bytes);
    if (!o) return NULL;
    o->n_key = n_key;
    memcpy(o->key, key, bytes);
    o->next   = c->opened;
    c->opened = o;
    return o;
}

/* Looks the key up; *out is its handle, one user more, or NULL: to be opened as an instance. */
static weft_status enter_key(weft_comm *c, const int32_t *key, int n_key, int64_t bytes,
                             int credits, opened **entry, void **out)
{
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&table_lock);
    opened *o = *entry = find_opened(c, key, n_key);
    if (!o) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    *out = o->handle;
    if (*out && (o->bytes != bytes || o->credits != credits))
        WEFT_GO(
            WEFT_FAIL(WEFT_ERR_ARG,
                      "tag %d from rank %d to rank %d: one side has %lld bytes and %d "
                      "credits, the other %lld and %d",
                      key[1], weft_comm_name(c, key[2]), weft_comm_name(c, key[3]),
                      (long long)o->bytes, o->credits, (long long)bytes, credits));
    if (*out) o->n_open++;
out:
    pthread_mutex_unlock(&table_lock);
    return st;
}

static void enter_handle(opened *o, void *handle, int64_t bytes, int credits)
{
    pthread_mutex_lock(&table_lock);
    o->handle  = handle;
    o->n_open  = 1;
    o->bytes   = bytes;
    o->credits = credits;
    pthread_mutex_unlock(&table_lock);
}

/* One user less; true: it was the last, and the next opening begins another instance. */
static bool leave_key(weft_comm *c, const void *handle)
{
    bool last = false;
    pthread_mutex_lock(&table_lock);
    for (opened *o = c->opened; o; o = o->next)
        if (o->handle == handle && --o->n_open == 0) {
            o->handle = NULL;
            o->instance++;
            last = true;
        }
    pthread_mutex_unlock(&table_lock);
    return last;
}

void weft_comm__forget_opened(weft_comm *c)
{
    for (opened *o = c->opened, *next; o; o = next) {
        next = o->next;
        if (o->handle && o->key[0] == 'g') weft_comm__close_queue(o->handle);
        free(o);
    }
    c->opened = NULL;
}

/* ---- channels ---- */

weft_status weft_comm_open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                   int64_t bytes, int credits, weft_comm_channel **out)
{
    bool    send   = side == WEFT_COMM_SEND;
    int32_t key[4] = {'c', tag, send ? c->rank : peer, send ? peer : c->rank};
    opened *o;
    void   *have;
    if (peer < 0 || peer >= c->world || peer == c->rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d: there is no other rank %d of %d",
                         c->rank, peer, c->world);
    WEFT_TRY(enter_key(c, key, 4, bytes, credits, &o, &have));
    *out = have;
    if (have) return WEFT_OK;
    WEFT_TRY(c->op->open_channel(c, peer, side, tag, o->instance, bytes, credits, out));
    enter_handle(o, *out, bytes, credits);
    return WEFT_OK;
}

weft_status weft_comm_close_channel(weft_comm *c, weft_comm_channel *ch)
{
    return ch && leave_key(c, ch) ? c->op->close_channel(c, ch) : WEFT_OK;
}

/* ---- groups ---- */

weft_status weft_comm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                 weft_comm_group **out)
{
    int         me   = -1;
    weft_status st   = WEFT_OK;
    void       *have = NULL;
    opened     *o;
    for (int i = 0; i < n; i++) {
        if (rank[i] < 0 || rank[i] >= c->world)
            return WEFT_FAIL(WEFT_ERR_ARG, "rank %d: a group names rank %d of %d",
                             c->rank, rank[i], c->world);
        if (rank[i] == c->rank) me = i;
    }
    if (me < 0) return WEFT_FAIL(WEFT_ERR_ARG, "rank %d is not in its group", c->rank);
    int32_t *key = malloc(sizeof *key * (size_t)(n + 2));
    if (!key) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    key[0] = 'g';
    key[1] = tag;
    memcpy(key + 2, rank, sizeof *rank * (size_t)n);
    WEFT_GO(enter_key(c, key, n + 2, 0, 0, &o, &have));
    *out = have;
    if (have) goto out;
    WEFT_GO(c->op->open_group(c, n, rank, tag, o->instance, out));
    enter_handle(o, *out, 0, 0);
out:
    free(key);
    return st;
}

weft_status weft_comm_close_group(weft_comm *c, weft_comm_group *g)
{
    if (!g || !leave_key(c, g)) return WEFT_OK;
    weft_comm__close_queue(g);
    return c->op->close_group(c, g);
}
