/**
 * 500 kernels in the sidebar, with the scripted server.
 * Usage: node many_kernels.mjs URL [SCREENSHOT FOLDER]
 *
 * Counts instead of timing: hidden cards are not laid out, and a change of one kernel renders one
 * card.
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure, calls } = scriptedServer(url);
const MANY = 500;
const name = n => `work/run-${String(n).padStart(3, '0')}.ipynb`;
const many = change =>
  Array.from({ length: MANY }, (_, n) => ({
    ...kernel({ kernel_id: `k${n}`, name: name(n), workload: `w${n}` }),
    ...(n === 499 ? change : {})
  }));

await inLab(url, async lab => {
  const { page, panel } = lab;
  await lab.showPanel();
  await configure({ status: { kernels: many() } });
  await panel
    .locator('.jp-GpuShare-card')
    .nth(MANY - 1)
    .waitFor({ state: 'attached' });
  await panel.getByText('500', { exact: true }).waitFor();

  // hidden cards are not laid out: their children have no size
  const drawn = () =>
    panel
      .locator('.jp-GpuShare-card header')
      .evaluateAll(
        headers =>
          headers.filter(header => header.checkVisibility({ contentVisibilityAuto: true })).length
      );
  await until('few are drawn', async () => (await drawn()) < 50);

  // the last card can be reached and used
  const last = lab.card('run-499.ipynb');
  await calls();
  await last.getByRole('button', { name: 'Suspend' }).click();
  await until('suspend', async () =>
    (await calls()).some(call => call.path === 'kernels/k499/actions/suspend')
  );

  // a change of one kernel renders one card
  await page.evaluate(() => {
    window.__touched = new Set();
    new MutationObserver(records =>
      records.forEach(({ target }) => {
        const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
        window.__touched.add(element?.closest('[data-kernel-id]')?.dataset.kernelId ?? 'other');
      })
    ).observe(document.querySelector('#jupyter-gpushare'), {
      subtree: true,
      childList: true,
      characterData: true,
      attributes: true
    });
  });
  await configure({ kernel: many({ state: 'suspended' })[499] });
  await last.getByText('suspended', { exact: true }).waitFor();
  assert.deepEqual(await page.evaluate(() => [...window.__touched]), ['k499']);

  // the narrowest panel: nothing overflows
  await lab.command('application:toggle-left-area');
  await page.setViewportSize({ width: 560, height: 800 });
  await last.scrollIntoViewIfNeeded();
  assert.ok(
    await panel.evaluate(node => node.scrollWidth <= node.clientWidth),
    'no sideways scrolling'
  );
  if (shots) await lab.shot('many', shots);
  assert.deepEqual(lab.pageErrors, []);
});
