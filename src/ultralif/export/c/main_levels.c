        size_t got = t == 0 ? fread(frame, 1, sizeof frame, stdin) : sizeof frame;
        if (got == 0)
            return 0;
        if (got != sizeof frame) {
            fprintf(stderr, "the input ends within a sample of %lu values\n", (unsigned long)MODEL_INPUTS);
            return -1;
        }
        if (t == 0)
            model_input(&state, frame);
        if (model_tick(&state) < 0)
            return -1;