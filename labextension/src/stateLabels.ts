/** The state labels on screen, for sidebar, toolbar and dashboard. `%gpu` uses the same. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Kernel, KernelState, PodView, WorkloadView } from './schema';

export type StateLabel =
  | 'no GPU'
  | 'waiting'
  | 'starting'
  | 'running'
  | 'idle'
  | 'suspended'
  | 'giving back'
  | 'unknown'
  | 'partly running'
  | 'ended';

const LABELS: { readonly [state in KernelState]: StateLabel } = {
  detached: 'no GPU',
  pending: 'waiting',
  granted: 'starting',
  attached: 'running', // 'idle' while no cell runs
  suspended: 'suspended',
  reclaiming: 'giving back',
  lost: 'unknown'
};

const POD_LABELS: { readonly [state in PodView['state']]: StateLabel } = {
  pending: 'waiting',
  pipelined: 'waiting',
  bound: 'starting',
  running: 'running',
  releasing: 'giving back',
  failed: 'ended',
  succeeded: 'ended'
};

/** The label of a workload with several pods is the first of these that one of its pods has. */
const MOST_ACTIVE_FIRST: readonly StateLabel[] = [
  'running',
  'idle',
  'giving back',
  'starting',
  'suspended',
  'unknown'
];

export function kernelLabel({ state, busy }: Pick<Kernel, 'state' | 'busy'>): StateLabel {
  return state === 'attached' && !busy ? 'idle' : LABELS[state];
}

export function workloadLabel(workload: WorkloadView): StateLabel {
  switch (workload.state) {
    case 'pending':
      return 'waiting';
    case 'partial':
      return 'partly running';
    case 'ended':
      return 'ended';
    case 'running': {
      const labels = workload.pods.map(podLabel);
      return MOST_ACTIVE_FIRST.find(label => labels.includes(label)) ?? 'running';
    }
  }
}

/** The scheduler calls a pod bound until its next cycle. */
const ON_NODE: readonly PodView['state'][] = ['running', 'bound'];

/** The node agent's report is more precise than the scheduler's state. */
function podLabel({ state, report }: PodView): StateLabel {
  return ON_NODE.includes(state) && report !== null ? kernelLabel(report) : POD_LABELS[state];
}

export function stateText(label: StateLabel, trans: TranslationBundle): string {
  switch (label) {
    case 'no GPU':
      return trans.__('no GPU');
    case 'waiting':
      return trans.__('waiting');
    case 'starting':
      return trans.__('starting');
    case 'running':
      return trans.__('running');
    case 'idle':
      return trans.__('idle');
    case 'suspended':
      return trans.__('suspended');
    case 'giving back':
      return trans.__('giving back');
    case 'unknown':
      return trans.__('unknown');
    case 'partly running':
      return trans.__('partly running');
    case 'ended':
      return trans.__('ended');
  }
}
