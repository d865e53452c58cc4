#include "model.h"

#include "weights.h"

#ifdef MODEL_COUNT
#define COUNT(what, n) (s->what += (n))
#else
#define COUNT(what, n) ((void)0)
#endif
$helpers
/* Events are pushed: push_N passes one event of layer N to everything that reads it. */
$pushes
/* Currents are pulled: value_N returns the output of layer N in this time step. */
$values
/* Neurons integrate their currents and fire. */
$layers
void model_reset(model_state *s)
{
    uint8_t *byte = (uint8_t *)s;
    uint32_t n;
    for (n = sizeof *s; n > 0; n--)
        *byte++ = 0;
}

$input
int model_tick(model_state *s)
{
$index    if (s->steps >= MODEL_MAX_STEPS$ready)
        return -1;
    s->steps++;
$calls
    return 0;
}

int model_class(const model_state *s)
{
    int i, best = 0;
    for (i = 1; i < MODEL_CLASSES; i++)
        if (s->score[i] > s->score[best])
            best = i;
    return best;
}

${mixing}uint32_t model_hash(const model_state *s, uint32_t hash)
{
$mixes
    return hash;
}

#define MIX(kind, array) \
    for (i = 0; i < sizeof array / sizeof(kind); i++) { \
        int32_t word = (int32_t)((const kind *)array)[i]; \
        hash = (hash ^ (uint32_t)word) * UINT32_C(16777619); \
    }

uint32_t model_constants(void)
{
    uint32_t hash = MODEL_HASH, i;
$constants
    return hash;
}
