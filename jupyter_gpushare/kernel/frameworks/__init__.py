"""GPU frameworks in this process.

caps         memory limits of PyTorch, CuPy and JAX, and the visible GPUs
caches       returns cached memory
import_hook  calls back when a framework is imported
cuda         whether CUDA is in use
"""
