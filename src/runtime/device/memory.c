/* Memory of any device, by its own device's calls. */
#include "device/device.h"

const char *weft_space_name(weft_space s)
{
    static const char *const name[WEFT_N_SPACE] = {"host", "pinned", "shared", "device"};
    return s >= 0 && s < WEFT_N_SPACE ? name[s] : "?";
}

weft_status weft_device_alloc(weft_device *d, weft_space space, int64_t bytes,
                              weft_memory *out)
{
    return d->alloc(d, space, bytes, out);
}

void weft_device_free(weft_memory *m)
{
    if (m->device) m->device->free(m->device, m);
    *m = (weft_memory){0};
}

weft_status weft_memory_part(const weft_memory *m, int64_t offset, int64_t bytes,
                             weft_memory *out)
{
    if (offset < 0 || bytes < 0 || bytes > m->bytes || offset > m->bytes - bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "bytes %lld to %lld of %lld bytes of %s memory",
                         (long long)offset, (long long)(offset + bytes),
                         (long long)m->bytes, weft_space_name(m->space));
    *out = (weft_memory){.device  = m->device,
                         .space   = m->space,
                         .address = m->address ? (char *)m->address + offset : NULL,
                         .bytes   = bytes};
    return WEFT_OK;
}

void *weft_memory_host(const weft_memory *m)
{
    if (m->space == WEFT_SPACE_DEVICE && !m->device->host_access) return NULL;
    return m->address;
}

static weft_memory adopt_host(weft_device *d, void *p, int64_t bytes)
{
    return (weft_memory){
        .device = d, .space = WEFT_SPACE_HOST, .address = p, .bytes = bytes};
}

weft_status weft_device_read_in(weft_stream *s, void *host, const weft_memory *m,
                                int64_t offset, int64_t bytes)
{
    weft_memory from, to = adopt_host(m->device, host, bytes);
    WEFT_TRY(weft_memory_part(m, offset, bytes, &from));
    return bytes ? m->device->copy(m->device, s, &to, &from) : WEFT_OK;
}

weft_status weft_device_read(void *host, const weft_memory *m, int64_t offset,
                             int64_t bytes)
{
    return weft_device_read_in(NULL, host, m, offset, bytes);
}

static weft_status do_nothing(void *arg, double *start_s, double *end_s)
{
    (void)arg, (void)start_s, (void)end_s;
    return WEFT_OK;
}

weft_status weft_stream_wait(weft_stream *s)
{
    return s->device->call(s, do_nothing, NULL);
}

weft_status weft_device_write(const weft_memory *m, int64_t offset, const void *host,
                              int64_t bytes)
{
    weft_memory to, from = adopt_host(m->device, (void *)(uintptr_t)host, bytes);
    WEFT_TRY(weft_memory_part(m, offset, bytes, &to));
    return bytes ? m->device->copy(m->device, NULL, &to, &from) : WEFT_OK;
}
