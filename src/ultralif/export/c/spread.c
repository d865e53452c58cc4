
/* An event at one position of a feature map reaches the positions whose windows contain it. */
static void spread_$l(model_state *s, uint32_t i$level)
{
    const int32_t y = (int32_t)(i / $width % $height) + $pad_y, x = (int32_t)(i % $width) + $pad_x;
    const uint32_t c = i / $plane;
    int32_t ky, kx, o;
    for (ky = 0; ky < $rows; ky++) {
        const int32_t down = y - ky * $dilation_y;
        if (down < 0 || down % $stride_y != 0 || down / $stride_y >= $out_height)
            continue;
        for (kx = 0; kx < $columns; kx++) {
            const int32_t right = x - kx * $dilation_x;
            const model_weight *row = weight_$l[c][ky][kx];
            int${bits}_t *sum;
            if (right < 0 || right % $stride_x != 0 || right / $stride_x >= $out_width)
                continue;
            sum = s->sum_$l + $first + (uint32_t)(down / $stride_y * $out_width + right / $stride_x);
            for (o = 0; o < $outputs; o++, sum += $out_plane)
                *sum = (int${bits}_t)(*sum + WEIGHT(row, o)$times);
        }
    }
}
