/* Barriers, copies and products of warpgroups on the CPU. */
#include "cuda_device.h"
#include "emu/wgmma.h"

#include <deque>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

namespace
{

enum {
    ROW         = 128, /* bytes of a row in shared memory */
    MAX_THREADS = 1024
};

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "emu: %s\n", what);
    abort();
}

/* Where a byte of rows of 128 bytes is: 16 bytes change places within a row, as the row's number
 * of 8 says. */
uint32_t swizzle(uint32_t at)
{
    return at ^ (at >> 7 & 7) << 4;
}

/* ---- barriers ---- */

struct barrier {
    uint16_t expected, pending;
    int32_t  bytes2_phase; /* twice the bytes that are to come, and the phase */
};
static_assert(sizeof(barrier) == 8, "a barrier has 8 bytes");

barrier *barrier_at(uint32_t bar)
{
    return (barrier *)emu_at(bar);
}

void finish_phase(barrier *b)
{
    emu_note_event();
    if (b->pending || b->bytes2_phase >> 1) return;
    b->pending = b->expected;
    b->bytes2_phase ^= 1;
}

/* ---- copies to shared memory: under way ---- */

struct load {
    weft_cuda_tensor_map map;
    const char          *from; /* NULL: a box of the map */
    uint32_t             to, bar;
    int                  at[4], bytes;
};

std::vector<load> loads;

struct box_of {
    const char     *p;
    const uint64_t *d, *stride; /* stride[i]: bytes along dimension i + 1 */
    uint64_t        box[4];

    box_of(const weft_cuda_tensor_map &map)
        : p((const char *)(uintptr_t)map.word[0]), d(map.word + 1), stride(map.word + 5)
    {
        for (int i = 0; i < 4; i++) box[i] = map.word[8 + i];
    }

    int count_bytes() const { return (int)(box[0] * box[1] * box[2] * box[3] * 2); }

    /* The address of row r of the box at `at`, and how many of its elements are inside. */
    const char *find_row(const int *at, uint64_t r, uint64_t &n) const
    {
        uint64_t    i[4] = {0, r % box[1], r / box[1] % box[2], r / box[1] / box[2]};
        const char *q    = p + (int64_t)at[0] * 2;
        n                = 0;
        for (int k = 1; k < 4; k++) {
            int64_t x = at[k] + (int64_t)i[k];
            if (x < 0 || x >= (int64_t)d[k]) return NULL;
            q += x * (int64_t)stride[k - 1];
        }
        if (at[0] < 0 || at[0] >= (int64_t)d[0]) return NULL;
        n = d[0] - (uint64_t)at[0];
        if (n > box[0]) n = box[0];
        return q;
    }
};

void copy_row(char *to, const char *from, uint32_t to_at, uint32_t from_at,
              uint64_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 2)
        memcpy(to + (to == emu_shared ? swizzle(to_at + i) : to_at + i),
               from + (from == emu_shared ? swizzle(from_at + i) : from_at + i), 2);
}

void finish_load(const load &l)
{
    if (l.from) {
        memcpy(emu_at(l.to), l.from, (size_t)l.bytes);
    } else {
        box_of   b(l.map);
        uint64_t rows = b.box[1] * b.box[2] * b.box[3];
        memset(emu_at(l.to), 0, (size_t)l.bytes);
        for (uint64_t r = 0; r < rows; r++) {
            uint64_t    n;
            const char *from = b.find_row(l.at, r, n);
            if (from) copy_row(emu_shared, from, l.to + (uint32_t)r * ROW, 0, n * 2);
        }
    }
    barrier *bar = barrier_at(l.bar);
    bar->bytes2_phase -= 2 * l.bytes;
    finish_phase(bar);
}

void start_load(const load &l)
{
    memset(emu_at(l.to), 0xff, (size_t)l.bytes); /* not a number */
    loads.push_back(l);
}

/* ---- copies from shared memory ---- */

struct store {
    weft_cuda_tensor_map map;
    char                *to; /* NULL: a box of the map */
    bool                 add;
    uint32_t             from;
    int                  at[4], bytes;
};

std::vector<store> stores[MAX_THREADS];

void finish_store(const store &s)
{
    if (s.to && s.add) {
        for (int i = 0; i < s.bytes / 4; i++)
            ((float *)s.to)[i] += emu_read<float>(s.from + (uint32_t)i * 4);
    } else if (s.to) {
        memcpy(s.to, emu_at(s.from), (size_t)s.bytes);
    } else {
        box_of   b(s.map);
        uint64_t rows = b.box[1] * b.box[2] * b.box[3];
        for (uint64_t r = 0; r < rows; r++) {
            uint64_t    n;
            const char *to = b.find_row(s.at, r, n);
            if (to)
                copy_row((char *)(uintptr_t)to, emu_shared, 0, s.from + (uint32_t)r * ROW,
                         n * 2);
        }
    }
}

/* ---- products ---- */

struct queue {
    std::deque<emu_product> product;
    std::deque<size_t>      group; /* how many products */
    size_t                  open;
};

queue queues[MAX_THREADS];

float element(uint32_t at)
{
    return cu_float(emu_read<cu_bf16>(swizzle(at)));
}

/* Where an operand begins, and the bytes between its parts. */
struct operand {
    uint32_t at, next;
    bool     turned;

