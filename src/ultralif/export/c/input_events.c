int model_event(model_state *s, uint16_t input)
{
    if (input >= MODEL_INPUTS || s->events >= MODEL_MAX_EVENTS || s->steps >= MODEL_MAX_STEPS)
        return -1;
    s->events++;
    push_0(s, input);
    return 0;
}

int model_frame(model_state *s, const model_value *counts)
{
    uint32_t i;
    model_value n;
    for (i = 0; i < MODEL_INPUTS; i++)
        for (n = counts[i]; n > 0; n--)
            if (model_event(s, (uint16_t)i) < 0)
                return -1;
    return model_tick(s);
}
