"""`gpu.cluster(n=4, gpu=0.5)`: Dask workers or ipyparallel engines in the pods of one workload,
which start together and release their GPUs together.

gpu_cluster  starts the workload, waits for it, and ends it
backends     the scheduler or controller in this kernel, and the command of a worker
"""
