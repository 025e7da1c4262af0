/**
 * Requests with an estimate, and waiting with a reason.
 * Usage: node request_and_wait.mjs URL [SCREENSHOT FOLDER]
 *
 * Runs against the demo with two GPUs: half a GPU that bursts, a whole one, and a third notebook
 * that waits.
 */
import assert from 'node:assert/strict';

import { THEMES, useTheme } from './axe.mjs';
import { inLab } from './browser.mjs';
import { createWaitHistory } from './wait_history.mjs';

const [url, shots] = process.argv.slice(2);
const alloc = gib =>
  `from jupyter_gpushare import simgpu
data = simgpu.alloc("${gib}GiB")
print("have", simgpu.device_uuid())`;

await createWaitHistory(url, 9);
await inLab(
  url,
  async lab => {
    const { page, panel } = lab;
    const picture = async name => shots && lab.shot(name, shots);
    const card = text => page.locator('.jp-LauncherCard:visible', { hasText: text });
    const control = page.locator('.jp-NotebookPanel:visible .jp-GpuShare-control-button');
    const made = async (text, name) => {
      await lab.launcher();
      await card(text).click();
      await lab.rename(name);
    };
    await lab.showPanel();
    await lab.arrange();
    await panel.locator('[data-project=vision]').waitFor();
    await lab.launcher();
    await card('Python 3 · ½ GPU').waitFor();
    await picture('launcher');

    // half a GPU that borrows memory: toolbar and popover
    await made('Python 3 · 1 GPU', 'train.ipynb');
    await lab.done('train.ipynb', await lab.run('train.ipynb', alloc(72)));
    await made('Python 3 · ½ GPU', 'explore.ipynb');
    assert.match(
      (await lab.done('explore.ipynb', await lab.run('explore.ipynb', alloc(61)))).text,
      /have SIM-GPU/
    );
    await control.getByText('½ GPU · 61 GiB (21 GiB borrowed)').waitFor();
    await control.click();
    const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
    await popover.getByText('21 GiB borrowed').waitFor();
    await picture('toolbar');
    await page.keyboard.press('Escape');

    // the dialog: when it would start, why it would wait, alternatives
    await lab.launcher();
    await card('GPU share…').click();
    const dialog = page.locator('.jp-Dialog');
    await dialog.getByRole('button', { name: '1 GPU', exact: true }).click();
    await dialog.getByText(/Would wait\. Needs 1 GPU/).waitFor();
    await dialog.getByText('0.5 GPU would start now.').waitFor();
    await dialog.getByText(/^Expected wait: under 1 min \(based on 9 similar requests/).waitFor();
    for (const [share, offer] of [
      ['½ GPU', 'starts now'],
      ['1 GPU', 'under 1 min']
    ]) {
      await dialog.getByRole('button', { name: share, exact: true }).getByText(offer).waitFor();
    }
    await picture('ask-first');
    await dialog.getByRole('button', { name: 'Request', exact: true }).click();
    await lab.rename('sweep.ipynb');

    // waiting with a reason: cell, toolbar, sidebar
    const waits = await lab.run('sweep.ipynb', alloc(40));
    await control.getByText(/^1 GPU · waiting, position 1/).waitFor();
    const sweep = lab.card('sweep.ipynb');
    await sweep.getByText(/Needs 1 GPU/).waitFor();
    await sweep
      .getByText(/^Expected remaining wait: under 1 min|waited longer than similar requests/)
      .waitFor(); // depends on the speed of the machine
    await sweep.getByText('What would start now?').click();
    await sweep.getByRole('button', { name: 'Request this instead' }).waitFor();
    await page.locator('.jp-OutputArea-output', { hasText: 'Needs 1 GPU' }).waitFor();
    await sweep.scrollIntoViewIfNeeded();
    await picture('waiting');
    await useTheme(page, THEMES[1]);
    await picture('dark');
    await useTheme(page, THEMES[0]);

    // the alternative starts, and the cell runs
    await sweep.getByRole('button', { name: 'Request this instead' }).click();
    assert.match((await lab.done('sweep.ipynb', waits)).text, /have SIM-GPU/);
    await control.getByText(/½ GPU · 40 GiB/).waitFor();
    assert.deepEqual(await lab.dialogs(), []);
    assert.deepEqual(lab.pageErrors, []);

    // the same notebook in Notebook 7
    const { origin, searchParams } = new URL(url);
    await page.evaluate(() => window.jupyterapp.commands.execute('docmanager:save-all'));
    await page.goto(`${origin}/notebooks/explore.ipynb?token=${searchParams.get('token')}`);
    await page.locator('.jp-GpuShare-control-button').getByText('½ GPU').waitFor();
    await page.locator('.jp-GpuShare-control-button').click();
    await popover.getByText('guaranteed').waitFor();
    await picture('notebook-7');
  },
  { width: 1360, height: 820 }
);
