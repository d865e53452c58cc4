/* $title

   All arithmetic uses integers. A model_state is the only memory, and the caller owns it, so several
   streams can run side by side. Only <stdint.h> is needed.

       model_reset(&state);
       $step
       answer = model_class(&state);
*/
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_INPUTS $inputs
#define MODEL_CLASSES $classes
#define MODEL_MAX_STEPS UINT32_C($timesteps) /* between two resets; no number overflows until then */
$limits
#define MODEL_ROM_BYTES $rom /* constants */
#define MODEL_RAM_BYTES $ram /* one model_state */
#define MODEL_BUDGET_BYTES $budget /* the limit for both together */

typedef $membrane model_membrane;
typedef $weight model_weight;
typedef $value model_value; /* $meaning */

typedef struct {
    int32_t score[MODEL_CLASSES];
    uint32_t steps;
$counter#ifdef MODEL_COUNT
    uint32_t spikes; /* of all neurons since the reset */
#endif
$fields
} model_state;

/* Both fail to compile if the numbers above are exceeded. */
typedef char model_keeps_its_budget[MODEL_ROM_BYTES + MODEL_RAM_BYTES <= MODEL_BUDGET_BYTES ? 1 : -1];
#ifndef MODEL_COUNT
typedef char model_keeps_its_ram[sizeof(model_state) <= MODEL_RAM_BYTES ? 1 : -1];
#endif

/* Start a new sequence from rest. */
void model_reset(model_state *s);

$functions
/* The class with the greatest score so far; the first one in a tie. */
int model_class(const model_state *s);

/* Mix every membrane into a checksum, which starts at MODEL_HASH. */
#define MODEL_HASH UINT32_C(2166136261)
uint32_t model_hash(const model_state *s, uint32_t hash);

/* A checksum over every constant of weights.h. */
uint32_t model_constants(void);

/* Check every constant, and replay recorded inputs. Returns 0 if all agree, -1 if a constant differs from
   the exported one, or the number, counted from 1, of the first input whose result differs. */
int model_selftest(model_state *s);
extern const uint32_t model_samples; /* the number of replayed inputs */

#ifdef __cplusplus
}
#endif

#endif
