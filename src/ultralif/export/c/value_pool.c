
static int32_t value_$l(const model_state *s, uint32_t i)
{
    const uint32_t at = i / $out_plane * $plane + i / $out_width % $out_height * ($stride_y * $width)
        + i % $out_width * $stride_x;
    int32_t found = $start;
    uint32_t y, x;
    for (y = 0; y < $rows; y++)
        for (x = 0; x < $columns; x++)
            $take;
    return found;
}
