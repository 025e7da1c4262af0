/** What an action on a notice did, or why it could not. */
import { outcomeOf } from '../outcomes';
import { IActionResult } from '../tokens';
import { english, kernel } from './fixtures';

const noticed = kernel({ notice_deadline: '2026-01-01T00:00:10Z' });
const moved: IActionResult = { kernel: noticed, action: 'move', error: null };
const requested: IActionResult = { ...moved, action: 'request' };
const outcome = (result: IActionResult, now: ReturnType<typeof kernel> | null, isFinal = false) =>
  outcomeOf(result, now, isFinal, english);

test('a refused move says why', () => {
  const message = { tone: 'error', text: 'a.ipynb: not moved. No host memory is left.' };
  expect(outcome({ ...moved, error: 'no host memory is left' }, noticed)).toEqual(message);
});

test('a move is decided when the kernel is back on a GPU', () => {
  expect(outcome(moved, kernel({ state: 'suspended' }))).toBe('undecided');
  expect(outcome(moved, noticed)).toBe('undecided');
  const elsewhere = kernel({ gpu_uuid: 'n0/1' });
  expect(outcome(moved, elsewhere)).toBeNull(); // the event "moved" is a notification already
});

test('a move that did not leave the GPU, or did not end, says so', () => {
  expect(outcome(moved, kernel(), true)).toEqual({
    tone: 'info',
    text: 'a.ipynb: still on GPU 0. No other GPU has room.'
  });
  const suspended = kernel({ state: 'suspended', cell_waits: 'Waiting for 70 GiB.' });
  expect(outcome(moved, suspended, true)).toEqual({
    tone: 'info',
    text: 'a.ipynb: saved to host memory. It resumes when a GPU has room. Waiting for 70 GiB.'
  });
});

test('a request in response to a notice says what became of the notice', () => {
  expect(outcome(requested, noticed)).toBe('undecided');
  expect(outcome(requested, kernel({ request: { gpu: 1, gpu_memory_mib: null } }))).toEqual({
    tone: 'success',
    text: 'a.ipynb: the share is now 1 GPU. Its memory is not reclaimed.'
  });
  const reason = { code: 'WaitingForQuota', message: 'No quota is left.', numbers: {}, helps: [] };
  expect(outcome(requested, { ...noticed, reason }, true)).toEqual({
    tone: 'warning',
    text: 'a.ipynb: the request is waiting. No quota is left.'
  });
});

test('other actions, and kernels that have ended, need no report', () => {
  expect(outcome({ ...moved, action: 'pin' }, noticed)).toBeNull();
  expect(outcome({ ...requested, kernel: kernel() }, noticed)).toBeNull();
  expect(outcome({ ...requested, error: 'shown in the form' }, noticed)).toBeNull();
  expect(outcome(moved, null)).toBeNull();
});
