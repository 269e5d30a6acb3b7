/* Who writes which bytes of a block, and their way out of the state.  In: the table of holders,
 * a file's items.  Out: a buffer with this rank's bytes in place, zeroes elsewhere, and a list of
 * where they are; or the places of all bytes in the state.
 *
 * A block is cut into items, an item's elements into boxes, a box into moves to the block's rank
 * (state/move.h): each move names one rank that has its region, and that rank writes it. */
#include "state/snapshot_block.h"

#include <stdlib.h>
#include <string.h>

#include "state/convert.h"

enum {
    PIECE     = 1 << 14, /* elements that are converted or scattered at a time */
    MOST_PART = 256      /* places in memory of a block that is not copied */
};

/* The part of an item that is in a block: elements [first, end) of its region, the first of them
 * at byte `at` of the block, which is negative where it begins before it. */
typedef struct block_piece {
    const weft_snapshot_item *item;
    int64_t                   first, end, at;
} block_piece;

weft_status weft_block_copier_init(weft_block_copier          *c,
                                   const weft_snapshot_source *source,
                                   const weft_snapshot_file   *file)
{
    int n_rank   = source->holders ? source->holders->n_rank : 1;
    *c           = (weft_block_copier){.source = source, .file = file};
    c->held      = malloc(sizeof *c->held * (size_t)n_rank);
    c->raw       = malloc((size_t)PIECE * 8);
    c->converted = malloc((size_t)PIECE * 8);
    c->numbers   = malloc(sizeof *c->numbers * PIECE);
    if (c->held && c->raw && c->converted && c->numbers) return WEFT_OK;
    weft_block_copier_fini(c);
    return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy blocks of the state");
}

void weft_block_copier_fini(weft_block_copier *c)
{
    weft_move_list_fini(&c->list);
    free(c->held);
    free(c->raw);
    free(c->converted);
    free(c->numbers);
    *c = (weft_block_copier){0};
}

/* ---- pieces of a block ---- */

static int64_t item_bytes(const weft_snapshot_item *i)
{
    return weft_region_count(&i->region) * weft_dtype_bytes(i->dtype);
}

int64_t weft_snapshot_file_bytes(const weft_snapshot_file *f)
{
    int64_t n = f->n_head;
    for (int i = 0; i < f->n_item; i++) n += item_bytes(&f->item[i]);
    return n;
}

typedef weft_status (*piece_fn)(weft_block_copier *c, const block_piece *p,
                                weft_block *b);

/* Calls fn for each item that has bytes in b. */
static weft_status for_each_piece(weft_block_copier *c, weft_block *b, piece_fn fn)
{
    const weft_snapshot_file *f  = &c->file[b->file];
    int64_t                   lo = b->number * WEFT_STORE_BLOCK, hi = lo + b->n;
    int64_t                   at = f->n_head;
    for (int i = 0; i < f->n_item && at < hi; i++) {
        int64_t size = weft_dtype_bytes(f->item[i].dtype), n = item_bytes(&f->item[i]);
        int64_t from = (at > lo ? at : lo) - at, to = (at + n < hi ? at + n : hi) - at;
        if (from < to) {
            block_piece p = {.item  = &f->item[i],
                             .first = from / size,
                             .end   = (to + size - 1) / size,
                             .at    = at + from / size * size - lo};
            WEFT_TRY(fn(c, &p, b));
        }
        at += n;
    }
    return WEFT_OK;
}

/* ---- who writes a block ---- */

static int64_t count_common(const weft_part *p, const weft_region *box)
{
    int64_t n = 1;
    for (int d = 0; d < box->global.n; d++) {
        int64_t lo = box->offset[d], hi = lo + box->extent[d], k = 0;
        for (int i = 0; i < p->n[d]; i++) {
            int64_t from = p->run[d][i].lo > lo ? p->run[d][i].lo : lo;
            int64_t to   = p->run[d][i].hi < hi ? p->run[d][i].hi : hi;
            if (from < to) k += to - from;
        }
        n *= k;
    }
    return n;
}

static weft_status count_held(weft_block_copier *c, const block_piece *p, weft_block *b)
{
    const weft_held_tensor *t = &c->source->holders->tensor[p->item->tensor];
    weft_region             box;
    (void)b;
    for (int64_t at = p->first;
         weft_region_next_box(&p->item->region, &at, p->end, &box);)
        for (int i = 0; i < t->n_holder; i++) {
            int64_t n =
                count_common(t->holder[i].part, &box) * weft_dtype_bytes(p->item->dtype);
            for (int k = 0; k < t->holder[i].n_rank; k++)
                c->held[t->holder[i].rank[k]] += n;
        }
    return WEFT_OK;
}

