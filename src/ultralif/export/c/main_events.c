        size_t got = fread(frame, 1, sizeof frame, stdin);
        if (got == 0 && t == 0)
            return 0;
        if (got != sizeof frame) {
            fprintf(stderr, "the input ends within a sample of %lu time steps\n", steps);
            return -1;
        }
        if (model_frame(&state, frame) < 0) {
            fprintf(stderr, "more than %lu events in a time step\n", (unsigned long)MODEL_MAX_EVENTS);
            return -1;
        }