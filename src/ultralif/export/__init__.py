"""The way to hardware: binary spikes, integers, plain C, NIR, ONNX."""
