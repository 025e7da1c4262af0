/** Joins nodes and workloads into a map of node pools, nodes and GPUs. Pure. */
import { DeviceRow, Kernel, NodeRow, PoolRow, WorkloadView } from '../schema';

/** A workload that runs on a GPU or is planned there; `name` null: hidden from this user. */
export interface ITenant {
  readonly key: string;
  readonly name: string | null;
  readonly project: string | null;
  readonly user: string | null;
  readonly state: string | null;
  readonly gpu: number | null;
  readonly usedMib: number | null;
  readonly borrowedMib: number;
}

export interface IGpuPlacement {
  readonly device: DeviceRow;
  readonly index: number;
  /** Tenants that run on this GPU now. */
  readonly here: readonly ITenant[];
  /** Tenants that are planned on this GPU and run elsewhere or not yet. */
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

/** Workloads with the current names of my notebooks; the scheduler keeps the first name. */
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

/** Node pools in the scheduler's order, including empty ones; nodes in the server's order. */
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
      user: null,
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
    user: workload.user || null,
    state: report?.state ?? workload.state,
    gpu: workload.request.gpu,
    usedMib: report === null ? null : Math.floor(report.memory_mib.used / share),
    borrowedMib: report === null ? 0 : Math.floor(report.memory_mib.borrowed / share)
  };
}
