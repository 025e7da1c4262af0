/** The values of the request form as typed, and the request that they make. Pure. */
import { Unit } from '../amounts';
import { Kernel, KernelRequest, Status } from '../schema';
import { DEFAULT_SHARE } from '../state';

/** The options of the form. */
export interface IChoices
  extends Pick<Status, 'projects' | 'node_pools' | 'priority_classes' | 'presets'> {
  /** What is offered first: GPUs, memory, or the name of a preset. */
  readonly defaultShare: string;
}

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
  const draft: IDraft = {
    unit: gpu_memory_mib === null ? 'gpu' : 'gpu_memory',
    amount: gpu_memory_mib !== null ? `${gpu_memory_mib}MiB` : String(gpu ?? DEFAULT_SHARE),
    limit: kernel?.limit.gpu === null || kernel === null ? '' : String(kernel.limit.gpu),
    project: kernel?.project ?? choices.projects[0] ?? '',
    pools: '',
    priority: '',
    preset: kernel?.preset ?? null,
    queueAnyway: false
  };
  return gpu === null && gpu_memory_mib === null ? withDefault(draft, choices) : draft;
}

/** The draft of someone who has no share yet: the share of the settings. */
function withDefault(draft: IDraft, { defaultShare, presets }: IChoices): IDraft {
  const text = defaultShare.trim();
  const preset = presets.find(one => one.name === text);
  if (preset !== undefined) {
    return draftOf(preset.request, draft, preset.name);
  }
  const unit = /[a-z]/i.test(text) ? 'gpu_memory' : 'gpu';
  return text === '' ? draft : { ...draft, unit, amount: text };
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
