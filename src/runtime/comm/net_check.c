/* What a peer may send.  Its bytes are checked as those of a file are: a head by itself, a piece
 * against the message that is expected, a message against the channel that it belongs to.
 *
 * A message is complete when each of its bytes came once.  A flow sends its pieces in order.
 * Over a link that keeps the order each piece begins where the last one ended.  Over one that
 * does not, all pieces but the last are of the link's size, so a piece has a number, and a bit
 * for each of the next NET_AHEAD says which came early. Either costs the same for each piece,
 * whatever its size. */
#include "base/hash.h"
#include "comm/net_priv.h"

#define MAGIC 0x54464557u /* "WEFT" */

enum {
    VERSION = 4,
};

void weft_comm__net_finish_head(const net_end *e, int to, net_head *h, net_kind kind)
{
    h->magic   = MAGIC;
    h->version = VERSION;
    h->kind    = (uint16_t)kind;
    h->job     = e->peer[to].job_out;
    h->source  = e->c.rank;
    h->crc     = weft_hash_crc32c(0, h, offsetof(net_head, crc));
}

/* ---- heads ---- */

bool weft_comm__net_is_ours(const net_end *e, const net_head *h)
{
    return h->magic == MAGIC && h->version == VERSION &&
           h->crc == weft_hash_crc32c(0, h, offsetof(net_head, crc)) && h->source >= 0 &&
           h->source < e->c.world && h->source != e->c.rank &&
           h->job == e->peer[h->source].job_in;
}

static const char *check_data(const net_end *e, const net_head *h)
{
    if (h->bytes > e->link->piece) return "a piece that is too large";
    if (h->length < 0 || h->at < 0 || h->at > h->length || h->bytes > h->length - h->at)
        return "a piece outside its message";
    if (!h->bytes && h->length) return "an empty piece of a message";
    return NULL;
}

/* A channel's numbers.  The lower of two ranks keeps them: the higher one asks, the lower one
 * answers. */
static const char *check_open(const net_end *e, const net_head *h)
{
    bool asks = h->kind == NET_OPEN, higher = h->source > e->c.rank;
    if (asks != higher) return "numbers of a channel that this rank keeps";
    if (h->port & NET_IS_GROUP) return "numbers of a channel that is a group";
    if (h->what != WEFT_COMM_SEND && h->what != WEFT_COMM_RECV)
        return "numbers of a channel without a side";
    if (h->length < 0 || h->seq > INT32_MAX || h->at)
        return "numbers of a channel out of range";
    return NULL;
}

static const char *check_answer(const net_end *e, const net_head *h)
{
    return h->at < -1 || h->at >= e->c.world ? "the name of a rank that there is not"
                                             : NULL;
}

const char *weft_comm__net_check_head(const net_end *e, const net_head *h)
{
    if (!weft_comm__net_is_ours(e, h)) return "not our words";
    if (h->kind < NET_HELLO || h->kind > NET_NOTE) return "a message of no known kind";
    if (h->spare) return "a message with a field that is not in use";
    if (h->kind == NET_DATA) return check_data(e, h);
    if (h->kind == NET_ABORT && h->bytes >= sizeof e->why)
        return "a reason that is too long";
    if (h->kind != NET_ABORT && h->bytes)
        return h->kind == NET_READY ? "a READY with a payload"
                                    : "a payload where there is none";
    if (h->kind == NET_OPEN || h->kind == NET_OPENED) return check_open(e, h);
    if (h->kind == NET_ANSWER) return check_answer(e, h);
    if (h->at || h->length) return "a size where there is none";
    if (h->kind == NET_NOTE && (!h->port || h->port > UINT32_MAX || h->seq > 1))
        return "a note that is none";
    if (h->kind == NET_ACK && h->port & NET_IS_GROUP)
        return "an acknowledgement to something that is not a channel";
    return NULL;
}

/* ---- pieces ---- */

/* The bit of the piece that begins at `at`. */
static uint64_t *find_bit(const net_end *e, const net_post *p, int64_t at, uint64_t *mask)
{
    uint64_t number = (uint64_t)(at / e->link->piece) % NET_AHEAD;
    *mask           = UINT64_C(1) << number % 64;
    return (uint64_t *)(uintptr_t)&p->ahead[number / 64];
}

static int64_t piece_bytes(const net_end *e, const net_post *p, int64_t at)
{
    int64_t left = p->length - at;
    return left < e->link->piece ? left : e->link->piece;
}

const char *weft_comm__net_check_piece(const net_end *e, const net_post *p,
                                       const net_head *h)
{
    int64_t  size = p->mine ? weft_dtype_bytes(p->dtype) : 1;
    uint64_t mask;
    if (p->done || p->feeder || h->at < p->first)
        return "a piece of a message that had come already";
    if (h->at % size || h->bytes % size) return "a piece that splits an element";
    if (!e->link->overtakes)
        return h->at == p->first ? NULL : "a piece that does not follow the last one";
    if (h->at % e->link->piece || h->bytes != piece_bytes(e, p, h->at))
        return "a piece that is cut in another place";
    if (h->at - p->first >= NET_AHEAD * e->link->piece)
        return "a piece too far from the last one";
    if (*find_bit(e, p, h->at, &mask) & mask)
        return "a piece of a message that had come already";
    return NULL;
}

void weft_comm__net_mark(const net_end *e, net_post *p, int64_t at, int64_t bytes)
{
    uint64_t mask, *bit;
    if (at != p->first) {
        bit = find_bit(e, p, at, &mask);
        *bit |= mask;
        return;
    }
    p->first += bytes;
    while (e->link->overtakes && p->first < p->length) {
        bit = find_bit(e, p, p->first, &mask);
        if (!(*bit & mask)) break;
        *bit &= ~mask;
        p->first += piece_bytes(e, p, p->first);
    }
    p->done = p->first == p->length;
}

/* ---- messages ---- */

/* Over a channel not more may wait than there are credits.  Of an epoch that this end has not
 * begun, its first are due. */
const char *weft_comm__net_check_turn(const net_port *port, const net_head *h)
{
    if (!port->most_ahead) return NULL;
    uint32_t due = h->epoch == port->epoch ? port->seq : 0;
    if (h->seq - due >= port->most_ahead) return "a message that there is no credit for";
    if (h->length > port->most_bytes) return "a message larger than its channel";
    return NULL;
}
