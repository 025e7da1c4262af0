/** Every state of the sidebar, and every action, against the scripted server: node states.mjs URL [FOLDER FOR PICTURES] */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const server = new URL(url).origin;
const headers = { Authorization: 'token scripted' };

const say = body => fetch(`${server}/gpushare/script`, { method: 'POST', headers, body: JSON.stringify(body) });
const asked = async () => (await fetch(`${server}/gpushare/script`, { headers })).json();
const calls = async () => (await asked()).calls;

/** Wait until the server sees what is expected of the page. */
async function until(what, check) {
  for (let tries = 0; tries < 100; tries++) {
    if (await check()) return;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  assert.fail(what);
}

const kernel = changes => ({
  kernel_id: 'k1', name: 'work/a.ipynb', state: 'attached', project: 'vision', request: { gpu: 0.5, gpu_memory_mib: null },
  limit: { gpu: 1, gpu_memory_mib: null }, node: 'n0', planned_gpu: 'SIM-GPU-n0-0', gpu_uuid: 'SIM-GPU-n0-1', simulated: true, pinned: false,
  busy: true, memory_mib: { guaranteed: 40960, used: 71680, borrowed: 30720 }, gpu_memory_total_mib: 81920, reason: null, queue_position: null,
  notice_deadline: null, generation: 1, workload: 'w1', events: [], ...changes
});
const waiting = kernel({
  kernel_id: 'k2', name: 'b.ipynb', state: 'pending', node: null, planned_gpu: null, gpu_uuid: null, gpu_memory_total_mib: 0,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 }, queue_position: 3, request: { gpu: 2, gpu_memory_mib: null }, limit: { gpu: null, gpu_memory_mib: null },
  reason: {
    code: 'NonPreemptibleOverQuota', message: 'Project vision has 1 GPU of quota and uses 1; a non-preemptible workload cannot go over it.',
    numbers: { requested: 2, quota: 1 }, helps: [{ change: 'priority_class', to: 'train', message: 'Ask with priority train: it may run over quota.' }]
  }
});
const asleep = kernel({
  kernel_id: 'k3', name: 'c.ipynb', state: 'suspended', pinned: true,
  memory_mib: { guaranteed: 40960, used: 0, borrowed: 0 },
  events: [{ time: '2026-01-01T10:00:00.000Z', kind: 'suspended', message: 'Saved 70 GiB to host memory for d.ipynb, which needs a whole GPU.' }]
});
const none = kernel({ kernel_id: 'k4', name: 'd.ipynb', state: 'detached', request: { gpu: null, gpu_memory_mib: null }, limit: { gpu: null, gpu_memory_mib: null },
  node: null, planned_gpu: null, gpu_uuid: null, project: null, memory_mib: { guaranteed: 0, used: 0, borrowed: 0 }, gpu_memory_total_mib: 0 });

await inLab(url, async lab => {
  const { panel, page } = lab;
  const button = (name, label) => lab.card(name).getByRole('button', { name: label, exact: true });
  const shows = (what, where = panel) => where.getByText(what).first().waitFor();
  await lab.showPanel();

  // empty, and labelled
  await shows('simulated GPUs');
  await shows(/No notebook of yours runs/);

  // every kind of kernel
  await say({ status: { kernels: [kernel(), waiting, asleep, none] } });
  await shows('bursting', lab.card('a.ipynb'));
  await shows('70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed', lab.card('a.ipynb'));
  await shows('½ GPU · limit 1 GPU · vision · n0 · GPU 1 (planned: GPU 0)', lab.card('a.ipynb'));
  await shows(/cannot go over it/, lab.card('b.ipynb'));
  await shows('Place in the queue: 3', lab.card('b.ipynb'));
  await shows(/Ask with priority train/, lab.card('b.ipynb'));
  await shows('suspended', lab.card('c.ipynb'));
  await shows('no GPU', lab.card('d.ipynb'));
  if (shots) await lab.shot('states', shots);

  // every action, by its button
  await calls();
  await button('a.ipynb', 'Suspend').click();
  await button('a.ipynb', 'Pin').click();
  await button('c.ipynb', 'Unpin').click();
  await button('c.ipynb', 'Resume').click();
  await button('b.ipynb', 'Stop waiting').click();
  const made = [];
  await until('five calls', async () => made.push(...(await calls()).map(call => `${call.method} ${call.path}`)) === 5);
  assert.deepEqual(made, [
    'POST kernels/k1/actions/suspend', 'POST kernels/k1/actions/pin', 'POST kernels/k3/actions/unpin', 'POST kernels/k3/actions/resume', 'DELETE kernels/k2'
  ]);

  // a request by keyboard alone; the refusal stands at its field; a good one closes the form
  await say({ refusal: { code: 'invalid', message: 'There is no project "language".', field: 'project' } });
  await button('d.ipynb', 'Request a GPU share…').focus();
  await page.keyboard.press('Enter');
  const form = lab.card('d.ipynb').getByRole('form');
  await form.getByLabel('Share', { exact: true }).fill('0.25');
  await form.getByLabel('Project').selectOption('language');
  await form.getByLabel('Share', { exact: true }).press('Enter');
  await form.getByRole('alert').getByText('There is no project "language".').waitFor();
  if (shots) await lab.shot('refused', shots);
  await say({});
  await form.getByRole('button', { name: 'Request' }).click();
  await form.waitFor({ state: 'detached' });
  assert.deepEqual((await calls()).at(-1), { method: 'POST', path: 'kernels/k4', body: { gpu: '0.25', project: 'language' } });

  // a notice counts down, in the panel and as a notification; it goes when it is withdrawn
  const deadline = new Date(Date.now() + 20_000).toISOString();
  await say({ status: { kernels: [kernel({ notice_deadline: deadline }), waiting] } });
  await shows(/will be taken back in 1\d s/, lab.card('a.ipynb'));
  const toast = page.locator('.Toastify__toast', { hasText: 'a.ipynb: GPU memory will be taken back' });
  await toast.waitFor();
  if (shots) await lab.shot('notice', shots);
  await say({ status: { kernels: [kernel(), waiting] } });
  await toast.waitFor({ state: 'detached' });

  // what happened unasked is told once
  const moved = { time: new Date().toISOString(), kind: 'moved', message: 'Moved to GPU 1 with everything it held.' };
  await say({ status: { kernels: [kernel({ events: [moved] }), waiting] } });
  await page.locator('.Toastify__toast', { hasText: 'a.ipynb: Moved to GPU 1' }).waitFor();

  // the server goes: what is shown is said to be old; it comes back by itself
  await say({ down: true });
  await shows(/Below is what was true at/);
  if (shots) await lab.shot('stale', shots);
  await say({ status: { kernels: [] } });
  await shows(/No notebook of yours runs/);
  assert.equal(await panel.getByText(/Below is what was true at/).count(), 0);

  // it asked for what it had missed, not for everything
  assert.match((await calls()).findLast(call => call.method === 'WS').since, /^\d+$/);

  // a page that nobody sees holds no stream; it comes back when it is seen
  const hide = hidden =>
    page.evaluate(hidden => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await hide(true);
  await until('no stream while hidden', async () => (await asked()).streams === 0);
  await hide(false);
  await until('a stream when seen again', async () => (await asked()).streams === 1);

  // the scheduler is away, the server is not
  await say({ status: { scheduler: { reachable: false, version: null, problem: null } } });
  await shows(/The scheduler does not answer/);

  assert.deepEqual(lab.complaints, []);
});
