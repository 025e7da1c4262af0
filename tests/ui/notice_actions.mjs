/**
 * The actions of a notice while a cell runs.
 * Usage: node notice_actions.mjs URL [SCREENSHOT FOLDER]
 *
 * Runs against the demo. "Suspend now" pauses the cell until the kernel is resumed; "Request more"
 * keeps the memory. No data is lost.
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const fill = gib =>
  `from jupyter_gpushare import simgpu\ndata = simgpu.alloc("${gib}GiB")\ndata.fill(7)`;
const BUSY = 'print("begun")\nsimgpu.busy(12)\nprint("ended", data.sum() == 7 * data.nbytes)';

await inLab(url, async lab => {
  const { page } = lab;
  const run = async (name, code) => lab.done(name, await lab.run(name, code));
  const small = lab.card('small.ipynb');
  const shut = name =>
    page.evaluate(async name => {
      const { sessions } = window.jupyterapp.serviceManager;
      await sessions.shutdown([...sessions.running()].find(one => one.path === name).id);
    }, name);
  await lab.showPanel();
  for (const [name, gib, project] of [
    ['small.ipynb', 50, 'vision'],
    ['large.ipynb', 70, 'language']
  ]) {
    await lab.notebook(name);
    await run(name, `%gpu request 0.5 --project ${project}`);
    await run(name, fill(gib));
  }
  /**
   * Runs a cell in small.ipynb, then requests a whole GPU in a third notebook, and waits for the
   * notice.
   */
  const waitForNotice = async whole => {
    const cell = await lab.run('small.ipynb', BUSY);
    await page.waitForFunction(
      index => window.__cell('small.ipynb', index)?.text.includes('begun'),
      cell
    );
    await lab.notebook(whole);
    await lab.run(whole, '%gpu request 1 --project course');
    await lab.front('small.ipynb');
    const banner = page.locator('.jp-GpuShare-banner:visible');
    await banner.getByText(/will be reclaimed in \d+ s/).waitFor();
    return { cell, banner };
  };
  const ended = async cell =>
    assert.match((await lab.done('small.ipynb', cell)).text, /ended True/);

  // suspend now: the cell pauses; after resuming it ends with its data
  const first = await waitForNotice('whole.ipynb');
  await first.banner.getByRole('button', { name: 'Suspend now' }).click();
  await small.getByText('50 GiB saved in host memory · 40 GiB guaranteed').waitFor();
  await small.getByText('The running cell is paused until the kernel is resumed.').waitFor();
  await lab
    .card('whole.ipynb')
    .getByText(/^(running|idle)$/)
    .waitFor();
  if (shots) await lab.shot('saved', shots);
  await small.getByRole('button', { name: 'Resume' }).click();
  await ended(first.cell);
  await shut('whole.ipynb');
  await lab.card('whole.ipynb').waitFor({ state: 'detached' });
  await run('large.ipynb', '1'); // both spread out again
  await run('small.ipynb', '1');

  // request more: the form replaces the share; then the memory is guaranteed and the cell goes on
  const second = await waitForNotice('again.ipynb');
  await second.banner.getByRole('button', { name: 'Request more…' }).click();
  const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
  // focus is in the form
  await page.waitForFunction(() => document.activeElement?.closest('form') !== null);
  assert.equal(await popover.getByRole('button', { name: 'Request more…' }).count(), 0);
  await popover.getByRole('button', { name: /^1 GPU/ }).click();
  await popover.getByText(/after a notice of \d+ s to again\.ipynb/).waitFor();
  if (shots) await lab.shot('ask-for-more', shots);
  await popover.getByRole('button', { name: 'Request', exact: true }).click();
  await lab
    .card('small.ipynb')
    .getByText(/^1 GPU · vision/)
    .waitFor();
  await second.banner.waitFor({ state: 'hidden' });
  await ended(second.cell);
  assert.deepEqual(await lab.dialogs(), []);
  assert.deepEqual(lab.pageErrors, []);
});
