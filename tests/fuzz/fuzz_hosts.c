/* Any bytes as a view, as messages of other agents and as an answer of etcd's gateway: a view that
 * was accepted has the bytes that it was read from; an agent in a job takes messages of two others
 * and strangers, never crashes, and sends nothing but bounded messages; a value is within its
 * bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "member/hosts.h"
#include "member/hosts_message.h"
#include "register/etcd_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_view(const uint8_t *data, size_t n)
{
    static weft_member_view v;
    static uint8_t          again[WEFT_MEMBER_VIEW_MOST];
    if (weft_member_view_decode(data, n, &v) != WEFT_OK) return;
    if (weft_member_view_encode(&v, again, sizeof again) != n) abort();
    if (memcmp(again, data, n) != 0) abort();
    if (weft_member_view_ranks(&v) < 0) abort();
}

static void take_actions(weft_hosts *h)
{
    weft_hosts_action a;
    hosts_message     m;
    while (weft_hosts_next(h, &a))
        if (a.kind == WEFT_HOSTS_SEND && (!a.n || a.n > WEFT_HOSTS_MESSAGE_MOST ||
                                          !weft_member__decode_message(a.bytes, a.n, &m)))
            abort();
}

static void tell(weft_hosts *h, weft_hosts_event e)
{
    weft_hosts_tell(h, &e);
    take_actions(h);
}

/* The first view with hosts 1, 2, 3. */
static void enter_view(weft_hosts *h)
{
    static weft_member_view v;
    uint8_t                 view[1024], bytes[2048];
    v = (weft_member_view){
        .epoch = 1, .proposer = 1, .first_step = 1, .least = 2, .n_host = 3};
    for (int k = 0; k < 3; k++)
        v.host[k] = (weft_member_host){.id = (uint64_t)k + 1, .n_rank = 1};
    hosts_message m = {.kind  = HOSTS_TAKE,
                       .epoch = 1,
                       .bytes = view,
                       .n     = weft_member_view_encode(&v, view, sizeof view)};
    size_t        n = weft_member__encode_message(&m, bytes, sizeof bytes);
    tell(h,
         (weft_hosts_event){.kind = WEFT_HOSTS_MESSAGE, .id = 1, .bytes = bytes, .n = n});
}

/* Each message: sender, bytes, then so many of them. */
static void send_messages(const uint8_t *data, size_t n)
{
    weft_hosts_options o = {.self              = {.id = 2, .n_rank = 1},
                            .min_host          = 1,
                            .max_host          = 4,
                            .failure_timeout_s = 1};
    weft_hosts        *h;
    double             now_s = 0;
    if (weft_hosts_create(&o, &h) != WEFT_OK) abort();
    enter_view(h);
    while (n >= 2) {
        size_t bytes = data[1] < n - 2 ? data[1] : n - 2;
        tell(h, (weft_hosts_event){.kind  = WEFT_HOSTS_MESSAGE,
                                   .id    = data[0] % 5,
                                   .bytes = data + 2,
                                   .n     = bytes});
        if (data[0] & 0x80)
            tell(h, (weft_hosts_event){.kind = WEFT_HOSTS_TICK, .now_s = now_s += 0.15});
        if (data[0] & 0x40)
            tell(h, (weft_hosts_event){.kind    = WEFT_HOSTS_STOPPED,
                                       .epoch   = weft_hosts_view(h)->epoch,
                                       .arrived = 1,
                                       .n_rank  = 1});
        data += 2 + bytes;
        n -= 2 + bytes;
    }
    weft_hosts_destroy(h);
}

static void read_etcd(const uint8_t *data, size_t n)
{
    register_value value;
    bool           succeeded;
    weft_text      t = {0};
    if (weft_register__read_etcd((const char *)data, n, "/weft/a/", &succeeded, &value) !=
        WEFT_OK) {
        if (value.bytes || strchr(weft_error_text(), '\n')) abort();
        return;
    }
    if (value.stands != (value.bytes != NULL) || value.n > WEFT_REGISTER_MOST) abort();
    weft_register__put_base64(&t, value.bytes, value.n);
    if (t.n != (value.n + 2) / 3 * 4) abort();
    weft_text_fini(&t);
    free(value.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n && data[0] == '{') read_etcd(data, n);
    read_view(data, n);
    send_messages(data, n);
    return 0;
}
