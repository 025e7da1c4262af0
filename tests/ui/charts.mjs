/**
 * Charts of GPUs, nodes and notebooks in the demo, as panels too; the page of a workload; actions in
 * tables; people on the map.
 * Usage: node charts.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';

import { noSeriousProblems, THEMES, useTheme } from './axe.mjs';
import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const FILL = 'from jupyter_gpushare import simgpu\ndata = simgpu.alloc("70GiB")';
const TITLES = {
  'gpu-utilization': 'GPU utilization',
  'gpu-memory': 'GPU memory in use',
  'gpu-temperature': 'GPU temperature',
  'gpu-power': 'GPU power',
  'host-cpu': 'CPU of the nodes',
  'host-memory': 'Host memory, and GPU memory saved in it',
  'notebook-utilization': 'GPU utilization of my notebooks',
  'notebook-memory': 'GPU memory of my notebooks'
};

await inLab(
  url,
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard:not(.jp-GpuShareDashboard-chartPanel)');
    const picture = async name => shots && lab.shot(`dashboard-${name}`, shots);
    const openView = view => lab.command('gpushare:dashboard', { view });
    const expectText = (what, where = board) =>
      where.getByText(what).first().waitFor({ timeout: 90_000 });
    const row = name => board.getByRole('row').filter({ hasText: name }).first();
    const chart = name => board.locator(`[data-chart=${name}]`);
    const panel = page.locator('.jp-GpuShareDashboard-chartPanel:visible');

    for (const name of ['a.ipynb', 'b.ipynb']) {
      await lab.notebook(name);
      await lab.done(name, await lab.run(name, '%gpu request 0.5'));
      await lab.done(name, await lab.run(name, FILL));
    }
    await lab.run('a.ipynb', 'simgpu.busy(600)');

    // every chart, with its present values as text
    await openView('charts');
    for (const [name, title] of Object.entries(TITLES)) {
      await chart(name).getByRole('heading', { name: title, exact: true }).waitFor();
    }
    await expectText(/GPU 0: \d+ °C · GPU 1: \d+ °C/, chart('gpu-temperature'));
    await expectText(/GPU 0: \d+ W · GPU 1: \d+ W/, chart('gpu-power'));
    await expectText(/70 GiB/, chart('gpu-memory'));
    await expectText(/in use: .* GiB · .*saved: 0 MiB/, chart('host-memory'));
    await expectText(/: [1-9]\d* %/, chart('host-cpu'));
    await expectText(/a\.ipynb: 70 GiB · b\.ipynb: 70 GiB/, chart('notebook-memory'));
    await expectText(/a\.ipynb: [1-9]\d* %/, chart('notebook-utilization'));
    if (shots) await page.waitForTimeout(20_000); // for a picture with some history
    await picture('charts');

    // saved GPU memory shows at once in its chart and on the map
    await lab.command('docmanager:open', { path: 'b.ipynb' });
    await lab.command('gpushare:suspend');
    await openView('charts');
    await expectText(/saved: 70 GiB/, chart('host-memory'));
    await openView('map');
    await expectText(/CPU \d+ % · host memory .* of .* · saved GPU memory 70 GiB/);
    await expectText(/°C · \d+\sW/);
    const user = await page.evaluate(async () => {
      const { baseUrl, token } = window.jupyterapp.serviceManager.serverSettings;
      const headers = { Authorization: `token ${token}` };
      return (await (await fetch(`${baseUrl}gpushare/api/status`, { headers })).json()).user;
    });
    await expectText(`a.ipynb (½ GPU) · ${user} · `);

    // opened as a panel, and closed again
    await openView('charts');
    await chart('gpu-power').getByRole('button', { name: 'Open as a panel' }).press('Enter');
    await panel.getByRole('img', { name: /^GPU power\. GPU 0: \d+ W/ }).waitFor();
    await picture('chart-panel');
    await closePanel(page, 'gpu-power');
    await panel.waitFor({ state: 'detached' });

    // dragged out by its head
    const head = await chart('gpu-memory').getByRole('heading').boundingBox();
    const dock = await page.locator('#jp-main-dock-panel').boundingBox();
    await page.mouse.move(head.x + 20, head.y + 5);
    await page.mouse.down();
    await page.mouse.move(head.x + 60, head.y + 40, { steps: 5 });
    await page.mouse.move(dock.x + dock.width - 60, dock.y + dock.height / 2, { steps: 10 });
    await page.mouse.up();
    await panel.getByRole('img', { name: /^GPU memory in use\. GPU 0/ }).waitFor();
    const shown = await panel.boundingBox();
    assert.ok(shown.x > dock.x + dock.width / 3, 'it is where it was dropped: at the right');

    // the panel alone keeps polling; hidden, nothing is polled
    const calls = [];
    page.on(
      'request',
      request => /gpushare\/api\/.*history/.test(request.url()) && calls.push(request.url())
    );
    await lab.front('a.ipynb'); // hides the dashboard, the panel stays
    await page.waitForRequest(/gpushare\/api\/history\/nodes/);
    await closePanel(page, 'gpu-memory');
    await page.waitForTimeout(300); // requests in flight
    calls.length = 0;
    await page.waitForTimeout(6000); // longer than the polls' interval
    assert.deepEqual(calls, []);

    // the page of a workload, by keyboard
    await openView('workloads');
    await board.getByRole('button', { name: 'a.ipynb' }).press('Enter');
    const sheet = board.getByRole('region', { name: 'Workload a.ipynb' });
    await sheet.getByText(/^(Running|running)$/).waitFor();
    await sheet.getByRole('img', { name: /^GPU memory of my notebooks\. a\.ipynb: 70 GiB/ }).waitFor();
    await sheet.getByText(/Uses 70 GiB/).first().waitFor();
    assert.equal(
      await page.evaluate(() => document.activeElement.textContent),
      '← All workloads'
    );
    await picture('workload');
    for (const theme of THEMES) {
      await useTheme(page, theme);
      await noSeriousProblems(page, '.jp-GpuShareDashboard', `page of a workload in ${theme}`);
      await openView('charts');
      await chart('gpu-power').waitFor();
      await noSeriousProblems(page, '.jp-GpuShareDashboard', `charts in ${theme}`);
      if (theme === THEMES[1]) await picture('charts-dark');
      await openView('workloads');
      await board.getByRole('button', { name: 'a.ipynb' }).click();
    }
    await useTheme(page, THEMES[0]);
    await page.keyboard.press('Enter'); // back
    await row('b.ipynb').waitFor();

    // actions in tables
    await row('b.ipynb').getByRole('button', { name: 'Resume' }).click();
    await expectText('idle', row('b.ipynb'));
    await row('b.ipynb').getByRole('button', { name: 'Release' }).click();
    await row('b.ipynb').waitFor({ state: 'detached' });
    await openView('nodes');
    await board.getByRole('button', { name: 'Cordon', exact: true }).click();
    await board.getByRole('button', { name: 'Uncordon' }).click();
    await board.getByRole('button', { name: 'Cordon', exact: true }).waitFor();
    await board.getByRole('button', { name: 'Drain…' }).click();
    const question = page.locator('.jp-Dialog');
    await question.getByText(/evicted after their notice/).waitFor();
    await question.getByRole('button', { name: 'Cancel' }).click();
    await board.getByRole('button', { name: 'Cordon', exact: true }).waitFor();

    // a confirmed drain: the node is cordoned and its workload gives its GPU back; then it returns
    await board.getByRole('button', { name: 'Drain…' }).click();
    await question.getByRole('button', { name: 'Drain', exact: true }).click();
    await board.getByRole('button', { name: 'Uncordon' }).waitFor();
    await openView('workloads');
    await expectText(/scheduling disabled/, row('a.ipynb')); // saved, and waiting for the node
    await openView('nodes');
    await board.getByRole('button', { name: 'Uncordon' }).click();
    await openView('workloads');
    await expectText(/^(running|idle)$/, row('a.ipynb'));
    // Resume answers 409 if the GPU has no room at that moment, and resumes when it has.
    const isNoRoom = line => /status of 409 .*\/actions\/resume/.test(line);
    assert.deepEqual(
      lab.pageErrors.filter(line => !isNoRoom(line)),
      []
    );
  },
  { width: 1360, height: 900 }
);

function closePanel(page, name) {
  return page.evaluate(
    id => [...window.jupyterapp.shell.widgets('main')].find(one => one.id === id).close(),
    `jupyter-gpushare-chart-${name}`
  );
}
