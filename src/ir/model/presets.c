/* The table of presets. */
#include <string.h>

#include "model/model_priv.h"

static const struct {
    const char *name, *text;
} preset[] = {
#define PRESET(name, ...) {name, #__VA_ARGS__},
#include "model/presets.def"
#undef PRESET
};

const char *weft_model_preset(int i)
{
    return i >= 0 && i < (int)WEFT_COUNT(preset) ? preset[i].name : NULL;
}

const char *weft_model__preset_text(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(preset); i++)
        if (!strcmp(preset[i].name, name)) return preset[i].text;
    return NULL;
}
