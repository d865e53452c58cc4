/* Classify samples from standard input, one byte for each of MODEL_INPUTS values: $stream.
   Prints class, checksum of all membranes at all time steps, and scores. The recorded self-test
   runs first; without input its result is all that is printed. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

static model_state state;
static model_value frame[MODEL_INPUTS];
static uint32_t hash;

/* 1: a sample was read; 0: end of input; -1: invalid input. */
static int sample(unsigned long steps)
{
    unsigned long t;
    model_reset(&state);
    hash = MODEL_HASH;
    for (t = 0; t < steps; t++) {
$take
        hash = model_hash(&state, hash);
    }
    return 1;
}

int main(int argc, char **argv)
{
    unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : MODEL_MAX_STEPS;
    int failed = model_selftest(&state), more, samples = 0;
    if (failed != 0) {
        if (failed < 0)
            fprintf(stderr, "self-test: a constant in weights.h has changed\n");
        else
            fprintf(stderr, "self-test: recorded sample %d ended differently\n", failed);
        return 1;
    }
    if (steps < 1 || steps > MODEL_MAX_STEPS) {
        fprintf(stderr, "usage: %s [time steps of a sample, 1 to %lu] < counts\n", argv[0],
                (unsigned long)MODEL_MAX_STEPS);
        return 2;
    }
    while ((more = sample(steps)) > 0) {
        int i;
        samples++;
        printf("%d %08lx", model_class(&state), (unsigned long)hash);
        for (i = 0; i < MODEL_CLASSES; i++)
            printf(" %ld", (long)state.score[i]);
#ifdef MODEL_COUNT
        printf(" %lu", (unsigned long)state.spikes);
#endif
        printf("\n");
    }
    if (samples == 0 && more == 0)
        printf("self-test passed\n");
    return more < 0;
}
