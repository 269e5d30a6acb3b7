/* Opening libweft_<name>.so, and what it gets from us. */
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- what plugins call ---- */

static weft_status fail_text(weft_status st, const char *text)
{
    return weft_fail(st, "%s", text);
}

static weft_status fail_in_text(weft_status st, const char *text)
{
    return weft_fail_in(st, "%s", text);
}

static const weft_plugin_host host = {
    .fail_text    = fail_text,
    .fail_in_text = fail_in_text,
#define HOST(result, name, parameters, arguments) .name = name,
#include "plugin/host.def"
#undef HOST
};

/* ---- opening ---- */

enum {
    MAX_PLUGIN  = 4,
    MAX_PATH    = 4200,
    MAX_PLUGGED = 64
};

typedef struct opened_plugin {
    char               name[32];
    const weft_plugin *plugin;
} opened_plugin;

typedef struct opened_device {
    const weft_device *device;
    const weft_plugin *plugin;
    int                n_open;
} opened_device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static opened_plugin   opened[MAX_PLUGIN];
static opened_device   plugged[MAX_PLUGGED];

/* One line for each plugin that a build may lack. */
static const char *say_how_to_build(const char *name)
{
    return !strcmp(name, "cuda") ? "built without CUDA: make with nvcc in PATH"
                                 : "there is no such plugin in this build";
}

static bool is_readable(const char *folder, size_t n, const char *name, char *path)
{
    snprintf(path, MAX_PATH, "%.*s/libweft_%s.so", (int)n, folder, name);
    return access(path, R_OK) == 0;
}

static bool find_in_list(const char *list, const char *name, char *path)
{
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && is_readable(list, n, name, path)) return true;
        list += n + (list[n] == ':');
    }
    return false;
}

/* The folder of the library or command that this code is part of, and lib beside its bin. */
static bool find_beside_us(const char *name, char *path)
{
    char        self[MAX_PATH];
    Dl_info     info;
    const char *file = dladdr((const void *)&host, &info) ? info.dli_fname : NULL;
    ssize_t     n    = 0;
    if (!file || !strchr(file, '/')) {
        n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n <= 0) return false;
        self[n] = 0;
        file    = self;
    }
    size_t length = (size_t)(strrchr(file, '/') - file);
    if (is_readable(file, length, name, path)) return true;
    char lib[MAX_PATH];
    n = snprintf(lib, sizeof lib, "%.*s/../lib", (int)length, file);
    return n > 0 && is_readable(lib, (size_t)n, name, path);
}

static weft_status find_file(const char *name, char *path)
{
    const char *list = getenv("WEFT_PLUGINS");
    if (find_in_list(list, name, path) || find_beside_us(name, path)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "device %s: no libweft_%s.so %s%s: %s", name, name,
                     list && *list ? "in WEFT_PLUGINS=" : "beside weft",
                     list && *list ? list : "", say_how_to_build(name));
}

/* Nothing of the plugin is called before it is known to be of this build. */
static weft_status check_build(const char *path, const weft_plugin *p)
{
    char build[WEFT_PLUGIN_BUILD_SIZE];
    snprintf(build, sizeof build, WEFT_PLUGIN_BUILD_FORMAT, WEFT_PLUGIN_BUILD_VALUES);
    if (p->abi == WEFT_PLUGIN_ABI && p->bytes == (int)sizeof *p &&
        !strcmp(p->build(), build))
        return WEFT_OK;
    if (p->abi != WEFT_PLUGIN_ABI)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is of another build (another interface; this one is %s): "
                         "make both together",
                         path, build);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is of another build (%s, a table of %d bytes; this one is %s, "
                     "of %d bytes): make both together",
                     path, p->build(), p->bytes, build, (int)sizeof *p);
}

static weft_status load_plugin(const char *name, const weft_plugin **out)
{
    char path[MAX_PATH], symbol[64];
    WEFT_TRY(find_file(name, path));
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return WEFT_FAIL(WEFT_ERR_ARG, "%s cannot be opened: %s", path, dlerror());
    snprintf(symbol, sizeof symbol, "weft_plugin_%s", name);
    const weft_plugin *p = dlsym(lib, symbol);
    weft_status        st =
        p ? check_build(path, p) : WEFT_FAIL(WEFT_ERR_ARG, "%s has no %s", path, symbol);
    if (st != WEFT_OK) {
        dlclose(lib);
        return st;
    }
    p->start(&host);
    for (int i = 0; i < p->n_table; i++) WEFT_TRY(weft_kernel_register(p->table[i]));
    *out = p;
    return WEFT_OK;
}

static weft_status open_locked(const char *name, const weft_plugin **out)
{
    for (int i = 0; i < MAX_PLUGIN; i++) {
        opened_plugin *o = &opened[i];
        if (o->plugin && strcmp(o->name, name) != 0) continue;
        if (!o->plugin) {
            WEFT_TRY(load_plugin(name, &o->plugin));
            snprintf(o->name, sizeof o->name, "%s", name);
        }
        *out = o->plugin;
        return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "more than %d plugins", MAX_PLUGIN);
}

weft_status weft_plugin_open(const char *name, const weft_plugin **out)
{
    pthread_mutex_lock(&lock);
    weft_status st = open_locked(name, out);
    pthread_mutex_unlock(&lock);
    return st;
}

/* ---- devices ---- */

static opened_device *find_plugged(const weft_device *d)
{
    for (int i = 0; i < MAX_PLUGGED; i++)
        if (plugged[i].device == d) return &plugged[i];
    return NULL;
}

static weft_status open_device_locked(const char *name, int number, weft_device **out)
{
    const weft_plugin *p;
    weft_device       *d = NULL;
    WEFT_TRY(open_locked(name, &p));
    WEFT_TRY(p->device_open(number, &d));
    opened_device *o = find_plugged(d);
    if (!o) o = find_plugged(NULL);
    if (!o) {
        p->device_close(d);
        return WEFT_FAIL(WEFT_ERR_ARG, "more than %d devices", MAX_PLUGGED);
    }
    *o   = (opened_device){d, p, o->n_open + 1};
    *out = d;
    return WEFT_OK;
}

weft_status weft_plugin_open_device(const char *name, int number, weft_device **out)
{
    pthread_mutex_lock(&lock);
    weft_status st = open_device_locked(name, number, out);
    pthread_mutex_unlock(&lock);
    return st;
}

const weft_plugin *weft_plugin_of(const weft_device *d)
{
    pthread_mutex_lock(&lock);
    const opened_device *o = d ? find_plugged(d) : NULL;
    const weft_plugin   *p = o ? o->plugin : NULL;
    pthread_mutex_unlock(&lock);
    return p;
}

void weft_plugin_close_device(weft_device *d)
{
    pthread_mutex_lock(&lock);
    opened_device *o = d ? find_plugged(d) : NULL;
    if (o) {
        const weft_plugin *p = o->plugin;
        if (--o->n_open == 0) *o = (opened_device){0};
        p->device_close(d);
    }
    pthread_mutex_unlock(&lock);
}
