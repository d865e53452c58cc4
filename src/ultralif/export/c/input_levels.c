void model_input(model_state *s, const model_value *levels)
{
$index$keep$take}

int model_frame(model_state *s, const model_value *levels)
{
    model_input(s, levels);
    return model_tick(s);
}
