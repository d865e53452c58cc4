/* Set the input, MODEL_INPUTS levels. It stays the same for all time steps until the next call. The model may
   keep its address, so do not change or free it before the last time step. */
void model_input(model_state *s, const model_value *levels);

/* Run a time step: every neuron integrates its input. Returns -1 after too many time steps, or without an input. */
int model_tick(model_state *s);

/* Set an input and run one time step. Returns -1 after too many time steps. */
int model_frame(model_state *s, const model_value *levels);
