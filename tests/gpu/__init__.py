"""What can only be known on a real GPU. Tests carry the marker `gpu`; `python -m tests.gpu.measure`
writes docs/measurements/gpu-*.md.
"""
