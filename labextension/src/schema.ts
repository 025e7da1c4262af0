// Shapes of the bodies under gpushare/api/. To be replaced by the file that routes.py generates.

export type KernelState = 'detached' | 'pending' | 'granted' | 'attached' | 'suspended' | 'reclaiming' | 'lost';

export type EventKind =
  | 'requested'
  | 'granted'
  | 'attached'
  | 'burst'
  | 'notice'
  | 'suspended'
  | 'resumed'
  | 'moved'
  | 'killed'
  | 'reattached'
  | 'released'
  | 'evicted'
  | 'pinned'
  | 'unpinned'
  | 'lost'
  | 'refused';

export interface Event {
  time: string;
  kind: EventKind;
  message: string;
}

export interface HelpBody {
  change: string;
  to: string;
  message: string;
}

export interface ReasonBody {
  code: string;
  message: string;
  numbers: { [key: string]: number };
  helps: HelpBody[];
}

export interface Share {
  gpu: number | null;
  gpu_memory_mib: number | null;
}

export interface MemoryMib {
  guaranteed: number;
  used: number;
  borrowed: number;
}

export interface Kernel {
  kernel_id: string;
  name: string;
  state: KernelState;
  project: string | null;
  request: Share;
  limit: Share;
  node: string | null;
  planned_gpu: string | null;
  gpu_uuid: string | null;
  simulated: boolean;
  pinned: boolean;
  busy: boolean;
  memory_mib: MemoryMib;
  gpu_memory_total_mib: number;
  reason: ReasonBody | null;
  queue_position: number | null;
  notice_deadline: string | null;
  generation: number;
  workload: string | null;
  events: Event[];
}

export interface SchedulerStatus {
  reachable: boolean;
  version: string | null;
  problem: string | null;
}

export interface Status {
  mode: 'embedded' | 'remote';
  simulated: boolean;
  scheduler: SchedulerStatus;
  agent: SchedulerStatus;
  node: string | null;
  user: string;
  projects: string[];
  node_pools: string[];
  priority_classes: string[];
  kernels: Kernel[];
}

export type StreamFrame =
  | { type: 'state'; revision: number; status: Status }
  | { type: 'kernel'; revision: number; kernel_id: string; kernel: Kernel }
  | { type: 'kernel_gone'; revision: number; kernel_id: string }
  | { type: 'event'; revision: number; kernel_id: string; event: Event }
  | { type: 'status'; revision: number; status: Status };
