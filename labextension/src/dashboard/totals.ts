/** Totals of the whole cluster. Pure. */
import { NodeRow, WorkloadView } from '../schema';

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
