/** Every state of the sidebar, and every action, against the scripted server: node sidebar.mjs URL [FOLDER FOR PICTURES] */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { say, asked, calls, questions } = scriptedServer(url);

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
      {
        change: 'priority_class',
        to: 'train',
        message: 'Ask with priority train: it may run over quota.'
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
  const shows = (what, where = panel) => where.getByText(what).first().waitFor();
  await lab.showPanel();

  // empty, and labelled
  await shows('simulated');
  await shows(/No notebook of yours runs/);

  // every kind of kernel
  await say({ status: { kernels: [kernel({ utilization: 0.37 }), waiting, asleep, none] } });
  await shows('bursting', lab.card('a.ipynb'));
  await shows('70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed', lab.card('a.ipynb'));
  await shows('½ GPU · up to 1 GPU · vision · n0 · GPU 1 (planned: GPU 0)', lab.card('a.ipynb'));
  await shows(/cannot go over it/, lab.card('b.ipynb'));
  await shows('Place in the queue: 3', lab.card('b.ipynb'));
  await shows(/Ask with priority train/, lab.card('b.ipynb'));
  await shows('suspended', lab.card('c.ipynb'));
  await shows('70 GiB saved in host memory · 40 GiB guaranteed', lab.card('c.ipynb'));
  await shows('no GPU', lab.card('d.ipynb'));
  await shows('GPU 37 % busy with it', lab.card('a.ipynb'));
  await shows(/A cell waits. Waiting for room/, lab.card('c.ipynb'));
  if (shots) await lab.shot('states', shots);

  // what would start now instead, asked when somebody wants to know, and taken by one press
  await questions();
  await say({
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
  await shows('0.5 GPU would start now in node pool t4.', lab.card('b.ipynb'));
  assert.deepEqual((await questions()).at(-1), { gpu: 2, project: 'vision' });
  if (shots) await lab.shot('what-if', shots);
  await lab.card('b.ipynb').getByRole('button', { name: 'Ask for this instead' }).click();
  await until('a request', async () =>
    (await calls()).some(
      call =>
        call.path === 'kernels/k2' && call.body.gpu === 0.5 && call.body.node_pools[0] === 't4'
    )
  );
  await say({ what_if: { starts_now: true, node: 'n0' } });

  // my projects, each as a bar that explains itself; what the node cannot do, and why
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
  await say({
    tables: {
      projects: [
        project(),
        project({ name: 'other', member: false }),
        project({ name: 'language', gpu_allocated: 0, gpu_requested: 0, gpu_fair_share: 0 })
      ]
    }
  });
  await say({
    status: {
      kernels: [
        kernel({ utilization: 0.37 }),
        { ...waiting, state: 'granted', reason: null },
        asleep,
        none
      ]
    }
  }); // a change of mine asks anew
  const vision = panel.locator('[data-project=vision]');
  await shows('1½ GPUs held', vision);
  for (const words of ['quota 1', 'fair share 1½', '½ over quota', '2 more wanted'])
    await shows(words, vision);
  const meter = panel.getByRole('meter', { name: 'GPUs of project vision' });
  assert.match(
    await meter.getAttribute('aria-valuetext'),
    /holds 1½ GPUs.*½ GPU is over quota: borrowed/
  );
  assert.equal(
    await panel.locator('[data-project=other]').count(),
    0,
    'only projects that I am in'
  );
  await say({
    status: {
      kernels: [kernel(), waiting, asleep, none],
      tiers: ['observe', 'suspend'],
      tier_problems: { limit: 'driver 570 is older than 615' }
    }
  });
  await panel.getByText('This node').click();
  await shows('Not here: driver 570 is older than 615');

  // the keyboard stays where it is when a button becomes another one
  await button('a.ipynb', 'Pin').focus();
  await page.keyboard.press('Enter');
  await say({ status: { kernels: [kernel({ pinned: true }), waiting, asleep, none] } });
  await button('a.ipynb', 'Unpin').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Unpin');
  await page.keyboard.press('Tab');
  await page.waitForFunction(() => document.activeElement.textContent === 'Release');
  await say({
    status: { kernels: [{ ...none, kernel_id: 'k1', name: 'work/a.ipynb' }, waiting, asleep, none] }
  });
  await button('a.ipynb', 'Request a GPU share…').waitFor();
  assert.equal(
    await page.evaluate(() => document.activeElement.textContent),
    'Request a GPU share…'
  );
  await say({ status: { kernels: [kernel(), waiting, asleep, none] } });
  await button('a.ipynb', 'Pin').waitFor();

  // every action, by its button
  await calls();
  await button('a.ipynb', 'Suspend').click();
  await button('a.ipynb', 'Pin').click();
  await button('c.ipynb', 'Unpin').click();
  await button('c.ipynb', 'Resume').click();
  await button('b.ipynb', 'Stop waiting').click();
  const made = [];
  await until(
    'five calls',
    async () => made.push(...(await calls()).map(call => `${call.method} ${call.path}`)) === 5
  );
  assert.deepEqual(made, [
    'POST kernels/k1/actions/suspend',
    'POST kernels/k1/actions/pin',
    'POST kernels/k3/actions/unpin',
    'POST kernels/k3/actions/resume',
    'DELETE kernels/k2'
  ]);

  // a request by keyboard alone; the refusal stands at its field; a good one closes the form
  await say({
    refusal: { code: 'invalid', message: 'There is no project "language".', field: 'project' }
  });
  await button('d.ipynb', 'Request a GPU share…').focus();
  await page.keyboard.press('Enter');
  const form = lab.card('d.ipynb').getByRole('form');
  const focused = label =>
    page.waitForFunction(
      label =>
        [
          document.activeElement.textContent,
          document.activeElement.labels?.[0]?.textContent
        ].includes(label),
      label
    );
  await focused('Share');
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
  await form.getByText('There is no project').nth(1).waitFor({ state: 'detached' }); // said once
  if (shots) await lab.shot('refused', shots);
  await form.getByLabel('Share', { exact: true }).press('Escape');
  await lab.card('d.ipynb').getByRole('alert').waitFor({ state: 'detached' });
  await page.keyboard.press('Enter');
  await form.getByLabel('Project').selectOption('language');
  await say({});
  await form.getByLabel('Share', { exact: true }).fill('0.25 ');
  await form.getByText('Would start now, on node n0.').waitFor();
  await form.getByRole('button', { name: 'Request' }).click();
  await form.waitFor({ state: 'detached' });
  assert.deepEqual((await calls()).at(-1), {
    method: 'POST',
    path: 'kernels/k4',
    body: { gpu: '0.25', project: 'language' }
  });

  // a notice counts down, in the panel and as a notification; it goes when it is withdrawn
  const deadline = new Date(Date.now() + 20_000).toISOString();
  await say({ status: { kernels: [kernel({ notice_deadline: deadline }), waiting] } });
  await shows(/will be taken back in 1\d s/, lab.card('a.ipynb'));
  const toast = page.locator('.Toastify__toast', {
    hasText: 'a.ipynb: GPU memory will be taken back'
  });
  await toast.waitFor();
  if (shots) await lab.shot('notice', shots);
  await say({ status: { kernels: [kernel(), waiting] } });
  await toast.waitFor({ state: 'detached' });

  // what happened unasked is told once
  const moved = {
    time: new Date().toISOString(),
    kind: 'moved',
    message: 'Moved to GPU 1 with everything it held.'
  };
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
