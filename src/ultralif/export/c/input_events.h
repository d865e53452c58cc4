/* Take one input event. -1: no such input, or too many events or time steps; nothing was changed. */
int model_event(model_state *s, uint16_t input);

/* End the time step: every neuron integrates what came in. -1: too many time steps. */
int model_tick(model_state *s);

/* Take a whole time step: how many events each of the MODEL_INPUTS inputs has. -1: too many; reset. */
int model_frame(model_state *s, const model_value *counts);
