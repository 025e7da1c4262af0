/**
 * The tables of the dashboard fit into windows of three widths: nothing is cut at the right.
 * Usage: node tables_fit.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { device, node, pool, workload } from './cluster_fixtures.mjs';
import { scriptedServer } from './scripted_server.mjs';

const [url, shots] = process.argv.slice(2);
const { configure } = scriptedServer(url);
const TIERS = ['observe', 'cooperate', 'limit', 'suspend', 'relocate'];
const GPUS = { devices: [device({})], tiers: TIERS };
const ready = [node({ name: 'gpu-node-01', ...GPUS }), node({ name: 'gpu-node-02', ...GPUS })];
const silent = node({
  ...GPUS,
  name: 'gpu-node-03',
  status: 'Not ready',
  cordoned: true,
  reasons: ['agent silent'],
  driver: '570.86.15'
});
const project = {
  name: 'language-models',
  department: 'research',
  pool: 'default',
  member: true,
  gpu_quota: 1,
  gpu_limit: null,
  gpu_fair_share: 1.5,
  gpu_allocated: 1.5,
  gpu_requested: 3
};
const waiting = workload({
  name: 'work/training of the large model.ipynb',
  state: 'pending',
  queue_position: 1,
  reason: { code: 'WaitingForQuota', message: 'No quota is free.', numbers: {}, helps: [] }
});
const tables = nodes => ({
  nodes,
  pools: [pool({}), pool({ name: 'a100-large', status: 'Empty', reasons: ['no node'] })],
  workloads: [workload({}), waiting],
  projects: [project]
});
/** Windows, and which side areas of JupyterLab are open in them. */
const WINDOWS = [
  [770, []],
  [1024, ['right']],
  [1440, ['left', 'right']]
];

await inLab(url, async lab => {
  const { page } = lab;
  const board = page.locator('.jp-GpuShareDashboard');
  const scroller = board.locator('.jp-GpuShareDashboard-scroll');
  const found = [];
  for (const [width, open] of WINDOWS) {
    await page.setViewportSize({ width, height: 600 });
    await page.evaluate(open => {
      const { shell } = window.jupyterapp;
      open.includes('left') ? shell.expandLeft() : shell.collapseLeft();
      open.includes('right') ? shell.expandRight() : shell.collapseRight();
    }, open);
    for (const [what, nodes] of Object.entries({ ready, silent: [...ready, silent] })) {
      await configure({ status: { admin: true }, tables: tables(nodes) });
      for (const view of ['workloads', 'nodes', 'pools', 'projects']) {
        await lab.command('gpushare:dashboard', { view });
        await board.locator(`[data-view=${view}][data-freshness=live]`).waitFor();
        await scroller.locator('tbody td').first().waitFor();
        if (view === 'nodes') {
          await page.waitForFunction(
            rows => document.querySelectorAll('td[data-column=name]').length === rows,
            nodes.length
          );
        }
        const out = await scroller.evaluate(one => one.scrollWidth - one.clientWidth);
        if (out > 0) found.push(`${view} (${what}) in ${width} px: ${out} px`);
        if (shots) await lab.shot(`table-${view}-${what}-${width}`, shots);
      }
    }
  }
  assert.deepEqual(found, [], 'columns are cut');
});
