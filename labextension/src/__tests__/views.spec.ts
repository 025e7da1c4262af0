import { deathReason } from '../messages';
import { sameRequest } from '../sameRequest';
import { hasNoHistory } from '../notebooks';
import { actionWords, possibleActions } from '../views/actions';
import { explanation, overQuota } from '../views/projects';
import { docsOf, waitingSince } from '../views/reason';
import { aboutText, expectedShort, offerText } from '../expectedWait';
import { ExpectedWait } from '../schema';
import { changed, expectation } from '../views/whatIf';
import { english, event, kernel, project } from './fixtures';

describe('why a kernel died', () => {
  const soon = Date.parse(event('killed', '').time) + 5000;

  test('an event of GPU share is the reason', () => {
    const killed = kernel({ events: [event('killed', 'It was in the way.')] });
    expect(deathReason(killed, soon, english)).toBe('GPU share: It was in the way.');
  });

  test.each([
    ['an old event', kernel({ events: [event('killed', 'long ago')] }), soon + 600_000],
    ['another kind of event', kernel({ events: [event('moved', 'to GPU 1')] }), soon],
    ['no such kernel', null, soon]
  ])('%s is not the reason', (_, dead, now) => {
    expect(deathReason(dead, now, english)).toContain('did not cause this');
  });
});

test('a saved share is requested only for a kernel without earlier requests', () => {
  const fresh = kernel({ state: 'detached', workload: null });
  expect(hasNoHistory(fresh)).toBe(true);
  expect(hasNoHistory({ ...fresh, events: [event('released', 'given back')] })).toBe(false);
  expect(hasNoHistory(kernel())).toBe(false);
});

const CHANGE = {
  workload: 'w2',
  request: { gpu: 1, gpu_memory_mib: null },
  limit: { gpu: null, gpu_memory_mib: null },
  project: 'vision',
  reason: null,
  queue_position: 1,
  expected_wait: null
};

test('actions follow the state', () => {
  expect(possibleActions(kernel())).toEqual(['suspend', 'pin', 'release']);
  expect(possibleActions(kernel({ state: 'suspended', pinned: true }))).toEqual([
    'resume',
    'unpin',
    'release'
  ]);
  expect(possibleActions(kernel({ state: 'pending' }))).toEqual(['run-without-gpu', 'release']);
  expect(possibleActions(kernel({ state: 'detached' }))).toEqual([]);
  const changing = kernel({ pending_change: CHANGE });
  expect(possibleActions(changing)).toEqual(['cancel', 'suspend', 'pin', 'release']);
  expect(actionWords('cancel', changing, english).label).toBe('Keep ½ GPU');
});

describe("a project's bar explains itself", () => {
  test('over quota', () => {
    const row = project({ gpu_quota: 1, gpu_allocated: 1.5 });
    expect(overQuota(row)).toBe(0.5);
    expect(explanation(row, english)).toContain('½ GPU over quota');
  });

  test('an unlimited quota is never exceeded', () => {
    const row = project({ gpu_quota: null, gpu_allocated: 9 });
    expect(overQuota(row)).toBe(0);
    expect(explanation(row, english)).toContain('unlimited');
  });
});

