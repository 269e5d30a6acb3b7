/* The register in etcd: a transaction that puts a key where its create_revision is 0, over the JSON
 * gateway of etcd 3.4 and later.  libcurl is opened when it is asked for.
 *
 * (1) Endpoints are tried in turn, beginning with the one that answered last.  A transaction whose
 *     answer was lost may have been made: the next endpoint then finds this value itself.
 * (2) Reads are linearizable, which is etcd's default.
 * (3) All keys of a register have one lease, whose number follows from its name and which every
 *     agent renews: they vanish a week after the last one has ended.  No host is thought lost by
 *     it. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/doc.h"
#include "base/hash.h"
#include "base/io.h"
#include "register/etcd_priv.h"

enum {
    MAX_ENDPOINT = 8,
    MAX_NAME     = 128,
    MAX_ANSWER   = 2 << 20, /* bytes */
    CONNECT_MS   = 1000,
    CALL_MS      = 3000, /* of one endpoint */
    LEASE_S      = 7 * 24 * 3600,
    RENEW_S      = 3600
};

typedef struct curl_api {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
} curl_api;

typedef struct etcd_store {
    const curl_api *api;
    CURL           *curl;
    bool            tls;
    int             n_endpoint, last;
    char            endpoint[MAX_ENDPOINT][MAX_NAME];
    char            prefix[MAX_NAME];
    uint64_t        lease;
    double          renewed_s;                                        /* 0: not so far */
    char           *user, *password, *ca_file, *cert_file, *key_file; /* or NULL */
    char           *token; /* of the user, once there is one */
} etcd_store;

static weft_status load_curl(const curl_api **out)
{
    static curl_api        api;
    static bool            loaded;
    static pthread_mutex_t lock   = PTHREAD_MUTEX_INITIALIZER;
    static const char      file[] = "libcurl.so.4";
    const struct {
        const char *name;
        void       *to;
    } symbol[] = {
        {"curl_global_init", &api.global_init},
        {"curl_easy_init", &api.easy_init},
        {"curl_easy_setopt", &api.easy_setopt},
        {"curl_easy_perform", &api.easy_perform},
        {"curl_easy_getinfo", &api.easy_getinfo},
        {"curl_easy_cleanup", &api.easy_cleanup},
        {"curl_easy_strerror", &api.easy_strerror},
        {"curl_slist_append", &api.slist_append},
        {"curl_slist_free_all", &api.slist_free_all},
    };
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&lock);
    void *lib = loaded ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!loaded && !lib)
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "etcd:// needs %s, which cannot be loaded (Debian: libcurl4); "
                       "file:DIR does without",
                       file);
    for (size_t i = 0; !loaded && i < WEFT_COUNT(symbol) && st == WEFT_OK; i++) {
        void *f                = dlsym(lib, symbol[i].name);
        *(void **)symbol[i].to = f;
        if (!f) st = WEFT_FAIL(WEFT_ERR_ARG, "%s has no %s", file, symbol[i].name);
    }
    if (!loaded && st == WEFT_OK && api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s cannot be used", file);
    loaded = st == WEFT_OK;
    pthread_mutex_unlock(&lock);
    *out = &api;
    return st;
}

/* ---- one call ---- */

static size_t take_bytes(char *p, size_t size, size_t n, void *arg)
{
    weft_text *t = arg;
    if (t->n + size * n > MAX_ANSWER) return 0;
    weft_text_put(t, p, size * n);
    return t->failed ? 0 : size * n;
}

