/* Any bytes as frames between agents: what is taken is as long as its kind and within its bounds,
 * and what a message or a brief points to lies in the frame.  Input: a kind, a length, so many
 * bytes, again and again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launch/hosts_frame.h"
#include "member/hosts_message.h"
#include "session/brief.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_frame(const host_frame *f, const uint8_t *data, size_t n)
{
    hosts_message m;
    weft_brief    b;
    if (!f->from || f->kind < FRAME_WHO || f->kind > FRAME_LAST) abort();
    if (f->bytes < data || f->n > n || (size_t)(f->bytes - data) > n - f->n) abort();
    switch (f->kind) {
    case FRAME_MESSAGE:
        if (!weft_member__decode_message(f->bytes, f->n, &m)) abort();
        break;
    case FRAME_USE:
    case FRAME_SCALE:
    case FRAME_STAYS:
    case FRAME_LEAVE_OUT:
    case FRAME_VIEW_PREPARED:
        if (f->use.n_rank < 0 || n != sizeof f->from + sizeof f->use) abort();
        break;
    case FRAME_PREPARE_VIEW:
        if (f->lesson.first < 0 || !f->n) abort();
        break;
    case FRAME_BRIEF:
        if (f->lesson.first < 0) abort();
        (void)weft_brief_parse((const char *)f->bytes, f->n, &b);
        break;
    case FRAME_CRASH:
        if (f->crash.step < 0 || f->crash.slot < 0) abort();
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    while (n >= 2) {
        uint32_t   kind  = FRAME_WHO - 1 + data[0] % (FRAME_LAST - FRAME_WHO + 3);
        size_t     bytes = data[1] < n - 2 ? data[1] : n - 2;
        host_frame f;
        uint8_t   *copy = malloc(bytes + !bytes); /* what is read past its end is seen */
        if (!copy) return 0;
        memcpy(copy, data + 2, bytes);
        if (weft_launch__read_frame(kind, copy, bytes, &f)) check_frame(&f, copy, bytes);
        free(copy);
        data += 2 + bytes;
        n -= 2 + bytes;
    }
    return 0;
}
