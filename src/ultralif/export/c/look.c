
/* Copy the levels that one position of layer $l reads, with 0 beyond the edges. Returns 0 if all are 0. */
static int look_$l(const model_state *s, int32_t y, int32_t x, int16_t *v)
{
    int32_t c, ky, kx;
    int any = 0;
    y = y * $stride_y - $pad_y;
    x = x * $stride_x - $pad_x;
    for (c = 0; c < $channels; c++)
        for (ky = 0; ky < $rows; ky++) {
            const int32_t row = y + ky * $dilation_y;
            const model_value *from = s->levels + (c * $height + row) * $width;
            for (kx = 0; kx < $columns; kx++, v++) {
                const int32_t column = x + kx * $dilation_x;
                *v = 0;
                if (row >= 0 && row < $height && column >= 0 && column < $width)
                    *v = from[column];
                any |= *v;
            }
        }
    for (c = 0; c < $odd; c++)
        *v++ = 0;
    return any;
}

static int32_t dot_$l($takes, const int16_t *w)
{
    int32_t sum = 0;
$dot
    return sum;
}
