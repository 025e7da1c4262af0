/** Builders of rows of the cluster tables: name only what a test is about. */
export const device = changes => ({
  uuid: 'SIM-GPU-n0-0',
  model: 'Simulated A100-80GB',
  memory_mib: { total: 81920, guaranteed: 0, used: 0, borrowed: 0 },
  kernels: [],
  planned: [],
  healthy: true,
  health: '',
  foreign_mib: 0,
  foreign_processes: 0,
  utilization: null,
  mig: false,
  ...changes
});

export const node = changes => ({
  name: 'n0',
  pool: 'default',
  status: 'Ready',
  reasons: [],
  simulated: true,
  gpus: 2,
  gpu_allocated: 1,
  tiers: ['observe', 'suspend'],
  tier_problems: {},
  driver: '',
  cordoned: false,
  devices: [],
  ...changes
});

export const pool = changes => ({
  name: 'default',
  nodes: 1,
  gpus: 2,
  gpu_allocated: 1,
  pending: 0,
  status: 'Ready',
  nodes_ready: 1,
  reasons: [],
  ...changes
});

export const workload = changes => ({
  id: 'w0',
  name: 'work/a.ipynb',
  kernel_id: null,
  user: 'ada',
  project: 'vision',
  priority: 75,
  preemptible: true,
  node_pools: [],
  created: new Date().toISOString(),
  state: 'running',
  request: { gpu: 0.5, gpu_memory_mib: null },
  limit: { gpu: null, gpu_memory_mib: null },
  pods: [],
  reason: null,
  queue_position: null,
  revision: 1,
  ...changes
});

/** A pod that runs on this GPU with 70 GiB, 30 GiB of them borrowed. */
export const pod = (node, uuid) => ({
  name: '0',
  state: 'running',
  lease: { node },
  report: {
    state: 'attached',
    gpu_uuids: [uuid],
    memory_mib: { guaranteed: 40960, used: 71680, borrowed: 30720 }
  }
});

/** A cluster of this size; every GPU has a workload that borrows memory. */
export function largeCluster(nodes, gpus) {
  const names = Array.from({ length: nodes }, (_, i) => `n${i}`);
  const numbers = Array.from({ length: gpus }, (_, i) => i);
  const uuid = (name, i) => `SIM-GPU-${name}-${i}`;
  const memory_mib = { total: 81920, guaranteed: 40960, used: 71680, borrowed: 30720 };
  return {
    nodes: names.map(name =>
      node({
        name,
        gpus,
        gpu_allocated: gpus / 2,
        devices: numbers.map(i =>
          device({
            uuid: uuid(name, i),
            memory_mib,
            kernels: [`${name}-${i}`],
            planned: [`${name}-${i}`],
            utilization: 0.5
          })
        )
      })
    ),
    pools: [pool({ nodes, nodes_ready: nodes, gpus: nodes * gpus })],
    workloads: names.flatMap(name =>
      numbers.map(i =>
        workload({
          id: `${name}-${i}`,
          name: `work/${name}-${i}.ipynb`,
          pods: [pod(name, uuid(name, i))]
        })
      )
    )
  };
}
