import { gpuName, kernelName, memoryText, secondsLeft, shareText } from '../format';
import { countdown, messageOf, problemText, sentence } from '../messages';
import { english, event, kernel } from './fixtures';

test.each([
  [0, '0 MiB'],
  [512, '512 MiB'],
  [1536, '1.5 GiB'],
  [81920, '80 GiB']
])('%d MiB reads %s', (mib, text) => {
  expect(memoryText(mib)).toBe(text);
});

test.each([
  [{ gpu: 0.5, gpu_memory_mib: null }, '½ GPU'],
  [{ gpu: 0.3, gpu_memory_mib: null }, '0.3 GPU'],
  [{ gpu: 2, gpu_memory_mib: null }, '2 GPUs'],
  [{ gpu: null, gpu_memory_mib: 20480 }, '20 GiB'],
  [{ gpu: null, gpu_memory_mib: null }, null]
])('%j reads %s', (share, text) => {
  expect(shareText(share)).toBe(text);
});

test('a kernel is named after its notebook, or by its id without one', () => {
  expect(kernelName(kernel({ name: 'deep/er/train.ipynb' }))).toBe('train.ipynb');
  expect(kernelName(kernel({ name: '', kernel_id: '0123456789' }))).toBe('kernel 01234567');
});

test.each([
  ['GPU-8f3a2b1c-0000', '8f3a2b1c'],
  ['SIM-GPU-n0-1', '1'],
  ['SIM-GPU-a-long-node-name-12', '12'],
  ['n0/0', '0']
])('the GPU %s is called %s', (id, name) => {
  expect(gpuName(id)).toBe(name);
});

test('seconds left are whole and never negative', () => {
  expect(secondsLeft('2026-01-01T00:00:10Z', Date.parse('2026-01-01T00:00:00.5Z'))).toBe(10);
  expect(secondsLeft('2026-01-01T00:00:10Z', Date.parse('2026-01-01T00:01:00Z'))).toBe(0);
});

test('only changes without a request of the owner are notifications', () => {
  expect(messageOf({ kernel: kernel(), event: event('moved', 'to GPU 1') }, english)).toEqual({
    tone: 'info',
    text: 'a.ipynb: to GPU 1'
  });
  expect(
    messageOf({ kernel: kernel(), event: event('granted', 'half a GPU') }, english)
  ).toBeNull();
});

test("the notification of a kill fits into JupyterLab's limit", () => {
  const message = messageOf(
    { kernel: kernel(), event: event('killed', 'why '.repeat(100)) },
    english
  );
  expect(message?.tone).toBe('error');
  expect(message?.text).toContain('lost');
  expect(message?.text.length).toBeLessThan(140);
});

test('a countdown ends with its deadline, and with the notice', () => {
  const noticed = kernel({ notice_deadline: '2026-01-01T00:00:10Z' });
  expect(countdown(noticed, Date.parse('2026-01-01T00:00:00Z'), english)).toBe(
    'a.ipynb: GPU memory will be reclaimed in 10 s.'
  );
  expect(countdown(noticed, Date.parse('2026-01-01T00:00:10Z'), english)).toBeNull();
  expect(countdown(kernel(), 0, english)).toBeNull();
});

describe('messages of the server', () => {
  test.each([
    ['the scheduler cannot be reached', 'The scheduler cannot be reached.'],
    ['There is no project "x".', 'There is no project "x".'],
    ['Would that do?', 'Would that do?'],
    [' ', '']
  ])('%j is a sentence', (said, read) => {
    expect(sentence(said)).toBe(read);
    expect(problemText(said, english)).toBe(read);
  });
});
