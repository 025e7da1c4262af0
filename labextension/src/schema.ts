// Generated from jupyter_gpushare/routes.py and jupyter_gpushare/messages: `make schema`. Do not edit.

export type KernelState =
  | 'detached'
  | 'pending'
  | 'granted'
  | 'attached'
  | 'suspended'
  | 'reclaiming'
  | 'lost';

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
  | 'refused'
  | 'fault';

/** Something else that would start now: a changed request and a sentence. */
export interface Alternative {
  request: { [key: string]: unknown };
  message: string;
}

/** What the agent of a pod's node runs for it, as the person who asked: argument vector, environment beside the node's own, and the working directory there ("": the person's home). */
export interface CommandRequest {
  argv: string[];
  env?: { [key: string]: string };
  cwd?: string;
}

/** Memory of one GPU in MiB. `used` is the memory of kernels and pods with a lease here; `borrowed` is the part of it above their guarantees. */
export interface DeviceMemory {
  total: number;
  guaranteed: number;
  used: number;
  borrowed: number;
}

/** One GPU of a node. */
export interface DeviceRow {
  uuid: string;
  model: string;
  memory_mib: DeviceMemory;
  kernels: string[];
  planned: string[];
  healthy: boolean;
  health: string;
  foreign_mib: number;
  foreign_processes: number;
  utilization: number | null;
  mig: boolean;
}

export interface Displaced {
  workload: string;
  project: string;
  action: string;
  message: string;
}

/** The body of every error, on every side. */
export interface ErrorBody {
  error: ErrorDetail;
}

export interface ErrorDetail {
  code: string;
  message: string;
  field?: string;
}

/** One line of a kernel's story, oldest first in every list. */
export interface Event {
  time: string;
  kind: EventKind;
  message: string;
}

/** A pod whose place the scheduler took away. `action`: which action of the cycle, or `drain`, `max_running`, `idle`; `by`: the workload that it made room for ("" = none, or one that the caller may not see), `by_project` its project. */
export interface EvictionRow {
  time: string;
  workload: string;
  name: string;
  pod: string;
  user: string;
  project: string;
  node: string;
  pool: string;
  action: string;
  by: string;
  by_project: string;
  message: string;
}

export interface Evictions {
  evictions: EvictionRow[];
}

/** How much longer a request will wait, in seconds from `at`; null: not known. Half of those like it wait for at most `seconds_median`, nine of ten for at most `seconds_p90`. `basis`: `history`: `based_on` like requests of the past; `rules`: only what the policy and announced notices bound; `none`: nothing is known, and `message` says why. */
export interface ExpectedWait {
  basis: 'history' | 'none' | 'rules';
  message: string;
  at: string;
  seconds_median: number | null;
  seconds_p90: number | null;
  seconds_at_most: number | null;
  based_on: number;
}

export interface HelpBody {
  change: string;
  to: string;
  message: string;
}

/** One kernel as its owner sees it. */
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
  cell_waits: string | null;
  memory_mib: MemoryMib;
  gpu_memory_total_mib: number;
  saved_mib: number;
  reason: ReasonBody | null;
  queue_position: number | null;
  expected_wait: ExpectedWait | null;
  notice_deadline: string | null;
  generation: number;
  workload: string | null;
  utilization: number | null;
  preset: string | null;
  events: Event[];
}

/** Kept in memory by the Jupyter server: every few seconds while young, coarser when old, for a day. */
export interface KernelHistory {
  samples: KernelSample[];
  kernel_id: string;
}

/** What a person asks for one kernel: the kernelspec's `config`, the body of `POST kernels/<id>` and of `POST what-if`. Amounts are as people write them (numbers or text) and are read by `core.quantity`; exactly one of `gpu`, `gpu_memory`, or a `preset`. */
export interface KernelRequest {
  preset?: string | null;
  gpu?: number | string | null;
  gpu_memory?: number | string | null;
  gpu_limit?: number | string | null;
  project?: string | null;
  node_pools?: string[] | string | null;
  priority_class?: string | number | null;
}

