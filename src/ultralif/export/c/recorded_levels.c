/* The recorded levels of each input; the last ones stay until the end. */
#define FRAMES $frames
static const model_value level[SAMPLES][FRAMES][MODEL_INPUTS] = {
$level
};

static int take(model_state *s, uint32_t *next, int sample, uint32_t t)
{
    (void)next;
    if (t < FRAMES)
        model_input(s, level[sample][t]);
    return 0;
}
