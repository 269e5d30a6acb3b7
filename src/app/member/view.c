#include "member/view.h"

#include <string.h>

#include "member/view_priv.h"

enum {
    FORMAT   = 3,
    MAX_RANK = 1024 /* of a host */
};

void weft_member__put_host(weft_bytes_writer *w, const weft_member_host *h)
{
    weft_bytes_put_number(w, h->id, 8);
    weft_bytes_put_number(w, (uint32_t)h->n_rank, 4);
    weft_bytes_put_text(w, h->name);
    weft_bytes_put_text(w, h->control);
    weft_bytes_put_text(w, h->data);
}

void weft_member__get_host(weft_bytes_reader *r, weft_member_host *h)
{
    h->id           = weft_bytes_get_number(r, 8);
    uint64_t n_rank = weft_bytes_get_number(r, 4);
    weft_bytes_get_text(r, h->name, sizeof h->name);
    weft_bytes_get_text(r, h->control, sizeof h->control);
    weft_bytes_get_text(r, h->data, sizeof h->data);
    if (!h->id || n_rank > MAX_RANK) r->bad = true;
    h->n_rank = (int)n_rank;
}

size_t weft_member_view_encode(const weft_member_view *v, void *bytes, size_t cap)
{
    weft_bytes_writer w = {.p = bytes, .cap = cap};
    weft_bytes_put_number(&w, FORMAT, 1);
    weft_bytes_put_number(&w, v->epoch, 4);
    weft_bytes_put_number(&w, v->proposer, 8);
    weft_bytes_put_number(&w, (uint64_t)v->first_step, 8);
    weft_bytes_put_number(&w, v->restarts, 1);
    weft_bytes_put_number(&w, (uint64_t)v->least, 2);
    weft_bytes_put_text(&w, v->reason);
    weft_bytes_put_number(&w, (uint64_t)v->n_host, 2);
    for (int k = 0; k < v->n_host; k++) weft_member__put_host(&w, &v->host[k]);
    return w.full ? 0 : w.n;
}

size_t weft_member_view_encode_end(const weft_member_view *v, uint64_t proposer,
                                   void *bytes, size_t cap)
{
    weft_member_view end;
    memset(&end, 0, offsetof(weft_member_view, host));
    end.epoch      = v->epoch + 1;
    end.proposer   = proposer;
    end.first_step = v->first_step;
    return weft_member_view_encode(&end, bytes, cap);
}

weft_status weft_member_view_decode(const void *bytes, size_t n, weft_member_view *v)
{
    weft_bytes_reader r      = {.p = bytes, .n = n};
    uint64_t          format = weft_bytes_get_number(&r, 1);
    v->epoch                 = (uint32_t)weft_bytes_get_number(&r, 4);
    v->proposer              = weft_bytes_get_number(&r, 8);
    v->first_step            = (int64_t)weft_bytes_get_number(&r, 8);
    uint64_t restarts        = weft_bytes_get_number(&r, 1);
    v->restarts              = restarts == 1;
    v->least                 = (int)weft_bytes_get_number(&r, 2);
    weft_bytes_get_text(&r, v->reason, sizeof v->reason);
    v->n_host = (int)weft_bytes_get_number(&r, 2);
    if (r.bad || format != FORMAT || !v->epoch || v->epoch == UINT32_MAX ||
        v->first_step < 0 || v->first_step > WEFT_MEMBER_MAX_STEP || restarts > 1 ||
        v->n_host > WEFT_MEMBER_MAX_HOST || v->least > WEFT_MEMBER_MAX_HOST)
        return WEFT_FAIL(WEFT_ERR_ARG, "%zu bytes that are no view of a job", n);
    for (int k = 0; k < v->n_host && !r.bad; k++) weft_member__get_host(&r, &v->host[k]);
    if (r.bad || r.n) return WEFT_FAIL(WEFT_ERR_ARG, "a view of a job that is not whole");
    for (int k = 0; k < v->n_host; k++)
        if (weft_member_view_find(v, v->host[k].id) != k)
            return WEFT_FAIL(WEFT_ERR_ARG, "a view of a job with one host twice");
    return WEFT_OK;
}

void weft_member_view_copy(weft_member_view *to, const weft_member_view *from)
{
    memcpy(to, from,
           offsetof(weft_member_view, host) +
               sizeof from->host[0] * (size_t)from->n_host);
}

int weft_member_view_find(const weft_member_view *v, uint64_t id)
{
    for (int k = 0; k < v->n_host; k++)
        if (v->host[k].id == id) return k;
    return -1;
}

int weft_member_view_ranks(const weft_member_view *v)
{
    int n = 0;
    for (int k = 0; k < v->n_host; k++) n += v->host[k].n_rank;
    return n;
}
