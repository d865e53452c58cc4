/* Take an input, MODEL_INPUTS levels. It stays, for any number of time steps, until the next one. The model may
   keep its address, so do not change or free it before the last time step. */
void model_input(model_state *s, const model_value *levels);

/* Take a time step: every neuron integrates what comes in. -1: too many time steps, or no input. */
int model_tick(model_state *s);

/* Take an input and one time step with it. -1: too many time steps. */
int model_frame(model_state *s, const model_value *levels);
