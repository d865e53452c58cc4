/* Recorded inputs, and the integer simulator's results for them. */
#include "model.h"

#define SAMPLES $samples
#define STEPS $steps

$inputs
/* The checksum over all membranes at all time steps, and the scores at the end. */
static const uint32_t hash[SAMPLES] = {
$hash
};
static const int32_t score[SAMPLES][MODEL_CLASSES] = {
$score
};

static int replay(model_state *s, uint32_t *next, int sample)
{
    uint32_t seen = MODEL_HASH;
    uint32_t t, n;
    model_reset(s);
    for (t = 0; t < STEPS; t++) {
        if (take(s, next, sample, t) < 0 || model_tick(s) < 0)
            return -1;
        seen = model_hash(s, seen);
    }
    for (n = 0; n < MODEL_CLASSES; n++)
        if (s->score[n] != score[sample][n])
            return -1;
    return seen == hash[sample] ? 0 : -1;
}

const uint32_t model_samples = SAMPLES;

int model_selftest(model_state *s)
{
    uint32_t next = 0;
    int sample;
    if (model_constants() != $constants)
        return -1;
    for (sample = 0; sample < SAMPLES; sample++)
        if (replay(s, &next, sample) < 0)
            return sample + 1;
    return 0;
}
