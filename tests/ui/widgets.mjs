/** The panel of plain widgets in a notebook: node widgets.mjs URL [FOLDER FOR PICTURES] */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);

await inLab(
  url,
  async lab => {
    const { page } = lab;
    const picture = async name => shots && lab.shot(`widgets-${name}`, shots);
    const run = async code => lab.done('a.ipynb', await lab.run('a.ipynb', code));
    await lab.notebook('a.ipynb');

    // it shows what is true and offers what makes sense
    await run('from jupyter_gpushare import gpu, simgpu\npanel = gpu.panel()\npanel');
    const panel = page.locator('.jp-OutputArea .widget-vbox');
    const shows = what => panel.getByText(what).first().waitFor();
    const button = name => panel.getByRole('button', { name, exact: true });
    await shows(/ask for a share/);
    assert.ok(await button('Suspend').isDisabled());
    assert.ok(await button('Release').isDisabled());

    // its buttons ask; what comes of it shows without anybody asking again
    await button('Request').click();
    await shows(/0\.5 GPU = 40 GiB guaranteed/);
    await button('Change').waitFor();

    // it follows what a cell does, while the cell runs
    const index = await lab.run(
      'a.ipynb',
      'import os, time\ndata = simgpu.alloc("70GiB")\ndata.fill(7)\nwhile not os.path.exists("enough"):\n    time.sleep(0.05)'
    );
    await shows(/70 GiB of 80 GiB used, 30 GiB of it borrowed/);
    assert.equal((await lab.cell('a.ipynb', index)).busy, true, 'the cell still runs');
    await picture('panel');
    if (shots) await page.waitForTimeout(8000); // so that the picture of what was has something to show
    await page.evaluate(() =>
      window.jupyterapp.serviceManager.contents.save('enough', {
        type: 'file',
        format: 'text',
        content: ''
      })
    );
    await lab.done('a.ipynb', index);

    // suspended and resumed by its buttons: a click is no work on the GPU, so it does not bring the memory back by itself
    await button('Suspend').click();
    await shows(/^suspended ·/);
    await page.waitForFunction(
      () =>
        ![...document.querySelectorAll('.widget-vbox button')].find(b => b.textContent === 'Resume')
          .disabled
    );
    await button('Resume').click();
    await shows(/attached · SIM-GPU/);
    assert.match((await run('print(data.sum() == 7 * data.nbytes)')).text, /True/);

    // a refusal stands in it
    await panel.getByRole('combobox').fill('lots');
    await panel.getByRole('combobox').press('Enter');
    await button('Change').click();
    await panel.getByRole('alert').waitFor();

    // what was, as a picture in the notebook
    await run('%gpu history --minutes 15');
    const drawing = page.locator('.jp-OutputArea svg[role=img]').last();
    await drawing.waitFor();
    assert.match(
      await drawing.locator('title').textContent(),
      /GPU memory of this notebook, since .*70 GiB used now/
    );
    await drawing.scrollIntoViewIfNeeded();
    await picture('history');

    // nobody looks: the kernel sends nothing
    const counted = () => run('print(panel.widget._view_count, panel.is_looked_at)');
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

    // released from elsewhere, shown again: the truth of then
    await run('%gpu release');
    await run('panel');
    await shows(/ask for a share/);
    assert.deepEqual(lab.complaints, []);
  },
  { width: 1200, height: 900 }
);
