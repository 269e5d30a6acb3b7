#include "launch/hosts_frame.h"

#include <string.h>

#include "member/hosts.h"
#include "member/view.h"

enum {
    MAX_RANK = 1 << 20 /* of all hosts */
};

/* The whole rest of the frame. */
static bool read_whole(const host_frame *f, void *out, size_t n)
{
    if (f->n != n) return false;
    memcpy(out, f->bytes, n);
    return true;
}

static bool is_crash(const host_crash *x)
{
    return x->step >= 0 && x->step <= WEFT_MEMBER_MAX_STEP && x->slot >= 0 &&
           x->slot < MAX_RANK && (x->oom == 0 || x->oom == 1);
}

/* The beginning of the rest. */
static bool read_part(host_frame *f, void *out, size_t n)
{
    if (f->n < n) return false;
    memcpy(out, f->bytes, n);
    f->bytes += n;
    f->n -= n;
    return true;
}

static bool read_lesson(host_frame *f)
{
    return read_part(f, &f->lesson, sizeof f->lesson) && f->lesson.first >= 0 &&
           f->lesson.first < MAX_RANK;
}

bool weft_launch__read_frame(uint32_t kind, const void *data, size_t n, host_frame *out)
{
    host_frame f = {.kind = kind, .bytes = data};
    if (n < sizeof f.from) return false;
    memcpy(&f.from, data, sizeof f.from);
    f.bytes += sizeof f.from;
    f.n       = n - sizeof f.from;
    bool fine = false;
    switch (f.from ? kind : 0) {
    case FRAME_WHO: fine = !f.n; break;
    case FRAME_MESSAGE: fine = weft_hosts_is_message(f.bytes, f.n); break;
    case FRAME_USE:
    case FRAME_SCALE:
    case FRAME_STAYS:
    case FRAME_VIEW_PREPARED:
    case FRAME_LEAVE_OUT:
        fine = read_whole(&f, &f.use, sizeof f.use) && f.use.n_rank >= 0 &&
               f.use.n_rank <= MAX_RANK;
        break;
    case FRAME_KEY: fine = read_whole(&f, &f.key, sizeof f.key); break;
    case FRAME_ASK:
    case FRAME_ASK_BRIEF: fine = read_whole(&f, &f.epoch, sizeof f.epoch); break;
    case FRAME_BRIEF:
        fine = read_part(&f, &f.epoch, sizeof f.epoch) && read_lesson(&f);
        break;
    case FRAME_PREPARE_VIEW:
        fine = read_lesson(&f) && f.n > 0 && f.n <= WEFT_MEMBER_VIEW_MOST;
        break;
    case FRAME_CRASH:
        fine = read_whole(&f, &f.crash, sizeof f.crash) && is_crash(&f.crash);
        break;
    default: break;
    }
    if (fine) *out = f;
    return fine;
}