/* The rank that holds most of a block; of several, one by the block's number. */
static weft_status find_writer(weft_block_copier *c, weft_block *b)
{
    int     n_rank = c->source->holders->n_rank, n_most = 0;
    int64_t most = 0;
    for (int r = 0; r < n_rank; r++) c->held[r] = 0;
    WEFT_TRY(for_each_piece(c, b, count_held));
    for (int r = 0; r < n_rank; r++) {
        if (c->held[r] > most) n_most = 0;
        if (c->held[r] > most) most = c->held[r];
        n_most += c->held[r] == most;
    }
    int64_t turn = (b->number + b->file) % (n_most ? n_most : 1);
    for (int r = 0; r < n_rank; r++)
        if (c->held[r] == most && turn-- == 0) c->writer = r;
    return WEFT_OK;
}

/* ---- copying ---- */

static weft_status add_run(weft_block *b, int64_t lo, int64_t hi)
{
    if (lo < 0) lo = 0;
    if (hi > b->n) hi = b->n;
    if (lo >= hi) return WEFT_OK;
    b->own += hi - lo;
    if (b->n_run && b->run[b->n_run - 1].hi == lo) {
        b->run[b->n_run - 1].hi = hi;
        return WEFT_OK;
    }
    if (b->n_run == b->cap_run) {
        int             cap  = b->cap_run * 2 + 16;
        weft_block_run *more = realloc(b->run, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state");
        b->run     = more;
        b->cap_run = cap;
    }
    b->run[b->n_run++] = (weft_block_run){lo, hi};
    return WEFT_OK;
}

/* From dense numbers to their places in a box of the block. */
typedef struct scattering {
    weft_block *b;
    const char *from;
    int64_t     size, at; /* of an element; of the box in the block */
} scattering;

static weft_status scatter_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const scattering *s  = arg;
    int64_t           lo = s->at + at * s->size, hi = lo + n * s->size;
    const char       *from = s->from + index * s->size;
    int64_t           cut  = lo < 0 ? -lo : 0;
    int64_t           end  = hi < s->b->n ? hi : s->b->n;
    if (lo + cut < end) memcpy(s->b->p + lo + cut, from + cut, (size_t)(end - lo - cut));
    return add_run(s->b, lo, hi);
}

/* A region that this rank writes, through a small copy; `at` is the box's place. */
static weft_status copy_region(weft_block_copier *c, const weft_snapshot_item *item,
                               const weft_region *region, const weft_region *box,
                               int64_t at, weft_block *b)
{
    const weft_state *state = c->source->state;
    weft_dtype        have  = weft_state_at(state, item->tensor)->dtype;
    weft_interval     run[WEFT_MAX_DIM];
    weft_part         whole = weft_part_of_region(box, run);
    weft_region       piece;
    for (int64_t k = 0; weft_region_next_chunk(region, PIECE, &k, &piece);) {
        int64_t    n = weft_region_count(&piece);
        scattering s = {b, c->raw, weft_dtype_bytes(item->dtype), at};
        WEFT_TRY(weft_state_read_in(state, c->stream, item->tensor, &piece, c->raw));
        if (c->stream) WEFT_TRY(weft_stream_wait(c->stream));
        if (have != item->dtype) {
            WEFT_TRY(weft_convert_to_f32(have, c->raw, n, c->numbers));
            WEFT_TRY(weft_convert_from_f32(item->dtype, c->numbers, n, c->converted));
            s.from = c->converted;
        }
        WEFT_TRY(weft_part_walk(&whole, &piece, 0, n, scatter_run, &s));
    }
    return WEFT_OK;
}

static bool is_all_own(const weft_block_copier *c, const weft_region *box)
{
    if (!c->source->holders) return true;
    return c->list.n == 1 && c->list.move[0].from == c->source->rank &&
           weft_region_count(&c->list.move[0].region) == weft_region_count(box);
}