static void set_options(etcd_store *e, const char *url, const weft_text *body,
                        weft_text *answer, struct curl_slist *head)
{
    const curl_api *a = e->api;
    a->easy_setopt(e->curl, CURLOPT_URL, url);
    a->easy_setopt(e->curl, CURLOPT_NOSIGNAL, 1L);
    a->easy_setopt(e->curl, CURLOPT_PROXY, "");
    a->easy_setopt(e->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    a->easy_setopt(e->curl, CURLOPT_TIMEOUT_MS, (long)CALL_MS);
    a->easy_setopt(e->curl, CURLOPT_POSTFIELDSIZE, (long)body->n);
    a->easy_setopt(e->curl, CURLOPT_POSTFIELDS, body->s);
    a->easy_setopt(e->curl, CURLOPT_HTTPHEADER, head);
    a->easy_setopt(e->curl, CURLOPT_WRITEFUNCTION, take_bytes);
    a->easy_setopt(e->curl, CURLOPT_WRITEDATA, answer);
    if (e->ca_file) a->easy_setopt(e->curl, CURLOPT_CAINFO, e->ca_file);
    if (e->cert_file) a->easy_setopt(e->curl, CURLOPT_SSLCERT, e->cert_file);
    if (e->key_file) a->easy_setopt(e->curl, CURLOPT_SSLKEY, e->key_file);
}

/* The text of an error: {"error": "etcdserver: ..", ..}. */
static weft_status fail_answer(long code, const weft_text *answer)
{
    weft_doc   *doc;
    const char *why = NULL;
    weft_status st;
    if (answer->n && weft_doc_parse_json("", answer->s, answer->n, &doc) == WEFT_OK) {
        const weft_node *error = weft_doc_root(doc)->kind == WEFT_NODE_MAP
                                     ? weft_node_get(weft_doc_root(doc), "error")
                                     : NULL;
        if (error && error->kind == WEFT_NODE_STRING) why = error->u.s;
        st = WEFT_FAIL(WEFT_ERR_IO, "HTTP %ld, %.120s", code,
                       why ? why : "no reason given");
        weft_doc_destroy(doc);
        return st;
    }
    return WEFT_FAIL(WEFT_ERR_IO, "HTTP %ld: is this etcd 3.4 or later?", code);
}

/* *code: of HTTP; 0: none came. */
static weft_status post_to(etcd_store *e, int endpoint, const char *path,
                           const weft_text *body, weft_text *answer, long *code)
{
    const curl_api    *a    = e->api;
    struct curl_slist *head = a->slist_append(NULL, "Content-Type: application/json");
    char               url[2 * MAX_NAME];
    *code     = 0;
    answer->n = 0;
    snprintf(url, sizeof url, "http%s://%s/v3/%s", e->tls ? "s" : "",
             e->endpoint[endpoint], path);
    if (e->token) {
        weft_text line = {0};
        weft_text_add(&line, "Authorization: %s", e->token);
        if (!line.failed) head = a->slist_append(head, line.s);
        weft_text_fini(&line);
    }
    set_options(e, url, body, answer, head);
    CURLcode got = a->easy_perform(e->curl);
    a->slist_free_all(head);
    if (got != CURLE_OK) return WEFT_FAIL(WEFT_ERR_IO, "%s", a->easy_strerror(got));
    a->easy_getinfo(e->curl, CURLINFO_RESPONSE_CODE, code);
    return *code == 200 ? WEFT_OK : fail_answer(*code, answer);
}

static weft_status sign_in(etcd_store *e, int endpoint)
{
    weft_text   body = {0}, answer = {0};
    weft_doc   *doc   = NULL;
    const char *token = NULL;
    long        code;
    weft_status st = WEFT_OK;
    free(e->token);
    e->token = NULL;
    weft_text_add(&body, "{\"name\": ");
    weft_text_put_quoted(&body, e->user);
    weft_text_put_string_member(&body, "password", e->password ? e->password : "");
    weft_text_add(&body, "}");
    WEFT_GO(weft_text_status(&body));
    WEFT_GO(post_to(e, endpoint, "auth/authenticate", &body, &answer, &code));
    WEFT_GO(weft_doc_parse_json("etcd's answer", answer.s, answer.n, &doc));
    WEFT_GO(weft_doc_get_string(doc, weft_doc_root(doc), "token", &token));
    if (!token) WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "etcd gave user %s no token", e->user));
    e->token = strdup(token);
out:
    if (body.s) memset(body.s, 0, body.n);
    weft_text_fini(&body);
    weft_text_fini(&answer);
    weft_doc_destroy(doc);
    return st;
}

