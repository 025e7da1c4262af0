import { gpuNumber, gpuText, percentText, requestText, timeLeft } from '../format';
import { INITIAL, IState, reduce } from '../state';
import { kernelHint, kernelSummary, total } from '../summary';
import { english, kernel, project, status } from './fixtures';

const bursting = { guaranteed: 40960, used: 62464, borrowed: 21504 };
const NOW = Date.parse('2026-01-01T00:00:00Z');

test.each([
  [0.5, '½'],
  [1.5, '1½'],
  [0.3, '0.3'],
  [2, '2'],
  [0, '0']
])('%d reads %s', (gpu, text) => {
  expect(gpuNumber(gpu)).toBe(text);
});

test('0 and more than 1 are plural', () => {
  expect([gpuText(0), gpuText(0.5), gpuText(1), gpuText(1.5)]).toEqual([
    '0 GPUs',
    '½ GPU',
    '1 GPU',
    '1½ GPUs'
  ]);
  expect(percentText(0.375)).toBe('38 %');
});

test('a distant deadline reads in minutes', () => {
  expect(timeLeft('2026-01-01T00:01:59Z', NOW)).toBe('119 s');
  expect(timeLeft('2026-01-01T00:10:00Z', NOW)).toBe('10 min');
});

test.each([
  [{ gpu: '0.5' }, '½ GPU'],
  [{ gpu_memory: '20GiB' }, '20GiB'],
  [{ preset: 'large' }, 'large'],
  [{ gpu: 'half' }, 'half']
])('the request %j reads %s', (request, text) => {
  expect(requestText(request)).toBe(text);
});

describe("a notebook's share in its toolbar", () => {
  const cases: [string, ReturnType<typeof kernel> | null, string][] = [
    ['no kernel', null, 'GPU'],
    [
      'no share',
      kernel({ state: 'detached', request: { gpu: null, gpu_memory_mib: null } }),
      'no GPU'
    ],
    [
      'waiting in the queue, and for how long',
      kernel({
        state: 'pending',
        queue_position: 3,
        expected_wait: {
          basis: 'history',
          message: '',
          at: '',
          seconds_median: 360,
          seconds_p90: null,
          seconds_at_most: null,
          based_on: 5
        }
      }),
      '½ GPU · waiting, position 3, about 6 min'
    ],
    [
      'waiting in the queue',
      kernel({ state: 'pending', queue_position: 3 }),
      '½ GPU · waiting, position 3'
    ],
    ['waiting, position unknown', kernel({ state: 'pending' }), '½ GPU · waiting'],
    [
      'within its share',
      kernel({ memory_mib: { guaranteed: 40960, used: 1024, borrowed: 0 } }),
      '½ GPU · 1 GiB'
    ],
    ['bursting', kernel({ memory_mib: bursting }), '½ GPU · 61 GiB (21 GiB borrowed)'],
    [
      'a share in memory',
      kernel({ request: { gpu: null, gpu_memory_mib: 20480 } }),
      '20 GiB GPU · idle'
    ],
    [
      'a cell at the gate',
      kernel({ cell_waits: 'Waiting for room.', memory_mib: bursting }),
      '½ GPU · cell waiting'
    ],
    [
      'a notice comes first',
      kernel({ cell_waits: 'Waiting.', notice_deadline: '2026-01-01T00:00:12Z' }),
      '½ GPU · reclaimed in 12 s'
    ],
    [
      'a notice that is over',
      kernel({ notice_deadline: '2025-12-31T00:00:00Z', memory_mib: bursting }),
      '½ GPU · 61 GiB (21 GiB borrowed)'
    ]
  ];
  test.each(cases)('%s', (_, shown, text) => {
    expect(kernelSummary(shown, NOW, english)).toBe(text);
  });

  test('the tooltip shows a pending change', () => {
    const reason = { code: 'X', message: 'No quota is left.', numbers: {}, helps: [] };
    const change = {
      workload: 'w2',
      request: { gpu: 1, gpu_memory_mib: null },
      limit: { gpu: null, gpu_memory_mib: null },
      project: null,
      reason,
      queue_position: 1,
      expected_wait: null
    };
    expect(kernelHint(kernel({ pending_change: change }), english)).toBe(
      'Change to 1 GPU: waiting. The current share stays until then. No quota is left.'
    );
  });

  test('the tooltip shows the reason for waiting', () => {
    expect(kernelHint(kernel({ cell_waits: 'Waiting for room.' }), english)).toBe(
      'Waiting for room.'
    );
  });
});

describe('the status bar', () => {
  const seen = (...kernels: ReturnType<typeof kernel>[]): IState =>
    reduce(INITIAL, { type: 'snapshot', status: status(...kernels) });

  test('without data', () => {
    expect(total(INITIAL, english).text).toBe('GPU …');
  });

  test('adds shares and use, without pending requests', () => {
    const state = seen(
      kernel({ memory_mib: bursting }),
      kernel({ kernel_id: 'k2', request: { gpu: 1, gpu_memory_mib: null } }),
      kernel({ kernel_id: 'k3', state: 'pending' })
    );
    expect(total(state, english).text).toBe('1½ GPUs · 61 GiB · 1 waiting');
    expect(total(state, english).hint).toContain('a.ipynb: ½ GPU · 61 GiB (21 GiB borrowed)');
  });

  test('lists shares in GPUs and in memory', () => {
    const state = seen(
      kernel(),
      kernel({ kernel_id: 'k2', request: { gpu: null, gpu_memory_mib: 20480 } })
    );
    expect(total(state, english).text).toBe('½ GPU + 20 GiB GPU');
  });

  test('without shares', () => {
    expect(total(seen(kernel({ state: 'detached' })), english).text).toBe('no GPU');
  });

  test('marks offline data', () => {
    const state = reduce(seen(kernel()), { type: 'disconnected', at: 1, problem: 'gone' });
    expect(total(state, english)).toEqual({
      text: '½ GPU (offline)',
      hint: expect.stringContaining('Gone.')
    });
  });
});

describe('the table of projects', () => {
  test('keeps its rows after an error, and shows the error', () => {
    const known = reduce(INITIAL, { type: 'projects', rows: [project()] });
    const later = reduce(known, { type: 'projectsFailed', problem: 'no answer' });
    expect(later.projects).toEqual({ rows: [project()], problem: 'no answer' });
    expect(reduce(later, { type: 'projects', rows: [] }).projects).toEqual({
      rows: [],
      problem: null
    });
  });
});
