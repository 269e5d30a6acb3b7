#include "member/hosts_message.h"

#include "member/hosts.h"
#include "member/view_priv.h"

enum {
    MAX_RANK = 1024 /* of a host */
};

size_t weft_member__encode_message(const hosts_message *m, void *bytes, size_t cap)
{
    weft_bytes_writer w = {.p = bytes, .cap = cap};
    weft_bytes_put_number(&w, m->kind, 1);
    weft_bytes_put_number(&w, m->epoch, 4);
    weft_bytes_put_number(&w, m->flags, 1);
    switch (m->kind) {
    case HOSTS_ALIVE: weft_bytes_put_text(&w, m->text); break;
    case HOSTS_TAKE:
    case HOSTS_PREPARE:
    case HOSTS_TOGETHER:
    case HOSTS_VOTE: weft_bytes_put(&w, m->bytes, m->n); break;
    case HOSTS_JOIN:
        weft_member__put_host(&w, &m->host);
        weft_bytes_put_number(&w, (uint64_t)m->percent, 1);
        break;
    case HOSTS_WANT:
        weft_bytes_put_number(&w, m->id, 8);
        weft_bytes_put_text(&w, m->text);
        break;
    case HOSTS_REPORT:
        weft_bytes_put_number(&w, (uint64_t)m->arrived, 8);
        weft_bytes_put_number(&w, (uint64_t)m->passed, 8);
        weft_bytes_put_number(&w, (uint32_t)m->n_rank, 4);
        break;
    case HOSTS_PROBE:
    case HOSTS_LEAVE: weft_bytes_put_number(&w, m->id, 8); break;
    case HOSTS_HEARD:
        weft_bytes_put_number(&w, m->id, 8);
        weft_bytes_put_number(&w, m->age_ms, 4);
        break;
    default: break; /* ASK, COLLECT: nothing else */
    }
    return w.full ? 0 : w.n;
}

bool weft_member__decode_message(const void *bytes, size_t n, hosts_message *m)
{
    weft_bytes_reader r = {.p = bytes, .n = n};
    m->kind             = (hosts_message_kind)weft_bytes_get_number(&r, 1);
    m->epoch            = (uint32_t)weft_bytes_get_number(&r, 4);
    m->flags            = (unsigned)weft_bytes_get_number(&r, 1);
    if (r.bad || m->kind < HOSTS_ALIVE || m->kind >= HOSTS_N_MESSAGE) return false;
    switch (m->kind) {
    case HOSTS_ALIVE: weft_bytes_get_text(&r, m->text, sizeof m->text); break;
    case HOSTS_TAKE:
    case HOSTS_PREPARE:
    case HOSTS_TOGETHER:
    case HOSTS_VOTE:
        m->n     = r.n;
        m->bytes = weft_bytes_get(&r, r.n);
        break;
    case HOSTS_JOIN:
        weft_member__get_host(&r, &m->host);
        m->percent = (int)weft_bytes_get_number(&r, 1);
        if (m->percent > 100) return false;
        break;
    case HOSTS_WANT:
        m->id = weft_bytes_get_number(&r, 8);
        weft_bytes_get_text(&r, m->text, sizeof m->text);
        break;
    case HOSTS_REPORT: {
        m->arrived      = (int64_t)weft_bytes_get_number(&r, 8);
        m->passed       = (int64_t)weft_bytes_get_number(&r, 8);
        uint64_t n_rank = weft_bytes_get_number(&r, 4);
        if (m->arrived < -1 || m->arrived > WEFT_MEMBER_MAX_STEP || m->passed < -1 ||
            m->passed > WEFT_MEMBER_MAX_STEP || n_rank > MAX_RANK)
            return false;
        m->n_rank = (int)n_rank;
        break;
    }
    case HOSTS_PROBE:
    case HOSTS_LEAVE: m->id = weft_bytes_get_number(&r, 8); break;
    case HOSTS_HEARD:
        m->id     = weft_bytes_get_number(&r, 8);
        m->age_ms = (uint32_t)weft_bytes_get_number(&r, 4);
        break;
    default: break;
    }
    return !r.bad && !r.n;
}

bool weft_hosts_is_message(const void *bytes, size_t n)
{
    hosts_message m;
    return weft_member__decode_message(bytes, n, &m);
}
