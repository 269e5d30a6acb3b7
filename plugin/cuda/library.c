/* NVIDIA's libraries: where they are found and how they are opened.
 * (1) What is open stays open, and is read by any thread; opening and closing are one thread's.
 * (2) A library that lacks a symbol of its rows is closed again and counts as missing. */
#include "library.h"

#include <dlfcn.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sdpa.h"
#include "pinned.h"

enum {
    MOST_NAMES   = 2,
    MOST_FOLDERS = 64
};

typedef struct folder_list {
    int  n;
    char path[MOST_FOLDERS][512]; /* "": ld.so */
} folder_list;

typedef struct symbol_row {
    const char *name;
    size_t      at; /* in the table of functions */
} symbol_row;

static weft_cuda_library library[WEFT_N_CUDA_LIBRARY] = {
    [WEFT_CUDA_BLAS] = {.name = "cublasLt"},
    [WEFT_CUDA_DNN]  = {.name = "cuDNN"},
    [WEFT_CUDA_NCCL] = {.name = "NCCL"},
};
static weft_cuda_blas blas;
static weft_cuda_dnn  dnn;
static weft_cuda_nccl nccl;
static void          *blas_handle, *dnn_handle;
static void          *bound_gpu;
static char           bound_kind[96];
static weft_status (*bound_use)(void *gpu);
static pthread_mutex_t handle_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- folders ---- */

static void add_folder(folder_list *list, const char *path, size_t n)
{
    if (list->n == MOST_FOLDERS || n >= sizeof list->path[0]) return;
    memcpy(list->path[list->n], path, n);
    list->path[list->n++][n] = 0;
}

static void add_matches(folder_list *list, const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        add_folder(list, found.gl_pathv[i], strlen(found.gl_pathv[i]));
    globfree(&found);
}

/* bin/python3 of an environment stands next to lib/python3.N/site-packages. */
static void add_python(folder_list *list)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        char   file[600], pattern[700];
        snprintf(file, sizeof file, "%.*s/python3", (int)(n < 500 ? n : 500), path);
        glob_t found;
        if (n && glob(file, 0, NULL, &found) == 0) {
            globfree(&found);
            snprintf(pattern, sizeof pattern,
                     "%.*s/../lib/python3*/site-packages/nvidia/*/lib",
                     (int)(n < 500 ? n : 500), path);
            add_matches(list, pattern);
            return;
        }
        path += n;
        if (*path) path++;
    }
}

static void list_folders(folder_list *list)
{
    const char *own  = getenv("WEFT_CUDA_LIBS");
    bool        only = own && !strncmp(own, "only:", 5);
    list->n          = 0;
    if (only) own += 5;
    while (own && *own) {
        size_t n = strcspn(own, ":");
        if (n) add_folder(list, own, n);
        own += n;
        if (*own) own++;
    }
    if (only) return;
    add_folder(list, "", 0);
    add_folder(list, "/usr/local/cuda/lib64", strlen("/usr/local/cuda/lib64"));
    add_python(list);
}

/* ---- opening ---- */

static void *open_in(const char *folder, const char *name)
{
    char path[1024];
    if (!*folder) return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_first(const folder_list *list, const char *const *names, int n_name)
{
    for (int f = 0; f < list->n; f++)
        for (int i = 0; i < n_name; i++) {
            void *so = open_in(list->path[f], names[i]);
            if (so) return so;
        }
    return NULL;
}

/* cuDNN finds the run-time compiler by its name, which ld.so may not know: whatever is loaded
 * already is taken.  Missing ones are no error here: cuDNN says so when it needs them. */
static void preload_compiler(const folder_list *list, int major)
{
    char        builtins[64], compiler[64];
    const char *names[] = {compiler};
    snprintf(compiler, sizeof compiler, "libnvrtc.so.%d", major);
    for (int f = 0; f < list->n; f++) {
        char   pattern[1024];
        glob_t found;
        if (!*list->path[f]) continue;
        snprintf(builtins, sizeof builtins, "libnvrtc-builtins.so.%d*", major);
        snprintf(pattern, sizeof pattern, "%s/%s", list->path[f], builtins);
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        (void)dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
        globfree(&found);
        if (open_in(list->path[f], compiler)) return;
    }
    (void)open_first(list, names, 1);
}

static bool read_symbols(void *so, const symbol_row *row, size_t n, void *table,
                         const char **missing)
{
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(so, row[i].name);
        if (!symbol) {
            *missing = row[i].name;
            return false;
        }
        memcpy((char *)table + row[i].at, &symbol, sizeof symbol);
    }
    return true;
}

