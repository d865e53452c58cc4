
/* One row of layer $l: $why. */
static void row_$l(model_state *s, uint32_t y)
{
    uint32_t x;
$pull    for (x = 0; x < $out_width; x++) {
        int32_t best[$padded_out], sum[$padded_out];
        int32_t py, px;
        uint32_t c, n = 0;
        for (py = 0; py < $pool_rows; py++)
            for (px = 0; px < $pool_columns; px++) {
                sums_$l(s, $at, sum);
                for (c = 0; c < $channels_out; c++)
                    if (py + px == 0 || sum[c] > best[c])
                        best[c] = sum[c];
            }
        for (c = 0; c < $channels_out; c++) {
$fire
        }
$end    }
}
