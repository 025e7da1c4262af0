/**
 * The dashboard of the demo.
 * Usage: node dashboard.mjs URL [SCREENSHOT FOLDER]
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { noSeriousProblems, THEMES, useTheme } from './axe.mjs';
import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const FILL = 'from jupyter_gpushare import simgpu\ndata = simgpu.alloc("70GiB")\ndata.fill(7)';

await inLab(
  url,
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard');
    const picture = async name => shots && lab.shot(`dashboard-${name}`, shots);
    const openView = async name => board.getByRole('tab', { name, exact: true }).click();
    const expectText = (what, where = board) => where.getByText(what).first().waitFor();
    const gpu = number => board.locator(`[data-uuid$="-${number}"]`);
    const row = name => board.getByRole('row').filter({ hasText: name }).first();

    // the launcher opens it, before anything runs
    await page.locator('.jp-LauncherCard', { hasText: 'GPU dashboard' }).click();
    await expectText('No workloads.', gpu(0));
    await expectText('simulated');

    // two workloads of half a GPU burst, planned on one GPU; a third one waits
    for (const name of ['a.ipynb', 'b.ipynb']) {
      await lab.notebook(name);
      await lab.done(name, await lab.run(name, '%gpu request 0.5'));
      await lab.done(name, await lab.run(name, FILL));
    }
    await lab.notebook('c.ipynb');
    await lab.done(
      'c.ipynb',
      await lab.run('c.ipynb', '%gpu request 2 --priority build --queue-anyway --no-wait')
    );
    await lab.command('gpushare:dashboard');
    await expectText('1 / 2 GPUs allocated');
    await expectText('1 workload waiting');
    await expectText(/^a\.ipynb \(½ GPU\) · \S+ · 70 GiB · 30 GiB borrowed/, gpu(0));
    await expectText(/70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed/, gpu(1));
    await expectText('planned here: b.ipynb (½ GPU)', gpu(0));
    await picture('map');

    // tabs by keyboard
    await board.getByRole('tab', { name: 'Map' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Charts');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Queues');
    await expectText(/1 GPUs allocated/);
    await board.getByRole('button', { name: 'vision' }).press('Enter');
    await expectText('vision in node pool default: GPUs over time');
    await board
      .getByRole('img', { name: /^vision in node pool default: 1 GPUs allocated/ })
      .waitFor();
    assert.equal(
      await row('vision').getAttribute('data-depth'),
      '1',
      'a project is nested in its department'
    );
    if (shots) await releaseAndRequestAgain(lab);
    await picture('queues');

    // reasons, sorting and filter
    await openView('Workloads');
    await expectText(/for non-preemptible work: .* 2 more requested/, row('c.ipynb'));
    const names = () => board.locator('td[data-column=name]').allTextContents();
    const sort = board.getByRole('button', { name: 'Name' });
    await sort.click();
    assert.deepEqual(await names(), ['a.ipynb', 'b.ipynb', 'c.ipynb']);
    await sort.press('Enter');
    assert.deepEqual(await names(), ['c.ipynb', 'b.ipynb', 'a.ipynb']);
    assert.equal(
      await board.getByRole('columnheader', { name: 'Name' }).getAttribute('aria-sort'),
      'descending'
    );
    await board.getByRole('searchbox').fill('b.ipynb');
    assert.deepEqual(await names(), ['b.ipynb']);
    await board.getByRole('searchbox').fill('');
    await picture('workloads');

    // the visible columns are downloaded, in the order of the table
    await board.getByRole('button', { name: 'Columns' }).click();
    for (const label of [
      'State',
      'User',
      'Node',
      'Position',
      'Expected wait',
      'Requested at',
      'Reason'
    ]) {
      await board.getByRole('checkbox', { name: label, exact: true }).uncheck();
    }
    await page.keyboard.press('Escape');
    assert.deepEqual(await board.getByRole('columnheader').allTextContents(), [
      'Name ▼',
      'Project',
      'GPUs',
      'Actions'
    ]);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      board.getByRole('button', { name: 'Download CSV' }).click()
    ]);
    assert.equal(download.suggestedFilename(), 'workloads.csv');
    const lines = readFileSync(await download.path(), 'utf8')
      .trim()
      .split('\n');
    assert.deepEqual(
      [lines[0], ...lines.slice(1).sort()],
      ['name,project,request.gpu', 'a.ipynb,vision,0.5', 'b.ipynb,vision,0.5', 'c.ipynb,vision,2']
    );

    // the other views
    await openView('Nodes');
    await expectText('Ready', board.getByRole('row').nth(1));
    await openView('Node pools');
    await expectText('default', board.getByRole('row').nth(1));
    await openView('Projects');
    await expectText('course', row('course'));
    await openView('Evictions');
    await expectText(/No evictions recorded/);

    // a hidden dashboard does not poll
    const calls = [];
    page.on(
      'request',
      request =>
        /gpushare\/api\/(nodes|workloads|evictions)/.test(request.url()) &&
        calls.push(request.url())
    );
    await lab.front('a.ipynb');
    await page.waitForTimeout(300); // requests in flight
    calls.length = 0;
    await lab.done('a.ipynb', await lab.run('a.ipynb', 'data.free()'));
    await lab.card('a.ipynb').count();
    assert.deepEqual(calls, []);
    await lab.command('gpushare:dashboard', { view: 'map' });
    await expectText(/^a\.ipynb \(½ GPU\) · \S+ · 0 MiB/, gpu(0));

    // themes and a narrow window
    for (const theme of THEMES) {
      await useTheme(page, theme);
      for (const view of ['map', 'queues', 'workloads']) {
        await lab.command('gpushare:dashboard', { view });
        await board.locator(`[data-view=${view}][data-freshness=live]`).waitFor();
        await noSeriousProblems(page, '.jp-GpuShareDashboard', `${view} in ${theme}`);
        if (view === 'map' && theme === 'JupyterLab Dark') await picture('map-dark');
      }
    }
    await useTheme(page, THEMES[0]);
    await page.setViewportSize({ width: 640, height: 700 });
    await lab.command('gpushare:dashboard', { view: 'map' });
    const overflow = await board.evaluate(node => node.scrollWidth - node.clientWidth);
    assert.ok(overflow <= 0, `nothing sticks out of a narrow dashboard (${overflow} px do)`);
    await page.setViewportSize({ width: 1280, height: 800 });

    // an unavailable server: stale rows are marked, and a retry loads them again
    // (it is away until somebody retries: a poll must not bring it back first)
    const retry = board.getByRole('button', { name: 'Retry' });
    const isAsked = () => page.evaluate(() => window.__retried === true);
    await page.route(/gpushare\/api\//, async route =>
      (await isAsked()) ? route.continue() : route.abort('connectionfailed')
    );
    await lab.command('gpushare:dashboard', { view: 'nodes' });
    await expectText(/Last updated at/);
    await board.evaluate(node =>
      node.addEventListener(
        'click',
        event => (window.__retried = event.target.textContent === 'Retry'),
        { capture: true }
      )
    );
    await retry.click();
    await board.locator('[data-freshness=live]').waitFor();
    await page.unroute(/gpushare\/api\//);

    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 820 }
);

/**
 * For the screenshot of the history: release and request again. The scheduler samples every 5 s.
 */
async function releaseAndRequestAgain(lab) {
  await lab.page.locator('.jp-GpuShareDashboard-time select').selectOption('15');
  for (const ask of ['%gpu release', '%gpu request 0.5']) {
    await lab.page.waitForTimeout(14_000);
    await lab.done('b.ipynb', await lab.run('b.ipynb', ask));
  }
  await lab.done('b.ipynb', await lab.run('b.ipynb', FILL));
  await lab.page.waitForTimeout(14_000);
  await lab.command('gpushare:dashboard', { view: 'queues' });
}