/* Endpoints in turn. */
static weft_status post_any(etcd_store *e, const char *path, const weft_text *body,
                            weft_text *answer)
{
    weft_status st = WEFT_ERR_IO;
    for (int k = 0; k < e->n_endpoint; k++) {
        int  at   = (e->last + k) % e->n_endpoint;
        long code = 401;
        st        = WEFT_OK;
        if (!e->user || e->token) st = post_to(e, at, path, body, answer, &code);
        if (e->user && code == 401) { /* no token so far, or it has expired */
            st = sign_in(e, at);
            if (st == WEFT_OK) st = post_to(e, at, path, body, answer, &code);
        }
        if (st == WEFT_OK) {
            e->last = at;
            return WEFT_OK;
        }
        char why[200];
        snprintf(why, sizeof why, "%s", weft_error_text());
        st = WEFT_FAIL(WEFT_ERR_IO,
                       "etcd at %s: %s: is it running, and reached from here?",
                       e->endpoint[at], why);
    }
    return st;
}

/* ---- the lease ---- */

/* What is left of it by the answer to a renewal: {"result": {"TTL": "604800", ..}}. */
static int64_t read_left(const weft_text *answer)
{
    weft_doc *doc;
    int64_t   left = 0;
    if (weft_doc_parse_json("", answer->s, answer->n, &doc) != WEFT_OK) return 0;
    const weft_node *root = weft_doc_root(doc), *result = NULL, *ttl = NULL;
    if (root->kind == WEFT_NODE_MAP) result = weft_node_get(root, "result");
    if (result && result->kind == WEFT_NODE_MAP) ttl = weft_node_get(result, "TTL");
    if (ttl && ttl->kind == WEFT_NODE_STRING) left = strtoll(ttl->u.s, NULL, 10);
    weft_doc_destroy(doc);
    return left;
}

/* Another agent may be faster. */
static weft_status grant_lease(etcd_store *e)
{
    weft_text body = {0}, answer = {0};
    weft_text_add(&body, "{\"TTL\": \"%d\", \"ID\": \"%llu\"}", LEASE_S,
                  (unsigned long long)e->lease);
    weft_status st = weft_text_status(&body);
    if (st == WEFT_OK) st = post_any(e, "lease/grant", &body, &answer);
    if (st == WEFT_ERR_IO && strstr(weft_error_text(), "lease already exists"))
        st = WEFT_OK;
    weft_text_fini(&body);
    weft_text_fini(&answer);
    return st;
}

static weft_status renew_lease(etcd_store *e)
{
    weft_text body = {0}, answer = {0};
    double    now_s = weft_clock_s();
    if (e->renewed_s > 0 && now_s - e->renewed_s < RENEW_S) return WEFT_OK;
    weft_text_add(&body, "{\"ID\": \"%llu\"}", (unsigned long long)e->lease);
    weft_status st = weft_text_status(&body);
    if (st == WEFT_OK) st = post_any(e, "lease/keepalive", &body, &answer);
    if (st == WEFT_OK && read_left(&answer) <= 0) st = grant_lease(e);
    if (st == WEFT_OK) e->renewed_s = now_s;
    weft_text_fini(&body);
    weft_text_fini(&answer);
    return st;
}

/* ---- the store ---- */

static void put_key(const etcd_store *e, weft_text *t, uint32_t epoch)
{
    char key[MAX_NAME + 16];
    snprintf(key, sizeof key, "%s%010u", e->prefix, epoch);
    weft_register__put_base64(t, key, strlen(key));
}

static void write_range(const etcd_store *e, weft_text *t, uint32_t epoch)
{
    weft_text_add(t, "{\"key\": \"");
    put_key(e, t, epoch == WEFT_REGISTER_NEWEST ? 1 : epoch);
    if (epoch == WEFT_REGISTER_NEWEST) {
        char end[MAX_NAME + 2];
        snprintf(end, sizeof end, "%s:", e->prefix); /* after all digits */
        weft_text_add(t, "\", \"range_end\": \"");
        weft_register__put_base64(t, end, strlen(end));
        weft_text_add(
            t,
            "\", \"limit\": \"1\", \"sort_order\": \"DESCEND\", \"sort_target\": \"KEY");
    }
    weft_text_add(t, "\"}");
}

