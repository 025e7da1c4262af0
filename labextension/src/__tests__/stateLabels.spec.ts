/** One set of state labels for sidebar, toolbar and dashboard. */
import { PodView, WorkloadView } from '../schema';
import { kernelLabel, workloadLabel } from '../stateLabels';
import { kernel } from './fixtures';

const pod = (state: PodView['state'], report: object | null = null): PodView =>
  ({ name: '0', state, lease: null, report, exit_code: null }) as PodView;
const workload = (state: WorkloadView['state'], ...pods: PodView[]): WorkloadView =>
  ({ state, pods }) as unknown as WorkloadView;

test.each([
  [kernel({ state: 'detached' }), 'no GPU'],
  [kernel({ state: 'pending' }), 'waiting'],
  [kernel({ state: 'granted' }), 'starting'],
  [kernel({ busy: true }), 'running'],
  [kernel({ busy: false }), 'idle'],
  [kernel({ state: 'suspended', busy: true }), 'suspended'],
  [kernel({ state: 'reclaiming' }), 'giving back'],
  [kernel({ state: 'lost' }), 'unknown']
])('kernel %#: %s', (one, label) => {
  expect(kernelLabel(one)).toBe(label);
});

test.each([
  [workload('pending', pod('pending')), 'waiting'],
  [workload('running', pod('bound')), 'starting'],
  [workload('running', pod('running')), 'running'],
  [workload('running', pod('running', { state: 'suspended', busy: false })), 'suspended'],
  [workload('running', pod('running', { state: 'attached', busy: false })), 'idle'],
  [
    workload(
      'running',
      pod('running', { state: 'suspended', busy: false }),
      pod('running', { state: 'attached', busy: true })
    ),
    'running'
  ],
  [workload('partial', pod('running'), pod('pending')), 'partly running'],
  [workload('ended', pod('succeeded')), 'ended']
])('workload %#: its pods decide: %s', (one, label) => {
  expect(workloadLabel(one)).toBe(label);
});