static weft_status copy_box(weft_block_copier *c, const weft_snapshot_item *item,
                            const weft_region *box, int64_t at, weft_block *b)
{
    const weft_state *state = c->source->state;
    int64_t           n     = weft_region_count(box) * weft_dtype_bytes(item->dtype);
    bool              same  = weft_state_at(state, item->tensor)->dtype == item->dtype;
    if (is_all_own(c, box)) {
        if (!same || at < 0 || at + n > b->n)
            return copy_region(c, item, box, box, at, b);
        WEFT_TRY(weft_state_read_in(state, c->stream, item->tensor, box, b->p + at));
        return add_run(b, at, at + n);
    }
    for (int i = 0; i < c->list.n; i++)
        if (c->list.move[i].from == c->source->rank)
            WEFT_TRY(copy_region(c, item, &c->list.move[i].region, box, at, b));
    return WEFT_OK;
}

static weft_status copy_piece(weft_block_copier *c, const block_piece *p, weft_block *b)
{
    int64_t     size = weft_dtype_bytes(p->item->dtype), first = p->first;
    weft_region box;
    for (int64_t at = p->first; weft_region_next_box(&p->item->region, &at, p->end, &box);
         first      = at) {
        c->list.n = 0;
        if (c->source->holders)
            WEFT_TRY(weft_move_add_region(c->source->holders, p->item->tensor, &box,
                                          c->writer, (unsigned)b->number, &c->list));
        WEFT_TRY(copy_box(c, p->item, &box, p->at + (first - p->first) * size, b));
    }
    return WEFT_OK;
}

/* Bytes of a block that are in front of the tensors: rank 0's. */
static int64_t count_head(const weft_block_copier *c, const weft_block *b)
{
    int64_t n = c->file[b->file].n_head - b->number * WEFT_STORE_BLOCK;
    return n < 0 ? 0 : n < b->n ? n : b->n;
}

static weft_status copy_head(weft_block_copier *c, weft_block *b)
{
    int64_t n = count_head(c, b);
    if (!n || c->source->rank != 0) return WEFT_OK;
    memcpy(b->p, c->file[b->file].head + b->number * WEFT_STORE_BLOCK, (size_t)n);
    return add_run(b, 0, n);
}

/* ---- blocks ---- */

void weft_block_fini(weft_block *b)
{
    free(b->run);
    free(b->part);
    *b = (weft_block){0};
}

weft_status weft_block_find(weft_block_copier *c, int file, int64_t number, weft_block *b)
{
    int64_t left = weft_snapshot_file_bytes(&c->file[file]) - number * WEFT_STORE_BLOCK;
    b->file      = file;
    b->number    = number;
    b->n         = left < WEFT_STORE_BLOCK ? left : WEFT_STORE_BLOCK;
    b->own       = -1;
    b->n_run     = 0;
    b->n_part    = 0;
    b->whole     = true;
    if (!c->source->holders) return WEFT_OK;
    WEFT_TRY(find_writer(c, b));
    int64_t head  = count_head(c, b);
    bool    first = c->source->rank == 0, mine = c->writer == c->source->rank;
    bool    all = c->held[c->writer] >= b->n - head; /* but for the head, rank 0's */
    b->whole    = all && mine && (!head || first);
    if (all && !mine && !(head && first)) b->own = 0;
    return WEFT_OK;
}

static weft_status copy_block(weft_block_copier *c, weft_block *b)
{
    if (!c->source->holders) {
        WEFT_TRY(copy_head(c, b));
        return for_each_piece(c, b, copy_piece);
    }
    int64_t head = count_head(c, b);
    bool whole = c->held[c->writer] >= b->n - head, mine = c->writer == c->source->rank;
    memset(b->p, 0, (size_t)(whole && mine ? head : b->n));
    WEFT_TRY(copy_head(c, b));
    return whole && !mine ? WEFT_OK : for_each_piece(c, b, copy_piece);
}

static weft_status add_part(weft_block *b, char *p, int64_t n)
{
    struct iovec *last = b->n_part ? &b->part[b->n_part - 1] : NULL;
    if (last && (char *)last->iov_base + last->iov_len == p) {
        last->iov_len += (size_t)n;
        return WEFT_OK;
    }
    if (b->n_part == b->cap_part) {
        int           cap  = b->cap_part * 2 + 4;
        struct iovec *more = realloc(b->part, sizeof *more * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to copy the state");
        b->part     = more;
        b->cap_part = cap;
    }
    b->part[b->n_part++] = (struct iovec){p, (size_t)n};
    return WEFT_OK;
}

weft_status weft_block_copy(weft_block_copier *c, uint8_t *p, weft_block *b)
{
    b->p           = p;
    b->own         = 0;
    b->n_part      = 0;
    weft_status st = copy_block(c, b);
    if (c->stream) { /* nothing writes p after the return */
        weft_status waited = weft_stream_wait(c->stream);
        if (st == WEFT_OK) st = waited;
    }
    return st == WEFT_OK ? add_part(b, (char *)p, b->n) : st;
}

/* ---- blocks where they are ---- */

/* A box in host memory. */
typedef struct mapping {
    weft_block *b;
    char       *host; /* of the tensor */
    int64_t     size; /* of an element */
    int64_t     at;   /* of the box in the block */
    int64_t    *done; /* bytes of the block so far */
} mapping;

static weft_status map_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const mapping *m = arg;
    if (m->at + index * m->size != *m->done)
        return WEFT_OK; /* a gap: done is too small */
    *m->done += n * m->size;
    return m->b->n_part > MOST_PART ? WEFT_OK
                                    : add_part(m->b, m->host + at * m->size, n * m->size);
}

