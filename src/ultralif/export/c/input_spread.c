$clear
    for (i = 0; i < MODEL_INPUTS; i++)
        if (levels[i] != 0)
            push_0(s, i, levels[i]);
