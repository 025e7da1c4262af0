/** Who is where: nodes and workloads joined into a map of pools, nodes and GPUs; queues into a tree. Pure. */
import { DeviceRow, Kernel, NodeRow, PoolRow, ProjectRow, QueueRow, WorkloadView } from '../schema';

/** One who runs on a GPU, or is planned there; `name` null: somebody whose name is not the reader's to see. */
export interface ITenant {
  readonly key: string;
  readonly name: string | null;
  readonly project: string | null;
  readonly state: string | null;
  readonly gpu: number | null;
  readonly usedMib: number | null;
  readonly borrowedMib: number;
}

export interface IGpuPlacement {
  readonly device: DeviceRow;
  readonly index: number;
  /** Who runs here now. */
  readonly here: readonly ITenant[];
  /** Who is planned here and runs elsewhere, or nowhere yet. */
  readonly plannedHere: readonly ITenant[];
}

export interface INodePlacement {
  readonly node: NodeRow;
  readonly places: readonly IGpuPlacement[];
}

export interface IPoolPlacement {
  readonly name: string;
  readonly pool: PoolRow | null;
  readonly nodes: readonly INodePlacement[];
}

/** Workloads under the names that my notebooks have now; the scheduler keeps the one that a kernel began with. */
export function withCurrentNames(
  workloads: readonly WorkloadView[],
  mine: readonly Kernel[]
): readonly WorkloadView[] {
  const names = new Map(
    mine.filter(kernel => kernel.name !== '').map(kernel => [kernel.kernel_id, kernel.name])
  );
  return workloads.map(workload => {
    const name = workload.kernel_id === null ? undefined : names.get(workload.kernel_id);
    return name === undefined || name === workload.name ? workload : { ...workload, name };
  });
}

/** Pools in the scheduler's order, also those without nodes; nodes in the server's order. */
export function placements(
  nodes: readonly NodeRow[],
  pools: readonly PoolRow[],
  workloads: readonly WorkloadView[]
): IPoolPlacement[] {
  const known = new Map<string, WorkloadView>();
  for (const workload of workloads) {
    known.set(workload.kernel_id ?? workload.id, workload);
  }
  const names = [...new Set([...pools.map(pool => pool.name), ...nodes.map(node => node.pool)])];
  return names.map(name => ({
    name,
    pool: pools.find(pool => pool.name === name) ?? null,
    nodes: nodes.filter(node => node.pool === name).map(node => nodePlacement(node, known))
  }));
}

function nodePlacement(node: NodeRow, known: ReadonlyMap<string, WorkloadView>): INodePlacement {
  return { node, places: node.devices.map((device, index) => place(node, device, index, known)) };
}

function place(
  node: NodeRow,
  device: DeviceRow,
  index: number,
  known: ReadonlyMap<string, WorkloadView>
): IGpuPlacement {
  const tenant = (key: string, number: number) =>
    tenantOf(key, `${key} ${number}`, node, device, known.get(key));
  const left = [...device.planned];
  for (const key of device.kernels) {
    const at = left.indexOf(key);
    if (at >= 0) {
      left.splice(at, 1);
    }
  }
  return { device, index, here: device.kernels.map(tenant), plannedHere: left.map(tenant) };
}

function tenantOf(
  id: string,
  key: string,
  node: NodeRow,
  device: DeviceRow,
  workload: WorkloadView | undefined
): ITenant {
  if (workload === undefined) {
    return {
      key,
      name: null,
      project: null,
      state: null,
      gpu: null,
      usedMib: null,
      borrowedMib: 0
    };
  }
  const pods = workload.pods.filter(pod => pod.lease?.node === node.name);
  const report =
    pods.find(pod => pod.report?.gpu_uuids.includes(device.uuid))?.report ??
    pods[0]?.report ??
    null;
  const share = Math.max(1, report?.gpu_uuids.length ?? 1);
  return {
    key,
    name: workload.name.split('/').pop() || (workload.kernel_id === null ? id : null),
    project: workload.project,
    state: report?.state ?? workload.state,
    gpu: workload.request.gpu,
    usedMib: report === null ? null : Math.floor(report.memory_mib.used / share),
    borrowedMib: report === null ? 0 : Math.floor(report.memory_mib.borrowed / share)
  };
}

export interface IQueueNode extends QueueRow {
  readonly children: readonly IQueueNode[];
}

/** Departments with their projects below, per pool and resource; a project without a department stands at the top. */
export function queueTree(
  queues: readonly QueueRow[],
  projects: readonly ProjectRow[]
): IQueueNode[] {
  const departmentOf = new Map(projects.map(project => [project.name, project.department]));
  const parents = new Set(
    queues.filter(queue => queue.kind === 'department').map(queue => placeOf(queue, queue.queue))
  );
  const children = new Map<string, IQueueNode[]>();
  const top: QueueRow[] = [];
  for (const queue of queues) {
    const parent = queue.kind === 'project' ? (departmentOf.get(queue.queue) ?? null) : null;
    const place = parent === null ? null : placeOf(queue, parent);
    if (place !== null && parents.has(place)) {
      children.set(place, [...(children.get(place) ?? []), { ...queue, children: [] }]);
    } else {
      top.push(queue);
    }
  }
  return top.map(queue => ({
    ...queue,
    children: children.get(placeOf(queue, queue.queue)) ?? []
  }));
}

function placeOf(queue: QueueRow, name: string): string {
  return `${queue.pool} ${queue.resource} ${name}`;
}

/** The whole cluster in five numbers. */
export interface ITotals {
  readonly gpus: number;
  readonly allocated: number;
  readonly nodes: number;
  readonly ready: number;
  readonly waiting: number;
}

export function clusterTotals(
  nodes: readonly NodeRow[],
  workloads: readonly WorkloadView[]
): ITotals {
  const sum = (values: number[]) => Number(values.reduce((a, b) => a + b, 0).toFixed(3));
  return {
    gpus: sum(nodes.map(node => node.gpus)),
    allocated: sum(nodes.map(node => node.gpu_allocated)),
    nodes: nodes.length,
    ready: nodes.filter(node => node.status === 'Ready').length,
    waiting: workloads.filter(
      workload => workload.state === 'pending' || workload.state === 'partial'
    ).length
  };
}