static void note_path(weft_cuda_library *l)
{
    struct link_map *map = NULL;
    if (dlinfo(l->handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(l->path, sizeof l->path, "%s", map->l_name);
}

/* As cublasLt and cuDNN give it, or as NCCL does. */
static int call_version(void *symbol, bool by_pointer)
{
    size_t (*get)(void);
    int (*put)(int *);
    int v = 0;
    memcpy(&get, &symbol, sizeof symbol);
    memcpy(&put, &symbol, sizeof symbol);
    return !by_pointer ? (int)get() : put(&v) == 0 ? v : 0;
}

/* The first file of another version, for an error: "" none. */
static void find_other_version(const folder_list *list, const char *stem, char *path,
                               size_t bytes)
{
    path[0] = 0;
    for (int f = 0; f < list->n && !path[0]; f++) {
        char   pattern[1024];
        glob_t found;
        if (!*list->path[f]) continue;
        snprintf(pattern, sizeof pattern, "%s/%s.so.[0-9]*", list->path[f], stem);
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        snprintf(path, bytes, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
}

/* Keeps so, or closes it and says why.  first, last: its major version. */
static void take_library(weft_cuda_library *l, void *so, const symbol_row *row, size_t n,
                         void *table, const char *version_symbol, int first, int last)
{
    const char *missing = version_symbol;
    void       *symbol  = dlsym(so, version_symbol);
    l->handle           = so;
    note_path(l);
    if (!symbol || !read_symbols(so, row, n, table, &missing)) {
        snprintf(l->why, sizeof l->why, "%.400s has no %s", l->path, missing);
        dlclose(so);
        l->handle = NULL;
        return;
    }
    int v         = call_version(symbol, table == &nccl);
    l->version[0] = v / 10000;
    l->version[1] = v / 100 % 100;
    l->version[2] = v % 100;
    l->why[0]     = 0;
    if (l->version[0] >= first && l->version[0] <= last) return;
    snprintf(l->why, sizeof l->why, "%.400s is %s %d.%d, %d%s is needed", l->path,
             l->name, l->version[0], l->version[1], last, first < last ? " or 12" : "");
    dlclose(so);
    l->handle = NULL;
}

static const symbol_row blas_row[] = {
#define ROW(field, symbol, parameters) {#symbol, offsetof(weft_cuda_blas, field)},
    WEFT_CUDA_BLAS_ROWS
#undef ROW
};
static const symbol_row dnn_row[] = {
#define ROW(field, symbol, parameters) {#symbol, offsetof(weft_cuda_dnn, field)},
    WEFT_CUDA_DNN_ROWS
#undef ROW
    {"cudnnGetLastErrorString", offsetof(weft_cuda_dnn, last_error)},
};

/* cublasLt 13 wants a driver of CUDA 13. */
enum {
    BLAS_FIRST = 12,
    BLAS_LAST  = 13,
    DNN        = 9
};

static void say_no_blas(const folder_list *list, int driver, weft_cuda_library *l)
{
    static const char *const newer[] = {"libcublasLt.so.13"};
    char                     other[300];
    void *so = driver < 1000 * BLAS_LAST ? open_first(list, newer, 1) : NULL;
    if (so) {
        l->handle = so;
        note_path(l);
        l->handle = NULL;
        dlclose(so);
        snprintf(l->why, sizeof l->why,
                 "%.300s needs a driver of CUDA 13.0 or later, this one is of CUDA "
                 "%d.%d: install a newer driver, or cublasLt 12",
                 l->path, driver / 1000, driver % 1000 / 10);
        return;
    }
    find_other_version(list, "libcublasLt", other, sizeof other);
    snprintf(l->why, sizeof l->why,
             "cublasLt 12 or 13 is not found%s%s (searched: $WEFT_CUDA_LIBS, ld.so, "
             "/usr/local/cuda/lib64, nvidia/*/lib of python3): install CUDA's libraries, "
             "or name their folder in WEFT_CUDA_LIBS",
             other[0] ? ", only " : "", other);
}

static void open_blas(const folder_list *list, int driver)
{
    static const char *const names[MOST_NAMES] = {"libcublasLt.so.13",
                                                  "libcublasLt.so.12"};
    weft_cuda_library       *l                 = &library[WEFT_CUDA_BLAS];
    int                      first             = driver < 1000 * BLAS_LAST ? 1 : 0;
    void                    *so = open_first(list, names + first, MOST_NAMES - first);
    if (!so)
        say_no_blas(list, driver, l);
    else
        take_library(l, so, blas_row, WEFT_COUNT(blas_row), &blas, "cublasLtGetVersion",
                     BLAS_FIRST, BLAS_LAST);
}

static void say_no_dnn(const folder_list *list, weft_cuda_library *l)
{
    char other[300];
    find_other_version(list, "libcudnn", other, sizeof other);
    snprintf(l->why, sizeof l->why, "cuDNN 9 is not found (libcudnn.so.9%s%s)",
             other[0] ? "; only " : "", other);
}

static void open_dnn(const folder_list *list, int driver)
{
    static const char *const names[] = {"libcudnn.so.9"};
    weft_cuda_library       *l       = &library[WEFT_CUDA_DNN];
    if (getenv("WEFT_CUDA_CUDNN") && !strcmp(getenv("WEFT_CUDA_CUDNN"), "0")) return;
    preload_compiler(list, 12);
    if (driver >= 13000) preload_compiler(list, 13);
    void *so = open_first(list, names, 1);
    if (!so)
        say_no_dnn(list, l);
    else
        take_library(l, so, dnn_row, WEFT_COUNT(dnn_row), &dnn, "cudnnGetVersion", DNN,
                     DNN);
}

static const symbol_row nccl_row[] = {
#define ROW(field, symbol, parameters) {#symbol, offsetof(weft_cuda_nccl, field)},
    WEFT_CUDA_NCCL_ROWS
#undef ROW
    {"ncclGetErrorString", offsetof(weft_cuda_nccl, error_string)},
    {"ncclGetLastError", offsetof(weft_cuda_nccl, last_error)},
};

weft_status weft_cuda_nccl_open(void)
{
    static const char *const names[] = {"libnccl.so.2"};
    static folder_list       list;
    weft_cuda_library       *l   = &library[WEFT_CUDA_NCCL];
    const char              *own = getenv("WEFT_CUDA_LIBS");
    if (l->handle) return WEFT_OK;
    list_folders(&list);
    bool  none = own && !strcmp(own, "none");
    void *so   = none ? NULL : open_first(&list, names, 1);
    if (!so)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "NCCL is not found (libnccl.so.2; $WEFT_CUDA_LIBS, ld.so, "
                         "/usr/local/cuda/lib64 and nvidia/*/lib of python3 were "
                         "searched): install NCCL 2, or set WEFT_GPU_COMM=staged");
    take_library(l, so, nccl_row, WEFT_COUNT(nccl_row), &nccl, "ncclGetVersion", 0,
                 INT_MAX);
    if (!l->handle)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: NCCL 2.14 or later is needed, or WEFT_GPU_COMM=staged",
                         l->why);
    if (l->version[0] == 2 && l->version[1] >= 14) return WEFT_OK;
    dlclose(l->handle);
    l->handle = NULL;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s is NCCL %d.%d.%d: 2.14 or a later NCCL 2 is needed, or "
                     "WEFT_GPU_COMM=staged",
                     l->path, l->version[0], l->version[1], l->version[2]);
}

weft_status weft_cuda_libraries_open(int driver)
{
    static folder_list list;
    weft_cuda_library *b = &library[WEFT_CUDA_BLAS];
    list_folders(&list);
    if (!b->handle) open_blas(&list, driver);
    if (!b->handle) return WEFT_FAIL(WEFT_ERR_ARG, "device cuda: %s", b->why);
    if (!library[WEFT_CUDA_DNN].handle) open_dnn(&list, driver);
    return WEFT_OK;
}

/* ---- what is open ---- */

const weft_cuda_library *weft_cuda_library_get(weft_cuda_library_kind k)
{
    return &library[k];
}

const weft_cuda_blas *weft_cuda_blas_get(void)
{
    return library[WEFT_CUDA_BLAS].handle ? &blas : NULL;
}

const weft_cuda_dnn *weft_cuda_dnn_get(void)
{
    return library[WEFT_CUDA_DNN].handle ? &dnn : NULL;
}

const weft_cuda_nccl *weft_cuda_nccl_get(void)
{
    return library[WEFT_CUDA_NCCL].handle ? &nccl : NULL;
}

/* ---- handles ---- */

void weft_cuda_libraries_bind(weft_status (*use)(void *gpu), void *gpu, const char *kind)
{
    pthread_mutex_lock(&handle_lock);
    if (!bound_gpu) {
        snprintf(bound_kind, sizeof bound_kind, "%s", kind);
        bound_gpu = gpu;
        bound_use = use;
    }
    pthread_mutex_unlock(&handle_lock);
}

static void destroy_handles(void)
{
    if (blas_handle) blas.destroy(blas_handle);
    weft_cuda_sdpa_drop();
    if (dnn_handle) dnn.destroy(dnn_handle);
    blas_handle = dnn_handle = NULL;
}

void weft_cuda_libraries_unbind(const void *gpu)
{
    pthread_mutex_lock(&handle_lock);
    if (bound_gpu == gpu) {
        destroy_handles();
        bound_gpu = NULL;
        bound_use = NULL;
    }
    pthread_mutex_unlock(&handle_lock);
}

static weft_status make_handle(int (*create)(void **), const char *name, void **handle)
{
    weft_status st     = WEFT_OK;
    int         status = 0;
    pthread_mutex_lock(&handle_lock);
    if (!*handle && bound_use) st = bound_use(bound_gpu);
    if (!*handle && st == WEFT_OK) status = create(handle);
    pthread_mutex_unlock(&handle_lock);
    if (status) return WEFT_FAIL(WEFT_ERR_IO, "%s failed with status %d", name, status);
    return st;
}

weft_status weft_cuda_blas_handle(void **out)
{
    WEFT_TRY(make_handle(blas.create, "cublasLtCreate", &blas_handle));
    *out = blas_handle;
    return WEFT_OK;
}

weft_status weft_cuda_dnn_handle(void **out)
{
    WEFT_TRY(make_handle(dnn.create, "cudnnCreate", &dnn_handle));
    *out = dnn_handle;
    return WEFT_OK;
}

bool weft_cuda_fp8_sums_fast(void)
{
    const char *s = getenv("WEFT_CUDA_FP8_FAST_ACCUM");
    return s && *s == '1';
}

/* ---- for people ---- */

const char *weft_cuda_libraries_name(char *text, size_t bytes)
{
    const weft_cuda_library *b = &library[WEFT_CUDA_BLAS], *d = &library[WEFT_CUDA_DNN];
    int n = snprintf(text, bytes, "%s %d.%d.%d, ", b->name, b->version[0], b->version[1],
                     b->version[2]);
    if (n < 0 || (size_t)n >= bytes) return text;
    if (d->handle)
        n += snprintf(text + n, bytes - (size_t)n, "%s %d.%d.%d", d->name, d->version[0],
                      d->version[1], d->version[2]);
    else
        n += snprintf(text + n, bytes - (size_t)n, "no cuDNN: own attention");
    d = &library[WEFT_CUDA_NCCL];
    if (d->handle && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, ", %s %d.%d.%d", d->name, d->version[0],
                 d->version[1], d->version[2]);
    return text;
}

const char *weft_cuda_libraries_print(char *text, size_t bytes)
{
    size_t n = 0;
    text[0]  = 0;
    for (int k = 0; k < WEFT_N_CUDA_LIBRARY; k++) {
        const weft_cuda_library *l = &library[k];
        if (!l->handle || n >= bytes) continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s%s %d.%d.%d %s", n ? ", " : "",
                              l->name, l->version[0], l->version[1], l->version[2],
                              l->path);
    }
    return text;
}

const char *weft_cuda_libraries_id(char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "cuda " WEFT_VERSION " kernels-%s%s%s",
                                weft_cuda_kernels_id, *bound_kind ? " " : "", bound_kind);
    for (int k = 0; k < WEFT_CUDA_NCCL; k++) {
        const weft_cuda_library *l = &library[k];
        if (!l->handle || n >= bytes) continue;
        n += (size_t)snprintf(text + n, bytes - n, " %s-%d.%d.%d", l->name, l->version[0],
                              l->version[1], l->version[2]);
    }
    if (weft_cuda_pinned_hash() && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, " pinned-%016" PRIx64,
                              weft_cuda_pinned_hash());
    if (weft_cuda_fp8_sums_fast() && n < bytes)
        snprintf(text + n, bytes - n, " fp8-fast-accum");
    return text;
}