static void write_txn(const etcd_store *e, weft_text *t, uint32_t epoch,
                      const void *bytes, size_t n)
{
    weft_text_add(t, "{\"compare\": [{\"target\": \"CREATE\", \"result\": \"EQUAL\", "
                     "\"create_revision\": \"0\", \"key\": \"");
    put_key(e, t, epoch);
    weft_text_add(t, "\"}], \"success\": [{\"request_put\": {\"key\": \"");
    put_key(e, t, epoch);
    weft_text_add(t, "\", \"value\": \"");
    weft_register__put_base64(t, bytes, n);
    weft_text_add(t, "\", \"lease\": \"%llu\"}}], \"failure\": [{\"request_range\": ",
                  (unsigned long long)e->lease);
    write_range(e, t, epoch);
    weft_text_add(t, "}]}");
}

static void put_beat_key(const etcd_store *e, weft_text *t)
{
    char key[MAX_NAME + 16];
    snprintf(key, sizeof key, "%salive", e->prefix);
    weft_text_add(t, "{\"key\": \"");
    weft_register__put_base64(t, key, strlen(key));
}

static weft_status leave_beat(etcd_store *e, const void *beat)
{
    weft_text body = {0}, answer = {0};
    put_beat_key(e, &body);
    weft_text_add(&body, "\", \"value\": \"");
    weft_register__put_base64(&body, beat, sizeof(uint64_t));
    weft_text_add(&body, "\", \"lease\": \"%llu\"}", (unsigned long long)e->lease);
    weft_status st = weft_text_status(&body);
    if (st == WEFT_OK) st = post_any(e, "kv/put", &body, &answer);
    weft_text_fini(&body);
    weft_text_fini(&answer);
    return st;
}

static weft_status read_beat(etcd_store *e, uint64_t *beat)
{
    weft_text body = {0}, answer = {0};
    put_beat_key(e, &body);
    weft_text_add(&body, "\"}");
    weft_status st = weft_text_status(&body);
    if (st == WEFT_OK) st = post_any(e, "kv/range", &body, &answer);
    if (st == WEFT_OK) st = weft_register__read_etcd_beat(answer.s, answer.n, beat);
    weft_text_fini(&body);
    weft_text_fini(&answer);
    return st;
}

/* The lease may have ended while all agents were stopped. */
static weft_status post_value(etcd_store *e, const weft_text *body, weft_text *answer)
{
    WEFT_TRY(renew_lease(e));
    weft_status st = post_any(e, "kv/txn", body, answer);
    if (st != WEFT_ERR_IO || !strstr(weft_error_text(), "lease not found")) return st;
    e->renewed_s = 0;
    WEFT_TRY(renew_lease(e));
    return post_any(e, "kv/txn", body, answer);
}

static weft_status ask_etcd(void *store, uint32_t epoch, const void *bytes, int64_t n,
                            register_value *value)
{
    etcd_store *e    = store;
    weft_text   body = {0}, answer = {0};
    bool        succeeded;
    weft_status st = WEFT_OK;
    if (n >= 0)
        write_txn(e, &body, epoch, bytes, (size_t)n);
    else
        write_range(e, &body, epoch);
    WEFT_GO(weft_text_status(&body));
    if (n < 0 && bytes) {
        WEFT_GO(renew_lease(e));
        WEFT_GO(leave_beat(e, bytes));
    }
    WEFT_GO(n >= 0 ? post_value(e, &body, &answer)
                   : post_any(e, "kv/range", &body, &answer));
    WEFT_GO(weft_register__read_etcd(answer.s, answer.n, e->prefix, &succeeded, value));
    if (epoch == WEFT_REGISTER_NEWEST) {
        st = read_beat(e, &value->beat);
        if (st != WEFT_OK) free(value->bytes);
        if (st != WEFT_OK) goto out;
    }
    if (succeeded) {
        *value = (register_value){.stands = true,
                                  .epoch  = epoch,
                                  .bytes  = malloc((size_t)n + 1),
                                  .n      = (size_t)n};
        if (!value->bytes) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
        memcpy(value->bytes, bytes, (size_t)n);
    } else if (n >= 0 && !value->stands) {
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "etcd: a transaction that did nothing"));
    }
    if (!value->stands) value->epoch = epoch == WEFT_REGISTER_NEWEST ? 0 : epoch;
