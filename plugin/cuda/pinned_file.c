/* Which table of pinned algorithms a device has: a file that the user names, or the plugin's own
 * for its kind and the version of cublasLt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "pinned.h"

/* "NVIDIA H200", {13, 1, 0}: "nvidia-h200-13.1.0" */
static void name_table(const char *device, const int version[3], char *out, size_t n)
{
    size_t i = 0;
    for (; *device && i + 1 < n; device++, i++) {
        char c = *device;
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        out[i] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
    }
    snprintf(out + i, n - i, "-%d.%d.%d", version[0], version[1], version[2]);
}

static weft_status read_file(const char *path)
{
    char  *text = NULL;
    size_t n = 0, cap = 0;
    FILE  *f = fopen(path, "r");
    if (!f) return WEFT_FAIL(WEFT_ERR_IO, "WEFT_CUDA_PINNED: %s cannot be read", path);
    do {
        cap += 1 << 16;
        char *more = realloc(text, cap + 1);
        if (!more) break;
        text = more;
        n += fread(text + n, 1, cap - n, f);
    } while (n == cap);
    fclose(f);
    if (!text) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %s", path);
    text[n]        = 0;
    weft_status st = weft_cuda_pinned_read(text, path);
    free(text);
    return st;
}

weft_status weft_cuda_read_pinned(const char *device)
{
    const char *file = getenv("WEFT_CUDA_PINNED");
    char        name[160];
    if (file && *file) return read_file(file);
    name_table(device, weft_cuda_library_get(WEFT_CUDA_BLAS)->version, name, sizeof name);
    for (int i = 0; i < weft_cuda_n_pinned; i++)
        if (!strcmp(weft_cuda_pinned_name[i], name))
            return weft_cuda_pinned_read(weft_cuda_pinned_text[i], name);
    return WEFT_OK;
}
