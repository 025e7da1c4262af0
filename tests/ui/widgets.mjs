/**
 * The ipywidgets panel in a notebook.
 * Usage: node widgets.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const FILL_AND_WAIT = `import os, time
data = simgpu.alloc("70GiB")
data.fill(7)
while not os.path.exists("enough"):
    time.sleep(0.05)`;
const [url, shots] = process.argv.slice(2);

await inLab(
  url,
  async lab => {
    const { page } = lab;
    const picture = async name => shots && lab.shot(`widgets-${name}`, shots);
    const run = async code => lab.done('a.ipynb', await lab.run('a.ipynb', code));
    await lab.notebook('a.ipynb');

    // it shows the state and offers the possible actions
    await run('from jupyter_gpushare import gpu, simgpu\npanel = gpu.panel()\npanel');
    const panel = page.locator('.jp-OutputArea .widget-vbox');
    const expectText = what => panel.getByText(what).first().waitFor();
    const button = name => panel.getByRole('button', { name, exact: true });
    await expectText(/request a share/);
    assert.ok(await button('Suspend').isDisabled());
    assert.ok(await button('Release').isDisabled());

    // its buttons request; the result shows without polling by the person
    await button('Request').click();
    await expectText(/0\.5 GPU = 40 GiB guaranteed/);
    await button('Change').waitFor();

    // it updates while a cell runs
    const index = await lab.run('a.ipynb', FILL_AND_WAIT);
    await expectText(/70 GiB of 80 GiB used, 30 GiB borrowed/);
    assert.equal((await lab.cell('a.ipynb', index)).busy, true, 'the cell still runs');
    await picture('panel');
    await page.evaluate(() =>
      window.jupyterapp.serviceManager.contents.save('enough', {
        type: 'file',
        format: 'text',
        content: ''
      })
    );
    await lab.done('a.ipynb', index);

    // Suspend and Resume: a click is not GPU work and does not resume by itself
    await button('Suspend').click();
    await expectText(/^suspended ·/);
    await page.waitForFunction(
      () =>
        ![...document.querySelectorAll('.widget-vbox button')].find(b => b.textContent === 'Resume')
          .disabled
    );
    await button('Resume').click();
    await expectText(/idle · SIM-GPU/);
    assert.match((await run('print(data.sum() == 7 * data.nbytes)')).text, /True/);

    // it shows an error
    await panel.getByRole('combobox').fill('much');
    await panel.getByRole('combobox').press('Enter');
    await button('Change').click();
    await panel.getByRole('alert').waitFor();

    // the history as a chart
    await run('%gpu history --minutes 15');
    const chart = page.locator('.jp-OutputArea pre', { hasText: 'GPU memory of this notebook' });
    await chart.last().waitFor();
    assert.match(await chart.last().textContent(), /since [^]*used .*70 GiB now/);

    // without a visible view the kernel sends nothing
    const counted = () => run('print(panel.widget._view_count, panel.is_visible)');
    assert.match((await counted()).text, /^1 True/);
    await lab.command('notebook:move-cursor-up');
    await page.evaluate(async () => {
      const widget = await window.jupyterapp.commands.execute('docmanager:open', {
        path: 'a.ipynb'
      });
      widget.content.widgets[0].model.outputs.clear();
    });
    await panel.waitFor({ state: 'detached' });
    assert.match((await counted()).text, /^0 False/);

    // released elsewhere: a new view shows the current state
    await run('%gpu release');
    await run('panel');
    await expectText(/request a share/);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1200, height: 900 }
);
