/* The token file: found, checked, read, made. */
#include "comm/token.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

enum {
    MIN_TEXT      = 32, /* characters: 128 bits as hexadecimal digits */
    MIN_DIFFERENT = 8,  /* characters */
    MAX_TEXT      = 4096,
    RANDOM_BYTES  = 32,
    MAX_PATH      = 4096,
};

weft_status weft_comm_token_default(char *file, size_t n)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int         k;
    if (config && *config == '/')
        k = snprintf(file, n, "%s/weft/token", config);
    else if (home && *home)
        k = snprintf(file, n, "%s/.config/weft/token", home);
    else
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "neither XDG_CONFIG_HOME nor HOME is set: name a token "
                         "file with --token-file or WEFT_TOKEN_FILE");
    if (k < 0 || (size_t)k >= n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "the name of the folder for configuration is too long");
    return WEFT_OK;
}

/* ---- reading ---- */

static weft_status fail_file(const char *file)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "token file %s: %s", file, strerror(errno));
}

static weft_status check_file(const char *file, int fd)
{
    struct stat s;
    if (fstat(fd, &s)) return fail_file(file);
    if (!S_ISREG(s.st_mode))
        return WEFT_FAIL(WEFT_ERR_ARG, "token file %s is not a regular file", file);
    if (s.st_uid != geteuid())
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "token file %s belongs to user %ld, not to user %ld who runs this: "
            "copy it, or chown it",
            file, (long)s.st_uid, (long)geteuid());
    if (s.st_mode & 077)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "token file %s is open to other users (mode %04o): chmod 600 %s, and "
            "if others may have read it, make a new one with weft token",
            file, (unsigned)s.st_mode & 07777, file);
    return WEFT_OK;
}

/* Up to n bytes. */
static weft_status read_text(const char *file, int fd, char *text, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t k = read(fd, text + *got, n - *got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return fail_file(file);
        if (k == 0) break;
        *got += (size_t)k;
    }
    return WEFT_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Printing characters, and not few different ones: a token that can be guessed can be tried. */
static bool is_random_text(const char *text, size_t n)
{
    bool seen[128] = {false};
    int  different = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
        different += !seen[(int)text[i]];
        seen[(int)text[i]] = true;
    }
    return different >= MIN_DIFFERENT;
}

/* White space around the text does not count: an editor may have added it. */
static weft_status make_key(const char *file, const char *text, size_t n,
                            weft_comm_token *out)
{
    static const weft_comm_key zero;
    while (n && is_space(text[n - 1])) n--;
    while (n && is_space(*text)) text++, n--;
    if (n < MIN_TEXT)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "token file %s has %zu characters, at least %d are needed: make one "
            "with weft token",
            file, n, MIN_TEXT);
    if (n > MAX_TEXT)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "token file %s has more than %d characters: is it one that weft token "
            "made?",
            file, MAX_TEXT);
    if (!is_random_text(text, n))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "token file %s is no random text: make one with weft token or "
                         "openssl rand -hex 32",
                         file);
    return weft_comm_key_derive(&zero, "weft token", text, n, &out->key);
}

weft_status weft_comm_token_read(const char *file, weft_comm_token *out)
{
    char        text[MAX_TEXT + 64];
    size_t      n  = 0;
    weft_status st = WEFT_OK;
    int         fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *out           = (weft_comm_token){0};
    if (fd < 0) return fail_file(file);
    WEFT_GO(check_file(file, fd));
    WEFT_GO(read_text(file, fd, text, sizeof text, &n));
    st = make_key(file, text, n, out);
out:
    OPENSSL_cleanse(text, sizeof text);
    close(fd);
    return st;
}

weft_status weft_comm_token_bind(weft_comm_token *t,
                                 const uint8_t key[WEFT_COMM_KEY_BYTES], uint32_t epoch)
{
    weft_comm_key own, bound;
    weft_status   st;
    memcpy(own.byte, key, sizeof own.byte);
    st = weft_comm_key_derive(&t->key, "weft membership token", &own, sizeof own, &bound);
    if (st == WEFT_OK)
        st = weft_comm_key_derive(&bound, "weft epoch", &epoch, sizeof epoch, &t->key);
    weft_comm_key_wipe(&own);
    weft_comm_key_wipe(&bound);
    return st;
}

