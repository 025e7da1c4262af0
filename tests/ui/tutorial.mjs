/**
 * The address of the demo opens the tutorial; "Run All Cells" tells its whole story.
 * Usage: node tutorial.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const LIMIT_MS = 180_000;

await inLab(
  url,
  async lab => {
    const { page, panel } = lab;
    await page.getByRole('heading', { name: 'A share of a GPU' }).waitFor();
    await panel.waitFor(); // the sidebar is open at the first visit
    await panel.getByText('simulated', { exact: true }).waitFor();

    // a closed sidebar opens again when the story needs it
    await lab.command('application:toggle-right-area');
    await panel.waitFor({ state: 'hidden' });
    await page.evaluate(async () => {
      const { sessionContext } = window.jupyterapp.shell.currentWidget;
      await sessionContext.ready;
      await sessionContext.session.kernel.info;
    });
    await page.evaluate(() => void window.jupyterapp.commands.execute('notebook:run-all-cells'));
    await panel.waitFor({ timeout: LIMIT_MS });
    await lab.card('second.ipynb').getByText('70 GiB of 80 GiB used').waitFor({ timeout: LIMIT_MS });
    await lab.card('third.ipynb').getByText('80 GiB of 80 GiB used').waitFor({ timeout: LIMIT_MS });
    if (shots) await lab.shot('run-all', shots);

    // all cells end, in order, without an error
    await page.waitForFunction(
      () => {
        const { widgets } = window.jupyterapp.shell.currentWidget.content;
        const code = widgets.filter(cell => cell.model.type === 'code');
        return code.every(cell => cell.model.executionState === 'idle' && cell.model.executionCount);
      },
      undefined,
      { timeout: LIMIT_MS, polling: 250 }
    );
    const outputs = await page.evaluate(() =>
      window.jupyterapp.shell.currentWidget.content.widgets
        .filter(cell => cell.model.type === 'code')
        .map(cell => [
          cell.model.sharedModel.getSource(),
          JSON.stringify(cell.model.outputs.toJSON())
        ])
    );
    for (const [source, shown] of outputs) {
      assert.ok(!shown.includes('"output_type":"error"'), `${source}: ${shown}`);
      if (source.startsWith('data.sum()')) assert.match(shown, /True, 'SIM-GPU/);
    }
    const text = outputs.map(([, shown]) => shown).join('\n');
    assert.match(text, /second\.ipynb has its share and uses 70GiB/);
    assert.match(text, /The kernel of third\.ipynb has ended/);
    assert.match(text, /1\.0 GPU: SIM-GPU/);
    const path = await page.evaluate(() => window.jupyterapp.shell.currentWidget.context.path);
    assert.equal(path, 'tutorial.ipynb', 'the tutorial keeps the focus');
    assert.deepEqual(await lab.dialogs(), []);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 820 }
);