out:
    weft_text_fini(&body);
    weft_text_fini(&answer);
    return st;
}

static void destroy_etcd(void *store)
{
    etcd_store *e = store;
    if (e->curl) e->api->easy_cleanup(e->curl);
    if (e->password) memset(e->password, 0, strlen(e->password));
    free(e->user), free(e->password), free(e->ca_file), free(e->cert_file);
    free(e->key_file), free(e->token);
    free(e);
}

/* ---- opening ---- */

/* "h1:2379,h2/run1" */
static weft_status read_place(etcd_store *e, const char *where)
{
    const char *slash = strchr(where, '/'), *at = where;
    if (!slash || !slash[1] || strchr(slash + 1, '/') || strlen(slash + 1) > 64)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "register 'etcd://%.100s': expected "
                         "etcd://host:port,host:port/NAME, NAME of 1 to 64 characters",
                         where);
    snprintf(e->prefix, sizeof e->prefix, "/weft/%s/", slash + 1);
    e->lease =
        (weft_hash_xxh64(e->prefix, strlen(e->prefix), 1) >> 2) | 1; /* fits int64 */
    while (at < slash) {
        size_t n = strcspn(at, ",/");
        if (!n || n > MAX_NAME - 8 || e->n_endpoint == MAX_ENDPOINT)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "register 'etcd://%.100s': 1 to %d hosts are expected",
                             where, MAX_ENDPOINT);
        char       *name = e->endpoint[e->n_endpoint++];
        const char *end  = memchr(at, ']', n); /* of an IPv6 address */
        bool        port = memchr(end ? end : at, ':', end ? n - (size_t)(end - at) : n);
        snprintf(name, MAX_NAME, "%.*s%s", (int)n, at, port ? "" : ":2379");
        at += n + (at[n] == ',');
    }
    return e->n_endpoint
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_ARG, "register 'etcd://%.100s' names no host", where);
}

/* An option, or the variable that stands for it. */
static char *copy_option(const char *given, const char *variable)
{
    const char *s = given ? given : getenv(variable);
    return s && *s ? strdup(s) : NULL;
}

static weft_status read_password(etcd_store *e, const char *file)
{
    size_t n;
    if (!file || !*file)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "etcd user %s has no password: name its file in "
                         "WEFT_ETCD_PASSWORD_FILE",
                         e->user);
    WEFT_TRY(weft_io_read_file(file, &e->password, &n));
    e->password[strcspn(e->password, "\r\n")] = 0;
    return WEFT_OK;
}

weft_status weft_register__open_etcd(const char *where, bool tls,
                                     const weft_register_options *o, weft_register **out)
{
    static const register_store ops = {.ask = ask_etcd, .destroy = destroy_etcd};
    char                        name[300];
    weft_status                 st = WEFT_OK;
    etcd_store                 *e  = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->tls = tls;
    WEFT_GO(load_curl(&e->api));
    WEFT_GO(read_place(e, where));
    e->user      = copy_option(o->user, "WEFT_ETCD_USER");
    e->ca_file   = copy_option(o->ca_file, "WEFT_ETCD_CA_FILE");
    e->cert_file = copy_option(o->cert_file, "WEFT_ETCD_CERT_FILE");
    e->key_file  = copy_option(o->key_file, "WEFT_ETCD_KEY_FILE");
    if (e->user)
        WEFT_GO(read_password(e, o->password_file ? o->password_file
                                                  : getenv("WEFT_ETCD_PASSWORD_FILE")));
    e->curl = e->api->easy_init();
    if (!e->curl) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    snprintf(name, sizeof name, "etcd%s://%s", tls ? "s" : "", where);
    return weft_register__open_store(&ops, e, name, o, out);
out:
    destroy_etcd(e);
    return st;
}
