/* hwloc, opened at run time: the library is not needed to run. */
#include <dlfcn.h>
#include <hwloc.h>

#include "probe/probe.h"

/* A function of the library by name, as the type it has in hwloc.h. */
#define OPEN(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(lib, #name)

static int count(int (*depth_of)(hwloc_topology_t, hwloc_obj_type_t),
                 unsigned (*n_at)(hwloc_topology_t, int), hwloc_topology_t t,
                 hwloc_obj_type_t type)
{
    int depth = depth_of(t, type);
    return depth < 0 ? 0 : (int)n_at(t, depth);
}

bool weft_probe_hwloc(int *n_package, int *n_core)
{
    void            *lib = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    hwloc_topology_t t   = NULL;
    bool             ok  = false;
    if (!lib) return false;
    OPEN(hwloc_topology_init);
    OPEN(hwloc_topology_load);
    OPEN(hwloc_topology_destroy);
    OPEN(hwloc_get_type_depth);
    OPEN(hwloc_get_nbobjs_by_depth);
    if (hwloc_topology_init_ && hwloc_topology_load_ && hwloc_topology_destroy_ &&
        hwloc_get_type_depth_ && hwloc_get_nbobjs_by_depth_ &&
        !hwloc_topology_init_(&t)) {
        if (!hwloc_topology_load_(t)) {
            *n_package = count(hwloc_get_type_depth_, hwloc_get_nbobjs_by_depth_, t,
                               HWLOC_OBJ_PACKAGE);
            *n_core    = count(hwloc_get_type_depth_, hwloc_get_nbobjs_by_depth_, t,
                               HWLOC_OBJ_CORE);
            ok         = *n_package > 0 && *n_core > 0;
        }
        hwloc_topology_destroy_(t);
    }
    dlclose(lib);
    return ok;
}
