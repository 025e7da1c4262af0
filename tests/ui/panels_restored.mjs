/**
 * The dashboard and charts in panels are where they were after the page is loaded again (demo).
 * Usage: node panels_restored.mjs URL
 */
import assert from 'node:assert/strict';

import { noSeriousProblems } from './axe.mjs';
import { inLab } from './browser.mjs';
import { until } from './scripted_server.mjs';

const OPENED = 'jupyter-gpushare-chart-gpu-power';
const DRAGGED = 'jupyter-gpushare-chart-gpu-memory';

await inLab(
  process.argv[2],
  async lab => {
    const { page } = lab;
    const board = page.locator('#jupyter-gpushare-dashboard');
    const chart = name => board.locator(`[data-chart=${name}]`);
    const opened = page.locator(`#${OPENED}`);
    const dragged = page.locator(`#${DRAGGED}`);
    const showsCharts = async () => {
      await board.locator('[data-view=charts]').waitFor();
      await opened.getByRole('img', { name: /^GPU power\. GPU 0: \d+ W/ }).waitFor();
      await dragged.getByRole('img', { name: /^GPU memory in use\. GPU 0/ }).waitFor();
    };
    const boxes = () => Promise.all([board, opened, dragged].map(one => one.boundingBox()));
    const saved = () =>
      page.evaluate(async () => {
        const { baseUrl, token } = window.jupyterapp.serviceManager.serverSettings;
        const headers = { Authorization: `token ${token}` };
        return (await (await fetch(`${baseUrl}lab/api/workspaces/default`, { headers })).json())
          .data;
      });

    // one is opened, the other dragged to the bottom
    await lab.command('gpushare:dashboard', { view: 'charts' });
    await chart('gpu-power').getByRole('button', { name: 'Open as a panel' }).click();
    const head = await chart('gpu-memory').getByRole('heading').boundingBox();
    const dock = await page.locator('#jp-main-dock-panel').boundingBox();
    await page.mouse.move(head.x + 20, head.y + 5);
    await page.mouse.down();
    await page.mouse.move(head.x + 60, head.y + 40, { steps: 5 });
    await page.mouse.move(dock.x + dock.width / 2, dock.y + dock.height - 20, { steps: 10 });
    await page.mouse.up();
    await showsCharts();
    const before = await boxes();
    assert.ok(before[1].x > before[0].x, 'the opened one is beside the dashboard');
    assert.ok(before[2].y > before[0].y + before[0].height / 2, 'the dragged one is below');

    await until('the layout is saved', async () => {
      const data = await saved();
      const main = JSON.stringify(data['layout-restorer:data']?.main ?? '');
      return [
        'jupyter-gpushare-charts:gpu-power',
        'jupyter-gpushare-charts:gpu-memory',
        'jupyter-gpushare-dashboard:jupyter-gpushare-dashboard'
      ].every(name => main.includes(name) && name in data);
    });
    await page.reload();
    await page.waitForFunction(() => window.jupyterapp !== undefined);
    await page.evaluate(() => window.jupyterapp.restored);
    await showsCharts();
    (await boxes()).forEach((after, i) =>
      ['x', 'y', 'width', 'height'].forEach(side =>
        assert.ok(Math.abs(after[side] - before[i][side]) < 20, `${side} of panel ${i}`)
      )
    );
    await noSeriousProblems(page, `#${OPENED}`);

    // opened once more, it is the same panel
    await lab.command('gpushare:chart', { name: 'gpu-power' });
    assert.equal(await page.locator('.jp-GpuShareDashboard-chartPanel').count(), 2);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 900 }
);
