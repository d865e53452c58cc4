
/* List the taps with spikes that one position of layer $l reads, and return the number of these spikes. */
static uint32_t taps_$l(const model_state *s, int32_t y, int32_t x, tap *t)
{
    int32_t ky, kx;
    uint32_t count = 0;
    y = y * $stride_y - $pad_y;
    x = x * $stride_x - $pad_x;
    for (ky = 0; ky < $rows; ky++) {
        const int32_t row = y + ky * $dilation_y;
        if (row < 0 || row >= $height)
            continue;
        for (kx = 0; kx < $columns; kx++) {
            const int32_t column = x + kx * $dilation_x;
            const uint32_t at = (uint32_t)($slot * $width + column);
            if (column < 0 || column >= $width)
                continue;
            count += s->spikes_$source[at];
            t = add_tap(t, s->list_$source + at * $channels, s->spikes_$source[at], $channels, weight_$synapses[0][0],
                        (uint32_t)((ky * $columns + kx) * $channels));
        }
    }
    END(t);
    return count;
}
