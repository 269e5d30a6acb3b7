/* Device memory that other processes of this host open: CUDA IPC. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu.h"

enum {
    LAZY_PEER_ACCESS = 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
};

/* What a weft_memory_handle holds. */
typedef struct shared_memory {
    weft_cuda_ipc ipc;
    int64_t       offset, bytes; /* of the memory, in what was allocated */
} shared_memory;

_Static_assert(sizeof(shared_memory) <= sizeof(weft_memory_handle), "a handle holds it");

weft_status weft_cuda_export(weft_device *d, const weft_memory *m,
                             weft_memory_handle *out)
{
    shared_memory s    = {.bytes = m->bytes};
    weft_cuda_ptr base = 0, at = (weft_cuda_ptr)(uintptr_t)m->address;
    size_t        size;
    if (m->space != WEFT_SPACE_DEVICE || !m->address)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: only device memory can be exported", d->name);
    WEFT_TRY(weft_cuda_use(weft_cuda_gpu_of(d)));
    CU_TRY(MemGetAddressRange, &base, &size, at);
    CU_TRY(IpcGetMemHandle, &s.ipc, base);
    s.offset = (int64_t)(at - base);
    memset(out, 0, sizeof *out);
    memcpy(out, &s, sizeof s);
    return WEFT_OK;
}

weft_status weft_cuda_import(weft_device *d, const weft_memory_handle *h,
                             weft_memory *out)
{
    shared_memory s;
    weft_cuda_ptr base = 0;
    memcpy(&s, h, sizeof s);
    WEFT_TRY(weft_cuda_use(weft_cuda_gpu_of(d)));
    CU_TRY(IpcOpenMemHandle, &base, s.ipc, LAZY_PEER_ACCESS);
    *out = (weft_memory){.device  = d,
                         .space   = WEFT_SPACE_DEVICE,
                         .address = (void *)(uintptr_t)(base + (weft_cuda_ptr)s.offset),
                         .bytes   = s.bytes};
    return WEFT_OK;
}

void weft_cuda_import_close(weft_device *d, const weft_memory_handle *h,
                            const weft_memory *m)
{
    shared_memory s;
    memcpy(&s, h, sizeof s);
    if (!m->address || weft_cuda_use(weft_cuda_gpu_of(d)) != WEFT_OK) return;
    weft_cuda_cu.IpcCloseMemHandle((weft_cuda_ptr)(uintptr_t)m->address -
                                   (weft_cuda_ptr)s.offset);
}

void weft_cuda_name_host(char *out, size_t size)
{
    char        boot[40] = "";
    struct stat shm = {0}, pids = {0};
    FILE       *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f) {
        if (!fgets(boot, sizeof boot, f)) boot[0] = 0;
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = 0;
    (void)stat("/dev/shm", &shm);
    (void)stat("/proc/self/ns/pid", &pids);
    snprintf(out, size, "%s %llx %llx", boot, (unsigned long long)shm.st_dev,
             (unsigned long long)pids.st_ino);
}
