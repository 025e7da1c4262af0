/**
 * Nothing shifts in the sidebar when it opens or when its numbers change (scripted server). A new
 * line, as a notice's, moves what is below it.
 * Usage: node layout_shift.mjs URL
 */
import assert from 'node:assert/strict';

import { noSeriousProblems } from './axe.mjs';
import { inLab } from './browser.mjs';
import { kernel, scriptedServer } from './scripted_server.mjs';

const { configure } = scriptedServer(process.argv[2]);
const kernels = (used, changes = {}) =>
  Array.from({ length: 12 }, (_, i) =>
    kernel({
      kernel_id: `k${i}`,
      name: `work/n${i}.ipynb`,
      workload: `w${i}`,
      memory_mib: { guaranteed: 40960, used, borrowed: Math.max(0, used - 40960) },
      utilization: used / 81920,
      ...changes
    })
  );
const project = (name, gpu_allocated) => ({
  name,
  department: 'research',
  pool: 'default',
  member: true,
  gpu_quota: 1,
  gpu_limit: null,
  gpu_fair_share: 1.5,
  gpu_allocated,
  gpu_requested: 3
});
const projects = allocated => ['vision', 'language'].map(name => project(name, allocated));

await inLab(process.argv[2], async lab => {
  const { page, panel } = lab;
  const usesText = gib => panel.getByText(`${gib} GiB of 80 GiB used`).first().waitFor();
  // every shift in the sidebar, and of elements that are gone: nobody can tell where they were
  await page.evaluate(() => {
    window.__shifts = [];
    window.__frames = 0;
    const isOurs = node => node === null || node.parentElement?.closest('#jupyter-gpushare');
    const words = ({ node, previousRect, currentRect }) =>
      `${node?.textContent}: ${[previousRect, currentRect].map(one => `${one.x}, ${one.y}`)}`;
    const note = list => {
      const sources = list.getEntries().flatMap(entry => entry.sources);
      window.__shifts.push(...sources.filter(one => isOurs(one.node)).map(words));
    };
    window.__observer = new PerformanceObserver(note);
    window.__observer.observe({ type: 'layout-shift' });
    window.__note = () => note({ getEntries: () => window.__observer.takeRecords() });
  });
  /** The shifts since the last time, after two frames have been shown. */
  const shifts = () =>
    page.evaluate(async () => {
      const frame = () => new Promise(done => requestAnimationFrame(done));
      await frame();
      await frame();
      await frame();
      window.__note();
      return window.__shifts.splice(0);
    });

  // opened with another state than it had when it was hidden, before its projects are loaded
  await lab.showPanel();
  await panel.getByText(/No running notebooks/).waitFor();
  await lab.command('application:toggle-right-area');
  let loaded = () => undefined;
  const load = new Promise(done => (loaded = done));
  await page.route(/gpushare\/api\/projects/, async route => {
    await load;
    await route.continue();
  });
  await configure({ status: { kernels: kernels(40_960) }, tables: { projects: projects(0.5) } });
  await shifts();
  await lab.command('application:toggle-right-area');
  await usesText(40);
  assert.deepEqual(await shifts(), []);
  loaded();
  await panel.getByText('vision').last().waitFor();
  await panel.locator('[data-project=vision]').waitFor();
  assert.deepEqual(await shifts(), []);

  // memory, utilization, projects, running and idle
  for (const gib of [70, 9, 1, 64, 40]) {
    await configure({
      status: { kernels: kernels(1024 * gib) },
      tables: { projects: projects(gib / 40) }
    });
    await usesText(gib);
  }
  await configure({ status: { kernels: kernels(40_960, { busy: false }) } });
  await lab.card('n0.ipynb').getByText('idle').waitFor();
  assert.deepEqual(await shifts(), []);

  // the test sees shifts: a notice moves the cards below its own
  const notice_deadline = new Date(Date.now() + 60_000).toISOString();
  await configure({ status: { kernels: kernels(40_960, { notice_deadline }) } });
  await lab.card('n0.ipynb').getByText(/will be reclaimed/).waitFor();
  assert.notDeepEqual(await shifts(), []);
  await noSeriousProblems(page, '#jupyter-gpushare');
  assert.deepEqual(lab.pageErrors, []);
});
