/** The values of the request form as typed, and the request that they make. Pure. */
import { Unit } from '../amounts';
import { Kernel, KernelRequest, Status } from '../schema';

/** The options of the form. */
export type IChoices = Pick<Status, 'projects' | 'node_pools' | 'priority_classes' | 'presets'>;

/** The field values as typed. */
export interface IDraft {
  readonly unit: Unit;
  readonly amount: string;
  readonly limit: string;
  readonly project: string;
  readonly pools: string;
  readonly priority: string;
  readonly preset: string | null;
  /** Queue the request although it can never start with the present nodes and quotas. */
  readonly queueAnyway: boolean;
}

export function firstDraft(kernel: Kernel | null, choices: IChoices): IDraft {
  const { gpu = null, gpu_memory_mib = null } = kernel?.request ?? {};
  return {
    unit: gpu_memory_mib === null ? 'gpu' : 'gpu_memory',
    amount: gpu_memory_mib !== null ? `${gpu_memory_mib}MiB` : String(gpu ?? 0.5),
    limit: kernel?.limit.gpu === null || kernel === null ? '' : String(kernel.limit.gpu),
    project: kernel?.project ?? choices.projects[0] ?? '',
    pools: '',
    priority: '',
    preset: kernel?.preset ?? null,
    queueAnyway: false
  };
}

/** The draft for a whole request; fields that the request does not set keep their values. */
export function draftOf(request: KernelRequest, draft: IDraft, preset: string | null): IDraft {
  const pools = request.node_pools ?? draft.pools;
  return {
    unit: request.gpu_memory === null || request.gpu_memory === undefined ? 'gpu' : 'gpu_memory',
    amount: String(request.gpu_memory ?? request.gpu ?? draft.amount),
    limit: String(request.gpu_limit ?? ''),
    project: request.project ?? draft.project,
    pools: typeof pools === 'string' ? pools : pools.join(','),
    priority: String(request.priority_class ?? draft.priority),
    preset,
    queueAnyway: false
  };
}

export function requestOf(draft: IDraft): KernelRequest {
  const { unit, amount, limit, project, pools, priority, preset, queueAnyway } = draft;
  return {
    ...(preset === null ? {} : { preset }),
    [unit]: amount.trim(),
    ...(limit.trim() === '' ? {} : { gpu_limit: limit.trim() }),
    ...(project === '' ? {} : { project }),
    ...(pools === '' ? {} : { node_pools: pools.split(',') }),
    ...(priority === '' ? {} : { priority_class: priority }),
    ...(queueAnyway ? { queue_anyway: true } : {})
  };
}
