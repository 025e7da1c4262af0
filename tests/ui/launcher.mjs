/**
 * New notebooks with a share, and the status bar, with the scripted server.
 * Usage: node launcher.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure, calls, whatIfRequests } = scriptedServer(url);
const NOTHING = {
  request: { gpu: null, gpu_memory_mib: null },
  workload: null,
  state: 'detached',
  events: []
};
const project = {
  name: 'vision',
  department: 'research',
  pool: 'default',
  member: true,
  gpu_quota: 1,
  gpu_limit: null,
  gpu_fair_share: 1,
  gpu_allocated: 0.5,
  gpu_requested: 0.5
};

await inLab(url, async lab => {
  const { page } = lab;
  await configure({
    status: { kernels: [], scheduler: { reachable: true, version: '1', problem: null } },
    tables: { projects: [project] }
  });
  const newest = () =>
    page.evaluate(() => {
      const panel = window.jupyterapp.shell.currentWidget;
      const { context, sessionContext } = panel ?? {};
      const id = sessionContext?.session?.kernel?.id;
      return id === undefined
        ? null
        : {
            id,
            path: context.path,
            kept: context.model.sharedModel.getMetadata('gpushare') ?? null
          };
    });
  /** The server reports the new notebook's kernel; returns the notebook's request. */
  const asksFor = async other => {
    let made = null;
    await until(
      'a notebook with a kernel',
      async () => (made = await newest()) !== null && made.kept !== null && made.id !== other
    );
    await calls();
    await configure({
      status: { kernels: [kernel({ kernel_id: made.id, name: made.path, ...NOTHING })] }
    });
    let asked;
    await until(
      'its request',
      async () =>
        (asked = (await calls()).find(call => call.path === `kernels/${made.id}`)) !== undefined
    );
    assert.deepEqual(asked.body, made.kept);
    return { ...asked.body, id: made.id };
  };

  // a launcher card
  const card = page.locator('.jp-LauncherCard:visible', { hasText: 'Python 3 · ½ GPU' });
  await card.waitFor();
  if (shots) await lab.shot('launcher', shots);
  await card.click();
  const first = await asksFor();
  assert.equal(first.preset, '½ GPU');

  // the dialog by keyboard: presets, expected start, project
  await whatIfRequests();
  await configure({
    what_if: {
      starts_now: false,
      displaces: [],
      reason: { code: 'WaitingForFreeGPU', message: 'Needs 2 GPUs in pool "default"; 1 is free.' },
      alternatives: [{ request: { gpu: 0.5 }, message: '0.5 GPU would start now.' }]
    }
  });
  await lab.command('launcher:create');
  await page.locator('.jp-LauncherCard:visible', { hasText: 'GPU share…' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.locator('.jp-Dialog', { hasText: 'New notebook with a GPU share' });
  await page.waitForFunction(
    () =>
      document.activeElement?.getAttribute('aria-pressed') === 'true' &&
      document.activeElement.textContent.startsWith('½ GPU')
  );

  // amounts are checked while typing, without requests that the server refuses
  const refused = [];
  page.on('response', response => response.status() === 400 && refused.push(response.url()));
  const share = dialog.getByLabel('Share', { exact: true });
  await share.fill('1.5');
  await dialog.getByRole('alert').getByText('Above 1 GPU only whole numbers').waitFor();
  await dialog.getByLabel('Unit').selectOption('gpu_memory');
  await share.fill('20');
  await dialog.getByRole('alert').getByText('A size needs a unit: 20GiB or 20MiB.').waitFor();
  await dialog.getByRole('button', { name: 'Use 20MiB' }).waitFor();
  await dialog.getByRole('button', { name: 'Use 20GiB' }).press('Enter');
  assert.equal(await share.inputValue(), '20GiB');
  await dialog.getByRole('alert').waitFor({ state: 'detached' });
  await until('the size is checked', async () =>
    (await whatIfRequests()).some(asked => asked.gpu_memory === '20GiB')
  );
  assert.deepEqual(refused, []);
  const focusIsInForm = () =>
    page.waitForFunction(() => document.activeElement?.closest('form') !== null);
  await focusIsInForm(); // the button is gone
  await dialog.getByRole('button', { name: 'large' }).focus();
  await page.keyboard.press('Enter');
  await dialog.getByText('Would wait. Needs 2 GPUs in pool "default"; 1 is free.').waitFor();
  await until('it is asked about', async () =>
    (await whatIfRequests()).some(asked => asked.preset === 'large')
  );
  await dialog.getByText('quota 1').waitFor();
  if (shots) await lab.shot('dialog', shots);
  await configure({ what_if: { starts_now: true, node: 'n0' } });
  await dialog.getByRole('button', { name: 'Request this instead' }).click();
  await dialog.getByText('Would start now on node n0.').waitFor();
  await focusIsInForm();
  await dialog.getByLabel('Project', { exact: true }).selectOption('language');

  // a request that can never start is not sent, unless it is queued anyway
  await configure({
    what_if: {
      starts_now: false,
      refused: true,
      reason: { code: 'NeverFits', message: 'The largest node has 2 GPUs.' }
    }
  });
  await share.fill('3');
  await dialog.getByLabel('Unit').selectOption('gpu');
  await share.fill('3');
  await dialog.getByText('The largest node has 2 GPUs.').waitFor();
  await share.press('Enter');
  await dialog.getByLabel('Queue anyway').check();
  await until('it is asked about', async () =>
    (await whatIfRequests()).some(asked => asked.queue_anyway === true && asked.gpu === '3')
  );
  await configure({ what_if: { starts_now: true, node: 'n0', refused: false } });
  await share.fill('0.5');
  await dialog.getByText('Would start now on node n0.').waitFor();
  assert.equal(await dialog.getByLabel('Queue anyway').count(), 0);

  // an invalid request creates no notebook; the error is at its field
  await configure({
    refusal: { code: 'invalid', message: 'gpu must be a number of GPUs.', field: 'gpu' }
  });
  await dialog.getByLabel('Share', { exact: true }).press('Enter');
  await dialog.getByRole('alert').getByText('gpu must be a number of GPUs.').waitFor();
  assert.equal((await newest())?.id ?? first.id, first.id);
  await configure({});
  await dialog.getByLabel('Share', { exact: true }).press('Enter');
  await dialog.waitFor({ state: 'detached' });
  const second = await asksFor(first.id);
  assert.equal(second.gpu, '0.5');
  assert.equal(second.project, 'language');

  // cancelling creates nothing
  void lab.command('gpushare:create-notebook-dialog').catch(() => undefined);
  await dialog.getByRole('form').getByRole('button', { name: 'Cancel' }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.equal((await newest()).id, second.id);

  // the status bar: total share and use; a click shows the sidebar
  await configure({
    status: {
      kernels: [
        kernel({}),
        kernel({ kernel_id: 'k2', name: 'b.ipynb', request: { gpu: 1, gpu_memory_mib: null } }),
        kernel({ kernel_id: 'k3', state: 'pending' })
      ]
    }
  });
  const item = page.locator('.jp-GpuShare-status-button');
  await item.getByText('1½ GPUs · 140 GiB · 1 waiting').waitFor();
  assert.match(await item.getAttribute('title'), /a\.ipynb: ½ GPU · 70 GiB \(30 GiB borrowed\)/);
  assert.equal(await lab.panel.isVisible(), false);
  await item.focus();
  await page.keyboard.press('Enter');
  await lab.panel.waitFor();

  // the setting that hides the cards
  await page.evaluate(() =>
    window.jupyterapp.serviceManager.settings.save(
      'jupyter-gpushare:plugin',
      '{"launcherCards": false}'
    )
  );
  await page.reload();
  await page.waitForFunction(() => window.jupyterapp !== undefined);
  await page.evaluate(() => window.jupyterapp.restored);
  await lab.command('launcher:create');
  await page
    .locator('.jp-LauncherCard:visible', { hasText: 'Python 3 (ipykernel)' })
    .first()
    .waitFor();
  await page.locator('.jp-GpuShare-status-button').getByText('140 GiB').waitFor();
  assert.equal(await page.locator('.jp-LauncherCard', { hasText: '½ GPU' }).count(), 0);
  assert.deepEqual(lab.pageErrors, []);
});