/** One kernel at one moment: GPU memory in MiB, the share in GPUs (null: none, or asked for as memory), utilisation 0..1. */
export interface KernelSample {
  time: string;
  state: 'attached' | 'detached' | 'granted' | 'lost' | 'pending' | 'reclaiming' | 'suspended';
  gpu: number | null;
  guaranteed_mib: number;
  used_mib: number;
  borrowed_mib: number;
  utilization: number | null;
}

/** An allocation in force, held by one pod. */
export interface LeaseBody {
  id: string;
  workload: string;
  pod: string;
  kernel_id: string | null;
  name: string;
  user: string;
  project: string;
  node: string;
  pool: string;
  planned_gpus: number[];
  request_mib: number;
  limit_mib: number;
  request: Share;
  limit: Share;
  wanted: 'evict' | 'hold';
  notice_ms: number;
  message: string;
  rules: LeaseRules;
  ends_at: string | null;
  command: CommandRequest | null;
}

/** What the agent knows of one lease. */
export interface LeaseReport {
  lease: string;
  state: 'attached' | 'detached' | 'granted' | 'lost' | 'pending' | 'reclaiming' | 'suspended';
  gpu_uuids: string[];
  memory_mib: MemoryMib;
  generation: number;
  busy: boolean;
  utilization: number | null;
}

/** What the policy allows this lease, in ms since its last GPU work (the four steps of the idle rule) and since it was granted; null: never. The agent acts on the idle steps, the scheduler on `max_running_ms`. `places`: step (`idle.warn`, ..., `max_running`) -> where in the policy it stands. */
export interface LeaseRules {
  idle_warn_ms: number | null;
  idle_suspend_ms: number | null;
  idle_release_ms: number | null;
  idle_end_ms: number | null;
  max_running_ms: number | null;
  places: { [key: string]: string };
}

/** GPU memory of one kernel: what its share guarantees, what it holds on the GPU, and what of that is above the guarantee. */
export interface MemoryMib {
  guaranteed: number;
  used: number;
  borrowed: number;
}

/** One node. The fields of `NodeMeasurements` come from its agent, the others from the scheduler. */
export interface NodeRow {
  simulated: boolean;
  tiers: string[];
  tier_problems: { [key: string]: string };
  driver: string;
  name: string;
  pool: string;
  status: string;
  reasons: string[];
  gpus: number;
  gpu_allocated: number;
  cordoned: boolean;
  devices: DeviceRow[];
}

/** Answer of `GET nodes`. */
export interface Nodes {
  nodes: NodeRow[];
}

export interface PodView {
  name: string;
  state: 'bound' | 'failed' | 'pending' | 'pipelined' | 'releasing' | 'running' | 'succeeded';
  lease: LeaseBody | null;
  report: LeaseReport | null;
  exit_code: number | null;
}

/** One node pool. */
export interface PoolRow {
  name: string;
  nodes: number;
  gpus: number;
  gpu_allocated: number;
  placement_gpu: string;
  placement_cpu: string;
  workloads_per_gpu: number | null;
  pending: number;
  status: string;
  nodes_ready: number;
  reasons: string[];
}

/** Answer of `GET pools`. */
export interface Pools {
  pools: PoolRow[];
}

/** A share that the administrator has given a name. */
export interface Preset {
  name: string;
  description: string;
  request: KernelRequest;
}

/** One project in one pool. */
export interface ProjectRow {
  name: string;
  department: string | null;
  pool: string;
  member: boolean;
  gpu_quota: number | null;
  gpu_limit: number | null;
  gpu_fair_share: number;
  gpu_allocated: number;
  gpu_requested: number;
}

/** Answer of `GET projects`. */
export interface Projects {
  projects: ProjectRow[];
}

export interface QueueHistory {
  samples: QueueSample[];
}

/** One queue in one pool for one resource (GPUs, cores or MiB); null = unlimited. */
export interface QueueRow {
  queue: string;
  kind: 'department' | 'project';
  pool: string;
  resource: 'cpu' | 'gpu' | 'memory';
  quota: number | null;
  limit: number | null;
  fair_share: number;
  allocated: number;
  requested: number;
}

