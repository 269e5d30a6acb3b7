/* Streams of the stub driver: what they were given, and when it runs.  Shared by driver*.cpp.
 * Operations run under the lock, one at a time.  One that waits for another process gives the lock
 * back in between, so any thread may find any stream further on than it left it. */
#ifndef CUDA_STUB_WORK_H
#define CUDA_STUB_WORK_H

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "emu/emu.h"

namespace stub
{

typedef uint64_t ptr;

enum {
    OK              = 0,
    INVALID_VALUE   = 1,
    OUT_OF_MEMORY   = 2,
    NO_DEVICE       = 100,
    INVALID_DEVICE  = 101,
    INVALID_IMAGE   = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE  = 400,
    NOT_FOUND       = 500,
    NOT_READY       = 600,
    LAUNCH_FAILED   = 719,
    NOT_SUPPORTED   = 801,
    UNSUPPORTED     = 900, /* while a stream is captured */
    INVALIDATED     = 901,
    UNJOINED        = 904,
    ISOLATION       = 905,
    UNKNOWN         = 999
};

struct kernel {
    const char *name;
    size_t      bytes;
    void (*body)(const void *);
    int max_shared;
};

struct stream;
struct graph;

struct event {
    stream                    *on      = nullptr; /* recorded there, */
    long                       at      = 0;       /* as its operation number so much */
    double                     time_s  = 0;
    long                       capture = 0; /* recorded in it */
    std::map<stream *, size_t> seen;
};

struct operation {
    enum kind {
        COPY,
        FILL,
        KERNEL,
        RECORD,
        WAIT,
        GRAPH,
        CALL,
        POLL
    } what;
    char               *to    = nullptr;
    const char         *from  = nullptr;
    size_t              bytes = 0;
    int                 value = 0;
    bool                word  = false; /* of 32 bits */
    std::vector<char>   data;          /* arguments; memory that was read at once */
    const kernel       *k       = nullptr;
    emu_dim             grid    = {0, 0, 0};
    unsigned            threads = 0, shared = 0;
    event              *e  = nullptr;
    stream             *on = nullptr;
    long                at = 0;
    graph              *g  = nullptr;
    std::vector<bool>   ran;   /* of a graph that was launched: which are done */
    std::vector<size_t> after; /* in a graph: numbers of those it waits for */
    void (*run)(const void *args) = nullptr; /* of a library, with data */
    int (*poll)(void *args)       = nullptr; /* the same, again and again */
};

struct capture {
    long                       number;
    stream                    *origin;
    bool                       valid = true;
    std::vector<operation>     work;
    std::map<stream *, size_t> last; /* operations of each stream so far */
    /* of whose each stream is ordered after */
    std::map<stream *, std::map<stream *, size_t>> seen;
};

struct stream {
    std::deque<operation> work;
    long                  given = 0, done = 0;
    capture              *in = nullptr;
};

struct graph {
    std::vector<operation> work;
};

inline std::recursive_mutex      lock;
inline std::map<char *, size_t>  device, pinned;
inline std::map<char *, int>     files; /* behind device memory of our own */
inline std::set<char *>          imports, registered;
inline std::set<stream *>        streams;
inline std::set<event *>         events;
inline std::set<graph *>         graphs;
inline std::map<long, capture *> captures;
inline size_t                    device_bytes;
inline long                      n_call, n_capture;
inline int                       n_inside, n_context;
inline thread_local void        *current;
inline int                       a_context;

inline double clock_s()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

inline thread_local int n_held; /* how often this thread has the lock */

struct holding {
    holding()
    {
        lock.lock();
        n_held++;
    }
    ~holding()
    {
        n_held--;
        lock.unlock();
    }
};

/* Another thread or process has to do something first. */
inline void let_go()
{
    int n = n_held;
    for (int i = 0; i < n; i++) lock.unlock();
    usleep(50);
    for (int i = 0; i < n; i++) lock.lock();
}

/* ---- running what streams have ---- */

inline void protect(int how)
{
    for (auto &m : device) mprotect(m.first, m.second, how);
}

struct reach { /* device memory can be reached while one of these is there */
    reach()
    {
        if (n_inside++ == 0) protect(PROT_READ | PROT_WRITE);
    }
    ~reach()
    {
        if (--n_inside == 0) protect(PROT_NONE);
    }
};

enum {
    PAGE     = 4096,
    POISONED = 64 << 10 /* bytes at both ends of new memory */
};

/* Whole pages of device memory, which are a file's, become 0 by giving them back. */
inline void fill(char *to, int value, size_t n)
{
    uintptr_t from  = ((uintptr_t)to + PAGE - 1) / PAGE * PAGE,
              until = ((uintptr_t)to + n) / PAGE * PAGE;
    if (value || until <= from || madvise((void *)from, until - from, MADV_REMOVE)) {
        memset(to, value, n);
        return;
    }
    memset(to, 0, from - (uintptr_t)to);
    memset((void *)until, 0, (uintptr_t)to + n - until);
}

bool execute(operation &o);

/* Whatever does not wait goes on, as branches of a graph do on a GPU. */
inline bool execute_graph(operation &o)
{
    std::vector<operation> &work = o.g->work;
    o.ran.resize(work.size());
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = (size_t)o.at; i < work.size(); i++) {
            bool ready = !o.ran[i];
            for (size_t k : work[i].after) ready = ready && o.ran[k];
            if (!ready || !execute(work[i])) continue;
            o.ran[i] = moved = true;
        }
        while (o.at < (long)work.size() && o.ran[(size_t)o.at]) o.at++;
    }
    return o.at == (long)work.size();
}

