/* Add one input event. Returns -1, and changes nothing, if the input does not exist or a limit is exceeded. */
int model_event(model_state *s, uint16_t input);

/* End the time step: every neuron integrates its input. Returns -1 after too many time steps. */
int model_tick(model_state *s);

/* Run a whole time step, given the event count of each of the MODEL_INPUTS inputs. Returns -1 if there are too many
   events or time steps; call model_reset then. */
int model_frame(model_state *s, const model_value *counts);