describe('what if', () => {
  const answer = {
    starts_now: true,
    node: 'n0',
    planned_gpu: null,
    planned_gpus: [],
    gpus: [],
    affected: [],
    notice_ms: 0,
    displaces: [],
    reason: null,
    expected_wait: null,
    alternatives: [],
    refused: false
  };
  const warned = {
    name: 'second.ipynb',
    memory_mib: 71680,
    notice_ms: 8000,
    message: 'second.ipynb gets a notice of 8 s.'
  };
  const one = {
    workload: 'w',
    project: 'p',
    name: '',
    action: 'reclaim',
    message: '',
    notice_ms: 0
  };
  const reason = { code: 'WaitingForQuota', message: 'No quota is left.', numbers: {}, helps: [] };

  test.each([
    [null, 'Checking whether it would start now…'],
    [{ problem: 'no such pool' }, 'No such pool.'],
    [{ answer }, 'Would start now on node n0.'],
    [
      { answer: { ...answer, notice_ms: 8000, affected: [warned] } },
      'Would start after a notice of 8 s to second.ipynb. second.ipynb gets a notice of 8 s.'
    ],
    [
      { answer: { ...answer, affected: [{ ...warned, notice_ms: 0, message: 'B is idle.' }] } },
      'Would start now on node n0. B is idle.'
    ],
    [
      { answer: { ...answer, displaces: [one] } },
      'Would start now on node n0. Displaces 1 other workload.'
    ],
    [
      { answer: { ...answer, starts_now: false, node: null, reason } },
      'Would wait. No quota is left.'
    ],
    [
      { answer: { ...answer, starts_now: false, refused: true, reason } },
      'No quota is left.'
    ],
    [
      {
        answer: {
          ...answer,
          starts_now: false,
          displaces: [one],
          reason: { ...reason, code: 'WaitingForReclaim' }
        }
      },
      'Would start after displacing 1 other workload.'
    ],
    [
      {
        answer: {
          ...answer,
          starts_now: false,
          displaces: [{ ...one, name: 'second.ipynb', notice_ms: 8000 }],
          reason: { ...reason, code: 'WaitingForReclaim' }
        }
      },
      'Would start after a notice of 8 s to second.ipynb.'
    ]
  ])('%j', (known, text) => {
    expect(expectation(known, english)).toBe(text);
  });

  test('an alternative changes only its own fields; a new amount drops the old limit', () => {
    const asked = { gpu: 2, gpu_limit: 2, project: 'vision' };
    expect(changed(asked, { node_pools: ['t4'] })).toEqual({ ...asked, node_pools: ['t4'] });
    expect(changed(asked, { gpu: 0.5 })).toEqual({ gpu: 0.5, project: 'vision' });
  });

  test('the what-if request of a waiting kernel is its own request', () => {
    expect(sameRequest(kernel({ limit: { gpu: 1, gpu_memory_mib: null } }))).toEqual({
      gpu: 0.5,
      gpu_limit: 1,
      project: 'vision'
    });
    expect(sameRequest(kernel({ request: { gpu: null, gpu_memory_mib: 2048 } }))).toEqual({
      gpu_memory: '2048MiB',
      project: 'vision'
    });
  });
});

const wait = (changes: Partial<ExpectedWait> = {}): ExpectedWait => ({
  basis: 'history',
  message: 'About 6 min more.',
  at: '2026-01-01T00:00:00.000+00:00',
  seconds_median: 360,
  seconds_p90: 1500,
  seconds_at_most: null,
  based_on: 9,
  ...changes
});
const NOT_KNOWN = { basis: 'none' as const, seconds_median: null, seconds_p90: null };

test.each([
  [0, 'under 1 min'],
  [44, 'under 1 min'],
  [60, '1 min'],
  [13 * 60, '15 min'],
  [89.9 * 60, '1.5 h'],
  [30 * 3600, '30 h'],
  [50 * 3600, '2 days']
])('%d s: %s, as in the scheduler', (seconds, text) => {
  expect(aboutText(seconds, english)).toBe(text);
});

test.each([
  [wait(), 'about 6 min'],
  [wait({ seconds_median: 10 }), 'under 1 min'],
  [wait({ ...NOT_KNOWN, basis: 'rules', seconds_at_most: 5400 }), 'at most 1.5 h'],
  [wait(NOT_KNOWN), null],
  [undefined, null]
])('%j: %s', (known, text) => {
  expect(expectedShort(known, english)).toBe(text);
});

test('a preset shows when it would start', () => {
  const answer = {
    starts_now: true,
    node: 'n0',
    planned_gpu: null,
    planned_gpus: [],
    gpus: [],
    affected: [],
    notice_ms: 0,
    displaces: [],
    reason: null,
    expected_wait: null,
    alternatives: [],
    refused: false
  };
  expect(offerText(answer, english)).toBe('starts now');
  expect(offerText({ ...answer, notice_ms: 8000 }, english)).toBe('starts after a notice of 8 s');
  expect(offerText({ ...answer, starts_now: false, expected_wait: wait() }, english)).toBe(
    'about 6 min'
  );
  expect(offerText({ ...answer, starts_now: false, expected_wait: wait(NOT_KNOWN) }, english)).toBe(
    'would wait'
  );
});

test('a pending request is cancelled, not released', () => {
  expect(actionWords('release', kernel({ state: 'pending' }), english).hint).toBe(
    'Cancel the request; waiting cells do not run'
  );
  expect(actionWords('release', kernel(), english).hint).toContain('Release the GPU');
});

test('a wait begins with the request or the eviction', () => {
  const asked = event('requested', 'Asked for half a GPU.', 1);
  const evicted = event('evicted', 'Taken back.', 9);
  expect(waitingSince(kernel({ state: 'pending', events: [asked] }))).toBe(asked.time);
  expect(waitingSince(kernel({ state: 'pending', events: [asked, evicted] }))).toBe(evicted.time);
  expect(waitingSince(kernel({ events: [asked] }))).toBeNull();
});

test('a reason leads to its explanation in the documentation', () => {
  const reason = { code: 'WaitingForFreeGPU', message: '', numbers: {}, helps: [] };
  expect(docsOf(reason)).toMatch(/^https:.*\/reference\/errors\.html#waitingforfreegpu$/);
});
