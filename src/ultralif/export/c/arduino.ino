/* $title: replay the recorded self-test, then classify data from the serial port, one byte for each
   of MODEL_INPUTS values. Send $stream. */
#include <model.h>

static model_state state;
static model_value values[MODEL_INPUTS];

static bool receive() {
  return Serial.readBytes(reinterpret_cast<char *>(values), sizeof values) == sizeof values;
}

void setup() {
  Serial.begin(115200);
  Serial.println(model_selftest(&state) == 0 ? "self-test passed" : "self-test failed");
}

void loop() {
  model_reset(&state);
  for (uint32_t step = 0; step < MODEL_MAX_STEPS; step++) {
    $take
  }
  Serial.println(model_class(&state));
}
