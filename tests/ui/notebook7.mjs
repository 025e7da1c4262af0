/**
 * Notebook 7, which has no status bar, with the scripted server.
 * Usage: node notebook7.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure, calls } = scriptedServer(url);
const server = new URL(url).origin;
const headers = { Authorization: 'token scripted' };
const content = {
  cells: [],
  metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
  nbformat: 4,
  nbformat_minor: 5
};
await fetch(`${server}/api/contents/seven.ipynb`, {
  method: 'PUT',
  headers,
  body: JSON.stringify({ type: 'notebook', content })
});

await inLab(`${server}/notebooks/seven.ipynb?token=scripted`, async lab => {
  const { page } = lab;
  const control = page.locator('.jp-GpuShare-control-button');
  const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
  const id = () =>
    page.evaluate(
      () => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.id ?? null
    );
  await until('a kernel', async () => (await id()) !== null);
  const mine = async changes =>
    configure({
      status: { kernels: [kernel({ kernel_id: await id(), name: 'seven.ipynb', ...changes })] }
    });

  // control and popover
  await mine({});
  await control.getByText('½ GPU · 70 GiB (30 GiB borrowed)').waitFor();
  await control.click();
  await popover.getByText('70 GiB of 80 GiB used').waitFor();
  if (shots) await lab.shot('notebook-7', shots);
  await calls();
  await popover.getByRole('button', { name: 'Suspend' }).click();
  await until('suspend', async () =>
    (await calls()).some(call => call.path.endsWith('actions/suspend'))
  );
  await page.keyboard.press('Escape');
  await popover.waitFor({ state: 'detached' });

  // the notice
  await mine({ notice_deadline: new Date(Date.now() + 60_000).toISOString() });
  await page
    .locator('.jp-GpuShare-banner')
    .getByText(/will be reclaimed in \d\d s/)
    .waitFor();
  await mine({});

  // events as notifications
  await mine({
    events: [
      {
        time: new Date().toISOString(),
        kind: 'moved',
        message: 'Moved to GPU 1 with all of its memory.'
      }
    ]
  });
  await page.locator('.Toastify__toast', { hasText: 'seven.ipynb: Moved to GPU 1' }).waitFor();

  // the panel
  await lab.showPanel();
  await lab.card('seven.ipynb').getByText('30 GiB borrowed').waitFor();
  if (shots) await lab.shot('notebook-7-panel', shots);

  // the dialog of a new notebook
  void lab.command('gpushare:create-notebook-dialog').catch(() => undefined);
  const dialog = page.locator('.jp-Dialog', { hasText: 'New notebook with a GPU share' });
  await dialog.getByText('Would start now on node n0.').waitFor();
  await dialog.getByRole('form').getByRole('button', { name: 'Cancel' }).click();
  // errors of Notebook 7 itself, the second one when JupyterLab's server serves its pages
  const OWN = [/reading 'schema'/, /Command 'filebrowser:open-path' not registered/];
  assert.deepEqual(
    lab.pageErrors.filter(text => !OWN.some(pattern => pattern.test(text))),
    []
  );
});
