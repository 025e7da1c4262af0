"""GPU frameworks in this process: `caps` limits their memory, `cuda` tells whether CUDA is in use."""
