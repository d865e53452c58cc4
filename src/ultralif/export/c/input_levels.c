void model_input(model_state *s, const model_value *levels)
{
    uint32_t i;
$clear
    for (i = 0; i < MODEL_INPUTS; i++)
        if (levels[i] != 0)
            push_0(s, i, levels[i]);
}

int model_frame(model_state *s, const model_value *levels)
{
    model_input(s, levels);
    return model_tick(s);
}
