/* The number of events in each time step, and their inputs. */
static const uint32_t count[SAMPLES][STEPS] = {
$count
};
static const uint16_t event[] = {
$event
};

static int take(model_state *s, uint32_t *next, int sample, uint32_t t)
{
    uint32_t n;
    for (n = count[sample][t]; n > 0; n--)
        if (model_event(s, event[(*next)++]) < 0)
            return -1;
    return 0;
}
