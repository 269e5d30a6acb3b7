/* libcuda, symbol by symbol. */
#include <dlfcn.h>
#include <stdlib.h>

#include "probe/cuda_priv.h"

static weft_status find(void *lib, const char *symbol, void **out)
{
    *out = dlsym(lib, symbol);
    return *out ? WEFT_OK
                : WEFT_FAIL(WEFT_ERR_IO,
                            "libcuda.so.1 has no %s: a driver before CUDA 11?", symbol);
}

static weft_status open_all(weft_probe__cuda *c)
{
    c->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!c->lib) return WEFT_FAIL(WEFT_ERR_IO, "libcuda.so.1 is not here");
#define ROW(name, symbol, parameters) WEFT_TRY(find(c->lib, #symbol, (void **)&c->name));
    WEFT_CUDA_ROWS
#undef ROW
    *(void **)&c->GetErrorString = dlsym(c->lib, "cuGetErrorString");
    WEFT_CUDA(c, Init, 0);
    return WEFT_OK;
}

weft_status weft_probe__cuda_open(weft_probe__cuda **out)
{
    weft_probe__cuda *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    weft_status st = open_all(c);
    if (st == WEFT_OK)
        *out = c;
    else
        weft_probe__cuda_close(c);
    return st;
}

void weft_probe__cuda_close(weft_probe__cuda *c)
{
    if (c && c->lib) dlclose(c->lib);
    free(c);
}

/* The symbol of a row, as the driver's manual names it. */
static const char *symbol_of(const char *name)
{
    static const char *const row[][2] = {
#define ROW(n, symbol, parameters) {#n, #symbol},
        WEFT_CUDA_ROWS
#undef ROW
    };
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const char *a = row[i][0], *b = name;
        while (*a && *a == *b) a++, b++;
        if (!*a && !*b) return row[i][1];
    }
    return name;
}

weft_status weft_probe__cuda_check(const weft_probe__cuda *c, int code, const char *call)
{
    const char *words = NULL;
    if (!code) return WEFT_OK;
    if (c->GetErrorString) c->GetErrorString(code, &words);
    return WEFT_FAIL(code == 2 ? WEFT_ERR_MEM : WEFT_ERR_IO, "%s fails with %d%s%s",
                     symbol_of(call), code, words ? ": " : "", words ? words : "");
}
