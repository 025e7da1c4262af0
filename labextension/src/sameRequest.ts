/** The request for the share that a kernel has. Pure. */
import { Kernel, KernelRequest } from './schema';

/** What this kernel requests. */
export function sameRequest(kernel: Kernel): KernelRequest {
  const { request, limit, project } = kernel;
  return {
    ...(request.gpu_memory_mib === null
      ? { gpu: request.gpu }
      : { gpu_memory: `${request.gpu_memory_mib}MiB` }),
    ...(limit.gpu === null ? {} : { gpu_limit: limit.gpu }),
    ...(project === null ? {} : { project })
  };
}
