/**
 * The notebook's own control, notices and saved share.
 * Usage: node notebook.mjs URL [SCREENSHOT FOLDER]
 *
 * Runs against the scripted server with real kernels.
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure, calls } = scriptedServer(url);

const NONE = {
  request: { gpu: null, gpu_memory_mib: null },
  limit: { gpu: null, gpu_memory_mib: null },
  node: null,
  planned_gpu: null,
  gpu_uuid: null,
  project: null,
  workload: null,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
  gpu_memory_total_mib: 0,
  busy: false
};
const detached = (id, name, changes) =>
  kernel({ kernel_id: id, name, state: 'detached', ...NONE, ...changes });

await inLab(url, async lab => {
  const { page } = lab;
  const main = page.locator('.jp-NotebookPanel:visible');
  const control = main.locator('.jp-GpuShare-control-button');
  const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
  const toast = text => page.locator('.Toastify__toast', { hasText: text });
  const banner = main.locator('.jp-GpuShare-banner');
  const kernelId = name =>
    page.evaluate(name => {
      const panel = [...window.jupyterapp.shell.widgets('main')].find(
        widget => widget.context?.path === name
      );
      return panel?.sessionContext.session?.kernel?.id ?? null;
    }, name);
  const metadata = name =>
    page.evaluate(name => {
      const panel = [...window.jupyterapp.shell.widgets('main')].find(
        widget => widget.context?.path === name
      );
      return panel?.context.model.sharedModel.getMetadata('gpushare') ?? null;
    }, name);
  const expectText = text => control.getByText(text, { exact: true }).waitFor();
  const actionCalls = async () =>
    (await calls()).filter(call => call.method !== 'WS').map(call => `${call.method} ${call.path}`);

  // no share yet: requested by keyboard
  await lab.notebook('a.ipynb');
  const id = await kernelId('a.ipynb');
  await configure({ status: { kernels: [detached(id, 'a.ipynb')] } });
  await expectText('no GPU');
  await main.locator('.jp-Cell').first().click();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+Alt+g');
  await popover.waitFor();
  await popover.getByText('Would start now on node n0.').waitFor();
  await page.evaluate(() =>
    document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook').focus()
  ); // any other widget may have taken the focus
  await page.keyboard.press('Escape');
  await popover.waitFor({ state: 'detached' });
  await main.locator('.jp-GpuShare-control-button').click();
  await popover.waitFor();
  await lab.launcher(); // another tab: the popover closes
  await popover.waitFor({ state: 'detached' });
  await lab.front('a.ipynb');
  await main.locator('.jp-Cell').first().click();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+Alt+g');
  await popover.waitFor();
  if (shots) await lab.shot('control-request', shots);
  while (
    !(await popover
      .getByRole('button', { name: '½ GPU' })
      .evaluate(node => node === document.activeElement))
  )
    await page.keyboard.press('Tab');
  await page.keyboard.press('Space');
  while (
    !(await popover
      .getByRole('button', { name: 'Request', exact: true })
      .evaluate(node => node === document.activeElement))
  )
    await page.keyboard.press('Tab');
  await calls();
  await page.keyboard.press('Enter');
  await until('the request', async () => (await metadata('a.ipynb')) !== null);
  assert.deepEqual(await actionCalls(), [`POST kernels/${id}`]);
  const chosen = { preset: '½ GPU', gpu: '0.5', project: 'vision' };
  assert.deepEqual(await metadata('a.ipynb'), chosen, 'the notebook remembers');

  // the share in the toolbar; Escape returns the focus
  const mine = changes => kernel({ kernel_id: id, name: 'a.ipynb', ...changes });
  await configure({ status: { kernels: [mine({})] } });
  await expectText('½ GPU · 70 GiB (30 GiB borrowed)');
  await popover.getByText('70 GiB of 80 GiB used').waitFor();
  if (shots) await lab.shot('control', shots);
  await page.keyboard.press('Escape');
  await popover.waitFor({ state: 'detached' });
  assert.equal(await control.evaluate(node => node === document.activeElement), true);

  // a waiting cell, and why
  await configure({
    status: {
      kernels: [
        mine({
          cell_waits: 'Waiting for your share of the GPU: a running notebook is inside its share.'
        })
      ]
    }
  });
  await expectText('½ GPU · cell waiting');
  assert.match(await control.getAttribute('title'), /a running notebook is inside its share/);

  // a notice with countdown and actions; no notification while the notebook is visible
  const notice = {
    time: new Date().toISOString(),
    kind: 'notice',
    message:
      '30 GiB of GPU memory will be reclaimed in 60 s: a workload of project language needs its share.'
  };
  await configure({
    status: {
      kernels: [
        mine({ notice_deadline: new Date(Date.now() + 60_000).toISOString(), events: [notice] })
      ]
    }
  });
  await banner.getByText(/GPU memory will be reclaimed in \d\d s/).waitFor();
  await banner.getByText(/A workload of project language needs its share/).waitFor();
  await control.getByText(/½ GPU · reclaimed in \d\d s/).waitFor();
  assert.equal(await page.locator('.Toastify__toast', { hasText: 'reclaimed' }).count(), 0);
  if (shots) await lab.shot('notice-in-notebook', shots);
  await control.click();
  await popover.getByText('will be reclaimed').waitFor();
  await control.click();
  await popover.waitFor({ state: 'detached' });
  await calls();
  await banner.getByRole('button', { name: 'Suspend now' }).click();
  await until(
    'suspend',
    async () => (await actionCalls()).join() === `POST kernels/${id}/actions/suspend`
  );
  await banner.getByRole('button', { name: 'Move now' }).click();
  const moved = [];
  await until('a move', async () => moved.push(...(await actionCalls())) === 2);
  assert.deepEqual(moved, [
    `POST kernels/${id}/actions/suspend`,
    `POST kernels/${id}/actions/resume`
  ]);
  await toast('a.ipynb: still on GPU 1. No other GPU has room.').waitFor();
  await banner.getByRole('button', { name: 'Request more…' }).click();
  await popover.getByLabel('Share', { exact: true }).waitFor();
  await page.keyboard.press('Escape');
  // a notification while the notebook is hidden
  await lab.command('launcher:create');
  await page
    .locator('.Toastify__toast', { hasText: 'a.ipynb: GPU memory will be reclaimed' })
    .waitFor();
  await lab.front('a.ipynb');
  await page
    .locator('.Toastify__toast', { hasText: 'will be reclaimed' })
    .waitFor({ state: 'detached' });
  await configure({ status: { kernels: [mine({})] } });
  await banner.waitFor({ state: 'hidden' });

  // the actions from the palette
  await calls();
  for (const [words, call] of [
    ['Suspend This Notebook', 'actions/suspend'],
    ['Pin This Notebook', 'actions/pin'],
    ['Move This Notebook', 'actions/resume']
  ]) {
    await page.keyboard.press('Control+Shift+C');
    await page.locator('.lm-CommandPalette-input:visible').fill(words);
    await page
      .locator('.lm-CommandPalette-item:not(.lm-mod-disabled)', { hasText: words })
      .waitFor();
    await page.keyboard.press('Enter');
    const made = [];
    await until(
      words,
      async () => (made.push(...(await actionCalls())), made.includes(`POST kernels/${id}/${call}`))
    );
  }

  // a new kernel: the saved share is requested once; a release removes it
  const anew = () =>
    page.evaluate(async () => {
      const { sessionContext } = window.jupyterapp.shell.currentWidget;
      await sessionContext.shutdown();
      await sessionContext.changeKernel({ name: 'python3' });
      return sessionContext.session.kernel.id;
    });
  const second = await anew();
  await calls();
  await configure({ status: { kernels: [detached(second, 'a.ipynb')] } });
  let asked;
  await until(
    'the remembered request',
    async () =>
      (asked = (await calls()).find(call => call.path === `kernels/${second}`)) !== undefined
  );
  assert.deepEqual(asked.body, chosen);
  await configure({ status: { kernels: [kernel({ kernel_id: second, name: 'a.ipynb' })] } });
  await expectText('½ GPU · 70 GiB (30 GiB borrowed)');
  await control.click();
  await popover.getByRole('button', { name: 'Release' }).click();
  await until('it is forgotten', async () => (await metadata('a.ipynb')) === null);
  await page.keyboard.press('Escape');
  await popover.waitFor({ state: 'detached' });

  // a notebook with a saved share says that it was requested
  await page.evaluate(async chosen => {
    const content = {
      cells: [],
      metadata: { gpushare: chosen, kernelspec: { name: 'python3', display_name: 'Python 3' } },
      nbformat: 4,
      nbformat_minor: 5
    };
    await window.jupyterapp.serviceManager.contents.save('old.ipynb', {
      type: 'notebook',
      format: 'json',
      content
    });
  }, chosen);
  await lab.front('old.ipynb');
  await until('its kernel', async () => (await kernelId('old.ipynb')) !== null);
  await configure({ status: { kernels: [detached(await kernelId('old.ipynb'), 'old.ipynb')] } });
  await page
    .locator('.Toastify__toast', {
      hasText: 'old.ipynb: requested ½ GPU, the share saved in this notebook'
    })
    .waitFor();
  await lab.front('a.ipynb');

  // a restart and a shutdown lose GPU memory, and are no errors; another loss is one
  const lostEvent = message => ({ time: new Date().toISOString(), kind: 'lost', message });
  const withEvent = event =>
    configure({
      status: { kernels: [kernel({ kernel_id: second, name: 'a.ipynb', events: [event] })] }
    });
  await configure({ status: { kernels: [kernel({ kernel_id: second, name: 'a.ipynb' })] } });
  await withEvent(lostEvent('GPU 1 failed.'));
  await toast('a.ipynb: GPU 1 failed.').waitFor();
  await configure({
    status: {
      kernels: [
        kernel({ kernel_id: second, name: 'a.ipynb' }),
        kernel({ kernel_id: 'k9', name: 'gone.ipynb' })
      ]
    }
  });
  await page.evaluate(() =>
    window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()
  );
  await configure({
    status: {
      kernels: [
        kernel({ kernel_id: second, name: 'a.ipynb', events: [lostEvent('Restarted.')] }),
        kernel({ kernel_id: 'k9', name: 'gone.ipynb', events: [lostEvent('Shut down.')] })
      ]
    }
  });
  await withEvent(lostEvent('Restarted.'));
  await page.waitForTimeout(4000); // longer than the notifier waits
  assert.equal(await toast('Restarted.').count(), 0);
  assert.equal(await toast('Shut down.').count(), 0);

  // the reason in the dialog of a died kernel
  await configure({ status: { kernels: [kernel({ kernel_id: second, name: 'a.ipynb' })] } });
  await lab.run('a.ipynb', 'import os\nos.kill(os.getpid(), 9)');
  const dialog = page.locator('.jp-Dialog', { hasText: 'appears to have died' });
  await dialog.getByText('GPU share did not cause this').waitFor();
  const lost = {
    time: new Date().toISOString(),
    kind: 'killed',
    message: 'The kernel is restarted to free 70 GiB of GPU memory.'
  };
  await configure({
    status: { kernels: [kernel({ kernel_id: second, name: 'a.ipynb', events: [lost] })] }
  });
  await dialog
    .getByText('GPU share: The kernel is restarted to free 70 GiB of GPU memory.')
    .waitFor();
  if (shots) await lab.shot('died', shots);
  await dialog.getByRole('button').first().click();

  assert.deepEqual(lab.pageErrors, []);
});