/* false: it waits, and is tried again; what it has done so far stays done. */
inline bool execute(operation &o)
{
    switch (o.what) {
    case operation::COPY:
        memmove(o.to, o.data.empty() ? o.from : o.data.data(), o.bytes);
        break;
    case operation::FILL:
        if (o.word)
            *(volatile int *)o.to = o.value;
        else
            fill(o.to, o.value, o.bytes);
        break;
    case operation::KERNEL:
        emu_run(o.k->body, o.grid, o.threads, o.shared, o.data.data());
        break;
    case operation::RECORD:
        if (events.count(o.e)) o.e->time_s = clock_s();
        break;
    case operation::WAIT: return !streams.count(o.on) || o.on->done >= o.at;
    case operation::GRAPH: return execute_graph(o);
    case operation::CALL: o.run(o.data.data()); break;
    case operation::POLL: return o.poll(o.data.data()) == 0;
    }
    return true;
}

/* The next operation of s, or of the stream that it waits for.  false: it waits for others. */
inline bool advance(stream *s)
{
    for (size_t hops = 0; hops <= streams.size(); hops++) {
        if (s->work.empty()) return false;
        operation &o = s->work.front();
        if (execute(o)) {
            s->work.pop_front();
            s->done++;
            return true;
        }
        if (o.what != operation::WAIT) return false;
        s = o.on;
    }
    return false;
}

/* s waits for another process: meanwhile all streams go on, as on a GPU. */
inline bool advance_others(stream *s)
{
    std::vector<stream *> all(streams.begin(), streams.end());
    bool                  moved = false;
    for (stream *t : all)
        if (t != s && advance(t)) moved = true;
    return moved;
}

/* Until so many operations of s are done; false: patient is not, and it would have to wait. */
inline bool drain(stream *s, long until, bool patient = true)
{
    while (streams.count(s) && s->done < until && !s->work.empty()) {
        if (advance(s) || advance_others(s)) continue;
        if (!patient) return false;
        let_go();
    }
    return true;
}

/* The driver waits for what is under way. */
inline void drain_all()
{
    std::vector<stream *> all(streams.begin(), streams.end());
    for (stream *s : all)
        if (streams.count(s)) drain(s, s->given);
}

inline int give(stream *s, operation &&o)
{
    if (!s->in) {
        s->work.push_back(std::move(o));
        s->given++;
        return OK;
    }
    if (!s->in->valid) return INVALIDATED;
    for (auto &seen : s->in->seen[s])
        if (seen.second) o.after.push_back(seen.second - 1);
    s->in->last[s]    = s->in->work.size() + 1;
    s->in->seen[s][s] = s->in->work.size() + 1;
    s->in->work.push_back(std::move(o));
    return OK;
}

} // namespace stub

#endif
