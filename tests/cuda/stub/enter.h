/* What every function of the stub driver begins with: the lock, its number, and whether it is to
 * fail. */
#ifndef CUDA_STUB_ENTER_H
#define CUDA_STUB_ENTER_H

#include <stdlib.h>
#include <string>

#include "stub/work.h"

#define API extern "C" __attribute__((visibility("default")))

namespace stub
{

/* Of the environment, or other. */
double number(const char *name, double other);
/* Counts a call; not OK: it is to fail. */
int enter(const char *name, const std::string &what = "");
/* Device memory of a file, mapped by driver_memory.cpp. */
void unmap_file(char *m, size_t n);

inline size_t free_bytes()
{
    double left = number("WEFT_STUB_MEMORY", 8e9) - number("WEFT_STUB_OTHERS", 0) -
                  (double)device_bytes;
    return left > 0 ? (size_t)left : 0;
}

inline bool is_in(const std::map<char *, size_t> &m, const char *p)
{
    auto at = m.upper_bound((char *)p);
    if (at == m.begin()) return false;
    --at;
    return p < at->first + at->second;
}

} // namespace stub

#define ENTER(...)                                                                       \
    holding hold;                                                                        \
    if (int code = enter(__func__, ##__VA_ARGS__)) return code
#define NEED_CONTEXT                                                                     \
    if (!current) return INVALID_CONTEXT

#endif
