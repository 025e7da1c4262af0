/**
 * A kernel whose GPU memory cannot be saved is warned, killed and restarted.
 * Usage: node kernel_killed.mjs URL [SCREENSHOT FOLDER]
 *
 * Runs against the demo; the simulated driver has the fault "suspend is not supported".
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);

const FAULT = `import os
from jupyter_gpushare.kernel.simnode import SimNode
SimNode(os.environ["GPUSHARE_SIMGPU"]).fault("unsupported")`;
const fill = gib =>
  `from jupyter_gpushare import simgpu
data = simgpu.alloc("${gib}GiB")
print("filled", simgpu.device_uuid())`;
const BUSY = 'print("begun")\nsimgpu.busy(600)';

await inLab(
  url,
  async lab => {
    const { page, panel } = lab;
    const run = async (name, code, timeout) => lab.done(name, await lab.run(name, code), timeout);
    const toast = text => page.locator('.Toastify__toast', { hasText: text }).first();
    await lab.showPanel();
    await lab.arrange();

    // the smaller kernel moves: fewest bytes
    for (const [name, gib] of [
      ['small.ipynb', 50],
      ['large.ipynb', 70]
    ]) {
      await lab.notebook(name);
      await run(name, '%gpu request 0.5');
      assert.match((await run(name, fill(gib))).text, /filled/);
    }
    await run('small.ipynb', FAULT);
    const busy = await lab.run('small.ipynb', BUSY);
    const queued = await lab.run('small.ipynb', 'print("never")');
    await page.waitForFunction(
      index => window.__cell('small.ipynb', index)?.text.includes('begun'),
      busy
    );

    // first the notice with its countdown
    await lab.notebook('whole.ipynb');
    await lab.run('whole.ipynb', '%gpu request 1');
    await toast('small.ipynb: GPU memory will be reclaimed in').waitFor();
    const countdown = lab.card('small.ipynb').locator('.jp-GpuShare-notice-count');
    await countdown.getByText(/will be reclaimed in \d+ s/).waitFor();
    await lab.front('small.ipynb');
    // the notebook shows the notice itself
    await toast('small.ipynb: GPU memory will be reclaimed in').waitFor({ state: 'detached' });
    await page
      .locator('.jp-GpuShare-banner:visible .jp-GpuShare-notice-count')
      .getByText(/will be reclaimed in \d+ s/)
      .waitFor();
    if (shots) await lab.shot('notice', shots);

    // then the kill: no cell stays busy, no dialog "appears to have died", one notification about
    // the loss
    await lab.card('small.ipynb').locator('[data-kind=killed]').waitFor({ state: 'attached' });
    await lab.done('small.ipynb', busy);
    assert.equal((await lab.done('small.ipynb', queued)).text.includes('never'), false);
    await toast('Its variables are lost').waitFor();
    assert.deepEqual(await lab.dialogs(), []);
    if (shots) await lab.shot('killed', shots);

    // the notebook continues with a new process and a share
    const alive = await run('small.ipynb', 'print("alive")');
    assert.match(alive.text, /alive/);
    const again = await run('small.ipynb', fill(10));
    assert.match(again.text, /filled SIM-GPU/, again.text);
    await lab.done('whole.ipynb', 0);
    assert.deepEqual(await lab.dialogs(), []);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 820 }
);
