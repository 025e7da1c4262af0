/**
 * Two notebooks share a GPU and a third takes it.
 * Usage: node story.mjs URL [SCREENSHOT FOLDER]
 *
 * Runs against the demo: real kernels, simulated GPUs. Shares are requested by a launcher card, by
 * keyboard in the dialog, and in the sidebar.
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);

const FILL = `from jupyter_gpushare import simgpu
data = simgpu.alloc("70GiB")
data.fill(7)
print("filled", simgpu.device_uuid())`;
const WHOLE = `from jupyter_gpushare import simgpu
mine = simgpu.alloc("80GiB")
print("have", simgpu.device_uuid())`;
const CHECK = 'print("kept" if data.sum() == 7 * data.nbytes else "lost", simgpu.device_uuid())';
const BURSTING = '70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed';

await inLab(
  url,
  async lab => {
    const { page, panel } = lab;
    const expectText = (name, what, timeout = 60_000) =>
      lab.card(name).getByText(what).first().waitFor({ timeout });
    const run = async (name, code, timeout) => lab.done(name, await lab.run(name, code), timeout);
    const picture = async name => shots && lab.shot(name, shots);
    const uuid = text => /SIM-GPU-\S+/.exec(text)?.[0];

    await lab.showPanel();
    await panel.getByText('simulated', { exact: true }).waitFor();
    await lab.arrange();

    // 1. two halves, planned on one GPU, run on two; both burst
    const homes = {};
    for (const [name, ask] of [
      ['a.ipynb', byMouse],
      ['b.ipynb', byKeyboard]
    ]) {
      await lab.launcher();
      await ask(lab);
      await lab.rename(name);
      const filled = await run(name, FILL);
      assert.match(filled.text, /filled SIM-GPU/, filled.text);
      homes[name] = uuid(filled.text);
      await expectText(name, BURSTING);
    }
    assert.notEqual(homes['a.ipynb'], homes['b.ipynb'], 'both burst, so they are on two GPUs');
    await picture('two-halves-burst');

    // 2. a whole GPU for the third: the others are suspended, not killed
    await lab.notebook('c.ipynb');
    await inSidebar(lab, 'c.ipynb');
    const whole = await run('c.ipynb', WHOLE);
    assert.match(whole.text, /have SIM-GPU/, whole.text);
    await expectText('c.ipynb', '80 GiB of 80 GiB used · 80 GiB guaranteed');
    await picture('a-whole-gpu-lands');
    const other = Object.values(homes).find(home => home !== uuid(whole.text));

    // 3. the moved kernel continues with its data; the other one too
    for (const name of ['a.ipynb', 'b.ipynb']) {
      const kept = await run(name, CHECK);
      assert.match(kept.text, /^kept/m, `${name}: ${kept.text}`);
      assert.equal(uuid(kept.text), other, 'the halves share the other GPU');
    }
    assert.deepEqual(await lab.dialogs(), [], 'no dialog "appears to have died"');
    const moved = lab.card('a.ipynb').locator('[data-kind=moved]');
    await lab
      .card((await moved.count()) > 0 ? 'a.ipynb' : 'b.ipynb')
      .getByText('Events')
      .click();
    await picture('moved-and-kept');

    // 4. the third kernel ends; both spread out and burst again
    await page.evaluate(async () => {
      const widget = await window.jupyterapp.commands.execute('docmanager:open', {
        path: 'c.ipynb'
      });
      await widget.sessionContext.shutdown();
    });
    await lab.card('c.ipynb').waitFor({ state: 'detached' });
    const again = {};
    for (const name of ['a.ipynb', 'b.ipynb']) {
      again[name] = uuid((await run(name, CHECK)).text);
    }
    for (const name of ['a.ipynb', 'b.ipynb']) {
      await expectText(name, BURSTING);
    }
    assert.notEqual(again['a.ipynb'], again['b.ipynb'], 'they spread out again');
    await picture('spread-again');
    assert.deepEqual(await lab.dialogs(), []);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 820 }
);

/** A launcher card. */
async function byMouse({ page }) {
  await page.locator('.jp-LauncherCard:visible', { hasText: 'Python 3 · ½ GPU' }).click();
}

/** The dialog, which says when the request would start. */
async function byKeyboard({ page }) {
  await page.locator('.jp-LauncherCard:visible', { hasText: 'GPU share…' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.locator('.jp-Dialog');
  await dialog.getByText('Would start now').waitFor();
  await dialog.getByLabel('Share', { exact: true }).focus();
  await page.keyboard.press('Control+A');
  await page.keyboard.type('0.5');
  await page.keyboard.press('Enter');
  await dialog.waitFor({ state: 'detached' });
}

async function inSidebar(lab, name) {
  await lab.card(name).getByRole('button', { name: 'Request a GPU share…' }).click();
  const form = lab.card(name).getByRole('form');
  await form.getByRole('button', { name: '1 GPU' }).click();
  await form.getByText('Would start now').waitFor();
  await form.getByRole('button', { name: 'Request', exact: true }).click();
  await form.waitFor({ state: 'detached' });
}
