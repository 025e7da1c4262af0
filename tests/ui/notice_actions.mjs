/**
 * What a notice offers, pressed while a cell runs: node notice_actions.mjs URL [FOLDER FOR PICTURES]
 *
 * Played against the real demo. Save and let go: the cell stands still, and goes on when it is resumed. Ask for more: what is asked for is
 * guaranteed, and the cell goes on. Neither loses anything.
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
  /** A cell of small.ipynb runs when a third notebook takes a whole GPU; its notice stands above its cells. */
  const noticed = async whole => {
    const cell = await lab.run('small.ipynb', BUSY);
    await page.waitForFunction(
      index => window.__cell('small.ipynb', index)?.text.includes('begun'),
      cell
    );
    await lab.notebook(whole);
    await lab.run(whole, '%gpu request 1 --project course');
    await lab.front('small.ipynb');
    const banner = page.locator('.jp-GpuShare-banner:visible');
    await banner.getByText(/will be taken back in \d+ s/).waitFor();
    return { cell, banner };
  };
  const ended = async cell =>
    assert.match((await lab.done('small.ipynb', cell)).text, /ended True/);

  // save and let go: at once, whole; the cell stands still and says so; resumed, it ends with what it held
  const first = await noticed('whole.ipynb');
  await first.banner.getByRole('button', { name: 'Save and let go' }).click();
  await small.getByText('50 GiB saved in host memory · 40 GiB guaranteed').waitFor();
  await small.getByText('Its running cell stands still until it is resumed.').waitFor();
  await lab.card('whole.ipynb').getByText('on GPU').waitFor();
  if (shots) await lab.shot('saved', shots);
  await small.getByRole('button', { name: 'Resume' }).click();
  await ended(first.cell);
  await shut('whole.ipynb');
  await lab.card('whole.ipynb').waitFor({ state: 'detached' });
  await run('large.ipynb', '1'); // both spread out again
  await run('small.ipynb', '1');

  // ask for more: what to expect is said of this share in place of the old one; then it is guaranteed, and the cell goes on
  const second = await noticed('again.ipynb');
  await second.banner.getByRole('button', { name: 'Ask for more…' }).click();
  const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
  await page.waitForFunction(() => document.activeElement?.closest('form') !== null); // the keyboard is where the question is
  assert.equal(await popover.getByRole('button', { name: 'Ask for more…' }).count(), 0);
  await popover.getByRole('button', { name: /^1 GPU/ }).click();
  await popover.getByText(/1 other/).waitFor();
  if (shots) await lab.shot('ask-for-more', shots);
  await popover.getByRole('button', { name: 'Request', exact: true }).click();
  await lab
    .card('small.ipynb')
    .getByText(/^1 GPU · vision/)
    .waitFor();
  await second.banner.waitFor({ state: 'hidden' });
  await ended(second.cell);
  assert.deepEqual(await lab.dialogs(), []);
  assert.deepEqual(lab.complaints, []);
});