/** One queue in one pool at one moment, in GPUs; null = unlimited. */
export interface QueueSample {
  time: string;
  queue: string;
  kind: string;
  pool: string;
  quota: number | null;
  fair_share: number;
  allocated: number;
  requested: number;
}

/** Answer of `GET queues`. */
export interface Queues {
  queues: QueueRow[];
}

/** Why something waits: code of the closed set, one sentence, numbers in GPUs, what would help. */
export interface ReasonBody {
  code: string;
  message: string;
  numbers: { [key: string]: number };
  helps: HelpBody[];
}

export interface SchedulerStatus {
  reachable: boolean;
  version: string | null;
  problem: string | null;
}

/** What was asked (`request`) or the burst ceiling (`limit`): GPUs or MiB; the one that was not given is null. */
export interface Share {
  gpu: number | null;
  gpu_memory_mib: number | null;
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
  presets: Preset[];
  tiers: string[];
  tier_problems: { [key: string]: string };
  kernels: Kernel[];
}

/** One event of one kernel, as it happens (it is also in the kernel's `events`). */
export interface StreamEvent {
  type: 'event';
  revision: number;
  kernel_id: string;
  event: Event;
}

/** One kernel changed; the whole of it. */
export interface StreamKernel {
  type: 'kernel';
  revision: number;
  kernel_id: string;
  kernel: Kernel;
}

export interface StreamKernelGone {
  type: 'kernel_gone';
  revision: number;
  kernel_id: string;
}

/** First frame of the Jupyter stream: everything. */
export interface StreamState {
  type: 'state';
  revision: number;
  status: Status;
}

/** Something beside the kernels changed (scheduler gone or back, projects): the status without its kernels. */
export interface StreamStatus {
  type: 'status';
  revision: number;
  status: Status;
}

export interface WhatIfAnswer {
  starts_now: boolean;
  node: string | null;
  planned_gpu: string | null;
  displaces: Displaced[];
  reason: ReasonBody | null;
  expected_wait: ExpectedWait | null;
  alternatives: Alternative[];
}

export interface WorkloadView {
  id: string;
  name: string;
  kernel_id: string | null;
  user: string;
  project: string;
  priority: number;
  preemptible: boolean;
  node_pools: string[];
  created: string;
  state: 'ended' | 'partial' | 'pending' | 'running';
  request: Share;
  limit: Share;
  pods: PodView[];
  reason: ReasonBody | null;
  queue_position: number | null;
  expected_wait: ExpectedWait | null;
  revision: number;
  command: string[] | null;
  exit_code: number | null;
  message: string;
  replaces: string | null;
}

export interface Workloads {
  workloads: WorkloadView[];
}

export type StreamFrame =
  | StreamState
  | StreamKernel
  | StreamKernelGone
  | StreamEvent
  | StreamStatus;

/** Paths under the server's base URL. */
export const ROUTES = {
  status: { verb: 'GET', path: 'gpushare/api/status' },
  kernel: { verb: 'GET', path: 'gpushare/api/kernels/{kernel_id}' },
  request: { verb: 'POST', path: 'gpushare/api/kernels/{kernel_id}' },
  release: { verb: 'DELETE', path: 'gpushare/api/kernels/{kernel_id}' },
  act: { verb: 'POST', path: 'gpushare/api/kernels/{kernel_id}/actions/{action}' },
  whatIf: { verb: 'POST', path: 'gpushare/api/what-if' },
  queues: { verb: 'GET', path: 'gpushare/api/queues' },
  nodes: { verb: 'GET', path: 'gpushare/api/nodes' },
  pools: { verb: 'GET', path: 'gpushare/api/pools' },
  projects: { verb: 'GET', path: 'gpushare/api/projects' },
  workloads: { verb: 'GET', path: 'gpushare/api/workloads' },
  evictions: { verb: 'GET', path: 'gpushare/api/evictions' },
  queueHistory: { verb: 'GET', path: 'gpushare/api/history/queues' },
  kernelHistory: { verb: 'GET', path: 'gpushare/api/kernels/{kernel_id}/history' },
  stream: { verb: 'WS', path: 'gpushare/api/stream' }
} as const;
