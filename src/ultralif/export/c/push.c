
static void push_$l(model_state *s, uint32_t i$level)
{
$to
}
