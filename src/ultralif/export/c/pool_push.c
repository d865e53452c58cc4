
/* Pass an event to every pooling window that contains it. */
static void pool_$l(model_state *s, uint32_t i$level)
{
    const uint32_t y = i / $width % $height, x = i % $width, c = i / $plane;
    uint32_t oy, ox;
    for (oy = y < $rows ? 0 : (y - $rows) / $stride_y + 1; oy < $out_height && oy * $stride_y <= y; oy++)
        for (ox = x < $columns ? 0 : (x - $columns) / $stride_x + 1; ox < $out_width && ox * $stride_x <= x; ox++) {
            const uint32_t at = c * $out_plane + oy * $out_width + ox;
$found
        }
}