static weft_status map_piece(weft_block_copier *c, const block_piece *p, weft_block *b)
{
    const weft_state        *state = c->source->state;
    const weft_state_tensor *t     = weft_state_at(state, p->item->tensor);
    char       *host = weft_memory_host(weft_state_memory_of(state, p->item->tensor));
    int64_t     size = weft_dtype_bytes(p->item->dtype), first = p->first;
    mapping     m = {.b = b, .size = size, .done = &c->mapped};
    weft_region box;
    if (!host || !t->part || t->dtype != p->item->dtype) return WEFT_OK;
    m.host = host + t->offset;
    for (int64_t at = p->first; weft_region_next_box(&p->item->region, &at, p->end, &box);
         first      = at) {
        m.at = p->at + (first - p->first) * size;
        WEFT_TRY(weft_part_walk(t->part, &box, 0, weft_region_count(&box), map_run, &m));
    }
    return WEFT_OK;
}

weft_status weft_block_map(weft_block_copier *c, int64_t align, weft_block *b,
                           bool *mapped)
{
    *mapped   = false;
    c->mapped = 0;
    if (!b->whole || count_head(c, b) || b->n % WEFT_STORE_BLOCK) return WEFT_OK;
    WEFT_TRY(for_each_piece(c, b, map_piece));
    if (c->mapped != b->n || b->n_part > MOST_PART) return WEFT_OK;
    for (int i = 0; i < b->n_part; i++)
        if ((uintptr_t)b->part[i].iov_base % (uintptr_t)align ||
            b->part[i].iov_len % (size_t)align)
            return WEFT_OK;
    *mapped = true;
    b->own  = b->n;
    return WEFT_OK;
}

uint32_t weft_block_sum(const weft_block *b)
{
    uint32_t crc = 0;
    for (int i = 0; i < b->n_part; i++)
        crc = weft_hash_crc32c(crc, b->part[i].iov_base, b->part[i].iov_len);
    return crc;
}

/* ---- hashes of items ---- */

void weft_item_hasher_init(weft_item_hasher *h, const weft_snapshot_file *file,
                           uint64_t *hash)
{
    *h = (weft_item_hasher){.file = file, .hash = hash, .at = file->n_head};
    weft_hash_init(&h->state, 0);
}

/* Bytes [from, to) of the block. */
static void hash_bytes(weft_item_hasher *h, const weft_block *b, int64_t from, int64_t to)
{
    int64_t at = 0;
    for (int i = 0; i < b->n_part && at < to; i++) {
        int64_t n  = (int64_t)b->part[i].iov_len;
        int64_t lo = from > at ? from - at : 0, hi = to - at < n ? to - at : n;
        if (lo < hi)
            weft_hash_add(&h->state, (char *)b->part[i].iov_base + lo, (size_t)(hi - lo));
        at += n;
    }
}

void weft_item_hasher_add(weft_item_hasher *h, const weft_block *b)
{
    int64_t lo = b->number * WEFT_STORE_BLOCK, hi = lo + b->n;
    if (b->number != h->block++ || b->own != b->n) h->broken = true;
    if (h->broken) return;
    for (; h->item < h->file->n_item; h->item++) {
        int64_t n    = item_bytes(&h->file->item[h->item]);
        int64_t from = h->at > lo ? h->at : lo, to = h->at + n < hi ? h->at + n : hi;
        if (from < to) hash_bytes(h, b, from - lo, to - lo);
        if (h->at + n > hi) return;
        h->hash[h->item] = weft_hash_value(&h->state);
        h->at += n;
        weft_hash_init(&h->state, 0);
    }
}

bool weft_item_hasher_is_done(const weft_item_hasher *h)
{
    return !h->broken && h->item == h->file->n_item;
}
