/* What is proven on a control connection: a PSK derived from the token, under an identity that is
 * derived from it as well, so that a server knows which of its keys is meant and can say what is
 * wrong; or certificates. */
#include <stdio.h>
#include <string.h>

#include "control/tls_priv.h"

enum {
    ID_BYTES = 16,
};

static const char SECURE_ID[] = "weft1 token ", INSECURE_ID[] = "weft1 insecure ";

static weft_status derive_psk(const weft_comm_token *token, weft_comm_tls_psk *out)
{
    weft_comm_key id;
    WEFT_TRY(weft_comm_key_derive(&token->key, "weft control id", NULL, 0, &id));
    int n = snprintf(out->id, sizeof out->id, "%s",
                     token->insecure ? INSECURE_ID : SECURE_ID);
    for (int i = 0; i < ID_BYTES; i++)
        n += snprintf(out->id + n, sizeof out->id - (size_t)n, "%02x", id.byte[i]);
    return weft_comm_key_derive(&token->key, "weft control psk", NULL, 0, &out->key);
}

static bool begins_with(const char *text, size_t n, const char *start)
{
    return n >= strlen(start) && !memcmp(text, start, strlen(start));
}

static const char *explain_id(const char *own_id, const char *id, size_t n)
{
    bool insecure = begins_with(own_id, strlen(own_id), INSECURE_ID);
    if (begins_with(id, n, INSECURE_ID) && !insecure)
        return "it runs with --insecure-network, and this side has a token";
    if (begins_with(id, n, SECURE_ID) && insecure)
        return "it has a token, and this side runs with --insecure-network";
    if (begins_with(id, n, SECURE_ID))
        return "it has another token: copy the same token file to all hosts";
    return "it does not speak this protocol: is it weft, of this version?";
}

static weft_status check_options(const weft_control_options *o)
{
    int n = !!o->tls.cert + !!o->tls.key + !!o->tls.ca;
    if (n && n < 3)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "--tls-cert, --tls-key and --tls-ca go together: %s is missing",
                         !o->tls.cert  ? "--tls-cert"
                         : !o->tls.key ? "--tls-key"
                                       : "--tls-ca");
    if (!n && !o->token)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "control: neither a token nor certificates");
    return WEFT_OK;
}

static weft_status derive_psks(const weft_control_options *o, weft_comm_tls_options *out)
{
    WEFT_TRY(derive_psk(o->token, &out->psk[WEFT_CONTROL__FULL]));
    out->n_psk = 1;
    if (!o->reader) return WEFT_OK;
    WEFT_TRY(derive_psk(o->reader, &out->psk[WEFT_CONTROL__READER]));
    out->n_psk = 2;
    if (strcmp(out->psk[0].id, out->psk[1].id) != 0) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "the token that only reads is the job's token: make "
                                   "another with weft token FILE");
}

weft_status weft_control__tls_open(const weft_control_options *o, weft_comm_tls **out)
{
    weft_comm_tls_options tls = {
        .explain = explain_id, .cert = o->tls.cert, .key = o->tls.key, .ca = o->tls.ca};
    weft_status st = check_options(o);
    if (st == WEFT_OK && !tls.cert) st = derive_psks(o, &tls);
    if (st == WEFT_OK) st = weft_comm_tls_open(&tls, out);
    for (int k = 0; k < WEFT_COMM_TLS_PSK; k++) weft_comm_key_wipe(&tls.psk[k].key);
    return st;
}