    operand(uint64_t x, bool t)
        : at((uint32_t)(x & 0x3fff) << 4), next((uint32_t)(x >> 16 & 0x3fff) << 4),
          turned(t)
    {
    }

    /* Row or column i, 16 along k. */
    void get(int i, float *v) const
    {
        uint32_t u = (uint32_t)i;
        for (uint32_t k = 0; k < 16; k++)
            v[k] = element(turned ? at + u / 64 * next + u % 64 * 2 + k / 8 * 1024 +
                                        k % 8 * ROW
                                  : at + u / 8 * 1024 + u % 8 * ROW + k * 2);
    }
};

/* Row r (of 0, 8) of the left operand in registers of the four lanes that have it. */
void get_registers(const uint32_t *from, float (&v)[2][16])
{
    int g = emu_lane() / 4;
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 4; t++) {
            uint32_t x                      = (uint32_t)emu_exchange(from[i], g * 4 + t);
            v[i % 2][i / 2 * 8 + t * 2]     = cu_float((cu_bf16)x);
            v[i % 2][i / 2 * 8 + t * 2 + 1] = cu_float((cu_bf16)(x >> 16));
        }
}

float dot(const float *a, const float *b)
{
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += a[k] * b[k];
    return sum;
}

void finish_product(const emu_product &p)
{
    int     thread = (int)threadIdx.x % 128, g = thread % 32 / 4, t = thread % 4;
    float   a[2][16], b[16];
    operand y(p.b, p.b_turned);
    if (p.from) {
        get_registers(p.from, a);
    } else {
        operand x(p.a, p.a_turned);
        for (int i = 0; i < 2; i++) x.get(thread / 32 * 16 + g + i * 8, a[i]);
    }
    for (int j = 0; j < p.n / 8; j++)
        for (int c = 0; c < 2; c++) {
            y.get(j * 8 + t * 2 + c, b);
            for (int i = 0; i < 2; i++) {
                float *d = &p.d[j * 4 + i * 2 + c];
                *d       = dot(a[i], b) + (p.with_d ? *d : 0);
            }
        }
}

} // namespace

void cu_barrier_init(uint32_t bar, int arrivals)
{
    *barrier_at(bar) = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
}

void cu_barrier_arrive(uint32_t bar)
{
    barrier *b = barrier_at(bar);
    if (!b->pending) fail("more threads arrive at a barrier than it counts");
    b->pending--;
    finish_phase(b);
}

void cu_barrier_expect(uint32_t bar, int bytes)
{
    barrier_at(bar)->bytes2_phase += 2 * bytes;
    cu_barrier_arrive(bar);
}

void cu_barrier_wait(uint32_t bar, int parity)
{
    while ((barrier_at(bar)->bytes2_phase & 1) == parity)
        if (!emu_yield()) emu_stuck();
}

void emu_stuck(void)
{
    if (loads.empty())
        fail("threads of a block wait for copies or threads that do not come");
    load l = loads.back(); /* the last one first: none waits for another */
    loads.pop_back();
    finish_load(l);
}

weft_cuda_tensor_map emu_map(const void *p, const uint64_t *d, const uint64_t *stride,
                             const uint32_t *box)
{
    weft_cuda_tensor_map m = {};
    m.word[0]              = (uint64_t)(uintptr_t)p;
    for (int i = 0; i < 4; i++) m.word[1 + i] = d[i], m.word[8 + i] = box[i];
    for (int i = 0; i < 3; i++) m.word[5 + i] = stride[i];
    return m;
}

void emu_load(const weft_cuda_tensor_map *map, uint32_t to, uint32_t bar, const int *at)
{
    start_load(
        {*map, NULL, to, bar, {at[0], at[1], at[2], at[3]}, box_of(*map).count_bytes()});
}

void emu_store(const weft_cuda_tensor_map *map, uint32_t from, const int *at)
{
    stores[threadIdx.x].push_back({*map,
                                   NULL,
                                   false,
                                   from,
                                   {at[0], at[1], at[2], at[3]},
                                   box_of(*map).count_bytes()});
}

void cu_bulk_load(uint32_t to, const void *from, int bytes, uint32_t bar)
{
    start_load({{}, (const char *)from, to, bar, {}, bytes});
}

void cu_bulk_store(void *to, uint32_t from, int bytes)
{
    stores[threadIdx.x].push_back({{}, (char *)to, false, from, {}, bytes});
}

void cu_bulk_add(float *to, uint32_t from, int bytes)
{
    stores[threadIdx.x].push_back({{}, (char *)to, true, from, {}, bytes});
}

void cu_bulk_wait_read(void)
{
    for (const store &s : stores[threadIdx.x]) finish_store(s);
    stores[threadIdx.x].clear();
}

void cu_turn_wait(const uint32_t *counter, uint32_t turn)
{
    if (*counter != turn) fail("a block waits for one that comes later");
}

void emu_multiply(const emu_product &p)
{
    queue &q = queues[threadIdx.x];
    q.product.push_back(p);
    q.open++;
}

void cu_wgmma_commit(void)
{
    queue &q = queues[threadIdx.x];
    q.group.push_back(q.open);
    q.open = 0;
}

void emu_wgmma_wait(int n)
{
    queue &q = queues[threadIdx.x];
    for (; q.group.size() > (size_t)n; q.group.pop_front())
        for (size_t i = 0; i < q.group.front(); i++) {
            finish_product(q.product.front());
            q.product.pop_front();
        }
}
