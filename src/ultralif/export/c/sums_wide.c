
static void sums_$l(const model_state *s, int32_t y, int32_t x, int32_t *sum)
{
    int32_t ky, kx;
    uint32_t i, n, c;
    for (c = 0; c < $channels_out; c++)
        sum[c] = 0;
    y = y * $stride_y - $pad_y;
    x = x * $stride_x - $pad_x;
    for (ky = 0; ky < $rows; ky++)
        for (kx = 0; kx < $columns; kx++) {
            const int32_t row = y + ky * $dilation_y, column = x + kx * $dilation_x;
            const uint32_t at = (uint32_t)($slot * $width + column);
            if (row < 0 || row >= $height || column < 0 || column >= $width)
                continue;
            n = s->spikes_$source[at];
            for (i = 0; i < n; i++) {
                const model_weight *w = weight_$synapses[(uint32_t)(ky * $columns + kx) * $channels + s->list_$source[at * $channels + i]];
                for (c = 0; c < $channels_out; c++)
                    sum[c] += WEIGHT(w, c);
            }
        }
}
