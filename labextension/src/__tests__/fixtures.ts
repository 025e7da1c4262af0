/** Builders of statuses and kernels: name only what a test is about. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Event, EventKind, Kernel, ProjectRow, Status } from '../schema';

export function kernel(changes: Partial<Kernel> = {}): Kernel {
  return {
    kernel_id: 'k1',
    name: 'work/a.ipynb',
    state: 'attached',
    project: 'vision',
    request: { gpu: 0.5, gpu_memory_mib: null },
    limit: { gpu: null, gpu_memory_mib: null },
    node: 'n0',
    planned_gpu: 'GPU-0',
    gpu_uuid: 'GPU-0',
    simulated: true,
    pinned: false,
    busy: false,
    cell_waits: null,
    memory_mib: { guaranteed: 40960, used: 0, borrowed: 0 },
    gpu_memory_total_mib: 81920,
    saved_mib: 0,
    reason: null,
    queue_position: null,
    expected_wait: null,
    notice_deadline: null,
    generation: 1,
    workload: 'w1',
    utilization: null,
    user: 'ada',
    gated: true,
    gate_problem: null,
    preset: null,
    pending_change: null,
    events: [],
    ...changes
  };
}

export function status(...kernels: Kernel[]): Status {
  const up = { reachable: true, version: '0.1.0', problem: null, policy_problems: [] };
  return {
    mode: 'embedded',
    simulated: true,
    scheduler: up,
    agent: up,
    node: 'n0',
    user: 'ada',
    admin: false,
    projects: ['vision'],
    node_pools: ['default'],
    priority_classes: ['interactive'],
    presets: [],
    tiers: ['observe', 'cooperate', 'limit', 'suspend', 'relocate'],
    tier_problems: {},
    kernels
  };
}

export function project(changes: Partial<ProjectRow> = {}): ProjectRow {
  return {
    name: 'vision',
    department: 'research',
    pool: 'default',
    member: true,
    gpu_quota: 1,
    gpu_limit: null,
    gpu_fair_share: 1,
    gpu_allocated: 0,
    gpu_requested: 0,
    ...changes
  };
}

export function event(kind: EventKind, message: string, second = 0): Event {
  return { time: new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString(), kind, message };
}

const pathWith = (text: string, args: unknown[]) =>
  text.replace(/%(\d)/g, (_, n: string) => String(args[Number(n) - 1]));

/** English with %1, %2 pathWith in, as JupyterLab does it. */
export const english = {
  __: (text: string, ...args: unknown[]) => pathWith(text, args),
  _n: (one: string, many: string, n: number, ...args: unknown[]) =>
    pathWith(n === 1 ? one : many, [n, ...args])
} as unknown as TranslationBundle;
