/**
 * Every state and action of the sidebar, with the scripted server.
 * Usage: node sidebar.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure, asked, calls, whatIfRequests } = scriptedServer(url);

const waiting = kernel({
  kernel_id: 'k2',
  name: 'b.ipynb',
  state: 'pending',
  node: null,
  planned_gpu: null,
  gpu_uuid: null,
  gpu_memory_total_mib: 0,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
  queue_position: 3,
  request: { gpu: 2, gpu_memory_mib: null },
  limit: { gpu: null, gpu_memory_mib: null },
  reason: {
    code: 'NonPreemptibleOverQuota',
    message:
      'Project vision has 1 GPU of quota and uses 1; a non-preemptible workload cannot go over it.',
    numbers: { requested: 2, quota: 1 },
    helps: [
      { change: 'release', to: 'k3', message: 'c.ipynb is idle and holds ½ GPU.' },
      {
        change: 'priority_class',
        to: 'train',
        message: 'Use priority train: it may run over quota.'
      }
    ]
  }
});
const asleep = kernel({
  kernel_id: 'k3',
  name: 'c.ipynb',
  state: 'suspended',
  pinned: true,
  cell_waits:
    'Waiting for room for 70 GiB of saved memory: a running notebook is inside its share.',
  memory_mib: { guaranteed: 40960, used: 0, borrowed: 0 },
  saved_mib: 71680,
  events: [
    {
      time: '2026-01-01T10:00:00.000Z',
      kind: 'suspended',
      message: 'Saved 70 GiB to host memory for d.ipynb, which needs a whole GPU.'
    }
  ]
});
const none = kernel({
  kernel_id: 'k4',
  name: 'd.ipynb',
  state: 'detached',
  request: { gpu: null, gpu_memory_mib: null },
  limit: { gpu: null, gpu_memory_mib: null },
  node: null,
  planned_gpu: null,
  gpu_uuid: null,
  project: null,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
  gpu_memory_total_mib: 0
});

await inLab(url, async lab => {
  const { panel, page } = lab;
  const button = (name, label) => lab.card(name).getByRole('button', { name: label, exact: true });
  const expectText = (what, where = panel) => where.getByText(what).first().waitFor();
  await lab.showPanel();

  // no kernels
  await expectText('simulated');
  await expectText(/No running notebooks/);

  // every state
  await configure({ status: { kernels: [kernel({ utilization: 0.37 }), waiting, asleep, none] } });
  await expectText('running', lab.card('a.ipynb'));
  await expectText(
    '70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed',
    lab.card('a.ipynb')
  );
  await expectText(
    '½ GPU · up to 1 GPU · vision · n0 · GPU 1 (planned: GPU 0)',
    lab.card('a.ipynb')
  );
  await expectText(/cannot go over it/, lab.card('b.ipynb'));
  await expectText('Queue position: 3', lab.card('b.ipynb'));
  await expectText(/Use priority train/, lab.card('b.ipynb'));
  await expectText('suspended', lab.card('c.ipynb'));
  await expectText('70 GiB saved in host memory · 40 GiB guaranteed', lab.card('c.ipynb'));
  await expectText('no GPU', lab.card('d.ipynb'));
  await expectText('GPU utilization 37 %', lab.card('a.ipynb'));
  await expectText(/A cell is waiting. Waiting for room/, lab.card('c.ipynb'));
  if (shots) await lab.shot('states', shots);

  // a pending change: the current share stays
  const change = {
    workload: 'w9',
    request: { gpu: 1 },
    queue_position: 4,
    reason: { code: 'WaitingForFreeGPU', message: 'No GPU is free.', numbers: {}, helps: [] }
  };
  await configure({
    status: {
      kernels: [kernel({ utilization: 0.37, pending_change: change }), waiting, asleep, none]
    }
  });
  await expectText(/Change to 1 GPU: waiting. The current share stays/, lab.card('a.ipynb'));
  await expectText('No GPU is free.', lab.card('a.ipynb'));
  await expectText('Queue position: 4', lab.card('a.ipynb'));
  await expectText('running', lab.card('a.ipynb'));
  await configure({ status: { kernels: [kernel({ utilization: 0.37 }), waiting, asleep, none] } });

  // alternatives, requested when opened; a button requests one
  await whatIfRequests();
  await configure({
    what_if: {
      starts_now: false,
      alternatives: [
        {
          request: { gpu: 0.5, node_pools: ['t4'] },
          message: '0.5 GPU would start now in node pool t4.'
        }
      ]
    }
  });
  await lab.card('b.ipynb').getByText('What would start now?').click();
  await expectText('0.5 GPU would start now in node pool t4.', lab.card('b.ipynb'));
  assert.deepEqual((await whatIfRequests()).at(-1), { gpu: 2, project: 'vision' });
  if (shots) await lab.shot('what-if', shots);
  await lab.card('b.ipynb').getByRole('button', { name: 'Request this instead' }).click();
  await until('a request', async () =>
    (await calls()).some(
      call =>
        call.path === 'kernels/k2' && call.body.gpu === 0.5 && call.body.node_pools[0] === 't4'
    )
  );
  await configure({ what_if: { starts_now: true, node: 'n0' } });

  // projects, and the tiers of the node
  const project = changes => ({
    name: 'vision',
    department: 'research',
    pool: 'default',
    member: true,
    gpu_quota: 1,
    gpu_limit: null,
    gpu_fair_share: 1.5,
    gpu_allocated: 1.5,
    gpu_requested: 3.5,
    ...changes
  });
  await configure({
    tables: {
      projects: [
        project(),
        project({ name: 'other', member: false }),
        project({ name: 'language', gpu_allocated: 0, gpu_requested: 0, gpu_fair_share: 0 })
      ]
    }
  });
  await configure({
    status: {
      kernels: [
        kernel({ utilization: 0.37 }),
        { ...waiting, state: 'granted', reason: null },
        asleep,
        none
      ]
    }
  }); // a change of my kernels refreshes the projects
  const vision = panel.locator('[data-project=vision]');
  await expectText('1½ GPUs allocated', vision);
  for (const words of ['quota 1', 'fair share 1½', '½ over quota', '2 more requested'])
    await expectText(words, vision);
  const meter = panel.getByRole('meter', { name: 'GPUs of project vision' });
  assert.match(await meter.getAttribute('aria-valuetext'), /1½ GPUs allocated.*½ GPU over quota/);
  assert.equal(
    await panel.locator('[data-project=other]').count(),
    0,
    'only projects that I am in'
  );
  await configure({
    status: {
      kernels: [kernel(), waiting, asleep, none],
      tiers: ['observe', 'suspend'],
      tier_problems: { limit: 'driver 570 is older than 615' }
    }
  });
  await panel.getByText('This node').click();
  await expectText('Not available: driver 570 is older than 615');

  // the focus stays when a button changes into another
  await button('a.ipynb', 'Pin').focus();
  await page.keyboard.press('Enter');
  await configure({ status: { kernels: [kernel({ pinned: true }), waiting, asleep, none] } });
  await button('a.ipynb', 'Unpin').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Unpin');
  await page.keyboard.press('Tab');
  await page.waitForFunction(() => document.activeElement.textContent === 'Release');
  await configure({
    status: { kernels: [{ ...none, kernel_id: 'k1', name: 'work/a.ipynb' }, waiting, asleep, none] }
  });
  await button('a.ipynb', 'Request a GPU share…').waitFor();
  assert.equal(
    await page.evaluate(() => document.activeElement.textContent),
    'Request a GPU share…'
  );
  await configure({ status: { kernels: [kernel(), waiting, asleep, none] } });
  await button('a.ipynb', 'Pin').waitFor();

  // every action
  await calls();
  await button('a.ipynb', 'Suspend').click();
  await button('a.ipynb', 'Pin').click();
  await button('c.ipynb', 'Unpin').click();
  await button('c.ipynb', 'Resume').click();
  await button('b.ipynb', 'Release c.ipynb').click(); // a suggestion
  await button('b.ipynb', 'Run without a GPU').click();
  await button('b.ipynb', 'Stop waiting').click();
  const made = [];
  await until(
    'seven calls',
    async () => made.push(...(await calls()).map(call => `${call.method} ${call.path}`)) === 7
  );
  assert.deepEqual(made, [
    'POST kernels/k1/actions/suspend',
    'POST kernels/k1/actions/pin',
    'POST kernels/k3/actions/unpin',
    'POST kernels/k3/actions/resume',
    'DELETE kernels/k3',
    'POST kernels/k2/actions/run-without-gpu',
    'DELETE kernels/k2'
  ]);

  // a request by keyboard: an error is at its field; an accepted request closes the form
  await configure({
    refusal: { code: 'invalid', message: 'There is no project "language".', field: 'project' }
  });
  await button('d.ipynb', 'Request a GPU share…').focus();
  await page.keyboard.press('Enter');
  const form = lab.card('d.ipynb').getByRole('form');
  const focused = text =>
    page.waitForFunction(text => document.activeElement.textContent.startsWith(text), text);
  await focused('½ GPU');
  await page.keyboard.press('Escape');
  await form.waitFor({ state: 'detached' });
  await focused('Request a GPU share…');
  await page.keyboard.press('Enter');
  await until('what to expect is said', async () =>
    (await form.getByRole('status').textContent()).includes('There is no project')
  );
  await form.getByLabel('Share', { exact: true }).fill('0.25');
  await form.getByLabel('Project').selectOption('language');
  await form.getByLabel('Share', { exact: true }).press('Enter');
  await form.getByRole('alert').getByText('There is no project "language".').waitFor();
  await form.getByText('There is no project').nth(1).waitFor({ state: 'detached' }); // shown once
  if (shots) await lab.shot('refused', shots);
  await form.getByLabel('Share', { exact: true }).press('Escape');
  await lab.card('d.ipynb').getByRole('alert').waitFor({ state: 'detached' });
  await page.keyboard.press('Enter');
  await form.getByLabel('Project').selectOption('language');
  await configure({});
  await form.getByLabel('Share', { exact: true }).fill('0.25 ');
  await form.getByText('Would start now on node n0.').waitFor();
  await form.getByRole('button', { name: 'Request' }).click();
  await form.waitFor({ state: 'detached' });
  assert.deepEqual((await calls()).at(-1), {
    method: 'POST',
    path: 'kernels/k4',
    body: { gpu: '0.25', project: 'language' }
  });

  // a notice counts down in panel and notification, and ends when it is withdrawn
  const deadline = new Date(Date.now() + 20_000).toISOString();
  await configure({ status: { kernels: [kernel({ notice_deadline: deadline }), waiting] } });
  await expectText(/will be reclaimed in 1\d s/, lab.card('a.ipynb'));
  const toast = page.locator('.Toastify__toast', {
    hasText: 'a.ipynb: GPU memory will be reclaimed'
  });
  await toast.waitFor();
  if (shots) await lab.shot('notice', shots);
  await configure({ status: { kernels: [kernel(), waiting] } });
  await toast.waitFor({ state: 'detached' });

  // an event is a notification once
  const moved = {
    time: new Date().toISOString(),
    kind: 'moved',
    message: 'Moved to GPU 1 with all of its memory.'
  };
  await configure({ status: { kernels: [kernel({ events: [moved] }), waiting] } });
  await page.locator('.Toastify__toast', { hasText: 'a.ipynb: Moved to GPU 1' }).waitFor();

  // the server is unavailable: stale data is marked, then live again
  await configure({ down: true });
  await expectText(/Last updated at/);
  if (shots) await lab.shot('stale', shots);
  await configure({ status: { kernels: [] } });
  await expectText(/No running notebooks/);
  assert.equal(await panel.getByText(/Last updated at/).count(), 0);

  // a restarted server with a new token: what to do, and where to log in
  const login = /gpushare\/api\/status/;
  const error = { code: 'logged-out', message: 'Forbidden' };
  await page.route(login, route => route.fulfill({ status: 403, json: { error } }));
  await configure({ down: true });
  await configure({});
  await expectText(/was restarted with a new token/);
  assert.match(
    await panel.getByRole('link', { name: 'Log in' }).getAttribute('href'),
    /^http.*\/login$|^\/login$/
  );
  await page.unroute(login);
  await panel.locator('[data-connection=live]').waitFor();

  // the stream resumed by revision
  assert.match((await calls()).findLast(call => call.method === 'WS').since, /^\d+$/);

  // a hidden page has no stream; a visible one reconnects
  const hide = hidden =>
    page.evaluate(hidden => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await hide(true);
  await until('no stream while hidden', async () => (await asked()).streams === 0);
  await hide(false);
  await until('a stream when seen again', async () => (await asked()).streams === 1);

  // a refused policy file: one heading, the lines without their folder, what to do
  const lines = [5, 7, 8, 9].map(number => `/etc/g/gpushare.yaml:${number}: projects: is unknown`);
  const refused = { reachable: true, version: '1', problem: lines.join('; ') };
  await configure({ status: { scheduler: { ...refused, policy_problems: lines } } });
  await expectText(/The changed policy file has errors\. The previous policy applies\./);
  await expectText(/gpushare\.yaml:5: projects: is unknown/);
  await expectText(/1 more error/);
  await expectText(/Correct and save the file/);
  assert.equal(await panel.getByText('/etc/g').count(), 0);
  assert.equal(await panel.getByText('gpushare.yaml:9').count(), 0);
  if (shots) await lab.shot('policy-refused', shots);

  // the scheduler is unavailable
  await configure({ status: { scheduler: { reachable: false, version: null, problem: null } } });
  await expectText(/The scheduler does not respond/);

  assert.deepEqual(lab.pageErrors, []);
});