void weft_comm_token_wipe(weft_comm_token *t)
{
    weft_comm_key_wipe(&t->key);
}

/* ---- finding ---- */

static weft_status read_switch(bool *on)
{
    const char *s = getenv("WEFT_INSECURE_NETWORK");
    *on           = s && !strcmp(s, "1");
    if (!s || !*s || *on || !strcmp(s, "0")) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_INSECURE_NETWORK is 1 or 0, not '%s'", s);
}

static weft_status use_public_key(weft_comm_token *out)
{
    *out = (weft_comm_token){.insecure = true};
    return weft_comm_key_public(&out->key);
}

/* Output is copied, shared and published; who has the token can join the run. */
static weft_status check_place(const char *file, const char *folder)
{
    char at[PATH_MAX], under[PATH_MAX];
    if (!folder || !*folder || !realpath(file, at) || !realpath(folder, under))
        return WEFT_OK;
    size_t n = strlen(under);
    if (strncmp(at, under, n) != 0 || at[n] != '/') return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s: a token is not kept under the job's output %s, which others may "
        "read: move it, for instance to ~/.config/weft/token",
        file, folder);
}

static weft_status read_placed(const weft_comm_token_options *o, const char *file,
                               weft_comm_token *out)
{
    WEFT_TRY(check_place(file, o->output));
    return weft_comm_token_read(file, out);
}

/* Options come before variables, and both before the default file. */
weft_status weft_comm_token_find(const weft_comm_token_options *o, weft_comm_token *out)
{
    const char *file = o->file, *named = getenv("WEFT_TOKEN_FILE");
    bool        insecure = o->insecure;
    char        path[MAX_PATH];
    if (file && insecure)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "--token-file and --insecure-network contradict each other: give one");
    if (!file && !insecure) {
        WEFT_TRY(read_switch(&insecure));
        file = named && *named ? named : NULL;
        if (file && insecure)
            return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_TOKEN_FILE and WEFT_INSECURE_NETWORK=1 "
                                           "contradict each other: unset one");
    }
    if (insecure) return use_public_key(out);
    if (file) return read_placed(o, file, out);
    if (weft_comm_token_default(path, sizeof path) == WEFT_OK && !access(path, F_OK))
        return read_placed(o, path, out);
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "connections between hosts need a token, so that no one else joins the run: "
        "make one with 'weft token' and copy the file to all hosts (--token-file or "
        "WEFT_TOKEN_FILE name another place), or, on a network where everybody is "
        "trusted, give --insecure-network (WEFT_INSECURE_NETWORK=1)");
}

/* ---- making ---- */

static weft_status make_folder(const char *file)
{
    char        folder[MAX_PATH];
    const char *slash = strrchr(file, '/');
    int         n     = slash ? (int)(slash - file) : 0;
    if (n < 1 || n >= MAX_PATH) return WEFT_OK;
    snprintf(folder, sizeof folder, "%.*s", n, file);
    return weft_io_exists(folder) ? WEFT_OK : weft_io_mkdirs(folder);
}

static weft_status fill_file(const char *file, int fd)
{
    uint8_t     random[RANDOM_BYTES];
    char        text[2 * RANDOM_BYTES + 2];
    weft_status st;
    if (fchmod(fd, 0600)) return fail_file(file); /* whatever the umask */
    WEFT_GO(weft_comm_random(random, sizeof random));
    for (int i = 0; i < RANDOM_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
    text[2 * RANDOM_BYTES] = '\n';
    WEFT_GO(weft_io_write(fd, file, text, 2 * RANDOM_BYTES + 1));
    st = weft_io_sync(fd, file);
out:
    OPENSSL_cleanse(random, sizeof random);
    OPENSSL_cleanse(text, sizeof text);
    return st;
}

weft_status weft_comm_token_create(const char *file)
{
    WEFT_TRY(make_folder(file));
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s exists, and a token is never overwritten: use it, remove it first, "
            "or name another file",
            file);
    if (fd < 0) return fail_file(file);
    weft_status st = fill_file(file, fd), closed = weft_io_close(fd, file);
    if (st == WEFT_OK) st = closed;
    if (st != WEFT_OK) unlink(file);
    return st;
}
